# docs/operations.md, "When WAL is lost": pg_resetwal after a crash. Zheap
# pages with transaction ids of the future are reported, and the steps described
# there rescue all rows that are readable.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('lostwal', <<'C', extra => ['--data-checksums']);
shared_buffers = 2MB
checkpoint_timeout = 1h
restart_after_crash = off
C
$node->safe_psql('postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE h (id int, v int, pad text);
	CREATE TABLE t (id int PRIMARY KEY, v int, pad text) USING zheap;
	INSERT INTO h SELECT g, 0, repeat('x', 200) FROM generate_series(1, 10000) g;
	INSERT INTO t SELECT * FROM h;
	CHECKPOINT});
my $open = $node->background_psql('postgres');
$open->query_safe('BEGIN; UPDATE t SET v = v + 1000 WHERE id % 7 = 0 AND id < 3000');
$node->safe_psql('postgres', q{
	DO $$ BEGIN FOR i IN 0 .. 29 LOOP UPDATE t SET v = v + 1 WHERE id % 50 = i AND id > 3000; COMMIT; END LOOP; END $$});
# with few shared buffers most pages have been written; WAL is lost
$node->stop('immediate');
eval { $open->quit };

# reset OPTION...: runs pg_resetwal and starts the server.
sub reset_wal
{
	$node->command_ok([ 'pg_resetwal', '-f', @_, '-D', $node->data_dir ], "pg_resetwal @_");
	$node->start;
	return;
}

# rescue: runs the steps of the document for table t.
sub rescue
{
	my ($when) = @_;
	my $text = slurp_file("$FindBin::RealBin/../docs/operations.md");
	my ($sql) = $text =~ /```sql\n(CREATE TABLE rescued.*?)```/s or die 'no example in docs/operations.md';
	$node->safe_psql('postgres', 'DROP TABLE IF EXISTS rescued');
	$node->safe_psql('postgres', "SET client_min_messages = error;\n$sql");
	return $node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM rescued');
}

# Without the next transaction id, pages from the future are refused and nothing else is.
reset_wal();
my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT sum(v) FROM t");
like($err, qr/XX001|55000/, 'with a next transaction id of the past, zheap pages from the future are reported');
my ($rows, $ids) = split /\|/, rescue();
cmp_ok($rows, '>', 0, "what can be read is rescued: $rows rows");
is($rows, $ids, '... each once');
is($node->safe_psql('postgres', 'SELECT count(*) FROM h'), '10000', 'a heap table is readable');
$node->stop('immediate');

# With the next transaction id that pg_resetwal is given.
reset_wal('-x', 1048576);
$node->safe_psql('postgres', 'SELECT * FROM zundo.repair_undo(dry_run => false)');
$node->psql('postgres', "SELECT * FROM zundo.check('t')");
$node->psql('postgres', "SELECT * FROM zundo.check('zundo.undo_log')");
($rows, $ids) = split /\|/, rescue();
# which pages had been written out at the crash is not the same each time
cmp_ok($rows, '>', 8000, "with the next transaction id given, nearly every row is rescued: $rows");
is($rows, $ids, '... each once');
is($node->safe_psql('postgres', 'CREATE TABLE again (LIKE t) USING zheap; INSERT INTO again SELECT * FROM rescued; UPDATE again SET v = 0; SELECT count(*) FROM again'),
	$rows, 'and zheap tables can be written');
$node->command_ok([ 'pg_dump', '-f', $node->basedir . '/dump.sql', '-t', 'rescued', $node->connstr('postgres') ], 'it can be dumped');
no_crash($node);
$node->stop('immediate');
done_testing();
