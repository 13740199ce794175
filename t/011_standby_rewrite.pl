# A standby has a snapshot that is older than all of the primary's, while an
# aborted transaction that cannot be undone yet holds `oldest` back. If the
# primary rewrites a table or builds an index, also CONCURRENTLY and beside an
# open transaction, queries with that snapshot are canceled and never miss
# rows. Frozen rows (REFRESH MATERIALIZED VIEW, COPY FREEZE) are visible to that
# snapshot, as on heap.
# Rules: BUILD-3, CLUSTER-1.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $primary = zundo_node('primary', <<'C', allows_streaming => 1);
wal_consistency_checking = 'zundo'
max_worker_processes = 0
max_standby_streaming_delay = 0
hot_standby_feedback = off
C
$primary->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
$standby->start;

$primary->safe_psql(
	'postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE other (id int);
	CREATE TABLE held (id int) USING zheap;
	CREATE MATERIALIZED VIEW view USING zheap AS SELECT g FROM generate_series(1, 10) g;
	CREATE TABLE copied (id int) USING zheap;
	CREATE TABLE t (id int PRIMARY KEY, n int, c int, v text) USING zheap;
	INSERT INTO t SELECT g, 0, 0, repeat('v', 20) FROM generate_series(1, 1000) g;
});
$primary->safe_psql('postgres', 'SELECT zundo.discard()');
$primary->safe_psql('postgres', 'SET zundo.eager_rollback_pages = 0; BEGIN; INSERT INTO held SELECT generate_series(1, 10); ROLLBACK');

my %cases = (
	'VACUUM FULL' => ['VACUUM FULL t', 'SELECT count(*) FROM t'],
	'CLUSTER' => ['CLUSTER t USING t_pkey', 'SELECT count(*) FROM t'],
	'CREATE INDEX' => ['CREATE INDEX t_n ON t (n)', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE n >= 0'],
	'CREATE INDEX CONCURRENTLY, beside an open transaction' => ['CREATE INDEX CONCURRENTLY t_c ON t (c)', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE c >= 0'],
	'REINDEX' => ['REINDEX INDEX t_n', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE n >= 0'],
	'REINDEX CONCURRENTLY' => ['REINDEX INDEX CONCURRENTLY t_c', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE c >= 0'],
	'REINDEX CONCURRENTLY, beside an open transaction' => ['REINDEX TABLE CONCURRENTLY t', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE c >= 0']);
my $gone = 600;
for my $case (sort keys %cases)
{
	my ($ddl, $query) = @{ $cases{$case} };
	my $conflicts = q{SELECT confl_snapshot FROM pg_stat_database_conflicts WHERE datname = 'postgres'};

	$primary->safe_psql('postgres', 'UPDATE t SET n = n + 1 WHERE id < 500');
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	my $before = $standby->safe_psql('postgres', $conflicts);
	my $busy;
	if ($case =~ /open transaction/)
	{
		$busy = $primary->background_psql('postgres', on_error_stop => 1);
		$busy->query_safe('BEGIN; INSERT INTO other VALUES (1)');
	}
	my $old = $standby->background_psql('postgres', on_error_stop => 1);
	$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM other');
	$primary->safe_psql('postgres', 'UPDATE t SET n = n + 1 WHERE id < 500; DELETE FROM t WHERE id = ' . ++$gone);
	$primary->safe_psql('postgres', 'SELECT txid_current()') for 1 .. 2;
	$primary->safe_psql('postgres', $ddl);
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	my $rows = 1601 - $gone;
	my $found = eval { $old->query($query) };
	ok(!defined $found || $found !~ /^\d+$/ || $found == $rows, "$case: no row is missing on the standby");
	ok($standby->poll_query_until('postgres', "SELECT confl_snapshot > $before FROM pg_stat_database_conflicts WHERE datname = 'postgres'"),
		"$case: the old snapshot was ended");
	eval { $old->quit };
	$busy->quit if $busy;
	is( $standby->safe_psql('postgres', $query),
		$primary->safe_psql('postgres', $query),
		"$case: a new snapshot of the standby sees what the primary does");
}
{
	my $old = $standby->background_psql('postgres', on_error_stop => 1);

	$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM other');
	$primary->safe_psql('postgres', q{REFRESH MATERIALIZED VIEW view; BEGIN; TRUNCATE copied; COPY copied FROM PROGRAM 'seq 1 20' (FREEZE); COMMIT});
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	is($old->query_safe('SELECT count(*) FROM view'), 10, 'REFRESH MATERIALIZED VIEW: an old snapshot of the standby sees the new rows');
	is($old->query_safe('SELECT count(*) FROM copied'), 20, 'COPY FREEZE: the same');
	$old->quit;
}
# A table that is new or empty has no versions that a snapshot of a standby could miss: no
# query is canceled when its indexes are built. With feedback, so that the primary's
# catalogs are not a reason either.
{
	my $conflicts = q{SELECT confl_snapshot FROM pg_stat_database_conflicts WHERE datname = 'postgres'};
	my $before = $standby->safe_psql('postgres', $conflicts);
	my $old = $standby->background_psql('postgres', on_error_stop => 1);

	$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\nwal_receiver_status_interval = 1");
	$standby->reload;
	ok($primary->poll_query_until('postgres', 'SELECT backend_xmin IS NOT NULL FROM pg_stat_replication'), 'the standby sends feedback');
	$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM other');
	$primary->safe_psql('postgres', 'SELECT txid_current()') for 1 .. 2;
	$primary->safe_psql('postgres', $_) for 'CREATE TABLE made (id int PRIMARY KEY) USING zheap', 'INSERT INTO made VALUES (1)', 'TRUNCATE made',
	  'BEGIN; CREATE TABLE loaded (id int PRIMARY KEY, n int) USING zheap; INSERT INTO loaded SELECT g, g FROM generate_series(1, 100) g; ' .
	  'UPDATE loaded SET n = 0; CREATE INDEX ON loaded (n); CLUSTER loaded USING loaded_pkey; COMMIT';
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	is($old->query_safe('SELECT count(*) FROM other'), '0', 'new and empty tables: an old snapshot of the standby lives on');
	is($old->query_safe('SELECT count(*) FROM loaded'), '0', 'and does not see rows that are younger');
	is($standby->safe_psql('postgres', $conflicts), $before, 'there was no conflict');
	$old->quit;
}
isnt($primary->safe_psql('postgres', 'SELECT count(*) FROM zundo.stat_rollback'), '0', 'the aborted transaction still waits');
is($primary->safe_psql('postgres', "SELECT * FROM zundo.check('$_')"), '', "zundo.check of $_") for qw(t view copied zundo.undo_log);
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|inconsistent page|terminated by signal (?:4|6|7|8|11)/, 'no crash in the log') for $primary, $standby;
$standby->stop;
$primary->stop;
done_testing();
