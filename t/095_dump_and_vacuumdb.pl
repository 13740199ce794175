# What an administrator does around the tables: dumps in all formats beside
# writers, restored by several jobs, also constraints with zbtree indexes; vacuumdb; autovacuum's lines in the log.
use strict;
use warnings;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('around', "autovacuum_naptime = 1\nlog_autovacuum_min_duration = 0\n");
my $conn = $node->connstr('source');
my $heap = server_major() >= 17 ? 'USING heap' : '';
$node->safe_psql('postgres', 'CREATE DATABASE source');
$node->safe_psql('source', q{
	CREATE EXTENSION zundo;
	SET default_table_access_method = zheap;
	CREATE TABLE parts (id int, k int, t text, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
	CREATE TABLE part_z PARTITION OF parts FOR VALUES IN (0);
	CREATE TABLE part_h PARTITION OF parts FOR VALUES IN (1) USING heap;
	INSERT INTO parts SELECT g, g % 2, repeat(md5(g::text), g % 200) FROM generate_series(1, 2000) g;
	CREATE TABLE account (id int PRIMARY KEY WITH (access_method = zbtree), balance int, twice int GENERATED ALWAYS AS (balance * 2) STORED);
	INSERT INTO account SELECT g, 100 FROM generate_series(1, 1000) g;
	CREATE TABLE history (n int GENERATED ALWAYS AS IDENTITY, account int REFERENCES account, delta int);
	CREATE TABLE split (a int, b int, UNIQUE (a) WITH (fillfactor = 90, access_method = zbtree)) PARTITION BY RANGE (a);
	CREATE TABLE split_1 PARTITION OF split FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (a);
	CREATE TABLE split_11 PARTITION OF split_1 FOR VALUES FROM (0) TO (10);
	ALTER TABLE split_11 ADD PRIMARY KEY (a) WITH (access_method = zbtree);
	-- access methods of partitioned tables do not count, neither with partitions nor without
	CREATE TABLE split_2 PARTITION OF split FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (a) } . $heap . q{;
	CREATE TABLE split_21 PARTITION OF split_2 FOR VALUES FROM (10) TO (20) USING zheap;
	CREATE TABLE split_3 PARTITION OF split FOR VALUES FROM (20) TO (30) PARTITION BY RANGE (a) } . $heap . q{;
	CREATE TABLE split_4 PARTITION OF split FOR VALUES FROM (30) TO (40) PARTITION BY RANGE (a);
	CREATE MATERIALIZED VIEW parts_seen AS SELECT k, count(*) FROM parts GROUP BY k;
	CREATE INDEX account_balance ON account USING zbtree (balance) WHERE balance > 0;
	CREATE UNLOGGED TABLE lasting AS SELECT 1 AS a;
	SET zundo.default_index = zbtree;
	CREATE TABLE chosen (id int PRIMARY KEY, a int UNIQUE, k int NOT NULL);
	CREATE UNIQUE INDEX chosen_k ON chosen (k);
	ALTER TABLE chosen ADD CONSTRAINT chosen_k UNIQUE USING INDEX chosen_k;
	ALTER TABLE chosen ALTER a TYPE bigint;
	RESET zundo.default_index;
	CREATE VIEW sizes AS SELECT name, am FROM zundo.table_sizes;
	GRANT SELECT ON zundo.stat_rollback TO PUBLIC});

# Money is moved between accounts, and each move writes a line: in a dump that saw half of
# a move the sums would differ.
my $script = PostgreSQL::Test::Utils::tempdir() . '/move.sql';
append_to_file($script, q{
	\set one random(1, 1000)
	\set other random(1, 1000)
	\set delta random(-50, 50)
	BEGIN;
	UPDATE account SET balance = balance - :delta WHERE id = :one;
	UPDATE account SET balance = balance + :delta WHERE id = :other;
	INSERT INTO history (account, delta) VALUES (:one, - :delta), (:other, :delta);
	UPDATE parts SET k = 1 - k, t = t || 'x' WHERE id = :one;
	\if :delta % 4 = 0
	ROLLBACK;
	\else
	COMMIT;
	\endif
});
my ($bench_out, $bench_err) = ('', '');
my $bench = IPC::Run::start([ 'pgbench', '-n', '-c', '3', '-T', '600', '--max-tries', '10', '-f', $script, $conn ],
	'<', \undef, '>', \$bench_out, '2>', \$bench_err);
$node->poll_query_until('source', 'SELECT count(*) > 100 FROM history') or die 'no load';

my $dir = $node->backup_dir;
mkdir $dir;
my %how = (plain => ['-Fp'], custom => ['-Fc'], directory => [ '-Fd', '-j4' ], tar => ['-Ft']);
foreach my $format (sort keys %how)
{
	$node->command_ok([ 'pg_dump', @{ $how{$format} }, '-f', "$dir/$format", '-d', $conn ], "pg_dump: $format");
}
# a dump does not write the access method of a constraint's index, but its parameters
my $constraints = q{SELECT relname, amname, coalesce('access_method=zbtree' = ANY (reloptions), false) FROM pg_class c JOIN pg_am m ON m.oid = c.relam
	WHERE relname IN ('account_pkey', 'chosen_a_key', 'chosen_k', 'chosen_pkey', 'split_a_key', 'split_1_a_key', 'split_11_a_key', 'split_11_pkey', 'split_2_a_key', 'split_21_a_key', 'split_3_a_key', 'split_4_a_key') ORDER BY relname COLLATE "C"};
my $method = server_major() >= 18 ? 'zbtree|t' : 'btree|f';
my @indexes = qw(account_pkey chosen_a_key chosen_k chosen_pkey split_11_a_key split_11_pkey split_1_a_key split_21_a_key split_2_a_key split_3_a_key split_4_a_key split_a_key);
my $before = $node->safe_psql('source', 'SELECT count(*) FROM history');
ok($node->poll_query_until('source', "SELECT count(*) > $before FROM history"), 'the writers are still running');
# not INT, which is ignored by what a shell has put into the background
$bench->signal('TERM');
$bench->finish;
foreach my $format (sort keys %how)
{
	my $to = $node->connstr('copy');
	$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE template0');
	if ($format eq 'plain') { $node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $to, '-f', "$dir/plain" ], 'psql'); }
	else { $node->command_ok([ 'pg_restore', '-e', ($format eq 'tar' ? () : '-j4'), '-d', $to, "$dir/$format" ], "pg_restore: $format"); }
	is($node->safe_psql('copy', q{SELECT sum(balance), count(*) FROM account;
		SELECT count(*) FROM account a WHERE balance <> 100 + (SELECT coalesce(sum(delta), 0) FROM history h WHERE h.account = a.id);
		SELECT count(*), count(DISTINCT id) FROM parts;
		SELECT count(*) FROM history LEFT JOIN account a ON a.id = account WHERE a.id IS NULL;
		SELECT string_agg(relname || ' ' || amname, ', ' ORDER BY relname) FROM pg_class c JOIN pg_am m ON m.oid = c.relam
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'm');
		SELECT has_table_privilege('pg_read_all_stats', 'zundo.stat_rollback', 'SELECT')}),
		"100000|1000\n0\n2000|2000\n0\naccount zheap, chosen zheap, history zheap, lasting zheap, part_h heap, part_z zheap, parts_seen zheap, split_11 zheap, split_21 zheap\nt",
		"what was restored: $format");
	is($node->safe_psql('copy', $constraints), join("\n", map { "$_|$method" } @indexes), "indexes of constraints: $format");
	is($node->safe_psql('copy', "SELECT zundo.check(c::regclass) FROM unnest('{account,history,part_z,parts_seen,zundo.undo_log}'::text[]) c"), '',
		"zundo.check: $format");
	$node->safe_psql('postgres', 'DROP DATABASE copy');
}

# heap tables: the zbtree index of no constraint fails
my $to = $node->connstr('copy');
$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE template0');
IPC::Run::run([ 'pg_restore', '--no-table-access-method', '-d', $to, "$dir/custom" ], '2>', \my $err);
is(join("\n", $err =~ /error: could not execute query: (.*)/g), 'ERROR:  index "account_balance" cannot use access method "zbtree"', 'errors');
is($node->safe_psql('copy', $constraints), join("\n", map { "$_|btree|f" } @indexes), 'indexes of constraints');
$node->safe_psql('postgres', 'DROP DATABASE copy');

# All tables of a database, as the tools name them.
$node->command_ok([ 'vacuumdb', '--full', '-d', $conn ], 'vacuumdb --full');
$node->command_ok([ 'vacuumdb', '--analyze', '-j2', '-d', $conn ], 'vacuumdb --analyze');
$node->command_ok([ 'reindexdb', '--concurrently', '-d', $conn ], 'reindexdb');
$node->command_ok([ 'clusterdb', '-d', $conn ], 'clusterdb');

# The line that autovacuum logs for a zheap table begins like that for a heap table.
$node->safe_psql('source', 'CREATE TABLE z (id int PRIMARY KEY) USING zheap; INSERT INTO z SELECT generate_series(1, 5000); DELETE FROM z WHERE id > 1000');
my $offset = -s $node->logfile;
$node->append_conf('postgresql.conf', 'autovacuum = on');
$node->reload;
$node->poll_query_until('source', "SELECT autovacuum_count > 0 AND autoanalyze_count > 0 AND n_dead_tup = 0 FROM pg_stat_user_tables WHERE relname = 'z'");
like(slurp_file($node->logfile, $offset), qr/automatic vacuum of table "source\.public\.z": index scans: 1/, 'autovacuum in the log');
is($node->safe_psql('source', "SELECT reltuples, (SELECT count(*) FROM z) FROM pg_class WHERE relname = 'z'"), '1000|1000', 'and it was done');
is($node->safe_psql('source', "SELECT zundo.check(c::regclass) FROM unnest('{account,history,part_z,parts_seen,z,zundo.undo_log}'::text[]) c"), '', 'zundo.check');
no_crash($node);
$node->stop;
done_testing();
