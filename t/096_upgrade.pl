# pg_upgrade: fails early where the new cluster does not preload zundo; else
# tables, undo and the extension's own schema are taken over.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $old = zundo_node('old');
$old->safe_psql('postgres', q{
	CREATE EXTENSION zundo;
	CREATE ROLE watcher;
	GRANT SELECT ON zundo.stat_rollback TO watcher;
	CREATE TABLE t (id int PRIMARY KEY, n int, v text) USING zheap;
	INSERT INTO t SELECT g, 0, repeat('x', 100) FROM generate_series(1, 3000) g;
	BEGIN; UPDATE t SET n = 1; ROLLBACK});
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
command_ok([ @upgrade, '--check' ], 'with the preload it passes');
command_ok(\@upgrade, 'pg_upgrade');
$new->start;
is($new->safe_psql('postgres', q{SELECT sum(n), count(*) FROM t; UPDATE t SET n = 2; SELECT sum(n) FROM t}), "0|3000\n6000", 'the rows, without those rolled back');
is($new->safe_psql('postgres', q{SELECT e.extname FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid WHERE d.deptype = 'e' AND d.objid = 'zundo'::regnamespace}),
	'zundo', 'the schema is a part of the extension');
is($new->safe_psql('postgres', q{SELECT has_table_privilege('watcher', 'zundo.stat_rollback', 'SELECT'), has_schema_privilege('watcher', 'zundo', 'USAGE')}), 't|t', 'with its privileges');
sound($new, 'upgraded', qw(t zundo.undo_log));
no_crash($new);
$new->stop;
done_testing();
