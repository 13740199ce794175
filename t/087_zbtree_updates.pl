# Updates in place add entries to zbtree indexes (ZBTREE-3, ZBTREE-6). Every
# snapshot gets the same answers as from a heap table with btree indexes and the
# same changes, and VACUUM removes the entries that are not needed (ZBTREE-8,
# ZBTREE-9). The worker's purge is tested in t/088_zbtree_purge.
# newest
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('updates', "zundo.key_queue = 0\n");
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');
srand($ENV{ZUNDO_SEED} // 11);
my $columns = '(id int PRIMARY KEY, a int, b text, c numeric, d int, e text)';
sql("CREATE TABLE h $columns USING heap; CREATE TABLE z $columns USING zheap WITH (fillfactor = 70)");
for my $t (['h', 'btree'], ['z', 'zbtree'])
{
	my ($table, $am) = @$t;
	sql(qq{CREATE INDEX ${table}_a ON $table USING $am (a); CREATE INDEX ${table}_ba ON $table USING $am (b DESC NULLS FIRST, a) INCLUDE (d);
		CREATE INDEX ${table}_c ON $table USING $am (c); CREATE INDEX ${table}_p ON $table USING $am (c) WHERE d > 50;
		CREATE INDEX ${table}_x ON $table USING $am (upper(e));
		INSERT INTO $table SELECT g, g % 20, 'b' || g % 7, g % 9, g % 100, 'e' || g % 5 FROM generate_series(1, 150) g});
}
my $twins = index_twins($node, [
	'SELECT count(*), sum(id) FROM T WHERE a = 7',
	'SELECT count(*), sum(id) FROM T WHERE a IS NULL',
	'SELECT a, id FROM (SELECT a, id FROM T WHERE a BETWEEN 3 AND 12 ORDER BY a) s ORDER BY a, id',
	'SELECT a FROM T ORDER BY a',
	'SELECT a FROM T WHERE a > 2 ORDER BY a DESC',
	'SELECT a FROM T WHERE a IN (1, 4, 7, 19, 3) ORDER BY a DESC LIMIT 20',
	'SELECT b, a, d FROM (SELECT b, a, d FROM T ORDER BY b DESC NULLS FIRST, a) s ORDER BY b, a, d',
	q{SELECT b, a FROM T WHERE b IN ('b1', 'b3') AND a > 4 ORDER BY b DESC NULLS FIRST, a},
	'SELECT min(a), max(a), count(a), sum(d) FROM T',
	'SELECT count(*), sum(c), sum(id) FROM T WHERE c >= 3 AND c < 6',
	'SELECT count(*), sum(c), sum(id) FROM T WHERE c >= 3 AND c < 6 AND d > 50',
	'SELECT count(*), sum(id) FROM T WHERE c = 4 AND a = 3 OR a = 5',
	q{SELECT count(*), sum(id) FROM T WHERE upper(e) = 'E3'},
	'SELECT count(*), sum(x.id + y.id) FROM T x JOIN T y ON x.a = y.a WHERE x.a < 15',
	'SELECT x.a, count(*) FROM T x JOIN T y USING (a) GROUP BY x.a ORDER BY x.a' ]);
sub change { return change_twins($twins, @_) }
sub compare { return compare_twins($twins, @_) }
sql(q{CREATE FUNCTION hot() RETURNS bigint LANGUAGE sql AS $$ SELECT pg_stat_get_xact_tuples_hot_updated('z'::regclass) $$});

# faults: returns whether the library has fault points.
sub faults
{
	my ($rc) = $node->psql('postgres', q{LOAD 'zundo'; SET zundo.fault = 'keys-due:error'});
	return $rc == 0;
}

sub one
{
	my $id = 1 + int(rand(150));
	my $pick = int(rand(14));
	my $a = rand() < 0.1 ? 'NULL' : int(rand(20));
	return $pick < 4 ? "UPDATE T SET a = $a WHERE id = $id"
		: $pick < 5 ? "UPDATE T SET a = (a + 1) % 20 WHERE id BETWEEN $id AND $id + 9"
		: $pick < 6 ? "UPDATE T SET a = -a, b = 'b' || id % 7 WHERE a = 5 OR b = 'b2'"
		: $pick < 7 ? "UPDATE T SET c = c + CASE WHEN id % 2 = 0 THEN 0.00 ELSE 1 END WHERE id % 13 = $id % 13"
		: $pick < 8 ? "UPDATE T SET b = repeat('b' || id % 3, 1 + $id % 4) WHERE id = $id"
		: $pick < 9 ? "UPDATE T SET d = (d + 60) % 100 WHERE id = $id"
		: $pick < 10 ? "UPDATE T SET d = d + 1, e = 'e' || id % 5 WHERE id % 10 = $id % 10"
		: $pick < 11 ? "UPDATE T SET e = upper(e), a = 3 WHERE id = $id"
		: $pick < 12 ? "DELETE FROM T WHERE id = $id"
		: $pick < 13 ? "INSERT INTO T SELECT $id, $id % 20, 'b1', 3, 60, 'e' ON CONFLICT (id) DO UPDATE SET a = T.a + 1, c = 3.0"
		: "UPDATE T SET a = $id % 20, c = $id % 9, b = NULL WHERE id IN ($id, $id + 1)";
}

for my $round (1 .. 20)
{
	twin_round($twins, $round, \&one);
	if ($round % 5 == 0)
	{
		if ($round % 10 == 0)
		{
			sql('VACUUM (INDEX_CLEANUP on) z');
		}
		else
		{
			sql('SET min_parallel_index_scan_size = 0;', 'VACUUM (INDEX_CLEANUP on, PARALLEL 2) z');
		}
		compare("round $round, after VACUUM");
	}
	rebuild_twins($twins, "round $round, rebuilt", \&one, $round == 8 ? 'REINDEX TABLE z' : 'CLUSTER z USING z_a; ANALYZE z') if $round == 8 || $round == 16;
}
end_snapshots($twins);
my $writer = $twins->{writer};

# A scan has read a stale entry before VACUUM deletes it and takes the row's flag
# off. It does not return the row by this entry (ZBTREE-23).
sql(q{CREATE TABLE u (a int, v text) USING zheap; CREATE INDEX u_a ON u USING zbtree (a); INSERT INTO u SELECT g, 'v' FROM generate_series(1, 10) g});
my ($before, $reader) = (session($node), session($node));
ask($before, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM u');
sql('UPDATE u SET a = 25 WHERE a = 5');
ask($reader, q{SET enable_seqscan = off; SET enable_bitmapscan = off; BEGIN; DECLARE c CURSOR FOR SELECT a, v FROM u WHERE a > 0 ORDER BY a});
is(ask($reader, 'FETCH 1 FROM c'), '1|v', 'the scan has read its leaf page');
ask($before, 'COMMIT');
for (1 .. 300)
{
	sql('SELECT zundo.discard(); VACUUM (INDEX_CLEANUP on) u');
	last if sql(q{SELECT count(*) FROM zundo.page_items('u', 0) WHERE 'stale keys' = ANY (flags)}) eq '0';
	select(undef, undef, undef, 0.1);
}
is(sql(q{SELECT entries, stale FROM zundo.index_entries('u_a')}) . sql(q{ SELECT count(*) FROM zundo.page_items('u', 0) WHERE 'stale keys' = ANY (flags)}),
	'10|00', 'VACUUM has deleted the entry and taken the flag off');
is(ask($reader, 'FETCH ALL FROM c'), join("\n", map { "$_|v" } 2 .. 4, 6 .. 10, 25), 'the scan returns each row once');
$_->quit for $before, $reader;

# keys that change back and forth: no entry is made twice, and VACUUM leaves one for each row
ask($writer, 'VACUUM (INDEX_CLEANUP on) z');
sub entries
{
	sql('SELECT zundo.discard(); VACUUM (INDEX_CLEANUP on) z');
	return sql(q{SELECT string_agg(reltuples::text, ' ' ORDER BY relname) FROM pg_class WHERE relname IN ('z_a', 'z_ba', 'z_c')});
}
my $rows = sql('SELECT count(*) FROM z');
my $hold = session($node);
ask($hold, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM z');
push @{ $twins->{old} }, $hold;
ask($writer, 'BEGIN');
# 15 still counts updates of earlier transactions that have not been reported
my $hot = ask($writer, 'SELECT hot()');
change('UPDATE T SET a = 100, b = repeat(b, 1)');
change('UPDATE T SET a = 50') for 1 .. 2;
change('UPDATE T SET a = 100 + id % 2') for 1 .. 3;
is(ask($writer, 'SELECT hot()') - $hot, 6 * $rows, 'all updates in place');
ask($writer, 'COMMIT');
for my $n (1 .. 5)
{
	change('UPDATE T SET a = 50');
	change('UPDATE T SET a = 100 + id % 2');
}
compare('keys back and forth');
entries();
compare('keys back and forth, VACUUM');
end_snapshots($twins);
is(entries(), "$rows $rows $rows", 'one entry for each row');
is(sql(q{SELECT count(*) FROM zundo.page_items('z', 0) WHERE 'stale keys' = ANY (flags)}), 0, 'no flag is left') if sql(q{SELECT count(*) FROM pg_proc WHERE proname = 'page_items'}) > 0;

# an error, and a crash, between the change of the row and its entries; a key that comes
# back; VACUUM cut off
SKIP:
{
	skip 'no fault points in this build', 1 unless faults();
	change('UPDATE T SET a = 1, b = NULL WHERE id % 3 = 0');
	ask($writer, 'BEGIN');
	for my $t ('h', 'z')
	{
		ask($writer, q{SAVEPOINT s; SET LOCAL zundo.fault = 'keys-due:error:2'});
		ask($writer, "UPDATE $t SET a = 77, c = -1 WHERE id < 20");
		ask($writer, q{ROLLBACK TO s});
	}
	compare('after an error');
	change('UPDATE T SET a = 77 WHERE id < 30');
	compare('after an error, the same keys again');
	ask($writer, 'COMMIT');
	for my $fault ('keys-due:crash:5', 'key-found:crash:3', 'keys-cleaned:crash')
	{
		my $statement = $fault =~ /cleaned/ ? 'VACUUM (INDEX_CLEANUP on) z' : 'UPDATE z SET a = 50 + id % 2';
		change('UPDATE T SET a = 50 + id % 2');
		change('UPDATE T SET a = 7 WHERE id % 2 = 0');
		sql('CREATE TABLE flush ()');
		$node->psql('postgres', "SET zundo.fault = '$fault';\n$statement;\n");
		ok(wait_for_death($node), "$fault: the server died");
		$writer->quit;
		$node->start;
		sql('DROP TABLE flush');
		$writer = $twins->{writer} = session($node);
		compare("$fault: recovered");
		change('UPDATE T SET a = 50 + id % 2');
		compare("$fault: and changed");
	}
	is(entries(), join(' ', (sql('SELECT count(*) FROM z')) x 3), 'one entry for each row again');
}
compare('in the end');
sound($node, 'in the end', 'z');
$node->stop;
done_testing();
