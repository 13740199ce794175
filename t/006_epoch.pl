# Wraparound of 32-bit transaction ids: rows, rollbacks, discarding and a
# standby before and after it.
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('epoch', <<'C', allows_streaming => 1);
max_worker_processes = 0
max_prepared_transactions = 2
zundo.eager_rollback_pages = 0
C
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int PRIMARY KEY, n int) USING zheap;
	INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) g;
	UPDATE t SET n = 0});
$node->safe_psql('postgres', 'SELECT zundo.discard()') for 1 .. 2;
$node->safe_psql('postgres', 'VACUUM (FREEZE)');
$node->stop;

# All rows of the catalogs are frozen, because their ids are in the future after this.
my $first = 2**32 - 40;
append_to_file($node->data_dir . '/pg_xact/0FFF', "\0" x 262144);
command_ok([ 'pg_resetwal', '-x', $first, $node->data_dir ], 'an epoch is nearly over');
$node->start;
is($node->safe_psql('postgres', 'SELECT sum(n) FROM t'), '0', 'rows from long ago');

my $standby = standby_of($node, "hot_standby_feedback = off\nmax_standby_streaming_delay = 0");
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
my ($writer, $old, $snapshot) = map { $node->background_psql('postgres', on_error_stop => 1) } 1 .. 3;
my $reader = $standby->background_psql('postgres', on_error_stop => 0);

# Transactions that begin before and end after it, one of them prepared.
$old->query_safe('BEGIN; UPDATE t SET n = 1000 WHERE id = 50; SAVEPOINT s; UPDATE t SET n = 1001 WHERE id = 51');
$node->safe_psql('postgres', q{BEGIN; UPDATE t SET n = 2000 WHERE id = 60; PREPARE TRANSACTION 'p'});
$old->query_safe('ROLLBACK TO s; UPDATE t SET n = 1 WHERE id = 52; COMMIT');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'p'; BEGIN; UPDATE t SET n = 3000 WHERE id = 61; PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'});
$node->safe_psql('postgres', 'BEGIN; UPDATE t SET n = 4000 WHERE id = 62; ROLLBACK');
$node->safe_psql('postgres', 'SELECT zundo.discard()') for 1 .. 2;
is($node->safe_psql('postgres', 'SELECT sum(n) FROM t'), '4001', 'rows before the end of the epoch');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is($reader->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT sum(n) FROM t"), '4001', 'a snapshot of a standby');

# The next transaction id is the first of the epoch, and an old snapshot has an id of the
# epoch before.
my $n = 0;
while ($node->safe_psql('postgres', q{SELECT pg_snapshot_xmax(pg_current_snapshot())}) < 2**32)
{
	$writer->query_safe('UPDATE t SET n = n + 1 WHERE id = 1');
	$n++;
}
is($snapshot->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT pg_snapshot_xmin(pg_current_snapshot())"), 2**32 + 3, 'the first of the epoch');
$writer->query_safe('UPDATE t SET n = n + 1 WHERE id = 1') for 1 .. 3;
my $discarder = $node->background_psql('postgres', on_error_stop => 1);
$discarder->query_safe('SELECT zundo.discard()');
is($node->safe_psql('postgres', 'SELECT max(oldest_xid::text::bigint) FROM zundo.stat_undo'), 2**32 + 3, 'oldest');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
my $sum = eval { $reader->query_safe('SELECT sum(n) FROM t') };
ok(!defined $sum, 'the snapshot of the standby has been ended') or diag("it sees $sum");
eval { $reader->quit };
is($standby->safe_psql('postgres', 'SELECT sum(n) FROM t'), 4001 + $n + 3, 'the rows on the standby');
is($snapshot->query_safe('SELECT sum(n) FROM t'), 4001 + $n, 'an older snapshot');
$snapshot->query_safe('COMMIT');

# After the wraparound.
$node->safe_psql('postgres', 'BEGIN; UPDATE t SET n = 4000; DELETE FROM t WHERE id < 50; ROLLBACK');
is($node->safe_psql('postgres', 'SELECT sum(n) FROM t'), 4001 + $n + 3, 'a rollback is pending');
$discarder->query_safe('SELECT zundo.discard()');
is($node->safe_psql('postgres', q{SELECT count(*) FROM zundo.page_slots('t', 0) WHERE status = 'aborted'}), '0', 'a discard pass completes it');
sound($node, '', qw(t zundo.undo_log));
$_->quit for $writer, $old, $snapshot, $discarder;
crash($node);
is($node->safe_psql('postgres', 'SELECT sum(n) FROM t'), 4001 + $n + 3, 'after a crash');
$node->safe_psql('postgres', 'UPDATE t SET n = n + 1; SELECT zundo.discard()');
sound($node, 'after a crash', qw(t zundo.undo_log));
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
$standby->promote;
$standby->safe_psql('postgres', 'UPDATE t SET n = n + 1');
is($standby->safe_psql('postgres', 'SELECT sum(n) FROM t'), 4001 + $n + 203, 'the promoted standby');
sound($standby, 'on the standby', qw(t zundo.undo_log));
no_crash($_) for $node, $standby;
$standby->stop;
$node->stop;
done_testing();
