# What a statement keeps for each table that it reads: each kind of scan gives its
# view of a page back after its last row, by a new snapshot and by an old one. The
# same statements over as many heap tables are the control.
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $tables = 100;
my $rows = 40;
my $node = zundo_node('scan_memory', "max_locks_per_transaction = 256\nautovacuum = off\n");
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');

# What is kept between two statements (caches of the catalog) is no part of it.
# Copies of undo pages are allowed to take 32 MB, trails about 1 MB; neither is per table.
sql(<<'S');
CREATE FUNCTION memory() RETURNS bigint VOLATILE LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT sum(total_bytes) / 1024 FROM pg_backend_memory_contexts
			WHERE name NOT IN ('CacheMemoryContext', 'Relcache by OID', 'smgr relation table', 'TopMemoryContext',
				'index info', 'partition constraint', 'partition descriptor', 'partition key', 'relation rules',
				'zheap undo pages', 'zundo trails'));
END $$;
S
for my $am ('heap', 'zheap')
{
	sql(<<"S");
CREATE TABLE $am (id int, v int, pad text) PARTITION BY RANGE (id);
SET default_table_access_method = $am;
DO \$\$
BEGIN
	FOR i IN 0 .. $tables - 1 LOOP
		EXECUTE format('CREATE TABLE ${am}_%s PARTITION OF $am FOR VALUES FROM (%s) TO (%s)', i, i * $rows, (i + 1) * $rows);
	END LOOP;
END \$\$;
INSERT INTO $am SELECT i, i, repeat('x', 60) FROM generate_series(0, $tables * $rows - 1) i;
CREATE INDEX ON $am (id);
CREATE INDEX ON $am (v);
ANALYZE $am;
S
}

# Each kind of scan: its name, settings, and the query.
my $one = 'SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_indexscan = off; SET LOCAL enable_tidscan = off';
my @kinds = (
	['sequential', '', 'SELECT * FROM T'],
	['index', 'SET LOCAL enable_indexscan = on', 'SELECT * FROM T WHERE v >= 0'],
	['ordered index', 'SET LOCAL enable_indexscan = on', 'SELECT * FROM T WHERE v >= 0 ORDER BY v'],
	['bitmap', 'SET LOCAL enable_bitmapscan = on', 'SELECT * FROM T WHERE v >= 0 OR id < 0'],
	['lossy bitmap', "SET LOCAL enable_bitmapscan = on; SET LOCAL work_mem = '64kB'", 'SELECT * FROM T WHERE v >= 0'],
	['sample', '', 'SELECT * FROM T TABLESAMPLE system (100)'],
	['TID', 'SET LOCAL enable_tidscan = on', "SELECT * FROM T WHERE ctid = '(0,1)'"],
	['TID range', 'SET LOCAL enable_tidscan = on', "SELECT * FROM T WHERE ctid > '(0,0)' AND ctid <= '(0,20)'"],
	['scan for a sort', 'SET LOCAL enable_sort = on', 'SELECT * FROM T ORDER BY pad, v'],
	['scan for a lock', '', 'SELECT * FROM T FOR UPDATE'],
	['nested loops', 'SET LOCAL enable_partitionwise_join = on; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_material = off',
		"SELECT * FROM T a JOIN T b ON a.id = b.id WHERE a.pad > 'a' AND a.id % $rows = 0"],
);

# statements AM [ONLY_READ]: returns the statements that print for each kind its name and what it
# keeps when it has returned its last row. only_read: no changes.
sub statements
{
	my ($am, $only_read) = @_;
	my $script = '';
	for my $kind (@kinds)
	{
		my ($name, $settings, $query) = @$kind;
		$query =~ s/\bT\b/$am/g;
		$script .= "SAVEPOINT s; SET LOCAL max_parallel_workers_per_gather = 0; $one; $settings;\n"
			. "DECLARE c CURSOR FOR $query;\nMOVE FORWARD ALL IN c;\n"
			. "SELECT '$name', memory();\nROLLBACK TO s;\n";
	}
	return $script if $only_read;
	my $last = $tables * $rows - 1;
	for my $change ("UPDATE $am SET v = v + 1", "DELETE FROM $am")
	{
		my ($word) = $change =~ /^(\w+)/;
		$script .= "SAVEPOINT s;\nWITH c AS ($change WHERE true RETURNING CASE WHEN id = $last THEN memory() END AS m) SELECT '$word', max(m) FROM c;\nROLLBACK TO s;\n";
	}
	return $script;
}

# by_kind OUTPUT: returns what was printed, by kind.
sub by_kind
{
	return map { /^(.+)\|(\d+)$/ ? ($1, $2) : () } split /\n/, shift;
}

# compare NAME HEAP ZHEAP BOUND: checks that no kind keeps more than BOUND kB more than heap.
sub compare
{
	my ($name, $heap, $zheap, $bound) = @_;
	my %heap = by_kind($heap);
	my %zheap = by_kind($zheap);
	is_deeply([sort keys %zheap], [sort keys %heap], "$name: all kinds were run");
	for my $kind (sort keys %heap)
	{
		note("$name, $kind: heap $heap{$kind} kB, zheap $zheap{$kind} kB");
		cmp_ok($zheap{$kind}, '<=', $heap{$kind} + $bound, "$name, $kind: memory");
	}
	return;
}

# Twice, since the first time fills caches.
sub run { my ($am) = @_; return sql('BEGIN; ' . statements($am) . statements($am) . 'ROLLBACK'); }
compare('new snapshot', run('heap'), run('zheap'), 300);

# The same by a snapshot older than four changes of each row.
my %old = map { $_ => session($node) } ('heap', 'zheap');
ask($old{$_}, 'BEGIN ISOLATION LEVEL REPEATABLE READ', "SELECT count(*) FROM $_ WHERE id < 0") for keys %old;
sql(map { "UPDATE heap SET v = v + 1, pad = repeat('$_', 60); UPDATE zheap SET v = v + 1, pad = repeat('$_', 60);" } ('a' .. 'd'));
@kinds = grep { $_->[0] ne 'scan for a lock' } @kinds;
my %read = map { my $am = $_; ($am => join("\n", map { ask($old{$am}, $_) } split /;\n/, statements($am, 1))) } keys %old;
compare('old snapshot', $read{heap}, $read{zheap}, 600);
my $named = q{SELECT string_agg(name || ' ' || n || ' ' || kb, ', ' ORDER BY name) FROM
	(SELECT name, count(*) AS n, sum(total_bytes) / 1024 AS kb FROM pg_backend_memory_contexts GROUP BY name) x WHERE kb > 40};
note("contexts on $_: ", ask($old{$_}, $named)) for sort keys %old;
cmp_ok(ask($old{zheap}, q{SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'zheap page view'}), '<=', 1, 'one spare view');
cmp_ok(ask($old{zheap}, q{SELECT sum(total_bytes) / 1024 FROM pg_backend_memory_contexts WHERE name = 'zundo trails'}), '<', 2048, 'trails are bounded');
$_->quit for values %old;

# A cursor reads backwards after it has reached the end, and again forwards.
for my $am ('heap', 'zheap')
{
	is(sql("BEGIN; DECLARE c SCROLL CURSOR FOR SELECT id FROM ${am}_1; MOVE FORWARD ALL IN c; FETCH BACKWARD 2 FROM c; MOVE FORWARD ALL IN c; FETCH BACKWARD 1 FROM c; MOVE BACKWARD ALL IN c; FETCH FORWARD 1 FROM c; COMMIT"),
		join("\n", 2 * $rows - 1, 2 * $rows - 2, 2 * $rows - 1, $rows), "$am: backwards from the end");
}

done_testing();
