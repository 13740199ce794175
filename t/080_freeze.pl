# relfrozenxid of zheap tables advances even if no session exists for long and
# some database of the cluster always has an older snapshot; also after crashes.
# Rules: VACUUM-3.
use strict;
use warnings;
use Test::More;
use ZundoTest;

my $node = zundo_node('freeze', <<'C');
wal_consistency_checking = 'zundo'
max_worker_processes = 0
C
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int PRIMARY KEY, n int) USING zheap;
	INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) g;
});
$node->safe_psql('postgres', 'CREATE DATABASE other');

# snapshot: opens a snapshot in another database, which stays open while many transactions
# run; returns its session.
sub snapshot
{
	my $session = $node->background_psql('other', on_error_stop => 1);
	$session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class');
	$node->safe_psql('other', 'SELECT txid_current()') for 1 .. 2;
	return $session;
}

my $old = snapshot();

# turn: runs sessions one after the other, between which no process uses the undo of the
# database, and replaces the old snapshot by a newer one. Returns an id of a transaction.
sub turn
{
	$node->safe_psql('postgres', "UPDATE t SET n = n + 1 WHERE id = $_") for 1 .. 3;
	$node->safe_psql('postgres', 'SELECT zundo.discard()');
	my $new = snapshot();
	$old->quit;
	$old = $new;
	return $node->safe_psql('postgres', 'SELECT txid_current()');
}

sub frozen
{
	$node->safe_psql('postgres', 'VACUUM t');
	return $node->safe_psql('postgres', q{SELECT relfrozenxid FROM pg_class WHERE relname = 't'});
}

my @xids = map { turn() } 1 .. 5;
my $first = frozen();
cmp_ok($first, '>', $xids[1], 'relfrozenxid has advanced');
cmp_ok($first, '<', $xids[4], '... not beyond the older snapshot');
push @xids, turn() for 1 .. 2;
$node->stop('immediate');
eval { $old->quit };
$node->start;
$old = snapshot();
push @xids, turn() for 1 .. 2;
cmp_ok(frozen(), '>', $xids[5], 'and advances after a crash');

# with a snapshot that stays open it does not advance
my $stays = snapshot();
my $limit = $node->safe_psql('other', 'SELECT txid_current()');
turn() for 1 .. 3;
cmp_ok(frozen(), '<', $limit, 'an open snapshot holds relfrozenxid back');
$stays->quit;
turn() for 1 .. 2;
cmp_ok(frozen(), '>', $limit, 'relfrozenxid advances when the snapshot is closed');
is($node->safe_psql('postgres', 'SELECT sum(n) FROM t'), '42', 'the rows are there');
sound($node, '', qw(t zundo.undo_log));

# Undo of a table that was dropped: clog is kept until that undo is resolved.
$node->safe_psql('postgres', q{
	SET zundo.eager_rollback_pages = 0;
	CREATE TABLE gone (id int) USING zheap;
	BEGIN; INSERT INTO gone SELECT generate_series(1, 10); ROLLBACK;
	DROP TABLE gone;
});
my $pending = $node->safe_psql('postgres', 'SELECT txid_current()');
turn() for 1 .. 3;
$node->safe_psql('postgres', 'TRUNCATE t');	# its relfrozenxid is a new one: the undo log's own holds
turn() for 1 .. 3;
my $vacuum_others = $node->safe_psql('postgres', q{SELECT string_agg('VACUUM (FREEZE) ' || oid::regclass || ';', E'\n')
	FROM pg_class WHERE relkind IN ('r', 't', 'm') AND relfrozenxid <> '0' AND relname <> 'undo_log'});
$node->safe_psql('postgres', $vacuum_others);
my $datfrozenxid = q{SELECT datfrozenxid FROM pg_database WHERE datname = 'postgres'};
cmp_ok($node->safe_psql('postgres', $datfrozenxid), '<', $pending, 'undo of a dropped table holds datfrozenxid');
for (1 .. 3)
{
	$node->safe_psql('postgres', 'VACUUM zundo.undo_log');
	turn();
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM zundo.stat_rollback'), '0', 'VACUUM of the undo log resolves it');
$node->safe_psql('postgres', $vacuum_others);
cmp_ok($node->safe_psql('postgres', $datfrozenxid), '>', $pending, 'and lets datfrozenxid advance');
$old->quit;
sound($node, 'later', qw(t zundo.undo_log));

# A transaction creates the extension and uses it at once: its own rows do not count as
# visible to all.
is($node->safe_psql('other', q{
	BEGIN;
	CREATE EXTENSION zundo;
	CREATE TABLE s (id int PRIMARY KEY, n int) USING zheap;
	INSERT INTO s SELECT g, 0 FROM generate_series(1, 1000) g;
	DECLARE c CURSOR FOR SELECT sum(n) FROM s;
	UPDATE s SET n = n + 1, id = id + 10000;
	FETCH c;
	SELECT count(*), sum(n) FROM s;
	COMMIT}), "0\n1000|1000", 'CREATE EXTENSION and changes in one transaction');
is($node->safe_psql('other', "SELECT * FROM zundo.check('s')"), '', 'zundo.check of s');
no_crash($node);
$node->stop;
done_testing();
