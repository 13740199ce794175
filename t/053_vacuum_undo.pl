# VACUUM beside an old snapshot leaves discarding to the worker instead of
# reading all undo that is kept.
use strict;
use warnings;
use Test::More;
use ZundoTest;

my $node = zundo_node('vacuumundo', "zundo.eager_rollback_pages = 0\n");
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int PRIMARY KEY, n int) USING zheap;
	CREATE TABLE s (id int) USING zheap;
	INSERT INTO t SELECT g, 0 FROM generate_series(1, 10000) g;
	INSERT INTO s SELECT g FROM generate_series(1, 10) g});
my ($old, $session) = map { $node->background_psql('postgres', on_error_stop => 1) } 1 .. 2;
$old->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT sum(n) FROM t");
$session->query_safe('UPDATE t SET n = n + 1');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'zundo undo worker'}), 'a worker');
$session->query_safe('BEGIN; UPDATE s SET id = id + 100; ROLLBACK');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM zundo.page_slots('s', 0) WHERE status = 'aborted'}), 'it works');
my $read = q{SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'zundo discard'};
# a session reads undo itself if the worker takes more than a second
my $without = 0;
for (1 .. 20)
{
	my $vacuum = $node->background_psql('postgres', on_error_stop => 1);
	$vacuum->query_safe('VACUUM s');
	$without++ if $vacuum->query_safe($read) eq '0';
	$vacuum->quit;
	last if $without == 4;
}
is($without, 4, 'VACUUM has not read the undo log');
is($old->query_safe('SELECT sum(n) FROM t'), '0', 'the old snapshot');
$_->quit for $old, $session;
sound($node, '', qw(s t zundo.undo_log));
no_crash($node);
$node->stop;
done_testing();
