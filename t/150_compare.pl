# ./zundo compare without options: heap's tables grow, zheap's do not or less, at any
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
	IPC::Run::run([$python, '-c', "import sys; sys.path.insert(0, '$bench'); import compare, page, report; print($expression)"],
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

# rounds of 25, 40 and 80 s within 75 s
for ([ 0, 0, 'True' ], [ 1, 25, 'True' ], [ 2, 50, 'True' ], [ 2, 51, 'False' ], [ 1, 40, 'False' ], [ 1, 80, 'False' ])
{
	my ($rounds, $passed, $fits) = @$_;
	is(python("compare.fits($rounds, $passed, 75)"), $fits, "a round after $rounds of $passed s within 75 s: $fits");
}

# the lines of memory that sessions take from each other
my $folder = PostgreSQL::Test::Utils::tempdir();
my ($lines, $errors);
SKIP:
{
	skip 'for Linux on x86-64', 1 if qx(uname -sm) !~ /^Linux x86_64/;
	IPC::Run::run([$python, "$bench/compare.py", '--bindir', dirname((grep { -x } map { "$_/postgres" } split(/:/, $ENV{PATH}))[0]),
		'--shared-lines', 'select', '--transactions', 5, '--results', $folder], '>', \$lines, '2>', \$errors);
	like($lines, qr{^\| all \| \d+\.\d / \d+\.\d \|$}m, 'shared lines are counted') or diag $errors;
}

# the default run
my ($postgres) = grep { -x } map { "$_/postgres" } split(/:/, $ENV{PATH});
my ($out, $err);
ok(IPC::Run::run([$python, "$bench/compare.py", '--bindir', dirname($postgres), '--rounds', 1, '--results', $folder], '>', \$out, '2>', \$err),
	'compare.py succeeds') or diag $err;
my $results = decode_json(slurp_file("$folder/compare.json"));
is(join(' ', sort keys %{ $results->{workloads} }), 'D DQ W0', 'workloads W0, D and DQ by default');

# rows WORKLOAD: returns the rows of its table by their keys.
sub rows { return map { $_->{key} => $_ } @{ $results->{workloads}{ $_[0] }{table} } }

my %row = rows('W0');
cmp_ok($row{table_times}{values}{heap}, '>=', 5, "heap's table grows 5 times or more");
cmp_ok($row{table_times}{values}{zheap}, '<', 1.005, "zheap's table does not grow");
is($row{$_}{verdict}, 'reached', $_) for qw(table_times index_times snapshot_kept nothing_lost wal_without_images);
%row = rows('D');
cmp_ok($row{toast_times}{values}{heap}, '>=', 3.9, "heap's TOAST table grows 4 times");
cmp_ok($row{toast_times}{values}{zheap}, '<', 1.05, "zheap's hardly grows");
cmp_ok($row{toast_index}{values}{$_}, '>', 500000, "an entry for each chunk: $_") for qw(heap zheap);
is($row{$_}{verdict}, 'reached', "D: $_") for qw(alone_times snapshot_kept nothing_lost);
%row = rows('DQ');
cmp_ok($row{table_times}{values}{heap}, '>=', 12, "heap's queue grows");
cmp_ok($row{backlog}{values}{$_}, '==', 1000, "jobs that wait: $_") for qw(heap zheap);
is($row{$_}{verdict}, 'reached', "DQ: $_") for qw(table_times snapshot_kept nothing_lost);
my @said = ('100,000 random updates of 20,000 rows beside an open transaction\. The table grew to [5-7]\.\d+ times its size with heap, ',
	'The TOAST table grew to [34]\.\d+ times its size with heap, to 1\.0\d times its size with zheap', 'A queue .* The table grew to [\d.]+ times its size with heap, ',
	'zheap reaches \d+ of \d+ goals');
my $said = join('.*', @said);
like($out, qr/^$said/m, 'what has grown comes first');
my $html = slurp_file("$folder/compare.html");
for my $workload (qw(W0 D DQ))
{
	my ($sentence) = $html =~ m{<h2 id='$workload'>.*?<p class=claim>(.*?)</p>}s;
	$sentence =~ s/&#x27;/'/g;
	like($sentence, qr/^The (TOAST )?table grew to \d+\.\d+ times its size with heap, /, "$workload: growth comes first");
	for (grep { $_->{key} !~ /^(table|toast)_times$/ } @{ $results->{workloads}{$workload}{table} })
	{
		my $judged = $_->{verdict} =~ /^(reached|MISSED)$/;
		my $is_said = $sentence =~ /[:;.] \Q$_->{label}\E( \(|[;.])/;
		ok($judged ? $is_said : !$is_said, "$workload, $_->{label}: " . ($judged ? 'in the sentence' : 'not judged, not in the sentence'));
	}
}
like($html, qr/A goal is a bound that zundo&#8217;s developers/, 'the page says whose the goals are');
unlike($html, qr/<script|(?:src|href)=/, 'no scripts, and nothing from elsewhere');
SKIP:
{
	skip 'needs python3-pygal', 3 if system($python, '-c', 'import pygal') != 0;
	my @pictures = $html =~ m{<svg .*?</svg>}gs;
	is(@pictures, 24, 'pictures of all three');
	my $within = grep { m{viewBox="0 0 \d+ (\d+)".*translate\(\d+, (\d+)\)" class="legends"}s && $2 + 14 <= $1 } @pictures;
	is($within, 24, 'their legends are within them');
	like($html, qr{^(?:(?!<table).)*<svg }s, 'pictures come before all tables');
}
done_testing();
