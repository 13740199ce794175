# EXPLAIN (ANALYZE, UNDO), from 18 on, where sql/explain cannot: an old snapshot that other
# transactions have left behind, with and without parallel workers, page images, and what
# auto_explain writes.
# newest
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

plan skip_all => 'extensions add options to EXPLAIN from 18 on' if server_major() != 18;
plan skip_all => 'no auto_explain' if !server_has('auto_explain');

my $node = zundo_node('explain', <<'C');
shared_preload_libraries = 'zundo, auto_explain'
max_worker_processes = 16
max_parallel_workers = 8
min_parallel_table_scan_size = 0
parallel_setup_cost = 0
parallel_tuple_cost = 0
C
sql(q{CREATE EXTENSION zundo;
	CREATE TABLE z (id int, n int) USING zheap;
	INSERT INTO z SELECT g, 0 FROM generate_series(1, 2000) g;
	CREATE TABLE often (id int, n int) USING zheap;
	INSERT INTO often SELECT g, 0 FROM generate_series(1, 10) g;
	ANALYZE z, often});

# undo SESSION SETTINGS QUERY: returns the counts of the scan that EXPLAIN shows, and the
# number of workers that it says were launched.
sub undo
{
	my ($session, $settings, $query) = @_;
	ask($session, map { "SET LOCAL $_" } @$settings);
	my $plan = ask($session, "EXPLAIN (ANALYZE, UNDO, COSTS off, TIMING off, SUMMARY off, BUFFERS off) $query");
	my %count = ($plan =~ /Undo: (.*)/ ? $1 : '') =~ /([a-z ]+)=(\d+)/g;
	my ($launched) = $plan =~ /Workers Launched: (\d+)/;
	note $plan;
	return ({ map { s/^ //r => $count{$_} } keys %count }, $launched // 0);
}

my $reader = session($node);
ask($reader, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM z');
sql('UPDATE z SET n = 1 WHERE id % 10 = 0');

my ($serial) = undo($reader, ['max_parallel_workers_per_gather = 0'], 'SELECT * FROM z');
is($serial->{rebuilt}, 200, 'a scan rebuilds the rows that were changed');
cmp_ok($serial->{pages}, '<=', $serial->{records}, 'from pages of undo');

# Whether workers could be started does not matter: the counts are those of all processes.
my $launched = 0;
for my $participation (qw(on off))
{
	(my $parallel, my $n) = undo($reader, [ 'max_parallel_workers_per_gather = 2', "parallel_leader_participation = $participation" ], 'SELECT * FROM z');
	is($parallel->{$_}, $serial->{$_}, "the same with workers, leader_participation = $participation: $_") for qw(records rebuilt);
	$launched += $n;
}
cmp_ok($launched, '>', 0, 'there were workers');

# an error in a worker
ask($reader, 'ROLLBACK', 'SET max_parallel_workers_per_gather = 2', 'EXPLAIN (ANALYZE, UNDO) SELECT 1 / (n - 1) FROM z');
like($complaint, qr/division by zero/, 'an error in a parallel query');
ask($reader, 'RESET ALL');

# the functions that a worker calls
sql(q{CREATE FUNCTION others() RETURNS bigint LANGUAGE sql PARALLEL SAFE STABLE AS 'SELECT sum(n) FROM z'});
ask($reader, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM z');
sql('UPDATE z SET n = 2 WHERE id = 1');
my ($nested) = undo($reader, ['max_parallel_workers_per_gather = 2'], 'SELECT FROM often WHERE id < 4 AND others() > id');
is($nested->{rebuilt}, 3, 'the scan that calls a function has its counts');
ask($reader, 'ROLLBACK');

# many versions: images of the page
ask($reader, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM often');
sql(q{CREATE PROCEDURE change(n int) LANGUAGE plpgsql AS $$ BEGIN
		FOR i IN 1 .. n LOOP UPDATE often SET n = i; COMMIT; END LOOP; END $$;
	CALL change(2000)});
my ($images) = undo($reader, [], 'SELECT * FROM often');
is($images->{images}, 1, 'an image is used');
cmp_ok($images->{records}, '<', 20000, 'and saves reading the records after it');
ask($reader, 'ROLLBACK');

# auto_explain, by the setting alone
my @auto = ("LOAD 'auto_explain'", 'SET auto_explain.log_min_duration = 0', 'SET auto_explain.log_analyze = on', 'SET auto_explain.log_nested_statements = on');
my $from = -s $node->logfile;
sql(map { "$_;" } @auto, 'UPDATE often SET n = 0 WHERE id = 1');
unlike(slurp_file($node->logfile, $from), qr/Undo:/, 'auto_explain shows no undo without the setting');
$from = -s $node->logfile;
sql(map { "$_;" } @auto, 'SET zundo.explain_undo = on', 'UPDATE often SET n = 0 WHERE id = 1');
like(slurp_file($node->logfile, $from), qr/Update on often.*\n\s+Undo: (?:records=\d+ pages=\d+ )?in place=1 bytes=\d+\n/, 'and shows it with the setting');
$from = -s $node->logfile;
sql(map { "$_;" } @auto, 'SET zundo.explain_undo = on', 'SET auto_explain.log_format = json', 'DO $$ BEGIN UPDATE often SET n = 0 WHERE id = 1; END $$');
like(slurp_file($node->logfile, $from), qr/"Rows Updated in Place": 1,/, 'also of nested statements, as JSON');
$from = -s $node->logfile;
sql(map { "$_;" } @auto, 'SET zundo.explain_undo = on', 'SET auto_explain.log_analyze = off', 'UPDATE often SET n = 0 WHERE id = 1');
unlike(slurp_file($node->logfile, $from), qr/Undo:/, 'but not without log_analyze');

# a parallel query that another one calls in its leader
sql(q{CREATE FUNCTION scan_all() RETURNS int LANGUAGE plpgsql PARALLEL RESTRICTED AS
		$$ BEGIN PERFORM count(*) FROM z WHERE n >= 0; RETURN 1; END $$});
ask($reader, @auto, 'SET zundo.explain_undo = on', 'SET max_parallel_workers_per_gather = 2', 'SET parallel_leader_participation = off',
	'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM z');
sql('UPDATE z SET n = 3 WHERE id % 10 = 0');
$from = -s $node->logfile;
is(ask($reader, 'SELECT sum(scan_all()) FROM z WHERE n = 1 AND id <= 40'), '4', 'nested parallel queries');
my $log = slurp_file($node->logfile, $from);
is(scalar(() = $log =~ /Query Text: [^\n]*count\(\*\) FROM z.*?Undo: records=\d+ pages=\d+ rebuilt=200\b/sg), 4, 'the inner ones count all their rows');
like($log, qr/Query Text: SELECT sum\(.*Parallel Seq Scan on z .*\n\s+Undo: records=\d+ pages=\d+ rebuilt=200\b/s, 'and so does the one around them');
ask($reader, 'ROLLBACK');

$reader->quit;
done_testing();
