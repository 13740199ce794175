# A worker undoes a transaction while other commands have locked its table in SHARE, SHARE
# ROW EXCLUSIVE or EXCLUSIVE mode and rely on that nobody changes its rows: index builds,
# foreign keys, readers. The same rows in a heap table are the control.
# Rules: RESOLVE-2, BUILD-1, BUILD-3.
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('builds', <<'C');
zundo.eager_rollback_pages = 0
deadlock_timeout = 100ms
C
my $amcheck = server_has('amcheck') && defined sql('CREATE EXTENSION amcheck');
sql(<<'S');
CREATE EXTENSION zundo;
CREATE FUNCTION twin(name text, am text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
	EXECUTE format('CREATE TABLE %I (id int PRIMARY KEY, a int, n int, v text) USING %I', name, am);
	EXECUTE format('CREATE INDEX ON %I (a)', name);
	EXECUTE format('CREATE INDEX ON %I USING %I (n)', name, CASE am WHEN 'zheap' THEN 'zbtree' ELSE 'btree' END);
	EXECUTE format('INSERT INTO %I SELECT g, g %% 100, g, repeat(''x'', 60) FROM generate_series(1, 800) g', name);
END $$;
CREATE FUNCTION change(name text, sign int) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
	EXECUTE format('UPDATE %I SET n = n + 3 * $1 WHERE id %% 3 = 0', name) USING sign;
	EXECUTE format('UPDATE %I SET a = a + 7 * $1 WHERE id %% 5 = 0', name) USING sign;
	EXECUTE format('UPDATE %I SET v = repeat(''y'', 300) WHERE id %% 11 = 0', name);
	EXECUTE format('DELETE FROM %I WHERE id %% 13 = 0', name);
	EXECUTE format('INSERT INTO %I SELECT g, g, g, ''again'' FROM generate_series(26, 800, 26) g', name);
	EXECUTE format('UPDATE %I SET n = n - 1, a = 5 WHERE id %% 17 = 0', name);
END $$;
-- what a table contains, by whatever plan
CREATE FUNCTION contents(name text, condition text DEFAULT 'true', places boolean DEFAULT false) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE r text;
	BEGIN
		EXECUTE format('SELECT count(*) || '' '' || md5(string_agg((id, a, n, v)::text || CASE WHEN $1 THEN t.ctid::text ELSE '''' END, '','' ORDER BY id)) FROM %I t WHERE ', name) || condition INTO r USING places;
		RETURN r;
	END $$;
SELECT twin('h', 'heap'), twin('z', 'zheap');
S
my $old = session($node);
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM h');
sql("BEGIN; SELECT change('$_', 1); COMMIT") for qw(h z);

# set_fault SPEC: sets zundo.fault for the worker, and waits until it has that. This is seen
# by another setting: without track_activities its state is "disabled".
sub set_fault
{
	my ($spec) = @_;
	my ($track, $state) = $spec eq '' ? ('on', '<>') : ('off', '=');
	$node->append_conf('postgresql.conf', "zundo.fault = '$spec'\ntrack_activities = $track");
	$node->reload;
	$node->poll_query_until('postgres', "SELECT bool_and(state $state 'disabled') IS NOT FALSE FROM pg_stat_activity WHERE backend_type = 'zundo undo worker'");
	return;
}

# abort TABLE: leaves all kinds of changes for the worker to undo, of a subtransaction too.
sub leave_aborted
{
	my ($table) = @_;
	sql("BEGIN; SELECT change('$table', -1); SAVEPOINT s; SELECT change('$table', 2); ROLLBACK TO s; UPDATE $table SET n = n + 1000; ROLLBACK");
	return;
}

# same WHEN TABLE: tests that all plans return the same rows as from the heap table, now
# and by the old snapshot, and that the indexes are right.
sub same
{
	my ($when, $table) = @_;
	my %plans = (seq => 'enable_indexscan = off', index => 'enable_seqscan = off; SET enable_bitmapscan = off', bitmap => 'enable_seqscan = off; SET enable_indexscan = off');
	for my $plan (sort keys %plans)
	{
		my ($h, $z) = map { my $t = $_; sql("SET $plans{$plan};", map { "SELECT contents('$t', '$_');" } 'true', 'id > 0', 'a BETWEEN 3 AND 60', 'n BETWEEN 5 AND 900') } 'h', $table;
		is($z, $h, "$when: $plan");
	}
	SKIP:
	{
		skip 'the server lacks amcheck of contrib', 1 unless $amcheck;
		is(sql("SELECT bt_index_check(c.oid, true) FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid JOIN pg_am m ON m.oid = c.relam WHERE indrelid = '$table'::regclass AND amname = 'btree' AND indisvalid") =~ s/\n//gr, '', "$when: amcheck");
	}
	is(sql("SELECT k.* FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid JOIN pg_am m ON m.oid = c.relam, zundo.check_index(c.oid) k WHERE indrelid = '$table'::regclass AND amname = 'zbtree' AND indisvalid"), '', "$when: check_index");
	sound($node, $when, $table);
	return;
}

sub old_same
{
	my ($when, $table) = @_;
	for my $condition ('true', 'id > 0', 'a BETWEEN 3 AND 60', 'n BETWEEN 5 AND 900')
	{
		is(ask($old, "SET LOCAL enable_seqscan = off; SELECT contents('$table', '$condition')"), ask($old, "SELECT contents('h', '$condition')"), "$when: the old snapshot, $condition");
	}
	return;
}

# The worker undoes a page each second; each command meets it at another page.
set_fault('rollback-page:sleep');
leave_aborted('z');
my $active = q{SELECT count(*) FROM zundo.stat_rollback WHERE state = 'rolling back' AND pid IS NOT NULL};
ok($node->poll_query_until('postgres', $active =~ s/count\(\*\)/count(*) = 1/r), 'the worker undoes a transaction');
my @commands = (
	'CREATE INDEX z_a2 ON z (a, n)',
	'CREATE INDEX z_n2 ON z USING zbtree (n, a)',
	'CREATE UNIQUE INDEX z_u ON z (id, n)',
	'REINDEX TABLE z',
	'CREATE INDEX z_brin ON z USING brin (n)',
	'CREATE INDEX z_hash ON z USING hash (a)',
	'CREATE INDEX CONCURRENTLY z_c ON z (n)',
	'CREATE INDEX CONCURRENTLY z_zc ON z USING zbtree (a)',
	'CREATE INDEX z_part ON z (n) WHERE a < 50',
	'CREATE TABLE c AS SELECT id FROM z; ALTER TABLE c ADD FOREIGN KEY (id) REFERENCES z',
	'ALTER TABLE z ADD CHECK (n > 0)',
	'VACUUM z', 'ANALYZE z');
my ($before, $during) = split /\n/, sql('BEGIN; LOCK TABLE z IN SHARE MODE;', q{SELECT contents('z', 'true', true);}, 'SELECT pg_sleep(2) IS NULL \g /dev/null', q{SELECT contents('z', 'true', true);}, 'COMMIT;');
is($during, $before, 'a reader that has locked the table finds the same rows at the same places');
my $met = 0;
for my $command (@commands)
{
	# a concurrent build waits for older snapshots
	next if $command =~ /CONCURRENTLY/;
	my ($rc, $out, $err) = $node->psql('postgres', $command, on_error_stop => 1);
	is($err, '', $command);
	$met++ if sql($active) == 1;
	sleep 1;
}
cmp_ok($met, '>', 3, "the worker was still rolling back after $met of the commands");
ask($old, 'SELECT 1');
old_same('beside the rollback', 'z');
same('beside the rollback', 'z');
set_fault('');
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), 'the rollback is complete');
old_same('after the rollback', 'z');
same('after the rollback', 'z');
$old->quit;
sql('DROP TABLE c');

# concurrent builds, without the old snapshot
set_fault('rollback-page:sleep');
leave_aborted('z');
for my $command (grep { /CONCURRENTLY/ } @commands)
{
	is(($node->psql('postgres', $command))[2], '', $command);
}
same('after concurrent builds', 'z');
set_fault('');
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), 'the rollback is complete');
same('and after the rollback', 'z');

# While a build feeds the rows of a page that it has copied, the page is undone, the rollback is completed, and its undo is
# discarded.
sql(<<'S');
SELECT twin('w', 'zheap'), change('w', 1);
CREATE FUNCTION slow(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
	BEGIN
		IF i = 40 THEN
			FOR n IN 1 .. 600 LOOP
				EXIT WHEN NOT EXISTS (SELECT FROM zundo.stat_rollback) AND zundo.undo_bytes_in_use() < 100000;
				PERFORM pg_sleep(0.1);
			END LOOP;
		END IF;
		RETURN i;
	END $$;
S
set_fault('rollback-page:sleep:1');
leave_aborted('w');
sql($_) for 'CREATE INDEX ON w (slow(id))', 'CREATE INDEX ON w USING zbtree (a)';
same('undone under the copy of a build', 'w');
is(sql('SET enable_seqscan = off; SELECT count(*), min(id), max(id) FROM w WHERE slow(id) > 0'), sql('SELECT count(*), min(id), max(id) FROM w'), 'the index on an expression has all rows');

# Commands that give the table another file, or none, still exclude the rollback.
for my $command ('CLUSTER x USING x_pkey', 'VACUUM FULL x', 'ALTER TABLE x ALTER id TYPE bigint', 'DROP INDEX x_n_idx; ALTER TABLE x SET ACCESS METHOD heap', 'TRUNCATE x', 'DROP TABLE x')
{
	sql("SELECT twin('x', 'zheap'), change('x', 1)");
	set_fault('rollback-page:sleep');
	leave_aborted('x');
	is(($node->psql('postgres', $command))[2], '', $command);
	set_fault('');
	ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), 'the rollback is complete');
	if ($command !~ /TRUNCATE|DROP/)
	{
		same($command, 'x') if $command !~ /METHOD/;
		is(sql("SELECT contents('x')"), sql("SELECT contents('h')"), "rows after $command");
	}
	sql('DROP TABLE IF EXISTS x');
}

# Crashes in the rollback, after index builds beside it.
for my $n (1, 5)
{
	my $offset = -s $node->logfile;
	set_fault("rollback-page:sleep,rollback-logged:crash:$n");
	sql("BEGIN; SELECT change('z', -1); ROLLBACK");
	$node->psql('postgres', "CREATE INDEX z_crash$n ON z (n, a)");
	$node->psql('postgres', "CREATE INDEX z_zcrash$n ON z USING zbtree (n, a)");
	ok(wait_for_death($node), "the worker crashes at page $n");
	$node->append_conf('postgresql.conf', "zundo.fault = ''\ntrack_activities = on");
	$node->start;
	same("after crash $n", 'z');
	ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), 'the rollback is complete');
	same("after crash $n and rollback", 'z');
}
sound($node, '', 'zundo.undo_log');
$node->stop;
done_testing();
