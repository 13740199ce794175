# Errors where the undo log is loaded, and where it is discarded: what was half done does no harm later.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('undoerrors', <<'C');
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
is($session->query_safe('INSERT INTO u VALUES (1) RETURNING id'), '1', 'then it can, and takes what is written');
is($session->query_safe('UPDATE t SET n = n + 10 WHERE id = 1 RETURNING n'), '10', 'also where undo is read for it');
is($session->query_safe('SELECT sum(n) FROM t'), '10', 'what was rolled back is not seen');
is($node->safe_psql('postgres', 'SELECT sum(n) FROM t'), '10', 'nor by others');
sound($node, '', qw(t zundo.undo_log));
$session->quit;
crash($node);
is($node->safe_psql('postgres', 'SELECT sum(n) FROM t'), '10', 'nor after a crash');
sound($node, 'after a crash', qw(t zundo.undo_log));
no_crash($node);
$node->stop;
done_testing();
