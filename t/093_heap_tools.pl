# Extensions and tools that treat every table as a heap table: tables of
# extensions with default_table_access_method = zheap, heap functions on zheap
# tables, and copies whose file is exchanged for the table's
# (guard/access_method.c, guard/heap_callers.c).
# Rules: HEAP-1, HEAP-2, HEAP-3, HEAP-4, HEAP-5, HEAP-6.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('tools', '', allows_streaming => 'logical');
my ($rc, $out, $err);

# am TABLE: returns the access method of the table.
sub am
{
	my ($table) = @_;
	return $node->safe_psql('postgres', "SELECT amname FROM pg_am a JOIN pg_class c ON c.relam = a.oid WHERE c.oid = '$table'::regclass");
}

# fails SQL PATTERN NAME: checks that the last of the statements raises this error; those
# before it are rolled back with it.
sub fails
{
	my ($sql, $pattern, $name) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', $sql, on_error_stop => 1);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like($err, $pattern, $name);
	return;
}

$node->safe_psql('postgres', 'CREATE EXTENSION zundo; ALTER DATABASE postgres SET default_table_access_method = zheap');

# tables of an extension
$node->safe_psql('postgres', 'CREATE EXTENSION zundo_test; CREATE TABLE after_script (id int, note text)');
is(am('zundo_test_own'), 'heap', "an extension's script makes heap tables");
is(am('after_script'), 'zheap', 'tables made after the script are zheap again');
$node->safe_psql('postgres', "SELECT zundo_test_catalog_insert('zundo_test_own', 1)");
is($node->safe_psql('postgres', 'SELECT * FROM zundo_test_own WHERE id = 1'), '1|note', "the extension's code writes its table");
is($node->safe_psql('postgres', <<'SQL'), 'heap zheap', 'the same within a function');
DO $$ BEGIN DROP EXTENSION zundo_test; CREATE EXTENSION zundo_test; CREATE TABLE after_function (); END $$;
SELECT string_agg(amname, ' ' ORDER BY relname DESC) FROM pg_class c JOIN pg_am a ON a.oid = relam
	WHERE relname IN ('zundo_test_own', 'after_function')
SQL
is($node->safe_psql('postgres', <<'SQL'), 'zheap', 'a script that fails leaves the setting');
DO $$ BEGIN CREATE EXTENSION zundo_test_none; EXCEPTION WHEN OTHERS THEN NULL; END $$;
SHOW default_table_access_method
SQL
my $refused = qr/ERROR:  table "zundo_test_own" of extension "zundo_test" cannot be changed to access method "zheap"/;
fails('ALTER TABLE zundo_test_own SET ACCESS METHOD zheap', $refused, "an extension's table stays a heap table");
fails('ALTER TABLE zundo_test_own SET ACCESS METHOD DEFAULT', $refused, 'also by default')
  if $node->pg_version >= 17;
$node->safe_psql('postgres', 'ALTER TABLE zundo_test_own SET ACCESS METHOD heap');

# heap's functions on zheap tables
my $called = qr/ERROR:  cannot use heap functions on zheap table "plain"/;
$node->safe_psql('postgres', 'CREATE TABLE plain (id int PRIMARY KEY, note text)');
for my $function (qw(catalog_insert heap_insert heap_multi_insert))
{
	fails("SELECT zundo_test_$function('plain', 1)", $called, "$function of an empty table is refused");
}
is($node->safe_psql('postgres', "SELECT pg_relation_size('plain')"), '0', 'before a byte is written');
$node->safe_psql('postgres', "INSERT INTO plain SELECT i, 'row' FROM generate_series(1, 1000) i; ANALYZE plain; CREATE INDEX ON plain (note)");
for my $function (qw(catalog_insert heap_insert heap_multi_insert))
{
	fails("SELECT zundo_test_$function('plain', 0)", $called, "$function of a table with rows is refused");
}
fails("SELECT zundo_test_heap_scan('plain')", $called, "heap's scan is refused");
fails("INSERT INTO plain VALUES (1001, ''); SELECT zundo_test_heap_insert('plain', 0)", qr/ERROR:  could not (?:read|open)/,
	'where the session has inserted before, heap finds no page');
is($node->safe_psql('postgres', "DELETE FROM plain WHERE id = 1001; SELECT count(*), min(id) FROM plain"), '1000|1', 'nothing has changed');
sound($node, '', 'plain');

# pg_squeeze: follows the changes of a table by a slot, and copies the rows to a table of the
# same access method with heap's functions. t/092_swapped_files has the exchange of files.
my $plugin = server_has('test_decoding') ? 'test_decoding' : 'pgoutput';
$node->safe_psql('postgres', qq{SELECT pg_create_logical_replication_slot('squeeze', '$plugin'); CREATE TABLE squeezed (LIKE plain INCLUDING ALL)});
is(am('squeezed'), 'zheap', 'the copy of pg_squeeze');
$node->safe_psql('postgres', "UPDATE plain SET note = 'changed' WHERE id = 7");
fails("BEGIN; SELECT zundo_test_$_('squeezed', 0)", qr/ERROR:  cannot use heap functions on zheap table "squeezed"/, "is refused rows: $_")
  for qw(heap_insert heap_multi_insert);
is($node->safe_psql('postgres', "SELECT count(*), pg_relation_size('squeezed') FROM squeezed"), '0|0', 'and is empty');
SKIP:
{
	skip 'the server lacks test_decoding of contrib', 1 if $plugin eq 'pgoutput';
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_logical_slot_get_changes('squeeze', NULL, NULL) WHERE data ~ '^table public.plain: UPDATE'}), '1', 'the change was decoded');
}
is($node->safe_psql('postgres', q{SELECT pg_drop_replication_slot('squeeze'); DROP TABLE squeezed;
	SELECT count(*), min(id), count(*) FILTER (WHERE note = 'changed') FROM plain}), "\n1000|1|1", 'the table is as before');
sound($node, 'not squeezed', 'plain');

# a function that reads the rows of an all-visible page as heap's (HEAP-1)
ok($node->poll_query_until('postgres', q{VACUUM plain; SELECT relallvisible > 0 FROM pg_class WHERE relname = 'plain'}, "VACUUM\nt"), 'all-visible pages');
SKIP:
{
	skip 'the server lacks pg_visibility of contrib', 1 unless server_has('pg_visibility');
	$node->safe_psql('postgres', 'CREATE EXTENSION pg_visibility');
	fails("SELECT * FROM pg_check_visible('plain')", qr/ERROR:  cannot check zheap table "plain"/, 'pg_check_visible is refused');
}
sound($node, 'not touched', 'plain');

# what depends on the extension is dropped with it, but no rows (HEAP-6)
fails('BEGIN; DROP EXTENSION zundo CASCADE; ROLLBACK', qr/ERROR:  cannot drop extension zundo because zheap table "plain" contains rows/,
	'the extension is not dropped with rows');

# pg_repack's copy
$node->safe_psql('postgres', 'CREATE SCHEMA repack; CREATE TABLE old_heap (id int PRIMARY KEY, v int) USING heap');
for my $default (qw(heap zheap))
{
	for my $table (qw(old_heap plain after_script))
	{
		my $oid = $node->safe_psql('postgres', "SELECT '$table'::regclass::oid");
		$node->safe_psql('postgres', "SET default_table_access_method = $default;
			CREATE TABLE repack.table_$oid WITH (fillfactor = 70) TABLESPACE pg_default AS SELECT * FROM ONLY $table WITH NO DATA");
		is(am("repack.table_$oid"), am($table), "the copy of $table for pg_repack, where the default is $default");
		$node->safe_psql('postgres', "DROP TABLE repack.table_$oid;
			SET default_table_access_method = $default; CREATE TABLE repack.table_$oid (LIKE $table INCLUDING ALL)");
		is(am("repack.table_$oid"), am($table), "... if it is made by LIKE");
		$node->safe_psql('postgres', "DROP TABLE repack.table_$oid");
	}
}

# DROP EXTENSION waits for a transaction that reads a table, and for one that has written
# to a table, also if ROLLBACK TO has released it, or a cursor that failed in a subtransaction.
# Only these lock the undo log.
$node->safe_psql('postgres', 'CREATE DATABASE used');
$node->safe_psql('used', 'CREATE EXTENSION zundo; CREATE TABLE a (id int) USING zheap');
$node->safe_psql('used', q{CREATE FUNCTION put(i int) RETURNS int LANGUAGE plpgsql
	AS 'BEGIN INSERT INTO a VALUES (i); RETURN 1 / (2 - i); END'});
my $cursor = q{DECLARE c CURSOR FOR SELECT put(i) FROM generate_series(1, 2) i; FETCH c; } .
	q{DO $$DECLARE r refcursor := 'c'; n int; BEGIN FETCH r INTO n; EXCEPTION WHEN division_by_zero THEN NULL; END$$};
my $user = $node->background_psql('used');
my $held = q{SELECT count(*) FROM pg_locks WHERE relation = 'zundo.undo_log'::regclass AND pid = pg_backend_pid()};
for my $use ('TABLE a', 'INSERT INTO a VALUES (1); SAVEPOINT s; INSERT INTO a VALUES (2); ROLLBACK TO s',
	'SAVEPOINT s; INSERT INTO a VALUES (1); ROLLBACK TO s', $cursor)
{
	$user->query_safe('TABLE a');
	$user->query_safe("BEGIN; $use");
	is($user->query_safe($held), $use =~ /^(SAVEPOINT|DECLARE)/ ? 1 : 0, "$use: locks on the undo log");
	like(($node->psql('used', q{SET lock_timeout = '100ms'; DROP EXTENSION zundo CASCADE}))[2], qr/lock timeout/, '... DROP EXTENSION waits');
	$user->query_safe('ROLLBACK');
}

# When it has looked for rows, and waits for something else, no table can get the access method.
$node->safe_psql('used', 'CREATE VIEW v AS TABLE zundo.stat_undo; CREATE TABLE h (id int) USING heap');
$user->query_safe('BEGIN; LOCK v IN ACCESS SHARE MODE');
my $last = $node->background_psql('used', on_error_stop => 0);
$last->query_until(qr/begun/, "\\echo begun\nDROP EXTENSION zundo CASCADE;\n");
ok($node->poll_query_until('postgres', 'SELECT count(*) > 0 FROM pg_locks WHERE NOT granted'), 'DROP EXTENSION waits');
for my $new ('CREATE TABLE n (id int) USING zheap', 'ALTER TABLE h SET ACCESS METHOD zheap')
{
	like(($node->psql('used', "SET lock_timeout = '100ms'; $new"))[2], qr/lock timeout/, "... and holds up $new");
}
$_->quit for $user, $last;

# DROP EXTENSION ... CASCADE waits for a table while another session makes one and fills it.
$node->safe_psql('postgres', 'CREATE DATABASE dropped');
$node->safe_psql('dropped', 'CREATE EXTENSION zundo; CREATE TABLE a (id int) USING zheap');
my $holder = $node->background_psql('dropped');
$holder->query_safe('BEGIN; LOCK a IN ACCESS SHARE MODE');
my $dropper = $node->background_psql('dropped', on_error_stop => 0);
$dropper->query_until(qr/begun/, "\\echo begun\nDROP EXTENSION zundo CASCADE;\n");
ok($node->poll_query_until('postgres', 'SELECT count(*) > 0 FROM pg_locks WHERE NOT granted'), 'DROP EXTENSION waits');
($rc, $out, $err) = $node->psql('dropped', q{SET lock_timeout = '1s'; CREATE TABLE n (id int) USING zheap; INSERT INTO n VALUES (1)});
$holder->quit;
$dropper->quit;
is($err =~ /lock timeout/ ? 'n' : $node->safe_psql('dropped', q{SELECT to_regclass('n')}), 'n',
	'no row is dropped with the extension that its check has not seen');

# DROP EXTENSION ... CASCADE that waits for a reader lets it write and start parallel workers.
$node->safe_psql('postgres', 'CREATE DATABASE read');
$node->safe_psql('read', 'CREATE EXTENSION zundo; CREATE TABLE a (id int) USING zheap');
my $reader = $node->background_psql('read');
$reader->query_safe('TABLE a');
$reader->query_safe('BEGIN; TABLE a');
$dropper = $node->background_psql('read', on_error_stop => 0);
$dropper->query_until(qr/begun/, "SET deadlock_timeout = '1min';\n\\echo begun\nDROP EXTENSION zundo CASCADE;\n");
ok($node->poll_query_until('postgres', 'SELECT count(*) > 0 FROM pg_locks WHERE NOT granted'), 'DROP EXTENSION waits for a reader');
$reader->query_safe('SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SELECT count(*) FROM a');
$reader->query_safe('INSERT INTO a VALUES (1); COMMIT');
$_->quit for $reader, $dropper;
is($node->safe_psql('read', 'SELECT id FROM a'), '1', '... which writes meanwhile');

no_crash($node);
done_testing();
