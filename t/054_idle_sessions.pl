# Idle sessions, and databases whose undo cannot be discarded, do not delay
# others: an idle session that has written gives up its undo log, so that the
# file shrinks, and a database that cannot discard undo leaves its worker slot
# to databases that can, also where a replication slot holds back all of them.
# Rules: UNDO-50, UNDO-4, REQUEST-2.
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

# the first attempts to truncate the file of the undo log fail
my $node = zundo_node('idle', "zundo.fault = 'truncate:error'\nmax_worker_processes = 4\nmax_logical_replication_workers = 1\nmax_connections = 100\n", allows_streaming => 'logical');

# 1. The file of the undo log shrinks.
$node->safe_psql('postgres', q(
	CREATE EXTENSION zundo;
	CREATE TABLE z (id int PRIMARY KEY, v int, pad text) USING zheap;
	CREATE TABLE y (a int) USING zheap;
	INSERT INTO z SELECT g, 0, repeat('x', 200) FROM generate_series(1, 20000) g));
my $old = $node->background_psql('postgres');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
$old->query_safe('SELECT 1');
$node->safe_psql('postgres', q(UPDATE z SET v = v + 1, pad = md5(random()::text) || repeat('y', 160))) for 1 .. 8;
my @idle = map { $node->background_psql('postgres') } 1 .. 5;
# at the same time, or one would continue the log of another
$_->query_safe('BEGIN; INSERT INTO y VALUES (1)') for @idle;
$_->query_safe('COMMIT') for @idle;
my $peak = $node->safe_psql('postgres', q(SELECT pg_relation_size('zundo.undo_log')));
cmp_ok($peak, '>', 16 * 1024 * 1024, 'the undo file has grown');
# the undo log gives up its tail, and then the file is not truncated
my $log = -s $node->logfile;
$old->query_safe('COMMIT');
ok($node->wait_for_log(qr/fault point "truncate"/, $log), 'the file cannot be cut off');
is($node->safe_psql('postgres', q(SELECT pg_relation_size('zundo.undo_log'))), $peak, '... and is as long as before');
$node->append_conf('postgresql.conf', "zundo.fault = ''");
$node->reload;
ok($node->poll_query_until('postgres', q(SELECT pg_relation_size('zundo.undo_log') < 12 * 1024 * 1024)),
	'it shrinks beside idle sessions that wrote at its end');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM zundo.stat_undo WHERE attached'), '<', 5, 'their logs were taken from them');
$_->query_safe('INSERT INTO y VALUES (2)') for @idle;
$idle[0]->query_safe('BEGIN');
$idle[0]->query_safe('INSERT INTO y VALUES (3)');
$idle[0]->query_safe('SAVEPOINT a');
$idle[0]->query_safe('INSERT INTO y VALUES (4)');
$idle[0]->query_safe('ROLLBACK TO a');
$idle[0]->query_safe('COMMIT');
is($node->safe_psql('postgres', 'SELECT a, count(*) FROM y GROUP BY a ORDER BY a'), "1|5\n2|5\n3|1", 'they continue to write');
# Many idle sessions, whose logs are all that the file has.
push @idle, map { $node->background_psql('postgres') } 1 .. 20;
$_->query_safe('BEGIN; INSERT INTO y VALUES (5)') for @idle;
cmp_ok($node->safe_psql('postgres', 'SELECT sum(extents) FROM zundo.stat_undo'), '>=', 25, 'each of many sessions has a log');
$_->query_safe('COMMIT') for @idle;
ok($node->poll_query_until('postgres', 'SELECT coalesce(sum(extents), 0) <= 9 FROM zundo.stat_undo'), 'most logs are taken from them when they are idle');
$_->query_safe('INSERT INTO y VALUES (6)') for @idle;
is($node->safe_psql('postgres', 'SELECT count(*) FROM y WHERE a > 4'), '50', 'they continue to write');
sound($node, 'after that', 'y', 'z', 'zundo.undo_log');
$_->quit for @idle, $old;

# 2. Worker slots: two databases cannot discard their undo, one can.
for my $db ('d1', 'd2', 'd3')
{
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, q(
		CREATE EXTENSION zundo;
		CREATE TABLE z (id int PRIMARY KEY, v int) USING zheap;
		INSERT INTO z SELECT g, 0 FROM generate_series(1, 1000) g));
}
my @hold;
for my $db ('d1', 'd2')
{
	my $s = $node->background_psql($db);
	$s->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
	$s->query_safe('SELECT 1');
	$node->safe_psql($db, 'UPDATE z SET v = 1');
	push @hold, $s;
}
ok($node->poll_query_until('postgres', q(
	SELECT count(DISTINCT datname) = 2 FROM pg_stat_activity WHERE backend_type = 'zundo undo worker' AND datname IN ('d1', 'd2'))),
	'two databases that must wait have all worker slots');
$node->safe_psql('d3', 'UPDATE z SET v = v + 1') for 1 .. 5;
ok($node->poll_query_until('d3', 'SELECT zundo.undo_bytes_in_use() = 0'), 'the third gets a worker nevertheless');
$_->query_safe('COMMIT') for @hold;
ok($node->poll_query_until($_, 'SELECT zundo.undo_bytes_in_use() = 0'), "so does $_ when it can give undo back") for 'd1', 'd2';
$_->quit for @hold;

# 3. Replication slots that lag. That of a standby that is gone holds back the undo of every database; workers take turns
# nevertheless, so that each database gets its rollbacks done. A logical slot holds back none.
$node->safe_psql('postgres', q(SELECT pg_create_physical_replication_slot('gone')));
my $standby = standby_of($node, "primary_slot_name = 'gone'\nhot_standby_feedback = on\n");
ok($node->poll_query_until('postgres', 'SELECT count(xmin) = 1 FROM pg_replication_slots'), 'a standby has its slot keep undo');
$standby->stop;
my @dbs = ('d1', 'd2', 'd3', 'postgres');
my $pending = q(SELECT count(*) FROM generate_series(0, pg_relation_size('z') / 8192 - 1) b, zundo.page_slots('z', b) WHERE status = 'aborted');
for my $db (@dbs)
{
	$node->safe_psql($db, 'UPDATE z SET v = v + 1 WHERE id <= 500; SET zundo.eager_rollback_pages = 0; BEGIN; UPDATE z SET v = 1000; ROLLBACK');
}
for my $db (@dbs)
{
	ok($node->poll_query_until($db, $pending, '0'), "a lagging slot: $db is rolled back");
	is($node->safe_psql($db, 'UPDATE z SET v = v + 1 WHERE id = 1 RETURNING id'), '1', "... and written");
	isnt($node->safe_psql($db, 'SELECT zundo.undo_bytes_in_use()'), '0', '... its undo is kept');
	like($node->safe_psql($db, 'SELECT kind, name FROM zundo.stat_horizon LIMIT 1'), qr/^replication slot\|gone$/, '... which zundo.stat_horizon explains');
}
$node->safe_psql('d1', q(SELECT pg_create_logical_replication_slot('late', 'pgoutput'); SELECT pg_drop_replication_slot('gone')));
$node->safe_psql($_, 'UPDATE z SET v = v + 1') for @dbs;
ok($node->poll_query_until($_, 'SELECT zundo.undo_bytes_in_use() = 0'), "a logical slot: $_ gives its undo back") for @dbs;
no_crash($node);
done_testing();
