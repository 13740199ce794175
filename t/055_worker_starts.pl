# The first session of a database has a worker started if there may be something
# to roll back, and only then.
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('starts', <<'C');
log_min_messages = debug1
zundo.eager_rollback_pages = 0
C
$node->safe_psql('postgres', 'CREATE DATABASE d');
$node->safe_psql(
	'd', q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int PRIMARY KEY, n int) USING zheap;
	INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) g;
	UPDATE t SET n = n + 1;
});

# started: returns how many undo workers have been started for d so far.
my $oid = $node->safe_psql('d', 'SELECT oid FROM pg_database WHERE datname = current_database()');
sub started
{
	my $log = slurp_file($node->logfile);
	my $n = () = $log =~ /starting background worker process "zundo undo worker for database $oid"/g;
	return $n;
}

sub no_worker
{
	return $node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'zundo undo worker'});
}

# readers NAME ALLOWED: runs short sessions that only read; at most ALLOWED workers
# may be started for them.
sub readers
{
	my ($name, $allowed) = @_;
	my $before = started();
	for (1 .. 5)
	{
		is($node->safe_psql('d', 'SELECT sum(n) FROM t'), '100', "$name: a short session");
		select(undef, undef, undef, 0.4);
		no_worker();
	}
	cmp_ok(started() - $before, '<=', $allowed, "$name: workers started by five short sessions");
	return;
}

ok($node->poll_query_until('d', 'SELECT zundo.undo_bytes_in_use() = 0') && no_worker(), 'the worker leaves when it has given all undo back');
readers('after the worker has left', 0);
cmp_ok(started(), '>', 0, 'starts are found in the log');

# Sessions that begin to write at the same time ask for one worker, and do not get one
# each.
my @writers = map { $node->background_psql('d', on_error_stop => 1) } 1 .. 8;
my $begun = started();
$writers[ $_ - 1 ]->query_until(qr/sent/, "\\echo sent\nUPDATE t SET n = n WHERE id = $_;\n") for 1 .. 8;
$_->query_safe('SELECT 1') for @writers;
ok($node->poll_query_until('d', 'SELECT zundo.undo_bytes_in_use() = 0'), 'a worker gives their undo back');
$_->quit for @writers;
ok(no_worker(), 'and leaves');
is(started() - $begun, 1, 'one worker was started');
$node->restart;
# after its start, the launcher starts a worker for every database once
readers('after a restart', 2);
# a session that keeps its log longer than the worker stays
my $long = $node->background_psql('d', on_error_stop => 1);
$long->query_safe('UPDATE t SET n = n');
select(undef, undef, undef, 1);
ok(no_worker(), 'the worker does not wait for an idle session');
$long->quit;
readers('after a session that wrote and stayed', 1);
crash($node);
readers('after a crash', 2);

# A copy of the database contains a rollback that no worker has completed, and no process
# knows of it there.
$node->safe_psql('postgres', q{ALTER DATABASE d SET zundo.fault = 'worker-cycle:error'});
$node->safe_psql('d', 'BEGIN; UPDATE t SET n = n + 1000; ROLLBACK');
is($node->safe_psql('d', q{SELECT count(*) > 0 FROM zundo.page_slots('t', 0) WHERE status = 'aborted'}), 't', 'a rollback is pending');
$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'd' AND backend_type = 'client backend'});
$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE d');
is($node->safe_psql('copy', 'SELECT sum(n) FROM t'), '100', 'the copy: the rows of before');
ok($node->poll_query_until('copy', q{SELECT count(*) = 0 FROM zundo.page_slots('t', 0) WHERE status = 'aborted'}), 'the copy: undone');
is($node->safe_psql('copy', q{SELECT * FROM zundo.check('t')}), '', 'the copy: zundo.check');
# The same if the first session is canceled, or ended, while it looks for undo, and others
# are there by then.
for my $how (qw(cancel terminate))
{
	$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'd' AND backend_type = 'client backend'});
	$node->safe_psql('postgres', "CREATE DATABASE $how TEMPLATE d");
	my $first = $node->background_psql($how, on_error_stop => 0);
	my $pid = $first->query_safe('SELECT pg_backend_pid()');
	my $second = $node->background_psql($how);
	$second->query_safe('SELECT 1');
	$first->query_until(qr/sent/, "\\echo sent\nSET zundo.fault = 'first-look:" . ($how eq 'cancel' ? 'cancel' : 'sleep') . "'; SELECT sum(n) FROM t;\n");
	if ($how eq 'terminate')
	{
		select(undef, undef, undef, 0.3);
		$second->query_safe(q{SELECT count(*) FROM zundo.page_slots('t', 0) WHERE status = 'aborted'});
		$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	}
	ok($node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = '$how' AND backend_type = 'zundo undo worker'"),
		"$how while looking: a worker is started");
	ok($node->poll_query_until($how, q{SELECT count(*) = 0 FROM zundo.page_slots('t', 0) WHERE status = 'aborted'}), "$how while looking: undone");
	$how eq 'terminate' ? eval { $first->quit } : $first->quit;
	$second->quit;
}
# ... and after a restart it is completed without any session
is($node->safe_psql('d', q{SELECT count(*) > 0 FROM zundo.page_slots('t', 0) WHERE status = 'aborted'}), 't', 'in the original it is pending still');
$node->safe_psql('postgres', 'ALTER DATABASE d RESET zundo.fault');
my $lsn = $node->safe_psql('postgres', 'SELECT pg_current_wal_lsn()');
crash($node);
SKIP:
{
	unless (server_has('pg_walinspect'))
	{
		$node->poll_query_until('d', q{SELECT count(*) = 0 FROM zundo.page_slots('t', 0) WHERE status = 'aborted'});
		skip 'the server lacks pg_walinspect of contrib', 1;
	}
	$node->safe_psql('postgres', 'CREATE EXTENSION pg_walinspect');
	ok($node->poll_query_until('postgres', qq{SELECT count(*) > 0 FROM pg_get_wal_records_info('$lsn', pg_current_wal_flush_lsn())
		WHERE resource_manager = 'zundo' AND record_type = 'ROLLBACK'}), 'undone after a restart, without a session of the database');
}
is($node->safe_psql('d', q{SELECT count(*) FROM zundo.page_slots('t', 0) WHERE status = 'aborted'}), '0', 'nothing is pending');
is($node->safe_psql('d', 'SELECT sum(n) FROM t'), '100', 'the rows of before');
# A database that accepts no connections any more keeps its sessions, and gets a worker.
my $inside = $node->background_psql('d', on_error_stop => 1);
$inside->query_safe('SELECT 1');
ok(no_worker(), 'no worker');
$node->safe_psql('postgres', 'ALTER DATABASE d ALLOW_CONNECTIONS false');
$inside->query_safe('UPDATE t SET n = n');
my $kept;
for (1 .. 1800)
{
	$kept = $inside->query_safe('SELECT zundo.undo_bytes_in_use()');
	last if $kept eq '0';
	select(undef, undef, undef, 0.1);
}
is($kept, '0', 'undo of a database that accepts no connections is given back');
$inside->quit;
no_crash($node);
$node->stop;
done_testing();
