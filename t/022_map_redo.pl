# VACUUM truncates a table after a WAL record has named a page of its visibility
# map. Without full-page images, a standby that restarts from its last
# restartpoint replays this record on a file that is already truncated: replay
# must not stop there.
# Rules: VMAP-2.
# newest
use strict;
use warnings;
use ZundoTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = zundo_node('primary', "full_page_writes = off\nwal_keep_size = 1GB\n", allows_streaming => 1);
$primary->safe_psql('postgres', 'CREATE EXTENSION zundo');
$primary->safe_psql(
	'postgres', q{
	CREATE TABLE t (id int PRIMARY KEY, n int) USING zheap;
	INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) g});
all_discarded($primary);
$primary->safe_psql('postgres', 'VACUUM t');
is($primary->safe_psql('postgres', "SELECT relallvisible FROM pg_class WHERE relname = 't'"), '1', 'the page has its bit');

$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

# 1. The standby's recovery begins here from now on.
$primary->safe_psql('postgres', 'CHECKPOINT');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
$standby->safe_psql('postgres', 'CHECKPOINT');

# 2. The bit is cleared; then the map is cut off with the table.
$primary->safe_psql('postgres', 'DELETE FROM t');
all_discarded($primary);
$primary->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP ON) t');
is($primary->safe_psql('postgres', "SELECT pg_relation_size('t') + pg_relation_size('t', 'vm')"), '0', 'table and map are empty');
# later pages, so that the standby has to come further than this to be consistent
$primary->safe_psql('postgres', 'CREATE TABLE later (id int) USING zheap; INSERT INTO later SELECT generate_series(1, 1000)');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
is($standby->safe_psql('postgres', "SELECT pg_relation_size('t') + pg_relation_size('t', 'vm')"), '0', 'on the standby too');

# 3. The standby continues from the restartpoint.
$standby->stop('immediate');
$standby->start;
$primary->safe_psql('postgres', 'INSERT INTO t SELECT g, 1 FROM generate_series(1, 50) g');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
is($standby->safe_psql('postgres', 'SELECT count(*), sum(n) FROM t'), '50|50', 'the standby replays later changes');
$standby->promote;
$standby->safe_psql('postgres', 'SELECT zundo.discard()');
$standby->safe_psql('postgres', 'VACUUM t');
is($standby->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(id) FROM t'), '50', 'and is a server of its own');
sound($standby, 'after promotion', 't', 'later');
no_crash($primary);
no_crash($standby);
done_testing();
