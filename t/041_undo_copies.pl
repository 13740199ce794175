# A transaction that reads the same undo pages again and again reads them from
# private copies. It sees the right rows while undo grows, is rolled back or
# discarded, while extents are reused, and when there is no memory for more
# copies.
# Rules: UNDO-29.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('copies', <<'C');
fsync = off
max_wal_size = 4GB
C
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int PRIMARY KEY, n int, pad text) USING zheap;
	INSERT INTO t SELECT g, 0, repeat('x', 40) FROM generate_series(1, 4000) g;
	CREATE FUNCTION touch(times int) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. times LOOP
			UPDATE t SET n = n + 1, pad = CASE WHEN i % 50 = 0 THEN md5(i::text) ELSE pad END WHERE id = 1 + (i * 7919) % 4000;
		END LOOP;
	END $$;
	CREATE PROCEDURE many(calls int, times int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. calls LOOP
			PERFORM touch(times);
			IF i % 4 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
		END LOOP;
	END $$;
});
my $all = q{SELECT count(*), sum(n), md5(string_agg(id || ':' || n || pad, ',' ORDER BY id)) FROM t};
my $copies = q{SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'zheap undo pages'};

my $old = $node->background_psql('postgres', on_error_stop => 1);
$old->query_safe('SET enable_indexscan = off; SET enable_bitmapscan = off');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
my $seen = $old->query_safe($all);
is($old->query_safe($copies), '0', 'nothing to copy yet');

# 1. Undo grows between the scans, so the pages have more data than their copies.
for my $round (1 .. 4)
{
	$node->safe_psql('postgres', "CALL many(9, 300)");
	is($old->query_safe($all), $seen, "the old snapshot sees the same, round $round");
}
is($old->query_safe($copies), '1', 'the old snapshot reads copies');

# 2. An error, and a subtransaction that is rolled back, do the copies no harm.
$old->query_safe('SAVEPOINT a');
is($old->query_safe($all), $seen, 'in a subtransaction');
$old->query_safe('ROLLBACK TO a');
$node->safe_psql('postgres', "CALL many(3, 500)");
is($old->query_safe($all), $seen, 'after its rollback');
$old->query_safe('COMMIT');
is($old->query_safe($copies), '0', 'the copies go with the transaction');
is($old->query_safe($all), $node->safe_psql('postgres', $all), 'the session sees the present rows then');

# 3. A transaction that continues while its snapshots change: undo is discarded,
# and its extents used again.
my $open = $node->background_psql('postgres', on_error_stop => 1);
$old->query_safe('BEGIN');
for my $round (1 .. 4)
{
	$open->query_safe('BEGIN; SELECT touch(3000)');
	$old->query_safe($all) for 1 .. 2;
	$open->query_safe($round % 2 == 0 ? 'ROLLBACK' : 'COMMIT');
	$node->safe_psql('postgres', 'SELECT zundo.discard()');
	is($old->query_safe($all), $node->safe_psql('postgres', $all), "READ COMMITTED, round $round");
}
$old->query_safe('COMMIT');

is($node->safe_psql('postgres', "SELECT * FROM zundo.check('$_')"), '', "zundo.check of $_") for qw(t zundo.undo_log);
$_->quit for $old, $open;
$node->stop;
done_testing();
