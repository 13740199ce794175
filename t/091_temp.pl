# Temporary tables: what involves more than one session, or the end of a
# session.
# Rules: CHAIN-8, UNDO-24.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use ZundoTest;

my $node = zundo_node('temp', <<'C');
default_table_access_method = 'zheap'
autovacuum_naptime = 1s
restart_after_crash = on
temp_buffers = 800kB
autovacuum = on
C
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');
my $orphans = q{SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'};

# a long transaction elsewhere keeps neither shared nor private undo
my $long = session($node, on_error_stop => 1);
$long->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SELECT txid_current()');
my $out = $node->safe_psql('postgres', q{
	CREATE TEMP TABLE t AS SELECT g AS id, 0 AS n FROM generate_series(1, 1000) g;
	SELECT zundo.undo_bytes_in_use() AS before \gset
	DO $$ BEGIN FOR i IN 1 .. 100 LOOP UPDATE t SET n = n + 1; COMMIT; END LOOP; END $$;
	SELECT sum(n), pg_relation_size('t') < 100000, zundo.undo_bytes_in_use() - :before < 100000,
		(SELECT sum(total_bytes) < 1000000 FROM pg_backend_memory_contexts WHERE name LIKE 'zheap undo of temp%'),
		(SELECT count(*) FROM pg_ls_tmpdir()) FROM t});
is($out, '100000|t|t|t|0', 'no bloat under a long transaction elsewhere');

# a large transaction spills to a file, which is removed at its end, or when its rollback
# has been completed. Its records are in many chunks, and none in two: each is
# read back from one. Each chunk was there before the change that comes to it has begun;
# otherwise the change would fail.
$out = $node->safe_psql('postgres', q{
	CREATE TEMP TABLE t AS SELECT g AS id, repeat('x', 100) AS v FROM generate_series(1, 30000) g;
	BEGIN;
	DELETE FROM t WHERE id % 2 = 1;
	UPDATE t SET v = md5(v);
	SELECT count(*) FROM pg_ls_tmpdir();
	COMMIT;
	SELECT count(*) FROM pg_ls_tmpdir();
	BEGIN;
	UPDATE t SET v = md5(v);
	DELETE FROM t;
	ROLLBACK;
	SELECT count(*) FROM pg_ls_tmpdir();
	SELECT count(*), count(DISTINCT v) FROM t;
	SELECT count(*) FROM pg_ls_tmpdir();
	SELECT * FROM zundo.check('t')});
is($out, "1\n0\n1\n15000|1\n0", 'spilled undo');

# DISCARD gives the file back as well, also if the tables come back since it is rolled
# back; a rolled back change of a column that the table no longer has is no fault
$out = $node->safe_psql('postgres', q{
	CREATE TEMP TABLE t AS SELECT g AS id, repeat('x', 100) AS v FROM generate_series(1, 30000) g;
	BEGIN;
	ALTER TABLE t ADD a int, ADD b int;
	UPDATE t SET v = md5(v), b = id;
	ROLLBACK;
	SELECT count(*) FROM pg_ls_tmpdir();
	SELECT count(*) FROM zundo.check('t');
	BEGIN;
	DISCARD TEMP;
	SELECT count(*) FROM pg_ls_tmpdir();
	ROLLBACK;
	SELECT count(*), count(DISTINCT v), min(v) = repeat('x', 100) FROM t;
	BEGIN;
	UPDATE t SET v = md5(v);
	ROLLBACK;
	SELECT count(*) FROM pg_ls_tmpdir();
	DISCARD ALL;
	SELECT count(*) FROM pg_ls_tmpdir();
	SELECT coalesce(sum(total_bytes), 0) < 200000 FROM pg_backend_memory_contexts WHERE name LIKE 'zheap undo of temp%'});
is($out, "1\n0\n0\n30000|1|t\n1\n0\nt", 'DISCARD releases the undo of rolled back changes');

# no more temporary files allowed: an error, and everything is as before
my ($rc, $stdout, $stderr) = $node->psql('postgres', q{
	CREATE TEMP TABLE t AS SELECT g AS id, md5(g::text) || md5((-g)::text) AS v FROM generate_series(1, 30000) g;
	SET temp_file_limit = '500kB';
	UPDATE t SET v = reverse(v);
	SELECT count(*), sum(length(v)) FROM t;
	BEGIN;
	SAVEPOINT s;
	UPDATE t SET v = reverse(v);
	ROLLBACK TO s;
	SELECT count(*), sum(length(v)) FROM t;
	COMMIT;
	DELETE FROM t WHERE id < 10;
	SELECT count(*), sum(length(v)) FROM t;
	SELECT * FROM zundo.check('t')}, on_error_stop => 0);
is($stdout, "30000|1920000\n30000|1920000\n29991|1919424", 'temp_file_limit: rows');
is(scalar(() = $stderr =~ /temporary file size exceeds "?temp_file_limit/g), 2, 'temp_file_limit: errors');

# an imported snapshot that is older than the session's own changes
my $exported = $long->query_safe('SELECT pg_export_snapshot()');
($rc, $stdout, $stderr) = $node->psql('postgres', qq{
	CREATE TEMP TABLE t AS SELECT g AS id, 0 AS n FROM generate_series(1, 10) g;
	CREATE TEMP TABLE empty (id int);
	UPDATE t SET n = 1;
	BEGIN ISOLATION LEVEL REPEATABLE READ;
	SET TRANSACTION SNAPSHOT '$exported';
	SELECT count(*) FROM empty;
	SAVEPOINT s;
	SELECT * FROM t;
	ROLLBACK TO s;
	INSERT INTO empty VALUES (1);
	SELECT count(*) FROM empty;
	COMMIT;
	SELECT count(*), sum(n) FROM t}, on_error_stop => 0);
is($stdout, "0\n1\n10|10", 'imported snapshot: what can be read');
like($stderr, qr/^[^\n]*changed after the imported snapshot was taken/, 'imported snapshot: an error');
is(scalar(() = $stderr =~ /ERROR/g), 1, 'imported snapshot: one error');
$long->query_safe('COMMIT');
$long->quit;

# the file is truncated while its session runs: an error names it, and no row is wrong
my $cut = session($node);
ask($cut, q{CREATE TEMP TABLE t AS SELECT g AS id, repeat('x', 100) AS v FROM generate_series(1, 30000) g}, 'BEGIN',
	'DECLARE c CURSOR FOR SELECT sum(length(v)) FROM t', 'SAVEPOINT s', 'UPDATE t SET v = md5(v)', 'UPDATE t SET v = v || v');
my ($file) = glob($node->data_dir . '/base/pgsql_tmp/pgsql_tmp*');
ok(-s $file > 1000000, 'undo is in a file');
truncate($file, 8192) or die $!;
ask($cut, 'FETCH c');
like($complaint, qr/file "base\/pgsql_tmp\/\S+" with undo of temporary tables is too short/, 'cut off: an error');
ask($cut, 'ROLLBACK');
is(ask($cut, 'SELECT sum(length(v)) FROM t'), '', 'cut off: no wrong row after the rollback');
like($complaint, qr/is too short/, 'cut off: the same error');
ask($cut, 'CREATE TABLE other AS SELECT 1 AS a');
is(ask($cut, 'SELECT a FROM other'), '1', 'cut off: other tables can be used');
$complaint = '';
ask($cut, 'CREATE TEMP TABLE u (a int)', 'INSERT INTO u VALUES (1)');
like($complaint, qr/is too short/, 'cut off: no temporary table can be written while that one is there');
ask($cut, 'BEGIN', 'DROP TABLE t');
$complaint = '';
ask($cut, 'INSERT INTO u VALUES (1)');
like($complaint, qr/is too short/, '... or can come back');
ask($cut, 'ROLLBACK', 'DROP TABLE t');
$complaint = '';
is(ask($cut, 'INSERT INTO u VALUES (1)', 'SELECT a FROM u'), '1', 'cut off: with the table dropped, temporary tables can be written');
is($complaint, '', '... without an error');
$cut->quit;

# a backend that is terminated, and one that crashes, in the middle of a transaction
my $make = q{
	CREATE TEMP TABLE t AS SELECT g AS id, repeat('x', 100) AS v FROM generate_series(1, 30000) g;
	BEGIN;
	UPDATE t SET v = md5(v);
	SELECT pg_backend_pid()};
my $victim = $node->background_psql('postgres');
my $pid = $victim->query_safe($make);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
eval { $victim->quit };
ok($node->poll_query_until('postgres', $orphans, '0'), 'tables of a terminated backend are dropped');
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_ls_tmpdir()'), '0', 'its temporary file is gone');
$victim = $node->background_psql('postgres');
$pid = $victim->query_safe($make);
kill 'KILL', $pid;
eval { $victim->quit };
for (1 .. 300)
{
	last if eval { $node->safe_psql('postgres', 'SELECT 1') };
	usleep(100_000);
}
ok($node->poll_query_until('postgres', $orphans, '0'), 'tables of a killed backend are dropped');

# Files of temporary tables have names of their own, so one may have the number of another
# table's file.
$node->safe_psql('postgres', 'CREATE TABLE p (id int)');
$node->safe_psql('postgres', 'TRUNCATE p; INSERT INTO p VALUES (1), (2)');
my $number = $node->safe_psql('postgres', q{SELECT pg_relation_filenode('p')});
$node->stop;
command_ok([ 'pg_resetwal', '-o', $number - 50, $node->data_dir ], 'numbers are given out again');
$node->start;
is($node->safe_psql('postgres', qq{
	CREATE TEMP TABLE first (id int);
	DO 'BEGIN LOOP EXIT WHEN lo_create(0) >= $number - 1; END LOOP; END';
	CREATE TEMP TABLE q (id int);
	INSERT INTO q VALUES (1), (2);
	DELETE FROM q WHERE id = 1;
	SELECT pg_relation_filenode('p') = pg_relation_filenode('q');
	DELETE FROM p WHERE id = 2;
	SELECT id FROM p; SELECT id FROM q}), "t\n1\n2", 'tables with the same number, each with its own page');
$node->stop;

unlike(slurp_file($node->logfile), qr/PANIC|TRAP/, 'nothing failed');
done_testing();
