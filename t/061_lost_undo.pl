# Undo pages that are lost, outdated or damaged: readers get the right row or an
# error that names the place, never a wrong row. Damage in undo that is not
# needed has no effect.
# Rules: UNDO-5, UNDO-10, UNDO-11, UNDO-36, UNDO-37, UNDO-16, UNDO-2, CHAIN-11, CHAIN-1.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

# the server's checksums would find most of it before we do; the last case has them
my $node = zundo_node('lost_undo', "max_prepared_transactions = 10\nfsync = off\n", no_data_checksums => 1);
my (%path, %since, %session);

sub sql_in { my ($db, $sql) = @_; return $node->safe_psql($db, $sql) }

# make DB: creates a database with tables t and other of 20000 rows on about 150 pages,
# whose undo is discarded.
sub make
{
	my ($db) = @_;
	sql_in('postgres', "CREATE DATABASE $db TEMPLATE seed");
	$path{$db} = $node->data_dir . '/' . sql_in($db, "SELECT pg_relation_filepath('zundo.undo_log')");
	$since{$db} = sql_in($db, 'SELECT pg_current_xact_id()');
	return;
}

# open_in DB SQL: starts a session that runs SQL in a transaction and leaves that open.
sub open_in
{
	my ($db, $sql) = @_;
	$session{$db} = $node->background_psql($db);
	$session{$db}->query_safe("BEGIN; $sql");
	return;
}

# pages DB: returns the headers of the undo pages that were written since make, of the log
# that was written last, in the order of the log.
sub pages
{
	my ($db) = @_;
	my @pages;
	for my $block (0 .. (-s $path{$db}) / 8192 - 1)
	{
		my $bytes = read_block($path{$db}, $block);
		next unless unpack('S<', substr($bytes, 36, 2)) == 0x7A75;
		my %page = (block => $block, bytes => $bytes, lower => unpack('S<', substr($bytes, 12, 2)));
		@page{qw(generation extent logno first magic page sequence prev topxid)} = unpack('L<L<S<S<S<S<Q<Q<Q<', substr($bytes, 24, 40));
		push @pages, \%page if $page{topxid} >= $since{$db};
	}
	my ($last) = sort { $b->{topxid} <=> $a->{topxid} } @pages;
	return sort { $a->{sequence} <=> $b->{sequence} || $a->{page} <=> $b->{page} } grep { $_->{logno} == $last->{logno} } @pages;
}

# in_line PAGE N: returns the offset of the N-th record that begins on a page.
sub in_line
{
	my ($page, $n) = @_;
	my $at = $page->{first};
	$at += unpack('S<', substr($page->{bytes}, $at + 1, 2)) for 1 .. $n;
	return $at;
}

# break_record DB PAGE: gives the third record of the page an impossible length.
sub break_record
{
	my ($db, $page) = @_;
	my $bytes = $page->{bytes};
	substr($bytes, in_line($page, 2) + 1, 2) = pack('S<', 5);
	write_block($path{$db}, $page->{block}, $bytes);
	return;
}

# unreadable DB SQL NAME: checks that the SQL fails with an error of damage that names the undo log and a block.
sub unreadable
{
	my ($db, $sql, $name) = @_;
	my ($rc, $out, $err) = $node->psql($db, "\\set VERBOSITY verbose\n$sql");
	like($err, qr/XX001: .*block \d+ of relation "zundo\.undo_log"/, $name) or diag("rc $rc, rows: $out");
	return;
}

sub others_work
{
	my ($db) = @_;
	is(sql_in($db, 'INSERT INTO other VALUES (1, 0); UPDATE other SET v = v + 1; SELECT count(*), sum(v) FROM other'), '1|1',
		"$db: another table is written");
	is(sql_in($db, 'VACUUM other; VACUUM zundo.undo_log; SELECT zundo.discard() IS NOT NULL'), 't', "$db: ... vacuumed, and discarding continues");
	return;
}

sql_in('postgres', 'CREATE DATABASE seed');
sql_in('seed', q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int PRIMARY KEY, v int, pad text) USING zheap;
	CREATE TABLE other (id int, v int) USING zheap;
	INSERT INTO t SELECT g, 0, repeat('x', 20) FROM generate_series(1, 20000) g;
});
all_discarded($node, 'seed');
my @dbs = qw(zeroed stale tail gone record behind);
make($_) for @dbs;

# the logs at the crash: one transaction is open in each, some began before
open_in('zeroed', 'UPDATE t SET v = 999');
open_in('stale', 'UPDATE t SET v = 999');
# ... and old snapshots keep the undo of two, so that what follows is written to the same pages
for my $db (qw(tail gone))
{
	$session{"snapshot in $db"} = $node->background_psql($db);
	$session{"snapshot in $db"}->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM other');
}
sql_in('tail', 'UPDATE t SET v = 0 WHERE id = 1');
sql_in('gone', 'UPDATE t SET v = 0 WHERE id <= 400');
sql_in('postgres', 'CHECKPOINT');
my %before = map { $_ => { map { $_->{block} => $_ } pages($_) } } qw(tail gone);
open_in('tail', 'UPDATE t SET v = 999 WHERE id <= 20');
open_in('gone', 'UPDATE t SET v = 999 WHERE id <= 20');
sql_in('record', 'UPDATE t SET v = 0 WHERE id <= 10');
open_in('record', 'UPDATE t SET v = 999 WHERE id BETWEEN 20 AND 30');
# one page's rows are changed first, and again after many others: the chain has its head
# far from its older part
sql_in('behind', q{BEGIN; UPDATE t SET v = 999 WHERE id <= 5; UPDATE t SET v = v + 1 WHERE id > 2000;
	UPDATE t SET v = 999 WHERE id = 6; PREPARE TRANSACTION 'behind'});
sql_in('postgres', 'CHECKPOINT');
$node->stop('immediate');
$_->quit for values %session;

for my $db (@dbs)
{
	my @pages = pages($db);
	my %count;
	$count{ $_->{sequence} }++ for @pages;
	# the log has a full extent of this number, and no other one has the number (UNDO-5)
	my ($full) = grep { $count{$_} == 64 } sort { $a <=> $b } keys %count;
	my @extent = grep { defined $full && $_->{sequence} == $full } @pages;
	if ($db eq 'zeroed') { write_block($path{$db}, $extent[0]{block}, "\0" x 8192) }
	elsif ($db eq 'stale')
	{
		my $bytes = $extent[10]{bytes};
		substr($bytes, 12, 2) = pack('S<', in_line($extent[10], 5));
		write_block($path{$db}, $extent[10]{block}, $bytes);
	}
	elsif ($db eq 'tail' || $db eq 'gone')
	{
		# the log's last page, as it was at the checkpoint before, or not written at all
		my $old = $before{$db}{ $pages[-1]{block} };
		ok(defined $old && $old->{lower} < $pages[-1]{lower}, 'tail: the page was written at both checkpoints') if $db eq 'tail';
		write_block($path{$db}, $pages[-1]{block}, $db eq 'tail' ? $old->{bytes} : "\0" x 8192);
	}
	elsif ($db eq 'record') { break_record($db, $pages[-1]) }
	else { write_block($path{$db}, $_->{block}, "\0" x 8192) for grep { $_->{page} < 2 } @extent }
}
$node->start;

# Right after the crash, and after the worker's pass: the open transaction never counts as
# committed.
for my $round ('after the crash', 'later')
{
	for my $db (qw(zeroed stale tail gone record behind))
	{
		my ($rc, $out, $err) = $node->psql($db, 'SELECT count(*) FROM t WHERE v = 999');
		ok($rc != 0 ? $err =~ /zundo\.undo_log|whose undo is lost/ : $out eq '0', "$db, $round: nothing uncommitted is seen") or diag("$out $err");
	}
	sql_in($_, 'SELECT zundo.discard()') for @dbs;
}
ok($node->wait_for_log(qr/LOG:  undo log \d+ is damaged\n.*DETAIL:  It cannot be read beyond offset \d+ of block \d+/), 'the log says which undo log');
unreadable('behind', 'SELECT * FROM t WHERE id = 3', 'behind: a row whose change is further down in the chain');
others_work($_) for @dbs;
# A page that is not full, before others (stale): the log does not end there, since no
# extent continues it at this place (UNDO-11). Taken for the end, the rest of the log
# would be forgotten, and no damage seen.
for my $db (qw(zeroed stale record))
{
	ok($node->poll_query_until($db, q{SELECT count(*) = 1 FROM zundo.stat_horizon WHERE kind = 'damaged undo log'}), "$db: what holds undo back is named");
}

is(sql_in($_, q{SELECT * FROM zundo.check('other')}), '', "$_: zundo.check of the other table") for @dbs;
# zundo.check finds each loss twice: where undo cannot be read, and in the table, if that needs
# it (of 'record', the table may have been rolled back without the damaged record). What a
# log's last page has lost is seen in the table alone (tail): the log ends there.
for my $db (@dbs)
{
	my $damage = ($node->psql($db, 'SELECT count(*) FROM t'))[0] == 0 ? qr/^$/ : qr/block \d+ of relation "zundo\.undo_log"|its undo is lost/;
	like(sql_in($db, q{SELECT detail FROM zundo.check('t')}), $damage, "$db: zundo.check of the table");
	isnt($damage, qr/^$/, "$db: ... which needs the undo") if $db ne 'record';
	my $found = sql_in($db, q{SELECT DISTINCT invariant, detail ~ 'block \d+ of relation "zundo.undo_log"' FROM zundo.check('zundo.undo_log')});
	is($found, $db eq 'tail' ? '' : 'LOG-1|t', "$db: zundo.check of the undo log");
}

# The lost transactions are still reported after a restart, when no undo of that time is left.
for my $db (qw(tail gone))
{
	my $message = qr/block 0 of relation "t" has changes of transaction \d+, whose undo is lost|block \d+ of relation "zundo\.undo_log" has lost an undo record/;
	sql_in($db, 'SELECT zundo.discard()');
	$node->restart if $db eq 'tail';
	my ($rc, $out, $err) = $node->psql($db, 'SELECT count(*) FROM t');
	like($err, $message, "$db: readers get an error");
	($rc, $out, $err) = $node->psql($db, 'UPDATE t SET v = 1 WHERE id = 3');
	like($err, $message, "$db: writers get an error");
	like(sql_in($db, q{SELECT invariant, detail FROM zundo.check('t')}), qr/CHAIN-11\|.*its undo is lost|has lost an undo record/, "$db: zundo.check is");
	my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off;';
	is(sql_in($db, "$by_index SELECT count(*) FROM t WHERE id > 19000"), '1000', "$db: other pages are readable");
	is(sql_in($db, "INSERT INTO t SELECT g, 0, 'new' FROM generate_series(30001, 30500) g; $by_index SELECT count(*) FROM t WHERE id > 30000"),
		'500', "$db: ... and the table takes new rows");
}

# Damage that no transaction needs: everything after it has committed.
make('needless');
sql_in('needless', 'UPDATE t SET v = v + 1 WHERE id <= 300');
# `oldest` is then on disk, above the transaction that another database has prepared
my $discarded = 'SELECT zundo.discard() IS NOT NULL AND zundo.undo_bytes_in_use() = 0';
$node->poll_query_until('needless', $discarded) or die 'undo is not discarded';
my $reader = $node->background_psql('needless');
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t');
sql_in('needless', 'UPDATE t SET v = v + 1 WHERE id <= 300') for 1 .. 10;
sql_in('postgres', 'CHECKPOINT');
$node->stop('immediate');
$reader->quit;
my @pages = pages('needless');
break_record('needless', $pages[ @pages / 2 ]);
$node->start;
others_work('needless');
is(sql_in('needless', 'SELECT count(*), sum(v) FROM t'), '20000|3300', 'needless: the rows are right');
sql_in('needless', 'UPDATE t SET v = 0');
ok($node->poll_query_until('needless', $discarded), 'needless: all undo is given back');
like(slurp_file($node->logfile), qr/gave up damaged undo log \d+/, '... which the log says');

# A transaction that had its id before the extension was made writes under it as any other.
sql_in('postgres', 'CREATE DATABASE early');
my $early = $node->background_psql('early');
$early->query_safe('BEGIN; SELECT pg_current_xact_id()');
sql_in('early', 'CREATE EXTENSION zundo; CREATE TABLE t (id int, v int) USING zheap; INSERT INTO t VALUES (1, 1), (2, 2)');
$early->query_safe('UPDATE t SET v = 9 WHERE id = 1; DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (3, 3)');
sql_in('early', 'SELECT zundo.discard()');
is(sql_in('early', 'SELECT * FROM t ORDER BY id'), "1|1\n2|2", 'early: its changes are not seen');
like(($node->psql('early', "SET lock_timeout = 100; UPDATE t SET v = 0 WHERE id = 1"))[2], qr/lock timeout/, 'early: nor overwritten');
$early->query_safe('ROLLBACK');
$early->quit;
sql_in('early', 'SELECT zundo.discard()');
is(sql_in('early', 'SELECT * FROM t ORDER BY id'), "1|1\n2|2", 'early: it is rolled back');

sql_in('behind', q{ROLLBACK PREPARED 'behind'});

# Each writer checks its own id (UNDO-2c). Here `oldest` in the meta page is forged, to a value that the server's counter
# passes only when the writer has its id. (Before that, the undo log is ahead of the server.)
make('forged');
sql_in('forged', 'UPDATE t SET v = v + 1 WHERE id = 1; SELECT zundo.discard()');
my $bound = sql_in('forged', 'SELECT pg_snapshot_xmax(pg_current_snapshot())') + 50;
$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
$node->stop;
my $meta = read_block($path{forged}, 0);
substr($meta, 48 + 8, 8) = pack('Q<', $bound);
write_twins($path{forged}, 0, $meta);
$node->start;
my $late = $node->background_psql('forged', on_error_stop => 0);
cmp_ok($late->query_safe('BEGIN; SELECT pg_current_xact_id()'), '<', $bound, 'forged: a transaction with an older id');
sql_in('postgres', 'SELECT pg_current_xact_id(); ' x 60);
for my $sql ('UPDATE t SET v = 999 WHERE id = 1', 'INSERT INTO t VALUES (0, 999)', 'DELETE FROM t', 'SELECT * FROM t WHERE id = 1 FOR UPDATE')
{
	$late->{stderr} = '';
	$late->query_safe('SAVEPOINT s');
	$late->query("\\set VERBOSITY verbose\n$sql");
	like($late->{stderr}, qr/55000: transaction \d+ is too old to change zheap tables/, "forged: $sql");
	$late->query('ROLLBACK TO s');
}
$late->query('COMMIT');
$late->quit;
is(sql_in('forged', 'UPDATE t SET v = v + 1 WHERE id = 1; SELECT count(*), sum(v) FROM t'), '20000|2', 'forged: nothing is written, and younger ones can write');

# A server whose counter was set back does not touch undo that is ahead of it.
$node->stop;
system_or_bail('pg_resetwal', '-e', '1', '-D', $node->data_dir);
$node->start;
sql_in('early', 'UPDATE t SET v = v + 1; SELECT zundo.discard(); VACUUM zundo.undo_log');
$node->stop;
system_or_bail('pg_resetwal', '-e', '0', '-D', $node->data_dir);
$node->start;
for my $sql ('SELECT * FROM t', 'UPDATE t SET v = 0')
{
	my ($rc, $out, $err) = $node->psql('early', "\\set VERBOSITY verbose\n$sql");
	like($err, qr/55000.*is ahead of the server's transaction IDs.*pg_resetwal -e 1 /s, "set back: $sql");
}


no_crash($node);
$node->stop;
done_testing();
