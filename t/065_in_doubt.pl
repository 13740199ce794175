# Transactions whose undo may be lost: before a process treats a slot as older
# than `oldest`, it looks up the transaction in the commit log, however long the
# transaction was open, and as long as the commit log has it. Pages that could
# not be read once do not count as unused.
# Rules: CHAIN-11.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node;

sub error_of
{
	my ($sql) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', $sql);
	return $rc == 0 ? "no error: $out" : $err;
}

sub undo_path { return $node->data_dir . '/' . sql(q{SELECT pg_relation_filepath('zundo.undo_log')}) }

# 1. The last page of a log is as it was before a transaction that was open at the
# crash, one and a half million transactions later.
$node = zundo_node('doubt', "max_worker_processes = 0\nfsync = off\n", no_data_checksums => 1);
sql(q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int, n int, f text) USING zheap;
	CREATE TABLE o (id int) USING zheap;
	CREATE TABLE im (id int, n int) USING zheap;
	CREATE TABLE older (id int, n int) USING zheap;
	INSERT INTO t SELECT g, g, repeat('x', 50) FROM generate_series(1, 100) g;
	INSERT INTO im SELECT g, 0 FROM generate_series(1, 10) g;
	INSERT INTO older SELECT * FROM im});
sql('SELECT zundo.discard()') for 1 .. 2;
sql('INSERT INTO o SELECT g FROM generate_series(1, 3) g');
my $reader = $node->background_psql('postgres');
$reader->query_safe('SELECT count(*) FROM t');
sql('INSERT INTO o SELECT 5');
sql('CHECKPOINT');
my $path = undo_path();
my %image_path = map { $_ => $node->data_dir . '/' . sql("SELECT pg_relation_filepath('$_')") } qw(im older);
my %before;
for my $block (0 .. (-s $path) / 8192 - 1)
{
	my $bytes = read_block($path, $block);
	$before{$block} = $bytes if unpack('S<', substr($bytes, 36, 2)) == 0x7A75;
}
my $writer = $node->background_psql('postgres');
$writer->query_safe('BEGIN; DELETE FROM t WHERE id = 1; UPDATE t SET n = 7777 WHERE id = 2');
my $xid = sql('SELECT max(backend_xid::text::int) FROM pg_stat_activity');
sql('CHECKPOINT');
$node->stop('immediate');
$_->quit for $reader, $writer;
write_block($path, $_, $before{$_}) for keys %before;
# a page image of 600000 generations ago, which is not needed, and one of 2 ** 20 generations less a few hundred, whose
# pointer looks like one from after a write of the map that was lost
my %generation = (im => 448577, older => 400);
for my $table (keys %generation)
{
	my $bytes = read_block($image_path{$table}, 0);
	substr($bytes, 8192 - 16, 8) = pack('Q<', ($generation{$table} << 44) | 64);
	write_block($image_path{$table}, 0, $bytes);
}
append_to_file($node->data_dir . '/pg_xact/0001', "\0" x 262144);
command_ok([ 'pg_resetwal', '-f', '-x', $xid + 1500000, $node->data_dir ], 'many transactions later');
$node->start;
sql('INSERT INTO o SELECT 2');
sql('SELECT zundo.discard(); SELECT pg_current_xact_id()') for 1 .. 4;
like(error_of('SELECT count(*) FROM t'), qr/whose undo is lost|cannot|damaged|lost an undo record/, 'what it has changed is reported');
like(error_of('CREATE UNIQUE INDEX ti ON t (n)'), qr/whose undo is lost|lost an undo record/, 'by an index build too');
my $update = $node->background_psql('postgres');
$update->query_safe('BEGIN; UPDATE im SET n = 1 WHERE id = 2');
is(sql('SELECT sum(n) FROM im'), '0', 'a very old image is no damage');
$update->query_safe('UPDATE older SET n = 1 WHERE id = 2');
is(sql('SELECT sum(n) FROM older'), '0', 'nor is an even older one');
$update->quit;
$node->stop('immediate');

# 2. An overflow page that cannot be read correctly for a while keeps its owner.
$node = zundo_node('misread', "max_worker_processes = 0\nmax_prepared_transactions = 200\n", extra => ['--data-checksums']);
sql('CREATE EXTENSION zundo');
for my $table (qw(t u))
{
	sql("CREATE TABLE $table (id int PRIMARY KEY, n int, filler text) USING zheap WITH (fillfactor = 100);
		INSERT INTO $table SELECT i, 0, repeat('x', 60) FROM generate_series(1, 600) i");
}
sub writers { my ($t) = @_; sql(map { ('BEGIN;', "UPDATE $t SET n = n + 1 WHERE id = $_;", "PREPARE TRANSACTION '$t$_';") } 1 .. 64); return }
writers('t');
sql(map { "COMMIT PREPARED 't$_';" } 1 .. 32);
$path = undo_path();
$node->stop;
my @owned = grep {
	my $page = read_block($path, $_);
	unpack('S<', substr($page, 36, 2)) == 0x7A6F
} 0 .. (-s $path) / 8192 - 1;
cmp_ok(scalar(@owned), '>', 0, 'there is an overflow page');
my $good = read_block($path, $owned[0]);
my $bad = $good;
substr($bad, 5000, 1) = chr(ord(substr($bad, 5000, 1)) ^ 1);
write_block($path, $owned[0], $bad);
$node->start;
$node->psql('postgres', q{SELECT * FROM zundo.check('zundo.undo_log')});
write_block($path, $owned[0], $good);
writers('u');
sql('CHECKPOINT');
$node->restart;
ok(read_block($path, $owned[0]) eq $good, 'nobody else was given the page');
is(sql('SELECT count(*), sum(n) FROM t'), '600|32', 'its owner is as before');
$node->stop('immediate');

# 3. The window is older than clog.
$node = zundo_node('wrap', "max_worker_processes = 0\n");
sql(q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int PRIMARY KEY, n int) USING zheap;
	INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) g;
	UPDATE t SET n = 0});
crash($node);
sql('UPDATE t SET n = 1 WHERE id = 1; SELECT pg_current_xact_id()');
for (1 .. 3)
{
	sql('SELECT zundo.discard()');
	select(undef, undef, undef, 1.1);
}
sql('VACUUM (FREEZE)');
$node->stop;
my $first = 2**32 - 40;
append_to_file($node->data_dir . '/pg_xact/0FFF', "\0" x 262144);
command_ok([ 'pg_resetwal', '-x', $first, '-u', $first - 1000, $node->data_dir ], 'nearly an epoch later');
rename $node->data_dir . '/pg_xact/0000', $node->data_dir . '/pg_xact_old' or die $!;	# truncated by then
$node->start;
is(sql('SELECT sum(n) FROM t'), '1', 'rows of transactions that clog has forgotten');
sql('SELECT pg_current_xact_id()') for 1 .. 45;
is(sql('SELECT sum(n) FROM t'), '1', 'and in the next epoch');
is(sql('UPDATE t SET n = n + 1 WHERE id = 2 RETURNING n'), '1', 'they are written');
$node->stop('immediate');
done_testing();
