# DDL beside DML: indexes built and rebuilt concurrently while rows are updated
# in place, moved, deleted and rolled back; databases copied with aborts
# pending; ALTER TABLE, TRUNCATE and DROP beside open aborts.
# Rules: BUILD-1, CLUSTER-1, RESOLVE-1.
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('ddl', <<'C');
wal_consistency_checking = 'all'
shared_buffers = 4MB
max_wal_size = 4GB
autovacuum = on
C
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');
my $amcheck = server_has('amcheck') && defined sql('CREATE EXTENSION amcheck');

$node->safe_psql(
	'postgres', q{
	CREATE TABLE t (id int PRIMARY KEY, n int, m int, pad text) USING zheap;
	INSERT INTO t SELECT g, g % 50, g % 20, repeat('p', g % 60) FROM generate_series(1, 2000) g;
	-- the same rows, whatever the way to them
	CREATE FUNCTION agree() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		by_table text;
		by_n text;
		by_m text;
	BEGIN
		SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_seqscan = on;
		SELECT format('%s %s %s', count(*), sum(id), sum(n)) INTO by_table FROM t WHERE n >= 0 AND m >= 0;
		SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = on;
		SELECT format('%s %s %s', count(*), sum(id), sum(n)) INTO by_n FROM t WHERE n >= 0 AND m >= 0;
		SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = on;
		SELECT format('%s %s %s', count(*), sum(id), sum(n)) INTO by_m FROM t WHERE n >= 0 AND m >= 0;
		IF by_table <> by_n OR by_table <> by_m THEN
			RAISE EXCEPTION 'seen by table %, by index %, by bitmap %', by_table, by_n, by_m;
		END IF;
	END $$;
});

# 1. Concurrent index builds under load.
my $scripts = PostgreSQL::Test::Utils::tempdir();

sub script
{
	my ($name, $text) = @_;
	append_to_file("$scripts/$name", $text);
	chmod 0644, "$scripts/$name";
	return ('-f', "$scripts/$name");
}

my @load = (
	script('in_place', "\\set id random(1, 2000)\nUPDATE t SET pad = repeat('q', (:id * 7) % 60) WHERE id = :id;\n"),
	script('key', "\\set id random(1, 2000)\n\\set v random(0, 49)\nUPDATE t SET n = :v WHERE id = :id;\n"),
	script('back', "\\set id random(1, 2000)\nBEGIN;\nUPDATE t SET n = n + 1, pad = 'gone' WHERE id = :id;\nSAVEPOINT a;\n"
		  . "UPDATE t SET m = m + 1 WHERE id = :id;\nROLLBACK TO a;\nUPDATE t SET m = m + 2 WHERE id = :id;\nROLLBACK;\n"),
	script('replace', "\\set id random(1, 2000)\nBEGIN;\nSELECT pg_advisory_xact_lock(:id);\n"
		  . "DELETE FROM t WHERE id = :id;\nINSERT INTO t VALUES (:id, :id % 50, 3, 'again') ON CONFLICT DO NOTHING;\nCOMMIT;\n"),
	script('read', "BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT agree();\nSELECT agree();\nCOMMIT;\n"));
my $seconds = 12;
my ($out, $err) = ('', '');
my $pgbench = IPC::Run::start(
	[ 'pgbench', '-n', '-c', '5', '-j', '1', '-T', $seconds, @load, $node->connstr('postgres') ],
	'>' => \$out, '2>' => \$err);
my $end = time() + $seconds - 1;
my $rounds = 0;
my $failed = 0;
while (time() < $end)
{
	for my $sql (
		'CREATE INDEX CONCURRENTLY t_n ON t (n)', 'CREATE INDEX CONCURRENTLY t_m ON t (m) WHERE m >= 0',
		'CREATE UNIQUE INDEX CONCURRENTLY t_u ON t (id) INCLUDE (n)',
		'REINDEX INDEX CONCURRENTLY t_n', 'REINDEX TABLE CONCURRENTLY t',
		$amcheck ? q{SELECT bt_index_check(c.oid, true) FROM pg_index i JOIN pg_class c ON c.oid = indexrelid WHERE indrelid = 't'::regclass AND indisvalid} : (),
		'VACUUM t', 'DROP INDEX CONCURRENTLY t_n', 'DROP INDEX CONCURRENTLY t_m', 'DROP INDEX CONCURRENTLY t_u')
	{
		my ($rc, $o, $e) = $node->psql('postgres', $sql);
		next if $rc == 0;
		$failed++;
		diag("$sql: $e");
	}
	$rounds++;
}
$pgbench->finish;
is($failed, 0, 'indexes built, rebuilt and dropped concurrently under load');
ok($rounds > 0, "at least one round of them");
unlike($err, qr/error/i, 'sessions agree on the rows by table, index and bitmap all the time') or diag($err);
$node->safe_psql('postgres', 'CREATE INDEX t_n ON t (n); CREATE INDEX t_m ON t (m)');
$node->safe_psql('postgres', 'SELECT agree()');
SKIP:
{
	skip 'the server lacks amcheck of contrib', 1 unless $amcheck;
	is($node->safe_psql('postgres', q{SELECT bt_index_check(indexrelid, true) FROM pg_index WHERE indrelid = 't'::regclass}), "\n\n", 'every row is in every index');
}
is($node->safe_psql('postgres', "SELECT * FROM zundo.check('t')"), '', 'zundo.check of t');

# 2. Databases copied while aborts are pending in them: CREATE DATABASE ends the worker in
# the template, and nobody has ever written to the copy.
my $state = q{SELECT count(*), sum(id), sum(n), md5(string_agg(t::text, ',' ORDER BY id)) FROM t};
$node->safe_psql('postgres', 'CREATE DATABASE source');
$node->safe_psql(
	'source', q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int PRIMARY KEY, n int, pad text) USING zheap;
	INSERT INTO t SELECT g, g % 50, repeat('p', g % 60) FROM generate_series(1, 20000) g;
});
my $before = $node->safe_psql('source', $state);
for my $strategy (qw(wal_log file_copy))
{
	$node->psql('source', q{BEGIN; UPDATE t SET n = n + 1, pad = pad || 'x'; DELETE FROM t WHERE id % 3 = 0; ROLLBACK});
	$node->safe_psql('postgres', "CREATE DATABASE copy_$strategy TEMPLATE source STRATEGY $strategy");
	for my $database ('source', "copy_$strategy")
	{
		is($node->safe_psql($database, $state), $before, "$database: the rows of before the abort");
		ok($node->poll_query_until($database, 'SELECT count(*) = 0 FROM zundo.stat_rollback'), "$database: undone");
		is($node->safe_psql($database, $state), $before, "$database: and after it is undone");
		is($node->safe_psql($database, "SELECT * FROM zundo.check('t')"), '', "$database: zundo.check");
		is($node->safe_psql($database, 'UPDATE t SET n = n + 1; SELECT sum(n) FROM t') - $node->safe_psql($database, 'UPDATE t SET n = n - 1; SELECT sum(n) FROM t'),
			20000, "$database: both can be written");
	}
	$node->safe_psql('postgres', "DROP DATABASE copy_$strategy");
}
$node->safe_psql('postgres', 'ALTER DATABASE source RENAME TO renamed');
is($node->safe_psql('renamed', $state), $before, 'a renamed database');
$node->safe_psql('postgres', 'DROP DATABASE renamed');

# A worker that is terminated leaves nothing pending for long.
$node->safe_psql('postgres', q{CREATE TABLE big (id int, pad text) USING zheap; INSERT INTO big SELECT g, repeat('b', 100) FROM generate_series(1, 50000) g});
$node->safe_psql('postgres', q{BEGIN; UPDATE big SET pad = 'c'; ROLLBACK;
	SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'zundo undo worker'});
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), 'undone after the worker was terminated');
is($node->safe_psql('postgres', q{SELECT count(*), min(length(pad)) FROM big}), '50000|100', 'the rows of before');
$node->safe_psql('postgres', 'DROP TABLE big');

# 3. DDL right after an abort of the same rows, and in the transaction that changed them.
my $big = q{UPDATE t SET pad = pad || 'y' WHERE id % 2 = 0; DELETE FROM t WHERE id % 5 = 0};
for my $ddl (
	'TRUNCATE t', 'ALTER TABLE t ADD COLUMN extra int DEFAULT 7', 'ALTER TABLE t ALTER COLUMN n TYPE bigint',
	'ALTER TABLE t SET UNLOGGED', 'ALTER TABLE t SET LOGGED', 'ALTER TABLE t SET ACCESS METHOD heap',
	'ALTER TABLE t SET ACCESS METHOD zheap', 'VACUUM FULL t', 'CLUSTER t USING t_pkey', 'DROP TABLE t')
{
	$node->safe_psql('postgres', q{
		DROP TABLE IF EXISTS t;
		CREATE TABLE t (id int PRIMARY KEY, n int, pad text) USING zheap;
		INSERT INTO t SELECT g, g % 50, repeat('p', g % 60) FROM generate_series(1, 5000) g});
	my $sum = q{SELECT count(*), sum(id), sum(n), sum(length(pad)) FROM t};
	my $rows = $node->safe_psql('postgres', $sum);
	$node->psql('postgres', "BEGIN; $big; ROLLBACK");
	$node->psql('postgres', "BEGIN; $big; SAVEPOINT a; $ddl; ROLLBACK TO a; $big; ROLLBACK") unless $ddl =~ /VACUUM/;
	is($node->safe_psql('postgres', $sum), $rows, "rolled back: $ddl");
	$node->safe_psql('postgres', $ddl);
	next if $ddl =~ /DROP/;
	is($node->safe_psql('postgres', $sum), $ddl =~ /TRUNCATE/ ? '0|||' : $rows, "done: $ddl");
	$node->safe_psql('postgres', $big);
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_class c JOIN pg_am a ON a.oid = relam, LATERAL zundo.check(c.oid::regclass) WHERE relname = 't' AND amname = 'zheap'}), '0', "zundo.check after: $ddl");
}
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), 'nothing is left to be undone');
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|zundo.*(could not|failed)/, 'the server log');
done_testing();
