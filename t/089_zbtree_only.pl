# Index-only scans of zbtree indexes return the columns of the version that the
# snapshot sees (ZBTREE-14): equal keys of other bytes, included columns, old
# snapshots, pages that VACUUM calls all-visible (ZBTREE-7, ZBTREE-9), a
# standby. The oracle is a heap table with btree indexes that gets the same
# changes. 087 has the other scans.
# long
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('only', "wal_consistency_checking = 'all'\nmax_standby_streaming_delay = -1\nmax_parallel_workers = 4\n", allows_streaming => 1);
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
srand($ENV{ZUNDO_SEED} // 89);

my $columns = '(id int PRIMARY KEY, n numeric, f float8, i interval, na numeric[], nm name, t text, d int, big text)';
sql("CREATE TABLE h $columns USING heap; CREATE TABLE z $columns USING zheap WITH (fillfactor = 60)");
sql('ALTER TABLE h ALTER big SET STORAGE EXTERNAL; ALTER TABLE z ALTER big SET STORAGE EXTERNAL');
for my $t (['h', 'btree'], ['z', 'zbtree'])
{
	my ($table, $am) = @$t;
	sql(qq{CREATE INDEX ${table}_n ON $table USING $am (n) INCLUDE (d, t);
		CREATE INDEX ${table}_f ON $table USING $am (f DESC NULLS FIRST, i);
		CREATE INDEX ${table}_i ON $table USING $am (i) INCLUDE (big);
		CREATE INDEX ${table}_na ON $table USING $am (na, d);
		CREATE INDEX ${table}_nm ON $table USING $am (nm, n);
		CREATE INDEX ${table}_p ON $table USING $am (f, n) WHERE d > 50;
		CREATE INDEX ${table}_x ON $table USING $am (upper(t)) INCLUDE (t, n);
		INSERT INTO $table SELECT g, g % 9, g % 5, g % 6 * interval '1 day', ARRAY[g % 4, 1], 'n' || g % 7, 't' || g % 5, g % 100,
			repeat('b' || g % 5, 20) FROM generate_series(1, 200) g});
}
# all queries but those of the two last kinds have columns of one index; a query's rows
# are compared as a set, then their order
my @queries = (
	'SELECT n, d, t FROM T WHERE n BETWEEN 2 AND 6',
	'SELECT n, d FROM T WHERE n > 1 ORDER BY n DESC',
	'SELECT n, t FROM T WHERE n IN (1, 3, 4, 8) ORDER BY n',
	'SELECT n, d FROM T WHERE n IS NULL',
	'SELECT f, i FROM T WHERE f <= 2',
	'SELECT i, md5(big), length(big) FROM T WHERE i > interval \'1 day\' ORDER BY i',
	'SELECT na, d FROM T WHERE na >= ARRAY[1, 1]::numeric[]',
	'SELECT nm, n FROM T WHERE nm >= \'n3\' ORDER BY nm DESC, n DESC',
	'SELECT f, n FROM T WHERE d > 50 AND f >= 0',
	'SELECT upper(t), t, n FROM T WHERE upper(t) >= \'T2\'',
	'SELECT min(n)::float8, max(n)::float8, count(n), sum(d) FROM T WHERE n > 0',
	'SELECT min(n)::float8 FROM T', 'SELECT max(f) + 0 FROM T',
	'SELECT x.n, y.n, y.d FROM T x JOIN T y ON x.n = y.n WHERE x.n < 5 AND y.n < 5');
my $twins = index_twins($node, \@queries, ways => 'only', others => [qw(only only workers)], sorted => 1, more => 'SELECT * FROM disorder()');
my $same = q{SELECT * FROM differences('only', true); SELECT * FROM disorder()};
sub change { return change_twins($twins, @_) }
sub compare { return compare_twins($twins, @_) }
sql(q{CREATE FUNCTION plan(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text; got text := '';
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS off) ' || regexp_replace(query, '\mT\M', 'z', 'g') LOOP got := got || line || E'\n'; END LOOP;
	RETURN got;
END $$;
CREATE FUNCTION disorder() RETURNS TABLE (query text) LANGUAGE plpgsql AS $$
DECLARE n float8; last float8;
BEGIN
	PERFORM plan_for('only');
	FOR n IN SELECT z.n::float8 FROM z WHERE z.n > -100 ORDER BY z.n LOOP
		IF n < last THEN query := 'ascending'; RETURN NEXT; END IF; last := n; END LOOP;
	last := NULL;
	FOR n IN SELECT z.n::float8 FROM z WHERE z.n IN (1, 2, 3, 4, 5, 6) ORDER BY z.n DESC LOOP
		IF n > last THEN query := 'descending'; RETURN NEXT; END IF; last := n; END LOOP;
END $$;
CREATE FUNCTION other_plans() RETURNS TABLE (query text, plan text) LANGUAGE plpgsql AS $$ BEGIN
	PERFORM plan_for('only');
	RETURN QUERY SELECT q, p FROM (SELECT q, plan(q) p FROM queries) s WHERE p !~ 'Index Only Scan' OR p ~ '(Seq|Index|Bitmap Heap) Scan';
END $$});

my @whole = ('SELECT n, d, t FROM z', 'SELECT f, i FROM z', 'SELECT i, big FROM z', 'SELECT na, d FROM z', 'SELECT nm, n FROM z', 'SELECT f, n FROM z WHERE d > 50');
sub heap_fetches
{
	return join ' ', map { sql('BEGIN;', q{SELECT plan_for('only');}, "EXPLAIN (ANALYZE, COSTS off, TIMING off) $_") =~ /Heap Fetches: (\d+)/ } @_;
}
sub one
{
	my $id = 1 + int(rand(200));
	my $pick = int(rand(15));
	my $v = rand() < 0.1 ? 'NULL' : int(rand(9));
	return $pick < 2 ? "UPDATE T SET n = $v WHERE id = $id"
		: $pick < 4 ? "UPDATE T SET n = round(n, (scale(n) + 1) % 4) WHERE id % 11 = $id % 11"
		: $pick < 5 ? "UPDATE T SET d = (d + 7) % 100 WHERE id = $id"
		: $pick < 6 ? "UPDATE T SET t = CASE WHEN t = upper(t) THEN lower(t) ELSE upper(t) END WHERE id % 7 = $id % 7"
		: $pick < 7 ? "UPDATE T SET f = -f WHERE id % 5 = $id % 5"
		: $pick < 8 ? "UPDATE T SET i = CASE WHEN i = interval '30 days' THEN interval '1 mon' ELSE interval '30 days' END WHERE id % 13 = $id % 13"
		: $pick < 9 ? "UPDATE T SET i = justify_days(i) WHERE id % 3 = $id % 3"
		: $pick < 10 ? "UPDATE T SET na = (SELECT array_agg(round(x, 1 + $id % 3)) FROM unnest(na) x) WHERE id % 9 = $id % 9"
		: $pick < 11 ? "UPDATE T SET big = repeat('x' || $id, CASE WHEN $id % 3 = 0 THEN 600 ELSE 30 END) WHERE id IN ($id, $id + 3)"
		: $pick < 12 ? "UPDATE T SET nm = 'n' || $id % 7, t = 't' || $id % 5 WHERE id = $id"
		: $pick < 13 ? "DELETE FROM T WHERE id = $id"
		: $pick < 14 ? "INSERT INTO T SELECT $id, $v, 0, '1 mon', '{1.0,1}', 'n1', 'T1', 60, 'b' ON CONFLICT (id) DO UPDATE SET n = T.n + 1.00, d = T.d + 1"
		: "UPDATE T SET n = n + 0.0, d = d + 1, f = f * 1 WHERE id % 10 = $id % 10";
}
sub vacuum
{
	my ($what) = @_;
	sql('SELECT zundo.discard(); VACUUM (INDEX_CLEANUP on) z');
	compare($what);
}
sub same_on_standby
{
	my ($what) = @_;
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	is($standby->safe_psql('postgres', $same), '', "$what: standby");
}

is(sql('SELECT * FROM other_plans()'), '', 'index-only scans');
sql('VACUUM z; ANALYZE z; ANALYZE h');
like(sql('BEGIN;', q{SELECT plan_for('workers');}, q{SELECT plan('SELECT count(n), sum(d) FROM T WHERE n > 1')}), qr/Parallel Index Only Scan/, 'a parallel index-only scan');
is(heap_fetches(@whole), '0 0 0 0 0 0', 'no visit of the table');

for my $round (1 .. 18)
{
	twin_round($twins, $round, \&one);
	vacuum("round $round, after VACUUM") if $round % 2 == 0;
	if ($round % 6 == 0)
	{
		end_snapshots($twins);
		if ($round == 12)
		{
			$twins->{writer}->quit;
			crash($node);
			$twins->{writer} = session($node);
			compare('after a crash');
		}
		sql('REINDEX TABLE z') if $round == 6;
		vacuum("round $round, no old snapshot");
		same_on_standby("round $round");
	}
}
is(sql('SELECT * FROM other_plans()'), '', 'index-only scans still');

# One VACUUM, when no old snapshot is there and no included column is out of line: no
# table page needs a visit.
change("UPDATE T SET big = 'b' || id % 5, d = d + 1, n = n + 0.0");
compare('all rows changed');
isnt(heap_fetches(@whole), '0 0 0 0 0 0', 'the table is visited');
vacuum('all rows changed, after VACUUM');
is(heap_fetches(@whole), '0 0 0 0 0 0', 'the table is not visited');

# VACUUM waits for a scan that has read entries with other bytes, and would find the page
# all-visible afterwards (ZBTREE-15).
change('UPDATE T SET d = d + 100 WHERE id % 2 = 0');
my $expected = sql("SELECT string_agg(x, ';' ORDER BY x) FROM (SELECT (n, d, t)::text AS x FROM h) s");
my $scan = session($node);
ask($scan, 'BEGIN', q{SELECT plan_for('only')}, 'CREATE TEMP TABLE got (n numeric, d int, t text)');
ask($scan, 'DECLARE c NO SCROLL CURSOR FOR SELECT n, d, t FROM z');
my $first = ask($scan, 'FETCH 1 FROM c');
my $vacuum = session($node);
$vacuum->query_until(qr/started/, "\\echo started\nVACUUM (INDEX_CLEANUP on) z;\n\\echo vacuumed\n");
ok($node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event IN ('BufferPin', 'BufferCleanup') AND query LIKE 'VACUUM%'}), 'VACUUM waits for the scan');
my @got = ($first, split(/\n/, ask($scan, 'FETCH ALL FROM c')));
ask($scan, 'COMMIT');
$vacuum->query_until(qr/vacuumed/, "\n");
is(join(';', sort @got), join(';', sort map { s/[()]//gr =~ s/,/|/gr } split(/;/, $expected)), 'the scan has returned the row versions');
compare('and VACUUM has ended');
is(heap_fetches(@whole), '0 0 0 0 0 0', 'the table is not visited then');
$_->quit for ($scan, $vacuum);

# An unlogged table: VACUUM sees that a page has changed meanwhile, by a change that was
# rolled back (ZBTREE-9).
sql(q{CREATE UNLOGGED TABLE u (id int PRIMARY KEY, a int, b int) USING zheap;
	INSERT INTO u SELECT g, g, g FROM generate_series(1, 100) g;
	CREATE INDEX u_a ON u USING zbtree (a) INCLUDE (b); CREATE INDEX u_b ON u USING zbtree (b);
	UPDATE u SET a = a + 1000, b = b + 1});
$scan = session($node);
ask($scan, 'BEGIN', q{SELECT plan_for('only')}, 'DECLARE c NO SCROLL CURSOR FOR SELECT b FROM u WHERE b > 0');
is(ask($scan, 'FETCH 1 FROM c'), 2, 'a scan of the second index');
$vacuum = session($node);
$vacuum->query_until(qr/started/, "\\echo started\nVACUUM (INDEX_CLEANUP on) u;\n\\echo vacuumed\n");
ok($node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event IN ('BufferPin', 'BufferCleanup') AND query LIKE 'VACUUM%'}), 'VACUUM waits after the first index');
# a snapshot that keeps the worker from the entries of what is rolled back
my $hold = session($node);
ask($hold, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1');
sql('BEGIN; UPDATE u SET a = a + 5000; ROLLBACK; SELECT zundo.discard()');
ask($scan, 'COMMIT');
$vacuum->query_until(qr/vacuumed/, "\n");
$_->quit for ($scan, $vacuum);
is(sql(q{SELECT * FROM zundo.check_index('u_a')}), '', 'the rows are still marked');
is(sql(q{SELECT entries, stale FROM zundo.index_entries('u_a')}), '200|100', 'they have stale entries');
$hold->quit;
sql('VACUUM (INDEX_CLEANUP on) u');
is(sql(q{SELECT entries, stale FROM zundo.index_entries('u_a')}), '100|0', 'VACUUM has removed them');
is(heap_fetches('SELECT a, b FROM u WHERE a > 0', 'SELECT b FROM u WHERE b > 0'), '0 0', 'an unlogged table is not visited after VACUUM');

# An index with a column twice, so that an update in place may give a row columns that are
# too long for an entry: VACUUM leaves the entry as it is (ZBTREE-15), also where replay
# would take the record of a longer one as damaged.
sql(q{CREATE TABLE l (k int, v text) USING zheap; ALTER TABLE l ALTER v SET STORAGE PLAIN;
	INSERT INTO l VALUES (1, 'a'), (2, 'b'), (3, 'c'); CREATE INDEX l_k ON l USING zbtree (k) INCLUDE (v, v);
	UPDATE l SET v = repeat('v', CASE k WHEN 1 THEN 1500 ELSE 2040 END) WHERE k < 3});
is(sql('SELECT ctid FROM l WHERE k < 3'), "(0,1)\n(0,2)", 'updates in place');
sql('VACUUM (INDEX_CLEANUP on) l; SELECT zundo.discard(); VACUUM (INDEX_CLEANUP on) l');
is(sql(q{SELECT * FROM zundo.check_index('l_k')}), '', 'entries that would be too long');
is(heap_fetches('SELECT k, v FROM l WHERE k > 0'), '3', 'their rows are visited');
same_on_standby('with long included columns');

# on a standby no plan has index-only scans; after promotion plans have them
change('UPDATE T SET d = d + 1, n = n + 0.00 WHERE id % 4 = 0');
same_on_standby('in the end');
is($standby->safe_psql('postgres', "SELECT count(*) FROM other_plans() WHERE plan ~ 'Index Only Scan'"), 0, 'no index-only scan on a standby');
$twins->{writer}->quit;
no_crash($node);
$node->stop;
$standby->promote;
is($standby->safe_psql('postgres', "$same; SELECT * FROM other_plans()"), '', 'promoted');
$standby->safe_psql('postgres', "UPDATE h SET d = d + 5, n = n - 0.000; UPDATE z SET d = d + 5, n = n - 0.000");
$standby->safe_psql('postgres', 'VACUUM z');
is($standby->safe_psql('postgres', $same), '', 'promoted and changed');
no_crash($standby);
$standby->stop;
done_testing();
