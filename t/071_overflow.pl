# More writers and lockers on one full page than the page has slots: overflow
# pages. The test uses prepared transactions, because one session can have
# hundreds of them and they survive a crash.
# Rules: OVERFLOW-1, UNDO-20, UNDO-67, DML-1.
use strict;
use warnings;
use Test::More;
use ZundoTest;

my $writers = 64;
my $lockers = 600;

my $node = zundo_node('overflow', <<'C', allows_streaming => 1);
wal_consistency_checking = 'zundo'
max_prepared_transactions = 1000
checkpoint_timeout = 1h
max_wal_size = 4GB
wal_keep_size = 4GB
C
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;

$node->safe_psql('postgres', 'CREATE EXTENSION zundo; CREATE EXTENSION pg_walinspect');
my $start = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
for my $table ('TABLE t', 'UNLOGGED TABLE u', 'TABLE gone', 'TABLE narrow')
{
	my ($name) = $table =~ /(\w+)$/;
	my $width = $name eq 'narrow' ? 1 : 60;
	$node->safe_psql('postgres',
		"CREATE $table (id int PRIMARY KEY, n int, filler text) USING zheap WITH (fillfactor = 100);
		INSERT INTO $name SELECT i, 0, repeat('x', $width) FROM generate_series(1, 600) i");
}

# A transaction takes a slot that has no chain, if there is one; else that of the oldest owner, but not that of the row
# that it changes.
# So a row whose slot belongs to somebody else now is rare, and readers need not look for its author in undo.
my $slot_after_update = sub {
	my ($id) = @_;
	sql("UPDATE s SET n = n + 1 WHERE id = $id");
	$node->poll_query_until('postgres', q{SELECT bool_and(status = 'visible to all') FROM zundo.page_slots('s', 0) WHERE xid IS NOT NULL})
		or die 'the undo of the update stays';
	return sql("SELECT slot FROM zundo.page_items('s', 0) WHERE lp = $id");
};
sql('CREATE TABLE s (id int, n int) USING zheap; INSERT INTO s SELECT i, 0 FROM generate_series(1, 8) i');
is(join(' ', map { $slot_after_update->($_) } 1, 2, 3, 4, 4, 4), '2 3 4 2 1 3', 'which slots updates take on a page with room');

sub overflow_slots
{
	my ($table) = @_;
	return sql("SELECT count(*) FILTER (WHERE overflow AND xid IS NOT NULL) FROM zundo.page_slots('$table', 0)");
}

sub check
{
	my ($table, $when) = @_;
	is(sql("SELECT * FROM zundo.check('$table')"), '', "zundo.check of $table $when");
	return;
}

# rows NODE TABLE: returns what other sessions see of the rows that the writers have changed.
sub rows
{
	my ($on, $table) = @_;
	return $on->safe_psql('postgres',
		"SELECT count(*), sum(n), sum(id), count(*) FILTER (WHERE n > 0) FROM $table");
}

# open_writers TABLE: prepares transactions, of which number i changes row i; some go back
# to a savepoint, some delete, some move the row.
sub open_writers
{
	my ($table) = @_;
	my @lines;
	for my $i (1 .. $writers)
	{
		push @lines, 'BEGIN;', "UPDATE $table SET n = n + 1 WHERE id = $i;";
		push @lines, 'SAVEPOINT a;', "UPDATE $table SET n = n + 100 WHERE id = $i;", 'ROLLBACK TO a;' if $i % 4 == 0;
		push @lines, "DELETE FROM $table WHERE id = $i;" if $i % 8 == 1;
		push @lines, "UPDATE $table SET id = id + 10000 WHERE id = $i;" if $i % 8 == 2;
		push @lines, "PREPARE TRANSACTION '$table$i';";
	}
	sql(@lines);
	return;
}

sub end_writers
{
	my ($table, $from, $to) = @_;
	sql(map { ($_ % 2 ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$table$_';" } $from .. $to);
	return;
}

my $half = $writers / 2;
for my $table (qw(t u gone narrow))
{
	open_writers($table);
	is(rows($node, $table), '600|0|180300|0', "$table: $writers open writers, nobody sees anything of them");
	check($table, 'with open writers');
}
cmp_ok(overflow_slots('t'), '>', 40, 'slots of the full page are on an overflow page');
cmp_ok(overflow_slots('u'), '>', 40, '... and of the unlogged one');
is(overflow_slots('narrow'), '0', 'a page with free space has its slots inline');

# Lockers.
sql(map { ('BEGIN;', 'SELECT 1 FROM t WHERE id = 70 FOR KEY SHARE;', "PREPARE TRANSACTION 'k$_';") } 1 .. 400);
cmp_ok(overflow_slots('t'), '>', 180, 'many lockers have slots');
cmp_ok(overflow_slots('t'), '<', 300, '... but leave slots for writers');
my ($rc, $out, $err) = $node->psql('postgres', 'SELECT 1 FROM t WHERE id = 70 FOR UPDATE NOWAIT');
like($err, qr/could not obtain lock/, 'the lockers hold the row');
sql('UPDATE t SET n = 0 WHERE id = 70;');
sql('SELECT 1 FROM t WHERE id = 70 FOR KEY SHARE;');
($rc, $out, $err) = $node->psql('postgres', 'SELECT 1 FROM t WHERE id = 70 FOR UPDATE NOWAIT');
like($err, qr/could not obtain lock/, 'an update beside the lockers does not end their locks');
check('t', 'with lockers');
($rc, $out, $err) = $node->psql('postgres',
	join("\n", map { ("BEGIN;", 'SELECT 1 FROM t WHERE id = 70 FOR KEY SHARE;', "PREPARE TRANSACTION 'x$_';") } 401 .. $lockers),
	on_error_stop => 1);
is($err, '', 'lockers are never too many');
$out = sql(q{SELECT string_agg(gid, ' ') FROM pg_prepared_xacts WHERE gid LIKE 'x%'});
sql(map { "ROLLBACK PREPARED '$_';" } split / /, $out);

# Standby: the same answers, with the overflow page in use.
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is(rows($standby, 't'), rows($node, 't'), 'the standby reads the page');

# Half of the transactions end, with a crash in between.
end_writers('t', 1, $half);
end_writers('u', 1, $half);
my $seen = rows($node, 't');
check('t', 'half way');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is(rows($standby, 't'), $seen, 'the standby shows the same rows when half of them have ended');
crash($node);
is(rows($node, 't'), $seen, 'the same rows after a crash with overflow pages in use');
is(rows($node, 'u'), '0|||0', 'the unlogged table is empty');
check($_, 'after the crash') for qw(t u gone narrow);
($rc, $out, $err) = $node->psql('postgres', 'SELECT 1 FROM t WHERE id = 70 FOR UPDATE NOWAIT');
like($err, qr/could not obtain lock/, 'the lockers hold the row after the crash');

end_writers('t', $half + 1, $writers);
end_writers('u', $half + 1, $writers);
end_writers($_, 1, $writers) for qw(gone narrow);
is(rows($node, 't'), rows($node, 'gone'), 'both tables ended alike');
is(rows($node, 't'), rows($node, 'narrow'), '... and the one without overflow pages');
sql(map { "COMMIT PREPARED 'k$_';" } 1 .. 200);
sql(map { "ROLLBACK PREPARED 'k$_';" } 201 .. 400);
is(sql('SELECT id FROM t WHERE id = 70 FOR UPDATE NOWAIT'), '70', 'nobody holds the row any more');
check($_, 'after the end') for qw(t gone narrow);
is(sql('SET enable_seqscan = off; SELECT count(*), sum(n) FROM t WHERE id < 100'),
	sql('SET enable_seqscan = off; SELECT count(*), sum(n) FROM narrow WHERE id < 100'), 'by index');

# The overflow pages are freed by VACUUM, and by the worker if the table has been dropped.
$seen = rows($node, 't');
sql('DROP TABLE gone');
for (1 .. 60)
{
	sql('VACUUM t');
	last if sql("SELECT count(*) FROM zundo.page_slots('t', 0) WHERE overflow") == 0;
	sleep 1;
}
is(sql("SELECT count(*) FROM zundo.page_slots('t', 0) WHERE overflow"), '0', 'VACUUM gives the overflow page back');
is(rows($node, 't'), $seen, 'the same rows without it');
check('t', 'without overflow page');
open_writers('t');
cmp_ok(overflow_slots('t'), '>', 20, 'the page gets another one');
end_writers('t', 1, $writers);
check('t', 'after another round');

# A page has 510 slots for changes, of which lockers take 256 at most. Writers beyond that get an error, and the page
# takes others again when one of them has ended.
sql('CREATE TABLE one (id int, n int) USING zheap WITH (fillfactor = 100); INSERT INTO one SELECT g, 0 FROM generate_series(1, 291) g');
sql(map { "BEGIN; SELECT 1 FROM one WHERE id = $_ FOR KEY SHARE; PREPARE TRANSACTION 'k$_';" } 1 .. 270);
my ($n, $complaint) = (0, '');
while ($n < 291 && $complaint eq '')
{
	my $to = $n + 10;
	my @ids = ($n + 1 .. ($to > 291 ? 291 : $to));
	(undef, undef, $complaint) = $node->psql('postgres', join("\n", "\\set VERBOSITY verbose",
		map { "BEGIN; UPDATE one SET n = 1 WHERE id = $_; PREPARE TRANSACTION 'u$_';" } @ids), on_error_stop => 1);
	$n = sql(q{SELECT count(*) FROM pg_prepared_xacts WHERE gid ~ '^u'});
}
like($complaint, qr/54000: too many transactions are changing block 0 of zheap table "one" at once/, 'a writer for which the page has no slot');
cmp_ok($n, '>=', 253, "... beside lockers and $n writers");
sql("ROLLBACK PREPARED 'u1'; BEGIN; UPDATE one SET n = 1 WHERE id = 291; PREPARE TRANSACTION 'u291'");
is(sql('SELECT count(*), sum(n) FROM one'), '291|0', 'another writer has the slot of one that has ended');
check('one', 'full of writers and lockers');
sql("COMMIT PREPARED 'u$_'") for 2 .. 4, 291;
sql(map { "ROLLBACK PREPARED '$_';" } split /\n/, sql(q{SELECT gid FROM pg_prepared_xacts WHERE gid ~ '^[uk][0-9]'}));
ok($node->poll_query_until('postgres', 'SELECT zundo.discard() IS NOT NULL AND NOT EXISTS (SELECT FROM zundo.stat_rollback)'), '... they are rolled back');
is(sql('SELECT count(*), sum(n) FROM one'), '291|4', '... all but four');
check('one', 'after all of them');

my $freed = q{SELECT count(*) %s FROM pg_get_wal_records_info('%s', pg_current_wal_flush_lsn())
	WHERE resource_manager = 'zundo' AND record_type = 'OVERFLOW' AND description ~ 'freed'};
ok($node->poll_query_until('postgres', sprintf($freed, '>= 3', $start)),
	'overflow pages of the dropped and of the emptied table are freed');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is(rows($standby, 't'), rows($node, 't'), 'the standby agrees in the end');
$standby->stop;
crash($node);
check($_, 'after the last crash') for qw(t u narrow);
no_crash($node);
$node->stop;
done_testing();
