# A session that begins to write continues the undo log of an idle one: many
# sessions that have written a row each have few logs between them, and what the
# earlier owner left in the log (an aborted transaction, a prepared one, an
# extent that was not entered) is kept.
# Rules: UNDO-50, UNDO-13.
use strict;
use warnings;
use Test::More;
use Time::HiRes qw(sleep);
use ZundoTest;

my $node = zundo_node('lent', <<'C');
max_worker_processes = 0
max_prepared_transactions = 2
zundo.undo_compression = none
C
sql(q{CREATE EXTENSION zundo;
	CREATE TABLE y (a int, b int) USING zheap;
	CREATE TABLE z (id int PRIMARY KEY, v int, pad text) USING zheap;
	INSERT INTO z SELECT g, 0, repeat('x', 200) FROM generate_series(1, 3000) g});
my $logs = 'SELECT count(*) FROM zundo.stat_undo';
my $before = sql($logs);

# rest: sleeps longer than a log must be idle to be taken by a session that has
# had none (0.02 s). long_rest: the same for a session whose log was taken (1 s).
sub rest { sleep(0.1); return; }
sub long_rest { sleep(1.2); return; }

# Sessions that write one after the other.
my @session = map { session($node) } 1 .. 12;
for (0 .. 11) { rest(); ask($session[$_], "INSERT INTO y VALUES (1, $_)"); }
cmp_ok(sql($logs), '<=', $before + 1, 'twelve sessions have had one log');
is(sql('SELECT count(DISTINCT b) FROM y'), '12', 'and written their rows');

# All again, at the same time.
ask($_, 'BEGIN', 'INSERT INTO y VALUES (2, 0)') for @session;
is(sql('SELECT count(*), count(DISTINCT pid) FROM zundo.stat_undo WHERE attached AND bytes > 0'), '12|12', 'twelve transactions have twelve logs');
is(ask($session[0], 'SELECT count(*) FROM y WHERE a = 2'), '1', 'each sees its own row');
ask($session[$_], 'SAVEPOINT s', 'INSERT INTO y VALUES (3, 0)', 'ROLLBACK TO s', 'INSERT INTO y VALUES (4, 0)') for 0 .. 5;
ask($session[$_], $_ % 2 ? 'ROLLBACK' : 'COMMIT') for 0 .. 11;
is(sql('SELECT string_agg(format(\'%s %s\', a, n), \', \' ORDER BY a) FROM (SELECT a, count(*) AS n FROM y WHERE a > 1 GROUP BY a) s'),
	'2 6, 4 3', 'each row is as committed');

# A session keeps its log from one transaction to the next, though others are
# idle, and none is in the way of a session that writes often.
my $mine = 'SELECT log FROM zundo.stat_undo WHERE pid = pg_backend_pid()';
ask($session[0], 'INSERT INTO y VALUES (5, 0)');
my $log = ask($session[0], $mine);
ask($session[0], 'INSERT INTO y VALUES (5, 0)') for 1 .. 20;
is(ask($session[0], $mine), $log, 'a session that writes keeps its log');

# What was left in a log: an aborted transaction that is not undone, and a
# prepared one, before the records of the next owner. First, the logs of
# sessions that are gone are given back.
sql('SELECT zundo.discard()');
$_->quit for splice(@session, 1);
ok($node->poll_query_until('postgres', "SELECT zundo.discard() IS NOT NULL AND ($logs) = 1"), 'one log is left');
my $other = session($node);
ask($session[0], 'SET zundo.eager_rollback_pages = 0', 'BEGIN', 'UPDATE z SET v = -1 WHERE id <= 100', 'ROLLBACK');
my $left = ask($session[0], $mine);
rest();
ask($other, 'UPDATE z SET v = v + 1 WHERE id BETWEEN 101 AND 200');
is(ask($other, $mine), $left, 'the log with an aborted transaction is continued');
is(ask($session[0], $mine), '', 'and its session has none');
ask($other, 'BEGIN', 'UPDATE z SET v = v + 2 WHERE id BETWEEN 201 AND 300', "PREPARE TRANSACTION 'p'");
long_rest();
ask($session[0], 'UPDATE z SET v = v + 4 WHERE id BETWEEN 301 AND 400', 'SELECT zundo.discard()');
is(ask($session[0], $mine), $left, 'so is the log with a prepared one');
sql("ROLLBACK PREPARED 'p'");
sql('SELECT zundo.discard()') for 1 .. 2;
is(sql('SELECT v, count(*) FROM z GROUP BY v ORDER BY v'), "0|2800\n1|100\n4|100", 'each row is as committed');

# An extent that was allocated and not entered goes with the log.
my $old = session($node);
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT sum(v) FROM z');
ask($session[0], q{DO $$
	DECLARE had int := (SELECT extents FROM zundo.stat_undo WHERE pid = pg_backend_pid());
	BEGIN
		FOR i IN 1 .. 20000 LOOP
			UPDATE z SET pad = left(md5(i::text), 30 + i % 2) || repeat('y', 170) WHERE id = 1 + i % 3000;
			COMMIT;
			EXIT WHEN (SELECT extents FROM zundo.stat_undo WHERE pid = pg_backend_pid()) > had;
		END LOOP;
	END $$});
$log = ask($session[0], $mine);
my $place = "SELECT extents, insert_ptr FROM zundo.stat_undo WHERE log = $log";
my ($extents, $last) = ask($session[0], $place) =~ /^(\d+)\|(.*)$/;
my $in = (split(/\./, $last))[2];
cmp_ok($in, '<', 64 * 8192, "an extent was allocated and not entered: $extents, position $last");
$other->quit;
long_rest();
$other = session($node);
ask($other, "UPDATE z SET v = v + 8, pad = 'n' || pad WHERE id <= 1000");
is(ask($other, $mine), $log, 'the log is continued');
my ($now) = ask($other, $place) =~ /^(\d+)\|/;
is($now, $extents, 'in the extent that was there');
is(ask($old, 'SELECT sum(v), count(DISTINCT pad) FROM z'), '500|1', 'an old snapshot sees what it saw');
ask($old, 'COMMIT');
ask($session[0], 'UPDATE z SET v = v - 8 WHERE id <= 1000');
sound($node, 'at the end', 'y', 'z', 'zundo.undo_log');
$_->quit for @session, $other, $old;
crash($node);
is(sql('SELECT v, count(*) FROM z GROUP BY v ORDER BY v'), "0|2800\n1|100\n4|100", 'after a crash too');
sql('SELECT zundo.discard()') for 1 .. 2;
sound($node, 'after a crash', 'y', 'z', 'zundo.undo_log');
no_crash($node);
$node->stop;
done_testing();
