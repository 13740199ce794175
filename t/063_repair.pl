# The cases of docs/operations.md, "A page is damaged": what is lost in
# both copies is rebuilt, and no row is wrong before or after.
# Rules: UNDO-63, UNDO-6, UNDO-42, LOG-1.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

use constant { META => 0, MAP => map_block(0) };

# without workers, so that rollbacks stay pending
my $node = zundo_node('repair', <<'C', extra => ['--data-checksums']);
max_worker_processes = 0
max_prepared_transactions = 10
zundo.eager_rollback_pages = 0
C
$node->safe_psql('postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE h (id int);
	CREATE TABLE z (id int PRIMARY KEY, v int, t text) USING zheap;
	CREATE TABLE y (id int PRIMARY KEY, v int, t text) USING zheap;
	INSERT INTO z SELECT g, 0, repeat('x', 100) FROM generate_series(1, 4000) g;
	INSERT INTO y SELECT g, 0, repeat('x', 100) FROM generate_series(1, 4000) g});
my $path = $node->data_dir . '/' . $node->safe_psql('postgres', q{SELECT pg_relation_filepath('zundo.undo_log')});
my $v = 0;

sub error_of { my ($sql, $server) = @_; return (($server // $node)->psql('postgres', "\\set VERBOSITY verbose\n$sql"))[2] }
sub right { my ($when) = @_; is(sql('SELECT count(*), sum(v) FROM z'), '4000|' . 4000 * $v, "$when: the rows are right"); return }

# pending NAME: makes undo that is needed: of a transaction that was rolled back and is
# not undone yet, of a prepared one, and of others before, after and between.
sub pending
{
	my ($name) = @_;
	for (1 .. 2)
	{
		sql('UPDATE z SET v = v + 1, t = md5(t) || t');
		$v++;
		sql('SELECT zundo.discard()');
	}
	sql('SELECT zundo.purge()');
	sql("BEGIN; UPDATE y SET v = v + 1, t = md5(t) || t WHERE id > 2000; PREPARE TRANSACTION '$name'");
	sql('BEGIN; UPDATE z SET v = v + 1000, t = md5(t) || t; ROLLBACK');
	sql('BEGIN; INSERT INTO z SELECT g, 0 FROM generate_series(10001, 12000) g; SAVEPOINT s; UPDATE z SET v = 7 WHERE id = 1; ROLLBACK');
	sql('UPDATE y SET v = v + 1, t = md5(t) || t WHERE id <= 2000');
	right("$name, before");
	return;
}

# resolved NAME: ends the transactions, and checks that all is undone.
sub resolved
{
	my ($name, $y) = @_;
	sql("ROLLBACK PREPARED '$name'");
	sql('SELECT zundo.discard()') for 1 .. 2;
	right("$name, undone");
	is(sql('SELECT sum(v) FROM y WHERE id > 2000'), '0', "$name: what was prepared is taken back");
	sql('UPDATE z SET v = v + 1, t = md5(t) || t');
	$v++;
	sql('SELECT zundo.discard()') for 1 .. 2;
	right("$name, and written again");
	is(sql('SELECT count(*) FROM zundo.stat_rollback'), '0', "$name: nothing is left");
	sound($node, "$name, in the end", qw(z y zundo.undo_log));
	crash($node);
	right("$name, after a crash");
	return;
}

my %damage = (zeroed => "\0" x 8192, garbage => "\xa5" x 8192);
for my $case ([ 'meta', META ], [ 'map', MAP ], [ 'both', META, MAP ])
{
	my ($name, @pairs) = @$case;
	pending($name);
	$node->stop;
	for my $first (@pairs)
	{
		write_block($path, $first, $damage{zeroed});
		write_block($path, twin_block($first, 1), $damage{garbage});
	}
	$node->start;
	like(error_of('UPDATE z SET v = v + 1'), qr/XX001: .*blocks \d and \d+ of relation "zundo.undo_log" are damaged.*repair_undo/s, "$name: writing fails");
	is(sql('INSERT INTO h VALUES (1) RETURNING id'), '1', "$name: heap tables can be used");
	right("$name, lost") if $name eq 'map';
	like(sql(q{SELECT * FROM zundo.check('zundo.undo_log')}), qr/LOG-2/, "$name: zundo.check finds it");
	like(sql('SELECT step FROM zundo.repair_undo()'), qr/both copies are lost; rebuilt/, "$name: a dry run says what would be done");
	like(error_of('UPDATE z SET v = v + 1'), qr/XX001/, "$name: and does nothing");
	like(sql('SELECT step FROM zundo.repair_undo(dry_run => false)'), qr/both copies are lost; rebuilt/, "$name: it is made anew");
	is(sql('SELECT * FROM zundo.repair_undo()'), '', "$name: nothing more is to be done");
	right($name);
	is(sql(q{SELECT * FROM zundo.check('zundo.undo_log')}), '', "$name: zundo.check finds nothing");
	resolved($name);
}

# One copy is lost, and while sessions write.
$node->stop;
write_block($path, META, $damage{garbage});
$node->start;
like(sql('SELECT step FROM zundo.repair_undo(false)'), qr/meta page: one copy has been repaired from the other/, 'one copy: repaired');
is(sql('SELECT * FROM zundo.repair_undo(false)'), '', 'one copy: once');
right('one copy');
# A page of undo records is lost. undo_pages: returns the blocks that contain records.
sub undo_pages
{
	my $size = (-s $path) / 8192;
	return grep { my $page = read_block($path, $_); unpack('S<', substr($page, 36, 2)) == 0x7A75 && unpack('S<', substr($page, 12, 2)) > 64 } (0 .. $size - 1);
}

# discarded: discards all undo. Then no transaction needs the lost page, but this is not
# known: one that aborted at that time may have had undo there.
sub discarded { sql('SELECT zundo.discard()') for 1 .. 2; return }
discarded();
sql('UPDATE z SET v = v + 1, t = md5(t) || t');
$v++;
sql('BEGIN; INSERT INTO h VALUES (2); ROLLBACK');
sql('UPDATE y SET v = v + 1');
$node->stop;
my @blocks = undo_pages();
cmp_ok(scalar @blocks, '>', 10, 'there are undo pages');
write_block($path, $blocks[ @blocks / 2 ], $damage{garbage});
$node->start;
right('a page of records');
sql('UPDATE z SET v = v + 1');
$v++;
right('a page of records, written');
discarded();
like(sql(q{SELECT DISTINCT invariant FROM zundo.check('zundo.undo_log')}), qr/^LOG-1$/, 'a page of records: zundo.check finds it');
like(sql('SELECT step FROM zundo.repair_undo()'), qr/undo log \d+: a part cannot be read \(transactions \d+ to \d+\), and no table needs it; the part is given up/, 'a page of records: no table needs it');
isnt(sql(q{SELECT * FROM zundo.check('zundo.undo_log')}), '', 'a page of records: a dry run does nothing');
like(sql('SELECT step FROM zundo.repair_undo(false)'), qr/given up/, 'a page of records: it is given up');
discarded();
is(sql(q{SELECT * FROM zundo.check('zundo.undo_log')}), '', 'a page of records: zundo.check finds nothing more');
is(sql('SELECT * FROM zundo.repair_undo()'), '', 'a page of records: nothing more is to be done');
right('a page of records, given up');

# A table needs it.
sql('CREATE TABLE before AS SELECT * FROM y');
my $lost = sql('BEGIN; UPDATE y SET v = v + 1, t = md5(t) || t WHERE id <= 2000; SELECT pg_current_xact_id(); ROLLBACK');
$node->stop;
write_block($path, $_, $damage{garbage}) for undo_pages();
$node->start;
like(error_of('SELECT sum(v) FROM y'), qr/XX001/, 'needed records: a reader that needs them gets an error');
right('needed records');
discarded();
like(sql('SELECT step FROM zundo.repair_undo(false)'), qr/table public\.y needs the part that cannot be read: \d+ pages have changes of aborted transactions \($lost\);/, 'needed records: the table is named');
unlike(sql('SELECT step FROM zundo.repair_undo(false)'), qr/given up/, 'needed records: nothing is given up');
discarded();
like(error_of('SELECT sum(v) FROM y'), qr/XX001/, 'needed records: a reader that needs them still gets an error');
sql('UPDATE z SET v = v + 1');
$v++;
right('needed records, others written');
# the document's way to copy the readable rows
my ($copy) = slurp_file("$FindBin::RealBin/../docs/operations.md") =~ /```sql\n(CREATE TABLE rescued.*?)```/s or die 'no example in docs/operations.md';
$copy =~ s/\bt\b/y/g;
sql("SET client_min_messages = error;\n$copy");
is(sql('SELECT count(*) >= 1500, count(*) = count(DISTINCT id), bool_and(id > 2000) FROM rescued'), 't|t|t', 'needed records: rows of other pages are copied');
is(sql('SELECT count(*) FROM (SELECT * FROM rescued EXCEPT SELECT * FROM before) x'), '0', 'needed records: ... as they were');
sql('DROP TABLE y');
like(sql('SELECT step FROM zundo.repair_undo(false)'), qr/no table needs it; the part is given up/, 'needed records: without the table it is given up');
discarded();
right('needed records, given up');
sound($node, 'in the end', qw(z zundo.undo_log));

sql('CREATE ROLE nobody; GRANT EXECUTE ON FUNCTION zundo.repair_undo(boolean) TO nobody');
like(error_of('SET ROLE nobody; SELECT * FROM zundo.repair_undo()'), qr/42501: must be superuser/, 'only superusers repair');
like(error_of('BEGIN; INSERT INTO h VALUES (3); SELECT * FROM zundo.repair_undo()'),
	qr/25001: zundo\.repair_undo\(\) cannot run in a transaction that has modified data/, 'nor in a transaction that has written');
like(error_of('SELECT * FROM zundo.repair_undo(NULL)'), qr/22004: dry_run must not be null/, 'null is not no');

# zundo.stat_rollback reads 100,000 records of a log: it does not tell how large what lies beyond is.
sql('CREATE TABLE many (id int, v int) USING zheap WITH (fillfactor = 60); INSERT INTO many SELECT g, 0 FROM generate_series(1, 100100) g');
discarded();
sql('BEGIN; UPDATE z SET v = v + 1; ROLLBACK');
my $waiting = 'SELECT state, bytes > 100000, records_total FROM zundo.stat_rollback';
is(sql($waiting), 'waiting|t|4000', 'a small rollback is shown as a whole');
discarded();
sql('BEGIN; UPDATE many SET v = 1; ROLLBACK');
is(sql($waiting), 'waiting||', 'of a large one the size is not known');
discarded();
is(sql($waiting), '', 'both are done');

# While another process discards, it is not known what is lost.
my ($discarder, $watcher) = map { session($node) } 1 .. 2;
my $pid = ask($discarder, 'SELECT pg_backend_pid()');
for my $attempt (1 .. 20)
{
	ask($discarder, "SET zundo.fault = 'log-parsed:sleep:1'");
	$discarder->query_until(qr/begun/, "\\echo begun\nSELECT zundo.discard();\n");
	last if ZundoTest::caught($watcher, $pid, 'SELECT zundo.discard%');
}
like(sql('SELECT step FROM zundo.repair_undo()'), qr/^undo log: not searched for damage, since another process discards undo; call/, 'beside a discard pass that is said');
kill 'CONT', $pid;
ask($discarder, 'SELECT 1');
$_->quit for $discarder, $watcher;
no_crash($node);
$node->stop;

# Both copies of a map page are lost while sessions write: it is rebuilt after a restart,
# when no session knows the undo log from before. Small buffers, so that the page is read
# again.
my $busy = zundo_node('busy', "max_worker_processes = 0\nshared_buffers = 1MB\n", extra => ['--data-checksums']);
sql('CREATE EXTENSION zundo; CREATE TABLE z (id int PRIMARY KEY, v int) USING zheap; INSERT INTO z SELECT g, 0 FROM generate_series(1, 100) g');
my $file = $busy->data_dir . '/' . sql(q{SELECT pg_relation_filepath('zundo.undo_log')});
my $session = session($busy);
ask($session, 'UPDATE z SET v = v + 1');
my $repair = 'SELECT step FROM zundo.repair_undo(dry_run => false)';
sql('CHECKPOINT');
write_block($file, twin_block(MAP, $_), $damage{garbage}) for 0, 1;
sql('CREATE TABLE filler (pad text); INSERT INTO filler SELECT repeat($$x$$, 1000) FROM generate_series(1, 5000)');
like(error_of($repair, $busy), qr/55000: cannot rebuild the extent map while sessions write to the undo log/, 'busy: the map is not rebuilt while sessions write');
is(ask($session, 'SELECT sum(v) FROM z'), '100', 'busy: the rows are right');
$session->quit;
$busy->stop('immediate');
write_block($file, twin_block(MAP, $_), $damage{garbage}) for 0, 1;
$busy->start;
like(sql($repair), qr/both copies are lost; rebuilt/, 'busy: after a restart it is');
is(sql('UPDATE z SET v = v + 1; SELECT sum(v) FROM z'), '200', 'busy: and the table is written');
sound($busy, 'busy', qw(z zundo.undo_log));
$busy->stop;
done_testing();
