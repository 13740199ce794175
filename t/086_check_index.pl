# zundo.check_index (INDEX-n in monitor/index_check.c),
# zundo.index_entries and zundo.index_items: no row for sound indexes, also
# beside writers, and one row for each fault.
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('check_index', "max_prepared_transactions = 5\nzundo.key_queue = 0\n", no_data_checksums => 1);
sql(q{
CREATE EXTENSION zundo;
CREATE EXTENSION zundo_test;
CREATE TABLE s (id int PRIMARY KEY, n int, t text, big text, m numeric) USING zheap WITH (fillfactor = 80);
ALTER TABLE s ALTER big SET STORAGE EXTERNAL;
INSERT INTO s SELECT g, CASE WHEN g % 11 > 0 THEN g % 40 END, 'text ' || g % 30, repeat('b', g % 3 * 2500), g / 10.0
	FROM generate_series(1, 2000) g;
CREATE INDEX s_n ON s USING zbtree (n);
CREATE INDEX s_nt ON s USING zbtree (n DESC, t NULLS FIRST) INCLUDE (id);
CREATE INDEX s_t ON s USING zbtree (t COLLATE "C", n DESC NULLS LAST);
CREATE INDEX s_m ON s USING zbtree (m) WHERE n > 5;
CREATE INDEX s_expr ON s USING zbtree (left(big, 3), (n / 3));
CREATE INDEX s_big ON s USING zbtree (md5(big), id) WITH (fillfactor = 50);
CREATE TABLE e (a int) USING zheap;
CREATE INDEX e_a ON e USING zbtree (a);
CREATE FUNCTION faults() RETURNS TABLE (index regclass, block bigint, item int, invariant text, detail text) LANGUAGE sql AS $$
	SELECT indexrelid::regclass, c.* FROM pg_index JOIN pg_class i ON i.oid = indexrelid JOIN pg_am a ON a.oid = i.relam AND amname = 'zbtree',
		zundo.check_index(indexrelid) c WHERE indisvalid $$;
});

# sound_indexes NAME: checks that zundo.check_index returns no row for any index.
sub sound_indexes
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql('SELECT * FROM faults()'), '', $what);
	return;
}

sound_indexes('built');
is(sql(q{SELECT entries, stale, dead, leaf_pages > 2 FROM zundo.index_entries('s_n')}), '2000|0|0|t', 'entries');
is(sql(q{SELECT * FROM zundo.index_entries('e_a')}), '0|0|0|0', 'entries of an empty index');

# changes of all kinds under an old snapshot; changes in progress and rolled back
my $old = session($node);
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM s');
sql(q{UPDATE s SET n = n + 1 WHERE id % 3 = 0});
sql(q{UPDATE s SET n = n - 1 WHERE id % 3 = 0});
sql(q{UPDATE s SET t = 'other', m = m WHERE id % 7 = 0});
sql(q{UPDATE s SET big = repeat('c', 3000) WHERE id % 13 = 0});
sql(q{DELETE FROM s WHERE id % 17 = 0});
sql(q{BEGIN; UPDATE s SET n = 77 WHERE id % 5 = 0; SAVEPOINT a; UPDATE s SET n = 78 WHERE id % 10 = 0; ROLLBACK TO a; DELETE FROM s WHERE id < 30; ROLLBACK});
my $open = session($node);
ask($open, q{BEGIN; UPDATE s SET n = 55 WHERE id % 19 = 0; INSERT INTO s SELECT g, g, 'x', 'y', g FROM generate_series(3001, 3100) g; DELETE FROM s WHERE id % 29 = 0});
sql(q{BEGIN; UPDATE s SET n = 99 WHERE id % 23 = 0 AND id % 19 > 0 AND id % 29 > 0; PREPARE TRANSACTION 'p'});
sound_indexes('beside an old snapshot and changes in progress');
is(ask($open, 'SELECT * FROM faults()'), '', 'own changes');
is(ask($old, 'SELECT * FROM faults()'), '', 'asked under the old snapshot');
ask($open, 'COMMIT');
sql(q{ROLLBACK PREPARED 'p'});
sql('CREATE INDEX s_late ON s USING zbtree (t, m); CREATE INDEX s_late2 ON s USING zbtree (n)');
sound_indexes('an index built beside an old snapshot');
sql('VACUUM s');
sound_indexes('VACUUM beside an old snapshot');
ask($old, 'COMMIT');
sql('SELECT zundo.discard()');
sql('VACUUM s');
sound_indexes('after VACUUM');
sql('REINDEX TABLE s');
sql('CLUSTER s USING s_pkey');
sound_indexes('rebuilt');
is(sql(q{SELECT stale FROM zundo.index_entries('s_n')}), '0', 'nothing is stale after that');

# beside writers and VACUUM; a session that undo is kept for, but that has no snapshot
my $idle = session($node);
ask($idle, q{BEGIN; SELECT pg_current_xact_id() IS NOT NULL});
my @writers = map { session($node) } 1 .. 3;
# (the writers end early if all checks are done before, as on a busy machine)
sql(q{CREATE TABLE enough (yes bool);
	CREATE PROCEDURE work(seed int) LANGUAGE plpgsql AS $$ BEGIN
	FOR i IN 1 .. 400 LOOP
		EXIT WHEN EXISTS (SELECT FROM enough);
		UPDATE s SET n = (n + seed) % 50 WHERE id = 3 * (i * 37 % 600) + seed;
		UPDATE s SET t = t || i WHERE id = 3 * (i * 41 % 600) + seed;
		IF i % 9 = 0 THEN DELETE FROM s WHERE id = 3 * (i * 43 % 600) + seed; END IF;
		IF i % 9 = 5 THEN INSERT INTO s VALUES (3 * (i * 43 % 600) + seed, i, 'new', '', i) ON CONFLICT DO NOTHING; END IF;
		IF i % 5 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
	END LOOP; END $$});
for my $n (1 .. 3)
{
	$writers[ $n - 1 ]->query_until(qr/started/, "\\echo started\nCALL work($n);\n\\echo ended\n");
}
my $ended = '';
for my $i (1 .. 12)
{
	sound_indexes("beside writers, $i");
	sql('VACUUM s') if $i % 3 == 0;
	sql('CREATE INDEX CONCURRENTLY s_conc ON s USING zbtree (n, t)') if $i == 4;
}
sql('INSERT INTO enough VALUES (true)');
$_->query_until(qr/ended/, '') for @writers;
sound_indexes('after writers');
ask($idle, 'COMMIT');
$_->quit for @writers, $idle, $old, $open;

# index_items
sql('SELECT zundo.discard()');
sql('VACUUM s');
is(sql(q{SELECT kind, bool_or(state = 'needed'), count(*) > 50, max(array_length(key, 1)) FROM zundo.index_items('s_nt', 1) GROUP BY kind ORDER BY kind}),
	"entry|t|t|3\nhigh key||f|2", 'items of a leaf page');
is(sql(q{SELECT bool_and(kind IN ('downlink', 'high key')), bool_and(child > 0 OR kind = 'high key') FROM zundo.index_items('s_n', 3)}), 't|t', 'items of an inner page');
is(sql(q{SELECT bool_and(s.n IS NOT DISTINCT FROM i.key[1]::int) FROM zundo.index_items('s_n', 1) i JOIN s ON s.ctid = target WHERE kind = 'entry' AND state = 'needed'}), 't', 'keys and places');

# entries of which the rows have no flag
sql(q{INSERT INTO e SELECT g FROM generate_series(1, 100) g;
	SELECT zundo_test_add_entry('e', 'e_a', a.ctid, b.ctid) FROM e a JOIN e b ON b.a = a.a + 1 WHERE a.a % 10 = 0});
is(sql(q{SELECT index, invariant, count(*), min(detail) FROM faults() GROUP BY index, invariant}),
	'e_a|INDEX-4|9|no version of row (0,11) has the key of the entry, and the row is not marked as one with stale entries', 'unknown entries (INDEX-4)');
is(sql(q{SELECT entries, stale FROM zundo.index_entries('e_a')}), '109|9', 'are counted as stale');
is(sql(q{SELECT count(*) FROM zundo.index_items('e_a', 1) WHERE state = 'stale, row not marked'}), '9', 'and shown');
sql('REINDEX INDEX e_a');
sql(q{SELECT zundo_test_add_entry('e', 'e_a', ctid, ctid) FROM e WHERE a = 50});
is(sql(q{SELECT index, invariant, detail FROM faults()}), 'e_a|INDEX-3|the entry of (0,50) is there twice', 'an entry twice (INDEX-3)');
sql('REINDEX INDEX e_a');
sound_indexes('rebuilt again');

# entries that old snapshots need: needed, then stale, then deleted; and one that is missing
my $reader = session($node);
ask($reader, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM e');
sql('UPDATE e SET a = a + 1000 WHERE a <= 10');
my $middle = session($node);
ask($middle, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM e');
sql('UPDATE e SET a = a - 1000 WHERE a > 1000');
sql('BEGIN; UPDATE e SET a = a + 2000 WHERE a <= 10; ROLLBACK');
sound_indexes('keys that came back');
is(sql(q{SELECT entries, stale FROM zundo.index_entries('e_a')}), '120|10', 'stale are the keys that were rolled back');
my ($block, $item) = split(/\|/, sql(q{SELECT 1, item FROM zundo.index_items('e_a', 1) WHERE key = '{1003}'}));
sql("SELECT zundo_test_drop_entry('e_a', $block, $item)");
is(sql(q{SELECT block, item, invariant, detail FROM zundo.check_index('e_a')}),
	'0|3|INDEX-1|an older version of the row, which a snapshot can need, has no entry in the index', 'a lost entry of an older version (INDEX-1)');
ask($middle, 'COMMIT');
ask($reader, 'COMMIT');
$_->quit for $reader, $middle;
ok(all_discarded($node), 'no snapshot needs them');
is(sql(q{SELECT entries, stale FROM zundo.index_entries('e_a')}), '119|19', 'stale are all old keys');
sql('VACUUM e');
is(sql(q{SELECT entries, stale FROM zundo.index_entries('e_a')}), '100|0', 'VACUUM takes them away');
sound_indexes('after that');

# A concurrent build does not wait for a transaction that only has an id, nor enters versions
# for it; a later snapshot has the xmin of that. What commands change in the catalogs after the
# build does not matter.
my $writer = session($node);
ask($writer, 'BEGIN', 'SELECT pg_current_xact_id()');
sql('UPDATE e SET a = a + 500 WHERE a <= 10');
sql($_) for 'CREATE INDEX CONCURRENTLY e_c ON e USING zbtree (a)', 'ALTER INDEX e_c RENAME TO e_d', 'ALTER INDEX e_d SET (fillfactor = 80)', 'REINDEX INDEX CONCURRENTLY e_a';
ask($reader = session($node), 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM e');
sound_indexes('concurrent builds beside an older transaction');
ask($_, 'COMMIT'), $_->quit for $writer, $reader;
sql('DROP INDEX e_d; UPDATE e SET a = a - 500 WHERE a > 500');
ok(all_discarded($node), 'its undo is discarded');
sql('VACUUM e');

# damaged pages
sub damaged
{
	my ($what, $change, $expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	sql('REINDEX INDEX e_a; CHECKPOINT');
	my $path = $node->data_dir . '/' . sql(q{SELECT pg_relation_filepath('e_a')});
	$node->stop;
	my $page = read_block($path, 1);
	write_block($path, 1, $change->($page));
	$node->start;
	my $found = sql(q{SELECT block, item, invariant, detail FROM zundo.check_index('e_a')});
	ref $expected ? like($found, $expected, $what) : is($found, $expected, $what);
	return;
}

# entry_at PAGE OFFSET: returns where on the page the index tuple of this line pointer begins.
sub entry_at { my ($page, $off) = @_; return unpack('L<', substr($page, 20 + 4 * $off, 4)) & 0x7fff; }

damaged('entries exchanged (INDEX-3)', sub {
		my ($page) = @_;
		(substr($page, 20 + 4 * 7, 4), substr($page, 20 + 4 * 8, 4)) = (substr($page, 20 + 4 * 8, 4), substr($page, 20 + 4 * 7, 4));
		return $page; }, "0|7|INDEX-1|the row has no entry in the index\n1|8|INDEX-3|the entry is out of order");
damaged('an entry of a row that is not there (INDEX-2)', sub {
		my ($page) = @_;
		substr($page, entry_at($page, 9) + 4, 2) = pack('S<', 200);
		return $page; }, "0|9|INDEX-1|the row has no entry in the index\n1|9|INDEX-2|the entry names (0,200), where no row is");
damaged('an entry of a page that is not there (INDEX-2)', sub {
		my ($page) = @_;
		substr($page, entry_at($page, 9) + 2, 2) = pack('S<', 77);
		return $page; }, "0|9|INDEX-1|the row has no entry in the index\n1|9|INDEX-2|the entry names (77,9), where no row is");
damaged('a needed entry marked as dead (INDEX-6)', sub {
		my ($page) = @_;
		substr($page, 20 + 4 * 5, 4) = pack('L<', unpack('L<', substr($page, 20 + 4 * 5, 4)) | (3 << 15));
		return $page; }, "1|5|INDEX-6|the entry of (0,5) is marked as dead, but a new snapshot needs it");
damaged('an entry of several TIDs (INDEX-3)', sub {
		my ($page) = @_;
		my $place = entry_at($page, 100);
		substr($page, $place + 6, 2) = pack('S<', unpack('S<', substr($page, $place + 6, 2)) | 0x2000);
		substr($page, $place + 4, 2) = pack('S<', 0x2000 | 2);
		return $page; }, "0||E|an entry of index \"e_a\" holds several TIDs It is item 100 of block 1.\n1|100|INDEX-3|the entry does not hold exactly one TID");
sql('REINDEX INDEX e_a');
# the last key of a leaf page is one of a page further to the right
sql('INSERT INTO e SELECT g FROM generate_series(2000, 3000) g');
damaged('an entry beyond the high key (INDEX-3)', sub {
		my ($page) = @_;
		my $last = (unpack('S<', substr($page, 12, 2)) - 24) / 4;
		substr($page, entry_at($page, $last) + 8, 4) = pack('l<', 2999);
		return $page; }, qr/^1\|(\d+)\|INDEX-3\|the entry is beyond the high key of its page$/m);
sql('DELETE FROM e WHERE a >= 2000; SELECT zundo.discard(); VACUUM e; REINDEX INDEX e_a');

# an old state of the index
my $path = $node->data_dir . '/' . sql(q{SELECT pg_relation_filepath('e_a')});
sql('CHECKPOINT');
$node->stop;
my $old_page = read_block($path, 1);
$node->start;
sql(q{UPDATE e SET a = -a WHERE a = 40; CHECKPOINT});
$node->stop;
write_block($path, 1, $old_page);
$node->start;
is(sql(q{SELECT invariant, detail FROM zundo.check_index('e_a')}), 'INDEX-1|the row has no entry in the index', 'a lost write of the index (INDEX-1)');
sql('REINDEX INDEX e_a');

# rights and refusals
sub refused
{
	my ($sql, $pattern) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', $sql);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like($err, $pattern, $sql);
	return;
}
refused(q{SELECT zundo.check_index('s_pkey')}, qr/"s_pkey" is not a zbtree index.*amcheck/s);
refused(q{SELECT zundo.check_index('s')}, qr/"s" is not a zbtree index/);
refused(q{SELECT zundo.index_items('s_n', 0)}, qr/block 0 is out of range for index "s_n"/);
refused(q{SELECT zundo.index_items('s_n', 100000)}, qr/block 100000 is out of range/);
sql(q{CREATE FUNCTION fail(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN 10 / $1; END $$});
$node->psql('postgres', 'INSERT INTO e VALUES (0); CREATE INDEX CONCURRENTLY e_bad ON e USING zbtree (fail(a))');
refused(q{SELECT zundo.check_index('e_bad')}, qr/index "e_bad" is not valid/);
sql('DROP INDEX e_bad; DELETE FROM e WHERE a = 0; CREATE ROLE owner; CREATE ROLE other; CREATE ROLE scanner; GRANT pg_stat_scan_tables TO scanner; ALTER TABLE e OWNER TO owner');
refused(q{SET ROLE other; SELECT zundo.check_index('e_a')}, qr/must be owner of index e_a/);
refused(q{SET ROLE other; SELECT zundo.index_entries('e_a')}, qr/must be owner of index e_a/);
refused(q{SET ROLE owner; SELECT zundo.index_items('e_a', 1)}, qr/permission denied for function index_items/);
sql('GRANT EXECUTE ON FUNCTION zundo.index_items TO owner');
refused(q{SET ROLE owner; SELECT zundo.index_items('e_a', 1)}, qr/must be superuser to inspect pages/);
is(sql(q{SET ROLE owner; SELECT * FROM zundo.check_index('e_a'); SET ROLE scanner; SELECT * FROM zundo.check_index('e_a')}), '', 'owner and scanner may check');
my $temp = session($node);
ask($temp, q{CREATE TEMP TABLE tt (a int) USING zheap; INSERT INTO tt VALUES (1); CREATE INDEX tt_a ON tt USING zbtree (a)});
is(ask($temp, q{SELECT * FROM zundo.check_index('tt_a')}), '', 'a temporary table');
my $schema = sql(q{SELECT relnamespace::regnamespace FROM pg_class WHERE relname = 'tt_a'});
refused("SELECT zundo.check_index('$schema.tt_a')", qr/cannot access temporary tables of other sessions/);
$temp->quit;

# an expression runs as the owner of the table, restricted; its error becomes a row
sql(q{CREATE FUNCTION late(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
		IF current_setting('test.late', true) <> '' THEN
			RAISE 'too late for %', current_user USING DETAIL = 'So it is.', ERRCODE = current_setting('test.late'); END IF; RETURN $1; END $$;
	CREATE INDEX e_late ON e USING zbtree (late(a))});
is(sql(q{SET test.late = 'P0001'; SELECT invariant, detail, current_user = 'postgres' FROM zundo.check_index('e_late')}), 'E|too late for owner So it is.|t', 'an error, by the owner');
# but one that is not about the index ends the check
refused("SET test.late = '$_'; SELECT * FROM zundo.check_index('e_late')", qr/ERROR:  too late for owner/) for qw(40001 40P01 53400 55P03 57P01);

# an entry with the row's key and another included value
sql('DROP INDEX e_a, e_late; ALTER TABLE e ADD b int; UPDATE e SET b = abs(a); CREATE INDEX e_a ON e USING zbtree (a) INCLUDE (b); VACUUM e');
my $ninth = sql('SELECT ctid FROM e ORDER BY a, ctid OFFSET 8 LIMIT 1');
damaged('another included value (INDEX-4)', sub {
		my ($page) = @_;
		substr($page, entry_at($page, 9) + 12, 4) = pack('l<', -77);
		return $page; }, "1|9|INDEX-4|the entry of $ninth has the row's key, but not its bytes, and the row is not marked as one with stale entries");
sql('UPDATE e SET b = b + 1');
is(sql(q{SELECT * FROM zundo.check_index('e_a')}), '', 'the rows are marked now');
# a younger id below an older one in a chain: what counts as seen does not depend on the records that were read before
sql(q{CREATE TABLE order_of (id int, k int, v int) USING zheap; CREATE INDEX order_k ON order_of USING zbtree (k);
	INSERT INTO order_of SELECT g, g, 0 FROM generate_series(1, 120) g});
ok(all_discarded($node), 'nothing keeps undo');
my ($first, $second, $third, $checker, $seeing) = map { session($node) } 1 .. 5;
ask($_, 'BEGIN; SELECT pg_current_xact_id()') for $first, $second, $third;
sql('UPDATE order_of SET k = k + 1000 WHERE id = 100');
sql("UPDATE order_of SET v = 1 WHERE id = $_") for 1 .. 3;	# now all slots are in use
ask($second, 'UPDATE order_of SET v = 1 WHERE id = 50; COMMIT');
sql('UPDATE order_of SET v = 2 WHERE id >= 40');
my $of_order = q{SELECT * FROM zundo.check_index('order_k')};
is(ask($checker, "BEGIN; $of_order"), '', 'the first transaction may see nothing of it');
ask($first, 'COMMIT');
ask($seeing, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM order_of');
for (1 .. 1800)
{
	sql('VACUUM order_of');
	last if sql(q{SELECT entries FROM zundo.index_entries('order_k')}) == 120;
	select(undef, undef, undef, 0.1);
}
is(sql(q{SELECT entries FROM zundo.index_entries('order_k')}), '120', 'the entry of the old key is gone');
is(ask($checker, $of_order), '', 'nobody needs it');
is(sql($of_order), '', '... nor in another transaction');
$_->quit for $first, $second, $third, $checker, $seeing;
sound($node, 'in the end', 's', 'e', 'order_of');
no_crash($node);
$node->stop;
done_testing();
