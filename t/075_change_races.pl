# Other sessions change the page between two steps of a change or a lock. Fault
# points make a session sleep there for a second.
# Rules: DML-1, DML-3.
use strict;
use warnings;
use Test::More;
use Time::HiRes qw(sleep);
use ZundoTest;

my $node = zundo_node('change_races', <<'C');
wal_consistency_checking = 'zundo'
max_prepared_transactions = 50
lock_timeout = '5s'
C
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');
my ($one, $two, $watcher) = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 3;

# start SESSION SQL: starts the statement without waiting for its end.
sub start { my ($session, $sql) = @_; $session->query_until(qr/asked/, "\\echo asked\n$sql\n"); return; }

# 1. A row is moved and the move commits while our session, which locks the row
# beside the move, looks for a slot on a full page: pruning takes the old row's
# bytes.
sql(q{CREATE TABLE full_page (id int PRIMARY KEY, m int, n int, t text) USING zheap WITH (fillfactor = 100);
	CREATE INDEX ON full_page (m);
	INSERT INTO full_page SELECT g, 0, 0, repeat('x', 60) FROM generate_series(1, 160) g;
	SELECT zundo.discard()});
my $writers = 0;
while (sql(q{SELECT count(*) FROM zundo.page_slots('full_page', 0) WHERE overflow}) == 0 && $writers < 40)
{
	$writers++;
	sql("BEGIN; UPDATE full_page SET n = 100 WHERE id = $writers; PREPARE TRANSACTION 'f$writers'");
}
sql(map { "ROLLBACK PREPARED 'f$_';" } 1 .. $writers);
sql(q{SELECT zundo.discard(); VACUUM full_page});
sql(map { ("BEGIN; UPDATE full_page SET n = 100 WHERE id = $_;", "PREPARE TRANSACTION 'f$_';") } 1 .. $writers - 2);
$one->query_safe('BEGIN; UPDATE full_page SET m = 1 WHERE id = 50');
is(sql(q{SELECT count(*) FILTER (WHERE overflow), count(*) FILTER (WHERE xid IS NULL) FROM zundo.page_slots('full_page', 0)}), '0|0',
	'no slot is left');
start($two, q{BEGIN; SET LOCAL zundo.fault = 'no-slot:sleep:1'; SELECT id FROM full_page WHERE id = 50 FOR KEY SHARE;});
sleep 0.4;
$one->query_safe('COMMIT');
is($two->query('SELECT count(*) FROM full_page'), "50\n160", 'a lock beside a move that commits');
timed_out($node, q{SET lock_timeout = '300ms'; DELETE FROM full_page WHERE id = 50}, 'the transaction holds the row');
$two->query_safe('COMMIT');
passes($node, 'DELETE FROM full_page WHERE id = 50', 'the lock has ended');
sound($node, '', 'full_page');

# 2. CREATE INDEX CONCURRENTLY begins while a session that sees the table for the first
# time reads what its changes concern.
sql(q{CREATE TABLE p (id int PRIMARY KEY) USING zheap;
	INSERT INTO p VALUES (1);
	CREATE TABLE t (id int PRIMARY KEY, c int, n int, p int REFERENCES p) USING zheap;
	INSERT INTO t SELECT g, g, 0, 1 FROM generate_series(1, 100) g;
	CREATE FUNCTION f(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
	BEGIN
		IF $1 = 90 THEN
			PERFORM pg_advisory_lock(1);
			PERFORM pg_advisory_unlock(1);
		END IF;
		RETURN $1;
	END $$;
	SELECT zundo.discard()});
my $builder = $node->background_psql('postgres', on_error_stop => 0);
my $keeper = $node->background_psql('postgres', on_error_stop => 0);
$keeper->query_safe('SELECT pg_advisory_lock(1)');
start($one, q{BEGIN; SET LOCAL zundo.fault = 'columns-read:sleep:1'; UPDATE t SET n = n + 1 WHERE id = 5;});
sleep 0.3;
start($builder, 'SET lock_timeout = 0; CREATE INDEX CONCURRENTLY t_f ON t (f(c));');
$one->query_safe('COMMIT');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}), 'the index is being built');
$one->query_safe('UPDATE t SET c = 1000 WHERE id = 1');
$keeper->query_safe('SELECT pg_advisory_unlock(1)');
is($builder->query(q{SELECT indisvalid FROM pg_index WHERE indexrelid = 't_f'::regclass}), 't', 'the index is valid');
is(sql('SET enable_seqscan = off; SELECT id FROM t WHERE f(c) = 1000'), '1', 'the index has the row that was changed meanwhile');
sound($node, '', 't');

# 3. A serializable transaction reads the table between an insertion's beginning and its
# row (VIS-7).
sql(q{CREATE TABLE a (id int PRIMARY KEY, pad text) USING zheap;
	INSERT INTO a SELECT -g, repeat('x', 500) FROM generate_series(1, 30) g;
	CREATE TABLE b (id int) USING zheap});
my $pid = $one->query('SELECT pg_backend_pid()');
for my $case (["INSERT INTO a VALUES (1)", 1, 'count(*) FROM a'], ["COPY a (id) FROM PROGRAM 'seq 2 9'", 1, 'count(*) FROM a'],
	["INSERT INTO a VALUES (11) ON CONFLICT DO NOTHING", 1, 'count(*) FROM a'],
	["INSERT INTO a SELECT g FROM generate_series(21, 23) g", 3, 'id FROM a LIMIT 1'])
{
	my ($insert, $row, $read) = @$case;
	my $caught;
	for (1 .. 5)
	{
		$one->query('SET zundo.fault = DEFAULT; BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM b');
		start($one, "SET zundo.fault = 'insert-page:sleep:$row'; $insert;");
		last if $caught = ZundoTest::caught($watcher, $pid, substr($insert, 0, 8) . '%');
		$one->query('ROLLBACK');
	}
	ok($caught, "it sleeps: $insert");
	sql("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT $read; INSERT INTO b VALUES (1); COMMIT");
	kill 'CONT', $pid;
	$one->query('COMMIT');
	is(sql('SELECT count(*) FROM a WHERE id > 0; DELETE FROM a WHERE id > 0'), 0, "one of two that did not see each other fails: $insert");
}
sound($node, '', 'a');

$_->quit for $one, $two, $watcher, $builder, $keeper;
crash($node);
sound($node, 'after a crash', qw(full_page t));
no_crash($node);
$node->stop;
done_testing();
