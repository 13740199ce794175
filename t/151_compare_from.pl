# ./zundo compare --from: a table of the user's and a sample of its rows are copied
# by a role that may only read it, and measured as heap and as zheap. Nothing is
# left on the user's server.
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
my ($postgres) = grep { -x } map { "$_/postgres" } split(/:/, $ENV{PATH});
my $folder = PostgreSQL::Test::Utils::tempdir();

my $node = zundo_node('users', "autovacuum = off\nlog_statement = all\n");
sql(q{
	CREATE SCHEMA shop; CREATE TYPE shop.state AS ENUM ('new', 'it''s paid', 'sent'); CREATE DOMAIN shop.price AS numeric(10, 2) CHECK (VALUE > 0);
	CREATE TABLE shop.customer (id int PRIMARY KEY); INSERT INTO shop.customer SELECT generate_series(1, 10);
	CREATE TABLE shop."Order" (id serial PRIMARY KEY, customer int REFERENCES shop.customer, state shop.state NOT NULL, states shop.state[],
		price shop.price, noted timestamptz DEFAULT now(), "what for" text, doubled numeric GENERATED ALWAYS AS (price * 2) STORED, gone int);
	ALTER TABLE shop."Order" DROP COLUMN gone;
	CREATE INDEX by_state ON shop."Order" (state) WHERE state <> 'sent'; CREATE INDEX by_what ON shop."Order" (lower("what for"));
	CREATE INDEX by_noted ON shop."Order" USING brin (noted);
	CREATE FUNCTION shop.f(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1'; CREATE INDEX by_f ON shop."Order" (shop.f(customer));
	CREATE FUNCTION shop.g() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER g BEFORE UPDATE ON shop."Order" FOR EACH ROW EXECUTE FUNCTION shop.g();
	INSERT INTO shop."Order" (customer, state, states, price, "what for") SELECT 1 + g % 10, (enum_range(NULL::shop.state))[1 + g % 3], '{new,sent}', g, E'tab\there ' || g FROM generate_series(1, 3000) g;
	CREATE VIEW shop.v AS SELECT * FROM shop."Order"; CREATE MATERIALIZED VIEW shop.m AS SELECT 1; CREATE SEQUENCE shop.s;
	CREATE TABLE shop.p (a int) PARTITION BY LIST (a); CREATE TABLE shop.p1 PARTITION OF shop.p FOR VALUES IN (1);
	CREATE TABLE shop.nokey (a int); CREATE TYPE shop.pair AS (a int, b int); CREATE TABLE shop.odd (id int PRIMARY KEY, x shop.pair); CREATE TABLE shop.secret (id int PRIMARY KEY); CREATE SCHEMA closed; CREATE TABLE closed.t (a int PRIMARY KEY); GRANT SELECT ON closed.t TO PUBLIC;
	CREATE FOREIGN DATA WRAPPER w; CREATE SERVER w FOREIGN DATA WRAPPER w; CREATE FOREIGN TABLE shop.far (a int) SERVER w;
	ANALYZE shop."Order"; CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA shop TO reader; GRANT SELECT ON shop."Order", shop.p, shop.p1, shop.v, shop.m, shop.far, shop.nokey, shop.odd TO reader});
my $from = 'user=reader ' . $node->connstr('postgres');

# sample CONNINFO, TABLE, ROWS: returns the ids of the rows that --from copies.
sub sample
{
	my ($conninfo, $table, $rows) = @_;
	my ($out, $err);
	my $program = "import sys, types; sys.path.insert(0, '$bench'); import own_table; own_table.Table(sys.argv[1],"
	  . " types.SimpleNamespace(**{'from': sys.argv[2], 'table': '$table', 'rows': $rows, 'columns': 'filler', 'script': None, 'zbtree': False}), '$folder', print)";
	unlink "$folder/table.rows";
	ok(IPC::Run::run([$python, '-c', $program, dirname($postgres), $conninfo], '>', \$out, '2>', \$err), "$table is copied, from $conninfo") or diag $err;
	return [ map { /^(\d+)/ } split /\n/, slurp_file("$folder/table.rows") ];
}

# Tables that were never analysed, in a database with an odd name: the sample is of all
# of a table's blocks, and of no more of them than it may have rows.
my $odd = q{a b'c"d\e%f};
sql(q{CREATE DATABASE "a b'c""d\e%f"});
$node->safe_psql($odd, q{
	CREATE TABLE big (id int PRIMARY KEY, filler text); INSERT INTO big SELECT g, repeat('x', 100) FROM generate_series(1, 100000) g;
	CREATE TABLE bloated (id int PRIMARY KEY, filler text); INSERT INTO bloated SELECT g, repeat('x', 100) FROM generate_series(1, 100000) g;
	DELETE FROM bloated WHERE id % 1000 <> 0; GRANT SELECT ON big, bloated TO reader});
(my $uri = $odd) =~ s/([^a-z])/sprintf '%%%02x', ord $1/ge;
for my $conninfo ('user=reader ' . $node->connstr($odd), "postgresql:///$uri?user=reader&host=" . $node->host . '&port=' . $node->port)
{
	my $taken = sample($conninfo, 'big', 10000);
	ok(@$taken > 6000 && @$taken <= 10000, 'about as many rows as were asked for: ' . @$taken);
	ok($taken->[0] < 15000 && $taken->[-1] > 75000, "from the table's begin to its end: $taken->[0] to $taken->[-1]");
	$taken = sample($conninfo, 'bloated', 200);
	cmp_ok(@$taken, '<', 60, 'few rows of a table that has few on a block');
}
my $state = q{SELECT (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_database), (SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_all_tables),
	(SELECT count(*) FROM pg_stat_activity WHERE usename = 'reader'), (SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.usename = 'reader')};
# the session that made them counts what it wrote when it ends
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend'});
my $before = sql($state);

# compare ARGUMENT...: runs compare.py --from; returns its exit status, output and errors.
sub compare
{
	my @arguments = @_;
	my ($out, $err);
	IPC::Run::run([$python, "$bench/compare.py", '--bindir', dirname($postgres), '--results', $folder, '--from', $from, '--transactions', 10000, @arguments],
		'>', \$out, '2>', \$err);
	return ($? >> 8, $out, $err);
}

my ($status, $out, $err) = compare('--table', 'shop."Order"', '--columns', 'price,state,noted', '--rows', 1000);
is($status, 0, 'a table is measured') or diag $err;
my $own = decode_json(slurp_file("$folder/compare.json"))->{workloads}{own};
my %row = map { $_->{key} => $_ } @{ $own->{table} };
cmp_ok($row{table_times}{values}{heap}, '>=', 5, "heap's table grows");
# a few rows become longer; how soon the space of moved ones is free depends on the machine
cmp_ok($row{table_times}{values}{zheap}, '<', $row{table_times}{values}{heap} * 2 / 3, "zheap's table grows less, although rows move");
is($row{snapshot_kept}{heap} . $row{snapshot_kept}{zheap}, 'yesyes', 'the old snapshot reads the same rows');
my $notes = join("\n", @{ $own->{notes} });
like($notes, qr/^Left out: foreign keys \(1\)\.$/m, 'foreign keys are left out, said');
like($notes, qr/^Left out: triggers \(1\)\.$/m, 'triggers, too');
like($notes, qr/^Left out with $_: by_f \(.*shop\.f/m, "an index that cannot be built with $_ is named") for qw(heap zheap);
my $simple = ' (if its predicate is simple, see docs/limits.md)';
my ($moves, $stays) = $node->pg_version >= 16 ? ('by_state', ' A change of columns of these alone leaves the row where it is: by_noted.') : ('by_noted, by_state', '');
like($notes, qr/^Changed columns: price, state, noted\. They are in these indexes: by_noted \(brin\), by_state \(btree\)\. An update that changes the row's entry in one of these moves the row, and every index gets an entry: $moves\.$stays With zbtree instead of btree that would also hold for these: by_state\Q$simple; --zbtree measures that.\E$/m,
	'the indexes of the changed columns');
like($out, qr/A sample of|The table grew to [\d.]+ times its size with heap/, 'growth is in the sentence');
like(slurp_file("$folder/compare.html"), qr/A sample of (?:1,000|\d{3}) rows of your table/, 'the page says how large the sample was');

my $moved = $row{table_times}{values}{zheap};
($status, $out, $err) = compare('--table', 'shop."Order"', '--columns', 'price,state', '--rows', 1000, '--zbtree');
is($status, 0, 'a table is measured with zbtree indexes') or diag $err;
$own = decode_json(slurp_file("$folder/compare.json"))->{workloads}{own};
%row = map { $_->{key} => $_ } @{ $own->{table} };
cmp_ok($row{table_times}{values}{zheap}, '<', $moved, 'rows move less than with btree indexes');
$notes = join("\n", @{ $own->{notes} });
unlike($notes, qr/Left out with \w+: by_(state|what)/, 'no index is left out');
like($notes, qr/They are in these indexes: by_state \(zbtree\)\. A change of columns of these alone leaves the row where it is: by_state\Q$simple\E\.$/m, 'the zbtree index');

append_to_file("$folder/script.sql", qq{\\set id random(1, :rows)\nUPDATE shop."Order" SET "what for" = 'w' || :id WHERE id = :id;\n});
($status, $out, $err) = compare('--table', 'shop."Order"', '--script', "$folder/script.sql", '--transactions', 400);
is($status, 0, 'a script is measured') or diag $err;
$notes = join("\n", @{ decode_json(slurp_file("$folder/compare.json"))->{workloads}{own}{notes} });
like($notes, qr/^Changed columns: what for\. They are in these indexes: by_what \(btree\)\. An update .* entry: by_what\.$/m, 'the changed columns are found');

for (['shop.v', 'is a view'], ['shop.m', 'is a materialized view'], ['shop.s', 'is a sequence'], ['shop.p', 'is a partitioned table'], ['shop.far', 'is a foreign table'],
	['shop.missing', 'there is no table shop.missing'], ['shop.secret', 'must not read'], ['closed.t', 'must not look into the schema closed: it needs the right USAGE'], ['shop.nokey', 'has no primary key'],
	['shop.odd', 'has the type pair, which cannot be copied'], ['shop."Order"', '--columns must name'], ['pg_catalog.pg_class', 'table of the system'])
{
	my ($table, $message) = @$_;
	my @columns = $message =~ /columns must/ ? () : ('--columns', $table eq 'shop.odd' ? 'x' : 'a');
	@columns = ('--columns', 'relname') if $table =~ /pg_class/;
	($status, $out, $err) = compare('--table', $table, @columns);
	is($status, 2, "$table: status 2");
	like($err, qr/\Q$message\E/, "$table: $message");
	unlike($err, qr/Traceback/, "$table: no stack");
}
($status, $out, $err) = compare('--table', 'shop."Order"', '--columns', 'doubled');
like($err, qr/doubled is a generated column/, 'a generated column');

# interrupted while it copies
{
	my ($o, $e);
	my $run = IPC::Run::start([$python, "$bench/compare.py", '--bindir', dirname($postgres), '--results', $folder, '--from', $from, '--table', 'shop."Order"',
		'--columns', 'price'], '>', \$o, '2>', \$e);
	ok($node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_stat_activity WHERE usename = 'reader'}), 'compare has connected');
	$run->signal('INT');
	$run->finish;
	is($run->full_result(0) >> 8, 130, 'interrupted');
}
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE usename = 'reader'}), 'no session is left');
is(sql($state), $before, 'nothing is left on the server, and nothing was written');

# a type of an extension that the private server does not have
sql(q{ALTER EXTENSION plpgsql ADD TYPE shop.pair; UPDATE pg_extension SET extname = 'lacking' WHERE extname = 'plpgsql'});
($status, $out, $err) = compare('--table', 'shop.odd', '--columns', 'x');
is($status, 2, 'an extension is missing: status 2');
like($err, qr/the private server does not have the extension lacking: x has the type pair/, 'an extension is missing: named');

my $log = slurp_file($node->logfile);
unlike($log, qr/statement: (INSERT|UPDATE|DELETE|CREATE|ALTER|DROP)[^\n]*zundo/, 'only queries');
done_testing();
