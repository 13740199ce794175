# Tools exchange the files of two tables in pg_class (zundo_test_swap_files):
# undo stays with the file (discard/zfile.c), and a file that is not zheap's, or
# that heap's functions have written to, is recognized (zpage_fault).
# Rules: RESOLVE-1.
use strict;
use warnings;
use Test::More;
use ZundoTest;

my $node = zundo_node('swapped', <<'C');
max_worker_processes = 0
max_prepared_transactions = 30
zundo.eager_rollback_pages = 0
C
$node->safe_psql('postgres', 'CREATE EXTENSION zundo; CREATE EXTENSION zundo_test');

# fails SQL PATTERN NAME: checks that the SQL raises this error.
sub fails
{
	my ($sql, $pattern, $name) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', $sql);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like($err, $pattern, $name);
	return;
}

# 1. A rollback is pending while the file is given to another table, and its former table
# is dropped.
my $sums = 'SELECT count(*), sum(v) FROM';
$node->safe_psql('postgres', q{
	CREATE TABLE a (id int PRIMARY KEY, v int) USING zheap;
	CREATE TABLE b (id int PRIMARY KEY, v int) USING zheap;
	INSERT INTO a VALUES (1, 1);
	INSERT INTO b SELECT i, i FROM generate_series(1, 500) i;
	BEGIN;
	UPDATE b SET v = v + 1000;
	INSERT INTO b SELECT i, i FROM generate_series(501, 600) i;
	ROLLBACK;
	SELECT zundo_test_swap_files('a', 'b'), zundo_test_swap_files('a_pkey', 'b_pkey');
	DROP TABLE b;
});
is($node->safe_psql('postgres', "$sums a"), '500|125250', 'the file brings its undo along');
my $slots = q{SELECT count(*) FROM generate_series(0, pg_relation_size('a') / 8192 - 1) b, zundo.page_slots('a', b) WHERE status = 'aborted'};
isnt($node->safe_psql('postgres', $slots), '0', 'nobody has rolled back yet');
$node->safe_psql('postgres', 'SELECT zundo.discard()') for 1 .. 3;
is($node->safe_psql('postgres', 'SELECT zundo.undo_bytes_in_use()'), '0', 'the undo has been discarded');
is($node->safe_psql('postgres', "$sums a"), '500|125250', 'after the rollback');
is($node->safe_psql('postgres', "SET enable_seqscan = off; SELECT v FROM a WHERE id = 400"), '400', 'by index');
sound($node, 'swapped', 'a', 'zundo.undo_log');

# 2. A zheap table with a heap file: every access raises an error, nothing is written, and
# all rows are there when the files are exchanged back.
$node->safe_psql('postgres', q{
	CREATE TABLE z (id int PRIMARY KEY, v int) USING zheap;
	CREATE TABLE h (id int PRIMARY KEY, v int) USING heap;
	INSERT INTO z SELECT i, i FROM generate_series(1, 1000) i;
	INSERT INTO h SELECT i, -i FROM generate_series(1, 1000) i;
	ANALYZE z; ANALYZE h;
	SELECT zundo_test_swap_files('z', 'h'), zundo_test_swap_files('z_pkey', 'h_pkey');
});
my $heap_page = qr/ERROR:  block \d+ of relation "z" is corrupted\n.*DETAIL:  It is a page of a heap table\./s;
fails($_, $heap_page, $_)
  for 'SELECT count(*) FROM z', 'SELECT * FROM z WHERE id = 7', 'INSERT INTO z VALUES (0, 0)', 'UPDATE z SET v = 0 WHERE id = 7',
  'DELETE FROM z WHERE id = 7', 'SELECT * FROM z WHERE id = 7 FOR UPDATE', 'ALTER TABLE z ALTER v TYPE bigint', 'CREATE INDEX ON z (v)',
  'VACUUM z', 'VACUUM FULL z', 'ANALYZE z', 'SELECT * FROM z TABLESAMPLE SYSTEM (100)', q{SELECT * FROM z WHERE ctid = '(0,1)'},
  'SET enable_seqscan = off; SET enable_indexscan = off; SELECT * FROM z WHERE id IN (7, 8)', q{SELECT * FROM zundo.page_items('z', 0)};
like($node->safe_psql('postgres', q{SELECT DISTINCT invariant, detail FROM zundo.check('z')}),
	qr/^PAGE-1\|.*It is a page of a heap table\.$/, 'zundo.check');
$node->safe_psql('postgres', q{SELECT zundo_test_swap_files('z', 'h'), zundo_test_swap_files('z_pkey', 'h_pkey')});
is($node->safe_psql('postgres', "$sums z UNION ALL $sums h"), "1000|500500\n1000|-500500", 'exchanged back');
sound($node, 'exchanged back', 'z');

# 3. Heap's insertion into a page of a zheap table. The session has seen how large the
# table is, so that the free space map's page is taken without another look.
$node->safe_psql('postgres', 'DELETE FROM z WHERE id % 3 <> 0');
$node->safe_psql('postgres', 'SELECT zundo.discard(); VACUUM z') for 1 .. 2;
$node->safe_psql('postgres', q{SELECT count(*) FROM z; SELECT zundo_test_heap_insert('z', 0)});
my $written = qr/ERROR:  block \d+ of relation "z" is corrupted\n.*DETAIL:  It has been written by heap's functions/s;
fails($_, $written, $_) for 'SELECT count(*) FROM z', 'VACUUM z';
like($node->safe_psql('postgres', q{SELECT block, detail FROM zundo.check('z')}), qr/^\d+\|.*It has been written by heap's functions.*$/,
	'zundo.check names the one page');

# 4. Slots on an overflow page, which names the table that had the file: the first pass of
# a worker sweeps such pages away where nobody has the file. The transaction 'pin' keeps
# the slots.
$node->safe_psql('postgres', q{
	CREATE TABLE pin (v int) USING zheap;
	CREATE TABLE c (id int, v int, filler char(60)) USING zheap;
	CREATE TABLE d (LIKE c) USING zheap WITH (fillfactor = 100);
	INSERT INTO d SELECT i, 0, 'x' FROM generate_series(1, 200) i;
	BEGIN; INSERT INTO pin VALUES (1); PREPARE TRANSACTION 'pin';
});
$node->safe_psql('postgres', join("\n", map { "BEGIN; UPDATE d SET v = $_ WHERE id = $_; PREPARE TRANSACTION 'd$_';" } 1 .. 24));
$node->safe_psql('postgres', join("\n", map { "COMMIT PREPARED 'd$_';" } 1 .. 24));
my $overflow = q{SELECT count(*) > 0 FROM zundo.page_slots('%s', 0) WHERE overflow AND xid IS NOT NULL};
is($node->safe_psql('postgres', sprintf($overflow, 'd')), 't', 'there is an overflow page');
$node->safe_psql('postgres', q{SELECT zundo_test_swap_files('c', 'd'); DROP TABLE d});
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->restart;
ok($node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_stat_activity
	WHERE backend_type = 'zundo undo worker' AND wait_event_type = 'Extension'}), 'a worker has made its pass');
is($node->safe_psql('postgres', sprintf($overflow, 'c')), 't', 'its slots are there');
is($node->safe_psql('postgres', "$sums c"), '200|300', 'the rows');
is($node->safe_psql('postgres', 'UPDATE c SET v = v + 1 WHERE id = 24 RETURNING v'), '25', 'and a change');
sound($node, 'swapped', 'c');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'pin'});

no_crash($node);
done_testing();
