# The pages of a standby equal those of the primary. The standby answers queries
# with snapshots older than what it replays, and after promotion it rolls back
# the transactions that were in progress on the primary.
# Rules: UNDO-19.
# newest
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $primary = zundo_node('primary', <<'C', allows_streaming => 1);
wal_consistency_checking = 'all'
max_wal_size = 4GB
max_standby_streaming_delay = -1
max_prepared_transactions = 5
C
$primary->safe_psql('postgres', 'CREATE EXTENSION zundo');
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\nwal_receiver_status_interval = 1");
$standby->start;

my $state = q{
	SELECT count(*), sum(id), sum(n), md5(string_agg(t::text, ',' ORDER BY id)) FROM t;
	SELECT count(*), md5(string_agg(plain::text, ',' ORDER BY plain::text)) FROM plain;
	SET enable_seqscan = off; SET enable_bitmapscan = off;
	SELECT n, count(*), sum(id) FROM t WHERE n IS NOT NULL GROUP BY n ORDER BY n;
};

sub caught_up
{
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	return;
}

sub same
{
	my ($what) = @_;
	caught_up();
	is($standby->safe_psql('postgres', $state), $primary->safe_psql('postgres', $state), "$what: the same rows on the standby");
	return;
}

# 1. All kinds of changes.
$primary->safe_psql(
	'postgres', q{
	CREATE TABLE t (id int PRIMARY KEY, n int, pad text) USING zheap;
	CREATE INDEX t_n ON t (n);
	CREATE TABLE plain (id int, pad text) USING zheap;
	INSERT INTO t SELECT g, g % 10, repeat('p', g % 100) FROM generate_series(1, 1000) g;
	INSERT INTO plain SELECT g, repeat('q', 50) FROM generate_series(1, 3000) g;
});
same('insertions');
$primary->safe_psql(
	'postgres', q{
	BEGIN;
	UPDATE t SET pad = pad || 'x' WHERE id % 3 = 0;
	UPDATE t SET n = n + 100 WHERE id % 7 = 0;
	UPDATE t SET id = id + 100000 WHERE id % 11 = 0;
	SAVEPOINT a;
	DELETE FROM t WHERE id % 13 = 0;
	UPDATE plain SET pad = repeat('y', 300) WHERE id % 5 = 0;
	ROLLBACK TO a;
	DELETE FROM t WHERE id % 17 = 0;
	SELECT count(*) FROM (SELECT 1 FROM t WHERE id < 100 FOR UPDATE) x;
	UPDATE plain SET pad = repeat('z', 200) WHERE id % 5 = 1;
	COMMIT;
});
same('changes');
$primary->safe_psql('postgres', 'BEGIN; UPDATE t SET n = n + 1; DELETE FROM plain; ROLLBACK');
same('a rollback');
$primary->safe_psql('postgres', 'VACUUM t; VACUUM plain; VACUUM FULL plain; SELECT zundo.discard()');
same('VACUUM');

# 2. Changes of transactions that are in progress on the primary are not visible; with a
# few and with many subtransactions.
my $writer = $primary->background_psql('postgres', on_error_stop => 1);
my $committed = $primary->safe_psql('postgres', $state);
$writer->query_safe('BEGIN; UPDATE t SET n = n + 1000; SAVEPOINT a; DELETE FROM t WHERE id < 300; INSERT INTO plain VALUES (0, NULL)');
$primary->safe_psql('postgres', 'CREATE TABLE flush_wal ()');
caught_up();
is($standby->safe_psql('postgres', $state), $committed, 'the standby does not see an open transaction');
$writer->query_safe('ROLLBACK TO a; DELETE FROM t WHERE id BETWEEN 300 AND 310; COMMIT');
same('the transaction has committed');

# 3. An old snapshot on the standby sees its rows whatever is replayed; the undo
# that it needs is not discarded, since the standby reports its xmin to the
# primary.
my $reader = $standby->background_psql('postgres', on_error_stop => 1);
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
my $flat = q{SELECT count(*), sum(id), sum(n), md5(string_agg(t::text, ',' ORDER BY id)) FROM t};
my $byindex = q{SELECT count(*), sum(id) FROM t WHERE n BETWEEN 1000 AND 1010};
my $old = $reader->query_safe($flat);
my $oldindex = $reader->query_safe($byindex);
ok($primary->poll_query_until('postgres', 'SELECT backend_xmin IS NOT NULL FROM pg_stat_replication'), 'the primary knows of the snapshot');
for my $n (1 .. 20)
{
	$primary->safe_psql('postgres', "UPDATE t SET pad = 'round $n'; UPDATE t SET n = n + 1 WHERE id % 20 = $n; DELETE FROM t WHERE id % 37 = $n");
}
$primary->safe_psql('postgres', 'BEGIN; UPDATE t SET n = 0; ROLLBACK');
caught_up();
is($reader->query_safe($flat), $old, 'an old snapshot on the standby');
is($reader->query_safe($byindex), $oldindex, 'and by index');
isnt($standby->safe_psql('postgres', $flat), $old, 'while others there see the new rows');
is($reader->query_safe($flat), $old, 'and again');
$reader->query_safe('COMMIT');
$reader->quit;

# 4. Discarding is replayed. Without feedback, a query that still needs the undo is canceled.
$primary->safe_psql('postgres', 'SELECT txid_current(); SELECT zundo.discard(); VACUUM t');
same('discard');
$standby->append_conf('postgresql.conf', "hot_standby_feedback = off\nmax_standby_streaming_delay = 0");
$standby->reload;
ok($primary->poll_query_until('postgres', 'SELECT backend_xmin IS NULL FROM pg_stat_replication'), 'no more feedback');
$reader = $standby->background_psql('postgres', on_error_stop => 0);
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
$reader->query_safe($flat);
$primary->safe_psql('postgres', "UPDATE t SET pad = 'discarded'");
$primary->safe_psql('postgres', 'SELECT txid_current()');
ok(all_discarded($primary), 'undo is discarded');
caught_up();
ok(!defined eval { $reader->query_safe($flat) }, 'a query that needs discarded undo is canceled');
eval { $reader->quit };
same('discard without feedback');

# 5. Promotion: open and prepared transactions of the primary are as after a crash.
$committed = $primary->safe_psql('postgres', $state);
$primary->safe_psql('postgres', q{BEGIN; UPDATE t SET n = 4711 WHERE id < 100; PREPARE TRANSACTION 'kept'});
$writer->query_safe(q{BEGIN; UPDATE t SET n = -1, pad = 'never' WHERE id >= 100; DELETE FROM plain; INSERT INTO t SELECT g, 0, 'never' FROM generate_series(20000, 21000) g});
$primary->safe_psql('postgres', 'CREATE TABLE flush_wal_too ()');
caught_up();
$primary->stop('immediate');
eval { $writer->quit };
$standby->promote;
is($standby->safe_psql('postgres', $state), $committed, 'promoted: the rows of before');
ok($standby->poll_query_until('postgres', q{SELECT count(*) = 0 FROM zundo.stat_rollback}), 'promoted: all is rolled back');
is($standby->safe_psql('postgres', $state), $committed, 'promoted: and after the rollback');
my $count = $standby->safe_psql('postgres', 'SELECT count(*) FROM t WHERE id < 100');
$standby->safe_psql('postgres', q{COMMIT PREPARED 'kept'});
is($standby->safe_psql('postgres', 'SELECT count(*) FROM t WHERE n = 4711'), $count, 'promoted: a prepared transaction commits');
$standby->safe_psql('postgres', q{UPDATE t SET n = n + 1; DELETE FROM t WHERE id % 2 = 0; BEGIN; UPDATE plain SET pad = NULL; ROLLBACK});
for my $table (qw(t plain zundo.undo_log))
{
	is($standby->safe_psql('postgres', "SELECT * FROM zundo.check('$table')"), '', "promoted: zundo.check of $table");
}
ok( $standby->poll_query_until('postgres', 'SELECT zundo.discard() IS NOT NULL AND zundo.undo_bytes_in_use() < 100000 AND txid_current() > 0'),
	'promoted: undo is given back');
for my $node ($primary, $standby)
{
	unlike(slurp_file($node->logfile), qr/PANIC|inconsistent page|TRAP/, $node->name . ': replayed pages are equal');
}
$standby->stop;
done_testing();
