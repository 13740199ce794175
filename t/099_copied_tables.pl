# Tools that copy or rearrange tables by SQL, on heap and on zheap with the same
# result: ranges of ctid under one exported snapshot beside writers (as
# pgcopydb), pg_dump by sections, partitions made like their parent, filled by
# batches, attached, detached and emptied again (as pg_partman).
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('source');
my @ams = qw(heap zheap);
for my $am (@ams)
{
	$node->safe_psql('postgres', "CREATE DATABASE $am");
	$node->safe_psql($am, qq{
		CREATE EXTENSION zundo;
		ALTER DATABASE $am SET default_table_access_method = $am});
	$node->safe_psql($am, q{
		CREATE TABLE t (id int PRIMARY KEY, k int NOT NULL, v text);
		CREATE INDEX t_k ON t (k);
		INSERT INTO t SELECT g, g % 10, repeat('v', g % 150) FROM generate_series(1, 5000) g;
		DELETE FROM t WHERE id % 7 = 0});
}
my $sum = q{SELECT count(*), sum(id), sum(k), md5(string_agg(v, ',' ORDER BY id)) FROM t};

# Copies by ranges of ctid, while rows are moved, changed in place, deleted and added.
my %copied;
for my $am (@ams)
{
	my $holder = $node->background_psql($am);
	my $snapshot = $holder->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT pg_export_snapshot()');
	my $before = $holder->query_safe($sum);
	my $pages = $holder->query_safe(q{SELECT pg_relation_size('t') / 8192});
	my $dir = $node->backup_dir . "/$am";
	mkdir $node->backup_dir;
	mkdir $dir;
	$node->command_ok([ 'pg_dump', "--snapshot=$snapshot", "--section=$_", '-t', 't', '-f', "$dir/$_", '-d', $node->connstr($am) ], "$am: pg_dump of $_")
		for qw(pre-data post-data);
	$node->safe_psql('postgres', "CREATE DATABASE to_$am TEMPLATE template0");
	$node->safe_psql("to_$am", 'CREATE EXTENSION zundo');
	$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr("to_$am"), '-f', "$dir/pre-data" ], "$am: the table");
	my $part = 0;
	for (my $from = 0; $from < $pages; $from += 10)
	{
		my $to = $from + 10 < $pages ? "AND ctid < '(" . ($from + 10) . ",0)'::tid" : '';
		$node->safe_psql($am, qq{
			UPDATE t SET v = v || repeat('w', 100) WHERE id % 5 = $part % 5;
			UPDATE t SET v = upper(v), k = k + 1 WHERE id % 3 = $part % 3;
			DELETE FROM t WHERE id % 11 = $part % 11;
			INSERT INTO t SELECT 10000 * ($part + 1) + g, 0, 'new' FROM generate_series(1, 50) g;
			BEGIN; UPDATE t SET k = -1; ROLLBACK}) if $part < 4;
		$node->safe_psql($am, qq{BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot';
			COPY (SELECT * FROM ONLY t WHERE ctid >= '($from,0)'::tid $to) TO '$dir/part$part'});
		$node->safe_psql("to_$am", "COPY t FROM '$dir/part$part'");
		$part++;
	}
	cmp_ok($part, '>', 3, "$am: several ranges");
	$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr("to_$am"), '-f', "$dir/post-data" ], "$am: its indexes");
	is($node->safe_psql("to_$am", $sum), $before, "$am: the copy is what the snapshot shows");
	is($holder->query_safe($sum), $before, "$am: which has not changed");
	$holder->quit;
	$copied{$am} = $before;
}
is($copied{zheap}, $copied{heap}, 'zheap and heap had the same rows');

# Partitions as pg_partman makes, fills and takes them apart.
my %parted;
for my $am (@ams)
{
	$node->safe_psql($am, q{
		CREATE TABLE whole (id int, at int NOT NULL DEFAULT 0 CHECK (at >= 0), v text, n int GENERATED ALWAYS AS (id * 2) STORED)
			PARTITION BY RANGE (at);
		CREATE TABLE template (id int, at int, v text, PRIMARY KEY (id));
		CREATE INDEX whole_at ON whole (at);
		CREATE TABLE whole_default (LIKE whole INCLUDING ALL);
		ALTER TABLE whole ATTACH PARTITION whole_default DEFAULT;
		INSERT INTO whole (id, at, v) SELECT g, g % 40, repeat('p', g % 100) FROM generate_series(1, 4000) g;
		CREATE PROCEDURE fill(lower int, batch int) LANGUAGE plpgsql AS $$
		DECLARE
			moved int;
			child text := 'whole_' || lower;
		BEGIN
			EXECUTE format('CREATE TABLE %I (LIKE whole INCLUDING ALL)', child);
			EXECUTE format('ALTER TABLE %I ADD CHECK (at >= %s AND at < %s)', child, lower, lower + 10);
			LOOP
				EXECUTE format('WITH moving AS (DELETE FROM whole_default WHERE ctid IN (SELECT ctid FROM whole_default
						WHERE at >= %s AND at < %s LIMIT %s FOR UPDATE) RETURNING id, at, v)
					INSERT INTO %I (id, at, v) SELECT * FROM moving', lower, lower + 10, batch, child);
				GET DIAGNOSTICS moved = ROW_COUNT;
				COMMIT;
				EXIT WHEN moved = 0;
			END LOOP;
			EXECUTE format('ALTER TABLE whole ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', child, lower, lower + 10);
		END $$});
	$node->safe_psql($am, "CALL fill($_, 300)") for 0, 10, 20, 30;
	my $look = q{SELECT tableoid::regclass, count(*), sum(id), sum(n), sum(at), sum(length(v)) FROM whole GROUP BY 1 ORDER BY 1};
	$parted{$am} = $node->safe_psql($am, $look);
	$parted{$am} .= "\n" . $node->safe_psql($am, qq{
		UPDATE whole SET at = at + 10 WHERE id % 9 = 0 AND at < 30;
		ALTER TABLE whole DETACH PARTITION whole_10;
		$look;
		SELECT count(*), sum(at) FROM whole_10;
		DROP TABLE whole_10});
	$node->safe_psql($am, 'ALTER TABLE whole DETACH PARTITION whole_20');
	$parted{$am} .= "\n" . $node->safe_psql($am, qq{
		BEGIN; WITH moving AS (DELETE FROM whole_20 RETURNING id, at, v) INSERT INTO whole (id, at, v) SELECT * FROM moving; ROLLBACK;
		WITH moving AS (DELETE FROM whole_20 RETURNING id, at, v) INSERT INTO whole (id, at, v) SELECT * FROM moving;
		DROP TABLE whole_20;
		VACUUM;
		$look});
	$node->safe_psql($am, 'ALTER TABLE whole DETACH PARTITION whole_default');
	$node->safe_psql($am, 'ALTER TABLE whole DETACH PARTITION whole_30 CONCURRENTLY');
	$parted{$am} .= "\n" . $node->safe_psql($am, "$look; SELECT count(*), sum(at) FROM whole_30");
	is($node->safe_psql($am, qq{SELECT DISTINCT amname FROM pg_class c JOIN pg_am a ON a.oid = relam
		WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace}), $am, "all tables are $am");
}
is($parted{zheap}, $parted{heap}, 'partitions: the same rows in the same partitions');
like($parted{zheap}, qr/^whole_0\|1000\|.*^whole_30\|1000\|/ms, 'partitions: all rows were moved');
is($node->safe_psql('zheap', q{SELECT f FROM pg_class c JOIN pg_am a ON a.oid = relam AND amname = 'zheap', zundo.check(c.oid) f}), '', 'zundo.check');
no_crash($node);
$node->stop;
done_testing();
