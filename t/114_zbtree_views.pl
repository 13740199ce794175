# The server's views show of a zbtree index what they show of a btree index, on
# heap and on zheap: pg_stat_progress_create_index while an index is built or
# rebuilt, pg_stat_user_indexes, pg_statio_user_indexes, pg_statio_user_tables,
# and EXPLAIN ANALYZE.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('views', "max_parallel_maintenance_workers = 0\n");
my @kinds = (['heap', 'btree'], ['zheap', 'btree'], ['zheap', 'zbtree']);

# The build of an index waits where gate() gets one of these numbers, and in the comparison of slow values.
sql(q{CREATE EXTENSION zundo;
	CREATE FUNCTION gate(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
		IF n IN (900, 5000) THEN PERFORM pg_advisory_xact_lock_shared(n); END IF; RETURN n; END $$;
	CREATE TYPE slow AS (n int);
	CREATE FUNCTION slow_equal(slow, slow) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT ($1).n = ($2).n';
	CREATE FUNCTION slow_compare(slow, slow) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
		IF ($1).n = 900 OR ($2).n = 900 THEN PERFORM pg_advisory_xact_lock_shared(901); END IF; RETURN ($1).n - ($2).n; END $$;
	CREATE OPERATOR = (LEFTARG = slow, RIGHTARG = slow, FUNCTION = slow_equal);
	CREATE OPERATOR CLASS slow_ops DEFAULT FOR TYPE slow USING btree AS OPERATOR 3 =, FUNCTION 1 slow_compare(slow, slow);
	SELECT zundo.mirror_opclass('slow_ops')});
for my $kind (@kinds)
{
	my $t = join '_', 't', @$kind;
	sql(qq{CREATE TABLE $t (n int, s slow, v text) USING $kind->[0];
		INSERT INTO $t SELECT g, ROW(g)::slow, repeat('v', 100) FROM generate_series(1, 1000) g;
		CREATE TABLE parts_$t (n int) PARTITION BY RANGE (n);
		CREATE TABLE parts_${t}_1 PARTITION OF parts_$t FOR VALUES FROM (0) TO (500) USING $kind->[0];
		CREATE TABLE parts_${t}_2 PARTITION OF parts_$t FOR VALUES FROM (500) TO (5000) USING $kind->[0];
		INSERT INTO parts_$t SELECT generate_series(1, 1000)});
}

# What the view shows, without ids and sizes, which are compared with what they must be. (At the end a build may also wait
# for the snapshots of other processes.)
my $look = q{SELECT command, phase, relid::regclass, index_relid <> 0, lockers_total > lockers_done, current_locker_pid = PID, blocks_total * 8192 = pg_relation_size(relid),
	blocks_total = 0 OR blocks_done BETWEEN 1 AND blocks_total, tuples_total, tuples_done, partitions_total, partitions_done FROM pg_stat_progress_create_index};
my ($builder, $gate) = map { session($node) } 1 .. 2;

# named SQL, LETTER, KIND: puts the name of the kind's table in place of the letter.
sub named
{
	my ($sql, $letter, $kind) = @_;
	my $name = join '_', lc $letter, @$kind;
	return $sql =~ s/(?<![A-Z])$letter(?![A-Z])/$name/gr =~ s/\bAM\b/$kind->[1]/gr;
}

# shown KIND, PID: returns what the view shows of the build that waits for a lock of this process.
sub shown
{
	my ($kind, $pid) = @_;
	my $blocked = "SELECT count(*) = 1 FROM pg_stat_progress_create_index WHERE $pid = ANY (pg_blocking_pids(pid))";
	$node->poll_query_until('postgres', $blocked) or die 'the build does not wait';
	(my $sql = $look) =~ s/PID/$pid/;
	my $t = join '_', 't', @$kind;
	return sql($sql) =~ s/\b(parts_)?$t/$1T/gr =~ s/^/|/r;
}

# build KIND, COMMAND, WAIT...: starts the command in the builder's session; returns what the view shows in each of the
# waits: of the numbers that gate() and slow_compare() wait for.
sub build
{
	my ($kind, $command, @waits) = @_;
	my @seen;
	ask($gate, "SELECT pg_advisory_lock($_)") for @waits;
	my $pid = ask($gate, 'SELECT pg_backend_pid()');
	$builder->query_until(qr/starts/, "\\echo starts\n" . named($command, 'T', $kind) . ";\n");
	for my $wait (@waits)
	{
		push @seen, shown($kind, $pid);
		ask($gate, "SELECT pg_advisory_unlock($wait)");
	}
	is(ask($builder, 'SELECT 1') . ($complaint =~ s/.*QUERY_SEPARATOR.*\n?//gr), 1, "@$kind: $command");
	is(sql('SELECT count(*) FROM pg_stat_progress_create_index'), 0, '... and then the view is empty');
	return join "\n", @seen;
}

# each_kind NAME DO: calls DO->(KIND) for each kind, and compares the answers with that of btree on heap.
sub each_kind
{
	my ($name, $do) = @_;
	my ($expected, @others) = map { $do->($_) } @kinds;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($others[$_ - 1], $expected, "$name: @{$kinds[$_]} as @{$kinds[0]}") for 1, 2;
	return $expected;
}

like(each_kind('CREATE INDEX', sub { build($_[0], 'CREATE INDEX T_gate ON T USING AM (gate(n))', 900) }),
	qr/CREATE INDEX\|building index: scanning table\|T\|.*\|t\|t\|0\|0\|0\|0$/, 'scanning the table');
like(each_kind('CREATE INDEX, sorting', sub { build($_[0], 'CREATE INDEX T_slow ON T USING AM (s)', 901) }),
	qr/\|building index: sorting live tuples\|T\|.*\|1000\|0\|0\|0$/, 'sorting 1000 rows');
like(each_kind('REINDEX', sub { build($_[0], 'REINDEX INDEX T_gate', 900) }), qr/REINDEX\|building index: scanning table\|T\|t\|/, 'REINDEX');
like(each_kind('partitions', sub { build($_[0], 'CREATE INDEX parts_T_gate ON parts_T USING AM (gate(n))', 900) }), qr/\|building index: scanning table\|.*\|2\|1$/, 'one partition of two is done');
for my $command ('CREATE INDEX CONCURRENTLY T_gate ON T USING AM (gate(n))', 'REINDEX INDEX CONCURRENTLY T_gate')
{
	my $shown = each_kind($command, sub {
		my ($kind) = @_;
		my ($writer, $late, $reader) = map { session($node) } 1 .. 3;
		my %pid = map { $_ => ask($_, 'SELECT pg_backend_pid()') } $writer, $late, $reader, $gate;
		my $t = join '_', 't', @$kind;
		my @seen;
		sql("DROP INDEX ${t}_gate") if $command =~ /CREATE/;
		ask($gate, 'SELECT pg_advisory_lock(900), pg_advisory_lock(5000)');
		ask($writer, "BEGIN; UPDATE $t SET v = v WHERE n = 1");
		$builder->query_until(qr/starts/, "\\echo starts\n" . named($command, 'T', $kind) . ";\n");
		# the writer's transaction, if the table did not have the index before it
		push @seen, shown($kind, $pid{$writer});
		ask($writer, 'COMMIT');
		push @seen, shown($kind, $pid{$gate});
		# a row that the first pass does not see, by a transaction that the second one waits for
		ask($late, "BEGIN; INSERT INTO $t VALUES (5000)") if $command =~ /CREATE/;
		ask($late, "BEGIN; UPDATE $t SET v = v || 'x' WHERE n = 1") if $command =~ /REINDEX/;
		ask($gate, 'SELECT pg_advisory_unlock(900)');
		push @seen, shown($kind, $pid{$late});
		# a snapshot that is older than the end of the build
		ask($reader, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
		ask($late, 'COMMIT');
		if ($command =~ /CREATE/)
		{
			push @seen, shown($kind, $pid{$gate});
		}
		ask($gate, 'SELECT pg_advisory_unlock_all()');
		push @seen, shown($kind, $pid{$reader});
		ask($reader, 'COMMIT');
		is(ask($builder, 'SELECT 1') . ($complaint =~ s/.*QUERY_SEPARATOR.*\n?//gr), 1, "@$kind: $command");
		sql("DELETE FROM $t WHERE n = 5000");
		$_->quit for $writer, $late, $reader;
		return join "\n", @seen;
	});
	note($shown);
	is(join(', ', $shown =~ /CONCURRENTLY\|([^|]*)/g), join(', ', 'waiting for writers before build', 'building index: scanning table', 'waiting for writers before validation',
			$command =~ /CREATE/ ? 'index validation: scanning table' : (), 'waiting for old snapshots'), 'the phases');
}

$_->quit for $builder, $gate;

# Statistics. Keys are different, so that the indexes have as many pages.
for my $kind (@kinds)
{
	my $s = join '_', 's', @$kind;
	sql(qq{CREATE TABLE $s (n int, v text) USING $kind->[0]; INSERT INTO $s SELECT g, 'v' || g FROM generate_series(1, 2000) g;
		CREATE INDEX ${s}_n ON $s USING $kind->[1] (n); SELECT zundo.discard(); VACUUM ANALYZE $s});
}
# Each session reports what it has done before psql returns: later, it would be counted with what follows.
my $report = 'SELECT pg_stat_force_next_flush()';
my $stats = qq{$report;
	SELECT i.idx_scan, i.idx_tup_read, i.idx_tup_fetch, o.idx_blks_read + o.idx_blks_hit, t.idx_scan, t.idx_tup_fetch, t.seq_scan, b.idx_blks_read + b.idx_blks_hit, t.n_tup_upd
	FROM pg_stat_user_indexes i JOIN pg_statio_user_indexes o USING (indexrelid) JOIN pg_stat_user_tables t ON t.relid = i.relid JOIN pg_statio_user_tables b ON b.relid = i.relid WHERE i.relname = 'S'};
my $reset = q{SELECT pg_stat_reset_single_table_counters('S'::regclass), pg_stat_reset_single_table_counters('S_n'::regclass)};
my %plan = (
	'index scan' => ['on', 'off', 'off', 'SELECT v FROM S WHERE n BETWEEN 1000 AND 1099'],
	'index-only scan' => ['on', 'on', 'off', 'SELECT n FROM S WHERE n BETWEEN 1000 AND 1099'],
	'bitmap scan' => ['off', 'off', 'on', 'SELECT v FROM S WHERE n BETWEEN 1000 AND 1099'],
	'backward scan' => ['on', 'off', 'off', 'SELECT v FROM S WHERE n BETWEEN 1000 AND 1099 ORDER BY n DESC LIMIT 10'],
	'array' => ['on', 'off', 'off', 'SELECT v FROM S WHERE n = ANY (ARRAY[1000, 1050, 1099, 4000])'],
	'min' => ['on', 'on', 'off', 'SELECT min(n) FROM S WHERE n > 1000'],
	'repeated' => ['on', 'off', 'off', 'SELECT (SELECT v FROM S WHERE n = g) FROM generate_series(1001, 1030) g']);
for my $plan (sort keys %plan)
{
	my ($index, $only, $bitmap, $query) = @{$plan{$plan}};
	my $shown = each_kind($plan, sub {
		my ($kind) = @_;
		my $s = join '_', 's', @$kind;
		my @sql = map { named($_, 'S', $kind) } "SET enable_seqscan = off; SET enable_indexscan = $index; SET enable_indexonlyscan = $only; SET enable_bitmapscan = $bitmap;", $query, $stats,
			"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) $query", $reset;
		sql($sql[4]);
		my $counted = sql($sql[0], "$sql[1] OFFSET 0; $sql[2]");
		return ($counted =~ s/.*\n//sr) . "\n" . sql($sql[0], "$sql[3];", $report) =~ s/$s/S/gr;
	});
	note($shown);
	like($shown, $plan =~ /bitmap/ ? qr/Bitmap Index Scan on S_n/ : $only eq 'on' ? qr/Index Only Scan.* using S_n/ : qr/Index Scan.* using S_n/, "$plan: the plan");
}

# Entries of rows that have changed since, beside an old snapshot: read, but not fetched.
my $old = session($node);
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
my $shown = each_kind('entries of old keys', sub {
	my ($kind) = @_;
	my @sql = map { named($_, 'S', $kind) } "UPDATE S SET n = n + 10000 WHERE n BETWEEN 1000 AND 1009; $report", $reset, "SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT v FROM S WHERE n BETWEEN 1000 AND 1099; $stats";
	sql($sql[0]);
	sql($sql[1]);
	return join '|', (split /\|/, sql($sql[2]) =~ s/.*\n//sr)[0 .. 2];
});
is($shown, '1|100|90', 'one scan, 100 entries read, 90 rows fetched');
ask($old, 'COMMIT');
$old->quit;

# Updates in place of an indexed column count as HOT, and the other index gets no entries. (The planner has looked at it.)
for my $kind (@kinds)
{
	my $u = join '_', 'u', @$kind;
	sql(qq{CREATE TABLE $u (id int, n int) USING $kind->[0]; INSERT INTO $u SELECT g, g FROM generate_series(1, 100) g;
		CREATE INDEX ${u}_id ON $u (id); CREATE INDEX ${u}_n ON $u USING $kind->[1] (n); SELECT pg_stat_force_next_flush()});
	sql("SELECT pg_stat_reset_single_table_counters('$_'::regclass)") for $u, "${u}_id", "${u}_n";
	sql("UPDATE $u SET n = n + 1000; SELECT pg_stat_force_next_flush()");
}
is(sql(q{SELECT string_agg(t.n_tup_upd || ' ' || t.n_tup_hot_upd || ' ' || (idx_blks_hit > 50), ', ' ORDER BY i.relname) FROM pg_stat_user_tables t JOIN pg_statio_user_indexes i USING (relid) WHERE i.indexrelname ~ '^u_.*_id$'}),
	'100 0 true, 100 0 true, 100 100 false', 'updates, HOT updates, and whether they touched the other index');
sound($node, '', map { join '_', $_, 'zheap', 'zbtree' } qw(t s u));
is(sql(q{SELECT count(*) FROM pg_class i JOIN pg_am a ON a.oid = relam, zundo.check_index(i.oid) WHERE amname = 'zbtree' AND relkind = 'i'}), 0, 'zundo.check_index');
no_crash($node);
$node->stop;
done_testing();
