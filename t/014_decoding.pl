# Logical decoding beside zheap tables: changes of heap tables are decoded
# whatever the same transaction does to zheap tables; a change of a zheap table
# is never left out in silence; no zheap table is read by a historic snapshot.
# Rules: DECODE-1, DECODE-2, DECODE-3, DECODE-4, DECODE-5, SCAN-4.
use strict;
use warnings;
use FindBin;
use ZundoTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = zundo_node('decoding', "max_replication_slots = 20\nmax_wal_senders = 8\nmax_prepared_transactions = 4", allows_streaming => 'logical');
my $skip = 'SET zundo.undecodable_changes = skip';

# A slot from before the extension, another from before the tables.
$node->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('early', 'test_decoding')});
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');
my ($rc, $out, $err) = $node->psql('postgres', q{
	CREATE TABLE z (id int PRIMARY KEY, v text) USING zheap;
	ALTER TABLE z ALTER v SET STORAGE EXTERNAL;
	CREATE TABLE h (id int PRIMARY KEY) USING heap;
	CREATE TABLE h2 (id int PRIMARY KEY, v text) USING heap;
	CREATE TABLE plain (id int) USING heap;
	CREATE TEMP TABLE passing (id int) USING zheap;
	CREATE UNLOGGED TABLE unlogged (id int) USING zheap;
	TRUNCATE z;
	VACUUM FULL z;
	ALTER TABLE plain SET ACCESS METHOD zheap;
	INSERT INTO h2 SELECT g, 'a' FROM generate_series(1, 20) g;
	INSERT INTO z SELECT g, repeat('abc', 5000) FROM generate_series(-5, -1) g});
is($rc, 0, 'tables beside a slot');
is(() = $err =~ /WARNING:  changes of zheap table "(?:z|plain)" will not be decoded/g, 2, 'WARNING for each permanent zheap table made beside a slot');
is(() = $err =~ /WARNING/g, 2, '... and for nothing else');

# changes SLOT [OPTION]: what it has to show, without the lines of transactions; then it is past them.
sub changes
{
	my ($slot, $option) = @_;
	return $node->safe_psql('postgres', "$skip; SELECT data FROM pg_logical_slot_get_changes('$slot', NULL, NULL, 'include-xids', '0'" . ($option // '') .
			") WHERE data !~ '^(BEGIN|COMMIT)'");
}

# refuses SLOT WHAT: it shows nothing, but an error that names the table and the way out; the server stays.
sub refuses
{
	my ($slot, $what, $option) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "SELECT data FROM pg_logical_slot_get_changes('$slot', NULL, NULL" . ($option // '') . ')');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like($err, qr/ERROR:  changes of zheap table "public\.z" cannot be decoded.*DETAIL:.*"$slot".*"test_decoding".*HINT:.*zundo\.undecodable_changes/s, $what);
	return;
}

refuses('early', 'a slot from before the extension');
like(changes('early'), qr/\Atable public.z: TRUNCATE: .*\n(?:table public.h2: INSERT: .*\n?){20}\z/,
	'... shows the heap tables once it is told to leave zheap tables out, and TRUNCATE, which the server writes');

# Values out of line: their chunks are nobody's in the stream. What follows in the same transaction is decoded.
sub toast
{
	my ($what, $sql, $seen) = @_;
	$node->safe_psql('postgres', "BEGIN; $sql; INSERT INTO h SELECT coalesce(max(id), 0) + 1 FROM h; COMMIT");
	$node->safe_psql('postgres', "BEGIN; $sql; DELETE FROM h2 WHERE id = (SELECT min(id) FROM h2); COMMIT");
	my $shown = changes('early');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like($shown, qr/\Atable public\.h: INSERT: id\[integer\]:\d+\ntable public\.h2: DELETE: id\[integer\]:\d+\z/, "TOAST beside heap changes: $what");
	return;
}
my $wide = q{repeat('xyz', 5000)};
$node->safe_psql('postgres', 'CREATE SEQUENCE s');
toast('INSERT', "INSERT INTO z VALUES (nextval('s'), $wide)");
toast('many rows', "INSERT INTO z SELECT nextval('s'), $wide FROM generate_series(1, 5)");
toast('UPDATE', "UPDATE z SET v = $wide || id WHERE id < 0");
toast('UPDATE of the key', "UPDATE z SET id = nextval('s') WHERE id = (SELECT max(id) FROM z)");
toast('ON CONFLICT', "INSERT INTO z VALUES (nextval('s'), $wide) ON CONFLICT (id) DO UPDATE SET v = excluded.v || 'more'");
toast('ON CONFLICT, updated', "INSERT INTO z SELECT max(id), $wide FROM z ON CONFLICT (id) DO UPDATE SET v = excluded.v || 'more'");
# A speculative insertion that is given up: another session inserts the key between the check and the index's entry.
$node->safe_psql('postgres', q{
	CREATE EXTENSION dblink;
	CREATE SEQUENCE calls;
	CREATE TABLE raced (id int, v text) USING zheap;
	ALTER TABLE raced ALTER v SET STORAGE EXTERNAL;
	CREATE FUNCTION key_of(id int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
		IF id = 1 AND nextval('calls') = 2 THEN PERFORM dblink_exec('port=} . $node->port . ' host=' . $node->host . q{ dbname=postgres', 'INSERT INTO raced VALUES (-1)'); END IF;
		RETURN abs(id); END $$;
	CREATE UNIQUE INDEX ON raced (key_of(id))});
$node->safe_psql('postgres', "BEGIN; INSERT INTO h VALUES (1000); INSERT INTO raced VALUES (1, $wide) ON CONFLICT (key_of(id)) DO NOTHING; DELETE FROM h2 WHERE id = 20; DELETE FROM h WHERE id = 1000; COMMIT");
is($node->safe_psql('postgres', 'SELECT id FROM raced'), '-1', 'a lost race');
like(changes('early'), qr/\Atable public\.h: INSERT.*\ntable public\.h2: DELETE: id\[integer\]:20\ntable public\.h: DELETE.*\z/, 'TOAST beside heap changes: given up');
toast('COPY', "COPY z FROM PROGRAM 'perl -e \"print 100000 + \$\$, qq(\\t), q(c) x 20000, qq(\\n)\"'");
toast('DELETE', "DELETE FROM z WHERE id = (SELECT min(id) FROM z)");
toast('rolled back to a savepoint', "SAVEPOINT a; INSERT INTO z VALUES (nextval('s'), $wide); ROLLBACK TO a");
toast('ALTER TYPE', "ALTER TABLE z ALTER v TYPE varchar; ALTER TABLE z ALTER v TYPE text");
toast('VACUUM FULL by CLUSTER', "CLUSTER z USING z_pkey");
toast('SET ACCESS METHOD and back', "ALTER TABLE z SET ACCESS METHOD heap; ALTER TABLE z SET ACCESS METHOD zheap");
toast('REFRESH', "CREATE MATERIALIZED VIEW m USING zheap AS SELECT * FROM z; REFRESH MATERIALIZED VIEW m; DROP MATERIALIZED VIEW m");

# Each kind of change is met; what is none, or was rolled back, is not.
$node->safe_psql('postgres', 'DELETE FROM z; INSERT INTO z SELECT g, 0 FROM generate_series(1, 9) g; CREATE FUNCTION fails() RETURNS int LANGUAGE plpgsql AS $$
	BEGIN UPDATE z SET v = 1; RAISE EXCEPTION $a$no$a$; EXCEPTION WHEN raise_exception THEN RETURN 1; END $$');
changes('early');
for my $change (
	'INSERT INTO z VALUES (10)', 'INSERT INTO z SELECT g FROM generate_series(11, 20) g', 'UPDATE z SET v = 1 WHERE id = 1', 'UPDATE z SET id = 21 WHERE id = 2',
	'DELETE FROM z WHERE id = 3', "COPY z (id) FROM PROGRAM 'echo 22'", 'INSERT INTO z VALUES (23) ON CONFLICT DO NOTHING',
	'INSERT INTO z VALUES (1) ON CONFLICT (id) DO UPDATE SET v = 2', 'SAVEPOINT a; DELETE FROM z WHERE id = 4', 'MERGE INTO z USING (SELECT 5) s(id) ON z.id = s.id WHEN MATCHED THEN DELETE')
{
	$node->safe_psql('postgres', "BEGIN; INSERT INTO h2 VALUES (1000); $change; INSERT INTO h2 VALUES (1001); DELETE FROM h2 WHERE id > 999; COMMIT");
	refuses('early', $change);
	like(changes('early'), qr/\A.*INSERT.*1000.*\n.*INSERT.*1001.*\n.*DELETE.*\n.*DELETE.*\z/, '... and passed over where that is wanted');
}
for my $none (
	'SELECT * FROM z FOR UPDATE', 'SELECT * FROM z FOR KEY SHARE', 'INSERT INTO z VALUES (1) ON CONFLICT DO NOTHING', 'SAVEPOINT a; UPDATE z SET v = 3; ROLLBACK TO a',
	'SELECT fails()', 'CREATE TEMP TABLE passing USING zheap AS SELECT 1; INSERT INTO unlogged VALUES (1)', 'LOCK z')
{
	$node->safe_psql('postgres', "BEGIN; INSERT INTO h VALUES (1000); $none; DELETE FROM h WHERE id = 1000; COMMIT; BEGIN; UPDATE z SET v = 4; ROLLBACK");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_logical_slot_get_changes('early', NULL, NULL) WHERE data LIKE 'table public.h:%'}), '2', "no change: $none");
}

# What a slot reports of transactions that their session has rolled back:
# nothing after their end.
$node->safe_psql('postgres', 'BEGIN; UPDATE z SET v = 5; ROLLBACK; BEGIN; SAVEPOINT a; UPDATE z SET v = 5; ROLLBACK TO a; COMMIT; CHECKPOINT');
($rc, $out, $err) = $node->psql('postgres', q{SET client_min_messages = debug2; SELECT data FROM pg_logical_slot_get_changes('early', NULL, NULL)});
unlike($err, qr/aborting old transaction/, 'no transaction is known anew by the records of its rollback');

# Prepared transactions are shown before their commit, large ones before their end.
$node->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('two', 'test_decoding', false, true)});
$node->safe_psql('postgres', q{BEGIN; INSERT INTO h VALUES (1000); UPDATE z SET v = 6; PREPARE TRANSACTION 'p'});
refuses('two', 'PREPARE');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'p'});
unlike($node->safe_psql('postgres', q{SELECT string_agg(data, ' ') FROM pg_logical_slot_get_changes('two', NULL, NULL)}), qr/z:/, '... which was rolled back');
$node->safe_psql('postgres', q{BEGIN; UPDATE z SET v = 6; PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'});
refuses('two', 'COMMIT PREPARED');
refuses('early', 'COMMIT PREPARED, of a slot that shows no PREPARE');
changes('early');
changes('two');
my $writer = $node->background_psql('postgres');
my $stream = q{SET logical_decoding_work_mem = '64kB'; SELECT count(*) FROM pg_logical_slot_get_changes('early', NULL, NULL, 'stream-changes', '1')};
for my $end (qw(ROLLBACK COMMIT))
{
	$writer->query_safe(q{BEGIN; INSERT INTO h SELECT g FROM generate_series(2000, 4000) g; UPDATE z SET v = 7; INSERT INTO h SELECT g FROM generate_series(4001, 6000) g});
	$node->safe_psql('postgres', 'CHECKPOINT');
	($rc, $out, $err) = $node->psql('postgres', $stream);
	like($err, qr/changes of zheap table "public.z" cannot be decoded/, 'a transaction that is streamed');
	$writer->query_safe($end);
	($rc, $out, $err) = $node->psql('postgres', $stream);
	like($err, $end eq 'ROLLBACK' ? qr/\A\z/ : qr/cannot be decoded/, "... and then $end");
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_replication_slot_advance('early', pg_current_wal_lsn())}), 1, 'a slot that is only advanced');

# pgoutput, of heap tables, and of TRUNCATE of a zheap table: what it does not publish stops nothing.
$node->safe_psql('postgres', q{
	CREATE PUBLICATION heaps FOR TABLE h, h2; CREATE PUBLICATION zheaps FOR TABLE z WITH (publish = 'truncate');
	SELECT pg_create_logical_replication_slot('out', 'pgoutput')});
my $publish = q{SELECT count(*) FROM pg_logical_slot_get_binary_changes('out', NULL, NULL, 'proto_version', '1', 'publication_names', 'heaps,zheaps') WHERE get_byte(data, 0) IN (68, 73)};
$node->safe_psql('postgres', "BEGIN; INSERT INTO h VALUES (7000); $_; DELETE FROM h WHERE id = 7000; COMMIT")
	for ('UPDATE z SET v = 8', 'INSERT INTO z SELECT g, $$wide$$ FROM generate_series(100, 200) g', "UPDATE z SET v = $wide", 'DELETE FROM z WHERE id >= 100');
is($node->safe_psql('postgres', $publish), 8, 'heap tables are published beside zheap tables');

# A statement begins before the publication and writes after the slot's snapshot.
my $begins = sub {
	my ($sql, $then) = @_;
	my $holder = $node->background_psql('postgres');
	$holder->query_safe('SELECT pg_advisory_lock(1)');
	$writer = $node->background_psql('postgres', on_error_stop => 0);
	$writer->query_until(qr/begun/, "\\echo begun\n$sql;\n\\echo ended\n");
	$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'advisory'}) or die 'the statement does not wait';
	$node->safe_psql('postgres', $then);
	$holder->query_safe('SELECT pg_advisory_unlock(1)');
	$writer->query_until(qr/ended/, '');
	my $message = $writer->{stderr};
	$writer->{stderr} = '';
	$writer->quit;
	$holder->quit;
	return $message;
};
$node->safe_psql('postgres', 'CREATE VIEW gate AS SELECT length(pg_advisory_xact_lock_shared(1)::text) AS n');
for my $sql ('UPDATE z SET v = (SELECT n FROM gate) WHERE id = 1', 'INSERT INTO z SELECT n + 30 FROM gate', 'DELETE FROM z USING gate WHERE id = n + 6')
{
	like($begins->($sql, q{CREATE PUBLICATION late FOR TABLE z; SELECT pg_create_logical_replication_slot('late', 'pgoutput')}),
		qr/changes of zheap table "z" cannot be published\nDETAIL:.*"late"/, "before the publication: $sql");
	$node->safe_psql('postgres', q{DROP PUBLICATION late; SELECT pg_drop_replication_slot('late')});
}
# ... or a statement waits for another transaction meanwhile.
my $holder = $node->background_psql('postgres');
for my $sql ('UPDATE z SET v = 1 WHERE id = 1', 'DELETE FROM z WHERE id = 1')
{
	$holder->query_safe('BEGIN; UPDATE z SET v = 0 WHERE id = 1');
	$writer = $node->background_psql('postgres', on_error_stop => 0);
	$writer->query_until(qr/begun/, "\\echo begun\n$sql;\n\\echo ended\n");
	$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'transactionid'}) or die 'the statement does not wait';
	$node->safe_psql('postgres', 'CREATE PUBLICATION late FOR TABLE z');
	$holder->query_safe('ROLLBACK');
	$writer->query_until(qr/ended/, '');
	like($writer->{stderr}, qr/changes of zheap table "z" cannot be published/, "the wait of $sql");
	$writer->{stderr} = '';
	$writer->quit;
	$node->safe_psql('postgres', 'DROP PUBLICATION late');
}
$holder->quit;
$writer = $node->background_psql('postgres', on_error_stop => 0);
$writer->query_safe('BEGIN; UPDATE z SET v = 9 WHERE id = 1');
$node->safe_psql('postgres', 'CREATE PUBLICATION late FOR TABLE z');
$writer->query('UPDATE z SET v = 9 WHERE id = 6');
like($writer->{stderr}, qr/changes of zheap table "z" cannot be published/, 'the second statement of a transaction');
$writer->quit;
$node->safe_psql('postgres', 'DROP PUBLICATION late');

# What the writer did not hear of, the slot meets: here the catalog is changed behind its back.
$writer = $node->background_psql('postgres');
$writer->query_safe('UPDATE z SET v = 10');
$node->safe_psql('postgres', $publish);
$node->safe_psql('postgres', q{UPDATE pg_publication SET pubupdate = true WHERE pubname = 'zheaps'});
$writer->query_safe('UPDATE z SET v = 11');
$writer->quit;
($rc, $out, $err) = $node->psql('postgres', $publish);
like($err, qr/changes of zheap table "public.z" cannot be decoded.*"pgoutput"/s, 'pgoutput meets a change that it was to publish');
is($node->safe_psql('postgres', "$skip; $publish"), 0, '... and passes it over where that is wanted');
$node->safe_psql('postgres', 'DROP PUBLICATION zheaps, heaps');

# Row locks of published tables are none of its changes.
$node->safe_psql('postgres', 'CREATE PUBLICATION zheaps FOR TABLE z; SELECT * FROM z FOR UPDATE; CREATE TABLE child (id int REFERENCES z) USING heap; INSERT INTO child VALUES (1); DROP PUBLICATION zheaps');

# An output plugin that reads a zheap table, in every way.
my ($config, $lib) = ($ENV{PG_CONFIG}, PostgreSQL::Test::Utils::tempdir_short());
chomp(my $include = qx($config --includedir-server));
is(system("cc -shared -fPIC -w -I$include -I$FindBin::RealBin/.. -o $lib/reading_plugin.so $FindBin::RealBin/../test/reading_plugin.c"), 0, 'the plugin is built');
my $dirs = "SET dynamic_library_path = '$lib:\$libdir'";
$dirs .= '; SET output_plugin_libraries = reading_plugin' if $node->safe_psql('postgres', q{SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries'});
$node->safe_psql('postgres', "$dirs; SELECT pg_create_logical_replication_slot('reader', 'reading_plugin'); INSERT INTO h VALUES (8000)");
for my $way (qw(scan index tid satisfies))
{
	($rc, $out, $err) = $node->psql('postgres', "$dirs; SELECT data FROM pg_logical_slot_get_changes('reader', NULL, NULL, 'way', '$way')");
	like($err, qr/zheap tables cannot be read during logical decoding/, "reading while decoding: $way");
}

# Decoding on a standby, whose primary does not know of its slots.
SKIP:
{
	skip 'standbys decode from 16 on', 3 if $node->safe_psql('postgres', 'SHOW server_version_num') < 160000;
	$node->safe_psql('postgres', q{SELECT pg_create_physical_replication_slot('standby')});
	$node->backup('backup');
	my $standby = PostgreSQL::Test::Cluster->new('decoding_standby');
	$standby->init_from_backup($node, 'backup', has_streaming => 1);
	$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\nprimary_slot_name = 'standby'");
	$standby->start;
	$standby->create_logical_slot_on_standby($node, 'there', 'postgres');
	$node->safe_psql('postgres', 'INSERT INTO h VALUES (9000); UPDATE z SET v = 12; INSERT INTO h VALUES (9001)');
	$node->wait_for_replay_catchup($standby);
	($rc, $out, $err) = $standby->psql('postgres', q{SELECT data FROM pg_logical_slot_get_changes('there', NULL, NULL)});
	like($err, qr/changes of zheap table "public.z" cannot be decoded/, 'on a standby');
	like($standby->safe_psql('postgres', "$skip; SELECT string_agg(data, ' ') FROM pg_logical_slot_get_changes('there', NULL, NULL)"), qr/9000.*9001/, '... passed over');
	$standby->promote;
	$standby->safe_psql('postgres', 'UPDATE z SET v = 13');
	($rc, $out, $err) = $standby->psql('postgres', q{SELECT data FROM pg_logical_slot_get_changes('there', NULL, NULL)});
	like($err, qr/changes of zheap table "public.z" cannot be decoded/, '... and promoted');
	no_crash($standby);
	$standby->stop;
}
sound($node, '', qw(z zundo.undo_log));
no_crash($node);
$node->stop;
done_testing();
