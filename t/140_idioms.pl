# Statements as applications send them (idioms.sql), on heap and on zheap: they
# answer alike, but for those of which the file says why they do not.
use strict;
use warnings;
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('idioms', 'max_prepared_transactions = 10');
sql('CREATE EXTENSION zundo');

# The blocks of the file: the tables, then the idioms, which have a name, perhaps a line
# that says why they differ, and statements.
my ($schema, @idioms) = split /^### /m, slurp_file(dirname(__FILE__) . '/idioms.sql');
my @tables = split /^(?=CREATE TABLE)/m, $schema;

# tables_for STATEMENTS: returns the commands that make the tables of these names.
sub tables_for
{
	my ($statements) = @_;
	return join '', grep { /^CREATE TABLE ([a-z]+)/ && $statements =~ /\b$1/ } @tables;
}

# answers AM: returns what psql prints for each idiom; each has a schema of its own.
sub answers
{
	my ($am) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	open my $script, '>', "$dir/script" or die $!;
	print $script "\\set VERBOSITY terse\n\\set SHOW_CONTEXT never\n",
	  "SET client_min_messages = error;\nSET default_table_access_method = $am;\n";
	for my $i (0 .. $#idioms)
	{
		my $statements = $idioms[$i] =~ s/\A.*\n(?:= .*\n)?//r;
		print $script "\\echo === $i\nCREATE SCHEMA ${am}_$i;\nSET search_path = ${am}_$i;\n",
		  tables_for($statements), "\\echo ---\n$statements\n;ROLLBACK;\nDROP SCHEMA ${am}_$i CASCADE;\n";
	}
	close $script;
	system("psql -X -d '" . $node->connstr('postgres') . "' -f '$dir/script' >'$dir/out' 2>&1");
	my @answers = split /^=== \d+\n/m, slurp_file("$dir/out") =~ s/\Q$am\E_/am_/gr =~ s/^psql:.*?script:\d+: //gmr;
	shift @answers;
	s/\A.*?^---\n//ms for @answers;
	return @answers;
}
my @heap = answers('heap');
my @zheap = answers('zheap');

is(scalar(@heap), scalar(@idioms), 'all idioms were run on heap');
is(scalar(@zheap), scalar(@idioms), 'and on zheap');
my ($alike, $refused, $other) = (0, 0, 0);
for my $i (0 .. $#idioms)
{
	my ($name, $why) = $idioms[$i] =~ /\A(.*)\n(?:= (.*)\n)?/;
	my $differs = $heap[$i] ne $zheap[$i];
	my $was_refused = $differs && $zheap[$i] =~ /^ERROR:  cannot (?:change a row of zheap|use xmin)/m;
	diag("heap: $heap[$i]\nzheap: $zheap[$i]") if $differs && !defined $why;
	ok($differs == defined $why, $name . (defined $why ? ", which differs: $why" : ''));
	$differs ? $was_refused ? $refused++ : $other++ : $alike++;
}
note("$alike alike, $refused refused, $other different");
no_crash($node);
$node->stop;
done_testing();
