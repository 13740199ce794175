# More databases with zundo than can use it at one time.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('many', "zundo.max_databases = 2\n");
for my $db (qw(a b c))
{
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, q{
		CREATE EXTENSION zundo;
		CREATE TABLE t (id int PRIMARY KEY, n int) USING zheap;
		INSERT INTO t SELECT g, 0 FROM generate_series(1, 1000) g});
	ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'zundo undo worker'}),
		"$db: the worker comes and leaves");
}

# Sessions of two stay. A new launcher has all of them looked at.
my %session = map { $_ => $node->background_psql($_, on_error_stop => 1) } qw(a b);
is($session{$_}->query_safe('SELECT sum(n) FROM t'), '0', "a session of $_") for qw(a b);
like(($node->psql('c', 'SELECT sum(n) FROM t'))[2], qr/too many databases/, 'there is no room for a third one');
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'zundo undo launcher'});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'zundo undo launcher'}), 'a new launcher');
sleep 3;
# One of them keeps its worker busy; the other one gets one all the same.
$session{a}->query_safe('BEGIN; UPDATE t SET n = n + 1');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'zundo undo worker' AND datname = 'a'}),
	'a has a worker');
$session{b}->query_safe('UPDATE t SET n = n + 1');
ok($node->poll_query_until('b', 'SELECT zundo.undo_bytes_in_use() = 0'), 'the undo of b is given back');
$session{a}->query_safe('COMMIT');
ok($node->poll_query_until('a', 'SELECT zundo.undo_bytes_in_use() = 0'), 'and in the end that of a');
$session{b}->quit;
# its worker leaves, and so makes room
ok($node->poll_query_until('c', 'SELECT sum(n) = 0 FROM t'), 'the third one has room');
$node->safe_psql('c', 'UPDATE t SET n = n + 1');
ok($node->poll_query_until('c', 'SELECT zundo.undo_bytes_in_use() = 0'), 'and a worker');
$session{a}->quit;
no_crash($node);
$node->stop;
done_testing();
