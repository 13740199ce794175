# A transaction that ends because a page cannot be read rolls back what it can
# without reading that page again, and ends: the buffer is still marked as being
# read by this very backend when the abort callback runs (16 and later), so
# waiting for it would not end.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('failedread', "shared_buffers = 512kB\nautovacuum = off\n", extra => ['--data-checksums']);
$node->safe_psql('postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE filler (id int PRIMARY KEY, pad text);
	INSERT INTO filler SELECT g, repeat('x', 1000) FROM generate_series(1, 2000) g});
my $data = $node->data_dir;
my $spoiler = $node->basedir . '/spoil.pl';
append_to_file($spoiler, q{
	my ($file, $first) = @ARGV;
	open my $f, '+<', $file or die $!;
	binmode $f;
	for (my $block = $first; sysseek($f, $block * 8192, 0) && sysread($f, my $page, 8192) == 8192; $block++)
	{
		next if $page !~ /[^\0]/;
		sysseek($f, $block * 8192 + 4000, 0);
		syswrite($f, $page =~ /^.{4000}spoilt/s ? 'whole!' : 'spoilt');
	}
});

# spoil FILE FIRST: psql commands that write all blocks of the database, take them out of shared buffers, and damage those from
# FIRST on that are in use.
sub spoil
{
	my ($file, $first) = @_;
	my $evict = "SELECT sum(length(pad)) FROM filler WHERE id > 0;\n" x 6;
	return "CHECKPOINT;\nSET enable_seqscan = off;\nSET enable_bitmapscan = off;\n$evict\\! perl $spoiler $data/$file $first\n";
}

# ends NAME SCRIPT: the script's session ends in time, after a page that cannot be read.
sub ends
{
	my ($name, $script) = @_;
	my $timed_out = 0;
	my ($rc, $out, $err) = $node->psql('postgres', $script, on_error_stop => 0, timeout => 60, timed_out => \$timed_out);
	ok(!$timed_out, "$name: the transaction ends");
	like($err, qr/invalid page in block/, "$name: ... with the error of the page");
	if ($timed_out)
	{
		$node->stop('immediate');
		done_testing();
		exit 1;
	}
}

for my $save ('', 'SAVEPOINT s; ')
{
	# a page of the table, which the transaction has changed
	$node->safe_psql('postgres', 'DROP TABLE IF EXISTS t; CREATE TABLE t (id int, n int) USING zheap; INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) g');
	my $file = $node->safe_psql('postgres', q{SELECT pg_relation_filepath('t')});
	ends("table, $save", "BEGIN; $save UPDATE t SET n = 1;\n" . spoil($file, 0) . 'SELECT count(*) FROM t; ROLLBACK;');
	is($node->safe_psql('postgres', 'SELECT 1'), '1', 'the server goes on');
	$node->safe_psql('postgres', 'DROP TABLE t');
}

# 18: the scan that fails has reads under way that occupy all handles for asynchronous I/O
if (server_major() >= 18)
{
	$node->append_conf('postgresql.conf', 'io_max_concurrency = 1');
	$node->restart;
	$node->safe_psql('postgres', 'CREATE TABLE t (id int, n int) USING zheap; INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) g');
	my $evict = "SELECT sum(length(pad)) FROM filler WHERE id > 0;\n" x 6;
	for my $fails (300, 900, 1500)
	{
		my ($rc, $out, $err) = $node->psql('postgres', "BEGIN; UPDATE t SET n = $fails;\nCHECKPOINT; SET enable_indexscan = off; SET enable_bitmapscan = off;\n" .
			"SET effective_io_concurrency = 64;\n$evict SELECT count(1 / (id - $fails)) FROM filler; ROLLBACK;", on_error_stop => 0, timeout => 60);
		like($err, qr/division by zero/, "$fails: the scan fails");
	}
	is($node->safe_psql('postgres', 'SELECT sum(n), count(*) FROM t'), '0|100', 'nothing of these transactions is seen');
	$node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback');
	is($node->safe_psql('postgres', 'SELECT sum(n), count(*) FROM t'), '0|100', 'nor when all is rolled back');
	no_crash($node);
	$node->safe_psql('postgres', 'DROP TABLE t');
}

# pages of the undo log: an older version is read in the transaction that wrote it
$node->safe_psql('postgres', 'CREATE TABLE t (id int, n int) USING zheap; INSERT INTO t SELECT g, 0 FROM generate_series(1, 10000) g');
my $undo = $node->safe_psql('postgres', q{SELECT pg_relation_filepath('zundo.undo_log')});
ends('undo', "BEGIN; DECLARE c CURSOR FOR SELECT * FROM t; UPDATE t SET n = n + 1;\n" . spoil($undo, 8) . 'FETCH ALL FROM c; ROLLBACK;');
is($node->safe_psql('postgres', 'SELECT 1'), '1', 'the server goes on after damage of the undo log');
$node->stop('immediate');
done_testing();
