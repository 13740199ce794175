# ./zundo compare without options: heap's table grows, zheap's does not, at any
# speed of the machine; and what the page says about it: growth first, and nothing
# that was not judged.
# long
use strict;
use warnings;
use File::Basename;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $bench = dirname(__FILE__) . '/../bench';
my ($python) = grep { -x } '/usr/bin/python3', '/usr/local/bin/python3';
plan skip_all => 'needs python3' if !$python;
$ENV{PYTHONDONTWRITEBYTECODE} = 1;

# Returns the value of an expression of python, in which the modules of bench/ are
# imported.
sub python
{
	my ($expression) = @_;
	my ($out, $err);
	IPC::Run::run([$python, '-c', "import sys; sys.path.insert(0, '$bench'); import report, page; print($expression)"],
		'>', \$out, '2>', \$err) or diag $err;
	chomp $out;
	return $out;
}

# verdicts of a figure of 3 or 1 rounds on a busy or an idle machine
for my $form ('us', 'ms', 'number')
{
	my $metric = "report.Metric('k', 'l', '$form', report.ratio_at_most(1.0))";
	for (['[[2, 2, 2], [1, 1, 1]]', 'True', 0.5, 'reached'], ['[[2, 2, 2], [1, 3, 1]]', 'True', 0.0, 'too noisy to judge'],
		['[[1, 1, 1], [2, 2, 2]]', 'False', 0.5, 'too noisy to judge'], ['[[1, 1, 1], [2, 2, 2]]', 'False', 0.0, 'MISSED'],
		['[[2], [1]]', 'True', 0.5, 'too noisy to judge'], ['[[2], [1]]', 'True', 0.0, 'reached'])
	{
		my ($values, $reached, $others, $verdict) = @$_;
		is(python("report.judge($metric, $values, $reached, {'others': $others})"), $verdict, "$form, $values, others $others: $verdict");
	}
	is(python("report.judge($metric, [[2], [1]], True, {'assertions': True})"), 'not judged: built with assertions',
		"$form: not judged on a server with assertions");
}
is(python("report.judge(report.Metric('k', 'l', 'bytes', report.ratio_at_most(1.0)), [[1], [2]], False, {'others': 1, 'assertions': True})"),
	'MISSED', 'bytes are always judged');

# the default run
my ($postgres) = grep { -x } map { "$_/postgres" } split(/:/, $ENV{PATH});
my $folder = PostgreSQL::Test::Utils::tempdir();
my ($out, $err);
ok(IPC::Run::run([$python, "$bench/compare.py", '--bindir', dirname($postgres), '--rounds', 1, '--results', $folder], '>', \$out, '2>', \$err),
	'compare.py succeeds') or diag $err;
my $results = decode_json(slurp_file("$folder/compare.json"));
is(join(' ', keys %{ $results->{workloads} }), 'W0', 'workload W0 by default');
my $rows = $results->{workloads}{W0}{table};
my %row = map { $_->{key} => $_ } @$rows;
cmp_ok($row{table_times}{values}{heap}, '>=', 5, "heap's table grows 5 times or more");
cmp_ok($row{table_times}{values}{zheap}, '<', 1.005, "zheap's table does not grow");
is($row{$_}{verdict}, 'reached', $_) for qw(table_times index_times snapshot_kept nothing_lost wal_without_images);
my ($sentence) = $out =~ /^(100,000 random updates .*)$/m;
like($sentence, qr/^100,000 random updates of 20,000 rows beside an open transaction\. The table grew to [5-7]\.\d+ times its size with heap, /,
	'growth comes first');
for (grep { $_->{key} !~ /^table_times$/ } @$rows)
{
	my $judged = $_->{verdict} =~ /^(reached|MISSED)$/;
	my $is_said = $sentence =~ /[:;.] \Q$_->{label}\E( \(|[;.])/;
	ok($judged ? $is_said : !$is_said, "$_->{label}: " . ($judged ? 'in the sentence' : 'not judged, not in the sentence'));
}
my $html = slurp_file("$folder/compare.html");
like($html, qr/A goal is a bound that zundo&#8217;s developers/, 'the page says whose the goals are');
unlike($html, qr/<script|(?:src|href)=/, 'no scripts, and nothing from elsewhere');
SKIP:
{
	skip 'needs python3-pygal', 2 if system($python, '-c', 'import pygal') != 0;
	is(() = $html =~ /<svg /g, 7, 'seven pictures');
	cmp_ok(index($html, '<svg '), '<', index($html, '<table'), 'pictures come before the table');
}
done_testing();
