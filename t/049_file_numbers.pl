# Two tables whose files have the same number, in two tablespaces: a number is
# unique within one tablespace only, and comes again when the server's counter
# of OIDs has wrapped around. What a session remembers of one of the tables is
# not used for the other: one command that inserts into both puts each row into
# its own.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('numbers', "allow_in_place_tablespaces = on\n");
sql("CREATE EXTENSION zundo; CREATE TABLESPACE side LOCATION ''");
# Of 33 tables two have the same place in the session's memory of their records (RANGES in
# dml/zrange.c).
sql(q{
	CREATE TABLE p (k int, id int, pad text) PARTITION BY LIST (k);
	DO $$ BEGIN FOR i IN 1 .. 33 LOOP EXECUTE format('CREATE TABLE c%s (k int, id int, pad text) USING zheap', i); END LOOP; END $$});
my ($one, $two, $file) = split /\|/, sql(q{
	SELECT a.oid::regclass, b.oid::regclass, a.relfilenode FROM pg_class a JOIN pg_class b ON a.oid < b.oid AND a.oid::int8 % 32 = b.oid::int8 % 32
	WHERE a.relname ~ '^c\d+$' AND b.relname ~ '^c\d+$' LIMIT 1});
$node->stop;
$node->command_ok([ 'pg_resetwal', '-o', $file, $node->data_dir ], 'the counter of OIDs goes back');
$node->start;
sql("ALTER TABLE $two SET TABLESPACE side");
is(sql("SELECT count(DISTINCT relfilenode) FROM pg_class WHERE relname IN ('$one', '$two')"), '1', 'two files have the same number');
sql("ALTER TABLE p ATTACH PARTITION $one FOR VALUES IN (1); ALTER TABLE p ATTACH PARTITION $two FOR VALUES IN (2)");

# One command inserts into both in turn; the first has more blocks than the second.
sql(q{INSERT INTO p SELECT CASE WHEN g % 1000 < 3 THEN 2 ELSE 1 END, g, repeat('x', 50) FROM generate_series(1, 5000) g});
is(sql('SELECT k, count(*), sum(id) FROM p GROUP BY k ORDER BY k'), "1|4985|12467485\n2|15|35015", 'every row is where it belongs')
	or diag sql('SELECT tableoid::regclass, k, count(*), sum(id) FROM p GROUP BY 1, 2');
# The same for changes, row locks and rollbacks in one transaction.
sql(q{
	BEGIN; UPDATE p SET pad = 'y' WHERE id % 7 = 0; SELECT count(*) FROM (SELECT FROM p FOR KEY SHARE) x; SAVEPOINT s;
	UPDATE p SET pad = repeat('z', 500) WHERE id % 5 = 0; DELETE FROM p WHERE id % 3 = 0; ROLLBACK TO s; COMMIT;
	BEGIN; UPDATE p SET id = id + 1; INSERT INTO p SELECT g % 2 + 1, g, 'a' FROM generate_series(1, 1000) g; ROLLBACK});
is(sql(q{SELECT k, count(*), sum(id), count(*) FILTER (WHERE pad = 'y') FROM p GROUP BY k ORDER BY k}), "1|4985|12467485|712\n2|15|35015|2", 'changes and rollbacks')
	or diag sql('SELECT tableoid::regclass, k, count(*), sum(id) FROM p GROUP BY 1, 2');
is(sql("SELECT zundo.check('$one'), zundo.check('$two')"), '', 'zundo.check');

# ALTER TABLE ... SET TABLESPACE is rolled back with rows that were inserted into the new
# file: indexes keep their entries. A scan by them fails to read pages that the table does
# not have, and from 16 on the server gives these buffers to the next extension as they
# are. The session that extends gets an error, once.
sql(q{CREATE TABLE t (id int PRIMARY KEY) USING zheap; INSERT INTO t SELECT generate_series(1, 500)});
sql('BEGIN; ALTER TABLE t SET TABLESPACE side; INSERT INTO t SELECT generate_series(1001, 9000); ROLLBACK');
my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*), sum(id) FROM t WHERE id';
like(($node->psql('postgres', "$by_index > 1000"))[2], qr/could not read block/, 'an entry without a page is an error');
my $insert = 'INSERT INTO t SELECT generate_series(10001, 12000)';
my ($result, undef, $error) = $node->psql('postgres', $insert);
# The buffer may have been empty by chance.
if ($result == 0) { pass('the new page is empty') }
else { like($error, qr/page \d+ of table "t" should be empty but is not/, 'a new page that is not empty is an error') }
sql('REINDEX TABLE t');
sql($insert) if $result != 0;
is(sql("$by_index > 0"), '2500|22126250', 'after REINDEX all rows are found by the index');
is(sql('SELECT count(*), sum(id) FROM t'), '2500|22126250', 'and without it');
is(sql(q{SELECT * FROM zundo.check('t')}), '', 'zundo.check of the table');
no_crash($node);
$node->stop;
done_testing();
