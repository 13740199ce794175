# Space of deleted and moved rows is reused as soon as the deleter has
# committed, without VACUUM and under an old snapshot. A session that extends a
# table adds pages for the sessions that wait to do the same.
# Rules: SPACE-4, PAGE-6, VACUUM-2.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('space', "max_prepared_transactions = 10\nshared_buffers = 64MB\n", allows_streaming => 1);
sub bytes { my ($table) = @_; return sql("SELECT pg_relation_size('$table')"); }
sql('CREATE EXTENSION zundo; CREATE TABLE anchor (id int) USING zheap; INSERT INTO anchor VALUES (1)');

my $old = $node->background_psql('postgres', on_error_stop => 1);
sub open_snapshot { $old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM anchor'); return; }
sub fill { my ($table, $n) = @_; return "INSERT INTO $table SELECT g, g, repeat('x', 120) FROM generate_series(1, $n) g;"; }

# grows TABLE TIMES NAME SQL...: runs each statement as a transaction, and checks that the
# table is at most TIMES as large as before.
sub grows
{
	my ($table, $times, $name, @sql) = @_;
	my $before = bytes($table);
	sql(@sql);
	cmp_ok(bytes($table), '<=', $times * $before, $name);
	sound($node, $name, $table);
	return;
}

for my $kind ('', 'PRIMARY KEY')
{
	my $name = 'r' . ($kind eq '' ? 'plain' : 'keyed');
	sql("CREATE TABLE $name (id int $kind, k int, f text) USING zheap");
	sql(fill($name, 6000));
	open_snapshot();
	grows($name, 1.3, "$name: all deleted and inserted anew, three times", map { ("DELETE FROM $name;", fill($name, 6000)) } 1 .. 3);
	is($old->query_safe("SELECT count(*), sum(k) FROM $name"), '6000|18003000', "$name: an old snapshot sees its rows");
	$old->query_safe('COMMIT');
	is(sql("SELECT count(*), sum(k) FROM $name"), '6000|18003000', "$name: the rows");
}

# A table of which half is deleted and refilled; rows that move; a queue.
sql('CREATE TABLE t (id int, k int, f text) USING zheap', ';', fill('t', 6000));
open_snapshot();
grows('t', 1.1, 'half deleted and refilled', 'DELETE FROM t WHERE id % 2 = 0;', 'INSERT INTO t SELECT g, g, repeat($$x$$, 120) FROM generate_series(2, 6000, 2) g;');
sql('CREATE INDEX ON t (k)');
grows('t', 2.3, 'all rows moved, three times', map { 'UPDATE t SET k = k + 1;' } 1 .. 3);
sql('CREATE TABLE queue (id int PRIMARY KEY, k int, f text) USING zheap', ';', fill('queue', 3000));
grows('queue', 2, 'a queue',
	map { ('INSERT INTO queue SELECT g, g, repeat($$x$$, 120) FROM generate_series(' . ($_ * 100 + 2901) . ', ' . ($_ * 100 + 3000) . ') g;',
			"DELETE FROM queue WHERE id <= $_ * 100;") } 1 .. 90);
$old->query_safe('COMMIT');

# Each row is deleted by a transaction of its own, in no order.
sql('CREATE TABLE single (id int PRIMARY KEY, k int, f text) USING zheap', ';', fill('single', 6000));
grows('single', 1.2, 'rows deleted one by one',
	q{DO $$ BEGIN FOR i IN 1..5000 LOOP DELETE FROM single WHERE id = 1 + i * 7919 % 6000; COMMIT; END LOOP; END $$;},
	'INSERT INTO single SELECT g, g, repeat($$x$$, 120) FROM generate_series(6001, 11000) g;');

# Only rows with odd offsets are deleted, of a length (130) of which each STEP of space
# begins with an even one.
for my $how ('at once', 'one by one')
{
	my $table = $how eq 'at once' ? 'odd' : 'odd_single';
	my $rows = 'SELECT g, g, repeat($$x$$, 116)';
	sql("CREATE TABLE $table (id int PRIMARY KEY, k int, f text) USING zheap", ';', "INSERT INTO $table $rows FROM generate_series(1, 6000) g");
	grows($table, 1.2, "every other row deleted $how",
		$how eq 'at once' ? "DELETE FROM $table WHERE id % 2 = 1;" :
			"DO \$\$ BEGIN FOR i IN 1..6000 BY 2 LOOP DELETE FROM $table WHERE id = i; COMMIT; END LOOP; END \$\$;",
		"INSERT INTO $table $rows FROM generate_series(6001, 9000) g;");
}

# Statements that each undo an insertion with a large value: the room of earlier ones is used.
sql(q{CREATE TABLE again (id int PRIMARY KEY, v text) USING zheap; ALTER TABLE again ALTER v SET STORAGE EXTERNAL;
	CREATE FUNCTION put(k int) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO again VALUES (k, repeat('a', 5000)); EXCEPTION WHEN unique_violation THEN UPDATE again SET v = repeat('b', 5000) WHERE id = k; END $$;},
	'SELECT count(put(g)) FROM generate_series(1, 50) g;');
my $toast = sql(q{SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 'again'});
my $toast_before = bytes($toast);
sql(map { "SELECT put(1 + $_ % 50);" } 1 .. 500);
cmp_ok(bytes($toast), '<=', 4 * $toast_before, 'failed insertions of large values');
sound($node, 'failed insertions of large values', 'again');

# One statement with transactions of its own does the same: later statements use what it
# could not. Searches of the map get beyond pages that the statement cannot use.
my $puts = 'DO $$ BEGIN FOR i IN 1..200 LOOP PERFORM put(i); COMMIT; END LOOP; END $$';
sql($puts, ';', $puts, ';', "VACUUM $toast");
$toast_before = bytes($toast);
sql(map { ($puts, ';', "VACUUM $toast", ';') } 1 .. 4);
cmp_ok(bytes($toast), '<=', 1.3 * $toast_before, 'failed insertions of large values, in one statement');

# So do sessions of one such statement each.
$puts =~ s/200/600/;
sql($puts) for 1 .. 2;
$toast_before = bytes($toast);
sql($puts) for 1 .. 4;
cmp_ok(bytes($toast), '<=', 1.5 * $toast_before, 'failed insertions of large values, in sessions of one statement');

# A variable keeps the large value of a row that its statement has rolled back (TOAST-4), also
# if an earlier statement has undone that page, and then one of another table.
sql('CREATE TABLE undone_before (id int, v text) USING zheap; ALTER TABLE undone_before ALTER v SET STORAGE EXTERNAL; CREATE TABLE beside (id int) USING zheap;',
	q{BEGIN; SAVEPOINT s; INSERT INTO undone_before VALUES (1, repeat('a', 5000)); INSERT INTO beside VALUES (1); ROLLBACK TO s;
	DO $$ DECLARE x text; BEGIN
		BEGIN INSERT INTO undone_before VALUES (2, repeat('x', 5000)); SELECT v INTO x FROM undone_before; RAISE raise_exception; EXCEPTION WHEN raise_exception THEN NULL; END;
		INSERT INTO undone_before SELECT g, repeat('c', 5000) FROM generate_series(1, 20) g;
		ASSERT x = repeat('x', 5000); END $$; COMMIT; DROP TABLE undone_before, beside});
pass('a value that was rolled back');

# What insertions leave that are rolled back is used by the next ones, in the same
# transaction, too. A page beyond those that the abort undoes is undone when it is taken.
for my $kind ('', 'UNLOGGED', 'TEMP')
{
	my $rows = "INSERT INTO undone SELECT g, g, repeat('x', 120) FROM generate_series(1, 6000) g;";
	my $back = "SAVEPOINT s; $rows ROLLBACK TO s;";
	my $large = "SAVEPOINT s; INSERT INTO undone_large SELECT g, repeat('x', 5000) FROM generate_series(1, 100) g; ROLLBACK TO s;";
	# without reuse they would be 2.5 and 4 times as large
	my $check = q{DO $$ DECLARE grown numeric := pg_relation_size('undone') / (SELECT n FROM was);
		toasted numeric := (SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE relname = 'undone_large') / (SELECT t FROM was);
		BEGIN ASSERT grown <= 2 AND toasted <= 2, format('%s and %s times as large', grown, toasted); END $$;};
	my @setup = ("CREATE $kind TABLE undone (id int, k int, f text) USING zheap; CREATE $kind TABLE undone_large (id int, f text) USING zheap;",
		'ALTER TABLE undone_large ALTER f SET STORAGE EXTERNAL;', $rows, "BEGIN; $back $large COMMIT;",
		q{CREATE TABLE was AS SELECT pg_relation_size('undone')::numeric AS n, pg_relation_size(reltoastrelid)::numeric AS t FROM pg_class WHERE relname = 'undone_large';});
	my @drop = ('DROP TABLE was, undone, undone_large');
	open_snapshot();
	is(eval { sql(@setup, "BEGIN; $back $back $back $large $large $large COMMIT;", $check, "BEGIN; SAVEPOINT r; $back $large ROLLBACK TO r; $back $large COMMIT;",
		$check, @drop); 'none' } // $@, 'none', "growth by insertions that were rolled back, $kind");
	# the undo worker, or for a temporary table the session, enters what whole transactions leave
	my $whole = "BEGIN; $rows INSERT INTO undone_large SELECT g, repeat('x', 5000) FROM generate_series(1, 100) g; ROLLBACK;";
	my @parts = $kind eq 'TEMP' ? ([@setup, ($whole) x 3, $check, @drop]) : ([@setup], ([$whole]) x 3, [$check, @drop]);
	is(eval {
			for (@parts) { sql(@$_); $node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback') or die 'not undone'; }
			'none';
		} // $@, 'none', "growth by transactions that were rolled back, $kind");
	$old->query_safe('COMMIT');
}

# A row that a page takes without pruning does not take the slot by which rows were deleted
# there, which would keep these until the insertion is committed.
sql('CREATE TABLE filled (id int PRIMARY KEY, k int, f text) USING zheap', ';',
	q{INSERT INTO filled SELECT g, g, repeat('x', 108) FROM generate_series(1, 8000) g});
for my $n (1 .. 5)
{
	sql('VACUUM filled');
	grows('filled', 1.1, "rows deleted long ago are replaced, $n", 'DELETE FROM filled WHERE id % 2 = 0;', 'SELECT zundo.discard();',
		q{INSERT INTO filled SELECT g, g, repeat('x', 108) FROM generate_series(2, 8000, 2) g;});
	sql('SELECT zundo.discard()');
}

# Wide rows come in, and older ones lose their values, in place: their space is used.
sql('CREATE TABLE emptied (id int PRIMARY KEY, k int, f text) USING zheap', ';', map { emptied($_) } 0 .. 2);
grows('emptied', 1.2, 'rows that become shorter', map { emptied($_) } 3 .. 6);
sub emptied
{
	my ($n) = @_;
	return ("INSERT INTO emptied SELECT g, g, repeat('x', 480) FROM generate_series($n * 500 + 1, $n * 500 + 500) g;",
		"UPDATE emptied SET f = '' WHERE id <= $n * 500 AND f <> '';", 'SELECT zundo.discard();');
}

# The free space map names a page whose rows are deleted by a transaction in
# progress: new sessions put their rows on one page, not on one each.
for my $how ('insert', 'move')
{
	my $table = "named_$how";
	sql("CREATE TABLE $table (id int, k int, f text) USING zheap;", fill($table, 2000), "CREATE INDEX ON $table (k);",
		"DELETE FROM $table WHERE ctid < '(1,0)'; SELECT zundo.discard(); VACUUM $table");
	sql("INSERT INTO $table SELECT -1, -1, repeat('x', 120) FROM generate_series(1, 7)") for 1 .. 7;
	my $deleter = $node->background_psql('postgres', on_error_stop => 1);
	$deleter->query_safe("BEGIN; DELETE FROM $table WHERE id = -1");
	grows($table, 1.3, "$how by new sessions beside a deletion",
		map { ($how eq 'insert' ? "INSERT INTO $table VALUES ($_, 0, repeat('y', 700));" : "UPDATE $table SET k = -k, f = repeat('y', 700) WHERE id = 2000 - $_;",
				'\\c') } 1 .. 40);
	$deleter->query_safe('ROLLBACK');
	$deleter->quit;
}

# A long transaction has deleted rows of many pages for which the map names a few bytes:
# others get to the pages of later deletions.
sql('CREATE TABLE passed (id int PRIMARY KEY, k int, f text) USING zheap', ';',
	q{INSERT INTO passed SELECT g, g, repeat('x', 480) FROM generate_series(1, 2000) g}, ';',
	'DELETE FROM passed WHERE id % 10 = 0', ';', 'SELECT zundo.discard()', ';', 'VACUUM passed');
my $long = $node->background_psql('postgres', on_error_stop => 1);
$long->query_safe('BEGIN; DELETE FROM passed WHERE id <= 1000');
grows('passed', 1.2, 'deletions beside a long one',
	q{DO $$ BEGIN FOR i IN 1..1500 LOOP DELETE FROM passed WHERE id = (SELECT min(id) FROM passed WHERE id > 1000); COMMIT;
		INSERT INTO passed VALUES (2000 + i, 0, repeat('y', 480)); COMMIT; END LOOP; END $$;});
$long->query_safe('ROLLBACK');
$long->quit;

# The map has no space that cannot be used: line pointers have run out, or the deletion is
# rolled back.
sub buffers
{
	my ($insert) = @_;
	return sql("EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off, SUMMARY off) $insert") =~ /shared hit=(\d+)/ ? $1 : 'none';
}
sql('CREATE TABLE narrow (id int) USING zheap; CREATE INDEX ON narrow (id); INSERT INTO narrow SELECT generate_series(1, 100000)', ';', 'DELETE FROM narrow');
cmp_ok(buffers('INSERT INTO narrow VALUES (0)'), '<', 100, 'narrow rows were deleted: an insertion looks at few pages');
sql('CREATE TABLE back (id int, k int, f text) USING zheap', ';', fill('back', 20000), 'BEGIN; SAVEPOINT s; DELETE FROM back; ROLLBACK TO s; COMMIT');
SKIP:
{
	skip 'the server lacks pg_freespacemap of contrib', 1 unless server_has('pg_freespacemap');
	sql('CREATE EXTENSION pg_freespacemap');
	is(sql("SELECT count(*) FROM pg_freespace('back') WHERE avail > 2000"), '0', 'a deletion was rolled back: the map offers nothing');
}
cmp_ok(buffers("INSERT INTO back VALUES (0, 0, repeat('x', 120))"), '<', 100, 'a deletion was rolled back: an insertion looks at few pages');
sound($node, 'in the end', qw(narrow back));

# A commit that takes long, as it waits for a standby: a concurrent insertion
# does not spoil the entries of the map.
sql('CREATE TABLE slow (id int, k int, f text) USING zheap', ';', fill('slow', 20000), "ALTER SYSTEM SET synchronous_standby_names = 'nobody'", ';', 'SELECT pg_reload_conf()');
$node->poll_query_until('postgres', "SHOW synchronous_standby_names", 'nobody') or die 'no reload';
my $slow = $node->background_psql('postgres', on_error_stop => 1);
my $pid = $slow->query_safe('SELECT pg_backend_pid()');
$slow->query_until(qr/^$/, "DELETE FROM slow WHERE id > 100;\n");
$node->poll_query_until('postgres', "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $pid") or die 'no wait';
sql('SET synchronous_commit = off', ';', fill('slow', 1000));
sql("ALTER SYSTEM RESET synchronous_standby_names", ';', 'SELECT pg_reload_conf()');
$node->poll_query_until('postgres', "SELECT state = 'idle' FROM pg_stat_activity WHERE pid = $pid") or die 'no commit';
grows('slow', 1, 'a commit that took long', fill('slow', 15000));
$slow->quit;

# Transactions that end otherwise than expected; the map gets only entries that
# are right.
sql('CREATE TABLE e (id int, k int, f text) USING zheap', ';', fill('e', 6000));
my $size = bytes('e');
sql('BEGIN; DELETE FROM e; ROLLBACK', ';', 'BEGIN; SAVEPOINT s; DELETE FROM e; ROLLBACK TO s; COMMIT', ';', fill('e', 3000));
cmp_ok(bytes('e'), '>=', 1.4 * $size, 'rolled back: no room is given away');
is(sql('SELECT count(*) FROM e'), '9000', 'rolled back: the rows');
sql(q{BEGIN; DELETE FROM e WHERE id <= 1000; PREPARE TRANSACTION 'p'}, ';', "COMMIT PREPARED 'p'", ';', 'VACUUM e');
sql('BEGIN; DELETE FROM e WHERE id <= 2000; TRUNCATE e; COMMIT', ';', fill('e', 3000));
sql('BEGIN; DELETE FROM e WHERE id <= 2000; ALTER TABLE e ALTER k TYPE bigint; COMMIT', ';', fill('e', 3000));
sql('BEGIN; DELETE FROM e WHERE id <= 2000; ALTER TABLE e SET ACCESS METHOD heap; COMMIT', ';', fill('e', 3000));
sql('ALTER TABLE e SET ACCESS METHOD zheap', ';', 'BEGIN; DELETE FROM e WHERE id <= 2000; CREATE TABLE f AS SELECT * FROM e; DROP TABLE e; COMMIT');
is(sql('SELECT count(*), min(id) FROM f'), '3000|2001', 'changed as a whole: the rows');
sql('BEGIN; CREATE TABLE g (id int, k int, f text) USING zheap', ';', fill('g', 3000), 'DELETE FROM g WHERE id > 100', ';', 'SAVEPOINT s; DELETE FROM g', ';', 'ROLLBACK TO s; COMMIT');
grows('g', 1, 'made in the same transaction', fill('g', 2500));
sql('CREATE TEMP TABLE m (id int, k int, f text) USING zheap', ';', fill('m', 3000), 'DELETE FROM m', ';',
	q{CREATE TEMP TABLE was AS SELECT pg_relation_size('m') AS n;}, fill('m', 3000),
	q{DO $$ BEGIN ASSERT pg_relation_size('m') <= (SELECT n FROM was), 'a temporary table'; END $$});
sound($node, 'in the end', qw(rplain rkeyed t queue g));

# Five sessions that wait to extend a table: each adds pages for the holder of the lock
# and those that waited before it. The rows are nearly as long as a row can be.
sql(q{CREATE EXTENSION zundo_test; CREATE TABLE x (id int, f text) USING zheap WITH (autovacuum_enabled = off);
	ALTER TABLE x ALTER f SET STORAGE PLAIN;});
my $row = "repeat('x', 8058)";
sub blocks { return bytes('x') / 8192; }
# the second row makes the map, which is extended under the same lock
sql("INSERT INTO x VALUES (0, $row), (0, $row)");
my ($holder, @waiting) = map { session($node) } 0 .. 5;
$holder->query_until(qr/holds/, "\\echo holds\nSELECT zundo_test_hold_extension('x');\n");
$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'extend' AND granted") or die 'not held';
for my $n (1 .. 5)
{
	$waiting[$n - 1]->query_until(qr/inserts/, "\\echo inserts\nINSERT INTO x VALUES ($n, $row);\n");
	$node->poll_query_until('postgres', "SELECT count(*) = $n FROM pg_locks WHERE locktype = 'extend' AND NOT granted") or die 'no wait';
}
sql(q{SELECT pg_cancel_backend(pid) FROM pg_locks WHERE locktype = 'extend' AND granted});
$node->poll_query_until('postgres', 'SELECT count(*) = 7 FROM x') or die 'not inserted';
$_->quit for @waiting;
is(blocks(), 2 + 2 + 3 + 4 + 5 + 6, 'pages for all that waited');
is(sql('SELECT count(*), sum(id) FROM x'), '7|15', 'the rows');
sql("INSERT INTO x SELECT g, $row FROM generate_series(6, 8) g");
is(blocks(), 22, 'the next rows take these pages');
crash($node);
is(sql('SELECT count(*), sum(id) FROM x'), '10|36', 'crashed: the rows');
sound($node, 'crashed', 'x');
sql('VACUUM (TRUNCATE false) x', ';', "INSERT INTO x SELECT g, $row FROM generate_series(9, 15) g");
is(blocks(), 22, 'crashed: VACUUM finds the pages that are left');
is(sql('SELECT count(*), sum(id) FROM x'), '17|120', 'crashed: all rows');
sql('DELETE FROM x WHERE id > 8', ';', 'SELECT zundo.discard()', ';', 'VACUUM (TRUNCATE false) x', ';',
	"INSERT INTO x SELECT g, $row FROM generate_series(9, 15) g");
is(blocks(), 22, 'VACUUM gives pages back that it has emptied');
# An old snapshot finds the deleted rows where they were: the blocks stay (VACUUM-2).
my $reader = session($node);
ask($reader, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT * FROM anchor');
sql('DELETE FROM x WHERE id > 0', ';', 'VACUUM x');
cmp_ok(blocks(), '>=', 17, 'VACUUM keeps what an old snapshot needs');
is(ask($reader, 'SELECT count(*), sum(id) FROM x'), '17|120', 'which sees its rows');
ask($reader, 'COMMIT');
$reader->quit;
sql('SELECT zundo.discard()', ';', 'VACUUM x');
cmp_ok(blocks(), '<', 17, 'VACUUM cuts the end off');
is(sql('SELECT count(*), sum(id) FROM x'), '2|0', 'the rows that are left');
sound($node, 'cut off', 'x');

$old->quit;
no_crash($node);
$node->stop;
done_testing();
