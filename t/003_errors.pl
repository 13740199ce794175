# Errors in the middle of changes that take several steps (no space, no memory,
# a canceled statement), at each place where an error can be raised. Nothing is
# lost, the session and all others can continue, and no lock or pin of the
# statement remains.
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('errors', <<'C');
wal_consistency_checking = 'zundo'
restart_after_crash = off
max_prepared_transactions = 100
lock_timeout = '60s'
C
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');
my @kinds = qw(error disk memory cancel);
my $failed = 0;

# problem NAME WHAT GOT WANTED: counts and reports a difference; thousands of checks of
# one kind make one test.
sub problem
{
	my ($name, $what, $got, $wanted) = @_;
	return if $got eq $wanted;
	$failed++;
	diag("$name: $what is '$got', not '$wanted'") if $failed < 20;
	return;
}

# patient_session: a session whose queries may take long together.
sub patient_session
{
	return session($node, timeout => 600);
}

# run SESSION SQL: returns whether all statements succeed.
sub run
{
	my ($session, @sql) = @_;
	ask($session, @sql);
	return $complaint =~ /ERROR/ ? 0 : 1;
}

# each POINT KIND TRY: calls TRY with a setting that raises the error at the first, the
# second, ... visit of the point, until TRY succeeds. Returns how often it failed.
sub each_time
{
	my ($point, $try) = @_;
	my $n = 0;

	for my $nth (1 .. 14, 17, 21, 27, 34)
	{
		last if $try->("$point:error:$nth");
		$n++;
		$try->("$point:$kinds[1 + $nth % 3]:$nth");
	}
	return $n;
}

# 1. Inline locks become records because of a stronger lock, or of a change in a subtransaction.
sql(q{CREATE TABLE t (id int PRIMARY KEY, m int, n int, t text) USING zheap;
	CREATE INDEX ON t (m);
	INSERT INTO t SELECT g, 0, 0, 'x' FROM generate_series(1, 12) g; SELECT zundo.discard(); CREATE TABLE other (LIKE t) USING zheap;
	INSERT INTO other SELECT g, 0, 0, 'y' FROM generate_series(21, 25) g});
my $rows = q{SELECT count(*), sum(id), sum(m), sum(n), string_agg(t, '' ORDER BY id) FROM t};
my $before = sql($rows);
my $free = 'SELECT string_agg(id::text, $$ $$ ORDER BY id) FROM (SELECT id FROM t FOR UPDATE SKIP LOCKED) x';
my $check = q{SELECT * FROM zundo.check('t')};
my $session = patient_session();
my $look = patient_session();
my %changes = (
	'a sixth lock' => 'SELECT id FROM t WHERE id = 6 FOR KEY SHARE',
	'a stronger lock' => 'SELECT id FROM t WHERE id = 1 FOR UPDATE',
	'many locks' => 'SELECT id FROM t FOR SHARE',
	'an update in place' => 'UPDATE t SET n = n + 1 WHERE id IN (1, 7)',
	'a longer row' => q{UPDATE t SET t = repeat('z', 500) WHERE id IN (1, 7)},
	'a move' => 'UPDATE t SET m = m + 1 WHERE id IN (1, 7)',
	'a deletion' => 'DELETE FROM t WHERE id IN (1, 7)',
	'an insertion' => 'INSERT INTO t SELECT * FROM other',
	'an upsert' => 'INSERT INTO t VALUES (1, 0, 5), (30, 0, 0) ON CONFLICT (id) DO UPDATE SET n = excluded.n');
# The changes also pass fault points in critical sections, where nothing may be allocated:
# an assertion of the server's would end it.
for my $name (sort keys %changes)
{
	for my $point (qw(undo-prepare before-change converting-locks locks-done))
	{
		$failed = 0;
		my $times = each_time($point, sub {
			my ($fault) = @_;
			my $passed = run($session, 'BEGIN', 'SELECT id FROM t WHERE id < 6 FOR KEY SHARE', 'SAVEPOINT s',
				"SET LOCAL zundo.fault = '$fault'", $changes{$name});
			problem($fault, 'own rows', ask($session, 'ROLLBACK TO s', $rows), $before);
			problem($fault, 'rows, those that are not locked, faults', ask($look, $rows, $free, $check), "$before\n6 7 8 9 10 11 12");
			problem($fault, 'another try', run($session, $changes{$name}), 1);
			problem($fault, 'afterwards', ask($session, 'ROLLBACK', $rows, $free), "$before\n1 2 3 4 5 6 7 8 9 10 11 12");
			return $passed;
		});
		is($failed, 0, "$name: $point, $times times");
	}
}
sound($node, '', qw(t zundo.undo_log));

# 2. A full page whose slots are all in use gets an overflow page.
my $tables = 0;

# full_page: makes a table whose first page has no free slot.
sub full_page
{
	my $name = 'full' . ++$tables;
	sql("CREATE TABLE $name (id int PRIMARY KEY, m int, n int, t text) USING zheap WITH (fillfactor = 100);
		CREATE INDEX ON $name (m);
		INSERT INTO $name SELECT g, 0, 0, repeat('x', 60) FROM generate_series(1, 160) g;");
	sql(map { ('BEGIN;', "UPDATE $name SET n = 100 WHERE id = $_;", "PREPARE TRANSACTION '$name $_';") } 1 .. $_[0]);
	return $name;
}

# the number of writers that such a page has slots for
my $probe = full_page(0);
my $writers = 0;
while (sql("SELECT count(*) FROM zundo.page_slots('$probe', 0) WHERE overflow") == 0 && $writers < 60)
{
	$writers++;
	sql("BEGIN; UPDATE $probe SET n = 100 WHERE id = $writers; PREPARE TRANSACTION '$probe $writers'");
}
sql(map { "ROLLBACK PREPARED '$probe $_';" } 1 .. $writers);
cmp_ok(--$writers, '>', 2, "a full page takes $writers writers");
my %more = (
	'an update' => 'UPDATE %s SET n = n + 1 WHERE id = 50',
	'a move' => 'UPDATE %s SET m = m + 1 WHERE id = 50',
	'a deletion' => 'DELETE FROM %s WHERE id = 50',
	'a lock' => 'SELECT id FROM %s WHERE id = 50 FOR NO KEY UPDATE');
for my $name (sort keys %more)
{
	for my $point (qw(overflow-reserved overflow-attached undo-prepare before-change))
	{
		$failed = 0;
		my $times = each_time($point, sub {
			my ($fault) = @_;
			my $table = full_page($writers);
			my $change = sprintf($more{$name}, $table);
			my $state = "SELECT count(*), sum(id), sum(m), sum(n) FROM $table";
			my $passed = run($session, 'BEGIN', 'INSERT INTO other VALUES (0)', 'SAVEPOINT s', "SET LOCAL zundo.fault = '$fault'", $change);
			problem($fault, 'rows, faults', ask($session, 'ROLLBACK TO s', $state, "SELECT * FROM zundo.check('$table')"), '160|12880|0|0');
			problem($fault, 'another try', run($session, $change), 1);
			problem($fault, 'somebody else', run($session, 'ROLLBACK', "UPDATE $table SET n = n + 1 WHERE id = 51"), 1);
			problem($fault, 'in the end',
				ask($session, (map { ($_ % 2 ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$table $_'" } 1 .. $writers),
					$state, "SELECT * FROM zundo.check('$table')"), '160|12880|0|' . (1 + 100 * int(($writers + 1) / 2)));
			ask($session, "DROP TABLE $table");
			return $passed;
		});
		is($failed, 0, "overflow page for $name: $point, $times times");
	}
}

# Errors while the extent for the first overflow page of a database is allocated.
my $n = 0;
for my $point (qw(undo-extend undo-alloc))
{
	for my $kind (@kinds)
	{
		my $database = 'd' . ++$n;
		sql("CREATE DATABASE $database");
		$node->safe_psql($database, join("\n", 'CREATE EXTENSION zundo;', 'CREATE TABLE f (id int PRIMARY KEY, m int, n int, t text) USING zheap WITH (fillfactor = 100);',
			'CREATE INDEX ON f (m);', 'INSERT INTO f SELECT g, 0, 0, repeat($$x$$, 60) FROM generate_series(1, 160) g;',
			map { ('BEGIN;', "UPDATE f SET n = 100 WHERE id = $_;", "PREPARE TRANSACTION '$database $_';") } 1 .. $writers));
		my ($rc, $out, $err) = $node->psql($database, qq{
			BEGIN; UPDATE f SET n = 1 WHERE id = 1000; SAVEPOINT s; SET LOCAL zundo.fault = '$point:$kind:1';
			UPDATE f SET n = n + 1 WHERE id = 50;
			ROLLBACK TO s; SELECT count(*), sum(n) FROM f; UPDATE f SET n = n + 1 WHERE id = 50; SELECT count(*), sum(n) FROM f; COMMIT;
			SELECT count(*) > 0 FROM zundo.page_slots('f', 0) WHERE overflow;
			SELECT * FROM zundo.check('f');}, on_error_stop => 0);
		like($err, qr/fault point "$point"|canceling statement/, "an extent for an overflow page: $point, $kind");
		is($out, "160|0\n160|1\nt", "an extent for an overflow page: $point, $kind: rows, another try, faults");
		$node->safe_psql($database, join("\n", map { "ROLLBACK PREPARED '$database $_';" } 1 .. $writers));
		is($node->safe_psql($database, q{SELECT count(*), sum(n) FROM f; SELECT * FROM zundo.check('f')}), '160|1', "an extent for an overflow page: $point, $kind: in the end");
	}
}

# 3. Rewrites, which write undo for pages that do not exist yet. An old snapshot needs the
# versions afterwards.
sql(q{CREATE TABLE r (id int PRIMARY KEY, m int, n int, t text) USING zheap; CREATE INDEX ON r (m);
	INSERT INTO r SELECT g, g % 7, 0, repeat('x', g) FROM generate_series(1, 60) g;
	CLUSTER r USING r_m_idx});
my $sums = 'SELECT count(*), sum(id), sum(m), sum(n), sum(length(t)) FROM r';
my $old_rows = sql($sums);
my $reader = patient_session();
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t');
sql(q{UPDATE r SET n = n + 1 WHERE id % 3 = 0; UPDATE r SET t = t || 'y' WHERE id % 5 = 0; DELETE FROM r WHERE id % 4 = 0;
	UPDATE r SET m = m + 10 WHERE id % 6 = 1; INSERT INTO r SELECT g, g, g, 'new' FROM generate_series(101, 110) g});
my $new_rows = sql($sums);
my $directory = PostgreSQL::Test::Utils::tempdir();
chmod 0777, $directory;
sql("CREATE TABLESPACE errors LOCATION '$directory'");
my $space = 'pg_default';
for my $rewrite ('CLUSTER r', 'VACUUM FULL r', 'ALTER TABLE r SET TABLESPACE')
{
	for my $point (qw(undo-pushed undo-prepare before-change))
	{
		$failed = 0;
		my $times = each_time($point, sub {
			my ($fault) = @_;
			my $statement = $rewrite;
			$statement .= $space eq 'errors' ? ' pg_default' : ' errors' if $rewrite =~ /TABLESPACE/;
			my $passed;
			if ($rewrite =~ /VACUUM/)
			{
				ask($session, "SET zundo.fault = '$fault'");
				$passed = run($session, $statement);
				ask($session, 'RESET zundo.fault');
			}
			else
			{
				$passed = run($session, 'BEGIN', 'UPDATE r SET n = n + 1000 WHERE id = 1', 'SAVEPOINT s',
					"SET LOCAL zundo.fault = '$fault'", $statement);
				problem($fault, 'own rows', run($session, 'ROLLBACK TO s', 'UPDATE r SET n = n - 1000 WHERE id = 1', 'DELETE FROM r WHERE id = 2', 'ROLLBACK'), 1);
			}
			problem($fault, 'rows, by index too, faults', ask($session, $sums, 'SET enable_seqscan = off', "$sums WHERE id > 0",
				'RESET enable_seqscan', "SELECT * FROM zundo.check('r')"), "$new_rows\n$new_rows");
			return $passed;
		});
		is($failed, 0, "$rewrite: $point, $times times");
	}
	my $statement = $rewrite =~ /TABLESPACE/ ? "$rewrite errors" : $rewrite;
	ok(run($session, $statement), "$rewrite: in the end");
	is(sql($sums), $new_rows, "$rewrite: its rows");
}
is(ask($reader, $sums), $old_rows, 'the old snapshot has its rows');
$reader->query_safe('COMMIT');
sound($node, 'in the end', qw(t r zundo.undo_log));

# 4. All undo of the rollbacks can be discarded, and replay gives the same pages.
ok($node->poll_query_until('postgres', 'SELECT zundo.discard() IS NOT NULL AND zundo.undo_bytes_in_use() = 0'), 'all undo is given back');
is(sql('SELECT count(*) FROM zundo.stat_rollback'), '0', 'nothing waits to be rolled back');
$_->quit for $session, $look, $reader;
crash($node);
is(sql($rows), $before, 'after a crash: t');
is(sql($sums), $new_rows, 'after a crash: r');
sound($node, 'after a crash', qw(t r zundo.undo_log));
no_crash($node, qr/leak|was not closed/);
$node->stop;
done_testing();
