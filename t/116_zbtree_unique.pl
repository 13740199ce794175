# Unique zbtree indexes (ZBTREE-19, ZBTREE-20): from 18 on. The same statements on a heap
# table with btree indexes must give the same rows, errors and notices. Then what heap has
# not: errors and crashes between the change of a row and that of its index, two rows that
# get back a key at the same time, a subscriber with such an index as replica identity.
# sql/constraints has constraints with such indexes, isolation/specs/unique-in-place the
# outcomes of the search for duplicates.
# newest
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $subscriber = zundo_node('subscriber');
my $node = zundo_node('unique', "zundo.key_queue = 0\nmax_prepared_transactions = 5\nrestart_after_crash = on\n", allows_streaming => 'logical');
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');
if (server_major() < 18)
{
	my ($rc, $out, $err) = $node->psql('postgres', 'CREATE TABLE t (k int) USING zheap; CREATE UNIQUE INDEX ON t USING zbtree (k)');
	like($err, qr/access method "zbtree" does not support unique indexes/, 'no unique index');
	is(sql(q{SELECT pg_indexam_has_property(oid, 'can_unique') FROM pg_am WHERE amname = 'zbtree'}), 'f', 'as its properties say');
	done_testing();
	exit;
}

my $faults = q{SELECT k.relname, f.* FROM pg_class k JOIN pg_am a ON a.oid = k.relam AND a.amname = 'zbtree', zundo.check_index(k.oid) f WHERE k.relkind = 'i'};

# Tests that the statements, in which AM and METHOD are access methods, do the same on heap
# and on zheap.
sub same
{
	my ($what, $sql) = @_;
	my @answers = map {
		my ($am, $method) = @$_;
		my $text = "\\set VERBOSITY terse\nSET client_min_messages = warning; DROP SCHEMA IF EXISTS u CASCADE; CREATE SCHEMA u; SET search_path = u; RESET client_min_messages; $sql";
		$text =~ s/\bAM\b/$am/g;
		$text =~ s/\bMETHOD\b/$method/g;
		my ($rc, $out, $err) = $node->psql('postgres', $text, on_error_stop => 0);
		$err =~ s/^psql:<stdin>:\d+: //gm;
		"$out\n$err";
	} (['heap', 'btree'], ['zheap', 'zbtree']);
	is($answers[1], $answers[0], $what);
	is(sql($faults), '', "$what: sound");
	return $answers[1];
}

like(
	same('statements that change several rows', q{
	CREATE TABLE m (id int, k int, v text) USING AM; CREATE UNIQUE INDEX mk ON m USING METHOD (k) INCLUDE (v); INSERT INTO m SELECT g, g, 'a' FROM generate_series(1, 8) g;
	UPDATE m SET k = k + 1; -- 23505
	UPDATE m SET k = k + 100; UPDATE m SET k = k - 100; UPDATE m SET k = -k; UPDATE m SET k = -k;
	INSERT INTO m VALUES (20, 1, 'x'), (21, 50, 'y') ON CONFLICT (k) DO UPDATE SET k = 50; -- a second time
	INSERT INTO m VALUES (20, 1, 'x'), (21, 1, 'y') ON CONFLICT (k) DO UPDATE SET k = 60; -- the key is free again
	INSERT INTO m VALUES (22, 2, 'x'), (23, 2, 'y') ON CONFLICT (k) DO NOTHING;
	WITH u AS (UPDATE m SET k = 70 WHERE k = 3 RETURNING *) INSERT INTO m SELECT 30, 3, 'w' FROM u;
	WITH u AS (UPDATE m SET k = 71 WHERE k = 4 RETURNING *) INSERT INTO m SELECT 31, 71, 'w' FROM u;
	WITH u AS (UPDATE m SET k = 72 WHERE k = 5 RETURNING *) INSERT INTO m SELECT 32, 5, 'w' FROM u ON CONFLICT (k) DO UPDATE SET v = 'upd' RETURNING *;
	MERGE INTO m USING (VALUES (6, 80), (81, 6)) s(f, t) ON m.k = s.f WHEN MATCHED THEN UPDATE SET k = s.t WHEN NOT MATCHED THEN INSERT VALUES (99, s.f, 'm');
	SELECT * FROM m ORDER BY id, k;
	BEGIN; UPDATE m SET k = 9 WHERE id = 8; SAVEPOINT s; UPDATE m SET k = 10 WHERE id = 8; INSERT INTO m VALUES (40, 8, 's'), (41, 9, 's'); ROLLBACK TO s; INSERT INTO m VALUES (42, 8, 's'), (43, 9, 's');
	ROLLBACK; SELECT * FROM m WHERE k BETWEEN 7 AND 10 ORDER BY k;}),
	qr/duplicate key value violates unique constraint "mk"/, 'a duplicate is refused');

same('foreign keys that follow a key in place, and their triggers', q{
	CREATE TABLE m (id int, k int, v text) USING AM; CREATE UNIQUE INDEX mk ON m USING METHOD (k); INSERT INTO m SELECT g, g, 'a' FROM generate_series(1, 8) g;
	CREATE TABLE c (k int PRIMARY KEY REFERENCES m (k) ON UPDATE CASCADE ON DELETE CASCADE) USING AM;
	CREATE TABLE n (k int REFERENCES m (k) ON UPDATE SET NULL DEFERRABLE INITIALLY DEFERRED) USING AM;
	CREATE TABLE d (k int REFERENCES m (k) DEFERRABLE INITIALLY DEFERRED) USING AM;
	INSERT INTO c SELECT k FROM m; INSERT INTO n VALUES (3), (4); UPDATE m SET k = k + 1000; SELECT count(*), sum(k) FROM c; SELECT k FROM n ORDER BY 1;
	UPDATE m SET k = k - 1000 WHERE k % 2 = 0; SELECT count(*), sum(k) FROM c;
	INSERT INTO d VALUES (2); BEGIN; UPDATE m SET k = 99 WHERE k = 2; UPDATE m SET k = 98 WHERE k = 99; COMMIT;
	BEGIN; UPDATE m SET k = 99 WHERE k = 2; UPDATE m SET k = 2 WHERE k = 4; COMMIT; SELECT * FROM d; INSERT INTO d VALUES (4);
	DELETE FROM m WHERE k > 1000; SELECT count(*), sum(k) FROM c;
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '% % -> %', TG_OP, OLD.k, NEW.k; RETURN NEW; END $$;
	CREATE TRIGGER note AFTER UPDATE ON m FOR EACH ROW EXECUTE FUNCTION note(); UPDATE m SET k = k + 5 WHERE k = 6;
	CREATE TABLE s (id int, boss int) USING AM; CREATE UNIQUE INDEX sk ON s USING METHOD (id); ALTER TABLE s ADD FOREIGN KEY (boss) REFERENCES s (id) ON UPDATE CASCADE;
	INSERT INTO s VALUES (1, NULL), (2, 1), (3, 2), (4, 4); UPDATE s SET id = id + 10; SELECT * FROM s ORDER BY id; UPDATE s SET boss = 12 WHERE id = 14; UPDATE s SET boss = 99 WHERE id = 14;});

same('several columns, nulls, expressions, predicates, types', q{
	CREATE TABLE m (a int, b text, c numeric) USING AM; CREATE UNIQUE INDEX ON m USING METHOD (b, c) NULLS NOT DISTINCT; CREATE UNIQUE INDEX ON m USING METHOD (lower(b)) WHERE a > 5;
	CREATE UNIQUE INDEX ON m USING METHOD (a) WHERE c IS NOT NULL; CREATE UNIQUE INDEX ON m USING METHOD (a DESC, b);
	INSERT INTO m VALUES (1, 'A', 1.0), (2, NULL, NULL); INSERT INTO m VALUES (3, NULL, NULL); INSERT INTO m VALUES (4, 'A', 1.00);
	UPDATE m SET c = 1.000 WHERE a = 1; UPDATE m SET b = NULL, c = NULL WHERE a = 1; INSERT INTO m VALUES (6, 'x', 2), (7, 'y', 2); UPDATE m SET b = 'X' WHERE a = 7; UPDATE m SET a = 5, b = 'X' WHERE a = 7;
	UPDATE m SET a = 7 WHERE a = 5; UPDATE m SET a = 6, c = NULL WHERE a = 5; UPDATE m SET c = 9 WHERE b = 'X'; UPDATE m SET a = 2, b = NULL WHERE a = 7; INSERT INTO m VALUES (2, NULL, 5), (2, NULL, 5);
	SELECT * FROM m ORDER BY 1, 2, 3;
	CREATE TABLE l (k text) USING AM; CREATE UNIQUE INDEX lk ON l USING METHOD (k); INSERT INTO l SELECT string_agg(md5(g::text), '') FROM generate_series(1, 80) g;
	INSERT INTO l SELECT string_agg(md5(g::text), '') FROM generate_series(1, 80) g; UPDATE l SET k = 'short'; INSERT INTO l VALUES ('short'); UPDATE l SET k = repeat('long', 3000);
	INSERT INTO l VALUES ('short'); INSERT INTO l VALUES (repeat('long', 3000)); UPDATE l SET k = repeat('long', 3000); SELECT length(k) FROM l ORDER BY 1;});

same('indexes that are built and rebuilt', q{
	CREATE TABLE m (id int, k int) USING AM; CREATE UNIQUE INDEX mk ON m USING METHOD (k); INSERT INTO m SELECT g, g FROM generate_series(1, 500) g;
	UPDATE m SET k = -k; UPDATE m SET k = -k + 1000 WHERE id % 2 = 0; INSERT INTO m SELECT g, g FROM generate_series(501, 600) g;
	REINDEX INDEX mk; INSERT INTO m VALUES (0, 1002); INSERT INTO m VALUES (0, 2), (0, -2), (0, 1); UPDATE m SET k = 9999 WHERE id = 1; UPDATE m SET k = 1 WHERE id = 1; UPDATE m SET k = 1 WHERE id = 3;
	REINDEX INDEX CONCURRENTLY mk; UPDATE m SET k = 3 WHERE id = 1; VACUUM m; UPDATE m SET k = -3 WHERE id = 5; VACUUM FULL m; INSERT INTO m VALUES (0, 3);
	DROP INDEX mk; INSERT INTO m VALUES (0, 3); CREATE UNIQUE INDEX mk ON m USING METHOD (k); CREATE UNIQUE INDEX CONCURRENTLY mk ON m USING METHOD (k); SELECT indisvalid FROM pg_index WHERE indrelid = 'm'::regclass;
	DROP INDEX mk; UPDATE m SET k = 77777 WHERE id = 0 AND k = 3; CREATE UNIQUE INDEX CONCURRENTLY mk ON m USING METHOD (k); INSERT INTO m VALUES (0, 77777); INSERT INTO m VALUES (0, 77778), (0, 77779);
	SELECT indisvalid FROM pg_index WHERE indrelid = 'm'::regclass; SELECT count(*), sum(k), count(DISTINCT k) FROM m;});

same('materialized views, serializable transactions', q{
	CREATE TABLE m (id int, k int) USING AM; CREATE UNIQUE INDEX mk ON m USING METHOD (k); INSERT INTO m SELECT g, g FROM generate_series(1, 20) g;
	CREATE MATERIALIZED VIEW v USING AM AS SELECT * FROM m; CREATE UNIQUE INDEX vk ON v USING METHOD (k); UPDATE m SET k = k + 100 WHERE id % 3 = 0; DELETE FROM m WHERE id = 7; REFRESH MATERIALIZED VIEW CONCURRENTLY v;
	SELECT count(*), sum(k) FROM v; UPDATE m SET id = -1 WHERE id = 1; UPDATE m SET k = k - 100 WHERE k > 100; REFRESH MATERIALIZED VIEW CONCURRENTLY v; SELECT count(*), sum(k), sum(id) FROM v;
	BEGIN ISOLATION LEVEL SERIALIZABLE; UPDATE m SET k = 50 WHERE id = 2; INSERT INTO m VALUES (51, 2); SAVEPOINT s; INSERT INTO m VALUES (52, 50); ROLLBACK TO s; UPDATE m SET k = 2 WHERE id = 2; ROLLBACK;
	CLUSTER m USING mk; INSERT INTO m VALUES (99, 2); SELECT count(*), sum(k) FROM m;});

same('partitions', q{
	CREATE TABLE p (id int, k int, v text) PARTITION BY RANGE (k); CREATE UNIQUE INDEX pk ON p USING METHOD (k); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100) USING AM;
	CREATE TABLE p2 (id int, k int, v text) USING AM; CREATE UNIQUE INDEX p2k ON p2 USING METHOD (k); ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (100) TO (200);
	INSERT INTO p SELECT g, g * 10, 'a' FROM generate_series(0, 19) g; UPDATE p SET k = k + 1; INSERT INTO p VALUES (1, 11, 'b'), (2, 10, 'b'); INSERT INTO p VALUES (2, 10, 'b');
	UPDATE p SET k = 191 WHERE k = 21; UPDATE p SET k = 195 WHERE k = 21;
	INSERT INTO p VALUES (77, 195, 'n'), (78, 21, 'n') ON CONFLICT (k) DO UPDATE SET v = 'upsert', k = excluded.k + 1 RETURNING *; SELECT tableoid::regclass, * FROM p ORDER BY k;
	CREATE TABLE r (k int REFERENCES p (k) ON UPDATE CASCADE) USING AM; INSERT INTO r VALUES (31), (196); UPDATE p SET k = 197 WHERE k = 196; UPDATE p SET k = 38 WHERE k = 31; SELECT * FROM r ORDER BY 1;});
is(sql(q{SELECT count(*) FROM pg_class k JOIN pg_am a ON a.oid = k.relam WHERE relname IN ('pk', 'p2k', 'p1_k_idx') AND amname = 'zbtree'}), '3', 'the indexes of partitions are zbtree');

# the row stays in place, and no other index gets an entry
sql(q{CREATE TABLE w (id int, k int, a int) USING zheap; CREATE UNIQUE INDEX w_k ON w USING zbtree (k) INCLUDE (a); CREATE INDEX w_a ON w (id); INSERT INTO w SELECT g, g, 0 FROM generate_series(1, 100) g;
	UPDATE w SET k = k + 1000; UPDATE w SET a = 1; UPDATE w SET k = k - 1000});
is(sql(q{SELECT count(*), count(DISTINCT ctid), max(split_part(trim(ctid::text, '()'), ',', 2)::int) <= 100 FROM w}), '100|100|t', 'rows keep their places');
like(sql(q{ANALYZE w; EXPLAIN (COSTS OFF) SELECT x.id FROM w x LEFT JOIN w y ON y.k = x.a}), qr/^Seq Scan on w x$/, 'the planner knows that the index is unique');

# what the server and the extension refuse
sql(q{CREATE TABLE x (k int, UNIQUE (k)) USING zheap; CREATE TABLE y (LIKE w INCLUDING ALL) USING zheap});
is(sql(q{SELECT relname, amname FROM pg_class k JOIN pg_am a ON a.oid = k.relam WHERE relname IN ('x_k_key', 'y_k_a_idx') ORDER BY 1}), "x_k_key|btree\ny_k_a_idx|zbtree",
	'the index of a constraint is btree, that of LIKE is as it was');
is(sql(q{CREATE TABLE y2 (LIKE w INCLUDING ALL) USING heap; SELECT count(*) > 0 AND bool_and(amname = 'btree') FROM pg_index JOIN pg_class k ON k.oid = indexrelid JOIN pg_am a ON a.oid = relam WHERE indrelid = 'y2'::regclass}), 't',
	'a heap table that is LIKE another has btree indexes');
for my $t (
	[q{CREATE TABLE y3 (k int) USING heap; CREATE UNIQUE INDEX ON y3 USING zbtree (k)}, 'a heap table'],
	[q{CREATE TABLE q (k int) PARTITION BY RANGE (k); CREATE TABLE q1 PARTITION OF q FOR VALUES FROM (0) TO (9) USING zheap; CREATE TABLE q2 PARTITION OF q FOR VALUES FROM (9) TO (19) USING heap; CREATE UNIQUE INDEX ON q USING zbtree (k)}, 'a heap partition'],
	[q{CREATE TABLE r (k int) PARTITION BY RANGE (k); CREATE UNIQUE INDEX ON r USING zbtree (k); CREATE TABLE r2 (k int) USING heap; ALTER TABLE r ATTACH PARTITION r2 FOR VALUES FROM (9) TO (19)}, 'an attached heap partition'])
{
	my ($rc, $out, $err) = $node->psql('postgres', $t->[0]);
	like($err, qr/cannot use access method "zbtree".*is not a zheap table/s, "$t->[1] is refused");
}
# a type that is binary coercible to another one: its own class, or none
SKIP:
{
	skip 'the server lacks citext of contrib', 6 if !server_has('citext');
	sql('CREATE EXTENSION citext; CREATE TABLE ci (a citext, b citext) USING zheap');
	for ('CREATE UNIQUE INDEX ON ci USING zbtree (a)', 'CREATE UNIQUE INDEX ON ci USING zbtree ((lower(a::text)::citext))')
	{
		like(($node->psql('postgres', $_))[2], qr/operator class "citext_ops" does not exist for access method "zbtree"\nHINT:  Create the class with zundo.mirror_opclass\(\)/, $_);
	}
	for ('ADD UNIQUE (a)', 'ADD c citext UNIQUE')
	{
		like(($node->psql('postgres', "ALTER TABLE ci $_ WITH (access_method = zbtree)"))[2], qr/will use access method "btree".*does not have an operator class of a column/s, "$_ makes a btree index");
	}
	sql(q{SELECT zundo.mirror_opclass('citext_ops'); ALTER TABLE ci ADD UNIQUE (b) WITH (access_method = zbtree); CREATE UNIQUE INDEX ON ci USING zbtree (a text_ops)});
	is(sql(q{SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE relname = 'ci_b_key'}), 'zbtree', 'and with the class of the type zbtree');
	sql(q{INSERT INTO ci VALUES ('a', 'b')});
	like(($node->psql('postgres', q{INSERT INTO ci VALUES ('c', 'B')}))[2], qr/violates unique constraint "ci_b_key"/, 'which compares as the type does');
	sql('DROP EXTENSION citext CASCADE');
}
sql(q{DROP TABLE r, r2; CREATE TABLE r (k int) PARTITION BY RANGE (k); CREATE UNIQUE INDEX r_k ON r USING zbtree (k); CREATE TABLE r2 (k int) USING zheap; CREATE UNIQUE INDEX r2_b ON r2 (k); INSERT INTO r2 VALUES (10);
	ALTER TABLE r ATTACH PARTITION r2 FOR VALUES FROM (9) TO (19)});
is(sql(q{SELECT c.relname, amname FROM pg_index i JOIN pg_class c ON c.oid = indexrelid JOIN pg_am a ON a.oid = c.relam WHERE indrelid = 'r2'::regclass ORDER BY 1}), "r2_b|btree\nr2_k_idx|zbtree", 'a partition gets the index beside its own');

# dump and restore
sql(q{CREATE UNIQUE INDEX w_id ON w USING zbtree (id); CREATE TABLE referring (id int REFERENCES w (id) ON UPDATE CASCADE) USING zheap; INSERT INTO referring VALUES (7); CREATE DATABASE restored TEMPLATE template0});
my $file = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
command_ok(['pg_dump', '-f', $file, '-d', $node->connstr('postgres'), '-e', 'zundo', '-t', 'w', '-t', 'referring'], 'pg_dump');
like(slurp_file($file), qr/CREATE UNIQUE INDEX w_k ON public.w USING zbtree \(k\) INCLUDE \(a\);/, 'a dump has the index');
command_ok(['psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $file, '-d', $node->connstr('restored')], 'it is restored');
is($node->safe_psql('restored', q{UPDATE w SET id = 700 WHERE id = 7; SELECT id FROM referring; SELECT count(*) FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE amname = 'zbtree' AND relname IN ('w_k', 'w_id')}), "700\n2", 'with its foreign key');

# an index that became unique by other means
sql(q{CREATE TABLE z (k int, v int) USING zheap; CREATE INDEX z_k ON z USING zbtree (k); INSERT INTO z SELECT g, 1 FROM generate_series(1, 2000) g; INSERT INTO z VALUES (7, 2), (NULL, 1), (NULL, 1); INSERT INTO z VALUES (1500, 3), (1600, 4);
	UPDATE z SET k = 3000 WHERE v = 3; UPDATE z SET k = 1600 WHERE v = 3; DELETE FROM z WHERE k = 1600 AND v <> 3; UPDATE z SET k = 8 WHERE k = 9; UPDATE pg_index SET indisunique = true WHERE indexrelid = 'z_k'::regclass});
is(sql(q{SELECT f.invariant, i.key, f.detail ~ '^row \(\d+,\d+\) has the same key as another one$' FROM zundo.check_index('z_k') f, zundo.index_items('z_k', f.block) i WHERE i.item = f.item ORDER BY f.block, f.item}),
	"INDEX-8|{7}|t\nINDEX-8|{8}|t", 'check_index finds duplicates');
sql('DROP TABLE z');

# a subscriber finds rows by a primary key with such an index, whose keys change in place
$subscriber->safe_psql('postgres', 'CREATE EXTENSION zundo');
for ($node, $subscriber)
{
	$_->safe_psql('postgres', q{DROP TABLE IF EXISTS r; CREATE TABLE r (id int PRIMARY KEY WITH (access_method = zbtree), k int NOT NULL, v text) USING zheap; CREATE UNIQUE INDEX r_k ON r USING zbtree (k)});
}
$node->safe_psql('postgres', 'INSERT INTO r SELECT g, g, 0 FROM generate_series(1, 50) g; CREATE PUBLICATION p FOR TABLE r');
my $connect = $node->connstr . ' dbname=postgres';
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION s CONNECTION '$connect' PUBLICATION p");
$subscriber->wait_for_subscription_sync($node, 's');
$node->safe_psql('postgres', $_) for 'UPDATE r SET id = id + 100, k = -k', 'UPDATE r SET k = k - 100 WHERE id % 2 = 0', 'DELETE FROM r WHERE id % 7 = 0',
	q{BEGIN; UPDATE r SET id = id - 100 WHERE id < 120; SAVEPOINT s; UPDATE r SET id = id + 500; ROLLBACK TO s; UPDATE r SET k = 3 WHERE id = 1; COMMIT},
	'INSERT INTO r SELECT g, g + 900, g FROM generate_series(1, 150) g ON CONFLICT (id) DO UPDATE SET k = r.k - 1000, v = 1', 'UPDATE r SET k = k + 1000, id = 10000 + id WHERE id % 3 = 1';
# the worker waits for a local transaction that may give the row its key back, or takes it
my $local = session($subscriber);
ask($local, 'BEGIN; UPDATE r SET id = -2 WHERE id = 2; SAVEPOINT s; UPDATE r SET id = -3 WHERE id = -2; UPDATE r SET v = 1');
$node->safe_psql('postgres', q{UPDATE r SET v = 'found' WHERE id = 2});
ok($subscriber->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_type LIKE 'logical replication%'}), 'the apply worker waits');
ask($local, 'ROLLBACK');
$local->quit;
$node->wait_for_catchup('s');
my $content = 'SELECT count(*), sum(id), sum(k), md5(string_agg(r::text, $$,$$ ORDER BY id)) FROM r';
is($subscriber->safe_psql('postgres', $content), $node->safe_psql('postgres', $content), 'the subscriber has the same rows');
is($subscriber->safe_psql('postgres', $faults), '', 'and sound indexes');
is($subscriber->safe_psql('postgres', 'SELECT apply_error_count FROM pg_stat_subscription_stats'), '0', 'without errors');
# a conflict is reported, and not for a row that has lost the key
$subscriber->safe_psql('postgres', 'INSERT INTO r VALUES (70000, 70000, 1); UPDATE r SET id = 70001 WHERE id = 70000');
$node->safe_psql('postgres', 'INSERT INTO r VALUES (70000, 70002, 1)');
$node->wait_for_catchup('s');
is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM r WHERE id IN (70000, 70001)'), '2', 'a key that was given up is no conflict');
$node->safe_psql('postgres', 'INSERT INTO r VALUES (70003, 70000, 1)');
ok($subscriber->wait_for_log(qr/conflict detected on relation "public.r": conflict=insert_exists/), 'a conflict is reported');
$subscriber->safe_psql('postgres', 'DELETE FROM r WHERE id = 70001');
$node->wait_for_catchup('s');
is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM r WHERE id >= 70000'), '2', 'it is solved');
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION s');
no_crash($subscriber);
$subscriber->stop;

SKIP:
{
	skip 'no fault points in this build', 1 if ($node->psql('postgres', q{LOAD 'zundo'; SET zundo.fault = 'keys-due:error'}))[0] != 0;

	# Two rows get back a key that both had before. On heap the second waits for the first;
	# here each finds the other's change, if both come to their checks together: a deadlock,
	# but no duplicate.
	my @row = map { session($node) } 1, 2;
	my $watcher = session($node);
	my @pid = map { ask($_, 'SELECT pg_backend_pid()') } @row;
	ask($_, q{SET deadlock_timeout = '100ms'}) for @row;
	for my $try (1 .. 20)
	{
		$node->safe_psql('postgres', q{DROP TABLE IF EXISTS b; CREATE TABLE b (id int, k int) USING zheap; CREATE UNIQUE INDEX b_k ON b USING zbtree (k); INSERT INTO b VALUES (1, 10), (2, 20);
			UPDATE b SET k = 15 WHERE id = 1; UPDATE b SET k = 16 WHERE id = 1; UPDATE b SET k = 15 WHERE id = 2; UPDATE b SET k = 17 WHERE id = 2});
		ask($_, q{SET zundo.fault = 'key-found:sleep'}) for @row;
		my $caught = 0;
		for my $i (0, 1)
		{
			$row[$i]->query_until(qr/begun/, "\\echo begun\nUPDATE b SET k = 15 WHERE id = $i + 1;\n");
			$caught += ZundoTest::caught($watcher, $pid[$i], 'UPDATE b%');
		}
		kill 'CONT', @pid;
		my @errors = grep { /\S/ } map { ask($_, 'SELECT 1'); $ZundoTest::complaint } @row;
		is(sql('SELECT count(*), count(DISTINCT k) FROM b'), '2|2', "try $try: no duplicate");
		is(scalar(@errors), 1, "try $try: one is refused");
		next if $caught < 2 && $try < 20;
		like($errors[0], qr/deadlock detected/, "try $try: by the deadlock detector");
		last;
	}
	$_->quit for @row;

	# before the check of an entry that was there, scans that might mark it, and VACUUM
	$node->safe_psql('postgres', q{DROP TABLE b; CREATE TABLE b (id int, k int) USING zheap; CREATE UNIQUE INDEX b_k ON b USING zbtree (k); INSERT INTO b SELECT g, g FROM generate_series(1, 50) g; UPDATE b SET k = k + 1000});
	my $writer = session($node);
	my $pid = ask($writer, 'SELECT pg_backend_pid()');
	ask($writer, q{SET zundo.fault = 'key-found:sleep'});
	$writer->query_until(qr/begun/, "\\echo begun\nUPDATE b SET k = 20 WHERE id = 20;\n");
	my $stopped = ZundoTest::caught($watcher, $pid, 'UPDATE b%');
	ask($watcher, q{SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT id FROM b WHERE k < 60}) for 1 .. 3;
	is(ask($watcher, 'SELECT count(*) FROM b WHERE k < 60'), $stopped ? '0' : '1', 'no row is seen by its old key');
	sql('VACUUM (INDEX_CLEANUP on) b');
	is(ask($watcher, 'SELECT count(*) FROM b WHERE k < 60'), $stopped ? '0' : '1', 'nor after VACUUM');
	kill 'CONT', $pid;
	ask($writer, 'SELECT 1');
	is($ZundoTest::complaint, '', 'the check finds the entry');
	is(ask($watcher, 'SELECT id FROM b WHERE k < 60'), '20', 'and scans find the row');
	is(sql($faults), '', 'sound');
	$_->quit for $writer, $watcher;

	# an error, and a crash, between the change of the row and that of the index
	for my $t (['keys-due', 'error'], ['key-found', 'error'], ['keys-due', 'crash'], ['key-found', 'crash'])
	{
		my ($point, $action) = @$t;
		my $name = "$point:$action";
		$node->safe_psql('postgres', q{DROP TABLE IF EXISTS f; CREATE TABLE f (id int, k int) USING zheap; CREATE UNIQUE INDEX f_k ON f USING zbtree (k); INSERT INTO f VALUES (1, 10), (2, 20);
			UPDATE f SET k = 11 WHERE id = 1; UPDATE f SET k = 10 WHERE id = 1});
		my $fails = sub { ($node->psql('postgres', "LOAD 'zundo'; SET zundo.fault = '$name'; UPDATE f SET k = 11 WHERE id = 1"))[0] == 0 };
		ok($action eq 'error' ? !$fails->() : crashes($node, $fails), "$name: reached");
		my ($rc, $out, $err) = $node->psql('postgres', 'INSERT INTO f VALUES (3, 10)');
		like($err, qr/duplicate key/, "$name: the row has its old key");
		sql('INSERT INTO f VALUES (4, 11)');
		($rc, $out, $err) = $node->psql('postgres', 'UPDATE f SET k = 11 WHERE id = 1');
		like($err, qr/duplicate key/, "$name: and cannot get the other one");
		is(sql('SELECT id, k FROM f ORDER BY id'), "1|10\n2|20\n4|11", "$name: the rows");
		is(sql($faults), '', "$name: sound");
	}

	# a transaction in doubt ends as a prepared one after a crash
	sql(q{BEGIN; UPDATE f SET k = 12 WHERE id = 1; SAVEPOINT s; UPDATE f SET k = 13 WHERE id = 1; PREPARE TRANSACTION 'doubt'});
	crash($node);
	my $waiter = session($node);
	my $pid = ask($waiter, 'SELECT pg_backend_pid()');
	$waiter->query_until(qr/begun/, "\\echo begun\nINSERT INTO f VALUES (5, 12);\n");
	ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_locks WHERE pid = $pid AND NOT granted"), 'an older version of a prepared transaction counts');
	sql(q{COMMIT PREPARED 'doubt'});
	ask($waiter, 'SELECT 1');
	is($ZundoTest::complaint, '', 'until it commits');
	is(sql('SELECT id, k FROM f ORDER BY id'), "1|13\n2|20\n4|11\n5|12", 'the rows after it');
	$waiter->quit;
}

# beside more versions than are read while a leaf page is locked, any entry of the row makes others wait
sql(q{CREATE TABLE n (id int, k int) USING zheap; CREATE UNIQUE INDEX n_k ON n USING zbtree (k); INSERT INTO n VALUES (1, 30)});
my ($keeper, $changer) = map { session($node) } 1, 2;
ask($keeper, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM n');
sql('UPDATE n SET k = 40');
ask($changer, 'BEGIN; DO $$ BEGIN FOR i IN 1..1500 LOOP UPDATE n SET k = 1000 + i; END LOOP; END $$');
like(($node->psql('postgres', "SET lock_timeout = '50ms'; INSERT INTO n $_"))[2], qr/canceling statement due to lock timeout/, "waits: $_")
	for 'VALUES (2, 40)', 'VALUES (2, 30)', 'VALUES (2, 1001)', 'VALUES (2, 40) ON CONFLICT (k) DO NOTHING', 'VALUES (2, 30) ON CONFLICT (k) DO UPDATE SET id = 3';
ask($changer, 'ROLLBACK');
like(($node->psql('postgres', 'INSERT INTO n VALUES (2, 40)'))[2], qr/duplicate key/, 'the key that the rollback gave back');
is(sql(q{INSERT INTO n VALUES (2, 30), (3, 1001), (4, 40) ON CONFLICT DO NOTHING; SELECT id, k FROM n ORDER BY id}), "1|40\n2|30\n3|1001", 'other keys are free');
is(sql($faults), '', 'sound');
$_->quit for $keeper, $changer;

# a key that moves from row to row beside an old snapshot: the check marks the entries that it passes, once their rows' changes are before the bound
sql(q{CREATE TABLE hop (id int PRIMARY KEY, k int) USING zheap; CREATE UNIQUE INDEX hop_k ON hop USING zbtree (k); INSERT INTO hop SELECT g, -g FROM generate_series(1, 300) g; UPDATE hop SET k = 1 WHERE id = 1;
	CREATE PROCEDURE hop(a int, b int) LANGUAGE plpgsql AS $$ BEGIN FOR i IN a..b LOOP UPDATE hop SET k = -i WHERE id = i; COMMIT; UPDATE hop SET k = 1 WHERE id = i + 1; COMMIT; END LOOP; END $$});
my $old = session($node);
ask($old, 'SET enable_seqscan = off; SET enable_bitmapscan = off; BEGIN ISOLATION LEVEL REPEATABLE READ');
my @seen = map { "SELECT id FROM hop WHERE k $_" } '= 1', '> -1', '< -298 ORDER BY id';
is(join(',', map { ask($old, $_) } @seen), "1,1,299\n300", 'an old snapshot');
sql('CALL hop(1, 200)');
my $dead = q{SELECT dead FROM zundo.index_entries('hop_k')};
for (1 .. 300)
{
	($node->psql('postgres', 'INSERT INTO hop VALUES (1000, 1)'));
	last if sql($dead) >= 200;
	select(undef, undef, undef, 0.02);
}
cmp_ok(sql($dead), '>=', 200, 'marked');
is(join(',', map { ask($old, $_) } @seen), "1,1,299\n300", 'the old snapshot still finds the rows by these entries');
like(($node->psql('postgres', $_))[2], qr/duplicate key/, $_) for 'INSERT INTO hop VALUES (1000, 1)', 'UPDATE hop SET k = 1 WHERE id = 5', 'INSERT INTO hop VALUES (1000, -5)';
sql('UPDATE hop SET k = 7 WHERE id = 201; UPDATE hop SET k = 1 WHERE id = 5');
like(($node->psql('postgres', $_))[2], qr/duplicate key/, $_) for 'INSERT INTO hop VALUES (1000, 1)', 'UPDATE hop SET k = 1 WHERE id = 6', 'UPDATE hop SET k = 1 WHERE id = 250';
is(sql('SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT id FROM hop WHERE k = 1'), '5', 'a row that has got the key back is found by its entry');
is(sql($faults), '', 'sound beside the old snapshot');
$old->quit;
$node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()') or die 'a snapshot stays';

# without an old snapshot it marks them at once, and so does that of a btree index: a move fetches few rows, however often the key has moved
sql('VACUUM hop; CREATE TABLE hop2 (id int PRIMARY KEY, k int UNIQUE) USING zheap; INSERT INTO hop2 SELECT * FROM hop');
my $moves = sub { "DO \$\$ BEGIN FOR i IN 5..104 LOOP UPDATE $_[0] SET k = -i - 1000 WHERE id = i; COMMIT; UPDATE $_[0] SET k = 1 WHERE id = i + 1; COMMIT; END LOOP; END \$\$;" };
for my $table (qw(hop hop2))
{
	my $report = "SELECT pg_stat_force_next_flush(); SELECT heap_blks_hit FROM pg_statio_user_tables WHERE relname = '$table';";
	my @hits = grep /\d/, split /\n/, sql($report, 'SET enable_seqscan = off; SET enable_bitmapscan = off;', $moves->($table), $report);
	cmp_ok($hits[1] - $hits[0], '<', 1500, "$table: pages of the table for 100 moves");
	is(sql("SELECT id FROM $table WHERE k = 1"), '105', "$table: the last row");
}
is(sql($faults), '', 'sound');
no_crash($node);
done_testing();
