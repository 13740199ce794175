# VACUUM cleans indexes in parallel, and in several passes when its memory is
# small.
# Rules: VACUUM-1.
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('vacuum_indexes', <<'C');
autovacuum = off
max_worker_processes = 16
max_parallel_workers = 8
max_parallel_maintenance_workers = 4
min_parallel_index_scan_size = 0
C
sql('CREATE EXTENSION zundo');
my $amcheck = server_has('amcheck') && defined sql('CREATE EXTENSION amcheck');

# vacuum OPTIONS: returns what VACUUM (VERBOSE) reports of z.
sub vacuum
{
	my ($options, @before) = @_;
	my ($out, $err) = ('', '');
	$node->psql('postgres', join("\n", @before, "VACUUM (VERBOSE, $options) z"), stdout => \$out, stderr => \$err, on_error_die => 1);
	return $err;
}

# fill: makes z with rows 1 .. 40000 and an index of each kind for which VACUUM has something to do.
sub fill
{
	sql('DROP TABLE IF EXISTS z; CREATE TABLE z (id int PRIMARY KEY, k int, a int[], t text) USING zheap',
		'; INSERT INTO z SELECT g, g % 1000, ARRAY[g % 7, g], md5(g::text) FROM generate_series(1, 40000) g',
		'; CREATE INDEX z_k ON z (k); CREATE INDEX z_hash ON z USING hash (t); CREATE INDEX z_gin ON z USING gin (a)',
		'; CREATE INDEX z_brin ON z USING brin (id) WITH (pages_per_range = 2); ANALYZE z');
	return;
}

# agree NAME: checks that every index finds all rows and no others.
sub agree
{
	my ($name) = @_;
	my $want = sql('SELECT count(*), sum(k), sum(id) FROM z');
	my $by_index = 'SET enable_seqscan = off;';
	is(sql($by_index, 'SET enable_bitmapscan = off; SELECT count(*), sum(k), sum(id) FROM z WHERE k >= 0'), $want, "$name: rows by z_k");
	is(sql($by_index, 'SELECT count(*), sum(k), sum(id) FROM z WHERE a && ARRAY[0, 1, 2, 3, 4, 5, 6]'), $want, "$name: rows by z_gin");
	is(sql($by_index, 'SET enable_indexscan = off; SELECT count(*), sum(k), sum(id) FROM z WHERE id BETWEEN 1 AND 100000'), $want, "$name: rows by z_brin or z_pkey");
	is(sql($by_index, "SELECT count(*) FROM generate_series(1, 200) g, LATERAL (SELECT 1 FROM z WHERE z.t = md5(g::text)) x"),
		sql('SELECT count(*) FROM z WHERE id <= 200'), "$name: rows by z_hash");
	SKIP:
	{
		skip 'the server lacks amcheck of contrib', 1 unless $amcheck;
		is(sql("SELECT bt_index_check('z_k', true), bt_index_check('z_pkey', true)"), '|', "$name: amcheck");
	}
	sound($node, $name, 'z');
	return;
}

# started TEXT: returns the greatest number of workers that were started for one phase;
# planned TEXT: how many were planned.
sub started { my ($text) = @_; return (sort { $b <=> $a } $text =~ /launched (\d+) parallel vacuum worker/g, 0)[0]; }
sub planned { my ($text) = @_; return (sort { $b <=> $a } $text =~ /planned: (\d+)/g, 0)[0]; }

for my $parallel (0, 2)
{
	my $name = $parallel ? 'in parallel' : 'alone';
	my $text = '';

	# the server may have no worker to spare at a moment
	for (1 .. 5)
	{
		fill();
		sql('DELETE FROM z WHERE id % 3 = 0');
		$text = vacuum("PARALLEL $parallel");
		last if !$parallel || started($text) > 0;
	}
	is(planned($text), $parallel, "$name: workers planned");
	ok($parallel ? started($text) > 0 : started($text) == 0, "$name: workers started") or diag($text);
	like($text, qr/index scans: 1$/m, "$name: one pass");
	like($text, qr/had 13333 dead item identifiers removed/, "$name: line pointers removed");
	agree($name);
	my $size = sql("SELECT pg_relation_size('z')");
	sql('INSERT INTO z SELECT g, g % 1000, ARRAY[g % 7, g], md5(g::text) FROM generate_series(40001, 53333) g');
	cmp_ok(sql("SELECT pg_relation_size('z')"), '<=', $size * 1.01, "$name: the room was taken again");
	agree("$name, refilled");
	is(sql("SELECT relpages > 0, reltuples FROM pg_class WHERE relname = 'z_k'"), 't|26667', "$name: statistics of an index");
}

# a VACUUM that is interrupted leaves nothing half cleaned
fill();
sql('DELETE FROM z WHERE id % 2 = 0');
my ($ret, $out, $err) = $node->psql('postgres', "SET zundo.fault = 'indexes-cleaned:error'; VACUUM (PARALLEL 2) z");
like($err, qr/injected|fault/, 'interrupted: failed') or diag($err);
agree('interrupted');
like(vacuum('PARALLEL 2'), qr/had \d+ dead item identifiers removed/, 'interrupted: the next one continues');
agree('after the interrupted one');

# several passes: little memory, and rows on many pages
my $version = int(sql('SHOW server_version_num') / 10000);
my $least = $version < 18 ? '1MB' : '64kB';
sql('DROP TABLE z; CREATE TABLE z (id int PRIMARY KEY, k int, a int[], t text) USING zheap WITH (fillfactor = 10)',
	"; INSERT INTO z SELECT g, g % 1000, ARRAY[g % 7], '' FROM generate_series(1, 200000) g",
	'; CREATE INDEX z_k ON z (k); CREATE INDEX z_hash ON z USING hash (id)');
for my $parallel (0, 2)
{
	my $name = "little memory, PARALLEL $parallel";
	sql('DELETE FROM z WHERE id % 10 <> 0');
	my $text = vacuum("PARALLEL $parallel", "SET maintenance_work_mem = '$least';");
	my ($passes) = $text =~ /index scans: (\d+)$/m;
	# 17 allows no less than 1 MB, and that is enough for these rows
	cmp_ok($passes, '>', $version == 17 ? 0 : 1, "$name: passes");
	like($text, qr/had 180000 dead item identifiers removed/, "$name: all removed");
	is(sql("SET enable_seqscan = off; SELECT count(*), sum(id) FROM z WHERE k >= 0"), sql('SELECT count(*), sum(id) FROM z'), "$name: rows by z_k");
	SKIP:
	{
		skip 'the server lacks amcheck of contrib', 1 unless $amcheck;
		is(sql("SELECT bt_index_check('z_k', true), bt_index_check('z_pkey', true)"), '|', "$name: amcheck");
	}
	sound($node, $name, 'z');
	sql("INSERT INTO z SELECT g, g % 1000, ARRAY[g % 7], '' FROM generate_series(1, 200000) g WHERE g % 10 <> 0");
}

# a temporary table's indexes are this session's alone
($ret, $out, $err) = $node->psql('postgres', <<'S');
CREATE TEMPORARY TABLE z_temp (id int PRIMARY KEY, k int UNIQUE) USING zheap;
INSERT INTO z_temp SELECT g, g FROM generate_series(1, 1000) g;
DELETE FROM z_temp WHERE id > 10;
VACUUM (PARALLEL 2) z_temp;
SELECT count(*) FROM z_temp WHERE k > 0
S
is($out, 10, 'temporary: vacuumed');
like($err, qr/disabling parallel option of vacuum on "z_temp"/, 'temporary: a warning as on heap');

done_testing();
