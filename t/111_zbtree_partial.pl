# Partial zbtree indexes with simple predicates (ZBTREE-16): an update that
# changes a key, or whether the row satisfies the predicate, stays in place, and
# no scan returns a version that the predicate excludes. The oracle is a heap
# table with btree indexes and the same changes.
# long
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('partial', "max_prepared_transactions = 5\ncheckpoint_timeout = 1h\nautovacuum = off\nwal_consistency_checking = 'all'\n"
	  . "max_standby_streaming_delay = -1\n", allows_streaming => 1);
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\nwal_receiver_status_interval = 1s\n");
$standby->start;
srand($ENV{ZUNDO_SEED} // 111);

# which updates stay in place
sql(q{CREATE TYPE state AS ENUM ('new', 'done', 'lost');
CREATE FUNCTION is_odd(int) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT $1 % 2 = 1';
CREATE FUNCTION moved(command text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE before bigint := pg_stat_get_xact_tuples_updated('k'::regclass) - pg_stat_get_xact_tuples_hot_updated('k'::regclass);
BEGIN
	EXECUTE command;
	RETURN pg_stat_get_xact_tuples_updated('k'::regclass) - pg_stat_get_xact_tuples_hot_updated('k'::regclass) - before;
END $$});
sub moves
{
	my ($predicate, $columns) = @_;
	sql(q{DROP TABLE IF EXISTS k; CREATE TABLE k (id int, n int, v varchar(20), t text, x state, b bool, d timestamptz, m numeric, a int[], big text) USING zheap WITH (fillfactor = 50);
		ALTER TABLE k ALTER big SET STORAGE EXTERNAL;
		INSERT INTO k SELECT g, g % 4, 'v' || g % 2, 't' || g % 2, CASE g % 2 WHEN 0 THEN 'new'::state ELSE 'done' END, g % 2 = 0,
			'2020-01-01 UTC'::timestamptz + g * interval '1 day', g % 3, ARRAY[g % 2], 'b' FROM generate_series(1, 40) g;},
		"CREATE INDEX k_p ON k USING zbtree ($columns) WHERE $predicate");
	my $moved = sql(q{SELECT moved('UPDATE k SET n = n + 1, v = CASE v WHEN ''v0'' THEN ''v1'' ELSE ''v0'' END, t = upper(t), x = CASE x WHEN ''new'' THEN ''done''::state ELSE ''new'' END,
		b = NOT b, d = d + interval ''20 days'', m = m + 1, a = a || 1')});
	is(sql(q{SELECT * FROM zundo.check_index('k_p')}), '', "$predicate: sound");
	is(sql(q{SET enable_seqscan = off; SELECT count(*), sum(id) FROM k WHERE } . $predicate), sql(q{SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off;
		SELECT count(*), sum(id) FROM k WHERE } . $predicate), "$predicate: the same rows");
	return $moved;
}
my @simple = (q{n = 1}, q{n > 2::bigint}, q{n <> 1}, q{v = 'v1'}, q{v IN ('v1', 'v7')}, q{v::text IN ('v1', 'v7')}, q{t = 'T1' OR n < 2}, q{x = 'new'}, q{x IN ('new', 'lost')}, q{b}, q{NOT b},
	q{b IS NOT TRUE}, q{t IS NULL}, q{t IS NOT NULL AND m > 0}, q{d > '2020-01-25 UTC'}, q{t IS DISTINCT FROM 'T1'}, q{n = ANY ('{1,3}')}, q{n > ALL (ARRAY[0, 1])}, q{t COLLATE "C" > 'T0'},
	q{m >= 2::int}, q{true}, q{n BETWEEN 1 AND 2}, q{1 = ANY (a)}, q{(b AND NOT b) IS FALSE});
is(moves($_, 'id, m'), 0, "$_: in place") for @simple;
my @complex = (q{is_odd(n)}, q{n + 1 > 3}, q{lower(v) = 'v1'}, q{t LIKE 'T%'}, q{a = '{1,1}'}, q{abs(n) = 1}, q{(n, m) > (1, 1::numeric)});
cmp_ok(moves($_, 'id, m'), '>', 0, "$_: some rows move") for @complex;
cmp_ok(moves('n = 1', 'id, upper(t)'), '>', 0, 'with an expression: some rows move');
# values out of line
moves(q{big IS NOT NULL}, 'm');
is(sql(q{SELECT moved('UPDATE k SET big = repeat(''x'', 5000), m = 7 WHERE id = 1')}), 1, 'a column of the predicate goes out of line');
is(sql(q{SELECT moved('UPDATE k SET m = 8 WHERE id = 1')}), 1, 'a key changes beside it');
is(sql(q{SELECT moved('UPDATE k SET n = 8 WHERE id = 1')}), 0, 'another column changes beside it');
is(sql(q{SELECT moved('UPDATE k SET big = NULL WHERE id = 1')}), 1, 'it becomes null');
is(sql(q{SELECT * FROM zundo.check_index('k_p')}), '', 'out of line: sound');

# an index is built of rows with versions from before a value went out of line; a scan
# does not compare that value (BUILD-5)
for my $t (['k', q{WHERE big = 'x'}], ['big', ''], ['big', q{WHERE big IS NOT NULL}])
{
	my ($column, $where) = @$t;
	my $query = q{SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*), count(a) FROM o WHERE big = 'x'};
	sql(q{DROP TABLE IF EXISTS o; CREATE TABLE o (id int, a int, k int, big text) USING zheap; ALTER TABLE o ALTER big SET STORAGE EXTERNAL;
		CREATE INDEX o_a ON o USING zbtree (a); INSERT INTO o SELECT g, g, g, 'x' FROM generate_series(1, 3) g});
	# the second one keeps the undo, and locks no index
	my @before = (session($node), session($node));
	ask($_, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM k') for @before;
	sql(qq{BEGIN; UPDATE o SET a = a + 1; UPDATE o SET big = repeat('y', 2500); CREATE INDEX o_k ON o USING zbtree ($column) $where; COMMIT});
	is(sql($query), '0|0', "($column) $where: no row");
	is(sql(q{SELECT * FROM zundo.check_index('o_k')}), '', "($column) $where: sound");
	is(ask($before[0], $query), '3|3', "($column) $where: all rows for an older snapshot");
	ask($before[0], 'COMMIT');
	sql('REINDEX INDEX o_k');
	is(sql($query), '0|0', "($column) $where: no row after REINDEX");
	$_->quit for @before;
}

# the twins: several partial indexes, and scans of each kind
my $columns = '(id int PRIMARY KEY, s text, n int, m numeric, due timestamptz, gone bool, pad text)';
for my $t (['h', 'heap', 'btree'], ['z', 'zheap', 'zbtree'])
{
	my ($table, $am, $method) = @$t;
	sql(qq{CREATE TABLE $table $columns USING $am WITH (fillfactor = 60);
		CREATE INDEX ${table}_todo ON $table USING $method (due, id) WHERE s = 'new';
		CREATE INDEX ${table}_live ON $table USING $method (n DESC, m) INCLUDE (s) WHERE NOT gone;
		CREATE INDEX ${table}_self ON $table USING $method (n) WHERE n > 5 AND m IS NOT NULL;
		CREATE INDEX ${table}_odd ON $table USING $method (m, id) WHERE n % 2 = 1;
		CREATE INDEX ${table}_all ON $table USING $method (s, n);
		INSERT INTO $table SELECT g, (ARRAY['new', 'run', 'done'])[1 + g % 3], g % 10, g % 4, '2020-01-01 UTC'::timestamptz + g % 20 * interval '1 hour', g % 5 = 0, 'p' FROM generate_series(1, 200) g});
}
my @queries = (
	q{SELECT id, s, n FROM T WHERE s = 'new' ORDER BY due, id},
	q{SELECT id, s FROM T WHERE s = 'new' AND due >= '2020-01-01 05:00 UTC' ORDER BY due DESC, id DESC},
	q{SELECT due, id FROM T WHERE s = 'new' ORDER BY due, id LIMIT 7},
	q{SELECT due, id FROM T WHERE s = 'new' AND due < '2020-01-01 09:00 UTC' ORDER BY due, id},
	q{SELECT n, m, s FROM (SELECT n, m, s FROM T WHERE NOT gone AND n BETWEEN 2 AND 8) q ORDER BY n, m::text, s},
	q{SELECT count(*), sum(n), sum(m)::int, count(pad) FROM T WHERE NOT gone AND n IN (1, 4, 6, 9)},
	q{SELECT n, count(*) FROM T WHERE n > 5 AND m IS NOT NULL GROUP BY n ORDER BY n},
	q{SELECT count(*), sum(id) FROM T WHERE n = 7 AND m IS NOT NULL},
	q{SELECT count(*), sum(id) FROM T WHERE n % 2 = 1 AND m = 2},
	q{SELECT count(*), sum(id) FROM T WHERE (s = 'new' AND due < '2020-01-01 04:00 UTC') OR (n > 7 AND m IS NOT NULL) OR (NOT gone AND n = 3)},
	q{SELECT count(*), sum(id) FROM T WHERE s = 'new' AND due > '2020-01-01 04:00 UTC' AND NOT gone AND n > 3},
	q{SELECT count(*), sum(x.id + y.id) FROM T x JOIN T y ON x.due = y.due AND x.s = 'new' AND y.s = 'new'},
	q{SELECT min(n), max(n) FROM T WHERE NOT gone}, q{SELECT s, n FROM T WHERE s >= 'new' ORDER BY s, n});
my $twins = index_twins($node, \@queries, ways => 'index only bitmap seq', snapshots => 2);
my $same = q{SELECT * FROM differences('index only bitmap seq', false); SELECT unsound()};
sub change { return change_twins($twins, @_) }
sub compare { return compare_twins($twins, @_) }
sub one
{
	my $id = 1 + int(rand(200));
	my $pick = int(rand(12));
	my $s = (qw(new run done))[int(rand(3))];
	return $pick < 3 ? "UPDATE T SET s = '$s' WHERE id = $id"
		: $pick < 4 ? "UPDATE T SET s = CASE s WHEN 'new' THEN 'run' WHEN 'run' THEN 'done' ELSE 'new' END WHERE id % 9 = $id % 9"
		: $pick < 5 ? "UPDATE T SET due = due + interval '1 hour' WHERE id % 7 = $id % 7"
		: $pick < 6 ? "UPDATE T SET n = (n + 3) % 10 WHERE id % 11 = $id % 11"
		: $pick < 7 ? "UPDATE T SET m = CASE WHEN m IS NULL THEN 1.0 WHEN m > 2 THEN NULL ELSE m + 1.00 END WHERE id % 6 = $id % 6"
		: $pick < 8 ? "UPDATE T SET gone = NOT gone, n = n + id % 2 WHERE id % 8 = $id % 8"
		: $pick < 9 ? "UPDATE T SET s = 'new', due = '2020-01-01 03:00 UTC', pad = pad || 'x' WHERE id IN ($id, $id + 1, $id + 2)"
		: $pick < 10 ? "DELETE FROM T WHERE id = $id"
		: $pick < 11 ? "INSERT INTO T SELECT $id, '$s', $id % 10, 1, '2020-01-01 02:00 UTC', false, 'i' ON CONFLICT (id) DO UPDATE SET s = '$s', gone = NOT T.gone"
		: "UPDATE T SET s = '$s', n = 9 - n, m = 0, gone = false WHERE id % 13 = $id % 13";
}
for my $round (1 .. 24)
{
	twin_round($twins, $round, \&one);
	if ($round % 4 == 0)
	{
		sql('VACUUM (INDEX_CLEANUP on) z');
		compare("round $round, after VACUUM");
	}
	rebuild_twins($twins, "round $round, rebuilt", \&one, $round == 7 ? 'REINDEX TABLE z' : $round == 14 ? 'CLUSTER z USING z_pkey; ANALYZE z'
		: 'REINDEX INDEX z_todo; REINDEX INDEX z_self') if $round % 7 == 0;
}
end_snapshots($twins);
my $writer = $twins->{writer};
sql('REINDEX TABLE CONCURRENTLY z');
compare('rebuilt concurrently');

# a standby sees the same, also with an old snapshot
my $reader = session($standby);
$node->wait_for_catchup($standby);
ask($reader, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM h');
change(one()) for 1 .. 40;
$node->wait_for_catchup($standby);
compare('beside a standby', $reader, session($standby));
ask($reader, 'COMMIT');

# after VACUUM index-only scans visit no row, and an index has entries of its rows only;
# the worker needs no VACUUM for that
sub jobs { return sql(q{SELECT count(*) FROM z WHERE s = 'new'}) }
# the primary has to learn first that the snapshot of the standby is gone
for (1 .. 100)
{
	sql('VACUUM (INDEX_CLEANUP on) z');
	last if sql(q{SELECT entries FROM zundo.index_entries('z_todo')}) == jobs();
	select(undef, undef, undef, 0.2);
}
is(sql(q{SELECT entries, stale FROM zundo.index_entries('z_todo')}), jobs() . '|0', 'VACUUM leaves the entries of rows that satisfy the predicate');
is(sql(q{SELECT count(*) FROM zundo.page_items('z', 0) WHERE 'stale keys' = ANY (flags)}), 0, 'no flag is left') if sql(q{SELECT count(*) FROM pg_proc WHERE proname = 'page_items'}) > 0;
compare('after VACUUM');
for my $n (1 .. 3)
{
	change(q{UPDATE T SET s = CASE s WHEN 'new' THEN 'run' ELSE 'new' END, due = due + interval '1 minute'});
	ask($writer, 'BEGIN');
	change(q{UPDATE T SET s = CASE s WHEN 'new' THEN 'run' ELSE 'new' END, due = due + interval '1 minute'});
	ask($writer, 'ROLLBACK');
}
ok($node->poll_query_until('postgres', q{SELECT entries, stale FROM zundo.index_entries('z_todo')}, jobs() . '|0'), 'so does the worker');
compare('purged');

# a queue: rows leave the index, in place; full pages lose the stale entries although no
# worker looks at them
ask($writer, 'BEGIN');
my $counts = q{SELECT pg_stat_get_xact_tuples_updated('z'::regclass) - pg_stat_get_xact_tuples_hot_updated('z'::regclass)};
my $before = ask($writer, $counts);
change(q{UPDATE T SET s = 'new', due = '2021-01-01 UTC' WHERE id % 3 = 0});
change(q{UPDATE T SET s = 'done' WHERE s = 'new'});
is(ask($writer, $counts) - $before, 0, 'no row of the queue moves');
ask($writer, 'COMMIT');
compare('the queue is empty');
my $plan = sql(q{SET enable_seqscan = off; SET enable_bitmapscan = off; EXPLAIN (COSTS off) SELECT id, pad FROM z WHERE s = 'new' ORDER BY due, id LIMIT 1 FOR UPDATE SKIP LOCKED});
like($plan, qr/Index Scan using z_todo/, 'jobs are claimed by the index');

# beside a claim: the row leaves the queue while another session waits for it
change(q{UPDATE T SET s = 'new' WHERE id IN (SELECT min(id) FROM T)});
my $other = session($node);
ask($writer, q{BEGIN; UPDATE z SET s = 'run' WHERE s = 'new'});
$other->query_until(qr/begun/, "SET enable_seqscan = off; SET enable_bitmapscan = off;\n\\echo begun\nSELECT 'claimed ' || count(*) FROM (SELECT id FROM z WHERE s = 'new' ORDER BY due, id FOR UPDATE) s;\n\\echo ended\n");
ok($node->poll_query_until('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'}, '1'), 'a claim waits');
ask($writer, 'COMMIT');
ask($writer, q{UPDATE h SET s = 'run' WHERE s = 'new'});
like($other->query_until(qr/ended/, "\n"), qr/claimed 0/, 'and gets no row');
$other->quit;
compare('claimed');

# a crash between the row and its entry, in both directions; a key that comes back
SKIP:
{
	my ($rc) = $node->psql('postgres', q{LOAD 'zundo'; SET zundo.fault = 'keys-due:error'});
	skip 'no fault points in this build', 1 unless $rc == 0;
	# without a queue, whose worker could take the entries that are to be found again
	$writer->quit;
	$node->append_conf('postgresql.conf', "zundo.key_queue = 0\n");
	$node->restart;
	$writer = $twins->{writer} = session($node);
	change(q{UPDATE T SET s = CASE WHEN id % 2 = 0 THEN 'new' ELSE 'done' END});
	for my $fault ('keys-due:error:3', 'keys-due:crash:5', 'key-found:crash:3', 'keys-cleaned:crash')
	{
		my $statement = $fault =~ /cleaned/ ? 'VACUUM (INDEX_CLEANUP on) z' : q{UPDATE z SET s = CASE s WHEN 'new' THEN 'done' ELSE 'new' END};
		change(q{UPDATE T SET s = CASE s WHEN 'new' THEN 'done' ELSE 'new' END});
		sql('CREATE TABLE flush ()');
		$node->psql('postgres', "SET zundo.fault = '$fault';\n$statement;\n");
		if ($fault =~ /crash/)
		{
			ok(wait_for_death($node), "$fault: the server died");
			$writer->quit;
			$node->start;
			$writer = $twins->{writer} = session($node);
		}
		sql('DROP TABLE flush');
		compare("$fault: recovered");
		change(q{UPDATE T SET s = CASE s WHEN 'new' THEN 'done' ELSE 'new' END});
		compare("$fault: and changed");
	}
}

# promotion
$node->wait_for_catchup($standby);
ask($writer, 'BEGIN');
change(q{UPDATE T SET s = CASE s WHEN 'new' THEN 'done' ELSE 'new' END, gone = NOT gone, n = n + 1});
sql('SELECT pg_switch_wal()');
sound($node, 'in the end', 'z');
# with fault points: the WAL ends between the change of a row and the insertion of its
# entry, in a process that is stopped
sql(qq{INSERT INTO $_ (id, s, due, gone, n) SELECT id + 1000000, 'done', due, gone, 1 FROM $_ ORDER BY id LIMIT 1}) for 'h', 'z';
my $late = session($node);
if (($node->psql('postgres', q{LOAD 'zundo'; SET zundo.fault = 'keys-due:error'}))[0] == 0)
{
	ask($late, q{SET zundo.fault = 'keys-due:sleep'});
	my $pid = ask($late, 'SELECT pg_backend_pid()');
	my $watcher = session($node);
	my $caught;
	for (1 .. 5)
	{
		$late->query_until(qr/begun/, "\\echo begun\nBEGIN;\nUPDATE z SET s = 'new' WHERE n = 1 AND id > 1000000;\n");
		last if $caught = ZundoTest::caught($watcher, $pid, 'UPDATE%');
		ask($late, 'ROLLBACK');
	}
	ok($caught, 'the row has changed, and its entry has not been added');
	sql('CREATE TABLE flush ()');
	$node->wait_for_catchup($standby);
	kill 'KILL', $pid;
	ok(wait_for_death($node), 'the primary died');
}
$node->wait_for_catchup($standby) if $node->{_pid};
$node->stop('immediate');
$standby->promote;
is($standby->safe_psql('postgres', $same), '', 'promoted');
$standby->safe_psql('postgres', "UPDATE $_ SET s = 'new' WHERE n = 1 AND id > 1000000") for 'h', 'z';
is($standby->safe_psql('postgres', $same), '', 'promoted, and the change whose entry was missing is made again');
$standby->safe_psql('postgres', q{UPDATE h SET s = 'new' WHERE id % 4 = 0; UPDATE z SET s = 'new' WHERE id % 4 = 0});
is($standby->safe_psql('postgres', $same), '', 'promoted, and changed');
$standby->stop;
done_testing();
