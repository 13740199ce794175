# A KEY SHARE lock allows other transactions to move the row. Whatever they do
# between two steps of taking such a lock, the locker must not lose the row, nor
# keep its place in the queue of the old TID.
# A row lock outlasts the rollback of later savepoints, at any moment.
# Rules: DML-1.
use strict;
use warnings;
use Test::More;
use Time::HiRes qw(sleep);
use ZundoTest;

my $node = zundo_node('lock_races', "lock_timeout = '60s'\n");
$node->safe_psql('postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE p (id int PRIMARY KEY, m int) USING zheap;
	CREATE INDEX ON p (m);
	INSERT INTO p SELECT g, 0 FROM generate_series(1, 10) g;
	CREATE TABLE c (id int REFERENCES p) USING zheap;
});
my ($one, $two, $watcher) = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 3;
my $pid = $two->query('SELECT pg_backend_pid()');

# waits: waits until the second session waits for another one; returns whether it does.
sub waits
{
	return $node->poll_query_until('postgres',
		"SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = $pid AND wait_event_type = 'Lock'");
}

# said: returns the errors and notices of the second session since the last call.
sub said { my $said = $two->{stderr}; $two->{stderr} = ''; return $said; }

# 1. The row has been locked at its new place, and is moved again before it is
# read there: by a transaction that begins then, or by one that has begun the
# move already.
for my $under_way (0, 1)
{
	my $name = $under_way ? 'beside a move that commits' : 'a move after the lock';
	$one->query_safe('BEGIN; SELECT id FROM p WHERE id = 1 FOR UPDATE; UPDATE p SET m = m + 1 WHERE id = 1');
	$two->query_safe(q{BEGIN; SET LOCAL zundo.fault = 'row-locked:sleep'});
	$two->query_until(qr/asked/, "\\echo asked\nINSERT INTO c VALUES (1);\n");
	ok(waits(), "$name: a foreign key's check waits");
	kill 'STOP', $pid;
	$one->query_safe('COMMIT' . ($under_way ? '; BEGIN; UPDATE p SET m = m + 1 WHERE id = 1' : ''));
	kill 'CONT', $pid;
	sleep 0.4;
	$one->query_safe($under_way ? 'COMMIT' : 'UPDATE p SET m = m + 1 WHERE id = 1');
	is($two->query('SELECT count(*) FROM c'), $under_way + 1, "$name: the check finds the row");
	is(said(), '', "$name: no notice and no error");
	timed_out($node, q{SET lock_timeout = '300ms'; DELETE FROM p WHERE id = 1}, "$name: the row is locked");
	$two->query_safe('COMMIT');
}

# 2. The locker waits in the queue for the row, is asleep when it could
# continue, and finds that the row has moved and got another key.
$one->query_safe('BEGIN; SELECT id FROM p WHERE id = 2 FOR UPDATE');
$two->query_until(qr/asked/, "\\echo asked\nBEGIN; SELECT id FROM p WHERE id = 2 FOR KEY SHARE;\n");
ok(waits(), 'a locker waits');
kill 'STOP', $pid;
$one->query_safe('COMMIT; UPDATE p SET m = m + 1 WHERE id = 2; UPDATE p SET id = 200 WHERE id = 2');
kill 'CONT', $pid;
is($two->query(q{SELECT count(*) FROM pg_locks WHERE locktype = 'tuple'}), '0', 'it continues at the new place and leaves the queue at the old one');
is(said(), '', 'without a warning');
$two->query_safe('COMMIT');

# Session one runs the statements, the last of them within a savepoint s, which is rolled
# back while session two looks for locks on the row that it asks for. Tries until that was
# so; returns what session two got and its messages, or nothing.
sub rolled_back_meanwhile
{
	my ($statements, $timeout, $id, $mode) = @_;
	for (1 .. 20)
	{
		$one->query_safe("BEGIN; $statements");
		# with a transaction id, it looks once
		$two->query_safe("BEGIN; SELECT txid_current(); SET LOCAL zundo.fault = 'lockers-chain:sleep'; SET LOCAL lock_timeout = '$timeout'");
		$two->query_until(qr/asked/, "\\echo asked\nSELECT id FROM p WHERE id = $id FOR $mode;\n\\echo done\n");
		my $caught = ZundoTest::caught($watcher, $pid, "SELECT%FOR $mode%");
		$one->query_safe('ROLLBACK TO s') if $caught;
		kill 'CONT', $pid;
		my @got = ($two->query_until(qr/done/, ''), said());
		$_->query_safe('ROLLBACK') for $one, $two;
		return @got if $caught;
	}
	return;
}

# 3. A savepoint within a savepoint has changed the page. Both are rolled back
# while another session looks for locks on a row of the page. It must find the
# lock that was taken before both.
my ($answer, $messages) = rolled_back_meanwhile(q{SELECT id FROM p WHERE id = 3 FOR UPDATE; SAVEPOINT s; SELECT id FROM p WHERE id = 4 FOR UPDATE;
	SAVEPOINT s2; SELECT id FROM p WHERE id = 5 FOR UPDATE}, '2s', 3, 'UPDATE');
ok(defined $answer, 'the savepoints were rolled back while the locker looked for locks');
unlike($answer, qr/^3$/m, 'the row is not locked twice');
like($messages, qr/lock timeout/, 'the locker had to wait');

# The first of them has made a lock stronger that the transaction holds by a lock tag. It
# is not stronger any more: another session may have the row FOR KEY SHARE, too.
($answer, $messages) = rolled_back_meanwhile(q{SELECT count(*) FROM (SELECT id FROM p FOR KEY SHARE) l; SAVEPOINT s; SELECT id FROM p WHERE id = 9 FOR UPDATE;
	SAVEPOINT s2; SELECT id FROM p WHERE id = 10 FOR UPDATE}, '5s', 9, 'KEY SHARE');
ok(defined $answer, 'the savepoint with the stronger lock was rolled back meanwhile');
like($answer, qr/^9$/m, 'the weaker lock lets others have theirs');
unlike($messages, qr/lock timeout/, 'the locker need not wait for it');

# 4. A KEY SHARE lock beside an update in progress: the row is read when it has
# been locked. The transaction, which has updated it within a savepoint as well,
# commits between the reader's looks at the two updates.
$node->safe_psql('postgres', 'CREATE TABLE v (id int PRIMARY KEY, n int) USING zheap; INSERT INTO v VALUES (1, 0)');
my $caught = 0;
for (1 .. 20)
{
	$one->query_safe('BEGIN; SELECT n FROM v WHERE id = 1 FOR UPDATE; UPDATE v SET n = 1 WHERE id = 1');
	$two->query_safe(q{BEGIN; SELECT txid_current(); SET LOCAL zundo.fault = 'version-passed:sleep'});
	$two->query_until(qr/asked/, "\\echo asked\nSELECT 'n is ' || n FROM v WHERE id = 1 FOR KEY SHARE;\n\\echo done\n");
	ok(waits(), 'a KEY SHARE locker waits');
	kill 'STOP', $pid;
	$one->query_safe('COMMIT; BEGIN; UPDATE v SET n = 2 WHERE id = 1; SAVEPOINT s; UPDATE v SET n = 3 WHERE id = 1');
	kill 'CONT', $pid;
	$caught = ZundoTest::caught($watcher, $pid, 'SELECT%FOR KEY SHARE%');
	$one->query_safe('COMMIT');
	kill 'CONT', $pid;
	my ($answer) = $two->query_until(qr/done/, '') =~ /n is (\d)/;
	is($answer, 3, 'it reads no version between two updates of one transaction') if $caught;
	$two->query_safe('ROLLBACK');
	last if $caught;
}
ok($caught, 'the transaction has committed while the row was read');

sound($node, '', qw(p c v));
$_->quit for $one, $two, $watcher;
no_crash($node);
$node->stop;
done_testing();
