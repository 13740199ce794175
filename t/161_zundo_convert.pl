# zundo-convert: tables are chosen by patterns, partitions are converted before their
# parents, what cannot be converted is named, and each way to end has its exit status:
# after an interrupt nothing is left, after a crash of the server the same command cleans up.
use strict;
use warnings;
use File::Basename;
use IPC::Run qw(start finish);
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('program', 'restart_after_crash = off', allows_streaming => 1);
$ENV{PGDATABASE} = 'postgres';
my @program = ('zundo-convert', '-h', $node->host, '--port=' . $node->port);
my ($out, $err);

# program STATUS NAME ARGUMENT...: runs zundo-convert, and tests its exit status. Sets $out and $err.
sub program
{
	my ($status, $name, @arguments) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	IPC::Run::run([ @program, @arguments ], '>', \$out, '2>', \$err);
	is($? >> 8, $status, $name) or diag "$out$err";
	return;
}

# begin ARGUMENT...: starts zundo-convert and waits until it converts a table.
sub begin
{
	($out, $err) = ('', '');
	my $run = start([ @program, '--pause=600000', @_ ], '>', \$out, '2>', \$err, IPC::Run::timeout(4 * $PostgreSQL::Test::Utils::timeout_default));
	$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM zundo.conversions WHERE pid IS NOT NULL}) or die 'it does not begin';
	return $run;
}

# status RUN: returns the exit status.
sub status { my ($run) = @_; $run->finish; return $run->full_result(0) >> 8; }
sub am { my ($schema) = @_; return sql("SELECT string_agg(concat(c.relname, ' ', a.amname), ', ' ORDER BY c.relname) FROM pg_class c LEFT JOIN pg_am a ON a.oid = c.relam WHERE relnamespace = '$schema'::regnamespace AND relkind IN ('r', 'p')"); }
sub left { return sql(q{SELECT (SELECT count(*) FROM zundo.conversions) + (SELECT count(*) FROM pg_trigger WHERE tgname ~ '^zundo_convert')}) }

program(1, 'no extension', '-t', 'x');
like($err, qr/^zundo-convert: error: the database does not have the extension zundo$/m, 'says so');
sql('CREATE EXTENSION zundo');
sql(<<'S');
CREATE ROLE stranger LOGIN;
CREATE SCHEMA shop;
CREATE TABLE shop.one (id int PRIMARY KEY, v text) USING heap;
CREATE TABLE shop.other (id int PRIMARY KEY) USING heap;
CREATE TABLE shop."Other" (id int PRIMARY KEY) USING heap;
INSERT INTO shop.one SELECT i, repeat('x', 100) FROM generate_series(1, 1000) i;
CREATE TABLE shop.nokey (id int) USING heap;
CREATE TABLE mine (id int PRIMARY KEY) USING heap;
INSERT INTO mine VALUES (1), (2);
CREATE SCHEMA "odd ""schema'";
CREATE TABLE "odd ""schema'"."na""me \ of
%s 'x'); DROP TABLE mine; --" (id int PRIMARY KEY) USING heap;
CREATE SCHEMA tree;
CREATE TABLE tree.root (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
CREATE TABLE tree.branch PARTITION OF tree.root FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id);
CREATE TABLE tree.leaf1 PARTITION OF tree.branch FOR VALUES FROM (0) TO (50) USING heap;
CREATE TABLE tree.leaf2 PARTITION OF tree.branch FOR VALUES FROM (50) TO (100) USING heap;
CREATE TABLE tree.leaf3 PARTITION OF tree.root FOR VALUES FROM (100) TO (200) USING heap;
INSERT INTO tree.root SELECT i, i FROM generate_series(0, 199) i;
CREATE PUBLICATION all_of_it FOR ALL TABLES;
CREATE PUBLICATION trees FOR TABLE tree.root;
S

# 1. Usage.
for (
	[ [], qr/no tables were named/ ],
	[ [ '-t', 'mine', '--frob' ], qr/unknown option --frob/ ],
	[ [ '-t', 'mine', '--check=1' ], qr/option --check takes no value/ ],
	[ ['-t'], qr/option -t needs a value/ ],
	[ [ '-t', 'mine', '--to', 'btree' ], qr/the access method must be heap or zheap, not "btree"/ ],
	[ [ '-t', 'mine', '--pause=x' ], qr/invalid pause "x"/ ],
	[ [ '-t', 'mine', 'postgres', 'again' ], qr/too many arguments: "again"/ ],
	[ [ '-t', 'nothing*' ], qr/no table matches "nothing\*"/ ],
	[ [ '-t', 'mine', '-d', 'no such database' ], qr/database "no such database" does not exist/ ],
	[ [ '-t', 'a.b.c.d' ], qr/improper qualified name/ ])
{
	my ($arguments, $pattern) = @$_;
	program(1, "@$arguments", @$arguments);
	like($err, $pattern, 'its message');
}
program(0, '--help', '--help');
like($out, qr/^  -t, --table=PATTERN .*^Exit status: 0 /ms, 'help');
command_like([ dirname(__FILE__) . '/../zundo', 'convert', '--version' ], qr/^zundo-convert 1/, './zundo convert');

# 2. What would be done.
program(2, '--check', '--check', '-n', 'shop');
like($out, qr/^shop."Other": 8192 bytes, free: \d+ [MGT]B, publications: all_of_it \(FOR ALL TABLES\)\nshop.one: \d+ kB, [^\n]*\nshop.other: 8192 bytes, [^\n]*\nneeded: \d+ kB of disk space, \d+ kB of WAL\nmeanwhile [^\n]*\n$/, 'the plan');
like($err, qr/^zundo-convert: error: shop.nokey: cannot be converted: It has no unique index on columns that are NOT NULL. Add a primary key/, 'what is refused');
program(2, '--check of all tables', '--check', '-n', '*');
unlike($err, qr/pg_toast/, 'TOAST tables belong to their tables');
my $function = sql(q{SELECT pg_get_functiondef('zundo.bytes_free'::regproc)});
sql(q{CREATE OR REPLACE FUNCTION zundo.bytes_free(tablespace oid) RETURNS bigint LANGUAGE sql AS 'SELECT 10000::bigint'});
program(2, '--check on a full disk', '--check', '-t', 'shop.other', '-t', 'shop.one');
is($err, "zundo-convert: error: shop.one: may need " . sql(q{SELECT pg_size_pretty(pg_total_relation_size('shop.one'))}) . " of disk space, and 10000 bytes are free\n", 'says so');
sql($function);
program(0, '--dry-run', '--dry-run', '-t', 'tree.root', '-t', 'tree.leaf*', '-t', 'mine');
my $parents = server_major() >= 17 ? "CALL zundo.convert('tree.branch', 'zheap');\nCALL zundo.convert('tree.root', 'zheap');\n" : '';
is($out, "CALL zundo.convert('public.mine', 'zheap');\n" . join('', map { "CALL zundo.convert('tree.leaf$_', 'zheap');\n" } 1 .. 3) . $parents, 'statements, each once');
is(sql(q{SELECT relation, publications FROM zundo.convert_plan('tree.leaf1', 'zheap')}), 'tree.leaf1|all_of_it (FOR ALL TABLES), trees', 'the publication of a parent');
is(am('shop'), 'Other heap, nokey heap, one heap, other heap', 'nothing was changed');
sql(q{CREATE TABLE invalid (id int PRIMARY KEY, a int) USING heap; CREATE INDEX bad ON invalid (a); CREATE INDEX worse ON invalid ((invalid IS NULL));
	UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'bad'::regclass});
is(sql(q{SELECT command, refused FROM zundo.convert_plan('invalid', 'zheap')}),
	'|Index "bad" is not valid. Drop or rebuild the index first. Index "worse" has an expression on the whole row. Drop the index first.', 'all reasons');
is(sql(q{SELECT count(*) FROM zundo.convert_plan(99, 'zheap')}), 0, 'no such table');
is(sql(q{SELECT zundo.convert_refused(99, 'zheap') IS NULL}), 't', 'not refused either');

# 3. Done, refused.
program(2, 'a schema', '-n', 'shop');
like($err, qr/shop.one: converted, \d+ s\n.*converted: 3, refused: 1, failed: 0, not begun: 0\n$/s, 'the report');
is(am('shop'), 'Other zheap, nokey heap, one zheap, other zheap', 'access methods');
program(0, 'again', '-t', 'shop.one', '-t', 'shop.o*');
program(0, 'back', '-q', '--to=heap', '-t', 'shop.o*', '-t', 'shop."Other"');
is("$out$err", '', 'quiet');
is(am('shop'), 'Other heap, nokey heap, one heap, other heap', 'access methods');
program(0, 'odd names', '-n', q{"odd ""schema'"}, 'postgres');
is(sql(q{SELECT count(*) FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE c.relname ~ '^na' AND amname = 'zheap'}), 1, 'converted');
is(am('public'), 'invalid heap, mine heap', 'and nothing else');
program(0, 'a partition tree', '-t', 'tree.root');
is(am('tree'), server_major() >= 17 ? 'branch zheap, leaf1 zheap, leaf2 zheap, leaf3 zheap, root zheap' : 'branch , leaf1 zheap, leaf2 zheap, leaf3 zheap, root ', 'its access methods');
is(sql('SELECT count(*), sum(v) FROM tree.root'), '200|19900', 'its rows');
# Indexes, and files that are made compact.
sql(<<'S');
CREATE SCHEMA ix;
CREATE TABLE ix.t (id int PRIMARY KEY, v int, w int, d int UNIQUE DEFERRABLE, e int4range, EXCLUDE USING gist (e WITH &&)) USING heap;
CREATE TABLE ix.plain (id int PRIMARY KEY) USING heap;
CREATE INDEX "v'" ON ix.t (v);
CREATE INDEX w ON ix.t (w) WHERE v > 0;
CREATE INDEX h ON ix.t USING hash (w);
INSERT INTO ix.t SELECT i, i, i, i FROM generate_series(1, 100) i;
S
my $unique = server_major() >= 18;
my $exchanged = $unique ? 'h hash, t_d_key btree, t_e_excl gist, t_pkey zbtree, v\' zbtree, w zbtree' : 'h hash, t_d_key btree, t_e_excl gist, t_pkey btree, v\' zbtree, w zbtree';
sub indexes { return sql(q{SELECT string_agg(concat(i.relname, ' ', a.amname), ', ' ORDER BY i.relname COLLATE "C") FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_am a ON a.oid = i.relam WHERE x.indrelid = 'ix.t'::regclass}) }
program(1, '--zbtree to heap', '--zbtree', '--to=heap', '-t', 'ix.t');
program(0, '--dry-run --zbtree', '--dry-run', '--zbtree', '-t', 'ix.t');
is($out, "CALL zundo.convert('ix.t', 'zheap');\n" . qq{CALL zundo.set_index_method('ix."v''"', 'zbtree');\n}
	. ($unique ? "CALL zundo.set_index_method('ix.t_pkey', 'zbtree');\n" : '') . "CALL zundo.set_index_method('ix.w', 'zbtree');\n", 'the statements') or diag $out;
program(0, '--zbtree', '--zbtree', '-t', 'ix.t');
is(indexes(), $exchanged, 'zbtree');
program(0, '--check to heap', '--check', '--to=heap', '-t', 'ix.t');
like($out, qr/^ix.t: zundo.set_index_method\('ix.*^ix.t: zundo.set_index_method\('ix.w', 'btree'\)\nix.t: \d+ kB, .*needed: .*\nmeanwhile subscribers of what is FOR ALL TABLES cannot REFRESH PUBLICATION\n$/ms, 'the plan to heap');
program(0, 'to heap', '--to=heap', '-n', 'ix');
is(indexes(), $exchanged =~ s/zbtree/btree/gr, 'btree again');
program(0, 'without --zbtree', '-t', 'ix.t');
program(0, '--zbtree of a zheap table', '--zbtree', '-t', 'ix.t');
is(indexes(), $exchanged, 'zbtree');
is(sql('SET enable_seqscan = off; SELECT count(*), sum(w) FROM ix.t WHERE v > 10'), '90|4995', 'rows by them');
sql('DELETE FROM ix.t WHERE id > 5');
my $file = sql(q{SELECT pg_relation_filenode('ix.t')});
program(0, 'nothing to do', '-t', 'ix.t');
is(sql(q{SELECT pg_relation_filenode('ix.t')}), $file, 'the same file');
program(0, '--repack', '--repack', '-n', 'ix');
isnt(sql(q{SELECT pg_relation_filenode('ix.t')}), $file, 'another file');
is(am('ix'), 'plain zheap, t zheap', 'the table that was not zheap as well');
is(indexes(), $exchanged, 'indexes keep their access methods');

# an index that cannot be exchanged: nothing else is done with the table
sql(<<'S');
CREATE FUNCTION ix.f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
CREATE TABLE ix.broken (id int PRIMARY KEY, v int) USING zheap;
CREATE INDEX fails ON ix.broken USING zbtree (ix.f(v));
INSERT INTO ix.broken VALUES (1, 1000);
CREATE OR REPLACE FUNCTION ix.f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1 / (1000 - $1)';
S
program(3, 'an index that fails', '--to=heap', '-t', 'ix.broken', '-t', 'ix.plain');
like($err, qr/division by zero.*ix.broken: an index was not changed; nothing is left of the attempt.*converted: 1, refused: 0, failed: 1, not begun: 0\n$/s, 'says so');
is(am('ix'), 'broken zheap, plain heap, t zheap', 'access methods');
is(sql('SELECT count(*) FROM pg_index WHERE NOT indisvalid') - 1, 0, 'no index is left');

# what a crash in zundo.set_index_method leaves is dropped, but not what it still builds
sql(q{CREATE TABLE ix.crashed (id int PRIMARY KEY, v int) USING zheap; CREATE INDEX "v'v" ON ix.crashed (v); INSERT INTO ix.crashed VALUES (1, 1)});
for my $step (2, 4, 6, 8)
{
	$node->psql('postgres', qq{SET zundo.fault = 'index-step:error:$step'; CALL zundo.set_index_method('ix."v''v"', 'zbtree')});
	program(0, '--check', '--check', '--to=heap', '-t', 'ix.crashed');
	like($out, qr/^ix.crashed: leftovers of an earlier attempt\n(ix.crashed: zundo.set_index_method[^\n]*\n)*ix.crashed: \d+ kB/, "step $step: finds it");
	program(0, "after step $step", $step == 4 ? ('--to=heap', '-t', 'ix.crashed') : ('--zbtree', '-t', 'ix.crashed'));
	is(sql(q{SELECT count(*) FROM pg_class WHERE relname ~ '^zundo_.*twin'}), 0, 'nothing is left');
	program(0, 'again', '-q', '-t', 'ix.crashed') if $step == 4;
	sql(q{CALL zundo.set_index_method('ix."v''v"', 'btree')});
}
my ($changing, $reading) = map { session($node) } 1 .. 2;
$reading->query_safe('BEGIN; INSERT INTO ix.crashed VALUES (2, 2)');
$changing->query_until(qr/begun/, qq{\\echo begun\nCALL zundo.set_index_method('ix."v''v"', 'zbtree');\n});
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_class WHERE relname ~ '^zundo_.*twin'});
is(sql(q{SELECT command, refused FROM zundo.convert_plan('ix.crashed', 'heap')}), '|Another session changes one of its indexes.', 'an index that is being built');
$reading->query_safe('COMMIT');
ask($changing, 'SELECT 1');
is($complaint, '', 'it is built');
$_->quit for $changing, $reading;
sql('DROP SCHEMA ix CASCADE');

# many tables: each costs the same
sql(q{CREATE SCHEMA lots; DO $$ BEGIN FOR i IN 1 .. 600 LOOP EXECUTE format('CREATE TABLE lots.t%s (id int) USING heap', i); END LOOP; END $$; VACUUM ANALYZE pg_class});
my $plan = sql(q{EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS, FORMAT JSON) SELECT count(*) FROM pg_class c, zundo.convert_plan(c.oid, 'zheap') WHERE relnamespace = 'lots'::regnamespace});
my ($hits) = $plan =~ /"Shared Hit Blocks": (\d+)/;
cmp_ok($hits / 600, '<', 160, 'pages that are looked at for each table');
sql('DROP SCHEMA lots CASCADE');

program(2, 'a role without rights', '-U', 'stranger', '-t', 'shop.one');
like($err, qr/shop.one: cannot be converted: It belongs to another role/, 'says so');

if (server_major() >= 17)
{
	local $ENV{PGOPTIONS} = '-c transaction_timeout=3s';
	program(0, 'transaction_timeout does not end it', '--pause=4000', '-t', 'shop.one');
	program(0, 'back', '--to=heap', '-t', 'shop.one');
}
sql(<<'S');
CREATE SCHEMA "many""""""""""""""""""""""""""""""""""""""""""""""""""""""""""""""""""""""""""""""""";
DO $$ BEGIN FOR i IN 1 .. 50 LOOP
	EXECUTE format('CREATE TABLE %I.%I (id int) USING heap', (SELECT nspname FROM pg_namespace WHERE nspname LIKE 'many%'), repeat('"', 58) || i);
END LOOP; END $$
S
program(2, 'names that are longer than an argument can be', '--check', map { ('-n', 'many*') } 1 .. 14);
is(scalar(() = $err =~ /cannot be converted: It has no unique index/g), 50, 'all are looked at');

# 4. An interrupt.
my $run = begin('-t', 'shop.one', '-t', 'shop.other');
program(2, 'a table that another session converts', '--check', '-t', 'shop.one');
like($err, qr/shop.one: cannot be converted: Another session converts it/, 'says so');
$run->signal('INT');
is(status($run), 3, 'interrupted');
like($err, qr/canceling statement due to user request.*shop.one: was not converted; nothing is left of the attempt.*converted: 0, refused: 0, failed: 1, not begun: 1\n$/s, 'says what was done');
is(left(), 0, 'nothing is left');

# 5. Another session ends the conversion; the next table, which is empty, is converted.
$run = begin('-t', 'mine', '-t', 'shop.other', '-t', 'shop.nokey');
sql(q{SELECT pg_terminate_backend(pid) FROM zundo.conversions});
is(status($run), 3, 'terminated');
like($err, qr/public.mine: was not converted; nothing is left of the attempt.*shop.nokey: cannot.*shop.other: converted.*converted: 1, refused: 1, failed: 1, not begun: 0\n$/s, 'says so');
program(0, 'back', '--to=heap', '-t', 'shop.other');
is(left(), 0, 'nothing is left');

# 6. The server crashes; the same command removes what is left, and converts.
$run = begin('-t', 'mine', '-t', 'shop.other');
$node->stop('immediate');
is(status($run), 4, 'crashed');
like($err, qr/public.mine: was not converted, and has to be cleaned up: use the same command again.*failed: 1, not begun: 1\n$/s, 'says so');
$node->start;
is(left(), 2, 'something is left');
program(0, '--check', '--check', '-t', 'mine');
like($out, qr/^public.mine: leftovers of an earlier attempt\npublic.mine: \d+ kB/, 'finds it');
program(0, 'the same command', '-t', 'mine', '-t', 'shop.other');
is(left(), 0, 'nothing is left');
is(am('public'), 'invalid heap, mine zheap', 'converted');

# 7. A standby.
$node->stop;
$node->append_conf('postgresql.conf', 'hot_standby = on');
$node->set_standby_mode;
$node->start;
program(2, 'a standby', '-t', 'shop.one');
like($err, qr/shop.one: cannot be converted: The server is a standby/, 'says so');
done_testing();
