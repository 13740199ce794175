# The runbook of docs/operations.md: each symptom is produced, and the step that the runbook
# names ends it. t/063_repair and those beside it have damaged pages.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('runbook', <<'C', allows_streaming => 1);
zundo.undo_compression = none
zundo.eager_rollback_pages = 0
max_prepared_transactions = 2
C
sql(q{CREATE EXTENSION zundo;
	CREATE TABLE z (id int PRIMARY KEY, n int, pad text) USING zheap;
	CREATE TABLE locked (id int, n int) USING zheap;
	INSERT INTO z SELECT g, 0, repeat('x', 100) FROM generate_series(1, 5000) g;
	INSERT INTO locked SELECT g, 0 FROM generate_series(1, 1000) g;
	CREATE PROCEDURE many(times int) LANGUAGE plpgsql AS
		'BEGIN FOR i IN 1 .. times LOOP UPDATE z SET n = n + 1 WHERE id = i % 5000 + 1; COMMIT; END LOOP; END';
	CREATE PROCEDURE fill(times int) LANGUAGE plpgsql AS
		$$BEGIN FOR i IN 1 .. times LOOP UPDATE z SET n = n + 1, pad = repeat(md5(n::text), 4); COMMIT; END LOOP; END$$});
my $first = 'SELECT pid FROM zundo.stat_horizon LIMIT 1';

# report: starts a session with a snapshot that keeps undo.
sub report
{
	my $session = session($node);
	ask($session, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM z');
	return $session;
}

# ended SESSION: ends the first row of zundo.stat_horizon, which must be the session; tests that the undo is gone then.
sub ended
{
	my ($session, $symptom) = @_;
	ok($node->poll_query_until('postgres', "SELECT ($first) = $session->{backend}"), "$symptom: the first row of stat_horizon is the session");
	sql("SELECT pg_terminate_backend(($first))");
	ok($node->poll_query_until('postgres', 'SELECT zundo.undo_bytes_in_use() < 100000'), "$symptom: the undo is gone after its end");
	eval { $session->quit };
	return;
}

# set SETTINGS...: changes settings of the server.
sub set
{
	my (@settings) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET $_") for @settings;
	$node->reload;
	my ($name, $value) = $settings[-1] =~ /(\S+) = '?([^']*)'?/;
	ok($node->poll_query_until('postgres', "SELECT current_setting('$name') = '$value'"), "$name = $value");
	return;
}

# 'Undo grows', and a figure of 'Sizing'
my $report = report();
my $before = sql('SELECT zundo.undo_bytes_in_use()');
sql('CALL many(1000)');
my $bytes = (sql('SELECT zundo.undo_bytes_in_use()') - $before) / 1000;
ok($bytes > 25 && $bytes < 42, "a transaction that changes an integer of one row makes some 33 bytes of undo: $bytes");
sql('CALL fill(3)');
cmp_ok(sql('SELECT zundo.undo_bytes_in_use()'), '>', 1000000, 'undo grows');
ended($report, 'undo grows');

# 'A writer gets 53400'
set(q{zundo.undo_full = 'error'}, q{zundo.undo_limit = '4MB'});
$report = report();
like(($node->psql('postgres', "\\set VERBOSITY verbose\nCALL fill(100)"))[2], qr/53400: undo of this database has reached/, 'a writer gets 53400');
ended($report, '53400');
sql('CALL fill(1)');

# 'A report gets 72000'
set(q{zundo.undo_full_exempt = ''}, q{zundo.undo_full = 'cancel'});
# slow SESSION: the session runs a report that does not end by itself; returns when it runs.
sub slow
{
	my ($session) = @_;
	$session->{stderr} = '';
	$session->query_until(qr/runs/, "\\echo runs\nSELECT count(*) FROM z, pg_sleep(600);\n\\echo :SQLSTATE ended\n");
	ok(asleep($node, $session->{backend}), 'a report runs');
	return;
}
$report = report();
slow($report);
sql('CALL fill(8)');
like($report->query_until(qr/[0-9A-Z]{5} ended/, ''), qr/72000 ended/, 'a report gets 72000');
ask($report, 'ROLLBACK');
$report->quit;
set(q{zundo.undo_limit = '64MB'});
$report = report();
slow($report);
sql('CALL fill(8)');
ok(asleep($node, $report->{backend}), 'with a higher limit it is not canceled');
my $size = q{SELECT pg_relation_size('zundo.undo_log')};
my $large = sql($size);
ended($report, '72000');

# 'The undo file does not shrink'
cmp_ok($large, '>', 5000000, 'the undo file is large');
ok($node->poll_query_until('postgres', "SELECT zundo.discard() IS NOT NULL AND zundo.purge() IS NOT NULL AND ($size) < $large"), 'its tail is given back');

# 'The disk is full': the undo file cannot grow
sql('CREATE TABLE old (id int) USING zheap; INSERT INTO old SELECT generate_series(1, 1000)');
$report = report();
set(q{zundo.fault = 'undo-extend:disk'});
like(($node->psql('postgres', "\\set VERBOSITY verbose\nCALL fill(30)"))[2], qr/ERROR:  53100/, 'what needs more undo gets 53100');
is(sql('SELECT count(*) FROM z; TRUNCATE old; DROP TABLE old'), '5000', 'a query, TRUNCATE and DROP work');
ended($report, 'disk full');
sql('CALL fill(1)');
set(q{zundo.fault = ''});

# 'A rollback stalls'
my ($writer, $locker) = (session($node), session($node));
ask($writer, 'BEGIN', 'UPDATE locked SET n = 1');
$locker->query_until(qr/waits/, "\\echo waits\nBEGIN;\nLOCK TABLE locked;\n");
ok($node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM pg_locks WHERE NOT granted'), 'the lock is waited for');
ask($writer, 'ROLLBACK');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM zundo.stat_rollback WHERE state = 'waiting for lock' AND waits_for = 'locked'::regclass}), 'a rollback stalls');
is(sql('SELECT count(pg_terminate_backend(p)) FROM zundo.stat_rollback, unnest(blocked_by) p'), '1', 'what blocks it is ended');
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), 'and the rollback is complete');
eval { $locker->quit };
$writer->quit;
is(sql('SELECT max(n) FROM locked'), '0', 'the rows are those of before');

# 'A standby lags'
my $standby = standby_of($node, "max_standby_streaming_delay = -1\nhot_standby_feedback = off\n");
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
my $reader = session($standby);
ask($reader, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM z');
sql('CALL fill(2)');
ok(all_discarded($node), 'the primary discards undo');
ok($standby->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'startup' AND wait_event LIKE 'RecoveryConflict%'}), 'replay waits for a query of the standby');
is($standby->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity
	WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() ORDER BY age(backend_xmin) DESC LIMIT 1}), 't', 'which is ended');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is($standby->safe_psql('postgres', 'SELECT sum(n) FROM z'), sql('SELECT sum(n) FROM z'), 'then the standby is as far as the primary');
eval { $reader->quit };

sound($node, 'in the end', qw(z locked zundo.undo_log));
no_crash($_) for $node, $standby;
$_->stop for $standby, $node;
done_testing();
