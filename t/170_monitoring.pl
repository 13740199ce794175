# The files of monitoring/: each query of the exporter and of the dashboard returns rows to a
# member of pg_monitor, and each metric that the alerts and the dashboard name is in them.
# newest
use strict;
use warnings;
use Cwd qw(abs_path);
use FindBin;
use HTTP::Tiny;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $dir = "$FindBin::RealBin/../monitoring";

# each query has something to show: a snapshot that keeps undo, a rollback that waits
my $node = zundo_node('monitoring', "zundo.eager_rollback_pages = 0\n");
sql(q{CREATE EXTENSION zundo;
	CREATE ROLE exporter LOGIN; GRANT pg_monitor TO exporter;
	CREATE TABLE z (id int PRIMARY KEY, n int) USING zheap;
	CREATE TABLE locked (id int PRIMARY KEY, n int) USING zheap;
	INSERT INTO z SELECT g, 0 FROM generate_series(1, 1000) g;
	INSERT INTO locked SELECT g, 0 FROM generate_series(1, 1000) g});
my ($reader, $writer, $locker) = map { session($node) } 1 .. 3;
ask($reader, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM z');
ask($writer, 'BEGIN', 'UPDATE locked SET n = 1');
ask($locker, 'BEGIN');
$locker->query_until(qr/waits/, "\\echo waits\nLOCK TABLE locked;\n");
ok($node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM pg_locks WHERE NOT granted'), 'the lock is waited for');
ask($writer, 'ROLLBACK');
sql('UPDATE z SET n = n + 1; UPDATE z SET id = 0 WHERE id = 1');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM zundo.stat_rollback WHERE state = 'waiting for lock'}), 'a rollback waits');

ok($node->poll_query_until('postgres', 'SELECT count(*) > 0 FROM zundo.undo_history'), 'there is a sample');

# rows QUERY: returns the rows of the query as the exporter gets them, a list of hashes.
sub rows
{
	my ($query) = @_;
	$query =~ s/;?\s*$//;
	my $found = $node->safe_psql('postgres', "SELECT COALESCE(json_agg(q), '[]') FROM ($query) q",
		connstr => $node->connstr('postgres') . ' user=exporter');
	return @{ decode_json($found) };
}

# The lines of queries.yaml that the exporter needs: no other parser is at hand.
my (%metric, %queries, $name, $column);
for my $line (split /\n/, slurp_file("$dir/queries.yaml"))
{
	if ($line =~ /^(\w+):$/) { $name = $1; $queries{$name} = '' }
	elsif ($line =~ /^  (?:query: \||metrics:|master: true)$/) { $column = undef }
	elsif ($line =~ /^    - (\w+):$/) { $column = $1 }
	elsif ($line =~ /^        usage: "(LABEL|GAUGE|COUNTER)"$/) { $metric{$name}{$column} = $1 }
	elsif ($line =~ /^        description: "[^"]+"$/) { }
	elsif ($line =~ /^    (.+)$/) { $queries{$name} .= "$1\n" }
	else { like($line, qr/^(#.*)?$/, 'queries.yaml: a line that is understood') }
}
my %known;
for my $query (sort keys %queries)
{
	my @rows = rows($queries{$query});
	cmp_ok(scalar @rows, '>', 0, "$query returns rows");
	is_deeply([ sort keys %{ $rows[0] } ], [ sort keys %{ $metric{$query} } ], "$query: its columns are its metrics");
	for my $column (sort keys %{ $metric{$query} })
	{
		is(scalar(grep { !defined $_->{$column} } @rows), 0, "$query: $column has values");
		next if $metric{$query}{$column} eq 'LABEL';
		is(scalar(grep { $_->{$column} !~ /^-?[0-9.]+(e[-+]?\d+)?$/i } @rows), 0, "$query: $column is a number");
		$known{"${query}_$column"} = 1;
	}
}
my ($undo) = rows($queries{zundo_undo});
cmp_ok($undo->{bytes}, '>', 0, 'undo is kept');
is((rows($queries{zundo_rollback}))[0]{waiting_for_lock}, 1, 'the rollback that waits is seen');
is_deeply([ sort map { $_->{kind} } rows($queries{zundo_holder}) ], [qw(backend lock rollback)], 'and what keeps undo');

# metrics WHERE EXPRESSION: tests that the exporter makes the metrics of the expression.
sub metrics
{
	my ($where, $expression) = @_;
	my @unknown = grep { !$known{$_} } $expression =~ /\b(zundo_\w+)/g;
	is("@unknown", '', "$where: the metrics of $expression");
	return;
}

my $dashboard = decode_json(slurp_file("$dir/dashboard.json"));
my @expressions;
for my $panel (@{ $dashboard->{panels} })
{
	for my $target (@{ $panel->{targets} })
	{
		if ($target->{rawSql})
		{
			cmp_ok(scalar(rows($target->{rawSql})), '>', 0, "panel '$panel->{title}' shows rows");
		}
		else
		{
			metrics("panel '$panel->{title}'", $target->{expr});
			push @expressions, $target->{expr} =~ s/\$datname/.*/gr;
		}
	}
}
cmp_ok(scalar @expressions, '>', 4, 'there are panels');
my @rules = slurp_file("$dir/alerts.yaml") =~ /^ {8}expr: (.*)$/mg;
cmp_ok(scalar @rules, '>', 4, 'there are alerts');
metrics('alert', $_) for @rules;

# has PROGRAM: succeeds if it is installed.
sub has { my ($program) = @_; return grep { -x "$_/$program" } split(/:/, $ENV{PATH}) }

SKIP:
{
	skip 'promtool is not installed (package prometheus)', 3 if !has('promtool');
	is(system('promtool', 'check', 'rules', "$dir/alerts.yaml"), 0, 'promtool accepts the alerts');
	# its check of rules is one of expressions, too
	my $file = PostgreSQL::Test::Utils::tempdir() . '/panels.yaml';
	append_to_file($file, "groups:\n- name: panels\n  rules:\n" . join('', map { "  - record: panel$_\n    expr: '$expressions[$_]'\n" } 0 .. $#expressions));
	is(system('promtool', 'check', 'rules', $file), 0, 'and what the panels ask');

	# two servers have databases of one name; what keeps undo in one is no excuse for the other
	my %series = ('holder_seconds{A,kind="backend"}' => '4000x30', 'holder_bytes{A,kind="backend"}' => '2e9x30', 'holder_holders{A,kind="damaged undo log"}' => '1x30',
		'undo_bytes{A}' => '2e9x30', 'undo_bytes{B}' => '2e9x30', 'undo_extent_bytes{A}' => '9e8x30', 'undo_limit_bytes{A}' => '1e9x30',
		'undo_file_bytes{A}' => '1e9+1e8x30', 'rollback_waiting_for_lock{A}' => '1x30', 'rollback_failed{A}' => '1x30',
		'process_launchers{server="a"}' => '0x30', 'process_primary_server{server="a"}' => '1x30');
	my $text = "rule_files: ['" . abs_path("$dir/alerts.yaml") . "']\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n";
	for (sort keys %series)
	{
		my $name = s/\b([AB])\b/'server="' . lc($1) . '",datname="d"'/er;
		$text .= "  - {series: 'zundo_$name', values: '$series{$_}'}\n";
	}
	my $firing = 'ALERTS{alertstate="firing"';
	$text .= "  promql_expr_test:\n" . join('', map { "  - {expr: '$_->[0]', eval_time: 25m, exp_samples: [{labels: '{$_->[1]}', value: $_->[2]}]}\n" }
		(["count(count by (alertname) ($firing}))", '', scalar @rules], ["count by (server) ($firing,alertname=\"ZundoUndoKeptByNothing\"})", 'server="b"', 1]));
	append_to_file("$file.test", $text);
	is(system('promtool', 'test', 'rules', "$file.test"), 0, 'each alert is fired');
}

SKIP:
{
	skip 'the exporter is not installed (package prometheus-postgres-exporter)', 3 if !has('prometheus-postgres-exporter');
	my $address = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
	my ($log, $page) = ('');
	local $ENV{DATA_SOURCE_NAME} = 'host=' . $node->host . ' port=' . $node->port . ' user=exporter dbname=postgres sslmode=disable';
	my $exporter = IPC::Run::start(['prometheus-postgres-exporter', "--extend.query-path=$dir/queries.yaml", '--auto-discover-databases',
		'--include-databases=postgres', '--disable-default-metrics', '--disable-settings-metrics', "--web.listen-address=$address"], '>&', \$log);
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$page = HTTP::Tiny->new->get("http://$address/metrics");
		last if $page->{success} && $page->{content} =~ /^pg_up 1$/m;
		select undef, undef, undef, 0.1;
	}
	$exporter->kill_kill;
	my %type = $page->{content} =~ /^# TYPE (zundo_\w+) (\w+)$/mg;
	is_deeply([ sort keys %type ], [ sort keys %known ], 'the exporter makes all metrics') or diag $log;
	is_deeply([ grep { my ($query, $column) = /^(zundo_[a-z]+)_(\w+)$/; uc $type{$_} ne $metric{$query}{$column} } sort keys %type ],
		[], 'of the kinds that queries.yaml says');
	skip 'promtool is not installed (package prometheus)', 1 if !has('promtool');
	# its advice about names is no error, and not followed: they are those of the views' columns
	my ($out, $err);
	IPC::Run::run(['promtool', 'check', 'metrics'], '<', \$page->{content}, '>', \$out, '2>', \$err);
	my @advice = grep { !/^zundo_\w+ (?:non-counter metrics should not have|counter metrics should have "_total" suffix)/ } split /\n/, $out . $err;
	is_deeply(\@advice, [], 'promtool accepts the metrics');
}
$_->quit for $reader, $locker, $writer;
no_crash($node);
$node->stop;
done_testing();
