# zundo.stat_database, zundo.stat_tables and zundo.stat_indexes: what is counted, what a restart
# keeps, and what a crash, a reset, DROP and a lack of places remove. zundo.undo_history: its samples, their number, and what of
# them is hidden.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('counters', "zundo.eager_rollback_pages = 0\nzundo.history_interval = 0\ncompute_query_id = on\n", allows_streaming => 1);
my $setup = q(
	CREATE EXTENSION zundo;
	CREATE TABLE z (id int PRIMARY KEY, n int) USING zheap;
	INSERT INTO z SELECT g, 0 FROM generate_series(1, 1000) g);
sql($setup);

# of DATABASE COLUMN: returns one counter.
sub of
{
	my ($database, $column) = @_;
	return sql("SELECT $column FROM zundo.stat_database WHERE datname = '$database'");
}

# table NAME COLUMN: returns one counter of a table of database postgres.
sub table
{
	my ($name, $column) = @_;
	return sql("SELECT $column FROM zundo.stat_tables WHERE relname = '$name'");
}

my $before = of('postgres', 'undo_written');
cmp_ok($before, '>', 0, 'undo is counted');
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT sum(n) FROM z');
sql('UPDATE z SET n = n + 1');
cmp_ok(of('postgres', 'undo_written') - $before, '>', 10000, 'that of an UPDATE, too');
$before = of('postgres', 'records_read');
my $rebuilt = of('postgres', 'versions_rebuilt');
is($session->query_safe('SELECT sum(n) FROM z'), '0', 'old versions');
is($session->query_safe('SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT n FROM z WHERE id = 7'), '0', '... by an index');
$session->query_safe('COMMIT');
is(table('z', 'versions_rebuilt || \'|\' || idx_versions_rebuilt'), '1001|1', 'they are counted of the table, too');
cmp_ok(table('z', 'undo_written'), '>', 10000, 'and so is undo');
cmp_ok(of('postgres', 'records_read'), '>', $before, 'what their reader has read is counted');
is(of('postgres', 'versions_rebuilt') - $rebuilt, '1001', '... and what it has rebuilt');
is(of('postgres', 'updated_in_place') . '|' . of('postgres', 'moved'), '1000|0', 'so is how the rows were changed');
$before = of('postgres', 'undo_written');
$session->query_safe("BEGIN; " . "UPDATE z SET n = n + 1; " x 20);
cmp_ok(of('postgres', 'undo_written') - $before, '>', 100000, 'undo is counted before the transaction ends');
$session->query_safe('ROLLBACK');
sql('BEGIN; UPDATE z SET n = -1; ROLLBACK');
ok(all_discarded($node), 'all is discarded');
ok($node->poll_query_until('postgres', q(SELECT pages_rolled_back > 0 AND undo_discarded > 0 AND undo_peak > 10000
	AND worker_cycles > 0 AND worker_time > 0 FROM zundo.stat_database WHERE datname = 'postgres')), 'and so is what the worker does');
cmp_ok(table('z', 'pages_rolled_back'), '>', 0, '... of the table');
ok($node->poll_query_until('postgres', q(SELECT rollbacks = 2 FROM zundo.stat_database WHERE datname = 'postgres')), 'two transactions were rolled back');

# a rollback counts once, though several processes find it done
$session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT sum(n) FROM z');
sql('BEGIN; UPDATE z SET n = -1; ROLLBACK');
sql('SELECT zundo.discard()') for 1 .. 3;
$session->query_safe('COMMIT');
ok(all_discarded($node), 'all is discarded after several looked at it');
ok($node->poll_query_until('postgres', q(SELECT rollbacks >= 3 FROM zundo.stat_database WHERE datname = 'postgres')), '... one more was rolled back');
is(of('postgres', 'rollbacks'), '3', '... and counts once');

# what is written while the worker discards is discarded, too
sql('CREATE PROCEDURE often() LANGUAGE plpgsql AS $$ BEGIN FOR i IN 1 .. 300 LOOP UPDATE z SET n = n + 1; COMMIT; END LOOP; END $$');
sql('CALL often()');
ok(all_discarded($node), 'all is discarded again');
ok($node->poll_query_until('postgres', q(SELECT undo_discarded / undo_written::float BETWEEN 0.97 AND 1.03
	FROM zundo.stat_database WHERE datname = 'postgres')), 'as much undo was discarded as was written'); # (the worker counts at the end of its cycle)

# marks of readers
sql('VACUUM z');
sql('UPDATE z SET n = 0');
ok(all_discarded($node), 'all pages may be marked');
sql('SELECT count(*) FROM z');
cmp_ok(table('z', 'pages_marked'), '>', 1, 'pages that a reader has marked');
cmp_ok(of('postgres', 'pages_marked'), '>=', table('z', 'pages_marked'), '... also of the database');

# DROP, also of what was created in vain; temporary tables are not counted
my $tables = 'SELECT count(*) FROM zundo.stat_get_tables()';
sql('CREATE TEMP TABLE own (n int) USING zheap; INSERT INTO own VALUES (1); UPDATE own SET n = 2');
is(sql($tables), '1', 'z is counted');
sql('CREATE TABLE y (n int) USING zheap; INSERT INTO y VALUES (1)');
is(sql($tables), '2', '... and y');
sql('BEGIN; DROP TABLE y; ROLLBACK');
is(sql($tables), '2', 'DROP that is rolled back');
sql('DROP TABLE y');
is(sql($tables), '1', 'DROP');
sql('BEGIN; CREATE TABLE y (n int) USING zheap; INSERT INTO y VALUES (1); ' . 'UPDATE y SET n = n + 1; ' x 10 . 'ROLLBACK');
is(sql($tables), '1', 'CREATE that is rolled back');
sql('CREATE INDEX z_n ON z (n)');
sql('UPDATE z SET n = n + 1 WHERE id <= 3');
is(sql('SELECT indexrelname, moved FROM zundo.stat_indexes'), 'z_n|3', 'an index that makes rows move');
sql('BEGIN; DROP INDEX z_n; ROLLBACK');
is(sql($tables), '2', '... is counted');
sql('DROP INDEX z_n');
is(sql($tables), '1', '... until it is dropped');

# commands of several transactions
sql('CREATE INDEX z_n ON z (n)');
sql('UPDATE z SET n = n + 1 WHERE id <= 3');
sql('REINDEX INDEX CONCURRENTLY z_n');
is(sql($tables), '1', '... or replaced');
sql('UPDATE z SET n = n + 1 WHERE id <= 3');
sql('DROP INDEX CONCURRENTLY z_n');
is(sql($tables), '1', '... or dropped concurrently');
sql(q(CALL zundo.convert('z', 'heap')));
sql(q(CALL zundo.convert('z', 'zheap')));
is(sql($tables), '1', 'zundo.convert leaves nothing');
is(of('postgres', 'waits + refusals + cancellations + unclear_answered + unclear_refused'), '0', 'nobody had to wait');

# a standby counts for itself
my $standby = standby_of($node);
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', 'SELECT coalesce(sum(undo_written), 0) FROM zundo.stat_database'), '0', 'a standby has written nothing');
$standby->stop;

# another database
$session->quit;
sql('CREATE DATABASE second');
$node->safe_psql('second', $setup);
cmp_ok(of('second', 'undo_written'), '>', 0, 'another database');

# restart, reset, DROP DATABASE, crash
my $written = of('postgres', 'undo_written');
my $since = of('postgres', 'stats_reset');
my $of_table = table('z', 'undo_written');
$node->append_conf('postgresql.conf', 'zundo.max_stat_tables = 3');
$node->restart;
cmp_ok(of('postgres', 'undo_written'), '>=', $written, 'a restart keeps the counters');
is(table('z', 'undo_written'), $of_table, '... of tables, too');
is(of('postgres', 'stats_reset'), $since, 'and since when they count');
sql('SELECT zundo.stat_reset()');
cmp_ok(of('postgres', 'undo_written'), '<', $written, 'a reset does not');
is(of('postgres', "stats_reset > '$since'"), 't', 'and is noted');
is(table('z', 'undo_written'), '', 'it takes the tables away');

# more tables than zundo.max_stat_tables, in one transaction and in several
sql("CREATE TABLE u$_ (n int) USING zheap") for 1 .. 5;
is(of('postgres', 'tables_evicted'), '0', 'there was a place for each table');
sql(join(';', map { "INSERT INTO u$_ VALUES ($_)" } 1 .. 5));
is(sql('SELECT count(*) FROM zundo.stat_tables'), '3', 'there are as many tables as places');
is(of('postgres', 'tables_evicted'), '3', 'others have lost theirs'); # (one to the other database)
for my $i (1 .. 5)
{
	sql("UPDATE u$i SET n = n + 1");
	is(table("u$i", 'updated_in_place'), '1', "the last one has a place: u$i");
}
sql('DROP TABLE u1, u2, u3, u4, u5');
is(sql($tables), '0', 'they are dropped');
cmp_ok(of('second', 'undo_written'), '>', 0, 'it is for one database');
ok($node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'second')), 'no worker');
my $second = sql(q(SELECT oid FROM pg_database WHERE datname = 'second'));
my $counted = "SELECT count(*) FROM zundo.stat_database WHERE datid = $second";
is(sql($counted), '1', 'a database is counted');
my $samples = $node->data_dir . "/pg_stat_tmp/zundo.$second.history";
append_to_file($samples, 'samples');
sql('DROP DATABASE second');
ok(!-e $samples, 'DROP DATABASE removes its samples');
is(sql($counted), '0', 'DROP DATABASE removes its counters');
my $file = $node->data_dir . '/pg_stat/zundo.stat.tmp';
mkdir $file or die $!;
$node->restart;
rmdir $file or die $!;
like(slurp_file($node->logfile), qr{LOG:  could not write file "pg_stat/zundo\.stat": }, 'counters that cannot be saved');
is(sql('SELECT coalesce(sum(undo_written), 0) FROM zundo.stat_database'), '0', '... are lost');
sql('UPDATE z SET n = 0');
# (an immediate shutdown saves them, too)
my $before_crash = -s $node->logfile;
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
$node->reload;
my $victim = $node->background_psql('postgres', on_error_stop => 0);
kill 'KILL', $victim->{backend};
$node->wait_for_log(qr/database system is ready to accept connections/, $before_crash);
eval { $victim->quit };
is(sql('SELECT coalesce(sum(undo_written), 0) FROM zundo.stat_database'), '0', 'a crash removes all');
my ($rc, $out, $err) = $node->psql('postgres', 'CREATE ROLE visitor; SET ROLE visitor; SELECT zundo.stat_reset()');
like($err, qr/permission denied for function stat_reset/, 'reset is not for everybody');
is(sql('SET ROLE visitor; SELECT count(*) >= 0 FROM zundo.stat_database'), 't', 'the view is');

# history
is(sql('SELECT count(*) FROM zundo.undo_history'), '0', 'no samples are taken');
# found WHERE: waits for a sample.
sub found
{
	my ($where) = @_;
	return $node->poll_query_until('postgres', "SELECT count(*) > 0 FROM zundo.undo_history WHERE $where");
}
sql(q(CREATE ROLE reporter LOGIN; GRANT SELECT ON z TO reporter));
$node->append_conf('postgresql.conf', 'zundo.history_interval = 1ms');
$node->reload;
my $old = $node->background_psql('postgres', extra_params => ['-U', 'reporter']);
$old->query_safe(q(SET application_name = 'report'; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT sum(n) FROM z));
sql('UPDATE z SET n = 1');
my $by = "kind = 'backend' AND pid = $old->{backend} AND usename = 'reporter'";
ok(found("$by AND application_name = 'report' AND age > '0' AND query_id <> 0 AND undo_kept > 10000"), 'a sample names what kept undo');
sql('UPDATE z SET n = 2');
ok(found('undo_written > 10000'), 'and how much was written');
my $hidden = "$by AND application_name IS NULL AND age IS NULL AND query_id IS NULL";
is(sql("SET ROLE visitor; SELECT count(*) > 0 AND bool_and($hidden OR pid IS DISTINCT FROM $old->{backend}) FROM zundo.undo_history"), 't', 'not to everybody');
is(sql("SET ROLE reporter; SELECT count(*) > 0 FROM zundo.undo_history WHERE $by AND application_name = 'report'"), 't', 'but to the role itself');
$node->append_conf('postgresql.conf', 'zundo.history_size = 3');
$node->reload;
ok($node->poll_query_until('postgres', 'SELECT count(*) = 3 FROM zundo.undo_history'), 'not more samples than wanted');
my $dboid = sql(q(SELECT oid FROM pg_database WHERE datname = 'postgres'));
$file = $node->data_dir . "/pg_stat_tmp/zundo.$dboid.history";
my $last = sql('SELECT max(sampled_at) FROM zundo.undo_history');
ok(found("sampled_at > timestamptz '$last' + interval '3s'"), 'samples are taken on and on');
cmp_ok(-s $file, '<', 2000, 'in a file that does not grow, of less than 1 MB for a day');
append_to_file($file, 'torn');
$last = sql('SELECT max(sampled_at) FROM zundo.undo_history');
ok(found("sampled_at > '$last'"), 'also after an incomplete write');
is(sql('SELECT count(*) FROM zundo.undo_history'), '3', '... which is not shown');
$old->quit;
$node->restart;
is(sql('SELECT count(*) FROM zundo.undo_history'), '3', 'a restart keeps them');
$node->stop;
unlink $file or die $!;
mkdir $file or die $!;
$node->start;
my $before_sample = -s $node->logfile;
my $prepared = $node->background_psql('postgres');
$prepared->query_safe('BEGIN; UPDATE z SET n = 3');
ok($node->wait_for_log(qr{LOG: .*could not write file "pg_stat_tmp/zundo\.\d+\.history": }, $before_sample), 'a file that cannot be written');
$prepared->quit;
is(sql('SELECT count(*) FROM zundo.undo_history'), '0', '... has no samples');
# what a session has kept back, since it had added something less than a second before
sql("CREATE TABLE late (n int) USING zheap;\nINSERT INTO late VALUES (0)");
sql("UPDATE late SET n = 1;\nUPDATE late SET n = 2;\nUPDATE late SET n = 3");
ok($node->poll_query_until('postgres', q(SELECT updated_in_place = 3 FROM zundo.stat_tables WHERE relname = 'late')),
	'... is counted when it ends');
$node->append_conf('postgresql.conf', 'zundo.max_stat_tables = 0');
$node->restart;
sql('UPDATE z SET n = 5; DROP TABLE z');
is(sql($tables), '0', 'no tables are counted');
no_crash($node);
done_testing();
