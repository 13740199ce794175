# zundo.stat_horizon says how much undo each holder keeps: what goes when one ends is
# compared with what the view has said, in random cases.
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $seed = $ENV{ZUNDO_RANDOM_SEED} // time();
srand($seed);
note("seed $seed");
my $node = zundo_node('bytes_kept', "max_prepared_transactions = 5\n");
sql(q(
	CREATE EXTENSION zundo;
	CREATE TABLE z (id int PRIMARY KEY, pad text) USING zheap;
	CREATE TABLE own (id int PRIMARY KEY, n int) USING zheap;
	INSERT INTO z SELECT g, repeat(md5(g::text), 3) FROM generate_series(1, 20000) g;
	INSERT INTO own SELECT g, 0 FROM generate_series(1, 5) g));

# `oldest` has reached what the first row needs, and what is before it is discarded
my $settled = q{SELECT pg_catalog.xid(max(u.oldest_xid)) = (SELECT xid FROM zundo.stat_horizon LIMIT 1) FROM zundo.stat_undo u};
my @writers = map { $node->background_psql('postgres') } 1 .. 3;

# write_undo: has some writers make from 0.5 to 3 MB of undo.
sub write_undo
{
	for (1 .. 1 + int(rand(2)))
	{
		my $writer = $writers[int(rand(@writers))];
		my $from = 1 + int(rand(8000));
		my $to = $from + 8000 + int(rand(4000));
		$writer->query_safe("UPDATE z SET pad = md5(random()::text) || substr(pad, 33) WHERE id BETWEEN $from AND $to");
		$writer->query_safe(q{DO $$ BEGIN FOR i IN 1 .. 200 LOOP UPDATE z SET pad = md5(pad) || substr(pad, 33) WHERE id = i; COMMIT; END LOOP; END $$})
			if rand() < 0.3;
	}
	return;
}

# hold N: begins the transaction of holder N and returns (name of its row, how to end it).
sub hold
{
	my ($n) = @_;
	my $kind = int(rand(3));
	if ($kind == 0)
	{
		sql("BEGIN; UPDATE own SET n = n + 1 WHERE id = $n; PREPARE TRANSACTION 'holder $n'");
		return ("holder $n", sub { sql((rand() < 0.5 ? 'COMMIT' : 'ROLLBACK') . " PREPARED 'holder $n'") });
	}
	my $session = $node->background_psql('postgres');
	$session->query_safe("SET application_name = 'holder $n'");
	$session->query_safe($kind == 1 ? 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM own' :
			"BEGIN; UPDATE own SET n = n + 1 WHERE id = $n");
	return ("holder $n", sub { $session->query_safe('ROLLBACK'); $session->quit });
}

# near A B NAME: tests that the numbers of bytes differ by at most 10 %, or 64 kB.
sub near
{
	my ($a, $b, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(abs($a - $b) <= 65536 + 0.1 * ($a > $b ? $a : $b), "$name: $a, $b");
	return;
}

for my $case (1 .. 20)
{
	my %end;
	for my $n (1 .. 2 + int(rand(3)))
	{
		my ($name, $end) = hold($n);
		$end{$name} = $end;
		write_undo();
	}
	ok($node->poll_query_until('postgres', $settled), "case $case: settled");
	# the oldest one more often than others
	my @names = split /\n/, sql(q(SELECT substring(name FROM 'holder \d') FROM zundo.stat_horizon WHERE name ~ 'holder'));
	my $name = $names[rand() < 0.6 ? 0 : int(rand(@names))];
	my $said = sql("SELECT bytes FROM zundo.stat_horizon WHERE name ~ '$name'");
	my $before = sql('SELECT zundo.undo_bytes_in_use()');
	$end{$name}->();
	ok($node->poll_query_until('postgres', $settled), '... settled again');
	my $left = sql('SELECT zundo.undo_bytes_in_use()');
	near($before - $left, $said, '... bytes discarded, and said before');
	near($left, sql('SELECT bytes_kept FROM zundo.stat_horizon LIMIT 1'), '... bytes left, and kept by the first holder');
	delete $end{$name};
	$_->() for values %end;
	ok(all_discarded($node), '... and all goes');
}

$_->quit for @writers;
no_crash($node);
done_testing();
