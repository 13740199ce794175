# pg_upgrade: fails early if the new cluster does not preload zundo; otherwise
# it transfers tables with large values, undo, the extension's own schema and,
# from 17 on, logical replication slots, for which all WAL must have been decoded.
# With unique zbtree indexes: also by link and, if the server can, by swap.
# Rules: DECODE-2.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $slots = server_major() >= 17;
my $conf = $slots ? "wal_level = logical\n" : '';
my $old = zundo_node('old', $conf);
# a type with an operator class that an extension has added
my ($type, $mirror, $key) = server_has('citext')
  ? ('citext', "CREATE EXTENSION citext; SELECT zundo.mirror_opclass('citext_ops');", 'TEXT 2000')
  : ('text', '', 'Text 2000');
$old->safe_psql('postgres', qq{
	CREATE EXTENSION zundo;
	CREATE ROLE watcher;
	GRANT SELECT ON zundo.stat_rollback TO watcher;
	CREATE TABLE t (id int PRIMARY KEY, n int, v text) USING zheap;
	INSERT INTO t SELECT g, 0, repeat('x', 100) FROM generate_series(1, 3000) g;
	$mirror
	CREATE TABLE indexed (n int, t $type, name name) USING zheap;
	INSERT INTO indexed SELECT g, 'Text ' || g, 'name ' || g FROM generate_series(1, 3000) g;
	CREATE INDEX indexed_n ON indexed USING zbtree (n DESC, name) INCLUDE (t);
	CREATE INDEX indexed_t ON indexed USING zbtree (t);
	CREATE TABLE large (id int PRIMARY KEY, v text) USING zheap;
	ALTER TABLE large ALTER v SET STORAGE EXTERNAL;
	INSERT INTO large SELECT g, repeat(md5(g::text), 300) FROM generate_series(1, 100) g;
	UPDATE large SET v = repeat(md5(id || 'new'), 300) WHERE id <= 50;
	BEGIN; DELETE FROM large; ROLLBACK;
	BEGIN; UPDATE t SET n = 1; ROLLBACK});
# unique, from 18 on, with entries of old keys, and a foreign key to it
my $unique = server_major() >= 18;
$old->safe_psql('postgres', q{CREATE TABLE keyed (id int, k int) USING zheap; CREATE UNIQUE INDEX keyed_k ON keyed USING zbtree (k); INSERT INTO keyed SELECT g, g FROM generate_series(1, 100) g;
	CREATE TABLE primary_key (id int, k int PRIMARY KEY WITH (access_method = zbtree), u int, CONSTRAINT u UNIQUE (u) INCLUDE (id) WITH (access_method = zbtree)) USING zheap;
	CREATE UNIQUE INDEX using_i ON primary_key USING zbtree (id) INCLUDE (k); ALTER TABLE primary_key ADD UNIQUE USING INDEX using_i, ALTER id SET NOT NULL;
	ALTER TABLE primary_key ALTER k TYPE bigint;
	INSERT INTO primary_key SELECT g, g, g FROM generate_series(1, 100) g; UPDATE primary_key SET k = k + 1000, u = -u; UPDATE primary_key SET k = k - 1000 WHERE id % 2 = 0;
	CREATE TABLE parted (k int PRIMARY KEY WITH (access_method = zbtree)) PARTITION BY LIST (k);
	CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1) USING zheap; ALTER TABLE parted SET ACCESS METHOD heap; DROP TABLE parted_1;
	CREATE TABLE referring (k int REFERENCES keyed (k) ON UPDATE CASCADE) USING zheap; INSERT INTO referring SELECT k FROM keyed WHERE k < 10;
	UPDATE keyed SET k = k + 1000; UPDATE keyed SET k = k - 1000 WHERE id % 2 = 0; UPDATE keyed SET k = id + 1 WHERE id = 4}) if $unique;
# a conversion that has been ended, before and after the exchange
$old->safe_psql('postgres', qq{CREATE TABLE $_ (id int PRIMARY KEY, v text) USING heap; INSERT INTO $_ SELECT g, repeat(md5(g::text), 100) FROM generate_series(1, 100) g}) for 'half', 'whole';
$old->psql('postgres', qq{SET zundo.fault = 'convert-committed:error:4'; CALL zundo.convert('half', 'zheap')});
$old->psql('postgres', qq{SET zundo.fault = 'convert-committed:error:7'; CALL zundo.convert('whole', 'zheap')});
is($old->safe_psql('postgres', 'SELECT relation, phase FROM zundo.conversions ORDER BY 1'), "half|copying\nwhole|dropping", 'two conversions are left');
my $objects = q{SELECT (SELECT count(*) FROM pg_opclass c, am WHERE opcmethod = am.oid), (SELECT count(*) FROM pg_amop, am WHERE amopmethod = am.oid),
	(SELECT count(*) FROM pg_amproc p JOIN pg_opfamily f ON f.oid = p.amprocfamily, am WHERE opfmethod = am.oid),
	(SELECT count(*) FROM pg_depend WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e')};
$objects = "WITH am AS (SELECT oid FROM pg_am WHERE amname = 'zbtree') $objects";
my $before = $old->safe_psql('postgres', $objects);
if ($slots)
{
	# the undo worker may still be rolling back after the last change was decoded: its
	# records need no decoding
	$old->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('s', 'test_decoding'); UPDATE t SET v = 'decoded' WHERE id < 10;
		BEGIN; DELETE FROM t; ROLLBACK});
	is($old->safe_psql('postgres', q{SELECT count(*) FROM pg_logical_slot_get_changes('s', NULL, NULL) WHERE data LIKE 'table public.t: UPDATE%'}), 9, 'decoded before the upgrade');
}
$old->stop;
my $new = PostgreSQL::Test::Cluster->new('new');
$new->init;
my $dir = $new->data_dir . '/..';
chdir $dir or die;
my @upgrade = ('pg_upgrade', '--no-sync', '-d', $old->data_dir, '-D', $new->data_dir, '-b', $old->config_data('--bindir'), '-B', $new->config_data('--bindir'),
	'-s', $new->host, '-p', $old->port, '-P', $new->port);

isnt((IPC::Run::run([ @upgrade, '--check' ], '>', \my $out, '2>', \my $err)), 1, 'pg_upgrade --check fails without the preload');
my ($list) = ($out . $err) =~ m{(\S+loadable_libraries\.txt)};
ok(defined $list, 'at the loadable libraries') or diag($out . $err);
like(slurp_file($list), qr/zundo must be loaded via "shared_preload_libraries".*Add "zundo" to "shared_preload_libraries" of the new cluster/s, 'it says what is to be done') if defined $list;

$new->append_conf('postgresql.conf', "shared_preload_libraries = 'zundo'\nautovacuum = off\n");
$new->append_conf('postgresql.conf', $conf);
command_ok([ @upgrade, '--check' ], 'pg_upgrade --check passes with the preload');
command_ok(\@upgrade, 'pg_upgrade');
$new->start;
is($new->safe_psql('postgres', q{SELECT sum(n), count(*) FROM t; UPDATE t SET n = 2; SELECT sum(n) FROM t}), "0|3000\n6000", 'the rows, without those rolled back');
is($new->safe_psql('postgres', q{SELECT count(*) FILTER (WHERE v = repeat(md5(id || CASE WHEN id <= 50 THEN 'new' ELSE '' END), 300)) FROM large;
	UPDATE large SET v = 'x' || v; SELECT count(*) FILTER (WHERE length(v) = 9601) FROM large}), "100\n100", 'large values');
is($new->safe_psql('postgres', q{SELECT count(*) FROM pg_logical_slot_get_changes('s', NULL, NULL) WHERE data LIKE 'table public.t: UPDATE%'}), 3000, 'the logical slot') if $slots;
is($new->safe_psql('postgres', $objects), $before, 'the operator classes of zbtree');
is($new->safe_psql('postgres', q{UPDATE half SET v = v || 'x'; CALL zundo.convert_cleanup('half'); CALL zundo.convert_cleanup('whole'); CALL zundo.convert('half', 'zheap'); CALL zundo.convert('whole', 'heap');
	SELECT count(*), sum(length(v)) FROM half; SELECT count(*), sum(length(v)) FROM whole; SELECT count(*) FROM zundo.conversions}), "100|320100\n100|320000\n0", 'conversions that were left');
like($new->safe_psql('postgres', qq{SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT name FROM indexed WHERE n = 77 AND name > 'a';
	SELECT n FROM indexed WHERE t = '$key'; EXPLAIN (COSTS OFF) SELECT n FROM indexed WHERE t = '$key'}),
	qr/^name 77\n2000\nIndex Scan using indexed_t/, 'zbtree indexes');
is($new->safe_psql('postgres', q{SELECT e.extname FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid WHERE d.deptype = 'e' AND d.objid = 'zundo'::regnamespace}),
	'zundo', 'the schema is a part of the extension');
is($new->safe_psql('postgres', q{SELECT has_table_privilege('watcher', 'zundo.stat_rollback', 'SELECT'), has_schema_privilege('watcher', 'zundo', 'USAGE')}), 't|t', 'with its privileges');
if ($unique)
{
	my ($rc, $out, $err) = $new->psql('postgres', 'INSERT INTO keyed VALUES (0, 5)');
	like($err, qr/duplicate key value violates unique constraint "keyed_k"/, 'the unique index is unique');
	is($new->safe_psql('postgres', q{INSERT INTO keyed VALUES (0, 4); INSERT INTO keyed VALUES (0, 5) ON CONFLICT (k) DO UPDATE SET k = 77 RETURNING id; SELECT string_agg(k::text, ' ' ORDER BY k) FROM referring;
		SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE c.relname = 'keyed_k'; SELECT count(*) FROM zundo.check_index('keyed_k')}),
		"4\n2 6 8 77 1001 1003 1005 1007 1009\nzbtree\n0", 'the foreign key follows it');
}
SKIP:
{
	skip 'the server lacks citext of contrib', 1 if $type eq 'text';
	is($new->safe_psql('postgres', q{SELECT opcname FROM pg_opclass WHERE opcname = 'citext_ops' AND opcmethod = (SELECT oid FROM pg_am WHERE amname = 'zbtree')}), 'citext_ops', 'a class of another extension');
}
sound($new, 'upgraded', qw(t indexed large zundo.undo_log));
no_crash($new);
$new->stop;

# Constraints with zbtree indexes that have entries of old keys: by copy above, then again
# by link and by swap. With these files, btree indexes would return rows twice.
my $from = $new;
foreach my $mode ($unique ? qw(copy link swap) : ())
{
	if ($mode ne 'copy')
	{
		$new = PostgreSQL::Test::Cluster->new($mode);
		$new->init;
		$new->append_conf('postgresql.conf', "shared_preload_libraries = 'zundo'\nautovacuum = off\n$conf");
		command_ok([ 'pg_upgrade', '--no-sync', "--$mode", '-d', $from->data_dir, '-D', $new->data_dir, '-b', $old->config_data('--bindir'), '-B', $new->config_data('--bindir'),
			'-s', $new->host, '-p', $from->port, '-P', $new->port ], "pg_upgrade --$mode");
		$from = $new;
	}
	$new->start;
	is($new->safe_psql('postgres', q{SET enable_seqscan = off; SELECT relname, amname, reloptions FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE relname IN ('parted_pkey', 'primary_key_pkey', 'u', 'using_i') ORDER BY 1;
		SELECT count(*), sum(id) FROM primary_key WHERE k > 0; SELECT count(*), sum(id) FROM primary_key WHERE u < 1000;
		SELECT count(*) FROM (SELECT zundo.check_index('primary_key_pkey') UNION ALL SELECT zundo.check_index('u') UNION ALL SELECT zundo.check_index('using_i'));
		INSERT INTO primary_key VALUES (2, 2, 2) ON CONFLICT (k) DO UPDATE SET u = primary_key.u RETURNING id}),
		"parted_pkey|zbtree|{access_method=zbtree}\nprimary_key_pkey|zbtree|{access_method=zbtree}\nu|zbtree|{access_method=zbtree}\nusing_i|zbtree|{access_method=zbtree}\n100|5050\n100|5050\n0\n2", "$mode: the constraints have zbtree indexes");
	$new->safe_psql('postgres', q{SELECT pg_drop_replication_slot('s')}) if $mode eq 'copy';
	no_crash($new);
	$new->stop;
}
done_testing();
