# An index fetch through an entry of a zbtree index returns the row only if the
# row has the entry's key (ZBTREE-4). In this test each row also has entries
# with keys of other rows. A rebuilt BRIN index serves old snapshots (BUILD-5b),
# and one that parallel workers might build (BUILD-7).
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('entries', "autovacuum = off\n");
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');
# Readers set no bits of the visibility map for rows that are younger than a snapshot, so
# index-only scans read them in the table.
my $old = session($node);
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
sql(q{
CREATE EXTENSION zundo_test;
CREATE TABLE s (id int PRIMARY KEY, n int, t text, m numeric, d int) USING zheap;
INSERT INTO s SELECT g, CASE WHEN g % 11 > 0 THEN g % 40 END, 'text ' || g % 30, g % 50, g FROM generate_series(1, 400) g;
CREATE INDEX s_n ON s USING zbtree (n);
CREATE INDEX s_nt ON s USING zbtree (n DESC, t) INCLUDE (id);
CREATE INDEX s_t ON s USING zbtree (t COLLATE "C");
CREATE INDEX s_m ON s USING zbtree (m) WHERE d > 0;
CREATE TABLE place AS SELECT id, ctid AS tid FROM s;
CREATE FUNCTION same(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	way text;
	got text;
	first text;
	index_used text := 'no index';
BEGIN
	FOREACH way IN ARRAY ARRAY['seq', 'index', 'bitmap'] LOOP
		PERFORM set_config('enable_seqscan', (way = 'seq')::text, true), set_config('enable_sort', (way <> 'index')::text, true),
			set_config('enable_indexscan', (way = 'index')::text, true),
			set_config('enable_indexonlyscan', (way = 'index' AND current_setting('test.index_only') = 'on')::text, true),
			set_config('enable_bitmapscan', (way = 'bitmap')::text, true), set_config('enable_hashjoin', (way = 'seq')::text, true),
			set_config('enable_nestloop', (way = 'seq')::text, true);
		FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
			IF way = 'index' AND line ~ 'Index.* using s_' THEN index_used := substring(line FROM 's_\w+'); END IF;
		END LOOP;
		EXECUTE 'SELECT md5(string_agg(q::text, '';'')) FROM (' || query || ') q' INTO got;
		IF way = 'seq' THEN first := got; END IF;
		IF got IS DISTINCT FROM first THEN RETURN format('%s differs', way); END IF;
	END LOOP;
	RETURN index_used;
END $$;
CREATE FUNCTION all_same() RETURNS TABLE (query text, used text) LANGUAGE sql AS $$
	SELECT q, same(q) FROM unnest(ARRAY[
		'SELECT count(*), sum(id) FROM s WHERE n = 7',
		'SELECT n FROM s ORDER BY n',
		'SELECT n FROM s WHERE n BETWEEN 10 AND 20 ORDER BY n DESC',
		'SELECT count(*), sum(id) FROM s WHERE n IS NULL',
		'SELECT n, t FROM s WHERE n IN (3, 4, 17) ORDER BY n DESC, t',
		'SELECT n, t FROM s WHERE n IN (3, 4, 17) AND t > ''text 2'' ORDER BY n DESC, t',
		'SELECT min(n), max(n) FROM s',
		'SELECT t FROM s WHERE t COLLATE "C" BETWEEN ''text 1'' AND ''text 2'' ORDER BY t COLLATE "C"',
		'SELECT m FROM s WHERE m >= 19 AND d > 0 ORDER BY m',
		'SELECT a.m, count(*) FROM s a JOIN s b USING (m) WHERE a.d > 0 AND b.d > 0 GROUP BY a.m ORDER BY a.m',
		'SELECT count(*), sum(id) FROM s WHERE n = 12']) q $$;});
is(sql('SELECT count(*) FROM place'), 400, 'all rows');
# Adds entries that do not count to rows that had other keys, as their headers tell (ZBTREE-7).
sub add_entries
{
	sql(map { "UPDATE s SET n = n $_ 1, m = m $_ 1, t = " . ($_ eq '+' ? 'upper' : 'lower') . '(t);' } '+', '-');
	return sql(q{
	SELECT count(zundo_test_add_entry('s', i.index, a.tid, b.tid)) FROM place a JOIN s x ON x.id = a.id
		JOIN generate_series(1, 4) g ON true JOIN place b ON b.id = (a.id - 1 + g * 7) % 400 + 1 JOIN s y ON y.id = b.id
		CROSS JOIN (VALUES ('s_n'::regclass), ('s_nt'), ('s_t'), ('s_m')) i (index)
		WHERE CASE i.index WHEN 's_n'::regclass THEN x.n IS DISTINCT FROM y.n WHEN 's_nt'::regclass THEN (x.n, x.t) IS DISTINCT FROM (y.n, y.t)
			WHEN 's_t'::regclass THEN x.t <> y.t ELSE x.m <> y.m END});
}
my $added = add_entries();
cmp_ok($added, '>', 5000, 'entries that do not count');

# all_same NAME INDEX_ONLY: checks that every kind of scan returns the same rows as a
# sequential one. Index-only scans must be off where pages may be all-visible: they return
# the added entries, which have keys of other rows.
sub all_same
{
	my ($what, $index_only) = @_;
	like(sql("SET test.index_only = '$index_only'", q{;SELECT count(*), string_agg(DISTINCT used, ' ' ORDER BY used) FROM all_same()}), qr/^11\|s_m s_n( s_nt)? s_t$/, $what);
}

all_same('scans', 'on');
ask($old, 'COMMIT');
sql('VACUUM s');
all_same('after VACUUM', 'off');
add_entries();

is(sql(q{SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM (SELECT FROM s WHERE n = 7 FOR UPDATE SKIP LOCKED) l}),
	sql(q{SELECT count(*) FROM s WHERE n + 0 = 7}), 'row locks');
sql(q{SET enable_seqscan = off; UPDATE s SET d = -1 WHERE n = 7});
is(sql(q{SELECT min(n), max(n), count(*) = (SELECT count(*) FROM s WHERE n + 0 = 7) FROM s WHERE d = -1}), '7|7|t', 'an update finds its rows, once each');

# a snapshot that is older than changes, so that scans remember rows; a cursor
# that turns
ask($old, q{SET test.index_only = off; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM s; SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; SET enable_indexonlyscan = off});
ask($old, q{DECLARE c SCROLL CURSOR FOR SELECT n, t FROM s WHERE n < 3 ORDER BY n DESC, t});
my $forward = ask($old, 'FETCH ALL FROM c');
sql(q{UPDATE s SET m = m + 1 WHERE id % 3 = 0});
sql(q{DELETE FROM s WHERE id % 7 = 0});
my $backward = ask($old, 'FETCH BACKWARD ALL FROM c');
is(join("\n", reverse(split(/\n/, $backward))), $forward, 'a cursor back over the same rows');
my $again = ask($old, q{SELECT count(*), count(DISTINCT used) FROM all_same()});
is($again, '11|4', 'an old snapshot');
ask($old, 'COMMIT');
all_same('after changes', 'off');
sql('VACUUM s');
all_same('after VACUUM of deleted rows', 'off');

# a rebuilt BRIN index covers the versions that an old snapshot sees (BUILD-5b)
sql(q{CREATE TABLE b (id int, n int) USING zheap; INSERT INTO b SELECT g, g FROM generate_series(1, 2000) g;
	CREATE INDEX b_n ON b USING brin (n) WITH (pages_per_range = 1); CREATE INDEX b_half ON b USING brin ((n / 2)) WITH (pages_per_range = 1)});
ask($old, 'RESET ALL; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM place');
sql('UPDATE b SET n = n + 10000');
sql('REINDEX TABLE b');
is(sql(q{SELECT reltuples FROM pg_class WHERE relname = 'b'}), 2000, 'live rows are counted once')
  if server_major() < 18;    # later ones leave it to autovacuum, which is off here
ask($old, 'SET LOCAL enable_seqscan = off');
for my $case (['b_n', 'n BETWEEN 101 AND 200'], ['b_half', 'n / 2 = 70'])
{
	my ($index, $where) = @$case;
	like(ask($old, "EXPLAIN SELECT FROM b WHERE $where"), qr/ $index /, "$index is used");
	is(ask($old, "SELECT count(*), sum(n) FROM b WHERE $where"), $index eq 'b_n' ? '100|15050' : '2|281', "an old snapshot reads $index");
}
ask($old, 'COMMIT');

# versions that are older than a BRIN index, and do not fit its expression, hinder neither
# a rebuild nor a summary (BUILD-5b)
sql(q{CREATE TABLE q (id int, n int) USING zheap; INSERT INTO q SELECT g, g - 1 FROM generate_series(1, 100) g});
ask($old, 'RESET ALL; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM place');
sql('UPDATE q SET n = 1000 WHERE n = 0', ';CREATE INDEX q_n ON q USING brin ((1000 / n)) WITH (pages_per_range = 1)');
my $checks = q{SELECT indcheckxmin FROM pg_index WHERE indexrelid = 'q_n'::regclass};
is(sql('REINDEX INDEX q_n', ";$checks"), 't', 'REINDEX keeps the old snapshot away from the index');
is(sql(q{SELECT brin_desummarize_range('q_n', 0), brin_summarize_new_values('q_n')}), '|1', 'a summary');
# a snapshot that is younger than the index uses it, also for versions that were replaced since
my $younger = session($node);
ask($younger, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM place');
sql('UPDATE q SET n = n + 5000; REINDEX INDEX q_n');
is(ask($old, q{SET LOCAL enable_seqscan = off; SELECT count(*) FROM q WHERE 1000 / nullif(n, 0) = 500}), 1, 'the old snapshot');
ask($younger, 'SET LOCAL enable_seqscan = off');
like(ask($younger, 'EXPLAIN SELECT FROM q WHERE 1000 / n = 500'), qr/ q_n /, 'a younger snapshot uses the index');
is(ask($younger, 'SELECT count(*) FROM q WHERE 1000 / n = 500'), 1, 'and finds its rows');
ask($_, 'COMMIT') for $old, $younger;
$younger->quit;
is(sql('REINDEX INDEX q_n', ";$checks"), 'f', 'no snapshot is older than the index');

# parallel workers do not build an index that needs to know of older versions, unless
# btree's code builds it (BUILD-7)
my $parallel = session($node);
ask($parallel, q{SET max_parallel_maintenance_workers = 2; SET min_parallel_table_scan_size = 0; SET maintenance_work_mem = '256MB'});
# workers COMMAND: returns how many workers were requested for each index that the command builds.
sub workers
{
	my ($command) = @_;
	ask($parallel, "SET client_min_messages = debug1; $command; RESET client_min_messages");
	return join(' ', map { /building index "p_(\w+)" on table "p" (?:serially|with request for (\d) parallel)/ ? "$1:" . ($2 // 0) : () }
		  split(/\n/, $complaint));
}
# answers SESSION: returns what a session reads by each index of p, and by none; it keeps no locks.
sub answers
{
	my ($s) = @_;
	my $of = 'SELECT count(*), sum(id) FROM p WHERE';
	return join(' ', map { my $where = $_; (map { ask($s, "SAVEPOINT s; SET LOCAL enable_seqscan = $_; $of $where; ROLLBACK TO s; RELEASE s") } 'off', 'on') }
		  'n BETWEEN 101 AND 200', 'n / 2 BETWEEN 100 AND 150', q{a @> '{7}'}, 'b = 9', 'b + 0 = 9');
}
sql(q{CREATE TABLE p (id int, n int, a int[], b int) USING zheap; INSERT INTO p SELECT g, g, ARRAY[g % 100], g % 50 FROM generate_series(1, 600) g});
my @create = ('n ON p USING brin (n) WITH (pages_per_range = 1)', 'half ON p USING brin ((n / 2)) WITH (pages_per_range = 1)',
	'a ON p USING gin (a)', 'b ON p USING btree (b)', 'zb ON p USING zbtree (b)');
my $expected = '100|15050 100|15050 102|25551 102|25551 6|1542 6|1542 12|3408 12|3408 12|3408 12|3408';
ask($old, 'RESET ALL; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM place');
sql('UPDATE p SET n = n + 10000, a = ARRAY[a[1] + 100], b = b + 100');
is(join(' ', map { workers("CREATE INDEX p_$_") } @create), 'n:0 half:0 a:0 b:2 zb:' . (server_major() >= 18 ? 2 : 0),
	'CREATE INDEX beside an old snapshot: btree alone is built in parallel');
is(answers($old), $expected, 'the old snapshot finds its rows');
my $newer = session($node);
ask($newer, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM place');
my $now = answers($newer);
sql('UPDATE p SET n = n + 20000 WHERE n > 0; UPDATE p SET b = b + 100');
like(workers('REINDEX TABLE p'), qr/^(?=.*\bn:0)(?=.*\bhalf:0)(?=.*\ba:0)(?=.*\bb:2)/, 'REINDEX');
is(answers($old), $expected, 'the old snapshot after REINDEX');
is(answers($newer), $now, 'a snapshot that is younger than the indexes');
is(sql(q{SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_index JOIN pg_class c ON c.oid = indexrelid WHERE indcheckxmin AND indrelid = 'p'::regclass AND relname <> 'p_zb'}),
	'p_a p_b p_half p_n', 'indexes that the old snapshot may not use');
ask($_, 'COMMIT') for $old, $newer;
$newer->quit;
# when nothing is kept, all are built in parallel that the server builds so
$node->poll_query_until('postgres', 'SELECT zundo.undo_bytes_in_use() = 0') or die 'undo is kept';
is(workers('REINDEX INDEX p_n'), 'n:' . (server_major() >= 17 ? 2 : 0), 'REINDEX of BRIN with settled rows');
is(workers('REINDEX INDEX p_a'), 'a:' . (server_major() >= 18 ? 2 : 0), 'REINDEX of GIN with settled rows');
is(sql(q{SELECT count(*) FROM pg_index WHERE indcheckxmin AND indexrelid IN ('p_n'::regclass, 'p_a'::regclass)}), 0, 'all snapshots may use them');
$parallel->quit;

# joins that start the index scan anew, or go back to a mark
my $join = q{SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_bitmapscan = off; SET enable_material = off; SET enable_indexonlyscan = off;
	SELECT count(*), sum(b.id) FROM s a JOIN s b ON a.n = b.n WHERE a.n < 9};
my $hash = sql(q{SELECT count(*), sum(b.id) FROM s a JOIN s b ON a.n + 0 = b.n + 0 WHERE a.n + 0 < 9});
is(sql("SET enable_mergejoin = off; $join"), $hash, 'nested loop');
is(sql("SET enable_nestloop = off; SET enable_sort = off; $join"), $hash, 'merge join');
sql('REINDEX TABLE s');
all_same('rebuilt', 'on');
sound($node, 'in the end', 's');
no_crash($node);
$node->stop;
done_testing();
