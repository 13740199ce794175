# Logical decoding of transactions that change heap and zheap tables. Values out
# of line are decoded with their rows; changes of heap tables are decoded
# whatever the same transaction does to zheap tables; WAL records that change no
# row, and rolled back changes, are not decoded; standbys can decode; no zheap
# table is read with a historic snapshot. t/016_decoded compares the decoded
# changes of zheap tables with heap.
# Rules: DECODE-1, DECODE-3, DECODE-2, SCAN-4.
use strict;
use warnings;
use FindBin;
use ZundoTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = zundo_node('decoding', "max_replication_slots = 20\nmax_wal_senders = 8\nmax_prepared_transactions = 4", allows_streaming => 'logical');

# One slot is made before the extension, another one before the tables.
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
unlike($err, qr/WARNING/, '... without a warning');

# changes SLOT [OPTION]: returns the decoded changes, without the lines of transactions,
# and advances the slot.
sub changes
{
	my ($slot, $option) = @_;
	return $node->safe_psql('postgres', "SELECT data FROM pg_logical_slot_get_changes('$slot', NULL, NULL, 'include-xids', '0'" . ($option // '') .
			") WHERE data !~ '^(BEGIN|COMMIT)'");
}

like(changes('early'), qr/\Atable public.z: TRUNCATE: .*\n(?:table public.h2: INSERT: .*\n?){20}(?:table public.z: INSERT: .*\n?){5}\z/, 'a slot from before the extension');

# toast NAME SQL: SQL writes values of z out of line. Checks that the following changes of
# the same transaction are decoded.
sub toast
{
	my ($what, $sql, $seen) = @_;
	$node->safe_psql('postgres', "BEGIN; $sql; INSERT INTO h SELECT coalesce(max(id), 0) + 1 FROM h; COMMIT");
	$node->safe_psql('postgres', "BEGIN; $sql; DELETE FROM h2 WHERE id = (SELECT min(id) FROM h2); COMMIT");
	my $shown = join "\n", grep { !/^table public\.(?:z|m|raced):/ } split /\n/, changes('early');
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
# A speculative insertion that is given up: another session inserts the key between the
# check and the index's entry.
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
like(changes('early'), qr/\Atable public\.raced: INSERT: id\[integer\]:-1 .*\ntable public\.h: INSERT.*\ntable public\.h2: DELETE: id\[integer\]:20\ntable public\.h: DELETE.*\z/, 'TOAST beside heap changes: given up');
toast('COPY', "COPY z FROM PROGRAM 'perl -e \"print 100000 + \$\$, qq(\\t), q(c) x 20000, qq(\\n)\"'");
toast('DELETE', "DELETE FROM z WHERE id = (SELECT min(id) FROM z)");
toast('rolled back to a savepoint', "SAVEPOINT a; INSERT INTO z VALUES (nextval('s'), $wide); ROLLBACK TO a");
toast('ALTER TYPE', "ALTER TABLE z ALTER v TYPE varchar; ALTER TABLE z ALTER v TYPE text");
toast('VACUUM FULL by CLUSTER', "CLUSTER z USING z_pkey");
toast('SET ACCESS METHOD and back', "ALTER TABLE z SET ACCESS METHOD heap; ALTER TABLE z SET ACCESS METHOD zheap");
toast('REFRESH', "CREATE MATERIALIZED VIEW m USING zheap AS SELECT * FROM z; REFRESH MATERIALIZED VIEW m; DROP MATERIALIZED VIEW m");

# Statements that change nothing, and changes that were rolled back, are not decoded.
$node->safe_psql('postgres', 'DELETE FROM z; INSERT INTO z SELECT g, 0 FROM generate_series(1, 9) g; CREATE FUNCTION fails() RETURNS int LANGUAGE plpgsql AS $$
	BEGIN UPDATE z SET v = 1; RAISE EXCEPTION $a$no$a$; EXCEPTION WHEN raise_exception THEN RETURN 1; END $$');
changes('early');
for my $none (
	'SELECT * FROM z FOR UPDATE', 'SELECT * FROM z FOR KEY SHARE', 'INSERT INTO z VALUES (1) ON CONFLICT DO NOTHING', 'SAVEPOINT a; UPDATE z SET v = 3; ROLLBACK TO a',
	'SELECT fails()', 'CREATE TEMP TABLE passing USING zheap AS SELECT 1; INSERT INTO unlogged VALUES (1)', 'LOCK z')
{
	$node->safe_psql('postgres', "BEGIN; INSERT INTO h VALUES (1000); $none; DELETE FROM h WHERE id = 1000; COMMIT; BEGIN; UPDATE z SET v = 4; ROLLBACK");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_logical_slot_get_changes('early', NULL, NULL) WHERE data LIKE 'table public.%'}), '2', "no change: $none");
}

# Prepared transactions are decoded before their commit, large ones before their end.
$node->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('two', 'test_decoding', false, true)});
$node->safe_psql('postgres', q{BEGIN; INSERT INTO h VALUES (1000); UPDATE z SET v = 6; PREPARE TRANSACTION 'p'});
is(() = changes('two') =~ /^table public.z: UPDATE/mg, 9, 'PREPARE');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'p'});
unlike(changes('two'), qr/z:/, '... which was rolled back');
my $writer = $node->background_psql('postgres');
my $stream = q{SET logical_decoding_work_mem = '64kB'; SELECT data FROM pg_logical_slot_get_changes('early', NULL, NULL, 'include-xids', '0', 'stream-changes', '1')};
for my $end (qw(ROLLBACK COMMIT))
{
	$writer->query_safe(q{BEGIN; INSERT INTO h SELECT g FROM generate_series(2000, 4000) g; UPDATE z SET v = 7; INSERT INTO z SELECT g FROM generate_series(4001, 6000) g; DELETE FROM z WHERE id > 4000});
	$node->safe_psql('postgres', 'CHECKPOINT');
	like($node->safe_psql('postgres', $stream), qr/streaming change for transaction/, 'a transaction in progress is streamed');
	$writer->query_safe($end);
	like($node->safe_psql('postgres', $stream), $end eq 'ROLLBACK' ? qr/\A(?!.*(?:COMMIT|committing))/s : qr/(?:COMMIT|committing streamed transaction)\s*\z/, "... and then $end");
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_replication_slot_advance('early', pg_current_wal_lsn())}), 1, 'a slot that is only advanced');

# A table that plugins may read can be written; reading it is refused, see below.
$node->safe_psql('postgres', q{CREATE TABLE catalog (id int) USING zheap WITH (user_catalog_table = true); INSERT INTO catalog VALUES (1); UPDATE catalog SET id = 2});
like(changes('early'), qr/table public.catalog: INSERT.*\ntable public.catalog: UPDATE/, 'user_catalog_table');

# An output plugin that reads a zheap table, in every way.
my ($config, $lib) = ($ENV{PG_CONFIG}, PostgreSQL::Test::Utils::tempdir_short());
chomp(my $include = qx($config --includedir-server));
is(system("cc -shared -fPIC -w -I$include -I$FindBin::RealBin/.. -o $lib/reading_plugin.so $FindBin::RealBin/../test/reading_plugin.c"), 0, 'the plugin is built');
my $dirs = "SET dynamic_library_path = '$lib:\$libdir'";
$dirs .= '; SET output_plugin_libraries = reading_plugin' if $node->safe_psql('postgres', q{SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries'});
$node->safe_psql('postgres', "$dirs; SELECT pg_create_logical_replication_slot('reader', 'reading_plugin'); INSERT INTO h VALUES (8000)");
$node->safe_psql('postgres', 'ALTER TABLE z SET (user_catalog_table = true)');
for my $way (qw(scan index tid satisfies))
{
	($rc, $out, $err) = $node->psql('postgres', "$dirs; SELECT data FROM pg_logical_slot_get_changes('reader', NULL, NULL, 'way', '$way')");
	# 19 itself refuses index scans
	like($err, qr/zheap tables cannot be read during logical decoding|cannot query non-catalog table "z" during/, "reading while decoding: $way");
}

# Decoding on a standby, whose primary does not know of its slots.
SKIP:
{
	skip 'standbys decode from 16 on', 3 if server_major() < 16;
	skip 'the modules for TAP tests are of 15', 3 unless $node->can('create_logical_slot_on_standby');
	my $seen = q{SELECT string_agg(data, ' ') FROM pg_logical_slot_get_changes('there', NULL, NULL)};
	$node->safe_psql('postgres', q{SELECT pg_create_physical_replication_slot('standby')});
	$node->backup('backup');
	my $standby = PostgreSQL::Test::Cluster->new('decoding_standby');
	$standby->init_from_backup($node, 'backup', has_streaming => 1);
	$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\nprimary_slot_name = 'standby'");
	$standby->start;
	$standby->create_logical_slot_on_standby($node, 'there', 'postgres');
	$node->safe_psql('postgres', "INSERT INTO h VALUES (9000); UPDATE z SET v = $wide WHERE id = 1; DELETE FROM z WHERE id = 2; INSERT INTO h VALUES (9001)");
	$node->wait_for_replay_catchup($standby);
	like($standby->safe_psql('postgres', $seen), qr/9000.*UPDATE: id\[integer\]:1 v\[text\]:'xyzxyz.*DELETE: id\[integer\]:2.*9001/s, 'on a standby');
	$standby->promote;
	$standby->safe_psql('postgres', 'UPDATE z SET v = 13');
	like($standby->safe_psql('postgres', $seen), qr/UPDATE.*'13'/, '... and promoted');
	no_crash($standby);
	$standby->stop;
}
sound($node, '', qw(z zundo.undo_log));
no_crash($node);
$node->stop;
done_testing();
