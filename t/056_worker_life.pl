# Workers are started whenever there is work for them, and can do it with any
# settings of the server.
# Rules: REQUEST-2.
# long
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
is($node->safe_psql('postgres', $next), $before, 'no transaction id was needed for that');
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

# Commands that need a database without sessions end its worker, by its autovacuum flag, and from 19 on by
# BGWORKER_INTERRUPTIBLE as well. The next worker continues.
my ($name, $log) = ('busy', -s $node->logfile);
$node->append_conf('postgresql.conf', 'log_min_messages = debug1');
$node->reload;
$node->safe_psql('postgres', q{SET allow_in_place_tablespaces = on; CREATE TABLESPACE aside LOCATION ''});
$node->safe_psql('postgres', q{CREATE DATABASE busy});
$node->safe_psql('busy', q{CREATE EXTENSION zundo; CREATE TABLE t (id int PRIMARY KEY, n int) USING zheap; INSERT INTO t SELECT g, 0 FROM generate_series(1, 1000) g;
	ALTER DATABASE busy SET zundo.eager_rollback_pages = 0});
for my $command ('ALTER DATABASE busy RENAME TO renamed', 'CREATE DATABASE copy TEMPLATE renamed', 'ALTER DATABASE renamed SET TABLESPACE aside', 'DROP DATABASE renamed')
{
	# a worker that never completes the rollback, for it keeps the setting with which it was started
	my $busy = "FROM pg_stat_activity WHERE datname = '$name' AND backend_type = 'zundo undo worker'";
	$node->poll_query_until('postgres', "SELECT count(*) = 0 $busy") or die 'a worker stays';
	$node->safe_psql('postgres', "ALTER DATABASE $name SET zundo.fault = 'worker-cycle:error'");
	$node->safe_psql($name, 'UPDATE t SET n = 1 WHERE id = 1; BEGIN; UPDATE t SET n = n + 1; ROLLBACK');
	ok($node->poll_query_until('postgres', "SELECT count(*) = 1 $busy"), 'a worker is connected');
	my $pid = $node->safe_psql('postgres', "SELECT pid $busy");
	$node->safe_psql('postgres', "ALTER DATABASE $name RESET zundo.fault");
	my ($rc, $out, $err) = $node->psql('postgres', $command);
	is($err, '', $command);
	is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid"), 0, '... has ended the worker');
	$name = 'renamed';
	for my $database ($command =~ /DROP/ ? () : $command =~ /CREATE/ ? ('copy', $name) : $name)
	{
		ok($node->poll_query_until($database, 'SELECT zundo.undo_bytes_in_use() = 0'), "... and another one does its work in $database");
		is($node->safe_psql($database, 'SELECT count(*), sum(n) FROM t; SELECT * FROM zundo.check($$t$$)'), '1000|1', "... the rows of $database");
	}
}
my $ended = () = slurp_file($node->logfile, $log) =~ /termination requested for worker \(PID \d+\) on database/g;
cmp_ok($ended, server_major() >= 19 ? '>=' : '==', server_major() >= 19 ? 4 : 0, '... as a worker that the server may end, from 19 on');

# No slot for a worker: the launcher says so in the log, and undo is kept until there is one.
$node->append_conf('postgresql.conf', "max_worker_processes = 1\nmax_logical_replication_workers = 0\n");
$node->restart;
$log = -s $node->logfile;
$node->safe_psql('postgres', 'UPDATE t SET n = n + 1');
$node->wait_for_log(qr/WARNING:  no background worker slot is available for a zundo undo worker\n.*HINT:  Increase "max_worker_processes" \(currently 1\)/s, $log);
cmp_ok($node->safe_psql('postgres', 'SELECT zundo.undo_bytes_in_use()'), '>', 0, 'without a worker undo is kept');
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->restart;
ok($node->poll_query_until('postgres', 'SELECT zundo.undo_bytes_in_use() = 0'), 'it is discarded when a worker can start');

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
