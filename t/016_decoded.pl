# The same statements on a heap table and on a zheap table give the same output
# of test_decoding: with every replica identity, values out of line,
# subtransactions, INSERT ... ON CONFLICT that finds a conflict late, DDL within
# a transaction, prepared and streamed transactions, origins, ALTER TABLE of every
# kind.
# newest
# Rules: DECODE-1, DECODE-2, DECODE-3.
# long
use strict;
use warnings;
use ZundoTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = zundo_node('decoded', "max_replication_slots = 20\nmax_wal_senders = 8\nmax_prepared_transactions = 4\nautovacuum = off",
	allows_streaming => 'logical');
my @schemas = qw(heap zheap);

# prepare SQL: runs the statements in each schema, with its access method as the default.
sub prepare
{
	my ($sql) = @_;
	$node->safe_psql('postgres', "SET default_table_access_method = $_; SET search_path = $_, public; $sql") for @schemas;
	return;
}

# What decoding may keep in memory: little, so that changes are spilled.
our $memory = '64kB';

sub stream
{
	my ($slot, $schema, @options) = @_;
	my $options = join '', map { ", '$_'" } 'include-xids', 0, 'skip-empty-xacts', 1, @options;
	my $shown = $node->safe_psql('postgres', "SET logical_decoding_work_mem = '$memory'; SELECT data FROM pg_logical_slot_get_changes('$slot', NULL, NULL$options)");
	$shown =~ s/\b$schema\./s./g;
	$shown =~ s/pg_temp_\d+/pg_temp/g;
	return $shown;
}

# sorted STREAM: returns the stream with the changes of each transaction sorted, because a
# scan meets moved rows in another order.
sub sorted
{
	my ($stream) = @_;
	my @parts = split /^((?:BEGIN|COMMIT|PREPARE|opening|closing|preparing|committing|aborting).*)$/m, $stream;
	return join "\n", map { join "\n", sort grep { $_ ne '' } split /\n/ } @parts;
}

# same NAME, CHANGES, SQL, OPTION...: runs the statements, in which AM is the access
# method, in both schemas, and checks that the streams are equal and have at least this
# number of changes. The order within a transaction counts as well if NAME says "in
# order". Returns the stream of zheap.
sub same
{
	my ($what, $changes, $sql, @options) = @_;
	my %shown;
	for my $schema (@schemas)
	{
		my ($rc, $out, $err) = $node->psql('postgres', "SET default_table_access_method = $schema; SET search_path = $schema, public; " . $sql =~ s/\bAM\b/$schema/gr);
		is($rc, 0, "$what: runs ($schema)") or diag $err;
		$shown{$schema} = stream('twins', $schema, @options) =~ s/'$schema'/'AM'/gr;
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $all = $shown{zheap};
	# how much of a transaction is streamed before its end depends on memory, and so does
	# whether any of it is, if it is rolled back
	s/.*stream.*\n?//g for $what =~ /streamed, ROLLBACK/ ? @shown{qw(zheap heap)} : ();
	my @both = map { $what =~ /in order/ ? $_ : sorted($_) } @shown{qw(zheap heap)};
	is($both[0], $both[1], "$what: the streams are equal");
	my $n = () = $all =~ /^(?:table|streaming change)/mg;
	cmp_ok($n, '>=', $changes, "$what: $changes changes or more");
	return $all;
}

# A slot from before the extension.
$node->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('twins', 'test_decoding'); SELECT pg_create_logical_replication_slot('early', 'test_decoding')});
$node->safe_psql('postgres', 'CREATE EXTENSION zundo; CREATE SCHEMA heap; CREATE SCHEMA zheap');

# Every type of column: lengths, alignments, nulls, short and long headers.
prepare(q{
	CREATE TABLE typed (id int PRIMARY KEY, b bool, s smallint, l bigint, c "char", n name, t text, v varchar(10), x char(5),
		num numeric, ts timestamptz, iv interval, u uuid, j jsonb, a int[], p point, m macaddr, r int4range, by bytea, d float8, f float4, z text);
	CREATE TABLE wide (id int PRIMARY KEY, a text, b text, n int);
	ALTER TABLE wide ALTER a SET STORAGE EXTERNAL;
	CREATE TABLE nokey (id int, v text);
	CREATE TABLE part (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
	CREATE TABLE part1 PARTITION OF part FOR VALUES FROM (0) TO (100);
	CREATE TABLE part2 PARTITION OF part FOR VALUES FROM (100) TO (200);
	CREATE TABLE t (id int PRIMARY KEY, v text, w int UNIQUE);
	CREATE TABLE gen (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED)});
my $typed = q{SELECT g, g % 2 = 0, g, g::bigint << 33, 'c', 'name' || g, repeat('t', g * 7), 'v', 'x', g / 3.0, 'epoch'::timestamptz + g * interval '1 day',
	g * interval '1 hour', md5(g::text)::uuid, jsonb_build_object('k', g), ARRAY[g, g + 1], point(g, g), '08:00:2b:01:02:03'::macaddr, int4range(g, g + 5),
	decode(repeat('ab', g * 20), 'hex'), g / 7.0, g / 9.0, CASE WHEN g % 3 = 0 THEN 'end' END};
same('all types, in order', 20, "INSERT INTO typed $typed FROM generate_series(1, 20) g");
same('all types, single rows', 2, "INSERT INTO typed $typed FROM (SELECT 21 AS g) s; INSERT INTO typed (id, z) VALUES (22, 'z')");
same('update of one column', 22, 'UPDATE typed SET s = s + 1');
same('update to NULL and back', 22, q{UPDATE typed SET t = NULL, b = NULL WHERE id < 12; UPDATE typed SET t = 'back', n = NULL WHERE id > 5});
same('update of all lengths', 22, q{UPDATE typed SET t = repeat('longer', id), v = 'w'});
same('update of the key', 22, 'UPDATE typed SET id = id + 100');
same('delete', 22, 'DELETE FROM typed');

# The replica identities.
# Without page images the record of a deletion has the whole row as undo.
for my $case (map { [$_, 'on'], [$_, 'off'] } 'DEFAULT', 'FULL', 'NOTHING', 'USING INDEX t_w_key')
{
	my ($identity, $images) = @$case;
	$node->append_conf('postgresql.conf', "full_page_writes = $images");
	$node->reload;
	$node->poll_query_until('postgres', "SELECT current_setting('full_page_writes') = '$images'");
	prepare(q{ALTER TABLE t ALTER w SET NOT NULL});
	prepare("ALTER TABLE t REPLICA IDENTITY $identity; ALTER TABLE nokey REPLICA IDENTITY " . ($identity =~ /INDEX/ ? 'DEFAULT' : $identity));
	same("REPLICA IDENTITY $identity, full_page_writes = $images", 60, q{
		INSERT INTO t SELECT g, 'v' || g, g FROM generate_series(1, 10) g;
		UPDATE t SET v = 'u' || id;
		UPDATE t SET v = repeat('long', 20 * id);
		UPDATE t SET id = id + 20;
		UPDATE t SET w = w + 20 WHERE id < 25;
		BEGIN; UPDATE t SET v = 1 WHERE id = 21; UPDATE t SET v = 2 WHERE id = 21; UPDATE t SET id = 22 + 20 WHERE id = 22; DELETE FROM t WHERE id = 42; COMMIT;
		DELETE FROM t;
		INSERT INTO nokey SELECT g, g FROM generate_series(1, 3) g; UPDATE nokey SET v = 'n'; DELETE FROM nokey});
}
prepare('ALTER TABLE t REPLICA IDENTITY DEFAULT; ALTER TABLE nokey REPLICA IDENTITY DEFAULT');

# Values out of line: new, kept, replaced, deleted; in the key; for REPLICA IDENTITY FULL.
my $big = q{(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300) i)};
same('values out of line, in order', 8, qq{
	INSERT INTO wide VALUES (1, repeat('a', 5000), $big, 1);
	INSERT INTO wide SELECT g, repeat('b', 3000 + g), $big || g, g FROM generate_series(2, 5) g;
	UPDATE wide SET n = n + 1;
	UPDATE wide SET a = a || 'more' WHERE id < 3;
	UPDATE wide SET b = 'short' WHERE id = 4;
	UPDATE wide SET id = id + 10 WHERE id = 5;
	DELETE FROM wide WHERE id = 1});
same('COPY of values out of line, in order', 60, q{COPY wide (id, a) FROM PROGRAM 'perl -e "print 100 + \$_, qq(\\t), q(c) x (3000 * (\$_ % 3)), qq(\\n) for 1 .. 60"'});
same('values out of line beside others, in order', 4, qq{BEGIN; INSERT INTO t VALUES (1, 'x', 1); INSERT INTO wide VALUES (300, repeat('d', 9000), NULL, 1); INSERT INTO t VALUES (2, $big, 2); DELETE FROM t; COMMIT});
prepare('ALTER TABLE wide REPLICA IDENTITY FULL');
same('FULL and values out of line', 6, q{UPDATE wide SET n = 0 WHERE id IN (2, 3, 102); UPDATE wide SET a = 'x' WHERE id = 3; DELETE FROM wide WHERE id < 5});
prepare(q{CREATE TABLE huge (id int, a text, b text, c text); ALTER TABLE huge ALTER a SET STORAGE EXTERNAL; ALTER TABLE huge ALTER b SET STORAGE EXTERNAL; ALTER TABLE huge REPLICA IDENTITY FULL});
same('FULL, an old row of more than 64 kB, in order', 4, q{INSERT INTO huge VALUES (1, repeat('a', 70000), repeat('b', 40000), 'c'); UPDATE huge SET c = 'd'; UPDATE huge SET a = 'e'; UPDATE huge SET c = repeat('f', 2000); DELETE FROM huge});
prepare(q{CREATE TABLE bigkey (k text PRIMARY KEY, n int); ALTER TABLE bigkey ALTER k SET STORAGE EXTERNAL});
same('a key out of line', 5, q{INSERT INTO bigkey VALUES (repeat('k', 2500), 1), (repeat('l', 2400), 1); UPDATE bigkey SET n = 2; UPDATE bigkey SET k = 'short' WHERE k ~ 'k'; DELETE FROM bigkey});
prepare(q{CREATE TABLE bigindex (id int PRIMARY KEY, k text NOT NULL UNIQUE, n int, w text); ALTER TABLE bigindex ALTER k SET STORAGE EXTERNAL, ALTER w SET STORAGE EXTERNAL; ALTER TABLE bigindex REPLICA IDENTITY USING INDEX bigindex_k_key});
for my $images ('', 'CHECKPOINT;')
{
	same("USING INDEX, a key out of line, in order $images", 12, qq{INSERT INTO bigindex VALUES (1, repeat('k', 2500), 1, repeat('w', 5000)), (2, repeat('l', 2400), 1, NULL), (3, 'short', 1, NULL);
		$images UPDATE bigindex SET n = 2 WHERE id = 1; $images UPDATE bigindex SET w = 'w' WHERE id = 1; $images UPDATE bigindex SET id = 11 WHERE id = 1; $images UPDATE bigindex SET k = 'narrow' WHERE id = 2;
		$images UPDATE bigindex SET k = repeat('m', 2300) WHERE id = 3; $images UPDATE bigindex SET k = repeat('n', 2300) WHERE id = 3;
		$images DELETE FROM bigindex WHERE id = 11; $images DELETE FROM bigindex WHERE id = 2; $images DELETE FROM bigindex WHERE id = 3});
}

# ON CONFLICT, and a race that is lost: another session inserts the key between the check and the index's entry.
same('ON CONFLICT', 5, qq{INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2) ON CONFLICT DO NOTHING; INSERT INTO t VALUES (1, $big, 1) ON CONFLICT (id) DO UPDATE SET v = excluded.v;
	INSERT INTO t VALUES (1, 'c', 1), (3, $big, 3) ON CONFLICT (id) DO UPDATE SET v = 'd'; DELETE FROM t});
$node->safe_psql('postgres', 'CREATE EXTENSION dblink; CREATE SEQUENCE calls');
prepare(q{
	CREATE TABLE raced (id int, v text); ALTER TABLE raced ALTER v SET STORAGE EXTERNAL;
	CREATE FUNCTION key_of(id int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
		IF id = 1 AND nextval('calls') = 2 THEN PERFORM dblink_exec('port=} . $node->port . ' host=' . $node->host . q{ dbname=postgres', 'INSERT INTO ' || current_schema || '.raced VALUES (-1)'); END IF;
		RETURN abs(id); END $$;
	CREATE UNIQUE INDEX ON raced (key_of(id))});
same('a lost race, in order', 3, q{ALTER SEQUENCE calls RESTART; BEGIN; INSERT INTO t VALUES (5, 'x', 5); INSERT INTO raced VALUES (1, repeat('xyz', 5000)) ON CONFLICT (key_of(id)) DO NOTHING; DELETE FROM t; COMMIT});
is($node->safe_psql('postgres', "SELECT id FROM $_.raced"), '-1', "... was lost ($_)") for @schemas;

# Subtransactions, PL/pgSQL, MERGE, COPY, partitions, generated columns, TRUNCATE, FOR UPDATE.
same('subtransactions, in order', 4, q{BEGIN; INSERT INTO t VALUES (1, 'a', 1); SAVEPOINT a; UPDATE t SET v = 'lost'; ROLLBACK TO a; SAVEPOINT b; UPDATE t SET v = 'kept'; RELEASE b;
	SAVEPOINT c; INSERT INTO t VALUES (2, 'b', 2); SAVEPOINT d; DELETE FROM t WHERE id = 2; ROLLBACK TO d; UPDATE t SET id = 3 WHERE id = 2; COMMIT;
	BEGIN; UPDATE t SET v = 'aborted'; INSERT INTO t VALUES (9, 'n', 9); ROLLBACK; SELECT * FROM t FOR UPDATE});
same('values out of line that are rolled back, in order', 3, q{BEGIN; SAVEPOINT a; INSERT INTO wide VALUES (500, repeat('x', 9000)); ROLLBACK TO a; INSERT INTO t VALUES (11, 'x', 11); SAVEPOINT b;
	INSERT INTO wide VALUES (501, repeat('y', 9000)); RELEASE b; DELETE FROM t WHERE id = 11; COMMIT});
same('exceptions, in order', 2, q{DO $$ BEGIN FOR i IN 20 .. 24 LOOP BEGIN INSERT INTO t VALUES (i, 'e', i); IF i % 2 = 0 THEN RAISE EXCEPTION 'no'; END IF; EXCEPTION WHEN raise_exception THEN NULL; END; END LOOP; END $$});
same('MERGE', 3, q{MERGE INTO t USING (SELECT * FROM generate_series(20, 22) g) s ON t.id = s.g WHEN MATCHED THEN UPDATE SET v = 'm' WHEN NOT MATCHED THEN INSERT VALUES (g, 'n', g); DELETE FROM t});
same('COPY', 500, q{COPY t FROM PROGRAM 'perl -e "print \$_, qq(\\tcopied\\t), \$_, qq(\\n) for 1 .. 500"'; UPDATE t SET v = 'c' WHERE id % 10 = 0; DELETE FROM t WHERE id > 10});
same('one row updated often, in order', 300, q{DO $$ BEGIN FOR i IN 1 .. 300 LOOP UPDATE t SET v = repeat('x', i % 50) WHERE id = 1; END LOOP; END $$});
same('partitions', 6, q{INSERT INTO part SELECT g * 60, 'p' FROM generate_series(0, 3) g; UPDATE part SET v = 'q'; UPDATE part SET id = id + 100 WHERE id = 60; DELETE FROM part});
same('generated columns', 3, 'INSERT INTO gen VALUES (1, 4); UPDATE gen SET n = 5; DELETE FROM gen');
same('TRUNCATE, in order', 2, q{INSERT INTO nokey VALUES (1); TRUNCATE nokey; INSERT INTO nokey VALUES (2)});
same('unlogged and temporary tables', 0, 'CREATE UNLOGGED TABLE u (id int); INSERT INTO u VALUES (1); CREATE TEMP TABLE passing (id int); INSERT INTO passing VALUES (1); UPDATE passing SET id = 2; DROP TABLE u');
same('rows without columns', 2, 'CREATE TABLE empty (); INSERT INTO empty DEFAULT VALUES; ALTER TABLE empty ADD x int; INSERT INTO empty VALUES (1); DROP TABLE empty');

# DDL amid transactions, and rewrites.
same('columns added and dropped', 9, q{DELETE FROM t; BEGIN; INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2); ALTER TABLE t ADD x int DEFAULT 7; UPDATE t SET v = 'added'; ALTER TABLE t DROP v;
	INSERT INTO t VALUES (3, 3, 8); UPDATE t SET x = 9 WHERE id = 1; ALTER TABLE t ADD v text; UPDATE t SET v = 'again' WHERE id < 3; COMMIT; DELETE FROM t});
for my $ddl ('ALTER TABLE nokey ALTER id TYPE bigint', 'VACUUM FULL nokey', 'CREATE INDEX nokey_id ON nokey (id); CLUSTER nokey USING nokey_id', 'ALTER TABLE nokey ADD y int DEFAULT random() * 0')
{
	same("$ddl", 3, "INSERT INTO nokey (id) VALUES (1), (2); UPDATE nokey SET v = 'before'; $ddl; UPDATE nokey SET v = 'after'; DELETE FROM nokey");
	same("$ddl, rewrites shown", 3, "INSERT INTO nokey (id) VALUES (1), (2); UPDATE nokey SET v = 'before'; UPDATE nokey SET v = 'after'; DELETE FROM nokey", 'include-rewrites', 1) if $ddl =~ /TYPE/;
}
prepare('ALTER TABLE nokey ALTER id TYPE int');
same('ALTER TYPE with rewrites shown', 4, q{INSERT INTO nokey (id, v) VALUES (1, repeat('x', 3000)), (2, 'y'); ALTER TABLE nokey ALTER id TYPE bigint; DELETE FROM nokey}, 'include-rewrites', 1);
same('REFRESH', 0, 'CREATE MATERIALIZED VIEW m AS SELECT * FROM wide; REFRESH MATERIALIZED VIEW m; DROP MATERIALIZED VIEW m');

# ALTER TABLE of every kind in the middle of a transaction: changes before it, after it, and after it was repeated or
# reversed in a subtransaction that is rolled back. A case has a name and: ddl; again, what the subtransaction does;
# table, its name after ddl; first, what is made before the transaction; more, further changes after ddl; min, max: the
# versions that have it. OTHER is the other access method.
my @alterations = (
	{ddl => 'ALTER TABLE c ADD x int', again => q{ALTER TABLE c ADD y text DEFAULT 'y'}},
	{ddl => 'ALTER TABLE c ADD x int DEFAULT 7', again => 'ALTER TABLE c DROP x', more => 'UPDATE c SET x = 8 WHERE id = 2'},
	{ddl => 'ALTER TABLE c ADD x float DEFAULT random() * 0', again => 'ALTER TABLE c ADD y float DEFAULT random() * 0'},
	{ddl => 'ALTER TABLE c DROP v', again => 'ALTER TABLE c DROP w CASCADE, ADD w int'},
	{ddl => 'ALTER TABLE c DROP big', again => 'ALTER TABLE c ADD big text', without => 1},
	{ddl => 'ALTER TABLE c ALTER n TYPE bigint', again => 'ALTER TABLE c ALTER n TYPE smallint'},
	{ddl => 'ALTER TABLE c ALTER id TYPE bigint', again => 'ALTER TABLE c ALTER id TYPE numeric'},
	{ddl => 'ALTER TABLE c ALTER v TYPE int USING length(v)', again => 'ALTER TABLE c ALTER v TYPE text USING v::text || id'},
	{ddl => 'ALTER TABLE c ALTER v TYPE varchar(100)', again => 'ALTER TABLE c ALTER v TYPE varchar(200)'},
	{ddl => 'ALTER TABLE c DROP v, ADD x int DEFAULT 3, ALTER n TYPE bigint, ALTER w SET DEFAULT 0', again => 'ALTER TABLE c ALTER n TYPE int, ADD v text'},
	{ddl => 'ALTER TABLE c ALTER n SET NOT NULL', again => 'ALTER TABLE c ALTER n DROP NOT NULL'},
	{ddl => 'ALTER TABLE c ALTER w DROP NOT NULL', again => 'ALTER TABLE c ALTER w SET NOT NULL'},
	{ddl => 'ALTER TABLE c ALTER v SET DEFAULT 7', again => 'ALTER TABLE c ALTER v DROP DEFAULT'},
	{ddl => 'ALTER TABLE c ADD CONSTRAINT k CHECK (n >= 0)', again => 'ALTER TABLE c DROP CONSTRAINT k'},
	{ddl => 'ALTER TABLE c ADD CONSTRAINT k CHECK (n >= 0) NOT VALID', again => 'ALTER TABLE c VALIDATE CONSTRAINT k'},
	{ddl => 'ALTER TABLE c ADD CONSTRAINT f FOREIGN KEY (w) REFERENCES c (w) DEFERRABLE', again => 'ALTER TABLE c ALTER CONSTRAINT f NOT DEFERRABLE; ALTER TABLE c DROP CONSTRAINT f'},
	{ddl => 'ALTER TABLE c ADD CONSTRAINT nv UNIQUE (n, id)', again => 'ALTER TABLE c DROP CONSTRAINT nv'},
	{ddl => 'ALTER TABLE c ADD CONSTRAINT e EXCLUDE (n WITH =, id WITH =)', again => 'ALTER TABLE c RENAME CONSTRAINT e TO ee'},
	{ddl => 'ALTER TABLE c DROP CONSTRAINT c_pkey', again => 'ALTER TABLE c ADD PRIMARY KEY (w)'},
	{ddl => 'ALTER TABLE c DROP CONSTRAINT c_pkey, ADD PRIMARY KEY (w)', again => 'ALTER TABLE c DROP CONSTRAINT c_pkey, ADD PRIMARY KEY (id, w)', more => 'UPDATE c SET w = 1000 WHERE id = 2'},
	{ddl => 'CREATE UNIQUE INDEX other ON c (id); ALTER TABLE c DROP CONSTRAINT c_pkey, ADD PRIMARY KEY USING INDEX other', again => 'ALTER TABLE c RENAME CONSTRAINT other TO another'},
	(map { {ddl => "ALTER TABLE c REPLICA IDENTITY $_->[0]", again => "ALTER TABLE c REPLICA IDENTITY $_->[1]", more => 'UPDATE c SET w = 1000 WHERE id = 2'} }
			['FULL', 'DEFAULT'], ['NOTHING', 'FULL'], ['DEFAULT', 'NOTHING'], ['USING INDEX c_w_key', 'FULL']),
	{first => 'ALTER TABLE c REPLICA IDENTITY USING INDEX c_w_key', ddl => 'ALTER TABLE c DROP CONSTRAINT c_w_key', again => 'ALTER TABLE c REPLICA IDENTITY FULL', more => 'UPDATE c SET w = 1000 WHERE id = 2'},
	{first => 'CREATE UNIQUE INDEX own ON c (w); ALTER TABLE c REPLICA IDENTITY USING INDEX own', ddl => 'DROP INDEX own', again => 'ALTER TABLE c REPLICA IDENTITY DEFAULT', more => 'UPDATE c SET w = 1000 WHERE id = 2'},
	{ddl => 'ALTER TABLE c SET UNLOGGED', again => 'ALTER TABLE c SET LOGGED', few => 1},
	{ddl => 'ALTER TABLE c SET UNLOGGED; UPDATE c SET n = 55 WHERE id = 2; ALTER TABLE c SET LOGGED', again => 'ALTER TABLE c SET UNLOGGED'},
	{first => 'ALTER TABLE c SET UNLOGGED', ddl => 'ALTER TABLE c SET LOGGED', again => 'ALTER TABLE c SET UNLOGGED', few => 1},
	{ddl => 'ALTER TABLE c SET TABLESPACE beside', again => 'ALTER TABLE c SET TABLESPACE pg_default'},
	{ddl => 'ALTER INDEX c_pkey SET TABLESPACE beside', again => 'ALTER INDEX c_w_key SET TABLESPACE beside'},
	{ddl => 'ALTER TABLE c SET ACCESS METHOD OTHER', again => 'ALTER TABLE c SET ACCESS METHOD OWN'},
	{ddl => 'CLUSTER c USING c_w_key', again => 'CLUSTER c USING c_pkey'},
	{ddl => 'ALTER TABLE c CLUSTER ON c_pkey', again => 'ALTER TABLE c SET WITHOUT CLUSTER'},
	{ddl => 'TRUNCATE c', again => 'TRUNCATE c'},
	{ddl => 'ALTER TABLE c RENAME TO d', again => 'ALTER TABLE d RENAME TO e', table => 'd', then => 'e'},
	{ddl => 'ALTER TABLE c RENAME v TO vv', again => 'ALTER TABLE c RENAME vv TO vvv'},
	{ddl => 'ALTER TABLE c RENAME id TO old; ALTER TABLE c RENAME w TO id; ALTER TABLE c RENAME old TO w', again => 'ALTER TABLE c REPLICA IDENTITY FULL'},
	{ddl => 'ALTER TABLE c SET SCHEMA aside', again => 'ALTER TABLE aside.c SET SCHEMA OWN', table => 'aside.c', then => 'c'},
	{ddl => 'ALTER TABLE c ALTER big SET STORAGE MAIN', again => 'ALTER TABLE c ALTER big SET STORAGE PLAIN'},
	{ddl => 'ALTER TABLE c ALTER big SET STORAGE EXTENDED, ALTER big SET COMPRESSION pglz', again => 'ALTER TABLE c ALTER big SET COMPRESSION DEFAULT'},
	{ddl => 'ALTER TABLE c ALTER v SET STATISTICS 50, ALTER v SET (n_distinct = 5)', again => 'ALTER TABLE c ALTER v RESET (n_distinct)'},
	{ddl => 'ALTER TABLE c SET (fillfactor = 50, toast_tuple_target = 200)', again => 'ALTER TABLE c RESET (fillfactor, toast_tuple_target)'},
	{ddl => 'ALTER TABLE c ALTER w ADD GENERATED BY DEFAULT AS IDENTITY', again => 'ALTER TABLE c ALTER w DROP IDENTITY'},
	{ddl => 'ALTER TABLE c ADD g int GENERATED ALWAYS AS (n * 2) STORED', again => 'ALTER TABLE c DROP g'},
	{first => 'ALTER TABLE c ADD g int GENERATED ALWAYS AS (n * 2) STORED', ddl => 'ALTER TABLE c ALTER g DROP EXPRESSION', again => 'UPDATE c SET g = 1 WHERE id = 2; ALTER TABLE c DROP g'},
	{first => 'ALTER TABLE c ADD g int GENERATED ALWAYS AS (n * 2) STORED', ddl => 'ALTER TABLE c ALTER g SET EXPRESSION AS (n * 3)', again => 'ALTER TABLE c ALTER g SET EXPRESSION AS (n * 4)', min => 17},
	{ddl => 'ALTER TABLE c ADD g int GENERATED ALWAYS AS (n * 2) VIRTUAL', again => 'ALTER TABLE c DROP g', min => 18},
	{first => 'CREATE TYPE pair AS (a int, b text); ALTER TABLE c ADD p pair; UPDATE c SET p = (1, repeat(id::text, 2000)) WHERE id = 2', ddl => 'ALTER TYPE pair ADD ATTRIBUTE z int', again => 'ALTER TYPE pair DROP ATTRIBUTE a',
		more => q{UPDATE c SET p = (1, 'x', 3) WHERE id = 11; UPDATE c SET n = 5 WHERE id = 2}, last => 'DROP TYPE pair CASCADE'},
	{first => 'CREATE TYPE shape AS (id int, n int, v text, w int, big text)', ddl => 'ALTER TABLE c OF shape', again => 'ALTER TABLE c NOT OF', last => 'DROP TYPE shape CASCADE'},
	{first => 'CREATE TYPE shape AS (id int, n int, v text, w int, big text); ALTER TABLE c OF shape', ddl => 'ALTER TYPE shape ADD ATTRIBUTE x int CASCADE', again => 'ALTER TYPE shape DROP ATTRIBUTE v CASCADE', more => 'UPDATE c SET x = 5 WHERE id = 2', last => 'DROP TYPE shape CASCADE'},
	{first => q{CREATE TYPE colour AS ENUM ('red', 'blue'); ALTER TABLE c ADD e colour DEFAULT 'red'}, ddl => q{ALTER TYPE colour RENAME VALUE 'red' TO 'green'}, again => q{ALTER TYPE colour RENAME VALUE 'blue' TO 'red'}, last => 'DROP TYPE colour CASCADE'},
	{ddl => 'ALTER TABLE c ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', again => 'ALTER TABLE c DISABLE ROW LEVEL SECURITY'},
	{first => 'CREATE TRIGGER u BEFORE UPDATE ON c FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()', ddl => 'ALTER TABLE c DISABLE TRIGGER u', again => 'ALTER TABLE c ENABLE ALWAYS TRIGGER u', more => 'UPDATE c SET n = n WHERE id = 2'},
	{first => 'CREATE RULE r AS ON UPDATE TO c WHERE new.n = 1000 DO INSTEAD DELETE FROM c WHERE id = new.id', ddl => 'ALTER TABLE c DISABLE RULE r', again => 'ALTER TABLE c ENABLE RULE r', more => 'UPDATE c SET n = 1000 WHERE id = 2'},
	{ddl => 'ALTER TABLE c OWNER TO somebody', again => 'ALTER TABLE c OWNER TO CURRENT_USER'},
	{ddl => 'CREATE INDEX nn ON c (n)', again => 'ALTER INDEX nn RENAME TO nnn; ALTER TABLE c ALTER n TYPE bigint'},
	{first => 'CREATE TABLE whole (id int, n int, v text, w int, big text)', ddl => 'ALTER TABLE c INHERIT whole', again => 'ALTER TABLE c NO INHERIT whole', more => 'UPDATE whole SET n = 5 WHERE id = 2; ALTER TABLE whole ADD x int DEFAULT 6; UPDATE whole SET x = 5 WHERE id = 2', last => 'DROP TABLE whole CASCADE'},
	{first => 'CREATE TABLE whole (big text, w int, id int, n int, v text) PARTITION BY LIST (n); CREATE TABLE rest PARTITION OF whole DEFAULT; ALTER TABLE whole REPLICA IDENTITY FULL',
		ddl => 'ALTER TABLE c ADD CHECK (n IS NOT NULL AND n < 500) NOT VALID; ALTER TABLE whole DETACH PARTITION rest; ALTER TABLE whole ATTACH PARTITION c DEFAULT; DROP TABLE rest; CREATE TABLE rest PARTITION OF whole FOR VALUES IN (700, 800)',
		again => 'ALTER TABLE whole DETACH PARTITION c', more => 'UPDATE whole SET n = 5 WHERE id = 2; INSERT INTO whole (id, w, n) VALUES (701, 701, 700); ALTER TABLE c DROP CONSTRAINT c_n_check; UPDATE whole SET n = 800 WHERE id = 11; UPDATE whole SET n = 3 WHERE id = 11', last => 'DROP TABLE whole CASCADE'},
	{first => 'CREATE TABLE whole (LIKE c) PARTITION BY RANGE (id); ALTER TABLE whole ATTACH PARTITION c FOR VALUES FROM (0) TO (500); CREATE TABLE rest PARTITION OF whole FOR VALUES FROM (500) TO (1000)',
		ddl => 'UPDATE whole SET id = 502 WHERE id = 2; ALTER TABLE whole DETACH PARTITION c', again => 'ALTER TABLE whole ATTACH PARTITION c FOR VALUES FROM (0) TO (500); UPDATE whole SET id = 2 WHERE id = 502', last => 'DROP TABLE whole CASCADE'},
	{first => 'CREATE TABLE whole (LIKE c) PARTITION BY RANGE (id); ALTER TABLE whole ATTACH PARTITION c FOR VALUES FROM (0) TO (500)',
		ddl => 'ALTER TABLE whole ADD x int DEFAULT 6, ALTER n TYPE bigint', again => 'ALTER TABLE whole DROP v', more => 'UPDATE whole SET x = 5 WHERE id = 2', last => 'DROP TABLE whole CASCADE'},
	{ddl => 'DROP TABLE c; CREATE TABLE c (id int PRIMARY KEY, big text, w int, n int); INSERT INTO c SELECT g, NULL, g, g FROM generate_series(1, 20) g', again => 'DROP TABLE c; CREATE TABLE c (id int, n int, w int, big text)'},
	{ddl => 'CREATE TABLE d AS SELECT * FROM c ORDER BY id', again => 'DROP TABLE c CASCADE; CREATE TABLE c AS SELECT * FROM d ORDER BY id', last => 'DROP TABLE IF EXISTS d'},
	{first => 'CREATE TABLE whole (id int PRIMARY KEY, n int, v text, w int, big text) PARTITION BY RANGE (id) USING OWN; DROP TABLE c; CREATE TABLE lower PARTITION OF whole FOR VALUES FROM (0) TO (12); CREATE TABLE upper PARTITION OF whole FOR VALUES FROM (12) TO (500); CREATE VIEW c AS SELECT * FROM whole; INSERT INTO c SELECT g, g, NULL, g FROM generate_series(1, 6) g',
		ddl => 'ALTER TABLE whole MERGE PARTITIONS (lower, upper) INTO merged', again => 'ALTER TABLE whole SPLIT PARTITION merged INTO (PARTITION below FOR VALUES FROM (0) TO (12), PARTITION above FOR VALUES FROM (12) TO (500))', last => 'DROP TABLE whole CASCADE', min => 19, view => 1},
	{first => 'CREATE TABLE whole (id int PRIMARY KEY, n int, v text, w int, big text) PARTITION BY RANGE (id) USING OWN; DROP TABLE c; CREATE TABLE merged PARTITION OF whole FOR VALUES FROM (0) TO (500); CREATE VIEW c AS SELECT * FROM whole; INSERT INTO c SELECT g, g, NULL, g FROM generate_series(1, 6) g',
		ddl => 'ALTER TABLE whole SPLIT PARTITION merged INTO (PARTITION below FOR VALUES FROM (0) TO (12), PARTITION above FOR VALUES FROM (12) TO (500))', again => 'ALTER TABLE whole MERGE PARTITIONS (below, above) INTO merged', last => 'DROP TABLE whole CASCADE', min => 19, view => 1});

$alterations[$_]{number} = $_ for 0 .. $#alterations;

# alteration_of CASE, SCHEMA, IDENTITY, END: the statements of a case.
sub alteration_of
{
	my ($case, $schema, $identity, $end) = @_;
	my ($other) = grep { $_ ne $schema } @schemas;
	my $after = $case->{table} // 'c';
	my $again = $case->{then} // $after;
	my $left = $end eq 'ROLLBACK' ? 'c' : $after;
	my ($big, $value) = $case->{without} ? ('', '') : (', big', ", repeat('d', 2600)");
	my $shorter = $case->{without} ? "n = 77" : "big = 'short'";
	my $first = $case->{first} // '';
	my $full = $case->{view} ? '' : $first =~ /IDENTITY USING/ ? '' : "ALTER TABLE c REPLICA IDENTITY $identity;";
	my $sql = qq{
		CREATE TABLE c (id int PRIMARY KEY, n int, v text, w int NOT NULL UNIQUE, big text);
		ALTER TABLE c ALTER big SET STORAGE EXTERNAL;
		INSERT INTO c SELECT g, g, 'old', g, repeat('a', g % 2 * 3000) FROM generate_series(1, 6) g;
		$first; $full
		SELECT count(*) FROM pg_logical_emit_message(false, 'case', '$case->{number}');
		BEGIN;
		INSERT INTO c (id, n, w, big) SELECT g, g, g, repeat('b', g % 2 * 3000) FROM generate_series(11, 13) g;
		UPDATE c SET n = n + 1 WHERE id = 1;
		UPDATE c SET big = repeat('c', 2500) WHERE id = 2;
		UPDATE c SET id = 103 WHERE id = 3;
		DELETE FROM c WHERE id = 4;
		$case->{ddl};
		INSERT INTO $after (id, n, w$big) VALUES (21, 21, 21$value);
		UPDATE $after SET n = n + 1 WHERE id = 1;
		UPDATE $after SET $shorter WHERE id = 11;
		UPDATE $after SET id = 112 WHERE id = 12;
		UPDATE $after SET id = 105, w = 105 WHERE id = 5;
		DELETE FROM $after WHERE id = 13;
		@{[$case->{more} // '']};
		SAVEPOINT s;
		$case->{again};
		UPDATE $again SET n = 0 WHERE id = 6;
		UPDATE $again SET id = 206, w = 206 WHERE id = 6;
		INSERT INTO $again (id, n, w) VALUES (31, 31, 31);
		DELETE FROM $again WHERE id = 1;
		ROLLBACK TO s;
		UPDATE $after SET n = 60 WHERE id = 6;
		DELETE FROM $after WHERE id = 1;
		$end;
		UPDATE $left SET n = 99 WHERE id = 2;
		DELETE FROM $left WHERE id = 112;
		SELECT * FROM $left ORDER BY 1;
		@{[$case->{view} ? '' : qq{SELECT 'unsound', * FROM zundo.check('$left') WHERE (SELECT amname = 'zheap' FROM pg_am a JOIN pg_class r ON relam = a.oid WHERE r.oid = '$left'::regclass);}]}
		@{[$case->{last} // '']};
		DROP TABLE IF EXISTS c, d, aside.c;
	};
	$sql =~ s/\bOTHER\b/$other/g;
	$sql =~ s/\bOWN\b/$schema/g;
	return $sql;
}

# alterations IDENTITY, END: runs all cases on both access methods and compares streams, in order, and rows.
sub alterations
{
	my ($identity, $end) = @_;
	my @cases = grep { server_major() >= ($_->{min} // 0) } @alterations;
	my (%stream, %rows);
	# From 18 on, the server takes a transaction that was rolled back, and whose changes did not fit, for a streamed one and
	# fails an assertion (ctx->streaming, logical.c), of heap tables as well.
	local $memory = '64MB' if $end eq 'ROLLBACK';
	stream('twins', 'heap');
	for my $schema (@schemas)
	{
		my $file = $node->data_dir . '/alterations.sql';
		append_to_file($file, join '', "SET default_table_access_method = $schema; SET search_path = $schema, public; SET client_min_messages = error;",
			map { "\\echo case $_->{number}\n" . alteration_of($_, $schema, $identity, $end) } @cases);
		my ($rc, $out, $err) = $node->psql('postgres', "\\i $file");
		unlink $file;
		is($rc, 0, "REPLICA IDENTITY $identity, $end: runs ($schema)") or diag(substr($out, -300), $err);
		unlike($out, qr/^unsound/m, '... zundo.check');
		my $shown = stream('twins', $schema);
		s/((.)\2{40,})/"$2 " . length($1) . ' times'/ge for $shown, $out;	# so that a failure can be read
		$stream{$schema} = {$shown =~ /^message: transactional: 0 prefix: case.*?content:(.*)\n((?:(?!message:).*\n?)*)/mg};
		$rows{$schema} = {$out =~ /^case (.*)\n((?:(?!case ).*\n?)*)/mg};
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $case (@cases)
	{
		my $number = $case->{number};
		my $name = "$case->{ddl}, REPLICA IDENTITY $identity, $end";
		# MERGE and SPLIT copy rows in the order of their places
		my @both = map { $case->{view} ? sorted($stream{$_}{$number}) : $stream{$_}{$number} } qw(zheap heap);
		is($both[0], $both[1], "$name: the streams are equal");
		is($rows{zheap}{$number}, $rows{heap}{$number}, "$name: and the rows");
		my $n = () = ($stream{zheap}{$number} // '') =~ /^table/mg;
		cmp_ok($n, '>=', $end eq 'ROLLBACK' ? 1 : $case->{few} ? 3 : 10, "$name: it has changes") if !($case->{few} && $end eq 'ROLLBACK');
	}
	return;
}
$node->safe_psql('postgres', "SET allow_in_place_tablespaces = on; CREATE TABLESPACE beside LOCATION ''");
$node->safe_psql('postgres', 'CREATE SCHEMA aside; CREATE ROLE somebody');
alterations($_, 'COMMIT') for qw(DEFAULT FULL);

# Records with an image of the table page: the first change after each checkpoint.
prepare(q{CREATE TABLE imaged (id int PRIMARY KEY, v text)});
same('page images, in order', 8, q{INSERT INTO imaged VALUES (1, 'a'); CHECKPOINT; UPDATE imaged SET v = 'b'; CHECKPOINT; INSERT INTO imaged VALUES (2, 'c'); CHECKPOINT; INSERT INTO imaged SELECT g, 'd' FROM generate_series(3, 4) g;
	CHECKPOINT; UPDATE imaged SET id = 5 WHERE id = 2; CHECKPOINT; DELETE FROM imaged WHERE id = 5; CHECKPOINT; INSERT INTO imaged VALUES (6, 'e') ON CONFLICT DO NOTHING; CHECKPOINT; DELETE FROM imaged});
$node->safe_psql('postgres', 'ALTER SYSTEM SET full_page_writes = off');
$node->reload;
same('without page images', 6, q{INSERT INTO imaged VALUES (1, 'a'), (2, 'b'); UPDATE imaged SET v = 'c'; UPDATE imaged SET id = id + 5; DELETE FROM imaged});
$node->safe_psql('postgres', 'ALTER SYSTEM RESET full_page_writes');
$node->reload;

# Origins. Changes made under one are not shown with only-local, even if the transaction commits without one; nor is a
# transaction that commits under one.
$node->safe_psql('postgres', q{SELECT pg_replication_origin_create('afar')});
my ($setup, $reset) = (q{SELECT pg_replication_origin_session_setup('afar')}, 'SELECT pg_replication_origin_session_reset()');
prepare(q{CREATE TABLE fed (id int PRIMARY KEY, v text, big text); ALTER TABLE fed ALTER big SET STORAGE EXTERNAL});
for my $case (map { [$_, ''], [$_, 'CHECKPOINT;'] } 'DEFAULT', 'FULL')
{
	my ($identity, $images) = @$case;
	my $mixed = qq{
		BEGIN; INSERT INTO fed VALUES (1, 'here', NULL), (2, 'here', repeat('near', 1000)); $setup;
		$images INSERT INTO fed VALUES (7000, 'far', repeat('far', 1000)); $images INSERT INTO fed SELECT g, 'far' FROM generate_series(7001, 7005) g;
		$images COPY fed (id, v) FROM PROGRAM 'perl -e "print \\\$_, qq(\\tfar\\n) for 7010 .. 7020"';
		$images INSERT INTO fed VALUES (7030, 'far', repeat('far', 1000)) ON CONFLICT (id) DO NOTHING; $images INSERT INTO fed VALUES (7030, 'x') ON CONFLICT (id) DO UPDATE SET v = 'far away';
		$images UPDATE fed SET v = 'far off' WHERE id = 7001; $images UPDATE fed SET v = repeat('far', 400) WHERE id = 7002; $images UPDATE fed SET id = 7103 WHERE id = 7003;
		$images UPDATE fed SET big = repeat('far', 1000) WHERE id = 7004; $images DELETE FROM fed WHERE id = 7005; $images DELETE FROM fed WHERE id = 7000; $images TRUNCATE nokey;
		MERGE INTO fed USING (SELECT 7001 AS i) s ON id = i WHEN MATCHED THEN UPDATE SET v = 'far again';
		$reset; $images UPDATE fed SET v = 'local' WHERE id = 1; SAVEPOINT s; $setup; UPDATE fed SET v = 'far from it' WHERE id = 2; ROLLBACK TO s; $reset;
		INSERT INTO fed VALUES (3, 'local') ON CONFLICT DO NOTHING; DELETE FROM fed WHERE id = 2; COMMIT};
	prepare("ALTER TABLE fed REPLICA IDENTITY $identity");
	my $name = "REPLICA IDENTITY $identity $images";
	my $local = same("origins, in order, $name", 5, $mixed, 'only-local', 1);
	unlike($local, qr/far|:7\d\d\d|TRUNCATE/, '... what has come from afar is not shown');
	prepare('DELETE FROM fed');
	stream('twins', 'heap');
	like(same("origins, all shown, in order, $name", 30, $mixed), qr/id\[integer\]:7103.*TRUNCATE/s, '... is shown without the option');
	prepare('DELETE FROM fed');
	stream('twins', 'heap');
}
my $committed = q{BEGIN; INSERT INTO fed VALUES (1, 'here'); SETUP; COMMIT; RESET; SETUP; INSERT INTO fed VALUES (2, 'far'); UPDATE fed SET v = 'far off' WHERE id = 2; RESET; DELETE FROM fed WHERE id = 1; DELETE FROM fed};
s/SETUP/$setup/g, s/RESET/$reset/g for $committed;
unlike(same('committed under an origin, in order', 2, $committed, 'only-local', 1), qr/INSERT|UPDATE/, '... is not shown');

# Streamed, prepared, rolled back.
alterations('DEFAULT', 'ROLLBACK');
$node->safe_psql('postgres', q{SELECT pg_drop_replication_slot('twins'); SELECT pg_create_logical_replication_slot('twins', 'test_decoding', false, true)});
same('prepared transactions, in order', 4, q{BEGIN; INSERT INTO t (id, w) VALUES (1, 1); UPDATE t SET w = 2; PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'; BEGIN; UPDATE t SET w = 3; PREPARE TRANSACTION 'q'; ROLLBACK PREPARED 'q'; DELETE FROM t});
unlike(same('prepared under an origin, in order', 1, "$setup; BEGIN; INSERT INTO fed VALUES (1, 'far'); UPDATE fed SET v = 'far off'; PREPARE TRANSACTION 'AM'; $reset; COMMIT PREPARED 'AM'; DELETE FROM fed", 'only-local', 1),
	qr/INSERT|UPDATE|^PREPARE/m, '... is not shown');
alterations($_, "PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'") for qw(DEFAULT FULL);
my $large = q{DELETE FROM t; DELETE FROM wide WHERE id >= 1000; BEGIN; INSERT INTO t (id, w) SELECT g, g FROM generate_series(1, 3000) g; SAVEPOINT a; UPDATE t SET w = -w WHERE id % 3 = 0; INSERT INTO wide SELECT g, repeat('s', 4000) FROM generate_series(1000, 1100) g;
	ROLLBACK TO a; UPDATE t SET id = id + 5000 WHERE id % 7 = 0; INSERT INTO wide SELECT g, repeat('s', 4000) FROM generate_series(1000, 1040) g; DELETE FROM t WHERE id % 2 = 0;};
for my $end ('COMMIT', 'ROLLBACK', "PREPARE TRANSACTION 'AM'; COMMIT PREPARED 'AM'")
{
	same("streamed, $end", 1000, "$large $end", 'stream-changes', 1);
}
# A prepared one is read before its end is known. The other table's transaction must have ended by then: servers up to 19
# stream a transaction again whose PREPARE was shown by an earlier call, when memory is short.
prepare('DELETE FROM t; DELETE FROM wide WHERE id >= 1000');
stream('twins', 'heap', 'stream-changes', 1);
my %prepared;
for my $schema (@schemas)
{
	$node->safe_psql('postgres', "SET search_path = $schema; $large PREPARE TRANSACTION 'large'");
	$prepared{$schema} = [stream('twins', $schema, 'stream-changes', 1)];
	$node->safe_psql('postgres', "ROLLBACK PREPARED 'large'");
	push @{$prepared{$schema}}, stream('twins', $schema, 'stream-changes', 1);
	is($node->safe_psql('postgres', "SELECT count(*) FROM $schema.t"), 0, "streamed and prepared, rolled back ($schema)");
}
is_deeply($prepared{zheap}, $prepared{heap}, '... the streams are equal');
like($prepared{zheap}[0], qr/^streaming change(?s:.*)^preparing streamed transaction 'large'/m, '... it was streamed');
like($prepared{zheap}[1], qr/^ROLLBACK PREPARED 'large'$/m, '... and its end shown');

# What 19 has added.
if (server_major() >= 19)
{
	same('ON CONFLICT DO SELECT', 4, q{INSERT INTO fed VALUES (1, 'a'), (2, 'b'); INSERT INTO fed VALUES (1, 'x'), (3, 'c') ON CONFLICT (id) DO SELECT RETURNING *; INSERT INTO fed VALUES (2, 'x') ON CONFLICT (id) DO SELECT FOR UPDATE RETURNING *;
		BEGIN; UPDATE fed SET v = 'y' WHERE id = 2; INSERT INTO fed VALUES (2, 'x'), (4, 'd') ON CONFLICT (id) DO SELECT RETURNING v; COMMIT; DELETE FROM fed});
	prepare(q{CREATE TABLE price (id int, valid int4range, cost int, note text, EXCLUDE USING gist (valid WITH &&)); ALTER TABLE price ALTER note SET STORAGE EXTERNAL});
	for my $identity ('DEFAULT', 'FULL')
	{
		prepare("ALTER TABLE price REPLICA IDENTITY $identity");
		same("FOR PORTION OF, REPLICA IDENTITY $identity", 12, q{INSERT INTO price VALUES (1, '[1,100)', 10, repeat('x', 3000)), (2, '[100,200)', 20, 'n'), (3, '[300,400)', 30, NULL);
			UPDATE price FOR PORTION OF valid FROM 20 TO 30 SET cost = 11 WHERE id = 1; DELETE FROM price FOR PORTION OF valid FROM 90 TO 120;
			BEGIN; UPDATE price SET cost = cost + 5 WHERE id = 3; UPDATE price FOR PORTION OF valid FROM 350 TO 360 SET cost = 0, note = repeat('y', 3000) WHERE id = 3; SAVEPOINT s; DELETE FROM price FOR PORTION OF valid FROM 1 TO 1000; ROLLBACK TO s; COMMIT; DELETE FROM price});
	}
	same('COPY with errors set to null, in order', 2, q{COPY nokey (v, id) FROM PROGRAM 'printf "a\tx\nb\t5\n"' WITH (ON_ERROR SET_NULL)});
}

# The slot from before the extension shows everything again, and so it does after a crash.
my $all = $node->safe_psql('postgres', q{SELECT data FROM pg_logical_slot_peek_changes('early', NULL, NULL, 'include-xids', '0')});
cmp_ok(length $all, '>', 100000, 'a slot from before the extension');
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', q{SELECT data FROM pg_logical_slot_get_changes('early', NULL, NULL, 'include-xids', '0')}), $all, '... shows the same after a crash');
stream('twins', 'heap');
same('after a crash', 2, q{DELETE FROM t; INSERT INTO t (id, w) VALUES (1, 1); UPDATE t SET w = 5});
$node->safe_psql('postgres', q{DELETE FROM zheap.t; SELECT pg_replication_slot_advance('twins', pg_current_wal_lsn())});

# What a slot reports of transactions that their session has rolled back: nothing after their end.
$node->safe_psql('postgres', 'INSERT INTO zheap.t (id, w) VALUES (1, 1); BEGIN; UPDATE zheap.t SET w = 5; ROLLBACK; BEGIN; SAVEPOINT a; UPDATE zheap.t SET w = 5; ROLLBACK TO a; COMMIT; CHECKPOINT');
my ($rc, $out, $err) = $node->psql('postgres', q{SET client_min_messages = debug2; SELECT data FROM pg_logical_slot_get_changes('early', NULL, NULL)});
unlike($err, qr/aborting old transaction/, 'no transaction is known anew by the records of its rollback');
sound($node, '', map { "zheap.$_" } qw(t wide typed nokey imaged huge bigindex fed));
no_crash($node);
$node->stop;
done_testing();
