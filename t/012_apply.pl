# The apply worker of logical replication writes zheap tables. It finds rows through an
# index or, with REPLICA IDENTITY FULL, by comparing them; it updates without a snapshot;
# and it fetches the old row of a table with foreign keys although no trigger fires. It
# adds the entries of zbtree indexes of the subscriber, and on 18 it finds rows through
# them (ZBTREE-3, ZBTREE-4). It waits for a local change of the row that it
# looks for (SCAN-7), finds one that changes while it reads the page (SCAN-7b), and does
# not take a changed row for the one that it has found (DML-15). The test also shows which
# changes a publication of all tables does not contain.
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $publisher = zundo_node('publisher', "logical_decoding_work_mem = 64kB\nautovacuum = on\n", allows_streaming => 'logical');
my $subscriber = zundo_node('subscriber', <<'C');
wal_consistency_checking = 'all'
max_logical_replication_workers = 8
max_worker_processes = 16
autovacuum = on
C

my $tables = q{
	CREATE TABLE keyed (id int PRIMARY KEY, n int, pad text);
	CREATE INDEX keyed_n ON keyed (n);
	CREATE TABLE keyless (a int, b text, c numeric);
	ALTER TABLE keyless REPLICA IDENTITY FULL;
	CREATE TABLE indexed (a int, b int);
	CREATE INDEX indexed_a ON indexed (a);
	ALTER TABLE indexed REPLICA IDENTITY FULL;
	CREATE TABLE by_index (code text NOT NULL, v int);
	CREATE UNIQUE INDEX by_index_code ON by_index (code);
	ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_code;
	CREATE TABLE wanted (a int, b int);
	ALTER TABLE wanted REPLICA IDENTITY FULL;
	CREATE TABLE wanted_by_index (a int, b int);
	CREATE INDEX wanted_a ON wanted_by_index (a);
	ALTER TABLE wanted_by_index REPLICA IDENTITY FULL;
	CREATE TABLE wanted_by_keys (a int, b int);
	ALTER TABLE wanted_by_keys REPLICA IDENTITY FULL;
	CREATE TABLE wanted_on_heap (a int, b int) USING heap;
	ALTER TABLE wanted_on_heap REPLICA IDENTITY FULL;
	CREATE TYPE slow AS (v int);
	CREATE FUNCTION slow_equal(slow, slow) RETURNS bool LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock_shared(77, ($1).v);
		RETURN ($1).v = ($2).v;
	END $$;
	CREATE OPERATOR = (LEFTARG = slow, RIGHTARG = slow, FUNCTION = slow_equal);
	CREATE OPERATOR CLASS slow_ops DEFAULT FOR TYPE slow USING btree AS OPERATOR 3 =;
	CREATE TABLE passed (s slow, id int, n int);
	ALTER TABLE passed REPLICA IDENTITY FULL;
	CREATE TABLE passed_on_heap (s slow, id int, n int) USING heap;
	ALTER TABLE passed_on_heap REPLICA IDENTITY FULL;
	CREATE TABLE referring (id int REFERENCES keyed DEFERRABLE, code text REFERENCES by_index (code));
	CREATE TABLE parted (id int, n int, PRIMARY KEY (id)) PARTITION BY RANGE (id);
	CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (100);
	CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (100) TO (1000);
};
$publisher->safe_psql('postgres', $tables);
$publisher->safe_psql('postgres', q{INSERT INTO keyed SELECT g, g % 10, repeat('p', g % 100) FROM generate_series(1, 500) g});
$subscriber->safe_psql('postgres', 'CREATE EXTENSION zundo');
$subscriber->safe_psql('postgres', "SET default_table_access_method = zheap; $tables");
$subscriber->safe_psql(
	'postgres', q{
	CREATE TABLE seen (op text, old text, new text) USING zheap;
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.seen VALUES (tg_op, CASE WHEN tg_op <> 'INSERT' THEN old::text END,
								 CASE WHEN tg_op <> 'DELETE' THEN new::text END);
		RETURN NULL;
	END $$;
	CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON by_index FOR EACH ROW EXECUTE FUNCTION note();
	ALTER TABLE by_index ENABLE ALWAYS TRIGGER note;
	CREATE INDEX keyed_zn ON keyed USING zbtree (n DESC, id);
	CREATE INDEX keyless_zb ON keyless USING zbtree (b, a) INCLUDE (c);
	CREATE INDEX keyless_zc ON keyless USING zbtree (c DESC);
	CREATE INDEX by_index_zv ON by_index USING zbtree (v);
	CREATE INDEX parted_zn ON parted USING zbtree (n);
	CREATE INDEX wanted_zb ON wanted_by_keys USING zbtree (b);
});
my $connect = $publisher->connstr . ' dbname=postgres';
$publisher->safe_psql('postgres', 'CREATE PUBLICATION p FOR TABLE keyed, keyless, indexed, by_index, parted, wanted, wanted_by_index, wanted_by_keys, wanted_on_heap, passed, passed_on_heap');
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION s CONNECTION '$connect' PUBLICATION p WITH (streaming = on)");
$subscriber->wait_for_subscription_sync($publisher, 's') if $subscriber->can('wait_for_subscription_sync');
$subscriber->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_subscription_rel WHERE srsubstate NOT IN ('r', 's')})
	or die 'the first copy did not end';

my $state = q{
	SELECT count(*), sum(id), sum(n), md5(string_agg(keyed::text, ',' ORDER BY id)) FROM keyed;
	SELECT count(*), md5(string_agg(keyless::text, ',' ORDER BY keyless::text)) FROM keyless;
	SELECT count(*), md5(string_agg(indexed::text, ',' ORDER BY b)) FROM indexed;
	SELECT count(*), md5(string_agg(by_index::text, ',' ORDER BY code)) FROM by_index;
	SELECT count(*), md5(string_agg(parted::text, ',' ORDER BY id)) FROM parted;
};
# the subscriber reads these from its zbtree indexes
my @by_index = (
	'SELECT n, id FROM keyed WHERE n >= 0 ORDER BY n DESC, id',
	q{SELECT b, a, c FROM keyless WHERE b > '' ORDER BY b, a},
	'SELECT c FROM keyless WHERE c >= 0 ORDER BY c DESC',
	'SELECT v FROM by_index WHERE v >= 0 ORDER BY v',
	'SELECT n FROM parted WHERE n >= 0 ORDER BY n');
my $ordered = join ';', 'SET enable_seqscan = off', 'SET enable_bitmapscan = off', 'SET enable_sort = off',
	map { "SELECT count(*), md5(string_agg(q::text, ',')) FROM ($_) q" } @by_index;
my $faults = q{SELECT c.relname, f.* FROM pg_class c JOIN pg_am a ON a.oid = c.relam, zundo.check_index(c.oid) f
	WHERE amname = 'zbtree' AND relkind = 'i'};

sub same
{
	my ($what) = @_;
	$publisher->wait_for_catchup('s');
	is($subscriber->safe_psql('postgres', $state), $publisher->safe_psql('postgres', $state), "$what: the same rows");
	is($subscriber->safe_psql('postgres', $ordered), $publisher->safe_psql('postgres', $ordered), "$what: the same by zbtree indexes");
	is($subscriber->safe_psql('postgres', $faults), '', "$what: sound zbtree indexes");
	return;
}

same('first copy');
$publisher->safe_psql(
	'postgres', q{
	INSERT INTO keyless SELECT g, repeat('b', g), g / 7.0 FROM generate_series(1, 60) g;
	INSERT INTO keyless VALUES (1, 'twin', NULL), (1, 'twin', NULL);
	INSERT INTO indexed SELECT g % 5, g FROM generate_series(1, 20) g;
	INSERT INTO by_index SELECT 'code ' || g, g FROM generate_series(1, 20) g;
	INSERT INTO parted SELECT g, 0 FROM generate_series(1, 300, 7) g;
});
same('insertions');
my $plans = $subscriber->safe_psql('postgres', join ';', 'SET enable_seqscan = off', 'SET enable_bitmapscan = off',
	'SET enable_sort = off', map { "EXPLAIN (COSTS OFF) $_" } @by_index);
like($plans, qr/using $_/, "$_ is used") foreach qw(keyed_zn keyless_zb keyless_zc by_index_zv parted_1_n_idx);
$subscriber->safe_psql('postgres', q{CREATE TABLE place USING heap AS SELECT tableoid AS part, id, ctid AS row FROM parted});
$publisher->safe_psql(
	'postgres', q{
	UPDATE keyed SET pad = pad || 'x' WHERE id % 3 = 0;
	UPDATE keyed SET n = n + 100 WHERE id % 7 = 0;
	UPDATE keyed SET id = id + 100000 WHERE id % 11 = 0;
	UPDATE keyless SET b = b || '!' WHERE a % 2 = 0;
	UPDATE keyless SET c = NULL WHERE a = 3;
	UPDATE by_index SET v = v + 1;
	UPDATE by_index SET code = code || ' new' WHERE v % 4 = 0;
	UPDATE parted SET n = 1;
	UPDATE parted SET id = id + 200 WHERE id < 50;
});
same('updates');
is($subscriber->safe_psql('postgres', q{SELECT count(*), count(*) FILTER (WHERE p.ctid = row AND n = 1)
	FROM parted p JOIN place b ON b.id = p.id AND part = p.tableoid WHERE p.id BETWEEN 50 AND 99 OR p.id > 250}), '15|15', 'rows stay in place');
$publisher->safe_psql(
	'postgres', q{
	BEGIN;
	UPDATE keyed SET n = 1 WHERE id = 5;
	UPDATE keyed SET n = 2 WHERE id = 5;
	SAVEPOINT a;
	DELETE FROM keyed WHERE id = 5;
	ROLLBACK TO a;
	UPDATE keyed SET n = 3 WHERE id = 5;
	DELETE FROM keyless WHERE b = 'twin' AND ctid = (SELECT min(ctid) FROM keyless WHERE b = 'twin');
	COMMIT;
	DELETE FROM keyed WHERE id % 13 = 0;
	DELETE FROM by_index WHERE v > 15;
	DELETE FROM parted WHERE id % 2 = 0;
});
same('several changes of a row, deletions');

# Large values are sent only if they have changed.
$publisher->safe_psql(
	'postgres', q{
	UPDATE keyed SET pad = (SELECT string_agg(md5(g::text), '') FROM generate_series(1, 400) g) WHERE id = 8;
	UPDATE keyed SET n = 77 WHERE id = 8;
});
same('values in the TOAST table');

# A transaction that is streamed before its end, and one that is streamed and rolled back.
$publisher->safe_psql(
	'postgres', q{
	BEGIN;
	INSERT INTO keyed SELECT g, 1, 'streamed' FROM generate_series(200000, 204000) g;
	UPDATE keyed SET n = 2 WHERE id BETWEEN 200000 AND 201000;
	SAVEPOINT a;
	DELETE FROM keyed WHERE id > 200000;
	ROLLBACK TO a;
	COMMIT;
	BEGIN;
	INSERT INTO keyed SELECT g, 1, 'not to be seen' FROM generate_series(300000, 304000) g;
	ROLLBACK;
});
same('streamed transactions');

# The publisher also changes zheap tables, with values out of line, that are not published.
$publisher->safe_psql('postgres', q{CREATE EXTENSION zundo; CREATE TABLE own (id int PRIMARY KEY, v text) USING zheap; ALTER TABLE own ALTER v SET STORAGE EXTERNAL});
$publisher->safe_psql(
	'postgres', q{
	BEGIN;
	INSERT INTO own SELECT g, repeat('own', 5000) FROM generate_series(1, 100) g;
	DELETE FROM keyless WHERE a = 5;
	UPDATE own SET v = v || 'more';
	UPDATE keyed SET n = n + 1 WHERE id < 5;
	INSERT INTO keyed SELECT g, 1, 'streamed' FROM generate_series(400000, 404000) g;
	DELETE FROM own;
	DELETE FROM keyed WHERE id >= 400000;
	SAVEPOINT a;
	INSERT INTO own VALUES (1, repeat('own', 5000));
	ROLLBACK TO a;
	UPDATE keyed SET pad = pad || repeat('t', 9000) WHERE id = 7;
	COMMIT});
same('beside unpublished zheap tables');

# Beside local readers and writers of the same rows.
my $local = $subscriber->background_psql('postgres');
$local->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
my $before = $local->query_safe('SELECT sum(n) FROM keyed');
$publisher->safe_psql('postgres', 'UPDATE keyed SET n = n + 1; DELETE FROM keyed WHERE id > 203000');
same('beside an old snapshot');
is($local->query_safe('SELECT sum(n) FROM keyed'), $before, 'the old snapshot sees what it saw');
$local->query_safe('COMMIT');
$local->query_safe('BEGIN');
$local->query_safe(q{UPDATE keyed SET pad = 'local' WHERE id = 1});
$publisher->safe_psql('postgres', q{UPDATE keyed SET pad = 'remote' WHERE id = 1});
ok($subscriber->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_type LIKE 'logical replication%'}), 'the apply worker waits for a local writer');
$local->query_safe('ROLLBACK');
same('after a local writer rolled back');
# ... and waits for one that has given the row other values than those which it looks for
for my $case (
	['other keys', q{UPDATE keyless SET b = 'local', c = -1 WHERE a = 7}, q{UPDATE keyless SET b = 'remote', c = 70 WHERE a = 7}],
	['other columns', 'UPDATE indexed SET b = -1 WHERE b = 6', 'UPDATE indexed SET b = 60 WHERE b = 6'])
{
	my ($what, $local_change, $change) = @$case;
	$local->query_safe("BEGIN; $local_change");
	$publisher->safe_psql('postgres', $change);
	ok($subscriber->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_type LIKE 'logical replication%'}), "the apply worker waits for a local writer of $what");
	$local->query_safe('ROLLBACK');
	same("after a local writer of $what rolled back");
}
# The worker has found the row, and waits for a lock on it. Then the locker gives the row
# other values: the worker must search again, and finds no such row any more (DML-15).
for my $table (qw(wanted_on_heap wanted wanted_by_index wanted_by_keys))
{
	$publisher->safe_psql('postgres', "INSERT INTO $table VALUES (1, 1), (2, 2)");
	$publisher->wait_for_catchup('s');
	for my $case ([1, "DELETE FROM $table WHERE a = 1"], [2, "UPDATE $table SET b = 20 WHERE a = 2"])
	{
		my ($row, $change) = @$case;
		$local->query_safe("BEGIN; SELECT * FROM $table WHERE a = $row FOR UPDATE");
		$publisher->safe_psql('postgres', $change);
		ok($subscriber->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_type LIKE 'logical replication%'}), "the apply worker waits for a lock on a row of $table");
		$local->query_safe("UPDATE $table SET b = b + 100 WHERE a = $row; COMMIT");
		$publisher->wait_for_catchup('s');
	}
	is($subscriber->safe_psql('postgres', "SELECT string_agg(t::text, ' ' ORDER BY a) FROM $table t"), '(1,101) (2,102)', "$table: the rows that the locker has changed are not the ones that the worker looks for");
}
# The row that the worker looks for is neither the newest version nor the last committed
# one, but one in between, which a rollback to a savepoint makes the newest again: the
# worker must wait (SCAN-7).
for my $table (qw(wanted_on_heap wanted wanted_by_index wanted_by_keys))
{
	$publisher->safe_psql('postgres', "INSERT INTO $table VALUES (3, 1), (4, 1)");
	$publisher->wait_for_catchup('s');
	$local->query_safe("UPDATE $table SET b = 0 WHERE a = 3; DELETE FROM $table WHERE a = 4");
	for my $case (
		["UPDATE $table SET b = 1 WHERE a = 3", 3, "UPDATE $table SET b = 101 WHERE a = 3"],
		["INSERT INTO $table VALUES (4, 1)", 4, "DELETE FROM $table WHERE a = 4"])
	{
		my ($local_change, $row, $change) = @$case;
		$local->query_safe("BEGIN; $local_change; SAVEPOINT s; UPDATE $table SET b = 2 WHERE a = $row; UPDATE $table SET b = 3 WHERE a = $row");
		$publisher->safe_psql('postgres', $change);
		ok($subscriber->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_type LIKE 'logical replication%'}), "the apply worker waits beside a version of row $row of $table in the middle");
		$local->query_safe('ROLLBACK TO s; COMMIT');
		$publisher->wait_for_catchup('s');
	}
	is($subscriber->safe_psql('postgres', "SELECT string_agg(t::text, ' ' ORDER BY a) FROM $table t WHERE a > 2"), '(3,101)', "$table: the worker finds the version that a rollback to a savepoint has made the newest again");
}
$local->query_safe('BEGIN; SELECT * FROM keyed WHERE id = 2 FOR UPDATE');
$publisher->safe_psql('postgres', q{UPDATE keyed SET pad = 'remote' WHERE id = 2});
ok($subscriber->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_type LIKE 'logical replication%'}), 'the apply worker waits for a lock on a row with a key');
$local->query_safe('UPDATE keyed SET n = -1 WHERE id = 2; COMMIT');
same('after a locker that has changed the row with the key');
# The worker compares the columns of one row after another; when it comes to a certain
# row, it waits in the comparison function. Meanwhile a row that it has not read yet moves
# to the end of the page, or one that it has passed gets the values that it looks for
# (SCAN-7b).
for my $table (qw(passed_on_heap passed))
{
	$publisher->safe_psql('postgres', "INSERT INTO $table SELECT ROW(g)::slow, g, g FROM generate_series(1, 6) g");
	$publisher->wait_for_catchup('s');
	$local->query_safe("UPDATE $table SET n = -2 WHERE id = 2");
	for my $case (
		[1, 4, 'moves', "BEGIN; SET LOCAL zundo.move_updates = on; UPDATE $table SET n = n WHERE id = 4; COMMIT"],
		[5, 2, 'gets the values', "UPDATE $table SET n = 2 WHERE id = 2"])
	{
		my ($place, $row, $what, $change) = @$case;
		$local->query_safe("SELECT pg_advisory_lock(77, $place)");
		$publisher->safe_psql('postgres', "UPDATE $table SET n = n + 100 WHERE id = $row");
		ok($subscriber->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'advisory' AND backend_type LIKE 'logical replication%'}), "the apply worker waits at row $place of $table");
		$local->query_safe($change);
		$local->query_safe('SELECT pg_advisory_unlock_all()');
		$publisher->wait_for_catchup('s');
		is($subscriber->safe_psql('postgres', "SELECT n FROM $table WHERE id = $row"), 100 + $row, "$table: the worker finds a row that $what");
	}
}
$local->quit;

# Triggers of the subscriber saw every version.
is($subscriber->safe_psql('postgres', q{
	SELECT op, count(*), count(old), count(new), count(*) FILTER (WHERE old = new) FROM seen GROUP BY op ORDER BY op}),
	"DELETE|6|6|0|0\nINSERT|20|0|20|0\nUPDATE|25|25|25|0", 'OLD and NEW of triggers under replication');
$publisher->safe_psql('postgres', 'TRUNCATE keyless, parted');
same('TRUNCATE');
for my $table (qw(keyed keyless by_index parted_1 parted_2 wanted wanted_by_index wanted_by_keys passed seen zundo.undo_log))
{
	is($subscriber->safe_psql('postgres', "SELECT * FROM zundo.check('$table')"), '', "zundo.check of $table");
}
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION s');

# Publications of zheap tables are tested in t/017_published.
$publisher->safe_psql('postgres', 'CREATE TABLE mine (id int PRIMARY KEY) USING zheap; INSERT INTO mine VALUES (1), (2)');

# A publication of all tables: the new relations of rewrites and of REFRESH are not
# published, nor are materialized views, temporary and unlogged tables.
$publisher->safe_psql('postgres', 'CREATE TABLE heaped (id int) USING heap; INSERT INTO heaped VALUES (1), (2); CREATE PUBLICATION q FOR ALL TABLES');
is($publisher->safe_psql('postgres', q{SELECT count(*) FROM pg_publication_tables WHERE schemaname = 'zundo'}), '0', 'the undo log is not published');
$publisher->safe_psql('postgres', q{
	SET default_table_access_method = zheap;
	ALTER TABLE mine ADD COLUMN r float DEFAULT random();
	ALTER TABLE mine ALTER id TYPE bigint;
	VACUUM FULL mine;
	CLUSTER mine USING mine_pkey;
	CREATE MATERIALIZED VIEW seen_mine AS SELECT id FROM mine;
	REFRESH MATERIALIZED VIEW seen_mine;
	CREATE UNIQUE INDEX ON seen_mine (id);
	REFRESH MATERIALIZED VIEW CONCURRENTLY seen_mine;
	CREATE TEMP TABLE passing AS SELECT id FROM mine;
	CREATE UNLOGGED TABLE unlogged AS SELECT id FROM mine;
	ALTER TABLE mine SET ACCESS METHOD heap;
	UPDATE mine SET id = 5 WHERE id = 1;
	ALTER TABLE mine SET ACCESS METHOD zheap;
	ALTER TABLE heaped SET ACCESS METHOD zheap});
is($publisher->safe_psql('postgres', 'DROP PUBLICATION q; UPDATE mine SET id = id + 1; REFRESH MATERIALIZED VIEW seen_mine; SELECT string_agg(id::text, \',\' ORDER BY id) FROM seen_mine'),
	'3,6', 'rows after rewrites beside a publication of all tables');
$subscriber->stop;
$publisher->stop;
done_testing();
