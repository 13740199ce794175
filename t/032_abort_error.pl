# An error that is raised while the changes of an aborted transaction are undone
# does not replace the error of the transaction itself; the server log has it,
# with the block. This holds also for an apply worker, which aborts before it
# reports its error, and for code that cleans up in a PG_CATCH block.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('aborterror', '', allows_streaming => 'logical');
$node->safe_psql('postgres', 'CREATE DATABASE publisher');
$node->safe_psql('publisher', q{
	CREATE TABLE t (id int PRIMARY KEY);
	CREATE PUBLICATION p FOR TABLE t});
$node->safe_psql('publisher', q{SELECT pg_create_logical_replication_slot('s', 'pgoutput')});
$node->safe_psql('postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int PRIMARY KEY) USING zheap;
	INSERT INTO t VALUES (3)});
my $oid = $node->safe_psql('postgres', q{SELECT 't'::regclass::oid});
my $connection = $node->connstr . ' dbname=publisher';
$node->safe_psql('postgres', "CREATE SUBSCRIPTION s CONNECTION '$connection' PUBLICATION p WITH (create_slot = false, slot_name = s, copy_data = false, enabled = false)");

# reported FAULT: returns what the apply worker logs about a duplicate key.
sub reported
{
	my ($fault) = @_;
	my $size = -s $node->logfile;
	$node->safe_psql('postgres', "ALTER DATABASE postgres SET zundo.fault = '$fault'");
	$node->safe_psql('postgres', 'ALTER SUBSCRIPTION s ENABLE');
	$node->wait_for_log(qr/background worker "logical replication[^"]*" \(PID \d+\) (?:exited|was terminated)/, $size);
	$node->safe_psql('postgres', 'ALTER SUBSCRIPTION s DISABLE');
	$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type LIKE 'logical replication%worker'});
	return slurp_file($node->logfile, $size);
}

$node->safe_psql('publisher', 'BEGIN; INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); INSERT INTO t VALUES (3); COMMIT');
my $log = reported('');
like($log, qr/ERROR: .*(?:\n.*){0,2}"t_pkey"/, 'without a fault the apply worker reports the duplicate key');
for my $fault ('abort-callback:error', 'abort-page:error', 'abort-page:memory')
{
	$log = reported($fault);
	like($log, qr/ERROR: .*(?:\n.*){0,2}"t_pkey"/, "$fault: the apply worker reports the duplicate key");
	like($log, qr/DETAIL: .*\n?.*\(id\)=\(3\)/, "$fault: ... with its detail");
	like($log, qr/could not immediately undo changes of an aborted transaction(?: in block 0 of the table with OID $oid, file \d+)?: .*fault point/,
		"$fault: the log has the other one's message");
	like($log, qr/in block 0 of the table with OID $oid, file \d+: /, "$fault: ... and place") if $fault =~ /page/;
	unlike($log, qr/errstart was not called/, "$fault: the error stack is whole");
}
is($node->safe_psql('postgres', 'SELECT id FROM t'), '3', 'nothing of it is seen');

# in a session: the client gets the error that its statement had, every time;
# then everything continues
for my $fault ('abort-callback:error', 'abort-page:error')
{
	my ($rc, $out, $err) = $node->psql('postgres', qq{
		SET zundo.fault = '$fault';
		DO \$\$ BEGIN RAISE NOTICE 'a message'; END \$\$;
		BEGIN; INSERT INTO t VALUES (10); ROLLBACK;
		BEGIN; INSERT INTO t VALUES (11); SELECT 1 / 0; COMMIT;
		BEGIN; INSERT INTO t VALUES (12); SAVEPOINT s; INSERT INTO t VALUES (13); SELECT 1 / 0; ROLLBACK TO s; INSERT INTO t VALUES (14); ROLLBACK;
		DO \$\$ BEGIN INSERT INTO t VALUES (15); BEGIN INSERT INTO t VALUES (16); RAISE 'inner %', 1 / 0; EXCEPTION WHEN division_by_zero THEN RAISE NOTICE 'caught %', sqlerrm; END; END \$\$;
		DELETE FROM t WHERE id = 15}, on_error_stop => 0);
	is(() = $err =~ /ERROR:  division by zero/g, 2, "$fault: a session gets its own error");
	like($err, qr/caught division by zero/, "$fault: a function too");
}
is($node->safe_psql('postgres', 'SELECT id FROM t'), '3', 'nothing of it is seen either');
$node->safe_psql('postgres', "ALTER DATABASE postgres RESET zundo.fault");
$node->safe_psql('postgres', 'ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s');
sound($node, '', 't');
no_crash($node);
$node->stop;
done_testing();
