# zundo.repair_undo rebuilds a lost meta page from the length of the file, so the
# undo log may have more extents afterwards than before. A standby replays the
# new number of extents at once. Otherwise its readers would take records in the
# extents that are new to it for discarded.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('limit', <<'C', allows_streaming => 1, no_data_checksums => 1);
max_worker_processes = 0
zundo.undo_compression = none
C
$node->safe_psql('postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int PRIMARY KEY, v int, pad text) USING zheap WITH (fillfactor = 50);
	INSERT INTO t SELECT g, 0, repeat('x', 600) FROM generate_series(1, 2000) g});
my $path = $node->data_dir . '/' . $node->safe_psql('postgres', q{SELECT pg_relation_filepath('zundo.undo_log')});
my $standby = standby_of($node, "max_standby_streaming_delay = -1\n");
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
# keeps what the standby knows of the undo log in shared memory
my $keeper = session($standby);
is(ask($keeper, 'SELECT sum(v) FROM t'), '0', 'the standby reads');

# The file has grown for extents that were never taken, as after a crash within that, and
# the meta page is lost.
$node->stop;
my $extents = (-s $path) / 8192;
write_block($path, $_, "\0" x 8192) for $extents .. $extents + 64 * 8 - 1;
write_block($path, 0, "\xa5" x 8192);
write_block($path, twin_block(0, 1), "\0" x 8192);
$node->start;
like($node->safe_psql('postgres', 'SELECT step FROM zundo.repair_undo(false)'), qr/meta page: both copies are lost; rebuilt/, 'repaired');
is($node->safe_psql('postgres', q{SELECT * FROM zundo.check('zundo.undo_log')}), '', 'zundo.check');
for my $how ('', 'dry_run => false')
{
	like(($standby->psql('postgres', "\\set VERBOSITY verbose\nSELECT * FROM zundo.repair_undo($how)"))[2],
		qr/55000: cannot repair the undo log during recovery/, "not on the standby: $how");
}

# Undo that both need goes to these extents.
my $old = session($node);
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
is(ask($old, 'SELECT sum(v) FROM t'), '0', 'an old snapshot on the primary');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
my $reader = session($standby);
ask($reader, 'BEGIN ISOLATION LEVEL REPEATABLE READ');
is(ask($reader, 'SELECT sum(v) FROM t'), '0', 'and one on the standby');
$node->safe_psql('postgres', q{UPDATE t SET v = v + 1, pad = repeat(chr(97 + id % 26), 600)}) for 1 .. 3;
my $far = $node->safe_psql('postgres', q{SELECT max(split_part(ptr, '.', 2)::int) FROM zundo.undo_records(NULL, NULL)});
cmp_ok($far, '>=', int($extents / 64), "undo is in extent $far of a file that had $extents blocks");
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is(ask($old, 'SELECT sum(v) FROM t'), '0', 'the old snapshot on the primary sees what it saw');
is(ask($reader, 'SELECT sum(v) FROM t'), '0', 'and that on the standby');
is($standby->safe_psql('postgres', 'SELECT sum(v) FROM t'), '6000', 'a new one sees the changes');
$_->quit for $old, $reader, $keeper;
no_crash($node);
no_crash($standby);
$_->stop for $standby, $node;
done_testing();
