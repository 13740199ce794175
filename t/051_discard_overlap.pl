# `oldest` follows the horizon although transactions of several sessions overlap
# all the time: at every pass a transaction younger than the horizon has ended
# already, or one has locked rows of an older one. A transaction that writes and
# ends during a pass is discarded in two parts.
# Rules: UNDO-18, UNDO-7.
use strict;
use warnings;
use Test::More;
use ZundoTest;

my $node = zundo_node('overlap', <<'C');
max_worker_processes = 0
C
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int PRIMARY KEY, n int) USING zheap;
	INSERT INTO t SELECT g, 0 FROM generate_series(1, 10) g;
	CREATE TABLE k (id int PRIMARY KEY, v int) USING zheap;
	CREATE INDEX ON k (v);
	INSERT INTO k VALUES (1, 0);
	CREATE TABLE wide (id int, pad text) USING zheap;
	INSERT INTO wide SELECT g, (SELECT string_agg(md5(g + i / 100.0 || ''), '') FROM generate_series(1, 20) i)
	FROM generate_series(1, 300) g;
	CREATE PROCEDURE many(r int, times int) LANGUAGE plpgsql AS
	'BEGIN FOR i IN 1..times LOOP UPDATE t SET n = n + 1 WHERE id = r; COMMIT; END LOOP; END';
});
# returns by how many transaction ids `oldest` is behind
my $lag = q{SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint - min(oldest_xid::text::bigint) FROM zundo.stat_undo};

sub lag
{
	$node->safe_psql('postgres', 'SELECT zundo.discard()');
	return $node->safe_psql('postgres', $lag);
}

# 1. Two writers take turns; a snapshot from the middle of their last turns is always open.
my @writer = map { $node->background_psql('postgres', on_error_stop => 1) } 0 .. 1;
my @reader = map { $node->background_psql('postgres', on_error_stop => 1) } 0 .. 1;
my $now = 0;
my @lag;
# at the same time, so that each has a log of its own
$_->query_safe('BEGIN; INSERT INTO wide VALUES (0)') for @writer;
$_->query_safe('COMMIT') for @writer;
$writer[0]->query_safe('CALL many(1, 50)');
$reader[0]->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t');
for my $round (1 .. 12)
{
	$writer[$_]->query_safe("CALL many($_ + 1, 60)") for 0, 1;
	$now = 1 - $now;
	$reader[$now]->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t');
	$writer[$_]->query_safe("CALL many($_ + 1, 60)") for 0, 1;
	$reader[ 1 - $now ]->query_safe('COMMIT');
	push @lag, lag();
}
cmp_ok($lag[-1], '<', 700, "oldest follows the snapshots of two writers' sessions: @lag");
$reader[$now]->query_safe('COMMIT');
is(lag(), '0', 'oldest reaches the horizon');

# 2. A row that is moved again and again, each time with the lock of a
# transaction that is younger than its next mover.
my @mover = map { $node->background_psql('postgres', on_error_stop => 1) } 0 .. 1;
my @locker = map { $node->background_psql('postgres', on_error_stop => 1) } 0 .. 1;
my $begin_mover = 'BEGIN; SELECT pg_current_xact_id()';
@lag = ();
$mover[0]->query_safe($begin_mover);
for my $round (1 .. 20)
{
	my ($one, $other) = ($round % 2, 1 - $round % 2);

	# the mover that comes next has an older xid than the locker that this one meets
	$mover[$one]->query_safe($begin_mover);
	$locker[$one]->query_safe('BEGIN; SELECT 1 FROM k WHERE id = 1 FOR KEY SHARE');
	$mover[$other]->query_safe('UPDATE k SET v = v + 1 WHERE id = 1; COMMIT');
	$locker[$other]->query_safe('COMMIT') if $round > 1;
	push @lag, lag();
}
cmp_ok($lag[-1], '<', 15, "oldest follows the lockers of a row that is moved: @lag");
$mover[0]->query_safe('ROLLBACK');
$locker[0]->query_safe('COMMIT');
is(lag(), '0', 'oldest reaches the horizon');

# 3. A transaction that writes more and aborts while a discard pass runs,
# which has read the log before. The next pass discards what the first one has
# read, but not the rest, which has a transaction id above the horizon and is too
# long to be merged. The pass sleeps for a second after it has read one log, the
# writer's in one of the attempts.
my $begins_within = q{
	SELECT count(*) FROM zundo.stat_undo u, LATERAL (SELECT flags FROM zundo.undo_records(u.log, 1)) r
	WHERE u.bytes > 0 AND NOT 'first' = ANY (r.flags)};
my ($rest, $attempt) = (0, 0);
my ($aborter, $holder, $discarder) = map { session($node) } 1 .. 3;
is(ask($aborter, 'BEGIN', 'UPDATE t SET n = 0 WHERE id = 1', 'SAVEPOINT s', 'UPDATE t SET n = 0 WHERE id = 2',
	q{SELECT count(DISTINCT xid), count(DISTINCT top_xid) FROM zundo.undo_records() WHERE status = 'own'}, 'ROLLBACK'),
	'2|1', 'zundo.undo_records names the top-level transaction of a subtransaction');
my $pid = ask($discarder, 'SELECT pg_backend_pid()');
while (!$rest && $attempt++ < 20)
{
	ask($aborter, 'SET zundo.eager_rollback_pages = 0', 'BEGIN', 'UPDATE t SET n = -1 WHERE id = 1');
	ask($holder, 'BEGIN', 'SELECT pg_current_xact_id()');
	ask($discarder, "SET zundo.fault = 'log-parsed:sleep:$attempt'");
	$discarder->query_until(qr/begun/, "\\echo begun\nSELECT zundo.discard();\n");
	# stopped in its sleep, so that it does not end too early (with fewer logs it does not sleep)
	$node->poll_query_until('postgres', "SELECT wait_event = 'PgSleep' OR state = 'idle' AND query ~ 'discard' FROM pg_stat_activity WHERE pid = $pid");
	kill 'STOP', $pid;
	ask($aborter, 'SAVEPOINT s', 'UPDATE wide SET pad = reverse(pad)', 'ROLLBACK');
	kill 'CONT', $pid;
	# a process that has not read the log would find one transaction
	ask($discarder, 'RESET zundo.fault', 'SELECT zundo.discard()');
	$rest = $node->safe_psql('postgres', $begins_within);
	last if $rest;
	ask($holder, 'ROLLBACK');
	lag();
}
is($rest, '1', "a log begins with the rest of a transaction, attempt $attempt");
is($node->safe_psql('postgres', 'SELECT xid, state FROM zundo.stat_rollback'), '', 'which is undone: no rollback waits');
ask($holder, 'ROLLBACK');
is(lag(), '0', 'it is discarded, too');

# 4. A session that asks for a pass while another process makes one, which has not seen
# the last transaction, gets its own pass after that one. (The snapshot of VACUUM does not
# count.)
ask($discarder, q{SET zundo.fault = 'log-parsed:sleep:1'});
$discarder->query_until(qr/begun/, "\\echo begun\nVACUUM zundo.undo_log;\n");
ok(asleep($node, $pid), 'a pass has begun');
ask($aborter, 'UPDATE t SET n = n + 1 WHERE id = 1');
is(lag(), '0', 'another one waits for it, and discards the rest');
sound($node, '', qw(t k wide zundo.undo_log));
$_->quit for @writer, @reader, @mover, @locker, $aborter, $holder, $discarder;
$node->stop;
done_testing();
