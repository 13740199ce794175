# More databases use zundo than zundo.max_databases allows to write at one time:
# the others can be read, and get their turn. A database that keeps its worker
# busy does not delay another one.
# Rules: REQUEST-2.
# long
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
	ok($node->poll_query_until($db, 'SELECT zundo.undo_bytes_in_use() = 0')
			&& $node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'zundo undo worker'}),
		"$db: the worker comes and leaves");
}

# Sessions that have written stay in two databases. The third database can be
# read nevertheless, in the version of an old snapshot too.
my %session = map { $_ => $node->background_psql($_, on_error_stop => 1) } qw(a b c);
my $old = $node->background_psql('c', on_error_stop => 1);
is($old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT sum(n) FROM t'), '0', 'an old snapshot');
$session{c}->query_safe('UPDATE t SET n = 5');
$session{c}->quit;
$old->query_safe('COMMIT');
ok($node->poll_query_until('c', 'SELECT zundo.undo_bytes_in_use() = 0'), 'its undo is given back');
$old->quit;
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'c'}), 'all of c leave');
$session{$_}->query_safe('UPDATE t SET n = n') for qw(a b);
is($node->safe_psql('c', 'SELECT sum(n), count(*) FROM t'), '5000|1000', 'a third database is read');
my @idle = map { $node->background_psql('c', on_error_stop => 1) } 1 .. 3;
is($_->query_safe('SELECT sum(n) FROM t'), '5000', 'and by several') for @idle;
like(($node->psql('c', 'UPDATE t SET n = n + 1'))[2], qr/too many databases write zheap tables at the same time/, 'but not written');
is($node->safe_psql('c', "SELECT sum(n) FROM t; SELECT * FROM zundo.check('t')"), '5000', 'nothing has changed');
$_->quit for @idle;
# A new launcher starts a worker for each of them.
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'zundo undo launcher'});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'zundo undo launcher'}), 'a new launcher');
sleep 3;
# One of the databases keeps its worker busy; the other one gets a worker
# nevertheless.
$session{a}->query_safe('BEGIN; UPDATE t SET n = n + 1');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'zundo undo worker' AND datname = 'a'}),
	'a has a worker');
$session{b}->query_safe('UPDATE t SET n = n + 1');
ok($node->poll_query_until('b', 'SELECT zundo.undo_bytes_in_use() = 0'), 'the undo of b is given back');
$session{a}->query_safe('COMMIT');
ok($node->poll_query_until('a', 'SELECT zundo.undo_bytes_in_use() = 0'), 'and in the end that of a');
$session{b}->quit;
# its worker exits, and so frees its slot
my $room = 0;
for (1 .. 600)
{
	last if $room = ($node->psql('c', 'UPDATE t SET n = n + 1'))[0] == 0;
	select(undef, undef, undef, 0.1);
}
ok($room, 'the third one has room');
is($node->safe_psql('c', 'SELECT sum(n) FROM t'), '6000', 'and is written');
ok($node->poll_query_until('c', 'SELECT zundo.undo_bytes_in_use() = 0'), 'and a worker');
$session{a}->quit;
no_crash($node);
$node->stop;
done_testing();
