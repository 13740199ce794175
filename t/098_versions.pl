# Versions. An undo log or a table page in another format is refused with an
# error that says so, and nothing is written to it. ALTER EXTENSION zundo UPDATE
# runs beside tables with rows and undo that is needed; a script that asks for a
# function that the library does not have is refused as a whole. make install
# puts the documents where the server's packages have theirs, and the links in
# them lead to installed files.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

use constant { META => 0, VERSION => 48, PAGE_SEAL => 8188 };

my $node = zundo_node('versions', "zundo.eager_rollback_pages = 0\nmax_worker_processes = 0\n", no_data_checksums => 1);
my $dir = $node->data_dir;

sub error_of { my ($sql) = @_; return ($node->psql('postgres', "\\set VERBOSITY verbose\n$sql"))[2] }

sql(q{CREATE EXTENSION zundo;
	CREATE TABLE h (id int);
	CREATE TABLE z (id int PRIMARY KEY, v int) USING zheap;
	CREATE TABLE small (id int) USING zheap;
	CREATE ROLE somebody LOGIN;
	INSERT INTO z SELECT g, 0 FROM generate_series(1, 1000) g;
	INSERT INTO small VALUES (1)});
sql('BEGIN; UPDATE z SET v = 1; ROLLBACK');

chomp(my $documents = `pg_config --docdir`);
$documents .= '/extension/zundo';
ok(-s "$documents/$_", "make install: $_") for qw(README.md LICENSE CHANGELOG.md docs/reference.md docs/administration.md docs/limits.md);
# Follows the links from the first document. Those between documents hold in the
# repository as well, since they are installed into the same folders.
my @documents = ('README.md');
my (%seen, @dead);
while (defined(my $document = shift @documents))
{
	my $folder = $document =~ m{^(.*/)} ? $1 : '';
	for my $link (grep { !/^\w+:/ } slurp_file("$documents/$document") =~ /\]\(([^)#\s]+)/g)
	{
		my $path = $folder . $link;
		1 while $path =~ s{[^/]+/\.\./}{};
		push @dead, "$document: $link" if !-e "$documents/$path";
		push @documents, $path if -e "$documents/$path" && $path =~ /\.md$/ && !$seen{$path}++;
	}
}
is(join(', ', @dead), '', 'make install: the links of the documents lead to installed files');
cmp_ok(scalar keys %seen, '>=', 14, '... of all documents');

# ALTER EXTENSION UPDATE, with a rollback pending and a snapshot that needs undo.
my $old = $node->background_psql('postgres');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM z');
sql('UPDATE z SET v = 2');
like(($node->psql('postgres', q{SET ROLE somebody; ALTER EXTENSION zundo UPDATE TO '1.0_next'}))[2], qr/must be owner of extension zundo/,
	'update: only the owner may do it');
sql(q{ALTER EXTENSION zundo UPDATE TO '1.0_next'});
is(sql(q{SELECT extversion FROM pg_extension WHERE extname = 'zundo'}), '1.0_next', 'update: the version');
is(sql(q{SELECT zundo.next_version(), (SELECT bool_or(is_new) FROM zundo.stat_undo), zundo.undo_bytes_in_use() > 0}), 'next|f|t', 'update: the new objects');
is($old->query_safe('SELECT sum(v), count(*) FROM z'), '0|1000', 'update: an old snapshot reads on');
$old->query_safe('COMMIT');
$old->quit;
sql('UPDATE z SET v = v + 1');
is(sql('SELECT sum(v), count(*) FROM z'), '3000|1000', 'update: the table can be written afterwards');
like(error_of('DROP FUNCTION zundo.next_version()'), qr/because extension zundo requires it/, 'update: the new function is a member');

# A library that is older than the script.
like(error_of(q{ALTER EXTENSION zundo UPDATE TO '1.0_later'}), qr/could not find function "zundo_not_there_1_1" in file/, 'an old library: says what is missing');
is(sql(q{SELECT extversion, to_regclass('zundo.later') IS NULL FROM pg_extension WHERE extname = 'zundo'}), '1.0_next|t', 'an old library: nothing is done');
like(error_of(q{ALTER EXTENSION zundo UPDATE TO '0.9'}), qr/no update path/, 'no way back');

# A dump names no version of the extension, so whatever version the database had, the
# restored one has the objects of this one: rows, what users have made of the extension's
# objects, and grants come along, but not a member that only the other version had.
sql(q{CREATE VIEW waiting AS SELECT kind, name, pid, xid, age, since FROM zundo.stat_horizon;
	CREATE VIEW logs AS SELECT log, bytes FROM zundo.stat_undo WHERE pid IS NOT NULL;
	CREATE INDEX z_v ON z USING zbtree (v);
	GRANT SELECT ON zundo.stat_rollback TO somebody});
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dir/../dump", '-d', $node->connstr('postgres') ], 'a dump of another version: pg_dump');
sql('CREATE DATABASE restored TEMPLATE template0');
$node->command_ok([ 'pg_restore', '-e', '-d', $node->connstr('restored'), "$dir/../dump" ], 'a dump of another version: pg_restore');
is($node->safe_psql('restored', q{SELECT extversion, to_regproc('zundo.next_version') IS NULL FROM pg_extension WHERE extname = 'zundo';
	SELECT sum(v), count(*) FROM z;
	SELECT string_agg(relname || ' ' || amname, ', ' ORDER BY relname) FROM pg_class c JOIN pg_am a ON a.oid = relam
		WHERE relnamespace = 'public'::regnamespace AND relkind = 'r';
	SELECT count(*) FROM waiting, logs WHERE false;
	SELECT has_table_privilege('somebody', 'zundo.stat_rollback', 'SELECT');
	SELECT count(*) FROM zundo.check('z')}),
	"1.0|t\n3000|1000\nh heap, small zheap, z zheap\n0\nt\n0", 'a dump of another version: what is restored');
sql('DROP DATABASE restored; DROP VIEW waiting, logs; DROP INDEX z_v');

sql('SELECT zundo.discard()') for 1 .. 2;
sound($node, 'updated', qw(z zundo.undo_log));

# An undo log of another format: zheap tables are refused, heap tables are not, and no
# repair touches it.
my $undo = "$dir/" . sql(q{SELECT pg_relation_filepath('zundo.undo_log')});
my $small = "$dir/" . sql(q{SELECT pg_relation_filepath('small')});
$node->stop;
my $page = read_block($undo, META);
my $right = $page;
substr($page, VERSION, 4) = pack('L<', 1 + unpack('L<', substr($page, VERSION, 4)));
write_twins($undo, META, $page);
my @written = map { read_block($undo, twin_block(META, $_)) } (0, 1);
$node->start;
for my $statement ('UPDATE z SET v = 0', 'SELECT sum(v) FROM z', 'INSERT INTO z VALUES (2000, 1)', 'SELECT * FROM zundo.repair_undo(false)',
	'SELECT zundo.discard()', 'VACUUM z')
{
	like(error_of($statement), qr/55000: format of "zundo\.undo_log" is not supported by this version of zundo.*Found version 6 .*expected version 5/s,
		"another format of the undo log: $statement");
}
is(sql('INSERT INTO h VALUES (1) RETURNING id'), '1', 'another format of the undo log: heap tables can be written');
$node->stop;
ok(read_block($undo, twin_block(META, $_)) eq $written[$_], "another format of the undo log: copy $_ of the meta page is as it was") for (0, 1);
write_twins($undo, META, $right);

# A table page of another format.
$page = read_block($small, 0);
substr($page, PAGE_SEAL, 2) = pack('S<', 1 + unpack('S<', substr($page, PAGE_SEAL, 2)));
write_block($small, 0, $page);
$node->start;
is(sql('SELECT sum(v) FROM z'), '3000', 'the right format again: rows can be read');
like(error_of($_), qr/XX001: .*It has a format of another version of zundo/s, "another format of a page: $_")
	for ('SELECT * FROM small', 'INSERT INTO small VALUES (2)');
like(sql(q{SELECT detail FROM zundo.check('small')}), qr/It has a format of another version of zundo/, 'another format of a page: zundo.check');
no_crash($node);
done_testing();
