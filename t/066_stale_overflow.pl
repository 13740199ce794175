# A table page and its overflow page both count the changes of the overflow
# transaction slots, so that a write of one of them that the storage has lost is
# detected (OVERFLOW-3 in page/zoverflow.h). Every change of these slots must
# keep the two counts equal.
# Rules: OVERFLOW-4.
# long
use strict;
use warnings;
use Test::More;
use ZundoTest;

my $node = zundo_node('stale', <<'C', no_data_checksums => 1);
wal_consistency_checking = 'zundo'
max_prepared_transactions = 200
max_worker_processes = 0
checkpoint_timeout = 1h
fsync = off
C

sub error_of
{
	my ($sql) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql");
	return $rc == 0 ? "no error: $out" : $err;
}

# writers FROM TO: makes prepared transactions of these numbers, each of which changes the
# row of its number.
sub writers
{
	my ($table, $from, $to, $change) = @_;
	sql(map { ('BEGIN;', sprintf("$change;", $_), "PREPARE TRANSACTION '$table$_';") } $from .. $to);
	return;
}

sub path { return $node->data_dir . '/' . sql("SELECT pg_relation_filepath('$_[0]')") }

sub overflow_of { return unpack('L<', substr(read_block(path($_[0]), 0), 8192 - 8, 4)) }

sub rows { return sql("SELECT count(*), sum(n), sum(id) FROM $_[0]") }

sql('CREATE EXTENSION zundo');
for my $table (qw(t moves p))
{
	sql("CREATE TABLE $table (id int PRIMARY KEY, n int, filler text) USING zheap WITH (fillfactor = 100);
		INSERT INTO $table SELECT g, 0, repeat('x', 60) FROM generate_series(1, 200) g;");
}

# All kinds of changes: updates, deletions, row locks, savepoints, moves on the page and
# to another one, rollback.
writers('moves', 1, 30, 'UPDATE moves SET n = n + 1 WHERE id = %d');
cmp_ok(sql(q{SELECT count(*) FROM zundo.page_slots('moves', 0) WHERE overflow}), '>', 0, 'the page has an overflow page');
writers('moves', 31, 34, 'DELETE FROM moves WHERE id = %d');
sql("COMMIT PREPARED 'moves$_';") for 31 .. 34;
writers('moves', 35, 40, 'UPDATE moves SET id = id + 1000 WHERE id = %d');
cmp_ok(sql(q{SELECT count(*) FROM zundo.undo_records(NULL, 100000) m JOIN zundo.undo_records(NULL, 100000) i USING (xid)
	WHERE m.type = 'MOVE' AND i.type = 'INSERT' AND m.block = 0 AND i.block = 0}), '>', 0, 'rows have moved on their page');
writers('moves', 41, 43, 'SELECT 1 FROM moves WHERE id = %d FOR UPDATE');
writers('moves', 44, 46, "SELECT 1 FROM moves WHERE id = 60 FOR KEY SHARE; UPDATE moves SET n = 5 WHERE id = %d; SAVEPOINT a; UPDATE moves SET n = 6 WHERE id = 61; ROLLBACK TO a; UPDATE moves SET n = 7 WHERE id = 62; ROLLBACK TO a");
my $rows = rows('moves');
crash($node);
is(rows('moves'), $rows, 'the same rows after a crash');
sound($node, 'after a crash', 'moves');
sql("ROLLBACK PREPARED 'moves$_';") for 1 .. 20, 35 .. 37;
sql("COMMIT PREPARED 'moves$_';") for 21 .. 30, 38 .. 46;
sql('SELECT zundo.discard()') for 1 .. 2;
is(rows('moves'), '196|25|22970', 'rollbacks and commits');
sound($node, 'when they have ended', 'moves', 'zundo.undo_log');
crash($node);
is(rows('moves'), '196|25|22970', 'the same rows after another crash');
sound($node, 'after another crash', 'moves');

# A write of the overflow page is lost, and one of the table page.
sql('CHECKPOINT');
my $without = read_block(path('t'), 0);
writers('t', 1, 20, 'UPDATE t SET n = n + 1 WHERE id = %d');
sql('CHECKPOINT');
my $block = overflow_of('t');
my %before = (overflow => read_block(path('zundo.undo_log'), $block), table => read_block(path('t'), 0));
writers('t', 21, 40, 'UPDATE t SET n = n + 1 WHERE id = %d');
sql("COMMIT PREPARED 't$_';") for 1 .. 3;
sql('CHECKPOINT');
my %after = (overflow => read_block(path('zundo.undo_log'), $block), table => read_block(path('t'), 0));
isnt($after{$_}, $before{$_}, "the $_ page has changed") for keys %after;
my $told = qr/XX001: block 0 of relation "t" is corrupted\nDETAIL:  It and its overflow transaction slots in block $block of relation "zundo.undo_log" are not of one time/;
my %file = (overflow => [ path('zundo.undo_log'), $block ], table => [ path('t'), 0 ]);
for my $lost (qw(overflow table))
{
	$node->stop;
	write_block(@{ $file{$lost} }, $before{$lost});
	$node->start;
	like(error_of($_), $told, "$lost page: $_") for 'SELECT sum(n) FROM t', 'UPDATE t SET n = 9 WHERE id = 100', 'VACUUM t';
	like(sql(q{SELECT detail FROM zundo.check('t')}), qr/block 0 of relation "t" is corrupted It and its/, "$lost page: zundo.check tells");
	is(rows('p'), '200|0|20100', "$lost page: another table is read");
	$node->stop;
	write_block(@{ $file{$lost} }, $after{$lost});
	$node->start;
	is(rows('t'), '200|3|20100', "$lost page: with its last version the rows can be read");
}

# The write of the table page that attached the overflow page is lost: only the overflow
# page can tell.
$node->stop;
write_block(@{ $file{table} }, $without);
$node->start;
$told = "$block||LOG-3|overflow transaction slots of block 0 of relation \"t\", which does not point to them: a write of that block is lost";
is(sql(q{SELECT * FROM zundo.check('zundo.undo_log')}), $told, 'zundo.check reports the overflow page');
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->restart;
sql("ROLLBACK PREPARED 't4'; INSERT INTO p VALUES (1000)");
ok($node->poll_query_until('postgres', 'SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type ~ \'zundo undo worker\''), 'a worker');
sql('SELECT pg_sleep(2); INSERT INTO p VALUES (1001); SELECT pg_sleep(1)');
is(sql(q{SELECT * FROM zundo.check('zundo.undo_log')}), $told, 'a worker leaves the overflow page there');
$node->stop;
write_block(@{ $file{table} }, $after{table});
$node->start;

# An overflow page has become zeros. It is not taken for one that has never been used (UNDO-67).
sql("CREATE TABLE zeroed (id int PRIMARY KEY, n int, filler text) USING zheap WITH (fillfactor = 100);
	INSERT INTO zeroed SELECT g, 0, repeat('x', 60) FROM generate_series(1, 200) g");
writers('zeroed', 1, 20, 'UPDATE zeroed SET n = n + 1 WHERE id = %d');
sql('CHECKPOINT');
my ($zeroed, $log) = (overflow_of('zeroed'), path('zundo.undo_log'));
$node->stop;
my $whole = read_block($log, $zeroed);
write_block($log, $zeroed, "\0" x 8192);
$node->start;
sql("INSERT INTO p VALUES (1002)");
ok($node->poll_query_until('postgres', 'SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type ~ \'zundo undo worker\''), 'a worker');
sql('SELECT pg_sleep(2); DELETE FROM p WHERE id = 1002; SELECT pg_sleep(1)');
like(error_of('SELECT sum(n) FROM zeroed'), qr/XX001: block 0 of relation "zeroed" is corrupted/, 'its rows are not read');
is(sql(q{SELECT * FROM zundo.check('zundo.undo_log') WHERE invariant = 'UNDO-67'}),
	"$zeroed||UNDO-67|no page of transaction slots any more, though its extent has only such pages: its contents are lost", 'zundo.check tells');
# After a start the search begins at the extent's first page, so one of these tables would
# get the page.
my @crowded = map { "crowded$_" } 1 .. 12;
for my $table (@crowded)
{
	sql("CREATE TABLE $table (LIKE zeroed INCLUDING INDEXES) USING zheap WITH (fillfactor = 100);
		INSERT INTO $table SELECT g, 0, repeat('x', 60) FROM generate_series(1, 200) g");
	writers($table, 1, 20, "UPDATE $table SET n = n + 1 WHERE id = %d");
	sql("ROLLBACK PREPARED '$table$_';") for 1 .. 20;
}
sql('CHECKPOINT');
my %given = map { (overflow_of($_) => 1) } @crowded;
is(scalar(keys %given), 12, 'other tables get overflow pages');
ok((grep { $_ > $zeroed } keys %given) && !$given{$zeroed}, 'but not this one');
sql("DROP TABLE $_;") for @crowded;
$node->stop;
write_block($log, $zeroed, $whole);
$node->start;
is(rows('zeroed'), '200|0|20100', 'with its last version all is well');
sql("COMMIT PREPARED 'zeroed$_';") for 1 .. 20;
is(rows('zeroed'), '200|20|20100', 'and its transactions end');
sql('DROP TABLE zeroed');

# The same write, lost between a crash and the replay of later records (OVERFLOW-5 in
# change/zredo.c).
$node->append_conf('postgresql.conf', "full_page_writes = off\nwal_consistency_checking = ''\nmax_worker_processes = 0");
$node->restart;
sql("CREATE TABLE late (id int PRIMARY KEY, n int, filler text) USING zheap WITH (fillfactor = 100);
	INSERT INTO late SELECT g, 0, repeat('x', 60) FROM generate_series(1, 200) g; CHECKPOINT");
$without = read_block(path('late'), 0);
writers('late', 1, 20, 'UPDATE late SET n = n + 1 WHERE id = %d');
sql('CHECKPOINT');
$block = overflow_of('late');
isnt($block, 0xffffffff, 'an overflow page');
writers('late', 21, 30, 'UPDATE late SET n = n + 1 WHERE id = %d');
sql("ROLLBACK PREPARED 'late30'");

# Images are switched on, and the page that is left alone has another row than the one
# that is deleted.
sql("UPDATE late SET filler = '' WHERE id = 31; CREATE EXTENSION pg_walinspect");
my $from = sql('SELECT pg_current_wal_insert_lsn()');
my $bare = "SELECT count(*) FROM pg_get_wal_records_info('$from', pg_current_wal_flush_lsn())
	WHERE record_type = 'DELETE' AND fpi_length = 0";
$node->append_conf('postgresql.conf', 'full_page_writes = on');
$node->reload;
my $delete = 'BEGIN; INSERT INTO p VALUES (1002); DELETE FROM p WHERE id = 1002; DELETE FROM late WHERE id = %d; COMMIT';
for (1 .. 600)
{
	sql(sprintf($delete, 0));
	last if sql($bare) > 0;
	select(undef, undef, undef, 0.1);
}
my $before = sql($bare);
sql(sprintf($delete, 31));
is(sql($bare), $before + 2, 'there are no images');
my $late = path('late');
$node->stop('immediate');
write_block($late, 0, $without);
$node->start;
$told = qr/XX001: block 0 of relation "late" is corrupted\nDETAIL:  It is older than its overflow transaction slots/;
for (1 .. 2)
{
	like(error_of("SET enable_seqscan = off; SET enable_bitmapscan = off; $_"), $told, "lost before replay: $_")
		for 'SELECT n FROM late WHERE id = 25', 'SELECT n FROM late WHERE id = 100', 'SELECT n FROM late WHERE id = 100 FOR SHARE', 'DELETE FROM late WHERE id = 100';
	like(error_of($_), $told, "lost before replay: $_") for 'SELECT sum(n) FROM late', 'UPDATE late SET n = 9 WHERE id = 100', 'VACUUM late';
	like(sql(q{SELECT detail FROM zundo.check('late')}), qr/It is older than its overflow/, 'zundo.check tells');
	is(sql(q{SELECT block FROM zundo.check('zundo.undo_log')}), $block, 'the overflow page is kept');
	is(rows('p'), '202|0|22101', 'another table is read');
	$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
	$node->restart;
	sql('INSERT INTO p VALUES (2000); SELECT pg_sleep(3); DELETE FROM p WHERE id = 2000');
}
like(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/WARNING:  block 0 of relation file \d+ is older than its overflow transaction slots/, 'the log tells, too');
sql("COMMIT PREPARED 'late$_';") for 1 .. 29;
sql('TRUNCATE late; INSERT INTO late VALUES (1, 1)');
is(rows('late'), '1|1|1', 'a table that is made anew is whole');
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), 'no rollback waits for it');
no_crash($node);
$node->stop;
done_testing();
