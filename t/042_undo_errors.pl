# Errors while the undo log is loaded or discarded: after each of them the next
# writer and the next discard pass succeed.
# Rules: UNDO-2.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('undoerrors', <<'C', allows_streaming => 1);
max_worker_processes = 0
C
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int PRIMARY KEY, n int) USING zheap;
	CREATE TABLE u (id int) USING zheap;
	INSERT INTO t SELECT g, 0 FROM generate_series(1, 30000) g;
	SET zundo.eager_rollback_pages = 0;
	BEGIN; UPDATE t SET n = n + 1; ROLLBACK;
});

# The first session of a database cannot read the meta page; later it can.
my $path = $node->data_dir . '/' . $node->safe_psql('postgres', q{SELECT pg_relation_filepath('zundo.undo_log')});
$node->restart;
my $session = $node->background_psql('postgres', on_error_stop => 0);
chmod 0, $path or die $!;
$session->query('SELECT sum(n) FROM t');
like($session->{stderr}, qr/could not open file/, 'the undo log cannot be read');
chmod 0600, $path or die $!;
$session->{stderr} = '';
is($session->query_safe('INSERT INTO u VALUES (1) RETURNING id'), '1', 'then it can be read, and the session can write');
is($session->query_safe('UPDATE t SET n = n + 10 WHERE id = 1 RETURNING n'), '10', 'also where undo is read for that');
is($session->query_safe('SELECT sum(n) FROM t'), '10', 'what was rolled back is not seen');
is($node->safe_psql('postgres', 'SELECT sum(n) FROM t'), '10', 'nor by other sessions');
sound($node, '', qw(t zundo.undo_log));
$session->quit;
crash($node);
is($node->safe_psql('postgres', 'SELECT sum(n) FROM t'), '10', 'nor after a crash');
sound($node, 'after a crash', qw(t zundo.undo_log));

# The logs cannot be read for the first writer, or only some of them: that
# writer gets the error; readers, other databases and the next writer continue,
# and rollbacks that waited are found.
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION zundo; CREATE TABLE o (id int) USING zheap');
my @writers = map { $node->background_psql('postgres') } 1 .. 3;
$_->query_safe('SET zundo.eager_rollback_pages = 0; BEGIN; INSERT INTO u VALUES (99)') for @writers;
$writers[0]->query_safe('UPDATE t SET n = 1000 WHERE id < 500');
$_->query_safe('ROLLBACK') for @writers;
$_->quit for @writers;
$node->restart;
$session = $node->background_psql('postgres', on_error_stop => 0);
is($session->query_safe('SELECT sum(n) FROM t'), '10', 'a reader');
chmod 0, $path or die $!;
my $error = ($node->psql('postgres', 'INSERT INTO u VALUES (2)'))[2];
like($error, qr/could not open file/, 'a writer cannot read the undo log');
chmod 0600, $path or die $!;
$error = ($node->psql('postgres', "SET zundo.fault = 'undo-load:error:2'; INSERT INTO u VALUES (2)"))[2];
like($error, qr/fault point/, 'a writer cannot read the second log');
is($session->query_safe('SELECT sum(n) FROM t'), '10', 'the reader continues');
is($node->safe_psql('other', 'INSERT INTO o VALUES (1) RETURNING id'), '1', 'and a writer in another database');
is($session->query_safe('UPDATE t SET n = n + 10 WHERE id = 2 RETURNING n'), '10', 'the next writer reads all logs');
is($node->safe_psql('postgres', 'UPDATE t SET n = n - 10 WHERE id = 2 RETURNING n'), '0', 'and so do others');
$node->safe_psql('postgres', 'SELECT zundo.discard()') for 1 .. 2;
is($node->safe_psql('postgres', 'SELECT count(*) FROM zundo.stat_rollback'), '0', 'what waited is rolled back');
is($node->safe_psql('postgres', 'SELECT (SELECT sum(n) FROM t), (SELECT count(*) FROM u WHERE id = 99)'), '10|0', '... in all logs');
sound($node, 'after that', qw(t u zundo.undo_log));
$session->quit;

# A discard pass fails when it is about to log what it discards; the next pass logs it. (A
# session stays, so that the database keeps its entry in shared memory.)
my $standby = standby_of($node, "hot_standby_feedback = off\nmax_standby_streaming_delay = 0");
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
$session = $node->background_psql('postgres', on_error_stop => 1);
is($session->query_safe('SELECT sum(n) FROM t'), '10', 'a session of the primary');
my $reader = $standby->background_psql('postgres', on_error_stop => 0);
is($reader->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT sum(n) FROM t"), '10', 'a snapshot on the standby');
$node->safe_psql('postgres', 'UPDATE t SET n = n + 1');
like(($node->psql('postgres', "SET zundo.fault = 'discard-begun:error:1'; SELECT zundo.discard()"))[2],
	qr/fault point/, 'discarding fails');
cmp_ok($node->safe_psql('postgres', 'SELECT zundo.discard()'), '>=', 0, 'and succeeds the next time');
$node->safe_psql('postgres', 'UPDATE t SET n = n + 1');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
my $sum = eval { $reader->query_safe('SELECT sum(n) FROM t') };
ok(!defined $sum, 'the snapshot on the standby has been ended') or diag("it sees $sum");
eval { $reader->quit };
is($standby->safe_psql('postgres', 'SELECT sum(n) FROM t'), '60010', 'others see the rows there');
$standby->stop;
$session->quit;

# A pass fails when it frees the last extents of a log that no session writes.
$node->safe_psql('postgres', 'UPDATE t SET n = n + 1');
$node->restart;
$session = $node->background_psql('postgres', on_error_stop => 1);
is($session->query_safe('SELECT sum(n) FROM t'), '90010', 'a session that stays');
like(($node->psql('postgres', "SET zundo.fault = 'discard-begun:error:2'; SELECT zundo.discard()"))[2],
	qr/fault point/, 'giving back fails');
cmp_ok($node->safe_psql('postgres', 'SELECT zundo.discard()'), '>=', 0, 'and is done the next time');
$node->append_conf('postgresql.conf', q{zundo.undo_limit = '1MB'});
$node->reload;
is($node->safe_psql('postgres', q{UPDATE t SET n = n + 1 WHERE id = 1 RETURNING id}), '1', 'there is room');
sound($node, 'then', qw(t zundo.undo_log));
$session->quit;

# A pass is canceled while it rolls back: the statement ends, and leaves nothing behind in
# the session.
$node->append_conf('postgresql.conf', q{zundo.undo_limit = 0});
$node->reload;
$node->safe_psql('postgres', 'SET zundo.eager_rollback_pages = 0; BEGIN; UPDATE t SET n = n + 5; ROLLBACK');
$session = $node->background_psql('postgres', on_error_stop => 0);
$session->query(q{SET zundo.fault = 'rollback-logged:cancel:3'});
$session->query('SELECT zundo.discard()');
like($session->{stderr}, qr/canceling statement due to user request/, 'a pass is canceled');
$session->{stderr} = '';
is($session->query('ROLLBACK; SELECT sum(n) FROM t'), '90011', 'its session continues, outside of a transaction');
like($session->{stderr}, qr/no transaction in progress/, '... where ROLLBACK has nothing to end');
$session->quit;
sound($node, 'after that', qw(t zundo.undo_log));
no_crash($node);
$node->stop;
done_testing();
