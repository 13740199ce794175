# The file of the undo log grows and shrinks across segment boundaries while
# sessions have its segments open.
# Rules: UNDO-4, UNDO-13, UNDO-5.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('undofile', <<'C', no_data_checksums => 1);
zundo.undo_compression = none
zundo.fault = 'worker-cycle:error'
C
if ($node->safe_psql('postgres', 'SHOW segment_size') ne '1GB')
{
	$node->stop;
	plan skip_all => 'segments are not of 1 GB';
}
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int, filler text) USING zheap;
	INSERT INTO t SELECT g, repeat('0', 1500) FROM generate_series(1, 6000) g;
});
my $path = $node->data_dir . '/' . $node->safe_psql('postgres', q{SELECT pg_relation_filepath('zundo.undo_log')});
$node->stop;

# A second segment: 2100 extents, of which only the first few are in use; the file has holes.
my $extents = 2100;
my $blocks = 11 * 4 + $extents * 64;
my ($meta, $map) = (read_block($path, 0), read_block($path, map_block(0)));
truncate($path, 1 << 30) or die $!;
append_to_file("$path.1", '');
truncate("$path.1", ($blocks - 131072) * 8192) or die $!;
substr($meta, 48 + 16, 4) = pack('L<', $extents);
write_twins($path, 0, $meta);
# the map pages of the other groups
substr($map, 48, 8000) = "\0" x 8000;
write_twins($path, map_block($_), $map) for (1 .. 10);

# One session opens both segments, and is in the middle of a statement when the tail is cut off.
$node->start;
my $size = q{SELECT pg_relation_size('zundo.undo_log') / 8192};
is($node->safe_psql('postgres', $size), $blocks, 'the file has two segments');
my $gate = $node->background_psql('postgres', on_error_stop => 1);
$gate->query_safe('SELECT pg_advisory_lock(1)');
my $writer = $node->background_psql('postgres', on_error_stop => 1);
$writer->query_safe('BEGIN; EXPLAIN SELECT * FROM zundo.undo_log');
$writer->query_until(
	qr/started/, q{
\echo started
UPDATE t SET filler = CASE WHEN id = 50 THEN pg_advisory_xact_lock(1)::text ELSE '' END || repeat(md5(random()::text || id), 45);
\echo finished
});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}),
	'the writer waits');
$node->append_conf('postgresql.conf', q{zundo.fault = ''});
$node->reload;
ok($node->poll_query_until('postgres', q{SELECT pg_relation_size('zundo.undo_log') < 100000000}), 'the worker cuts the tail off');
cmp_ok($node->safe_psql('postgres', $size), '<', 1000, '... to a few extents');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
$writer->query_until(qr/finished/, "\n");
cmp_ok($node->safe_psql('postgres', $size), '>=',
	$node->safe_psql('postgres', 'SELECT 2 + 64 * sum(extents) FROM zundo.stat_undo'), 'the file has all extents');
# The update has filled several extents. Its records are found one after the other only if none of them begins in one
# extent and ends in another (UNDO-5), and if the scan ends at the insert position, behind which there is none (UNDO-13).
cmp_ok($node->safe_psql('postgres', 'SELECT max(extents) FROM zundo.stat_undo'), '>', 5, 'a log of several extents');
is($node->safe_psql('postgres', q{SELECT * FROM zundo.check('zundo.undo_log')}), '', 'zundo.check of it');
$writer->query_safe('COMMIT');
$gate->quit;
$writer->quit;
is($node->safe_psql('postgres', q{SELECT * FROM zundo.check('zundo.undo_log')}), '', 'zundo.check of the undo log');
$node->restart;
is($node->safe_psql('postgres', 'SELECT count(*), sum(id) FROM t'), '6000|18003000', 'the rows after a restart');
$node->safe_psql('postgres', 'UPDATE t SET id = id + 1');
is($node->safe_psql('postgres', 'SELECT count(*), sum(id) FROM t'), '6000|18009000', 'and after another update');
sound($node, '', qw(t zundo.undo_log));
crash($node);
is($node->safe_psql('postgres', 'SELECT count(*), sum(id) FROM t'), '6000|18009000', 'and after a crash');
no_crash($node, qr/could not read block/);
$node->stop;
done_testing();
