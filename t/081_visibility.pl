# The visibility map: what allows a page's bit to be set, what prevents it, and
# which states a crash may leave.
# Rules: VMAP-1, VMAP-2.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('visibility', <<'C', no_data_checksums => 1);
max_worker_processes = 0
max_prepared_transactions = 200
C
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');

# vacuumed TABLE PAGES NAME: runs VACUUM, and checks that this number of pages
# have their bit then and that the table is sound.
sub vacuumed
{
	my ($table, $pages, $name) = @_;
	sql("VACUUM $table");
	is(sql("SELECT relallvisible FROM pg_class WHERE relname = '$table'"), $pages, $name);
	is(sql("SELECT * FROM zundo.check('$table')"), '', "$name: zundo.check");
	is(sql("SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(id), sum(id) FROM $table"),
		sql("SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off; SELECT count(id), sum(id) FROM $table"),
		"$name: an index-only scan agrees");
	return;
}

sub table
{
	my ($name) = @_;
	sql("CREATE TABLE $name (id int PRIMARY KEY, n int, filler text) USING zheap WITH (fillfactor = 100);
		INSERT INTO $name SELECT g, 0, repeat('x', 60) FROM generate_series(1, 80) g; SELECT zundo.discard()");
	return;
}

# 1. Transactions that have only locked rows, and are still in progress.
table('locked');
sql("BEGIN; SELECT id FROM locked WHERE id < 4 FOR KEY SHARE; PREPARE TRANSACTION 'inline'");
vacuumed('locked', 1, 'locks in a slot');
sql("UPDATE locked SET n = n + 1 WHERE id = 80; SELECT zundo.discard()");
vacuumed('locked', 0, 'a change that is younger than oldest');
sql("COMMIT PREPARED 'inline'; SELECT zundo.discard()");
sql("BEGIN; SELECT id FROM locked WHERE id < 20 FOR KEY SHARE; SELECT id FROM locked WHERE id = 20 FOR UPDATE; PREPARE TRANSACTION 'chain'");
vacuumed('locked', 1, 'locks in undo');
sql("BEGIN; UPDATE locked SET n = n + 1 WHERE id = 50; SELECT id FROM locked WHERE id BETWEEN 51 AND 60 FOR NO KEY UPDATE; PREPARE TRANSACTION 'change'");
vacuumed('locked', 0, 'locks above a change in progress');
sql("ROLLBACK PREPARED 'change'; SELECT zundo.discard()");
vacuumed('locked', 1, 'it is rolled back');

# A row that was moved with the locks of others: the common lock slot.
table('moved');
sql(q{CREATE INDEX ON moved (n);
	BEGIN; SELECT id FROM moved WHERE id = 1 FOR KEY SHARE; PREPARE TRANSACTION 'locker';
	UPDATE moved SET n = 1 WHERE id = 1;
	SELECT zundo.discard()});
sql("COMMIT PREPARED 'chain'; SELECT zundo.discard()");
vacuumed('moved', 0, 'a move that is younger than a locker');
sql("COMMIT PREPARED 'locker'; SELECT zundo.discard(); VACUUM moved; VACUUM moved");
sql("BEGIN; SELECT id FROM moved WHERE id = 2 FOR KEY SHARE; PREPARE TRANSACTION 'locker'");
vacuumed('moved', 1, 'after the end of the locker, beside another one');
sql("COMMIT PREPARED 'locker'");

# 2. Committed changes that an old snapshot does not see, with later locks by other
# transactions: all slots are in use.
table('old');
my $reader = $node->background_psql('postgres', on_error_stop => 1);
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM old');
sql(map { ("UPDATE old SET n = n + 1 WHERE id = $_;", "DELETE FROM old WHERE id = 80 - $_;") } 1 .. 20);
sql(map { ('BEGIN;', "SELECT id FROM old WHERE id = $_ FOR UPDATE;", "PREPARE TRANSACTION 'o$_';") } 21 .. 30);
vacuumed('old', 0, 'locks above committed changes that an old snapshot does not see');
is($reader->query('SELECT count(id), sum(id) FROM old'), '80|3240', 'the old snapshot sees its rows');
sql(map { "COMMIT PREPARED 'o$_';" } 21 .. 30);
$reader->query_safe('COMMIT');
$reader->quit;
sql('SELECT zundo.discard()');
vacuumed('old', 1, 'without an older snapshot');

# 3. A page that has had an overflow page, whose slots rows still name.
table('over');
sql('INSERT INTO over SELECT g, 0, repeat($$x$$, 60) FROM generate_series(81, 300) g');
sql(map { ('BEGIN;', "UPDATE over SET n = n + 1 WHERE id = $_;", "PREPARE TRANSACTION 'w$_';") } 1 .. 70);
cmp_ok(sql("SELECT count(*) FROM zundo.page_slots('over', 0) WHERE overflow"), '>', 10, 'there is an overflow page');
sql(map { "COMMIT PREPARED 'w$_';" } 1 .. 69);
my $pages = sql("SELECT pg_relation_size('over') / 8192");
vacuumed('over', $pages - 1, 'with an overflow page in use');
sql("ROLLBACK PREPARED 'w70'; SELECT zundo.discard()");
vacuumed('over', $pages, 'without the overflow page');
cmp_ok(sql("SELECT max(slot) - (SELECT count(*) FROM zundo.page_slots('over', 0)) FROM zundo.page_items('over', 0)"),
	'>', 0, 'rows name slots that are no more');
sql(map { ('BEGIN;', "DELETE FROM over WHERE id = $_;", "PREPARE TRANSACTION 'v$_';") } 1 .. 70);
is(sql("SELECT * FROM zundo.check('over')"), '', 'another overflow page on a page that had its bit: zundo.check');
is(sql('SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(id) FROM over'), '300', 'and an index-only scan');
sql(map { ($_ % 2 ? 'COMMIT' : 'ROLLBACK') . " PREPARED 'v$_';" } 1 .. 70);
is(sql('SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(id) FROM over'), '265', 'after the end');

# 4. A crash may leave a page's flag without what justifies it: without checksums the page
# can be written before the WAL of the transactions that changed it. No reader relies on
# the flag.
table('flagged');
sql('SELECT zundo.discard()');
my $crashed = $node->background_psql('postgres', on_error_stop => 1);
$crashed->query_safe('BEGIN; INSERT INTO flagged VALUES (1000); UPDATE flagged SET n = 7 WHERE id = 1; DELETE FROM flagged WHERE id = 2');
sql('BEGIN; INSERT INTO flagged VALUES (2000); UPDATE flagged SET n = 7 WHERE id = 3; PREPARE TRANSACTION $$flagged$$; CHECKPOINT');
my $file = $node->data_dir . '/' . sql("SELECT pg_relation_filepath('flagged')");
$node->stop('immediate');
eval { $crashed->quit };
open my $fh, '+<:raw', $file or die "$file: $!";
seek $fh, 10, 0;
read $fh, my $flags, 2;
seek $fh, 10, 0;
print $fh pack('v', unpack('v', $flags) | 4);
close $fh or die "$file: $!";
$node->start;
is(sql("SELECT * FROM zundo.check('flagged')"), '', 'a flag without its bit: zundo.check');
for my $scans ('seqscan', 'indexonlyscan', 'indexscan', 'bitmapscan')
{
	my $off = join ' ', map { "SET enable_$_ = " . ($_ eq $scans || ($scans eq 'indexonlyscan' && $_ eq 'indexscan') ? 'on;' : 'off;') }
		qw(seqscan indexonlyscan indexscan bitmapscan);
	is(sql("$off SELECT count(id), sum(id) FROM flagged WHERE id > 0"), '80|3240', "a flag without its bit: $scans");
	is(sql("$off SELECT count(id), sum(n) FROM flagged WHERE id > 0"), '80|0', "a flag without its bit: $scans with the rows");
}
sql('SELECT zundo.discard()');
vacuumed('flagged', 0, 'a flag without its bit');
sql('COMMIT PREPARED $$flagged$$; UPDATE flagged SET n = 7 WHERE id = 4; DELETE FROM flagged WHERE id = 2000; SELECT zundo.discard()');
is(sql("SELECT * FROM zundo.check('flagged')"), '', 'the page is changed: zundo.check');
vacuumed('flagged', 1, 'the page is changed and vacuumed');
is(sql('SELECT count(*), sum(n) FROM flagged'), '80|14', 'its rows');

# Row locks that need an overflow page: VACUUM removes the page after the lockers have ended.
sql(q{CREATE TABLE parent (id int PRIMARY KEY, filler text) USING zheap WITH (fillfactor = 100);
	INSERT INTO parent SELECT g, repeat('x', 170) FROM generate_series(1, 5000) g; SELECT zundo.discard(); VACUUM parent});
is(sql(q{SELECT relallvisible = relpages FROM pg_class WHERE relname = 'parent'}), 't', 'lockers of a full page: its bit is set');
sql(map { "BEGIN; SELECT id FROM parent WHERE id = $_ FOR UPDATE; PREPARE TRANSACTION 'parent$_';" } 1 .. 9);
cmp_ok(sql(q{SELECT count(*) FILTER (WHERE overflow) FROM zundo.page_slots('parent', 0)}), '>', 0, 'lockers of a full page: it has an overflow page');
sql((map { "COMMIT PREPARED 'parent$_';" } 1 .. 9), 'SELECT zundo.discard(); VACUUM parent;');
is(sql(q{SELECT count(*) FILTER (WHERE overflow) FROM zundo.page_slots('parent', 0)}), '0', 'lockers of a full page: VACUUM has removed the overflow page');
vacuumed('parent', sql(q{SELECT pg_relation_size('parent') / 8192}), 'lockers of a full page');

# blocks_read WANT NAME [OPTION]: checks that VACUUM reads only the blocks whose bit is
# not set, and the last one.
sub blocks_read
{
	my ($want, $name, $option) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', 'SELECT zundo.discard(); VACUUM (VERBOSE' . (defined $option ? ", $option" : '') . ') big');
	is($err =~ /(\d+) scanned \(/ ? $1 : "nothing: $err", $want, "$name: blocks read");
	is(sql("SELECT * FROM zundo.check('big')"), '', "$name: zundo.check");
	is(sql("SELECT relallvisible = relpages, abs(reltuples - (SELECT count(*) FROM big)) < 200 FROM pg_class WHERE relname = 'big'"), 't|t', "$name: statistics");
	return;
}
sub in_blocks { my ($condition) = @_; return "(ctid::text::point)[0]::int IN (SELECT g FROM generate_series(0, 1000) g WHERE $condition) AND (ctid::text::point)[1] = 1"; }
sql(q{CREATE TABLE big (id int PRIMARY KEY, n int, filler text) USING zheap WITH (fillfactor = 100);
	INSERT INTO big SELECT g, 0, repeat('x', 60) FROM generate_series(1, 20000) g});
$pages = sql("SELECT pg_relation_size('big') / 8192");
blocks_read($pages, 'at first');
blocks_read(1, 'nothing has changed');
sql(q{SET allow_system_table_mods = on; UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE relname = 'big'});
blocks_read($pages, 'the number of rows is not known');
sql('UPDATE big SET n = 1 WHERE ' . in_blocks('g = 100'));
blocks_read(2, 'one block has changed');
sql('DELETE FROM big WHERE ' . in_blocks('g = 50'));
blocks_read(2, 'a row was deleted', 'INDEX_CLEANUP on');
is(sql("SELECT count(*) FROM zundo.page_items('big', 50) WHERE lp_state = 'dead'"), '0', 'a row was deleted: its line pointer is free');
blocks_read($pages, 'all blocks are asked for', 'DISABLE_PAGE_SKIPPING');
sql('UPDATE big SET n = 2 WHERE ' . in_blocks('g % 20 = 0'));
blocks_read($pages, 'few blocks between changed ones');
sql('UPDATE big SET n = 3 WHERE ' . in_blocks('g IN (0, 40)'));
blocks_read(3, 'more blocks between changed ones');
sql("DELETE FROM big WHERE (ctid::text::point)[0] >= $pages / 2");
blocks_read($pages - int($pages / 2), 'the second half was deleted');
is(sql("SELECT pg_relation_size('big') / 8192"), int($pages / 2), 'the second half was deleted: the table is shorter');

$node->stop;
done_testing();
