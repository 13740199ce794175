# Workers are started whenever there is work for them, and can do it with any
# settings of the server.
# Rules: REQUEST-2, REQUEST-3, WORKER-1.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('workerlife');
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int PRIMARY KEY, n int) USING zheap;
	INSERT INTO t SELECT g, 0 FROM generate_series(1, 1000) g;
});
my $worker = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'zundo undo worker'};

# A writer finds a worker running, waits before it writes, and the worker exits meanwhile.
my ($locker, $writer) = map { $node->background_psql('postgres', on_error_stop => 1) } 1 .. 2;
$locker->query_safe('BEGIN; SELECT n FROM t WHERE id = 1 FOR SHARE');
$writer->query_until(qr/started/, "\\echo started\nUPDATE t SET n = n + 1;\n\\echo finished\n");
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE NOT granted}), 'the writer waits');
ok($node->poll_query_until('postgres', "$worker", '0'), 'the worker leaves');
$locker->query_safe('COMMIT');
$writer->query_until(qr/finished/, "\n");
my $next = q{SELECT pg_snapshot_xmax(pg_current_snapshot())};
my $before = $node->safe_psql('postgres', $next);
ok($node->poll_query_until('postgres', 'SELECT zundo.undo_bytes_in_use() = 0'), 'its undo is discarded nevertheless');
is($node->safe_psql('postgres', $next), $before, 'no transaction id was needed for that (WORKER-1)');
$_->quit for $locker, $writer;

# Settings that are meant for clients: a rollback takes longer than transaction_timeout
# and the like allow.
if ($node->pg_version >= 17)
{
	local $ENV{PGOPTIONS} = '-c transaction_timeout=0';
	ok($node->poll_query_until('postgres', "$worker", '0'), 'the worker leaves again');
	$node->safe_psql('postgres', q{ALTER DATABASE postgres SET transaction_timeout = '10ms'});
	$node->safe_psql('postgres', q{
		SET zundo.eager_rollback_pages = 0;
		BEGIN; INSERT INTO t SELECT g, 0 FROM generate_series(1001, 200000) g; UPDATE t SET n = n + 1; ROLLBACK});
	ok($node->poll_query_until('postgres', 'SELECT zundo.undo_bytes_in_use() = 0'), 'a long rollback is completed');
	unlike(slurp_file($node->logfile), qr/due to transaction timeout/, '... by one worker');
	$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET transaction_timeout');
}

# The launcher does not wait for others' serializable transactions.
$node->append_conf('postgresql.conf', <<'C');
default_transaction_isolation = serializable
default_transaction_read_only = on
default_transaction_deferrable = on
C
local $ENV{PGOPTIONS} = '-c default_transaction_isolation=read\\ committed -c default_transaction_read_only=off';
$node->restart;
$node->safe_psql('postgres', 'CREATE DATABASE other');
ok($node->poll_query_until('postgres', "$worker", '0'), 'no worker');
my $other = $node->background_psql('other', on_error_stop => 1);
$other->query_safe('BEGIN ISOLATION LEVEL SERIALIZABLE NOT DEFERRABLE; CREATE TABLE x (); SELECT count(*) FROM x');
$node->safe_psql('postgres', 'UPDATE t SET n = n + 1');
ok($node->poll_query_until('postgres', 'SELECT zundo.undo_bytes_in_use() = 0'),
	'a worker is started beside a serializable transaction');
$other->quit;
sound($node, '', 't');
no_crash($node);
$node->stop;
done_testing();
