# A rollback that cannot be completed because of a locked table or a damaged
# page. All other tables are rolled back, undo is not read again and again, and
# the views show what the rollback waits for.
# Rules: RESOLVE-2, RESOLVE-1.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('stalled', <<'C', extra => ['--data-checksums']);
zundo.eager_rollback_pages = 0
zundo.log_undo_age = 1s
max_prepared_transactions = 5
C

$node->safe_psql('postgres', q(
	CREATE EXTENSION zundo;
	CREATE TABLE big (id int, v int) USING zheap;
	CREATE TABLE other (id int) USING zheap;
	INSERT INTO big SELECT g, 0 FROM generate_series(1, 60000) g));
$node->poll_query_until('postgres', 'SELECT zundo.discard() IS NOT NULL AND zundo.undo_bytes_in_use() < 100000');

my $writer = $node->background_psql('postgres');
my $locker = $node->background_psql('postgres');
$_->set_query_timer_restart() for $writer, $locker;
$locker->query_safe('BEGIN');
my $pid = $locker->query_safe('SELECT pg_backend_pid()');
$writer->query_safe('BEGIN');
$writer->query_safe('UPDATE big SET v = 1');
$writer->query_safe('INSERT INTO other VALUES (1)');
# the lock is granted as soon as the writer has released its own
$locker->query_until(qr/waits/, "\\echo waits\nLOCK TABLE other;\n\\echo has it\n");
$node->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_locks WHERE NOT granted));
$writer->query_safe('ROLLBACK');

# no page is rolled back without the table's lock (RESOLVE-2); else nothing would wait here
ok($node->poll_query_until('postgres', q(
	SELECT count(*) = 1 FROM zundo.stat_rollback
	WHERE state = 'waiting for lock' AND waits_for = 'other'::regclass)), 'stat_rollback names the locked table');
is($node->safe_psql('postgres', q(SELECT blocked_by FROM zundo.stat_rollback WHERE waits_for IS NOT NULL)),
	"{$pid}", 'and the process that has locked it');
my $horizon = q(SELECT kind, CASE kind WHEN 'rollback' THEN name ELSE regexp_replace(name, '^.* ', '') END, pid, relation, mode, since < now()
	FROM zundo.stat_horizon WHERE kind IN ('rollback', 'lock'));
my $waits = 'rollback|log 0 waits for a lock on other||other||';
is($node->safe_psql('postgres', $horizon), "lock|031_stalled_rollback.pl|$pid|other|AccessExclusiveLock|t\n$waits", 'stat_horizon names both');
is($node->safe_psql('postgres', q(
	SELECT count(*) FROM generate_series(0, (SELECT relpages - 1 FROM (SELECT pg_relation_size('big') / 8192 AS relpages) s)) b,
		zundo.page_slots('big', b) WHERE status = 'aborted')), '0', 'the other table has been rolled back');

my $blocks = q(SELECT blks_read + blks_hit FROM pg_stat_database WHERE datname = 'postgres');
# what was read before is reported some seconds later
my $read;
for (1 .. 10)
{
	my $before = $node->safe_psql('postgres', $blocks);
	select(undef, undef, undef, 3);
	$read = $node->safe_psql('postgres', $blocks) - $before;
	last if $read < 1000;
}
cmp_ok($read, '<', 1000, 'the undo of the rollback is not read again while the table is locked');

# other processes and transactions that hold or wait for a conflicting lock
my $blocked_by = q(SELECT blocked_by FROM zundo.stat_rollback WHERE waits_for = 'other'::regclass);
$locker->query_safe("PREPARE TRANSACTION 'holder'");
is($node->safe_psql('postgres', $blocked_by), '{0}', 'a prepared transaction that has locked it');
is($node->safe_psql('postgres', $horizon), "lock|holder||other|AccessExclusiveLock|t\n$waits", '... in stat_horizon');
my $waiter = $node->background_psql('postgres', on_error_stop => 0);
my $waiter_pid = $waiter->query_safe('SELECT pg_backend_pid()');
$waiter->query_until(qr/waits/, "\\echo waits\nBEGIN; LOCK TABLE other;\n");
$node->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_locks WHERE NOT granted));
is($node->safe_psql('postgres', $blocked_by), "{0,$waiter_pid}", 'and a process that waits for a lock on it');
is($node->safe_psql('postgres', "$horizon ORDER BY mode"),
	"lock|holder||other|AccessExclusiveLock|t\nlock|031_stalled_rollback.pl|$waiter_pid|other|AccessExclusiveLock (waiting)|t\n$waits", '... in stat_horizon');
$node->safe_psql('postgres', "ROLLBACK PREPARED 'holder'");
select(undef, undef, undef, 2);
is($node->safe_psql('postgres', $blocked_by), "{$waiter_pid}", 'which alone is in the way');
is($node->safe_psql('postgres', $horizon), "lock|031_stalled_rollback.pl|$waiter_pid|other|AccessExclusiveLock|t\n$waits", '... in stat_horizon');
# the intervals between these lines double
ok($node->wait_for_log(qr/LOG:  undo has been kept in database "postgres" for \d+ s\n[^\n]*DETAIL:  The rollback of transaction \d+, which waits for a lock on table "other", prevents undo from being discarded\. Process $waiter_pid prevents undo from being discarded: the rollback of transaction \d+ waits for its AccessExclusiveLock on table "other"/),
	'a line about old undo says that the rollback waits');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($waiter_pid)");
$waiter->{run}->kill_kill;
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), 'the rollback is completed');
ok($node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM zundo.stat_horizon WHERE kind = 'rollback')),
	'nothing is left of it');
is($node->safe_psql('postgres', 'SELECT count(*) FROM other'), '0', 'no row of it');
$locker->quit;
sound($node, 'after the rollback', 'big', 'other');

# a damaged page in one of two tables
$node->safe_psql('postgres', q(
	CREATE TABLE bad (id int) USING zheap;
	CREATE TABLE good (id int) USING zheap;
	INSERT INTO bad VALUES (1);
	INSERT INTO good VALUES (1)));
$writer->query_safe('BEGIN');
$writer->query_safe('UPDATE bad SET id = 2');
$writer->query_safe('UPDATE good SET id = 2');
my $path = $node->data_dir . '/' . $node->safe_psql('postgres', q(SELECT pg_relation_filepath('bad')));
$node->safe_psql('postgres', 'CHECKPOINT');
# the page is damaged while the writer is in progress; later its rollback may have been
# logged, with an image of the page
$node->stop('immediate');
$writer->{run}->kill_kill;
open(my $file, '+<:raw', $path) or die "$path: $!";
seek($file, 8000, 0);
print $file "\xff" x 16;
close($file);
my $begin = time;
$node->start;
ok($node->poll_query_until('postgres', q(
	SELECT count(*) = 1 FROM zundo.stat_rollback WHERE state = 'failed' AND waits_for = 'bad'::regclass)),
	'a rollback that meets a damaged page has failed in that table');
is($node->safe_psql('postgres', q(SELECT count(*) FROM zundo.page_slots('good', 0) WHERE status = 'aborted')), '0',
	'and is done in the other');
is($node->safe_psql('postgres', 'SELECT id FROM good'), '1', 'which is readable');
like(slurp_file($node->logfile), qr/could not roll back transaction \d+ in the table with OID \d+: invalid page in block 0/,
	'the log says why');
# If another table gets the file, that changes nothing: the next attempt is made 30 s
# after the first one, and another one 60 s later.
my $failures = sub { return scalar(() = slurp_file($node->logfile) =~ /could not roll back transaction/g) };
my $failed = $failures->();
$node->safe_psql('postgres', q(
	CREATE EXTENSION zundo_test;
	CREATE TABLE spare (id int) USING zheap;
	SELECT zundo_test_swap_files('bad', 'spare');
	SELECT pg_sleep(4)));
my $later = $failures->() - $failed;
cmp_ok($later, '<=', (time - $begin < 30) ? 0 : (time - $begin < 90) ? 1 : 2, 'the same waiting time in a table that has got the file');
is($node->safe_psql('postgres', 'SELECT count(*) FROM zundo.stat_rollback'), '1', 'the rollback is still pending');
# a file that is gone needs no further attempt: the next one would be made after 30 s only
$begin = time;
$node->safe_psql('postgres', 'DROP TABLE spare');
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), 'the rollback is completed when the table is dropped');
cmp_ok(time - $begin, '<', 25, '... without waiting for the next attempt');

# An error outside the error handler of the rollback's subtransaction ends the worker's whole transaction, so that it
# neither keeps locks nor fails to do its work from then on.
$node->append_conf('postgresql.conf', "zundo.fault = 'rollback-table:error'");
# a worker that runs may take the new setting too late
$node->restart;
my $offset = -s $node->logfile;
$node->safe_psql('postgres', 'BEGIN; UPDATE good SET id = 2; ROLLBACK');
$node->wait_for_log(qr/ERROR: .*fault point "rollback-table"/, $offset);
$node->append_conf('postgresql.conf', "zundo.fault = ''");
$node->reload;
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'),
	'a rollback whose subtransaction was left open by an error is completed');
ok($node->poll_query_until('postgres', q(
	SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'zundo undo worker' AND xact_start < now() - interval '1 s')),
	'and the worker is in no transaction');
is($node->safe_psql('postgres', 'SELECT id FROM good'), '1', '... and right');

# In a session, such an error ends the statement only. Its transaction does not stay open.
$node->append_conf('postgresql.conf', "max_worker_processes = 0\nzundo.eager_rollback_pages = 0");
$node->restart;
for my $pass ('VACUUM good', 'DO $$ BEGIN PERFORM zundo.discard(); END $$')
{
	$node->safe_psql('postgres', 'BEGIN; UPDATE good SET id = 3; ROLLBACK');
	my $client = session($node);
	ask($client, "SET zundo.fault = 'rollback-table:error:1'", $pass);
	like($complaint, qr/fault point "rollback-table"/, "$pass: an error leaves a subtransaction open");
	is(ask($client, 'SELECT id FROM good'), '1', '... which has ended when the next statement begins');
	ask($client, $pass);
	is($complaint, '', '... and it can be repeated');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM zundo.page_slots('good', 0) WHERE status = 'aborted'}), '0', '... to do its work');
	$client->quit;
}
no_crash($node);
done_testing();
