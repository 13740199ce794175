# Row locks that outlive sessions, server restarts and the place of their row:
# prepared transactions hold them across moves of the row, crashes and the
# promotion of a standby.
# Rules: LOCK-1, LOCK-6, INLINE-3.
use strict;
use warnings;
use Test::More;
use ZundoTest;

my $node = zundo_node('locks', <<'C', allows_streaming => 1);
wal_consistency_checking = 'all'
max_prepared_transactions = 800
max_wal_size = 4GB
checkpoint_timeout = 1h
lock_timeout = '300ms'
C
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');

# 1. A prepared locker of a row that moves, on one page and to another one.
$node->safe_psql(
	'postgres', q{
	CREATE TABLE mv (id int PRIMARY KEY, m int, t text) USING zheap;
	CREATE INDEX ON mv (m);
	ALTER TABLE mv ALTER t SET STORAGE PLAIN;
	INSERT INTO mv SELECT g, 0, repeat('x', 900) FROM generate_series(1, 8) g;
	BEGIN; SELECT id FROM mv WHERE id = 1 FOR KEY SHARE; PREPARE TRANSACTION 'one';
	BEGIN; SAVEPOINT s; SELECT id FROM mv WHERE id IN (1, 2) FOR KEY SHARE; RELEASE s; PREPARE TRANSACTION 'two';
	BEGIN; SAVEPOINT s; SELECT id FROM mv WHERE id = 3 FOR KEY SHARE; ROLLBACK TO s; PREPARE TRANSACTION 'three';
	UPDATE mv SET t = repeat('y', 1800) WHERE id < 4;
	UPDATE mv SET m = m + 1;
});
crash($node);
timed_out($node, 'DELETE FROM mv WHERE id = 1', 'moved, crashed: the lock is there');
timed_out($node, 'UPDATE mv SET id = 20 WHERE id = 2', 'that of a released savepoint too');
passes($node, 'DELETE FROM mv WHERE id = 3', 'not that of a savepoint rolled back');
$node->safe_psql('postgres', q{UPDATE mv SET m = m + 1; UPDATE mv SET t = 'short'; UPDATE mv SET m = m + 1});
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'one'; SELECT zundo.discard(); SELECT zundo.discard()});
timed_out($node, 'DELETE FROM mv WHERE id = 1', 'moved again after the crash: the other locker is there');
passes($node, 'UPDATE mv SET m = m + 1', 'nobody else waits');

# 2. The server crashes right after a move with locks, and in the middle of a transaction
# that made one.
my ($rc) = $node->psql('postgres', "SET zundo.fault = 'move-logged:crash'; UPDATE mv SET m = m + 1 WHERE id = 1");
isnt($rc, 0, 'the session dies after a move');
ok(wait_for_death($node), 'and the server with it');
$node->start;
is($node->safe_psql('postgres', 'SELECT m FROM mv WHERE id = 1'), '3', 'the move is undone');
timed_out($node, 'DELETE FROM mv WHERE id = 1', 'its row is still locked at the old place');
$node->safe_psql('postgres', 'UPDATE mv SET m = m + 1');

# 3. Inline locks: crashes right after one, and after they became records; those of
# prepared transactions are there afterwards.
for my $fault ('inline-lock-logged', 'locks-converted')
{
	$node->safe_psql('postgres', "BEGIN; SELECT id FROM mv WHERE id IN (6, 7) FOR SHARE; PREPARE TRANSACTION '$fault'");
	($rc) = $node->psql('postgres',
		"SET zundo.fault = '$fault:crash'; BEGIN; SELECT id FROM mv WHERE id > 1 FOR KEY SHARE; UPDATE mv SET m = m + 1 WHERE id = 8");
	isnt($rc, 0, "$fault: the session dies");
	ok(wait_for_death($node), "$fault: and the server with it");
	$node->start;
	timed_out($node, 'UPDATE mv SET m = 1 WHERE id = 7', "$fault: a prepared lock is there");
	passes($node, 'DELETE FROM mv WHERE id = 8', "$fault: nothing else is locked");
	$node->safe_psql('postgres', "ROLLBACK PREPARED '$fault'");
	is($node->safe_psql('postgres', q{SELECT * FROM zundo.check('mv')}), '', "$fault: zundo.check");
}

# An error while a subtransaction makes records of its parent's locks: the parent keeps all of them.
$node->safe_psql('postgres', 'CREATE TABLE kept (id int PRIMARY KEY) USING zheap; INSERT INTO kept SELECT generate_series(1, 6)');
my $parent = $node->background_psql('postgres', on_error_stop => 0);
$parent->query('BEGIN; SELECT id FROM kept WHERE id < 6 FOR KEY SHARE');
$parent->query(q{SAVEPOINT s; SET LOCAL zundo.fault = 'converting-locks:error'; DELETE FROM kept WHERE id = 6});
$parent->query('ROLLBACK TO s');
is($parent->query('SELECT count(*) FROM kept'), '6', 'the deletion failed');
timed_out($node, "DELETE FROM kept WHERE id = $_", "row $_ is locked after an error in making records of locks") for 1 .. 5;
passes($node, 'DELETE FROM kept WHERE id = 6', 'the row that was not locked is free');
$parent->query('COMMIT');
$parent->quit;
is($node->safe_psql('postgres', q{SELECT * FROM zundo.check('kept')}), '', 'zundo.check of kept');

# 4. What a KEY SHARE lock costs: no undo for five on a page, and no more WAL than heap's 54 bytes.
SKIP:
{
	skip 'the server lacks pg_walinspect of contrib', 1 unless server_has('pg_walinspect');
	$node->safe_psql(
		'postgres', q{
		CREATE EXTENSION pg_walinspect;
		CREATE TABLE p (id int PRIMARY KEY) USING zheap;
		CREATE TABLE c (id int REFERENCES p) USING zheap;
		CREATE TABLE cheap (id int REFERENCES p) USING heap;
		INSERT INTO p SELECT generate_series(1, 20);
		SELECT id FROM p FOR KEY SHARE;
		SELECT zundo.discard();
	});
	my $costs = $node->safe_psql(
		'postgres', q{
		SET wal_consistency_checking = '';
		SELECT id FROM p WHERE id = 20 FOR KEY SHARE \gset
		SELECT pg_current_wal_insert_lsn() AS start, zundo.undo_bytes_in_use() AS undo \gset
		BEGIN;
		INSERT INTO cheap VALUES (1), (2), (3), (4);
		SELECT id AS ignored FROM p WHERE id = 5 FOR KEY SHARE \gset
		COMMIT;
		SELECT zundo.undo_bytes_in_use() - :undo;
		SELECT string_agg(DISTINCT record_type, ' '), count(*), max(record_length - fpi_length) <= 54
		FROM pg_get_wal_records_info(:'start', pg_current_wal_flush_lsn())
		WHERE resource_manager = 'zundo' AND record_type !~ 'UNDO';
		SELECT id AS ignored FROM p WHERE id < 7 FOR KEY SHARE \g /dev/null
		SELECT zundo.undo_bytes_in_use() - :undo > 0;
	});
	is($costs, "0\nINLINE_LOCK|5|t\nt", 'undo and WAL of KEY SHARE locks');
}

# 5. A row with more lockers than a page has slots moves, and moves back; each of them counts.
$node->safe_psql('postgres', join("\n", 'SET synchronous_commit = off;',
	map { ('BEGIN;', 'SELECT FROM mv WHERE id = 4 FOR KEY SHARE;', "PREPARE TRANSACTION 'm$_';") } 1 .. 700));
passes($node, 'UPDATE mv SET m = m + 1 WHERE id = 4', '700 lockers: a move does not wait');
$node->safe_psql('postgres', 'UPDATE mv SET m = m + 1; UPDATE mv SET m = m - 1');
timed_out($node, 'DELETE FROM mv WHERE id = 4', '700 lockers of a moved row');
is($node->safe_psql('postgres', q{SELECT * FROM zundo.check('mv')}), '', '700 lockers: zundo.check');
$node->safe_psql('postgres', join("\n", 'SET synchronous_commit = off;', map { "COMMIT PREPARED 'm$_';" } 1 .. 350, 352 .. 700));
$node->safe_psql('postgres', 'SELECT zundo.discard(); UPDATE mv SET m = m + 1; UPDATE mv SET m = m - 1; SELECT zundo.discard()');
crash($node);
timed_out($node, 'DELETE FROM mv WHERE id = 4', 'the last one of 700');
$node->safe_psql('postgres', q{COMMIT PREPARED 'm351'});
passes($node, 'DELETE FROM mv WHERE id = 4', 'the lock has ended');

# 6. A standby is promoted.
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->safe_psql(
	'postgres', q{
	BEGIN; SELECT id FROM mv WHERE id = 5 FOR KEY SHARE; PREPARE TRANSACTION 'five';
	UPDATE mv SET m = m + 1;
	VACUUM mv;
});
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', 'SELECT sum(m) FROM mv WHERE id > 1'), '35', 'the standby reads the rows');
$standby->promote;
for my $id (1, 2, 5)
{
	timed_out($standby, "DELETE FROM mv WHERE id = $id", "promoted: row $id is locked");
}
passes($standby, 'UPDATE mv SET m = m + 1', 'promoted: a move does not wait');
$standby->safe_psql('postgres', q{COMMIT PREPARED 'two'; COMMIT PREPARED 'five'});
passes($standby, 'DELETE FROM mv', 'the lockers have ended');
is($standby->safe_psql('postgres', q{SELECT * FROM zundo.check('mv')}), '', 'zundo.check on the standby');
$standby->stop;

$node->safe_psql('postgres', q{COMMIT PREPARED 'two'; COMMIT PREPARED 'three'; COMMIT PREPARED 'five'});
passes($node, 'DELETE FROM mv', 'the lockers have ended here too');

is($node->safe_psql('postgres', q{SELECT * FROM zundo.check('mv')}), '', 'zundo.check of mv');
no_crash($node);
$node->stop;
done_testing();
