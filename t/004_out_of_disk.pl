# No disk space for undo. The writer gets an error before it has changed
# anything, its transaction can be rolled back, and other sessions continue.
# Once there is space again, the writer continues as well.
# Rules: SPACE-2, UNDO-4.
use strict;
use warnings;
use Test::More;
use ZundoTest;

my $node = zundo_node('disk', <<'C');
restart_after_crash = off
C
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int PRIMARY KEY, n int, filler text) USING zheap;
	CREATE UNLOGGED TABLE u (id int PRIMARY KEY, n int, filler text) USING zheap;
	INSERT INTO t SELECT g, 0, repeat('x', 200) FROM generate_series(1, 20000) g;
	INSERT INTO u SELECT g, 0, repeat('x', 200) FROM generate_series(1, 20000) g;
});
my $state = 'SELECT count(*), sum(n), sum(id), sum(length(filler)) FROM';

# Statements that need much new undo. (Rows of a plain INSERT or DELETE share
# their undo records, but speculative ones, and those of several commands, do
# not.)
my %writers = (
	insert => q{INSERT INTO %s SELECT g, 1, repeat('y', 200) FROM generate_series(100001, 160000) g ON CONFLICT DO NOTHING},
	update => q{UPDATE %s SET n = n + 1, filler = md5(id::text) || repeat('z', 168)},
	move => q{UPDATE %s SET id = id + 1000000},
	delete => q{DO $d$ BEGIN FOR i IN 1 .. 20000 LOOP DELETE FROM %s WHERE id = i; END LOOP; END $d$});

for my $point (qw(undo-extend undo-alloc))
{
	for my $table (qw(t u))
	{
		my $before = $node->safe_psql('postgres', "$state $table");
		for my $name (sort keys %writers)
		{
			my $sql = sprintf($writers{$name}, $table);
			my ($rc, $out, $err) = $node->psql('postgres', "SET zundo.fault = '$point:error'; $sql; SELECT 'session lives'");
			unlike($err, qr/server closed|PANIC/, "$point, $name of $table: server stays up");
			if ($rc == 0)
			{
				# extents that are free already need no extension
				is($point, 'undo-extend', "$point, $name of $table: needs no more undo");
			}
			else
			{
				like($err, qr/fault point "$point"/, "$point, $name of $table: an error");
			}
			# in a transaction, in a savepoint: the rest of it continues when
			# there is space again
			($rc, $out, $err) = $node->psql('postgres', qq{
				BEGIN;
				UPDATE $table SET n = n + 100 WHERE id = 1;
				SAVEPOINT s;
				SET LOCAL zundo.fault = '$point:error';
				$sql;
				ROLLBACK TO s;
				UPDATE $table SET n = n + 1000 WHERE id = 2;
				SELECT n FROM $table WHERE id IN (1, 2);
				ROLLBACK;
				SELECT 'session lives';}, on_error_stop => 0);
			unlike($err, qr/server closed|PANIC/, "$point, $name of $table in a savepoint: server stays up");
			like($out, qr/session lives/, "$point, $name of $table in a savepoint: session stays up");
			if ($node->safe_psql('postgres', "$state $table") ne $before)
			{
				# the statement succeeded without new undo: delete its rows
				$node->safe_psql('postgres', "TRUNCATE $table; INSERT INTO $table SELECT g, 0, repeat('x', 200) FROM generate_series(1, 20000) g");
			}
			is($node->safe_psql('postgres', "$state $table"), $before, "$point, $name of $table: all rows as before");
		}
		is($node->safe_psql('postgres', "SELECT * FROM zundo.check('$table')"), '', "$point: zundo.check of $table");
	}
}
# the limit that an administrator sets works in the same way
$node->safe_psql('postgres', q{ALTER SYSTEM SET zundo.undo_limit = '1MB'});
$node->reload;
my ($rc, $out, $err) = $node->psql('postgres', q{BEGIN; UPDATE t SET n = n + 1, filler = md5(id::text) || md5(n::text) || repeat('q', 130); COMMIT});
isnt($rc, 0, 'undo_limit: a large transaction fails');
like($err, qr/zundo\.undo_limit/, 'undo_limit: the message names the setting');
$node->safe_psql('postgres', q{ALTER SYSTEM RESET zundo.undo_limit});
$node->reload;
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM zundo.stat_rollback}), 'all is rolled back');
is($node->safe_psql('postgres', "$state t"), '20000|0|200010000|4000000', 'all rows as before');
$node->safe_psql('postgres', 'UPDATE t SET n = n + 1');
is($node->safe_psql('postgres', 'SELECT sum(n) FROM t'), '20000', 'and there is undo again');
is($node->safe_psql('postgres', "SELECT * FROM zundo.check('zundo.undo_log')"), '', 'zundo.check of the undo log');
no_crash($node);
crash($node);
is($node->safe_psql('postgres', 'SELECT sum(n) FROM t'), '20000', 'and after a crash');
$node->stop;
done_testing();
