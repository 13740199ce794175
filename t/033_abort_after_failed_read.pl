# A transaction aborts because a page cannot be read. From 16 on the buffer is
# still marked as being read by this backend when the abort callback runs, so
# waiting for it would never end. The callback must not read that page again; it
# undoes the other pages.
# Rules: ABORT-7.
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
	my $blocks = 0;
	for (my $block = $first; sysseek($f, $block * 8192, 0) && sysread($f, my $page, 8192) == 8192; $block++)
	{
		next if $page !~ /[^\0]/;
		sysseek($f, $block * 8192 + 4000, 0);
		syswrite($f, $page =~ /^.{4000}spoilt/s ? 'whole!' : 'spoilt');
		$blocks++;
	}
	print "$blocks blocks are damaged\n";
});

# spoil FILE FIRST: psql commands that write all blocks of the database, take them out of
# shared buffers, and damage those from FIRST on that are in use.
sub spoil
{
	my ($file, $first) = @_;
	my $evict = "SELECT sum(length(pad)) FROM filler WHERE id > 0;\n" x 6;
	return "CHECKPOINT;\nSET enable_seqscan = off;\nSET enable_bitmapscan = off;\n$evict\\! perl $spoiler $data/$file $first\n";
}

# ends NAME SCRIPT: checks that the session of the script ends in time although a page
# cannot be read. The script is run again if the page was still in shared buffers.
sub ends
{
	my ($name, $script) = @_;
	my ($rc, $out, $err);
	my $timed_out = 0;
	for (1 .. 5)
	{
		($rc, $out, $err) = $node->psql('postgres', $script, on_error_stop => 0, timeout => $PostgreSQL::Test::Utils::timeout_default, timed_out => \$timed_out);
		last if $timed_out || $err ne '';
		note "no page was read from disk: $out";
	}
	ok(!$timed_out, "$name: the transaction ends");
	like($err, qr/invalid page in block/, "$name: ... with the error of the page") or diag "output: $out";
	if ($timed_out)
	{
		$node->stop('immediate');
		done_testing();
		exit 1;
	}
}

for my $save ('', 'SAVEPOINT s; ')
{
	my $from = -s $node->logfile;
	# a page of the table, which the transaction has changed
	$node->safe_psql('postgres', 'DROP TABLE IF EXISTS t; CREATE TABLE t (id int, n int) USING zheap; INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) g');
	my $file = $node->safe_psql('postgres', q{SELECT pg_relation_filepath('t')});
	ends("table, $save", "BEGIN; $save UPDATE t SET n = 1;\n" . spoil($file, 0) . 'SELECT count(*) FROM t; ROLLBACK;');
	is($node->safe_psql('postgres', 'SELECT 1'), '1', 'the server continues');
	like(slurp_file($node->logfile, $from), qr/could not immediately undo .*: block 0 of file \d+ cannot be read after a read has failed/, 'the log tells')
	  if server_major() == 17;    # 15 and 18 end the read before the callback
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
			"SET effective_io_concurrency = 64;\n$evict SELECT count(1 / (id - $fails)) FROM filler; ROLLBACK;", on_error_stop => 0, timeout => $PostgreSQL::Test::Utils::timeout_default);
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
is($node->safe_psql('postgres', 'SELECT 1'), '1', 'the server continues after damage of the undo log');

# Another process has locked a page that the abort would undo, and waits for the read that
# has failed (ABORT-7).
$node->append_conf('postgresql.conf', "zundo.eager_rollback_pages = 64\nmax_worker_processes = 0");
$node->restart;
$node->safe_psql('postgres', 'CREATE DATABASE two');
$node->safe_psql('two', q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int PRIMARY KEY, n int) USING zheap WITH (fillfactor = 90);
	INSERT INTO t SELECT g, 0 FROM generate_series(1, 10000) g;
	CREATE TABLE filler AS SELECT g AS id, repeat('x', 1000) AS pad FROM generate_series(1, 2000) g;
	ALTER TABLE filler ADD PRIMARY KEY (id)});
$undo = $node->safe_psql('two', q{SELECT pg_relation_filepath('zundo.undo_log')});
$node->safe_psql('two', 'UPDATE t SET n = 1');
my ($first, $second, $third) = map { $node->background_psql('two', on_error_stop => 0) } 1 .. 3;
$first->query_safe('BEGIN');
$first->query_safe('UPDATE t SET n = 2 WHERE id = 9998');
$second->query_safe('SET zundo.eager_rollback_pages = 0');
$second->query_safe('BEGIN');
$second->query_safe('UPDATE t SET n = 3 WHERE id = 9999');
# its last undo page stays pinned, so the page that is read must be another one
$second->query_safe('UPDATE t SET n = 3 WHERE id < 5000');
$third->query_until(qr/begun/, "\\echo begun\nUPDATE t SET n = 4 WHERE id = 9999;\n\\echo ended\n");
$node->poll_query_until('two', 'SELECT count(*) = 1 FROM pg_locks WHERE NOT granted');
my $from = -s $node->logfile;
$first->query_until(qr/begun/, spoil($undo, 8) .
	"SET zundo.fault = 'abort-page:sleep';\n\\echo begun\nSELECT n FROM t WHERE id = 9999;\n\\echo ended\n");
# the rollback must follow within a second
for (1 .. 50 * $PostgreSQL::Test::Utils::timeout_default)
{
	last if slurp_file($node->logfile, $from) =~ /ERROR:  invalid page in block/;
	select(undef, undef, undef, 0.02);
}
$second->query_safe('ROLLBACK');
ok(eval { $first->query_until(qr/ended/, '') }, 'an abort does not wait for the page');
ok(eval { $third->query_until(qr/ended/, '') }, '... which another process has locked that waits for the read');
is(scalar(() = slurp_file($node->logfile, $from) =~ /ERROR:  invalid page in block/g), 2, '... and gets the same error');
like(slurp_file($node->logfile, $from), qr/could not immediately undo .*: block \d+ of file \d+ is locked by another process/, 'the log tells')
  if server_major() == 17;    # 15 and 18 end the read before the callback
is($node->safe_psql('two', 'SELECT count(*) FROM filler'), '2000', 'the server continues');
$node->stop('immediate');
done_testing();
