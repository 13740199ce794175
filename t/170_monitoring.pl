# The files of monitoring/: each query of the exporter and of the dashboard returns rows to a
# member of pg_monitor, and each metric that the alerts and the dashboard name is in them.
# newest
use strict;
use warnings;
use FindBin;
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

SKIP:
{
	skip 'promtool is not installed (package prometheus)', 2 if system('promtool --version >/dev/null 2>&1') != 0;
	is(system('promtool', 'check', 'rules', "$dir/alerts.yaml"), 0, 'promtool accepts the alerts');
	# its check of rules is one of expressions, too
	my $file = PostgreSQL::Test::Utils::tempdir() . '/panels.yaml';
	append_to_file($file, "groups:\n- name: panels\n  rules:\n" . join('', map { "  - record: panel$_\n    expr: '$expressions[$_]'\n" } 0 .. $#expressions));
	is(system('promtool', 'check', 'rules', $file), 0, 'and what the panels ask');
}
$_->quit for $reader, $locker, $writer;
no_crash($node);
$node->stop;
done_testing();
