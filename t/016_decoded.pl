# The same statements on a heap table and on a zheap table give the same output
# of test_decoding: with every replica identity, values out of line,
# subtransactions, INSERT ... ON CONFLICT that finds a conflict late, DDL within
# a transaction, prepared and streamed transactions.
# Rules: DECODE-1, DECODE-2, DECODE-3, DECODE-5.
use strict;
use warnings;
use ZundoTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = zundo_node('decoded', "max_replication_slots = 20\nmax_wal_senders = 8\nmax_prepared_transactions = 4\nautovacuum = off",
	allows_streaming => 'logical');
my @schemas = qw(heap zheap);

# in each schema, with tables of its access method
sub prepare
{
	my ($sql) = @_;
	$node->safe_psql('postgres', "SET default_table_access_method = $_; SET search_path = $_, public; $sql") for @schemas;
	return;
}

sub stream
{
	my ($slot, $schema, @options) = @_;
	my $options = join '', map { ", '$_'" } 'include-xids', 0, 'skip-empty-xacts', 1, @options;
	my $shown = $node->safe_psql('postgres', "SET logical_decoding_work_mem = '64kB'; SELECT data FROM pg_logical_slot_get_changes('$slot', NULL, NULL$options)");
	$shown =~ s/\b$schema\./s./g;
	$shown =~ s/pg_temp_\d+/pg_temp/g;
	return $shown;
}

# The changes of each transaction sorted: rows that have moved are met in another order.
sub sorted
{
	my ($stream) = @_;
	my @parts = split /^((?:BEGIN|COMMIT|PREPARE|opening|closing|preparing|committing|aborting).*)$/m, $stream;
	return join "\n", map { join "\n", sort grep { $_ ne '' } split /\n/ } @parts;
}

# Runs the statements on both tables; the streams must be equal and have at least this many changes. The order within a
# transaction counts too if the test's name says "in order".
sub same
{
	my ($what, $changes, $sql, @options) = @_;
	my %shown;
	for my $schema (@schemas)
	{
		my ($rc, $out, $err) = $node->psql('postgres', "SET default_table_access_method = $schema; SET search_path = $schema, public; $sql");
		is($rc, 0, "$what: runs ($schema)") or diag $err;
		$shown{$schema} = stream('twins', $schema, @options);
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $all = $shown{zheap};
	# how much of a transaction is shown before its end, and so at all if it is rolled back, depends on memory
	s/.*stream.*\n?//g for $what =~ /streamed, ROLLBACK/ ? @shown{qw(zheap heap)} : ();
	my @both = map { $what =~ /in order/ ? $_ : sorted($_) } @shown{qw(zheap heap)};
	is($both[0], $both[1], "$what: the streams are equal");
	my $n = () = $all =~ /^(?:table|streaming change)/mg;
	cmp_ok($n, '>=', $changes, "$what: $changes changes or more");
	return;
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

# The table's page in the record: the first change after each checkpoint.
prepare(q{CREATE TABLE imaged (id int PRIMARY KEY, v text)});
same('page images, in order', 8, q{INSERT INTO imaged VALUES (1, 'a'); CHECKPOINT; UPDATE imaged SET v = 'b'; CHECKPOINT; INSERT INTO imaged VALUES (2, 'c'); CHECKPOINT; INSERT INTO imaged SELECT g, 'd' FROM generate_series(3, 4) g;
	CHECKPOINT; UPDATE imaged SET id = 5 WHERE id = 2; CHECKPOINT; DELETE FROM imaged WHERE id = 5; CHECKPOINT; INSERT INTO imaged VALUES (6, 'e') ON CONFLICT DO NOTHING; CHECKPOINT; DELETE FROM imaged});
$node->safe_psql('postgres', 'ALTER SYSTEM SET full_page_writes = off');
$node->reload;
same('without page images', 6, q{INSERT INTO imaged VALUES (1, 'a'), (2, 'b'); UPDATE imaged SET v = 'c'; UPDATE imaged SET id = id + 5; DELETE FROM imaged});
$node->safe_psql('postgres', 'ALTER SYSTEM RESET full_page_writes');
$node->reload;

# Streamed, prepared, rolled back.
$node->safe_psql('postgres', q{SELECT pg_drop_replication_slot('twins'); SELECT pg_create_logical_replication_slot('twins', 'test_decoding', false, true)});
same('prepared transactions, in order', 4, q{BEGIN; INSERT INTO t (id, w) VALUES (1, 1); UPDATE t SET w = 2; PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'; BEGIN; UPDATE t SET w = 3; PREPARE TRANSACTION 'q'; ROLLBACK PREPARED 'q'; DELETE FROM t});
for my $end (qw(COMMIT ROLLBACK))
{
	same("streamed, $end", 1000, qq{DELETE FROM t; DELETE FROM wide WHERE id >= 1000; BEGIN; INSERT INTO t (id, w) SELECT g, g FROM generate_series(1, 3000) g; SAVEPOINT a; UPDATE t SET w = -w WHERE id % 3 = 0; INSERT INTO wide SELECT g, repeat('s', 4000) FROM generate_series(1000, 1100) g;
		ROLLBACK TO a; UPDATE t SET id = id + 5000 WHERE id % 7 = 0; INSERT INTO wide SELECT g, repeat('s', 4000) FROM generate_series(1000, 1040) g; DELETE FROM t WHERE id % 2 = 0; $end}, 'stream-changes', 1);
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
sound($node, '', map { "zheap.$_" } qw(t wide typed nokey imaged huge));
no_crash($node);
$node->stop;
done_testing();
