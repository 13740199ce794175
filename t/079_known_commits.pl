# VIS-9: sessions share which transactions are known to have committed, so that
# the status of each is looked up once. A crash that loses a commit also empties
# this memory. A transaction that is still in progress for other sessions is not
# noted, although the snapshot that a replication slot exports may see it. An
# index entry is marked dead only after WAL has been flushed (UNDO-19b, SCAN-6, SAVED-6).
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

# Without a worker only readers note transactions, and `oldest` does not advance.
my $node = zundo_node('known', <<'C');
max_worker_processes = 0
checkpoint_timeout = 1h
C
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');

# Two rows on a page, so that no writer needs the slot of another one and asks for its status.
sql(q{CREATE TABLE t (id int PRIMARY KEY, n int, filler text) USING zheap;
	ALTER TABLE t ALTER filler SET STORAGE PLAIN;
	INSERT INTO t SELECT g, 0, repeat('x', 3000) FROM generate_series(1, 1000) g});
sql('DO $$BEGIN FOR i IN 1..1000 LOOP UPDATE t SET n = n + 1 WHERE id = i; COMMIT; END LOOP; END$$');

# questions SQL: returns how often the statement, in a new session, has looked up a page of clog.
sub questions
{
	my ($sql) = @_;
	my $asked = q{SELECT blks_hit FROM pg_stat_slru WHERE lower(name) IN ('xact', 'transaction')};
	# a session that has ended for psql may report later: this one does before it asks
	my $report = 'SELECT pg_stat_force_next_flush();';
	my (undef, $before, $rows, undef, $after) = split /\n/, sql($report, "$asked;", 'SET enable_seqscan = off; SET enable_bitmapscan = off;', "$sql;", $report, $asked);
	is($rows, '500500|1000', "rows of: $sql");
	return $after - $before;
}

my $read = 'SELECT sum(id), sum(n) FROM t WHERE id > 0';
my $first = questions($read);
cmp_ok($first, '>=', 400, 'the first reader asks for the status of each transaction');
cmp_ok(questions($read), '<', 100, 'the second one does not');

# A crash loses a commit. Its id is assigned again, to another transaction.
my ($writer, $reader) = (session($node), session($node));
sql('CHECKPOINT');
stop_idle($node, q{backend_type = 'walwriter'});
ask($writer, 'SET synchronous_commit = off');
my $lost = ask($writer, 'BEGIN', 'UPDATE t SET n = 100 WHERE id = 1 RETURNING pg_current_xact_id()', 'COMMIT');
is(ask($reader, 'SELECT n FROM t WHERE id = 1'), '100', 'a commit that is not flushed is seen');
crash($node);
is(sql('SELECT n FROM t WHERE id = 1'), '1', 'the commit is lost in a crash');
$_->quit for $writer, $reader;
my $open = session($node);
my $found = 0;
for (1 .. 200)
{
	my $id = ask($open, 'BEGIN', 'UPDATE t SET n = 200 WHERE id = 2 RETURNING pg_current_xact_id()');
	$found = ($id == $lost);
	last if $id >= $lost;
	ask($open, 'ROLLBACK');
}
ok($found, 'another transaction gets the lost id');
is(sql('SELECT n FROM t WHERE id = 2'), '1', 'and is not taken for committed');
ask($open, 'ROLLBACK');
is(sql('SELECT n FROM t WHERE id = 2'), '1', 'nor after a rollback');
$open->quit;
sound($node, '', 't');

my $xid;
SKIP:
{
	skip 'the server lacks pageinspect of contrib', 1 unless server_has('pageinspect');
	# A mark of a dead index entry is not logged: WAL is flushed before a row counts as dead
	# to all (UNDO-19b).
	sql('CREATE EXTENSION pageinspect; CREATE TABLE d (id int PRIMARY KEY) USING zheap; INSERT INTO d SELECT generate_series(1, 100)');
	sql(q{CREATE TABLE p (id int PRIMARY KEY, f text) USING zheap; INSERT INTO p SELECT g, repeat('x', 200) FROM generate_series(1, 36) g});
	my %passed = (btree => q{SELECT count(*) FROM bt_page_items('u_btree_k_idx', 1) WHERE dead});
	$passed{zbtree} = q{SELECT dead FROM zundo.index_entries('u_zbtree_k_idx')} if server_major() >= 18;
	sql("CREATE TABLE u_$_ (id int, k int) USING zheap; CREATE UNIQUE INDEX ON u_$_ USING $_ (k); INSERT INTO u_$_ VALUES (1, 1)") for keys %passed;
	my $dead = q{SELECT dead FROM bt_page_items('d_pkey', 1) WHERE ctid = '(0,7)'};
	my $look = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM d WHERE id = 7;';
	sql('CHECKPOINT');
	stop_idle($node, q{backend_type = 'walwriter'});
	my $deleted = sql('SET synchronous_commit = off; DELETE FROM d WHERE id = 7; SELECT pg_current_wal_insert_lsn()');
	my $flushed = "SELECT pg_current_wal_flush_lsn() >= '$deleted'";
	is(sql($flushed), 'f', 'a commit is not flushed');
	is(sql($look x 2, $dead), "0\n0\nf", 'the entry of the deleted row is not marked');

	# An update that needs the room of such a row does not make it LP_DEAD, either (SAVED-6).
	my $look_p = $look =~ s/FROM d WHERE id = 7/FROM p WHERE id = 5/r;
	sql('SET synchronous_commit = off;', map { "$_;" } 'DELETE FROM p WHERE id = 5', map { "UPDATE p SET f = repeat('y', 300) WHERE id = $_" } 31 .. 36);
	is(sql($look_p x 2, $dead =~ s/d_pkey/p_pkey/r =~ s/,7\)/,5)/r), "0\n0\nf", 'nor is that of one whose room was needed');

	# Nor does the check of a unique key mark what it passes.
	sql("SET synchronous_commit = off; UPDATE u_$_ SET k = 2; INSERT INTO u_$_ VALUES (2, 1)") for keys %passed;
	is(sql($passed{$_}), '0', "$_: a key that was given away") for keys %passed;
	is(sql($flushed), 'f', 'its commit is not flushed');
	sql('SET synchronous_commit = off; SELECT zundo.discard()');
	is(sql($look x 2, $dead), "0\n0\nt", 'it is marked when it is before `oldest`');
	is(sql($flushed), 't', 'and then the commit is flushed');
	sql("UPDATE u_$_ SET k = 3 WHERE k = 1; INSERT INTO u_$_ VALUES (3, 1)") for keys %passed;
	is(sql($passed{$_}), '2', "$_: flushed") for keys %passed;
	crash($node);
	is(sql($look, 'SELECT count(*) FROM d'), "0\n99", 'a crash does not bring the row back');
	sound($node, 'after dead marks', 'd');

	# A deletion that every snapshot sees, and whose commit is flushed, is marked before an
	# undo worker comes (SCAN-6).
	my $entry = sub { my ($id) = @_; return $dead =~ s/,7\)/,$id)/r };
	my $look_at = sub { my ($id) = @_; return $look =~ s/7;/$id;/r };
	my $young = 'SELECT bool_or(oldest_xid::text::bigint <= %s) FROM zundo.stat_undo';
	my $old = session($node);
	is(ask($old, 'SET enable_seqscan = off', 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM d'), '99', 'an old snapshot');
	sql('SET synchronous_commit = on; DELETE FROM d WHERE id = 8');
	is(sql($look_at->(8) x 2, $entry->(8)), "0\n0\nf", 'what an old snapshot sees is not marked');
	is(ask($old, 'SELECT count(*) FROM d WHERE id = 8'), '1', 'it sees the row by the index');
	ask($old, 'COMMIT');
	is(sql($look_at->(8) x 2, $entry->(8)), "0\n0\nt", 'marked when the snapshot has gone');
	$xid = sql('BEGIN; SET LOCAL synchronous_commit = on; DELETE FROM d WHERE id = 9; SELECT pg_current_xact_id(); COMMIT');
	is(sql($look_at->(9) x 2, $entry->(9)), "0\n0\nt", 'a deletion is marked at once');
	is(sql(sprintf($young, $xid)), 't', 'its deleter is not before `oldest`');
	sql('BEGIN; DELETE FROM d WHERE id = 10; ROLLBACK');
	is(sql($look_at->(10), $entry->(10)), "1\nf", 'one that was rolled back is not');
	ask($old, 'BEGIN', 'DELETE FROM d WHERE id = 11', 'SELECT count(*) FROM d WHERE id = 11', 'ROLLBACK');
	is(sql($look_at->(11), $entry->(11)), "1\nf", 'nor is one that its own transaction has seen');
	ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM d');
	sql('SET synchronous_commit = on; DELETE FROM d WHERE id = 12');
	sql($look_at->(12) x 2);
	is(ask($old, 'SELECT count(*) FROM d WHERE id IN (12, 13)'), '2', 'a later old snapshot finds its row');
	$old->quit;
	crash($node);
	is(sql('SET enable_seqscan = off; SELECT count(*) FROM d WHERE id < 14;', 'SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off;
		SET enable_seqscan = on; SELECT count(*) FROM d WHERE id < 14'), "9\n9", 'index and table agree after a crash');
	sound($node, 'after more dead marks', 'd');
}
# The entries of rows that an old snapshot keeps stay unmarked. A scan that passes them, here
# in an order in which each row is on another page than the one before, fetches a few rows of
# each page, and not one for each entry (scan/zunseen.c).
sql(q{CREATE TABLE kept (id int, k int, filler text) USING zheap WITH (autovacuum_enabled = off);
	INSERT INTO kept SELECT g, g * 7919 % 4001, repeat('x', 80) FROM generate_series(1, 4000) g;
	CREATE INDEX ON kept (k)});
my $by_k = q{SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off;};
my $count = 'SELECT count(filler) FROM kept WHERE k > 0';
my $keeper = session($node);
is(ask($keeper, $by_k, 'BEGIN ISOLATION LEVEL REPEATABLE READ', $count), '4000', 'rows that an old snapshot sees');
sql('DELETE FROM kept WHERE id % 10 <> 0');
my ($hits) = sql($by_k, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) $count") =~ /"Shared Hit Blocks": (\d+)/;
cmp_ok($hits, '<', 1500, 'deleted rows are not fetched one by one');
is(sql($by_k, $count), '400', 'the rows that are left');
sql("INSERT INTO kept SELECT g, g * 7919 % 4001, repeat('y', 80) FROM generate_series(1, 4000) g WHERE g % 10 <> 0");
is(sql($by_k, $count), '4000', 'rows in their place');
is(ask($keeper, $count), '4000', 'the old snapshot passes those');
is(ask($keeper, 'SELECT count(*) FROM kept WHERE k > 0 AND filler LIKE \'x%\''), '4000', 'and sees its own');
is(ask($keeper, 'ROLLBACK', 'BEGIN ISOLATION LEVEL SERIALIZABLE', $count, 'COMMIT'), '4000', 'a serializable transaction fetches each row');
$keeper->quit;
sql('SELECT zundo.discard(); VACUUM kept');
is(sql($by_k, $count), '4000', 'the same rows when the snapshot has gone');
sound($node, 'after deletions beside a snapshot', 'kept');

# An id in progress in another database keeps the xmin of new snapshots below the author of a
# change, but not the horizon by which the entry of the old key is marked (MARK-1d). It is sound.
if (server_major() >= 18)
{
	sql('CREATE DATABASE other; CREATE TABLE x (a int); CREATE TABLE h (id int, k int) USING zheap; CREATE UNIQUE INDEX h_k ON h USING zbtree (k); INSERT INTO h VALUES (2, 1)');
	my $elsewhere = $node->background_psql('other', on_error_stop => 0);
	ask($elsewhere, 'BEGIN', 'SELECT pg_current_xact_id()');
	sql('UPDATE h SET k = 3; VACUUM x; INSERT INTO h VALUES (3, 1)');
	is(sql(q{SELECT dead FROM zundo.index_entries('h_k')}), '1', 'the entry of a key given away is marked');
	is(sql(q{SELECT * FROM zundo.check_index('h_k')}), '', 'rightly');
	$elsewhere->quit;
}
no_crash($node);
$node->stop;

# The snapshot that a replication slot exports sees a commit as soon as its WAL record is
# decoded: here while the transaction waits for a standby, and is in progress for all
# others. What that snapshot sees is not noted.
my $slots = zundo_node('slots', <<'C', allows_streaming => 'logical');
synchronous_standby_names = 'none'
synchronous_commit = local
C
sql('CREATE EXTENSION zundo; CREATE TABLE s (id int, n int) USING zheap; INSERT INTO s SELECT g, 0 FROM generate_series(1, 10) g');
($first, my ($second, $waiting, $slot, $importer)) = map { session($slots) } 1 .. 5;
my $blocked = sub { my ($xid) = @_;
	$slots->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND transactionid = '$xid'")
	  or die "the slot does not wait for $xid" };
$xid = ask($first, 'BEGIN', 'SELECT pg_current_xact_id()');
ask($slot, '\\c "' . $slots->connstr('postgres') . ' replication=database"');
$slot->query_until(qr/begun/, "\\echo begun\nCREATE_REPLICATION_SLOT s LOGICAL pgoutput EXPORT_SNAPSHOT;\n");
$blocked->($xid);
$xid = ask($second, 'BEGIN', 'SELECT pg_current_xact_id()');
ask($first, 'COMMIT');
$blocked->($xid);
$waiting->query_until(qr/begun/, "\\echo begun\nSET synchronous_commit = on;\nBEGIN;\nUPDATE s SET n = 1;\nCOMMIT;\n");
$slots->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'}) or die;
my $xid_of_waiting = $slots->safe_psql('postgres', q{SELECT backend_xid FROM pg_stat_activity WHERE wait_event = 'SyncRep'});
ask($second, 'COMMIT');
# Newer minor releases of the server let the export wait until the transaction is in
# progress for nobody.
my $state = q{SELECT CASE WHEN EXISTS (SELECT FROM pg_locks WHERE NOT granted AND transactionid = '%s') THEN 'waits'
	WHEN EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'walsender' AND state = 'idle in transaction') THEN 'exported' END};
$state = sprintf($state, $xid_of_waiting);
$slots->poll_query_until('postgres', "SELECT ($state) IS NOT NULL") or die;
my $exported = sql($state) eq 'exported';
SKIP:
{
	skip 'the server exports no such snapshot', 4 unless $exported;
	my ($snapshot) = $slot->query_until(qr{\|pgoutput}, '') =~ m{\|([0-9A-F]+-[0-9A-F]+-\d+)\|};
	ok($snapshot, 'a slot exports a snapshot');
	is(ask($importer, 'BEGIN ISOLATION LEVEL REPEATABLE READ', "SET TRANSACTION SNAPSHOT '$snapshot'", 'SELECT sum(n) FROM s'), '10',
		'which sees a transaction that waits for a standby');
	is(sql('SELECT sum(n) FROM s'), '0', 'others do not see it');
	my ($rc, $out, $err) = $slots->psql('postgres', 'SET lock_timeout = 500; UPDATE s SET n = n + 5 WHERE id = 1');
	like($err, qr/lock timeout/, 'and a writer waits for it');
}
$slots->append_conf('postgresql.conf', "synchronous_standby_names = ''");
$slots->reload;
$slots->poll_query_until('postgres', 'SELECT sum(n) = 10 FROM s') or die;
is(ask($importer, 'SELECT sum(n) FROM s', 'COMMIT'), '10', 'the snapshot sees it still') if $exported;
$_->quit for $first, $second, $waiting, $slot, $importer;
no_crash($slots);
done_testing();
