# The discarder takes an empty undo log from an idle session. A session that
# continues to write while its log is being taken keeps the log or gets another
# one: no row is lost, and no extent with undo is freed.
# Rules: UNDO-50, UNDO-13.
use strict;
use warnings;
use Test::More;
use Time::HiRes qw(sleep time);
use ZundoTest;

my $node = zundo_node('taken', "max_worker_processes = 0\nzundo.undo_compression = none\n");
sql(q{CREATE EXTENSION zundo;
	CREATE TABLE z (id int PRIMARY KEY, v int, pad text) USING zheap;
	CREATE TABLE y (a int) USING zheap;
	INSERT INTO z SELECT g, 0, repeat('x', 200) FROM generate_series(1, 20000) g});

# Makes logs whose extents lie at the end of a file that is mostly free.
my $old = session($node);
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1');
sql('UPDATE z SET v = v + 1') for 1 .. 8;
my @owner = map { session($node) } 1 .. 3;
# at the same time, or one would continue the log of another
ask($_, 'BEGIN', 'INSERT INTO y VALUES (1)') for @owner;
ask($_, 'COMMIT') for @owner;
ask($old, 'COMMIT');

# awake WHAT SQL: while the discarder is about to take the first idle log, its owner
# runs the SQL.
my $discarder = session($node);
my $logs = 'SELECT string_agg(pid::text, \' \' ORDER BY log) FROM zundo.stat_undo WHERE attached';
sub awake
{
	my ($what, @sql) = @_;
	my %by_pid = map { ask($_, 'SELECT pg_backend_pid()') => $_ } @owner;
	ask($discarder, 'RESET zundo.fault', 'SELECT zundo.discard()', 'SELECT zundo.discard()');
	my ($first) = grep { exists $by_pid{$_} } split(/ /, ask($discarder, $logs));
	# longer than a log must be empty before it is taken
	sleep 3.2;
	ask($discarder, "SET zundo.fault = 'taking-log:sleep:1'");
	my $since = time;
	my $pid = ask($discarder, 'SELECT pg_backend_pid()');
	$discarder->query_until(qr/begun/, "\\echo begun\nSELECT zundo.discard();\n");
	# stopped in its sleep, so that it cannot end too early
	ok(asleep($node, $pid), "$what: the discarder sleeps");
	kill 'STOP', $pid;
	ask($by_pid{$first}, $_) for @sql;
	kill 'CONT', $pid;
	is($complaint, '', "$what: no error");
	ask($discarder, 'SELECT 1');
	is($complaint, '', "$what: the discarder continues");
	cmp_ok(time - $since, '>', 0.9, "$what: it was about to take the log");
	return ($by_pid{$first}, $first);
}

my ($session, $pid) = awake('a whole transaction', 'INSERT INTO y VALUES (2)');
is(sql("SELECT count(*) FROM zundo.stat_undo WHERE attached AND pid = $pid"), '0', 'its log was taken nevertheless');
ask($session, 'INSERT INTO y VALUES (3)');
($session, $pid) = awake('a transaction in progress', 'BEGIN', 'INSERT INTO y VALUES (4)');
is(sql("SELECT count(*) FROM zundo.stat_undo WHERE attached AND pid = $pid"), '1', 'it has its log still');
ask($session, 'SAVEPOINT s', 'INSERT INTO y VALUES (5)', 'ROLLBACK TO s', 'INSERT INTO y VALUES (6)', 'COMMIT');
ask($discarder, 'RESET zundo.fault', 'SELECT zundo.discard()');
ask($_, 'INSERT INTO y VALUES (7)', 'BEGIN', 'UPDATE y SET a = -1', 'ROLLBACK') for @owner;
is(sql('SELECT string_agg(format(\'%s %s\', a, n), \', \' ORDER BY a) FROM (SELECT a, count(*) AS n FROM y GROUP BY a) s'),
	'1 3, 2 1, 3 1, 4 1, 6 1, 7 3', 'each row is as committed');
sound($node, 'at the end', 'y', 'z', 'zundo.undo_log');
$_->quit for @owner, $discarder, $old;
crash($node);
is(sql('SELECT count(*), sum(a) FROM y'), '10|39', 'after a crash too');
sound($node, 'after a crash', 'y', 'z', 'zundo.undo_log');
no_crash($node);
$node->stop;
done_testing();
