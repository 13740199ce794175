# Undo that must be kept is read only once: a process that discards for the
# first time takes from the extent map which transactions were resolved before,
# also after a crash.
# Rules: UNDO-52.
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('kept', "max_prepared_transactions = 5\nshared_buffers = 128MB\nwal_consistency_checking = 'zundo'\n");

# blocks_of_a_pass: returns the number of blocks that the first discard pass of a new
# process reads; no worker runs meanwhile.
sub blocks_of_a_pass
{
	my $plan;
	for (1 .. 100)
	{
		$node->safe_psql('postgres', q(SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'zundo undo worker'));
		$plan = $node->safe_psql('postgres', 'EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT zundo.discard()');
		last if $node->safe_psql('postgres', q(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'zundo undo worker')) eq '0';
	}
	my ($hit) = $plan =~ /shared hit=(\d+)/;
	my ($read) = $plan =~ /read=(\d+)/;
	return ($hit // 0) + ($read // 0);
}

$node->safe_psql('postgres', q(
	CREATE EXTENSION zundo;
	CREATE TABLE z (id int PRIMARY KEY, v int, pad text) USING zheap;
	CREATE TABLE few (id int) USING zheap;
	INSERT INTO few VALUES (1);
	CREATE TABLE h (a int);
	INSERT INTO z SELECT g, 0, repeat('x', 100) FROM generate_series(1, 20000) g));
$node->poll_query_until('postgres', 'SELECT zundo.discard() IS NOT NULL AND zundo.undo_bytes_in_use() = 0');
# what keeps undo over a restart
$node->safe_psql('postgres', q(BEGIN; INSERT INTO h VALUES (1); PREPARE TRANSACTION 'keep'));
$node->safe_psql('postgres', q(UPDATE z SET v = v + 1, pad = md5(random()::text) || repeat('y', 70))) for 1 .. 14;
my $pages = $node->safe_psql('postgres', 'SELECT zundo.undo_bytes_in_use() / 8192');
cmp_ok($pages, '>', 1500, 'undo is kept');
$node->safe_psql('postgres', 'SELECT zundo.discard()');
cmp_ok(blocks_of_a_pass(), '<', $pages / 3, 'a pass of a new process reads a small part of it');
crash($node);
cmp_ok(blocks_of_a_pass(), '<', $pages / 3, 'after a crash too');
is($node->safe_psql('postgres', 'SELECT zundo.undo_bytes_in_use() / 8192 >= ' . $pages), 't', 'all of it is kept');
# nor does VACUUM, which makes such a pass where there is no worker, right after a restart
$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
$node->restart;
# (pg_stat_io counts reads of undo; the statistics of relations and databases do not)
my $touched = q(SELECT sum(coalesce(reads, 0) + coalesce(hits, 0)) FROM pg_stat_io WHERE backend_type = 'client backend' AND object = 'relation');
for my $table (server_major() >= 16 ? qw(z few zundo.undo_log) : ())
{
	my $before = $node->safe_psql('postgres', $touched);
	$node->safe_psql('postgres', "VACUUM $table; SELECT pg_stat_force_next_flush()");
	my $size = $table eq 'z' ? $node->safe_psql('postgres', q(SELECT 2 * (pg_relation_size('z') + pg_indexes_size('z')) / 8192)) : 0;
	my $read = $node->safe_psql('postgres', $touched) - $before - $size;
	cmp_ok($read, '<', $pages / 3, "VACUUM of $table without a worker reads a small part of it");
	note("$read of $pages pages");
}
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->restart;
my $old = $node->safe_psql('postgres', q(SELECT count(*), sum(v) FROM z));
is($old, '20000|280000', 'the rows');

# an aborted transaction in the middle is rolled back, and what follows is resolved too
my $writer = $node->background_psql('postgres');
$writer->query_safe('BEGIN');
$writer->query_safe('UPDATE z SET v = v + 100');
$node->safe_psql('postgres', 'CHECKPOINT');
$writer->{run}->kill_kill;
crash($node);
$node->safe_psql('postgres', q(UPDATE z SET v = v + 1)) for 1 .. 3;
ok($node->poll_query_until('postgres', 'SELECT zundo.discard() IS NOT NULL AND NOT EXISTS (SELECT FROM zundo.stat_rollback)'), 'a rollback in the middle');
is($node->safe_psql('postgres', q(SELECT count(*), sum(v) FROM z)), '20000|340000', 'the rows after it');
sound($node, 'with kept undo', 'z', 'zundo.undo_log');

# when no snapshot needs it any more, all undo is discarded
crash($node);
$node->safe_psql('postgres', q(COMMIT PREPARED 'keep'));
ok($node->poll_query_until('postgres', 'SELECT zundo.discard() IS NOT NULL AND zundo.undo_bytes_in_use() = 0'), 'all undo is discarded');
sound($node, 'in the end', 'z', 'zundo.undo_log');
no_crash($node);
done_testing();
