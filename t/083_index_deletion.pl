# An insertion into a full index page deletes the entries of rows that are gone,
# without VACUUM, and no other entries.
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

# without a worker `oldest` does not advance, so each answer comes from the deleters' records
my $node = zundo_node('index_deletion', <<'C', allows_streaming => 1);
max_worker_processes = 0
max_prepared_transactions = 10
autovacuum = off
C
sql('CREATE EXTENSION zundo; CREATE EXTENSION amcheck; CREATE EXTENSION pageinspect; CREATE EXTENSION pg_walinspect');

my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;';

# agree NAME: checks that index scans and sequential scans return the same rows of z.
sub agree
{
	my ($name) = @_;
	my $want = sql("SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off; SELECT count(*), sum(k), sum(id) FROM z WHERE k > 0");
	like(sql($by_index, 'EXPLAIN SELECT count(*), sum(k), sum(id) FROM z WHERE k > 0'), qr/z_k_idx/, "$name: the plan");
	is(sql($by_index, 'SELECT count(*), sum(k), sum(id) FROM z WHERE k > 0'), $want, "$name: rows by the index");
	is(sql("SELECT bt_index_check('z_k_idx', true), bt_index_check('z_pkey', true)"), '|', "$name: amcheck");
	sound($node, $name, 'z');
	return;
}

sub update_all
{
	my ($table, $times) = @_;
	sql(map { "UPDATE $table SET k = k + 1;" } 1 .. $times);
	return;
}

# index_bytes TABLE: returns the size of the primary key. Its column does not change, so
# there the server looks for versions of one row.
sub index_bytes { my ($table) = @_; return sql("SELECT pg_relation_size('${table}_pkey')"); }

for my $t ([ 'h', 'heap' ], [ 'z', 'zheap' ])
{
	my ($name, $am) = @$t;
	sql("CREATE TABLE $name (id int PRIMARY KEY, k int, f text) USING $am;
		CREATE INDEX ON $name (k);
		INSERT INTO $name SELECT g, g * 100, repeat('x', 50) FROM generate_series(1, 2000) g");
}

# 1. Each update gives each row new index entries; the old ones are deleted when their page is full.
update_all($_, 60) for qw(h z);
cmp_ok(index_bytes('z'), '<=', 2.5 * index_bytes('h'), '60 updates of all rows: the index is about as small as on heap');
cmp_ok(index_bytes('z'), '<', 15 * 2000 * 16, '60 updates of all rows: not an entry for each update');
agree('after updates');

# 2. Entries that a snapshot may need stay.
my $old = $node->background_psql('postgres', on_error_stop => 1);
$old->query_safe("$by_index BEGIN ISOLATION LEVEL REPEATABLE READ");
my $ask = 'SELECT count(*), sum(k), sum(id) FROM z WHERE k > 0';
my $then = $old->query_safe($ask);
update_all('z', 12);
sql('DELETE FROM z WHERE id % 3 = 0');
update_all('z', 12);
is($old->query_safe($ask), $then, 'an old snapshot finds its rows by the index');
$old->query_safe('COMMIT');
$old->quit;
agree('after an old snapshot');

# 3. Entries of rows that may come back by a rollback stay.
sql("BEGIN; DELETE FROM z WHERE id < 700; PREPARE TRANSACTION 'deleted'");
sql("BEGIN; UPDATE z SET k = k + 1 WHERE id BETWEEN 700 AND 1400; PREPARE TRANSACTION 'moved'");
sql(map { "UPDATE z SET k = k + 1 WHERE id > 1400;" } 1 .. 40);
sql("ROLLBACK PREPARED 'deleted'; ROLLBACK PREPARED 'moved'");
sql(map { "UPDATE z SET k = k + 1 WHERE id > 1400;" } 1 .. 10);
agree('after rollbacks');

# 4. Many deleters on one page, in slots that were reused again and again.
sql(map { my $id = $_; ("UPDATE z SET k = k + 1 WHERE id = $id;", "UPDATE z SET f = f WHERE id = $id + 1;") } map { 1501 + $_ % 20 } 1 .. 400);
agree('after single updates');

# 5. An entry that a scan has found dead is deleted even if much has been done since in
# the slot of the row's deleter.
sql(q{CREATE TABLE d (id int, v int) USING zheap; CREATE INDEX ON d (id);
	INSERT INTO d SELECT g, 0 FROM generate_series(1, 2000) g; DELETE FROM d WHERE id <= 20; SELECT zundo.discard();
	SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM d WHERE id BETWEEN 1 AND 21;
	BEGIN;
	DO $$ BEGIN FOR i IN 1 .. 1100 LOOP UPDATE d SET v = v + 1 WHERE id = 100; END LOOP; END $$;
	DO $$ BEGIN FOR i IN 1 .. 400 LOOP INSERT INTO d VALUES (25, 0); END LOOP; END $$;
	COMMIT});
is(sql('SET enable_seqscan = off; SELECT count(*), sum(v) FROM d WHERE id BETWEEN 1 AND 100'), '480|1100', 'a long chain above known dead entries: the rows');
sound($node, 'a long chain above known dead entries', 'd');

# 6. The WAL record that deletes a marked entry names the row's deleter, for snapshots of
# standbys (SCAN-6), even if the process that deletes it would not have marked it: its own
# horizon is from a time when an old snapshot needed the row.
sql(q{CREATE TABLE c (id int, v int) USING zheap; CREATE INDEX c_id ON c (id); INSERT INTO c SELECT g, 0 FROM generate_series(1, 2000) g});
my ($reader, $runs, $writer) = map { session($node) } 1 .. 3;
ask($reader, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1');
my $deleter = sql('DELETE FROM c WHERE id = 7 RETURNING pg_current_xact_id()');
# as long as this one runs, the server computes no new horizon for a process that has one
ask($runs, 'BEGIN', 'SELECT pg_current_xact_id()');
my $find = 'SELECT count(*) FROM c WHERE id = 7';
my $marked = q{SELECT dead FROM bt_page_items('c_id', 1) WHERE ctid = '(0,7)'};
is(ask($writer, 'SET enable_seqscan = off', 'SET enable_bitmapscan = off', $find), '0', 'the writer computes its horizon');
ask($reader, 'COMMIT');
is(sql($by_index, "$find; $find; $marked"), "0\n0\nt", 'another process marks the entry');
my $from = sql('SELECT pg_current_wal_insert_lsn()');
ask($writer, 'INSERT INTO c SELECT 100, 0 FROM generate_series(1, 200)');
is($complaint, '', 'the writer fills the leaf page');
is(sql("SELECT count(*) FROM bt_page_items('c_id', 1) WHERE ctid = '(0,7)'"), '0', 'the entry is deleted');
my $conflicts = sql(qq{SELECT description FROM pg_get_wal_records_info('$from', pg_current_wal_flush_lsn())
	WHERE resource_manager = 'Btree' AND record_type = 'DELETE'});
like($conflicts, qr/(?:snapshotConflictHorizon:|latestRemovedXid) $deleter\b/, 'the deleter is the conflict horizon');
ask($runs, 'COMMIT');
$_->quit for $reader, $runs, $writer;
sound($node, 'after a deletion by a process with an old horizon', 'c');

no_crash($node);
$node->stop;
done_testing();
