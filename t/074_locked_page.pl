# A writer looks at the slots of a locked page and then reads the undo records
# to which they point. In between, undo of a committed transaction is discarded
# and its space reused. A record that has disappeared in this way means that the
# change is visible to all; it is not damage.
# Rules: VIS-1.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('locked_page', "max_worker_processes = 0\nzundo.undo_compression = none\n");
sql('CREATE EXTENSION zundo');
sql(q{CREATE TABLE t (id int PRIMARY KEY, v int, k int) USING zheap;
	CREATE INDEX ON t (k);
	CREATE TABLE big (id int, v text) USING zheap;
	INSERT INTO big SELECT g, repeat(md5(g::text), 20) FROM generate_series(1, 3000) g});

# beside CHANGE POINT STATEMENT NAME: the undo of CHANGE is needed until STATEMENT sleeps
# at the fault point, and discarded when it wakes up.
sub beside
{
	my ($change, $point, $statement, $name) = @_;
	my $old = $node->background_psql('postgres', on_error_stop => 1);
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t');
	sql($change, 'UPDATE big SET v = reverse(v);', 'UPDATE big SET v = reverse(v);');
	$session->query_safe('SET enable_seqscan = off; SET enable_bitmapscan = off');
	$session->query_until(qr/begun/, "\\echo begun\nSET zundo.fault = '$point';\n$statement;\n\\echo done\n");
	# it sleeps for a second
	select(undef, undef, undef, 0.2);
	$old->query_safe('COMMIT; SELECT zundo.discard(); ' . 'UPDATE big SET v = reverse(v);' x 5);
	$session->query_until(qr/done/, '');
	unlike($session->{stderr}, qr/ERROR/, $name);
	$_->quit for $old, $session;
	sound($node, $name, 't');
	return;
}

sql('INSERT INTO t SELECT g, 0, g FROM generate_series(1, 5) g; SELECT zundo.discard()');
beside('UPDATE t SET v = 1 WHERE id = 1;', 'locked-chain:sleep:2', 'BEGIN ISOLATION LEVEL SERIALIZABLE; UPDATE t SET v = v + 1 WHERE id = 1; COMMIT',
	'an update of a serializable transaction');
is(sql('SELECT v FROM t WHERE id = 1'), 2, 'the update was made once');

# index entries of rows that have moved
sql('TRUNCATE t; INSERT INTO t SELECT g, 0, g FROM generate_series(1, 360) g; SELECT zundo.discard()');
beside('UPDATE t SET k = k + 1;', 'deleters-chain:sleep:1', 'UPDATE t SET k = k + 1', 'deletion from an index');
is(sql('SELECT count(*), sum(k) FROM t WHERE id > 0'), '360|65700', 'the updates were made once');
no_crash($node);
done_testing();
