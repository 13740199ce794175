# pg_rewind takes a former primary back to the server that was promoted in its
# place, undo included: also where the former primary has cut off the file of
# zundo.undo_log since, and has made it long again.
# Rules: UNDO-70.
use strict;
use warnings;
use File::Copy;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $old = zundo_node('old', "wal_log_hints = on\nmax_prepared_transactions = 5\nmax_connections = 60\ncheckpoint_timeout = 1h\n", allows_streaming => 1);
sql(
	q{CREATE EXTENSION zundo; CREATE TABLE t (id int PRIMARY KEY, pad text) USING zheap; CREATE TABLE few (id int) USING zheap;
	INSERT INTO t SELECT g, (SELECT string_agg(md5((10 * g + i)::text), '') FROM generate_series(1, 10) i) FROM generate_series(1, 20000) g});
my $size = "SELECT pg_relation_size('zundo.undo_log')";
my $rows = 'SELECT count(*), sum(id), md5(string_agg(md5(pad), NULL ORDER BY id)) FROM t';
my $expected = sql($rows);

# 1. Undo that both servers need: that of a prepared transaction. The checkpoint is the
# last one that both have.
sql(q{BEGIN; UPDATE t SET pad = reverse(pad); PREPARE TRANSACTION 'p'});
my $new = standby_of($old);
sql('CHECKPOINT');
$old->wait_for_catchup($new, 'replay', $old->lsn('insert'));
my $before = sql($size);
cmp_ok($before, '>', 12 * 64 * 8192, 'much undo is kept');
$new->promote;
$new->safe_psql('postgres', 'CHECKPOINT');
is($new->safe_psql('postgres', $rows), $expected, 'promoted: the rows of before');

# 2. The former primary ends the transaction, gives its undo back, and takes the space
# again: many sessions take an extent each and write to its first page only.
sql(q{COMMIT PREPARED 'p'});
ok($old->poll_query_until('postgres', "SELECT zundo.discard() IS NOT NULL AND ($size) < 9 * 64 * 8192"), 'the file is cut off');
my @sessions;
while (sql($size) < $before && @sessions < 40)
{
	push @sessions, session($old);
	ask($sessions[-1], 'BEGIN', 'INSERT INTO few VALUES (1)');
}
cmp_ok(sql($size), '>=', $before, 'and has grown again');
$_->quit for @sessions;
$old->stop;

# 3. It becomes a standby of the new primary.
my $conf = $old->data_dir . '/postgresql.conf';
my $kept = $old->basedir . '/postgresql.conf';
copy($conf, $kept) or die $!;
command_ok([ 'pg_rewind', '--no-sync', '--target-pgdata', $old->data_dir, '--source-server', $new->connstr('postgres') ], 'pg_rewind');
copy($kept, $conf) or die $!;
$old->enable_streaming($new);
$old->start;
$new->wait_for_catchup($old, 'replay', $new->lsn('insert'));
is($old->safe_psql('postgres', $rows), $expected, 'the standby reads the undo of the prepared transaction');
is($old->safe_psql('postgres', 'SELECT count(*) FROM few'), '0', 'and has lost its own changes');
$new->stop;
$old->promote;
$old->safe_psql('postgres', q{ROLLBACK PREPARED 'p'});
ok($old->poll_query_until('postgres', 'SELECT zundo.discard() IS NOT NULL AND count(*) = 0 FROM zundo.stat_rollback'), 'promoted: the prepared transaction is rolled back');
is($old->safe_psql('postgres', $rows), $expected, 'promoted: all rows are there');
sound($old, 'promoted', qw(t few zundo.undo_log));
no_crash($_) for $old, $new;
done_testing();
