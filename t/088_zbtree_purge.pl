# The worker deletes the entries of replaced keys from zbtree indexes without
# VACUUM (ZBTREE-8). It deletes no entry that a snapshot needs, and
# never waits for a lock of another session.
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('purge', "max_prepared_transactions = 5\ncheckpoint_timeout = 1h\n");
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');
sql(q{
CREATE TABLE p (id int PRIMARY KEY, a int, b text, c int) USING zheap WITH (fillfactor = 80);
CREATE INDEX p_a ON p USING zbtree (a) INCLUDE (c);
CREATE INDEX p_ba ON p USING zbtree (b DESC, a);
INSERT INTO p SELECT g, g, 'b' || lpad(g::text, 7, '0'), g FROM generate_series(1, 2000) g;
});

# Waits until the index has this number of entries and none of them is stale.
sub entries
{
	my ($index, $entries, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($node->poll_query_until('postgres', qq{SELECT entries, stale FROM zundo.index_entries('$index')}, "$entries|0"), $what);
	is(sql(qq{SELECT * FROM zundo.check_index('$index')}), '', "$what: sound");
	return;
}
sub count_entries { return sql(q{SELECT entries FROM zundo.index_entries('p_a')}) }

# All updates stay in place: entries of rows that have moved or were deleted are VACUUM's.

# key changes back and forth, new keys, nulls; one statement that changes more keys than a
# session notes
for my $n (1 .. 6)
{
	sql('UPDATE p SET a = -a WHERE id % 3 = 0');
	sql("UPDATE p SET a = NULLIF(a + $n * 10000, 10005), b = 'c' || $n WHERE id % 3 = 1");
}
entries('p_a', 2000, 'keys back and forth');
entries('p_ba', 2000, 'two columns');
sql(q{CREATE TABLE big (id int, a bigint) USING zheap WITH (fillfactor = 50); CREATE INDEX big_a ON big USING zbtree (a);
	INSERT INTO big SELECT g, g FROM generate_series(1, 30000) g; UPDATE big SET a = 100000 + a});
entries('big_a', 30000, 'a large statement');

# rollbacks of whole transactions and of subtransactions, with no more keys than a session
# notes; prepared transactions
sql(q{BEGIN; UPDATE p SET a = a + 70000 WHERE id <= 100; SAVEPOINT s; UPDATE p SET a = a + 170000 WHERE id <= 170;
	SAVEPOINT t; UPDATE p SET a = 3, b = 'x' WHERE id % 10 = 0; RELEASE t; ROLLBACK TO s; UPDATE p SET b = 'y' WHERE id % 5 = 0; COMMIT});
sql(q{BEGIN; UPDATE p SET a = a + 370000, b = 'Z' || substr(b, 2) WHERE id <= 500; ROLLBACK});
sql(qq{BEGIN; UPDATE p SET a = a + 470000 WHERE id <= 300; PREPARE TRANSACTION 'p$_';}, $_ == 1 ? q{COMMIT PREPARED 'p1'} : q{ROLLBACK PREPARED 'p2'}) for 1, 2;
entries('p_a', 2000, 'rolled back and prepared');
entries('p_ba', 2000, 'rolled back and prepared, two columns');

# an old snapshot keeps the entries that it needs, and no others
my $old = session($node);
my $query = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT md5(string_agg(id::text, \',\')) FROM (SELECT id FROM p WHERE a > -5000 ORDER BY a) s';
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ');
my $answer = ask($old, $query);
sql('UPDATE p SET a = a + 1');
sql('UPDATE p SET a = a + 1') for 1 .. 3;
sql(q{CREATE TABLE other (a int) USING zheap; CREATE INDEX other_a ON other USING zbtree (a); INSERT INTO other VALUES (1); UPDATE other SET a = 2});
sleep 2;
is(ask($old, $query), $answer, 'the old snapshot sees its rows');
cmp_ok(count_entries(), '>=', 4000, 'their entries are kept');
is(sql(q{SELECT * FROM zundo.check_index('p_a')}), '', 'and none is missing');
ask($old, 'COMMIT');
entries('p_a', 2000, 'the snapshot is gone');
entries('other_a', 1, 'another table');

# stale entries count as dead rows until they are deleted
sub counted
{
	my ($dead, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $query = q{SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'st'};
	return ok($node->poll_query_until('postgres', $query, $dead), "$what: $dead dead rows") || diag(sql($query));
}
sql(q{CREATE TABLE st (id int, a int, b int, c int) USING zheap WITH (fillfactor = 60); CREATE INDEX st_a ON st USING zbtree (a); CREATE INDEX st_b ON st USING zbtree (b) WHERE c = 0;
	CREATE INDEX st_i ON st USING zbtree (id) INCLUDE (c); INSERT INTO st SELECT g, g, g, 0 FROM generate_series(1, 500) g});
# The purge comes after the report of the session whose entries it deletes: the server counts no less than 0.
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM st');
sql('UPDATE st SET a = a + 1000, b = -b; UPDATE st SET c = 1 WHERE id <= 200; UPDATE st SET c = 2 WHERE id <= 100');
counted(1200, 'before they are purged');
ask($old, 'COMMIT');
entries('st_a', 500, 'purged');
entries('st_b', 300, 'purged');
counted(0, 'all are purged');
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM st');
sql('UPDATE st SET a = a + 5000 WHERE id > 100');
counted(400, 'beside an old snapshot');
sql('UPDATE st SET c = 1, b = b + 1 WHERE id > 400; DELETE FROM st WHERE id = 90; BEGIN; UPDATE st SET a = 1 WHERE id BETWEEN 1 AND 50; ROLLBACK; UPDATE st SET c = 7 WHERE id < 50');
counted(551, 'another index, a deletion, a rollback, and no key at all');
sql('UPDATE st SET a = a - 5000 WHERE id BETWEEN 201 AND 300; UPDATE st SET c = 0, b = b - 1 WHERE id > 450');
counted(501, 'entries that are found again');
ask($old, 'COMMIT');
ok($node->poll_query_until('postgres', q{SELECT stale FROM zundo.index_entries('st_b')}, '0'), 'the snapshot is gone');
counted(1, 'the deleted row is left');

# locks: the worker waits for no session, and does the locked tables later
my $locker = session($node);
ask($locker, 'BEGIN; LOCK TABLE other IN SHARE MODE');
my $holder = session($node);
ask($holder, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM p');
ask($locker, 'COMMIT');
sql('UPDATE p SET a = a - 1');
# each chunk of the queue, of some 250 keys, has one of the table that will be locked; one
# chunk a second would take a minute
sql(map { "UPDATE big SET a = a + 1000000 WHERE id > $_ * 230 AND id <= $_ * 230 + 230; UPDATE other SET a = a + 1;" } 0 .. 59);
ask($locker, 'BEGIN; LOCK TABLE other IN SHARE MODE');
my $begun = time;
ask($holder, 'COMMIT');
entries('big_a', 30000, 'beside a locked table');
cmp_ok(time - $begun, '<', 55, 'all chunks at once');
entries('p_a', 2000, 'beside a locked table, another one');
cmp_ok(sql(q{SELECT entries FROM zundo.index_entries('other_a')}), '>', 1, 'the locked one waits');
is(sql(q{SELECT count(*) FROM pg_locks WHERE NOT granted}), '0', 'and nobody else does');
ask($locker, 'COMMIT');
entries('other_a', 1, 'it is unlocked');

# tables and indexes that are dropped or rewritten before the worker comes to them
sql(q{CREATE TABLE d1 (a int) USING zheap; CREATE INDEX d1_a ON d1 USING zbtree (a); INSERT INTO d1 SELECT generate_series(1, 100);
	CREATE TABLE d2 (a int) USING zheap; CREATE INDEX d2_a ON d2 USING zbtree (a); INSERT INTO d2 SELECT generate_series(1, 100);
	CREATE TABLE d3 (a int) USING zheap; CREATE INDEX d3_a ON d3 USING zbtree (a); INSERT INTO d3 SELECT generate_series(1, 100);
	CREATE TABLE d4 (a int) USING zheap; CREATE INDEX d4_a ON d4 USING zbtree (a); INSERT INTO d4 SELECT generate_series(1, 100);
	CREATE TABLE d5 (a int) USING zheap; CREATE INDEX d5_a ON d5 USING zbtree (a); INSERT INTO d5 SELECT generate_series(1, 100);
	CREATE TABLE d6 (a int) USING zheap; CREATE INDEX d6_a ON d6 USING zbtree (a); INSERT INTO d6 SELECT generate_series(1, 100)});
ask($holder, 'BEGIN; SELECT pg_current_xact_id() IS NOT NULL');
sql("UPDATE d$_ SET a = a + 1000") for 1 .. 6;
sql($_) for 'DROP TABLE d1', 'DROP INDEX d2_a', 'TRUNCATE d3', 'INSERT INTO d3 VALUES (1)', 'REINDEX INDEX d4_a', 'CLUSTER d5 USING d5_a', 'VACUUM FULL d6';
sql('CREATE INDEX d2_a ON d2 USING zbtree (a)');
ask($holder, 'COMMIT');
entries('d3_a', 1, 'truncated');
entries('d4_a', 100, 'rebuilt');
# a new index has entries of old versions that are not in the queue: VACUUM alone removes them
is(sql("SELECT * FROM zundo.check_index('d$_')"), '', "new index $_") for '2_a', '5_a';
is(sql(q{SELECT count(*) FROM d6 WHERE a > 1000}), '100', 'rewritten');

# a temporary and an unlogged table
sql(q{CREATE TEMP TABLE t (a int) USING zheap; CREATE INDEX t_a ON t USING zbtree (a); INSERT INTO t SELECT generate_series(1, 50);
	UPDATE t SET a = a + 100; UPDATE t SET a = a - 100; SELECT count(*) FROM t});
sql(q{CREATE UNLOGGED TABLE u (a int) USING zheap; CREATE INDEX u_a ON u USING zbtree (a); INSERT INTO u SELECT generate_series(1, 50)});
sql("UPDATE u SET a = a + $_") for 100, -100, 300;
entries('u_a', 50, 'unlogged table');
unlike(slurp_file($node->logfile), qr/ERROR|TRAP|terminated/, 'nothing has failed');

# a key comes back after the worker has taken its old entry from the queue: before it
# looks, or by a transaction that has changed the row, but has not looked for the entry
# yet; the worker is ended in the middle
SKIP:
{
	my ($rc) = $node->psql('postgres', q{LOAD 'zundo'; SET zundo.fault = 'keys-taken:error'});
	skip 'no fault points in this build', 1 if $rc != 0;
	sql('ALTER SYSTEM SET zundo.fault = \'keys-taken:sleep\'; SELECT pg_reload_conf()');
	for my $n (1 .. 3)
	{
		sql('UPDATE p SET a = a + 500000 WHERE id % 10 = 0');
		sql('SELECT pg_sleep(0.3)');
		sql('UPDATE p SET a = a - 500000 WHERE id % 10 = 0');
		is(sql(q{SELECT * FROM zundo.check_index('p_a')}), '', "keys came back, $n");
	}
	$locker->query_until(qr/begun/, "SET zundo.fault = 'keys-due:sleep:1';\n\\echo begun\nUPDATE p SET a = a + 1 WHERE id = 1;\nUPDATE p SET a = a - 1 WHERE id = 1;\nSET zundo.fault = 'keys-due:sleep:1';\nUPDATE p SET a = a + 1 WHERE id = 1;\n");
	ask($locker, "SET zundo.fault = ''");
	entries('p_a', 2000, 'keys came back');
	sql('ALTER SYSTEM SET zundo.fault = \'keys-taken:error:1\'; SELECT pg_reload_conf()');
	sql('UPDATE p SET a = a + 500000');
	$node->wait_for_log(qr/fault point "keys-taken"/);
	is(sql(q{SELECT * FROM zundo.check_index('p_a')}), '', 'an error of the worker');
	# what is left in the queue may be enough for it to die at once
	eval { sql('ALTER SYSTEM SET zundo.fault = \'keys-taken:crash\'; SELECT pg_reload_conf()') };
	eval { $node->psql('postgres', 'UPDATE p SET a = a - 400000 WHERE id % 2 = 0; CREATE TABLE flush ()') };
	ok(wait_for_death($node), 'the worker died, and the server with it');
	$_->quit for $old, $locker, $holder;
	$node->append_conf('postgresql.auto.conf', "zundo.fault = ''\n");
	$node->start;
	is(sql(q{SELECT * FROM zundo.check_index('p_a')}), '', 'after a crash');
	sql('VACUUM (INDEX_CLEANUP on) p');
	entries('p_a', 2000, 'what the crash has lost is left to VACUUM');
	$_ = session($node) for $old, $locker, $holder;
}

# a queue that is too small for all keys, and no queue
for my $size ('16kB', '0')
{
	sql('VACUUM (INDEX_CLEANUP on) p');
	$_->quit for $old, $locker, $holder;
	$node->append_conf('postgresql.conf', "zundo.key_queue = $size\n");
	$node->restart;
	$_ = session($node) for $old, $locker, $holder;
	sql('UPDATE p SET a = a + 1000000');
	sql('UPDATE p SET a = a - 1000000 WHERE id < 10');
	sleep 2;
	is(sql(q{SELECT * FROM zundo.check_index('p_a')}), '', "zundo.key_queue = $size");
	ok($node->poll_query_until('postgres', q{SELECT n_dead_tup > 0 FROM pg_stat_user_tables WHERE relname = 'p'}), "zundo.key_queue = $size: VACUUM is due");
	if ($size eq '0') { is(count_entries(), 4000, "zundo.key_queue = $size: entries"); }
	else { ok($node->poll_query_until('postgres', q{SELECT entries < 4000 FROM zundo.index_entries('p_a')}), "zundo.key_queue = $size: entries"); }
	cmp_ok(count_entries(), '>', 2000, "zundo.key_queue = $size: not all");
	sql('VACUUM (INDEX_CLEANUP on) p');
	entries('p_a', 2000, "zundo.key_queue = $size: VACUUM");
}

# a queue of one chunk, which a database has when it is dropped, or zundo in it: each key
# that finds no room would leave an entry
SKIP:
{
	my ($rc) = $node->psql('postgres', q{LOAD 'zundo'; SET zundo.fault = 'keys-taken:error'});
	skip 'no fault points in this build', 1 if $rc != 0;
	$_->quit for $old, $locker, $holder;
	$node->append_conf('postgresql.conf', "zundo.key_queue = 8kB\n");
	$node->restart;
	sql('CREATE DATABASE gone');
	sql('SELECT pg_sleep(1)');
	for my $way ('DROP EXTENSION zundo', 'DROP DATABASE gone')
	{
		sql('ALTER SYSTEM SET zundo.fault = \'worker-cycle:error\'; SELECT pg_reload_conf()');
		$node->safe_psql('gone', 'CREATE EXTENSION zundo; CREATE TABLE g (a int) USING zheap; CREATE INDEX g_a ON g USING zbtree (a);
			INSERT INTO g VALUES (1); UPDATE g SET a = 2');
		$node->safe_psql($way =~ /EXT/ ? 'gone' : 'postgres', ($way =~ /EXT/ ? 'DROP TABLE g; ' : '') . $way);
		sql('ALTER SYSTEM SET zundo.fault = \'\'; SELECT pg_reload_conf()');
		my ($before, $after) = (0, count_entries());
		for (my $i = 0; $i < 15 && $before != $after; $i++)
		{
			$before = $after;
			sql('UPDATE p SET a = a + 1 WHERE id = 1');
			sleep 3;
			$after = count_entries();
		}
		is($after, $before, "$way: its items go");
	}
	$_ = session($node) for $old, $locker, $holder;
}
$_->quit for $old, $locker, $holder;
sound($node, 'in the end', 'p', 'big');
$node->stop;
done_testing();
