# Scans of zbtree indexes by parallel workers, and parallel builds of them (from
# 18 on; BUILD-5, BUILD-7), beside old snapshots and without: the answers are
# those of heap and btree (ZBTREE-4, BUILD-5).
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('parallel', "max_worker_processes = 40\nmax_parallel_workers = 24\nmax_parallel_maintenance_workers = 2\nmaintenance_work_mem = 256MB\n"
	  . "zundo.key_queue = 0\nlog_min_messages = debug1\nlock_timeout = 120s\n");
my $force = server_major() >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';

# "uphill" is the usual order of numbers. A build compares equal keys only if a row had a
# key twice; there the leader sleeps, so the workers have time to build most of the index,
# and say that they do.
sql(q{CREATE EXTENSION zundo;
	CREATE FUNCTION compare(int, int) RETURNS int IMMUTABLE PARALLEL SAFE LANGUAGE plpgsql AS $$ BEGIN
		IF $1 = $2 AND current_setting('test.leader', true) = pg_backend_pid()::text THEN
			PERFORM pg_sleep(0.02);
		ELSIF $1 = $2 AND $1 % 50 = 0 AND current_setting('test.leader', true) <> '' THEN
			RAISE LOG 'a worker of % compares', current_setting('test.leader');
		END IF;
		RETURN btint4cmp($1, $2); END $$;
	CREATE OPERATOR CLASS uphill FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 btint4cmp(int, int);
	CREATE OPERATOR CLASS uphill FOR TYPE int USING zbtree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 compare(int, int);});
my %index = (
	a => '(a, id)',
	d => '(d DESC NULLS FIRST, id DESC)',
	t => '(t COLLATE "C") INCLUDE (d)',
	new => '(a DESC) WHERE s = \'new\'',
	u => '(u uphill)');
for my $t (['h', 'heap', 'btree'], ['z', 'zheap', 'zbtree'])
{
	my ($table, $am, $method) = @$t;
	sql(qq{CREATE TABLE $table (id int PRIMARY KEY, a int, d int, t text, s text, u int, b text) USING $am WITH (fillfactor = 70, parallel_workers = 2);
		INSERT INTO $table SELECT g, g % 60, CASE WHEN g % 7 > 0 THEN g % 90 END, 't' || g % 50, CASE WHEN g % 3 = 0 THEN 'new' ELSE 'old' END, g, 'b' || g
		FROM generate_series(1, 2000) g;}, map { "CREATE INDEX ${table}_$_ ON $table USING $method $index{$_};" } sort keys %index);
	sql("VACUUM ANALYZE $table");
}

# [the index that must be used, what is read by an index-only scan as well, the query]
my @queries = (
	[ 'a', 1, 'SELECT count(a), sum(id) FROM T WHERE a BETWEEN 3 AND 200' ],
	[ 'a', 0, 'SELECT count(b), sum(id) FROM T WHERE a IN (3, 8, 108, 9, NULL, 1000)' ],
	[ 'a', 1, q{SELECT md5(string_agg(a || '-' || id, ',')) FROM (SELECT a, id FROM T WHERE a > 20 ORDER BY a, id) s} ],
	[ 'd', 0, q{SELECT md5(string_agg(concat(d, b), ',')) FROM (SELECT d, b FROM T WHERE d < 40 OR d IS NULL ORDER BY d DESC NULLS FIRST, id DESC) s} ],
	[ 'd', 1, 'SELECT count(*), sum(id) FROM T WHERE d IS NULL' ],
	[ 't', 1, q{SELECT count(t), sum(d) FROM T WHERE t COLLATE "C" >= 't2' AND t COLLATE "C" < 't4x'} ],
	[ 'new', 0, q{SELECT count(b), sum(id) FROM T WHERE s = 'new' AND a > 10} ],
	[ 'u', 1, 'SELECT count(u), sum(u) FROM T WHERE u > 100' ],
	[ 'a', 0, 'SELECT count(y.b), sum(x.id) FROM T x JOIN T y ON x.a = y.a AND x.id < y.id WHERE x.a < 8 AND y.a < 8' ],
	[ 'd', 0, q{SELECT min(d), max(d), count(b) FROM T WHERE d > -1000} ]);
my %settings = (seq => 'seqscan', index => 'indexscan', 'index-only' => 'indexscan indexonlyscan', bitmap => 'bitmapscan');

# plan_by WAY HOW: returns settings for plans with one kind of scan; HOW is "alone",
# "workers" (with the leader), "workers alone" or "forced" (one worker executes the plan).
sub plan_by
{
	my ($way, $how) = @_;
	return (map { "SET enable_$_ = " . ($settings{$way} =~ /\b$_\b/ ? 'on' : 'off') } 'seqscan', 'indexscan', 'indexonlyscan', 'bitmapscan'),
	  map({ "SET $_ = 0" } 'parallel_setup_cost', 'parallel_tuple_cost', 'min_parallel_table_scan_size', 'min_parallel_index_scan_size'),
	  'SET cpu_tuple_cost = 1', 'SET max_parallel_workers_per_gather = ' . ($how eq 'alone' ? 0 : $how eq 'forced' ? 1 : 2),
	  'SET parallel_leader_participation = ' . ($how eq 'workers alone' ? 'off' : 'on'), "SET $force = " . ($how eq 'forced' ? 'on' : 'off'),
	  'SET enable_hashjoin = off', 'SET enable_sort = ' . ($way eq 'seq' || $way eq 'bitmap' ? 'on' : 'off');
}
# queries_by TABLE WAY: returns the queries that this kind of scan can answer.
sub queries_by { my ($table, $way) = @_; return map { $_->[2] =~ s/\bT\b/$table/gr } grep { $way ne 'index-only' || $_->[1] } @queries }

# A session with an old snapshot keeps no locks, so that indexes can be rebuilt.
sub begin { my ($session) = @_; return $session->{is_old} ? 'SAVEPOINT q' : () }
sub end { my ($session) = @_; return $session->{is_old} ? ('ROLLBACK TO q', 'RELEASE q') : () }

# same WHAT SESSION...: tests that each session reads the same from h by a sequential scan
# as from z by its indexes.
my @ways = (['index', 'workers'], ['index-only', 'workers alone'], ['bitmap', 'workers'], ['index', 'workers alone'], ['index-only', 'workers'], ['bitmap', 'workers alone'],
	['index', 'forced']);
my $turn = 0;
sub same
{
	my ($what, @sessions) = @_;
	my $differences = '';
	for my $n (1 .. @sessions)
	{
		my ($way, $how) = @{ $ways[ $turn++ % @ways ] };
		my $session = $sessions[ $n - 1 ];
		my $expected = ask($session, begin($session), plan_by('seq', 'alone'), queries_by('h', $way), end($session)) . $complaint;
		my $got = ask($session, begin($session), plan_by($way, $how), queries_by('z', $way), end($session)) . $complaint;
		$differences .= "session $n, $way, $how:\nheap\n$expected\nzheap\n$got\n" if $got ne $expected;
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($differences, '', "$what: the same as heap and btree");
	return;
}

# launched WHAT SESSION: tests that workers are launched, and that they scan the index.
sub launched
{
	my ($what, $session) = @_;
	my $bad = '';
	my %node = (index => 'Parallel Index Scan (?:Backward )?using', 'index-only' => 'Parallel Index Only Scan (?:Backward )?using', bitmap => 'Parallel Bitmap Heap Scan.*Bitmap Index Scan on');
	for my $how (['index', 'workers'], ['index-only', 'workers alone'], ['bitmap', 'workers'], ['index', 'forced'])
	{
		ask($session, begin($session), plan_by(@$how));
		for my $query (@queries)
		{
			my ($index, $only, $text) = @$query;
			next if $how->[0] eq 'index-only' && !$only;
			my $plan = ask($session, 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' . ($text =~ s/\bT\b/z/gr));
			my $scan = $how->[1] eq 'forced' ? qr/z_$index\b/ : qr/$node{$how->[0]} z_$index\b/s;
			$bad .= "@$how: $text: $plan\n$complaint\n" unless $plan =~ $scan && $plan =~ /Workers Launched: [12]/;
		}
		ask($session, end($session));
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($bad, '', "$what: workers scan the indexes");
	return;
}

my $writer = session($node);
sub change { my @sql = @_; ask($writer, map { my $s = $_; map { $s =~ s/\bT\b/$_/gr } 'h', 'z' } @sql); is($complaint, '', 'no error') if $complaint ne ''; return }
sub snapshot
{
	my ($level) = @_;
	my $s = session($node);
	ask($s, "BEGIN ISOLATION LEVEL $level; SELECT count(*) FROM h");
	$s->{is_old} = 1;
	return $s;
}

my $new = session($node);
launched('loaded', $new);
same('loaded', $new);

# old snapshots, marks, own changes
my $old = snapshot('REPEATABLE READ');
change('UPDATE T SET a = a + 100, d = d + 1 WHERE id % 4 = 0', 'UPDATE T SET u = u + 10000', 'UPDATE T SET u = u - 10000', q{UPDATE T SET s = 'old' WHERE a < 30 AND s = 'new'},
	q{UPDATE T SET s = 'new' WHERE a > 120 AND s = 'old'}, q{UPDATE T SET t = 't' || (id + 1) % 50, d = NULL WHERE id % 6 = 1});
my $middle = snapshot('REPEATABLE READ');
change('DELETE FROM T WHERE id % 31 = 0', q{UPDATE T SET a = a - 100 WHERE a > 140}, q{UPDATE T SET d = 5 WHERE d IS NULL AND id % 5 = 0},
	q{INSERT INTO T SELECT g, g % 60, g % 9, 'tx', 'new', g, 'n' FROM generate_series(2001, 2200) g}, q{UPDATE T SET u = -u WHERE id % 10 = 3});
ask($writer, 'BEGIN');
change('UPDATE T SET a = a + 1, d = d - 1, u = u + 1 WHERE id % 3 = 0');
ask($writer, 'ROLLBACK');
my $serializable = snapshot('SERIALIZABLE');
same('stale entries', $new, $old, $middle, $serializable);
launched('an old snapshot', $old);
same('marked entries', $new, $old);
ask($writer, 'BEGIN');
ask($writer, 'SAVEPOINT a');
change('UPDATE T SET a = a + 7 WHERE id % 5 = 0');
ask($writer, 'ROLLBACK TO a');
change('UPDATE T SET a = a + 3, d = d + 3, u = u + 5 WHERE id % 8 = 0', q{UPDATE T SET s = 'new' WHERE id % 50 = 1},
	'DELETE FROM T WHERE id % 41 = 0');
same('a change in progress', $writer, $new, $old);
ask($writer, 'ROLLBACK');
same('rolled back', $new, $middle);
ask($serializable, 'COMMIT');
$serializable->quit;

# builds; workers COMMAND: executes it, and returns how many builds asked for workers, and
# how many workers were started.
my $builder = session($node);
ask($builder, 'SET min_parallel_table_scan_size = 0; SET client_min_messages = debug1');
my $pid = ask($builder, 'SELECT pg_backend_pid()');
# (without workers the leader would sleep for each row)
my $parallel = server_major() >= 18;
ask($builder, "SET test.leader = $pid") if $parallel;
sub build
{
	my ($what, $n, @commands) = @_;
	my $log = -s $node->logfile;
	ask($builder, @commands);
	my $messages = $complaint;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	unlike($messages, qr/ERROR/, "$what: no error");
	is(() = $messages =~ /building index "z_(?!pkey)\w+" on table "z" with request for 2 parallel workers/g, $parallel ? $n : 0, "$what: builds with workers");
	is(() = $messages =~ /building index "z_(?!pkey)\w+" on table "z" serially/g, $parallel ? 0 : $n, "$what: builds without");
	return if !$parallel;
	my $text = slurp_file($node->logfile, $log);
	cmp_ok(scalar(() = $text =~ /starting background worker process "parallel worker for PID $pid"/g), '>=', 2 * $n, "$what: workers were started");
	like($text, qr/a worker of $pid compares/, "$what: a worker has entered the keys of rows") if $what =~ /snapshots/;
	return;
}
sub entries { return sql(q{SELECT string_agg(i || ' ' || e.entries || ' ' || e.stale, ', ' ORDER BY i) FROM unnest('{z_a,z_d,z_t,z_new,z_u}'::text[]) i, zundo.index_entries(i::regclass) e}) }
sub sound_indexes { my ($what) = @_; local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql(q{SELECT i, c.* FROM unnest('{z_a,z_d,z_t,z_new,z_u}'::text[]) i, zundo.check_index(i::regclass) c}), '', "$what: zundo.check_index"); return }
my @rebuild = map { "REINDEX INDEX z_$_" } sort keys %index;
sql('SET max_parallel_maintenance_workers = 0;', map { "$_;" } @rebuild);
my $serially = entries();
build('REINDEX beside snapshots', 5, @rebuild);
is(entries(), $serially, 'workers enter as many keys as one process');
like($serially, qr/z_u 4\d\d\d 0/, '... also those of older versions');
same('rebuilt', $new, $old, $middle);
launched('rebuilt, an old snapshot', $old);
sound_indexes('rebuilt');
build('CREATE INDEX beside snapshots', 5, 'DROP INDEX ' . join(', ', map { "z_$_" } sort keys %index), map { "CREATE INDEX z_$_ ON z USING zbtree $index{$_}" } sort keys %index);
same('created', $new, $old, $middle);
sound_indexes('created');
ask($_, 'COMMIT') for $old, $middle;
$_->quit for $old, $middle;
build('own changes', 2, 'BEGIN', 'UPDATE h SET a = a + 5 WHERE id % 3 = 0', 'UPDATE z SET a = a + 5 WHERE id % 3 = 0', 'SAVEPOINT s', 'UPDATE z SET d = 3', 'ROLLBACK TO s', 'REINDEX INDEX z_a',
	'DROP INDEX z_d', "CREATE INDEX z_d ON z USING zbtree $index{d}");
ask($builder, 'RESET client_min_messages');
same('own changes', $builder);
ask($builder, 'COMMIT');
same('own changes, committed', $new);
ask($builder, 'SET client_min_messages = debug1');
build('REINDEX CONCURRENTLY', 5, map { "REINDEX INDEX CONCURRENTLY z_$_" } sort keys %index);
same('rebuilt concurrently', $new);
sound_indexes('rebuilt concurrently');
change('UPDATE T SET a = a + 2 WHERE id % 3 = 0', 'UPDATE T SET u = u + 1, d = d + 1');
same('and changed', $new);
sql('VACUUM z');
same('and vacuumed', $new);
sound_indexes('vacuumed');
sound($node, 'in the end', 'z');
$_->quit for $new, $writer, $builder;
no_crash($node);
$node->stop;
done_testing();
