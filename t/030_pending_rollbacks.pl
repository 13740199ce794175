# Readers do not wait for rollbacks that are pending (VIS-4), and pending
# rollbacks are completed in the end (discard/README.md).
# Rules: CHAIN-4, ROW-1, UNDO-6, UNDO-16.
# long
use strict;
use warnings;
use Test::More;
use ZundoTest;

my $node = zundo_node('pending', <<'C');
max_worker_processes = 0
max_prepared_transactions = 5
zundo.eager_rollback_pages = 0
zundo.undo_compression = none
C
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int PRIMARY KEY, n int) USING zheap;
	INSERT INTO t SELECT g, 0 FROM generate_series(1, 10) g;
	CREATE TABLE junk (id int, filler text) USING zheap;
	INSERT INTO junk SELECT g, repeat('0', 1500) FROM generate_series(1, 500) g;
});
my $spoil = q{UPDATE junk SET filler = repeat(md5(random()::text || id), 45)};

# 1. The heads of two slots of a page have aborted, and the undo below them has been
# discarded and its extent used again.
my $old = $node->background_psql('postgres', on_error_stop => 1);
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t');
# one transaction per slot; the old snapshot keeps their undo. Then the log continues in
# another extent.
my $writer = $node->background_psql('postgres', on_error_stop => 1);
$writer->query_safe("UPDATE t SET n = $_ WHERE id = $_") for 1 .. 4;
$writer->query_safe($spoil) for 1 .. 2;
for my $i (5, 6)
{
	$node->safe_psql('postgres', "BEGIN; UPDATE t SET n = 100 WHERE id = $i; PREPARE TRANSACTION 'x$i'");
}
my $slots = q{SELECT count(*), count(DISTINCT xid), count(*) FILTER (WHERE status = 'in progress') FROM zundo.page_slots('t', 0)};
is($node->safe_psql('postgres', $slots), '4|4|2', 'all slots are used, two by open transactions');
$old->query_safe('COMMIT');
$node->safe_psql('postgres', 'SELECT zundo.discard()');
$writer->query_safe($spoil) for 1 .. 3;
$node->safe_psql('postgres', "ROLLBACK PREPARED 'x$_'") for 5, 6;
is($node->safe_psql('postgres', q{SELECT count(*) FROM zundo.page_slots('t', 0) WHERE status = 'aborted'}), '2',
	'nobody has undone them');
my $rows = "1|1\n2|2\n3|3\n4|4\n5|0\n6|0\n7|0\n8|0\n9|0\n10|0";
# below the heads of 5 and 6 are pointers to records that have gone; without another
# generation (UNDO-6) they would be pointers to those that have taken the extent
is($node->safe_psql('postgres', 'SELECT * FROM t ORDER BY id'), $rows, 'a sequential scan');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT * FROM t ORDER BY id'), $rows, 'an index scan');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SET enable_indexscan = off; SELECT * FROM t WHERE id > 0 ORDER BY id'),
	$rows, 'a bitmap scan');
is($node->safe_psql('postgres', q{SELECT count(*) FROM zundo.page_slots('t', 0) WHERE status = 'aborted'}), '2',
	'they are still pending');
sound($node, '', qw(t junk zundo.undo_log));
$writer->quit;
$old->quit;

# A writer finds nothing but slots whose heads have aborted. It takes these records off
# the page before it pushes its own: an aborted record below a committed one would be
# neither undone nor passed over (CHAIN-4).
my $aborted = q{SELECT count(*) FROM zundo.page_slots('pushed', 0) WHERE status = 'aborted'};
$node->safe_psql('postgres', 'CREATE TABLE pushed (id int PRIMARY KEY, n int) USING zheap; INSERT INTO pushed SELECT g, 0 FROM generate_series(1, 6) g');
$node->safe_psql('postgres', "BEGIN; UPDATE pushed SET n = 100 WHERE id = $_; ROLLBACK") for 1 .. 4;
is($node->safe_psql('postgres', $aborted), '4', 'the heads of all slots have aborted');
$node->safe_psql('postgres', 'UPDATE pushed SET n = 1 WHERE id = 5');
is($node->safe_psql('postgres', $aborted), '0', 'a writer has undone them');
is($node->safe_psql('postgres', 'SELECT sum(n), sum(id) FILTER (WHERE n = 1) FROM pushed'), '1|5', 'and changed its row');
sound($node, 'pushed', 'pushed');

# Two changes of a row are undone, and their undo is discarded and its extents used again,
# while a reader, which has copied the page, is between them: it has passed over the newer
# one. That the other has been discarded then does not make it visible to all (VIS-4).
$node->safe_psql('postgres', 'CREATE TABLE passed (id int PRIMARY KEY, n int) USING zheap; INSERT INTO passed VALUES (1, 0)');
my ($reader, $watcher) = (session($node), session($node));
my $pid = ask($reader, 'SET enable_seqscan = off', 'SET enable_bitmapscan = off', 'SELECT pg_backend_pid()');
my $caught = 0;
for (1 .. 20)
{
	$node->safe_psql('postgres', "SELECT zundo.discard(); BEGIN; UPDATE passed SET n = 1; $spoil; $spoil; UPDATE passed SET n = 2; ROLLBACK");
	ask($reader, q{SET zundo.fault = 'version-passed:sleep:1'});
	my $printed = $reader->query_until(qr/asked/, "\\echo asked\nSELECT 'n is ' || n FROM passed WHERE id = 1;\n\\echo done\n");
	$caught = ZundoTest::caught($watcher, $pid, 'SELECT%passed%');
	$node->safe_psql('postgres', "SELECT zundo.discard(); $spoil; $spoil; $spoil") if $caught;
	kill 'CONT', $pid;
	# on a busy machine all of it may have come at once
	$printed .= $reader->query_until(qr/done/, '') if $printed !~ /done/;
	my ($answer) = $printed =~ /n is (\d)/;
	is($answer, 0, 'a reader that is between two changes reads neither') if $caught;
	last if $caught;
}
ok($caught, 'they were undone while the row was read');
$_->quit for $reader, $watcher;

# Rows of an aborted transaction that has added columns are no fault of the table, nor
# are they if columns of other types have taken the place (ROW-1).
$node->safe_psql(
	'postgres', q{
	CREATE TABLE wider (id int PRIMARY KEY, n int) USING zheap;
	INSERT INTO wider SELECT g, g FROM generate_series(1, 10) g;
	BEGIN;
	ALTER TABLE wider ADD a text, ADD b text;
	INSERT INTO wider SELECT g, g, 'a' || g, repeat('b', 50) FROM generate_series(11, 1000) g;
	UPDATE wider SET a = 'row ' || id WHERE id < 5;
	DELETE FROM wider WHERE id = 6;
	PREPARE TRANSACTION 'wider';
	ROLLBACK PREPARED 'wider'});
is($node->safe_psql('postgres', q{SELECT count(*) FROM zundo.page_slots('wider', 0) WHERE status = 'aborted'}), '1',
	'the rollback of added columns is pending');
sound($node, 'fewer columns than rows of an aborted transaction', 'wider');
$node->safe_psql('postgres', 'ALTER TABLE wider ADD x int, ADD y timestamp');
sound($node, 'other columns than rows of an aborted transaction', 'wider');
is($node->safe_psql('postgres', 'SELECT count(*), sum(n), count(x), count(y) FROM wider'), '10|55|0|0', 'none of them is read');
$node->safe_psql('postgres', 'UPDATE wider SET n = n + 1, x = 1');
is($node->safe_psql('postgres', 'SELECT count(*), sum(n), count(x), count(y) FROM wider'), '10|65|10|0', 'nor changed');

# 2. A rollback that has to wait keeps the undo of younger transactions, in
# other logs too: a reader takes a record that has been discarded for one that
# is visible to all.
$node->safe_psql(
	'postgres', q{
	SELECT zundo.discard();
	CREATE TABLE a (id int, n int) USING zheap;
	CREATE TABLE b (id int PRIMARY KEY, k int) USING zheap;
	CREATE INDEX ON b (k);
	INSERT INTO a SELECT g, 0 FROM generate_series(1, 10) g;
	INSERT INTO b SELECT g, 0 FROM generate_series(1, 300) g;
});
my $aborter = $node->background_psql('postgres', on_error_stop => 1);
$aborter->query_safe('BEGIN; UPDATE a SET n = 1; ROLLBACK');
my $locker = $node->background_psql('postgres', on_error_stop => 1);
$locker->query_safe('BEGIN; LOCK TABLE a IN SHARE MODE');
$writer = $node->background_psql('postgres', on_error_stop => 1);
$writer->query_safe('DELETE FROM b WHERE id % 10 = 0');
$writer->query_safe('UPDATE b SET k = k + 1') for 1 .. 2;
$writer->query_safe($spoil) for 1 .. 2;
$node->safe_psql('postgres', 'SELECT zundo.discard()');
$writer->query_safe($spoil) for 1 .. 3;
sound($node, 'beside a rollback that waits', qw(a b junk zundo.undo_log));
# full leaf pages cause index deletion to look at the entries of moved rows
$writer->query_safe('UPDATE b SET k = k + 1') for 1 .. 10;
is($node->safe_psql('postgres', 'SELECT count(*), sum(k) FROM b'), '270|3240', 'rows are moved beside a rollback that waits');
$locker->query_safe('COMMIT');
$_->quit for $locker, $writer, $aborter;
$node->safe_psql('postgres', 'SELECT zundo.discard()') for 1 .. 2;
# the discard pass knows by ZUF_FIRST where the transaction begins in its log; otherwise
# it would take the records for those of the one before, which has committed (UNDO-16)
is($node->safe_psql('postgres', 'SELECT sum(n) FROM a'), '0', 'then it is done');
is($node->safe_psql('postgres', q{SELECT count(*) FROM zundo.page_slots('a', 0) WHERE status = 'aborted'}), '0', '... on the page');
cmp_ok($node->safe_psql('postgres', 'SELECT zundo.undo_bytes_in_use()'), '<', 20000, '... and all undo given back');

# 3. A worker does them when there can be one; and the next ones too, though nobody calls
# it: ROLLBACK PREPARED is in no session of the transaction, and its few bytes of undo are
# all that there is.
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->restart;
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM zundo.page_slots('t', 0) WHERE status = 'aborted'}),
	'a worker undoes them after a restart');
$node->safe_psql('postgres', q{BEGIN; UPDATE t SET n = 200 WHERE id = 7; PREPARE TRANSACTION 'x7'});
ok($node->poll_query_until('postgres', q{SELECT zundo.undo_bytes_in_use() < 8192}), 'only one small transaction has undo');
my $worker = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'zundo undo worker'};
# longer than a worker stays without work
for (1 .. 15)
{
	last if $node->safe_psql('postgres', $worker) == 0;
	sleep 1;
}
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'x7'});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM zundo.page_slots('t', 0) WHERE status = 'aborted'}),
	'a rolled back prepared transaction is undone');
ok($node->poll_query_until('postgres', q{SELECT zundo.undo_bytes_in_use() = 0}), 'and its undo given back');
ok($node->poll_query_until('postgres', $worker, '0'), 'then the worker leaves')
  or diag($node->safe_psql('postgres', $worker));
is($node->safe_psql('postgres', 'SELECT * FROM t ORDER BY id'), $rows, 'the rows of before');
sound($node, 'later', qw(t junk zundo.undo_log));
no_crash($node);
$node->stop;
done_testing();
