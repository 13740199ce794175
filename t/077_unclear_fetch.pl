# Fetches with SnapshotAny for which no rule says which version of the row is
# wanted (ANY-5 in mvcc/zany.c). A fetch by TID, as for a trigger, raises an
# error that names the caller; a scan of an index gets the newest version. Both
# are counted.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('unclear');
$node->safe_psql('postgres', q{
	CREATE EXTENSION zundo;
	CREATE EXTENSION zundo_test;
	CREATE TABLE t (id int PRIMARY KEY, n int) USING zheap;
	INSERT INTO t VALUES (1, 10);
	CREATE ROLE visitor});
my $counted = 'SELECT unclear_answered, unclear_refused FROM zundo.stat_database WHERE datname = current_database()';
is($node->safe_psql('postgres', $counted), '0|0', 'nothing unclear yet');

# (0,2) is made after the snapshot, by another
my $old = $node->background_psql('postgres', on_error_stop => 0);
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t');
$node->safe_psql('postgres', 'INSERT INTO t VALUES (2, 20); UPDATE t SET n = 11 WHERE id = 1');

sub fetched
{
	my ($sql, $pattern, $name) = @_;
	$old->{stderr} = '';
	$old->query_safe('SAVEPOINT s');
	my $out = $old->query($sql);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like($out . $old->{stderr}, $pattern, $name);
	$old->{stderr} = '';
	$old->query('ROLLBACK TO s');
	return;
}
my $unclear = qr/ERROR: +cannot determine which version of row \(0,2\) of relation "t" is requested/;
fetched(q{SELECT zundo_test_fetch_any('t', '(0,1)')}, qr/^1$/m, 'a row that the snapshot sees is found (ANY-3)');
fetched(q{SELECT zundo_test_fetch_any('t', '(0,2)')}, qr/$unclear.*DETAIL: +The row was requested by a trigger, or a query/s, 'another one is not, in a query');
fetched(q{DO $$ DECLARE x text; BEGIN x := zundo_test_fetch_any('t', '(0,2)'); END $$}, qr/$unclear.*DETAIL: +The row was requested by a trigger or a command outside of any query/s,
	'nor outside of a query');
fetched(q{SELECT zundo_test_fetch_any('t', '(0,9)')}, qr/^$/, 'no row, no error');
fetched(q{INSERT INTO t VALUES (3, 30); SELECT zundo_test_fetch_any('t', '(0,3)')}, qr/^3$/m, "the transaction's own row is found");
fetched(q{SELECT zundo_test_scan_any('t', 't_pkey')}, qr/^2$/m, 'a scan of an index finds what the snapshot does not see');
$old->quit;
is($node->safe_psql('postgres', "SET ROLE visitor; $counted"), '1|2', 'all is counted; the view is for everybody');
sound($node, '', 't');
no_crash($node);
done_testing();
