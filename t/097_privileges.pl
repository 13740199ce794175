# What a role with few privileges can do to others through the extension, and
# what happens to privileges in a dump.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('privileges');
$node->safe_psql('postgres', q{
	CREATE ROLE mallory LOGIN; CREATE ROLE reader LOGIN; CREATE ROLE watcher LOGIN; CREATE ROLE owner LOGIN;
	GRANT pg_read_all_data TO reader; GRANT pg_monitor TO watcher;
	CREATE DATABASE d; GRANT CREATE ON DATABASE d TO mallory, owner, watcher});

# as ROLE SQL: returns output and errors of the SQL.
sub as
{
	my ($role, $sql) = @_;
	my ($rc, $out, $err) = $node->psql('d', $sql, connstr => $node->connstr('d') . " user=$role");
	return ($out, $err);
}

# A schema that is there before may hold an operator that the extension's views would take
# for the server's.
as('mallory', q{
	CREATE SCHEMA zundo;
	CREATE FUNCTION zundo.evil(oid, int) RETURNS bool LANGUAGE plpgsql AS $$
		BEGIN
			IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN ALTER ROLE mallory SUPERUSER; END IF;
			RETURN true;
		END $$;
	CREATE FUNCTION zundo.evil(oid, oid) RETURNS bool LANGUAGE sql AS 'SELECT zundo.evil($1, 0)';
	CREATE OPERATOR zundo.= (LEFTARG = oid, RIGHTARG = int, FUNCTION = zundo.evil);
	CREATE OPERATOR zundo.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = zundo.evil)});
my $err = ($node->psql('d', "\\set VERBOSITY verbose\nCREATE EXTENSION zundo"))[2];
like($err, qr/42P06: schema "zundo" already exists.*HINT:  Drop or rename the schema/s, 'a schema zundo is not taken over');
like(($node->psql('d', 'CREATE EXTENSION zundo SCHEMA zundo'))[2], qr/must be installed in schema "pg_catalog"/, 'nor asked for');
$node->safe_psql('d', 'ALTER SCHEMA zundo RENAME TO evil');
# The same operators in the search_path of the role that installs and of the
# role that looks; nor do the default privileges of the former matter.
$node->safe_psql('d', q{
	SET search_path = evil, pg_catalog;
	ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
	CREATE EXTENSION zundo;
	ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO PUBLIC;
	SELECT count(*) FROM zundo.table_sizes; SELECT count(*) FROM zundo.stat_horizon; SELECT count(*) FROM zundo.stat_rollback});
is($node->safe_psql('d', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'}), 'f', 'views mean the operators of the server');
is($node->safe_psql('d', q{SELECT count(*) FROM pg_depend WHERE refobjid IN (SELECT oid FROM pg_operator WHERE oprnamespace = 'evil'::regnamespace) AND classid = 'pg_rewrite'::regclass}),
	'0', 'none of them uses another');
is($node->safe_psql('d', q{SELECT string_agg(proname, ' ' ORDER BY proname) FROM pg_proc
	WHERE pronamespace = 'zundo'::regnamespace AND NOT has_function_privilege('mallory', oid, 'EXECUTE')}),
	'convert_note discard index_items page_items page_slots purge repair_undo stat_get_rollback stat_reset undo_records', 'what is not for everybody');
$node->safe_psql('d', q{
	CREATE TABLE precious (id int, t text) USING zheap; INSERT INTO precious VALUES (1, 'x');
	ALTER TABLE precious OWNER TO owner});
for my $sql ('DROP SCHEMA zundo CASCADE', 'ALTER SCHEMA zundo OWNER TO mallory', 'CREATE TABLE zundo.mine ()', 'DROP EXTENSION zundo CASCADE')
{
	like((as('mallory', $sql))[1], qr/must be owner|permission denied/, "not for everybody: $sql");
}
like(($node->psql('d', 'DROP SCHEMA zundo CASCADE'))[2], qr/extension zundo requires it/, 'the schema is a part of the extension');
like(($node->psql('d', 'ALTER EXTENSION zundo DROP SCHEMA zundo'))[2], qr/cannot be left in a schema outside its extension/, 'and stays one');
is($node->safe_psql('d', 'SELECT count(*) FROM precious'), '1', 'the tables are there');

# VACUUM FULL of the database does not wait for tables of other owners.
my $holder = $node->background_psql('d');
$holder->query_safe('BEGIN; LOCK precious IN ACCESS SHARE MODE');
is((as('mallory', q{SET lock_timeout = '3s'; SET client_min_messages = error; VACUUM FULL}))[1], '', 'VACUUM FULL locks nothing without rights');
like((as('mallory', 'VACUUM FULL'))[1], qr/WARNING:  (?:permission denied to vacuum|skipping) "precious"/, 'it says what it leaves out');
like((as('mallory', 'BEGIN; VACUUM FULL'))[1], qr/cannot run inside a transaction block/, 'as ever not in a block');
$holder->quit;

# Functions that show bytes of pages and undo bypass row security and show deleted rows.
$node->safe_psql('d', q{
	CREATE TABLE pay (id int, who text, iban text) USING zheap;
	ALTER TABLE pay OWNER TO owner;
	ALTER TABLE pay ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON pay USING (who = current_user);
	INSERT INTO pay VALUES (1, 'alice', 'secret'), (2, 'bob', 'deleted'); DELETE FROM pay WHERE id = 2;
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA zundo TO reader, watcher, owner});
for my $role (qw(reader watcher owner))
{
	for my $sql (q{zundo.page_items('pay', 0)}, q{zundo.page_slots('pay', 0)}, 'zundo.undo_records()')
	{
		like((as($role, "SELECT * FROM $sql"))[1], qr/must be superuser/, "not for $role: $sql");
	}
}
like((as('reader', q{SELECT * FROM zundo.check('pay')}))[1], qr/must be owner of table pay/, 'zundo.check: not for roles that may read');
like((as('owner', q{SELECT * FROM zundo.check('zundo.undo_log')}))[1], qr/must be owner of table undo_log/, 'nor of the undo log');
is((as($_->[0], "SELECT * FROM zundo.check('$_->[1]')"))[1], '', "zundo.check of $_->[1] for $_->[0]")
	for [qw(owner pay)], [qw(watcher pay)], [qw(watcher zundo.undo_log)];
like((as('mallory', 'SELECT * FROM zundo.check(1)'))[1], qr/relation with OID 1 does not exist/, 'zundo.check of nothing');

# Functions in expressions and predicates of indexes run as the owner of the table, also
# those that the server evaluates when it only looks at the index.
as('mallory', q{
	CREATE SCHEMA m;
	CREATE FUNCTION m.grab() RETURNS int LANGUAGE plpgsql AS $$
		BEGIN
			IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN ALTER ROLE mallory SUPERUSER; END IF;
			RETURN 0;
		END $$;
	CREATE FUNCTION m.evil(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN i + (SELECT m.grab()); END $$;
	CREATE TABLE m.t (id int, v int) USING zheap;
	INSERT INTO m.t SELECT i, i FROM generate_series(1, 10) i;
	CREATE INDEX expression ON m.t USING zbtree (m.evil(id));
	CREATE INDEX predicate ON m.t USING zbtree (v) WHERE v > m.evil(0);
	UPDATE m.t SET id = id + 1, v = v + 1});
for my $index (qw(m.expression m.predicate))
{
	for my $call ("check_index('$index')", "index_entries('$index')", "index_items('$index', 1)")
	{
		$node->safe_psql('d', "SELECT * FROM zundo.$call");
		is($node->safe_psql('d', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'}), 'f',
			"zundo.$call runs nobody's code as superuser");
		$node->safe_psql('d', 'ALTER ROLE mallory NOSUPERUSER');
	}
}
is((as('mallory', q{SELECT * FROM zundo.check_index('m.expression'); SELECT current_user, current_setting('search_path')}))[0],
	qq{mallory|"\$user", public}, 'user and search path are as before');

like((as('watcher', "SELECT zundo.mirror_opclass('int4_ops')"))[1], qr/must be superuser to mirror an operator class/, 'zundo.mirror_opclass');

# They do not find functions and operators of the role that calls for the check.
as('owner', q{
	CREATE SCHEMA o; GRANT USAGE ON SCHEMA o TO watcher;
	CREATE FUNCTION o.twice(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN i + i; END $$;
	CREATE TABLE o.t (id int) USING zheap;
	INSERT INTO o.t SELECT generate_series(1, 10);
	CREATE INDEX twice ON o.t USING zbtree (o.twice(id))});
as('watcher', q{
	CREATE SCHEMA w;
	GRANT USAGE ON SCHEMA w TO PUBLIC;
	CREATE FUNCTION w.plus(int, int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'run as %', current_user; END $$;
	CREATE OPERATOR w.+ (LEFTARG = int, RIGHTARG = int, FUNCTION = w.plus)});
for my $call ([q{SELECT detail FROM zundo.check_index('o.twice')}, ''], [q{SELECT entries FROM zundo.index_entries('o.twice')}, '10'])
{
	is(join('', as('watcher', "SET search_path = w, pg_catalog; $call->[0]")), $call->[1], "$call->[0]: none of the caller's code runs as the owner");
}

# No role can lock the undo log, not even one that may write to every table.
$node->safe_psql('d', 'GRANT pg_write_all_data TO mallory');
like((as('mallory', 'BEGIN; LOCK zundo.undo_log'))[1], qr/"zundo\.undo_log" cannot be locked/, 'LOCK');
like((as('mallory', 'BEGIN; LOCK precious, zundo.undo_log IN ROW EXCLUSIVE MODE'))[1], qr/"zundo\.undo_log" cannot be locked/, 'LOCK of several');
# Nor request a lock that others would have to wait for.
$holder = $node->background_psql('d');
$holder->query_safe('BEGIN; SELECT count(*) FROM precious');
for my $sql ('CREATE TEMP TABLE p (a int) PARTITION BY LIST (a); ALTER TABLE p DETACH PARTITION zundo.undo_log',
	'CREATE TEMP TABLE p (a int) PARTITION BY LIST (a); ALTER TABLE p DETACH PARTITION zundo.undo_log FINALIZE',
	'CREATE FOREIGN TABLE m.f PARTITION OF zundo.undo_log DEFAULT SERVER nowhere',
	'CREATE TABLE m.f PARTITION OF zundo.undo_log DEFAULT')
{
	like((as('mallory', "SET lock_timeout = '3s'; $sql"))[1], qr/"zundo\.undo_log" cannot be/, $sql);
}
$holder->quit;
like(($node->psql('d', 'CREATE STATISTICS s ON (1), (2) FROM zundo.undo_log'))[2], qr/"zundo\.undo_log" cannot be given statistics/, 'CREATE STATISTICS');

# No other session can read a temporary table, not even a superuser's.
my $session = $node->background_psql('d');
my $temp = $session->query_safe(q{CREATE TEMP TABLE own (a int) USING zheap; INSERT INTO own VALUES (1); SELECT 'own'::regclass::oid::regclass, nspname FROM pg_namespace WHERE oid = pg_my_temp_schema()});
$temp =~ s/^.*\|//s;
like(($node->psql('d', "SELECT * FROM zundo.page_items('$temp.own', 0)"))[2], qr/cannot access temporary tables of other sessions/, 'a temporary table of another session');
like(($node->psql('d', "INSERT INTO $temp.own VALUES (2)"))[2], qr/cannot access temporary tables of other sessions/, 'nor changed');
$session->quit;

# Dumps restore without any error where the extension is in template1, and so there already.
$node->safe_psql('template1', 'CREATE EXTENSION zundo');
$node->safe_psql('d', 'DROP SCHEMA evil CASCADE; GRANT SELECT ON zundo.stat_rollback TO reader');
my $dir = $node->backup_dir;
mkdir $dir;
$node->command_ok([ 'pg_dump', @$_, '-d', $node->connstr('d') ], "pg_dump @$_")
	for [ '-Fp', '-f', "$dir/plain" ], [ '-Fp', '--clean', '--if-exists', '-f', "$dir/clean" ], [ '-Fc', '-f', "$dir/custom" ];
unlike(slurp_file("$dir/plain"), qr/CREATE SCHEMA zundo|undo_log/, 'the schema and the undo log are in no dump');
my $restored = q{SELECT string_agg(relname || ' ' || amname, ', ' ORDER BY relname) FROM pg_class c JOIN pg_am m ON m.oid = c.relam WHERE relnamespace = 'public'::regnamespace;
	SELECT * FROM precious; SELECT id FROM pay; SELECT has_table_privilege('reader', 'zundo.stat_rollback', 'SELECT')};
for my $how ([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/plain" ], [ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/clean" ],
	[ 'pg_restore', '-e', "$dir/custom" ], [ 'pg_restore', '-e', '--clean', '--if-exists', "$dir/custom" ], [ 'pg_restore', '-e', '-1', "$dir/custom" ])
{
	$node->safe_psql('postgres', 'CREATE DATABASE copy');
	$node->command_ok([ $how->[0], '-d', $node->connstr('copy'), @$how[1 .. $#$how] ], "restored: @$how");
	is($node->safe_psql('copy', $restored), "pay zheap, precious zheap\n1|x\n1\nt", '... and all is there');
	$node->safe_psql('postgres', 'DROP DATABASE copy');
}
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('d'), '-f', "$dir/clean" ], 'restored over itself');
is($node->safe_psql('d', $restored), "pay zheap, precious zheap\n1|x\n1\nt", '... and all is there');
$node->command_ok([ 'pg_dumpall', '-f', "$dir/all", '-d', $node->connstr('postgres') ], 'pg_dumpall');
my $other = zundo_node('other');
# its superuser exists already
my $superuser = $node->safe_psql('postgres', 'SELECT current_user');
(my $all = slurp_file("$dir/all")) =~ s/^CREATE ROLE "?\Q$superuser\E"?;\n//m;
append_to_file("$dir/all2", $all);
$other->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $other->connstr('postgres'), '-f', "$dir/all2" ], 'all of a server restored');
is($other->safe_psql('d', $restored), "pay zheap, precious zheap\n1|x\n1\nt", '... and all is there');
$other->stop;
is($node->safe_psql('d', q{SELECT zundo.check(c::regclass) FROM unnest('{pay,precious,zundo.undo_log}'::text[]) c}), '', 'zundo.check');
no_crash($node);
$node->stop;
done_testing();
