# relfrozenxid of zheap tables advances also where no session stays for long and there is always an older
# snapshot somewhere in the cluster; through crashes too.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('freeze');
$node->init;
$node->append_conf('postgresql.conf', <<'C');
shared_preload_libraries = 'zundo'
wal_consistency_checking = 'zundo'
autovacuum = off
max_worker_processes = 0
C
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int PRIMARY KEY, n int) USING zheap;
	INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) g;
});
$node->safe_psql('postgres', 'CREATE DATABASE other');

# A snapshot of another database. Transactions go by before anything else happens.
sub snapshot
{
	my $session = $node->background_psql('other', on_error_stop => 1);
	$session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class');
	$node->safe_psql('other', 'SELECT txid_current()') for 1 .. 2;
	return $session;
}

my $old = snapshot();

# Sessions of the database come and go; between them nobody uses its undo. The old snapshot is replaced by a newer one.
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
push @xids, turn();
cmp_ok(frozen(), '>', $xids[5], 'and goes on after a crash');

# with a snapshot that stays it does not
my $stays = snapshot();
my $limit = $node->safe_psql('other', 'SELECT txid_current()');
turn() for 1 .. 3;
cmp_ok(frozen(), '<', $limit, 'a snapshot that stays holds it back');
$stays->quit;
turn() for 1 .. 2;
cmp_ok(frozen(), '>', $limit, 'and lets it go');
$old->quit;
is($node->safe_psql('postgres', 'SELECT sum(n) FROM t'), '39', 'the rows are there');
is($node->safe_psql('postgres', "SELECT * FROM zundo.check('$_')"), '', "zundo.check of $_") for qw(t zundo.undo_log);
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|inconsistent page|terminated by signal (?:4|6|7|8|11)/, 'no crash in the log');
$node->stop;
done_testing();
