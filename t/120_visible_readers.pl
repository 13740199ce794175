# The visibility map set by readers: a scan of a statement that does not change
# the table sets the bit of a full page whose rows are all live and before
# `oldest`. Old snapshots, standbys and crashes: an index-only scan never shows
# what the rows do not.
# long
# newest
# Rules: VMAP-1, VMAP-2, VMAP-3.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('readers', <<'C', allows_streaming => 1);
max_worker_processes = 4
max_prepared_transactions = 10
wal_consistency_checking = 'zundo'
hot_standby_feedback = off
wal_keep_size = 1GB
C
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');
my $only = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET max_parallel_workers_per_gather = 0;';
my $force = server_major() >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';
my $seq = 'SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off; SET max_parallel_workers_per_gather = 0;';

# clear TABLE: returns how many pages of the table have no bit, by the file of the map.
sub clear
{
	my ($table) = @_;
	my ($path, $pages) = split /\|/, sql("CHECKPOINT; SELECT pg_relation_filepath('$table'), pg_relation_size('$table') / 8192");
	my $map = -f $node->data_dir . "/${path}_vm" ? slurp_file($node->data_dir . "/${path}_vm") : '';
	return $pages - (() = unpack('b*', substr($map, 24, 8192 - 24) || '') =~ /(?:10|11)/g);
}

# fetches TABLE: returns how many rows an index-only scan on the standby, which sets no
# bits, fetches from the table.
my $standby;
sub fetches
{
	my ($table) = @_;
	my $out = $standby->safe_psql('postgres', "$only EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) SELECT id FROM $table");
	$out =~ /Index Only Scan.*Heap Fetches: (\d+)/s or die "no index-only scan: $out";
	return $1;
}

# agree TABLE NAME [NODE]: checks that index-only and sequential scans return the same
# ids, and that the table is sound.
sub agree
{
	my ($table, $name, $on) = @_;
	$on //= $node;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($on->safe_psql('postgres', "$only SELECT count(id), sum(id) FROM $table"),
		$on->safe_psql('postgres', "$seq SELECT count(id), sum(id) FROM $table"), "$name: the scans agree");
	is($on->safe_psql('postgres', "SELECT * FROM zundo.check('$table')"), '', "$name: zundo.check");
	return;
}

sub table
{
	my ($name) = @_;
	sql("CREATE TABLE $name (id int PRIMARY KEY, n int, filler text) USING zheap WITH (fillfactor = 100);
		INSERT INTO $name VALUES (1, 0, repeat('x', 60)); VACUUM $name;
		INSERT INTO $name SELECT g, 0, repeat('x', 60) FROM generate_series(2, 2000) g; SELECT zundo.discard()");
	return;
}

# The scans that set bits. They pass over a page that another process has locked, such as
# the checkpointer. The last page has room; the measure is 10 % of a page, or fillfactor.
table('none');
my $pages = clear('none');
cmp_ok($pages, '>=', 20, 'at first no page has its bit');
for my $case (
	[ 'sequential', "$seq SELECT sum(n) FROM s_sequential" ],
	[ 'index', 'SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT sum(n) FROM s_index WHERE id > 0' ],
	[ 'index_only', "$only SELECT count(id) FROM s_index_only WHERE id > 0" ],
	[ 'bitmap', 'SET enable_seqscan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off; SELECT sum(n) FROM s_bitmap WHERE id > 0' ],
	[ 'sample', 'SELECT sum(n) FROM s_sample TABLESAMPLE SYSTEM (100)' ],
	[ 'tid_range', "SELECT sum(n) FROM s_tid_range WHERE ctid >= '(0,1)'" ],
	[ 'parallel', "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET $force = on; SELECT sum(n) FROM s_parallel" ])
{
	my ($kind, $scan) = @$case;
	table("s_$kind");
	sql($scan);
	cmp_ok(clear("s_$kind"), '<=', 3, "$kind scan: the bits are set");
	agree("s_$kind", "$kind scan");
}

# A query extends no file, so that it cannot fail where the disk is full.
sql('CREATE TABLE fresh (id int PRIMARY KEY) USING zheap; INSERT INTO fresh SELECT generate_series(1, 2910)');
sql('SELECT zundo.discard()');
sql("$seq SELECT sum(id) FROM fresh");
is(sql(q{SELECT pg_relation_size('fresh', 'vm')}), '0', 'a query does not make the map');

# A page that has as many rows as it can have is full, whatever space it has left.
sql('CREATE TABLE narrow (id int PRIMARY KEY) USING zheap; INSERT INTO narrow VALUES (1)');
sql('VACUUM narrow');
sql('INSERT INTO narrow SELECT generate_series(2, 2910)');
sql('SELECT zundo.discard()');
sql("$seq SELECT sum(id) FROM narrow");
cmp_ok(clear('narrow'), '<=', 1, 'pages of 291 rows get their bits');
agree('narrow', 'narrow rows');

# Statements that change the table, or lock its rows, set none. (From 19 on the server takes a
# table that is named twice for two.)
for my $case ([ 'update', 'UPDATE w_update SET n = 1 WHERE n < 0' ], [ 'delete', 'DELETE FROM w_delete WHERE n < 0' ],
	[ 'lock', 'SELECT * FROM w_lock WHERE n < 0 FOR UPDATE' ], [ 'cte', 'WITH w AS (UPDATE w_cte SET n = 1 WHERE n < 0 RETURNING 1) SELECT count(*) FROM w' ],
	server_major() >= 19 ? () : [ 'insert', 'INSERT INTO w_insert SELECT id + 10000, n FROM w_insert WHERE n < 0' ])
{
	my ($kind, $change) = @$case;
	table("w_$kind");
	sql("$seq $change");
	is(clear("w_$kind"), $pages, "$kind: no bit is set");
}

# Changes that an old snapshot does not see; then the snapshot has gone.
table('old');
sql("$seq SELECT sum(n) FROM old");
my $reader = session($node);
ask($reader, "BEGIN ISOLATION LEVEL REPEATABLE READ; $only SELECT count(id), sum(id) FROM old");
sql('UPDATE old SET n = n + 1 WHERE id % 20 = 1; DELETE FROM old WHERE id % 200 = 1; INSERT INTO old SELECT g, 1, repeat($$x$$, 60) FROM generate_series(3000, 3019) g; SELECT zundo.discard()');
sql("$seq SELECT sum(n) FROM old") for 1 .. 2;
cmp_ok(clear('old'), '>=', $pages, 'an old snapshot: no bit is set');
agree('old', 'an old snapshot');
is(ask($reader, "$only SELECT count(id), sum(id) FROM old"), '2000|2001000', 'the old snapshot sees its rows by an index-only scan');
is(ask($reader, "$seq SELECT sum(n) FROM old"), '0', 'and their values');
ask($reader, 'COMMIT');
$reader->quit;
sql("SELECT zundo.discard(); $seq SELECT sum(n) FROM old");
my $left = clear('old');
ok($left < $pages && $left > 8, "without an older snapshot: $left pages have line pointers of deleted rows, which wait for VACUUM");
sql("VACUUM old; UPDATE old SET n = n + 1 WHERE id % 20 = 2; SELECT zundo.discard()");
cmp_ok(clear('old'), '>=', $pages, 'rows have changed in place: their pages have lost their bits');
sql("$only SELECT count(id) FROM old");
cmp_ok(clear('old'), '<=', 3, 'an index-only scan sets the bits again');
agree('old', 'without an older snapshot');

# A change of a page clears its bit first; changes in progress and aborted ones keep it clear.
sql('BEGIN; UPDATE old SET n = 7 WHERE id = 500; INSERT INTO old VALUES (5000); DELETE FROM old WHERE id = 700; PREPARE TRANSACTION $$p$$; SELECT zundo.discard()');
sql("$seq SELECT sum(n) FROM old") for 1 .. 2;
cmp_ok(clear('old'), '>=', 3, 'changes in progress: the bits of their pages are clear');
agree('old', 'changes in progress');
sql("ROLLBACK PREPARED 'p'; SELECT zundo.discard(); $seq SELECT sum(n) FROM old");
agree('old', 'they are rolled back');
sql("UPDATE old SET id = id + 10000 WHERE id = 900; SELECT zundo.discard(); $seq SELECT sum(n) FROM old");
agree('old', 'a row has moved');

# A page with rows that have stale keys in a zbtree index gets no bit, so VACUUM visits it.
sql(q{CREATE TABLE stale (id int, k int, filler text) USING zheap WITH (fillfactor = 100);
	INSERT INTO stale VALUES (1, 1, repeat('x', 60)); VACUUM stale;
	INSERT INTO stale SELECT g, g, repeat('x', 60) FROM generate_series(2, 1000) g; CREATE INDEX ON stale USING zbtree (k); CREATE INDEX stale_id ON stale (id);
	UPDATE stale SET k = k + 1 WHERE id = 5; SELECT zundo.discard(); SELECT sum(k) FROM stale;});
cmp_ok(clear('stale'), '>=', 2, 'stale keys: their page has no bit');
cmp_ok(clear('stale'), '<=', 4, 'and the other pages have one');
agree('stale', 'stale keys');

# A standby replays what readers of the primary have set; its own readers set nothing.
$node->backup('b');
$standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->append_conf('postgresql.conf', "max_standby_streaming_delay = -1\n");
$standby->start;
table('replayed');
$node->wait_for_catchup($standby);
$standby->safe_psql('postgres', "$seq SELECT sum(n) FROM replayed");
is(fetches('replayed'), 2000, 'readers of a standby set no bit');
my $wal = sql('SELECT pg_current_wal_insert_lsn()');
sql("$seq SELECT sum(n) FROM replayed");
cmp_ok(sql("SELECT pg_current_wal_insert_lsn() - '$wal'"), '<', 400000, 'what a reader logs is small beside the table')
	if sql('SHOW data_checksums') eq 'off';
$node->wait_for_catchup($standby);
cmp_ok(fetches('replayed'), '<', 400, 'a standby replays bits that readers have set');
agree('replayed', 'standby', $standby);
my $old = session($standby);
ask($old, "BEGIN ISOLATION LEVEL REPEATABLE READ; $only SELECT count(id) FROM replayed");
sql("UPDATE replayed SET n = 1, id = id + 10000 WHERE id % 40 = 0; SELECT zundo.discard(); $seq SELECT sum(n) FROM replayed");
is(ask($old, "$only SELECT count(id), sum(id) FROM replayed"), '2000|2001000', 'an old snapshot of a standby sees its rows');
ask($old, 'COMMIT');
$old->quit;
$node->wait_for_catchup($standby);
agree('replayed', 'standby after its old snapshot', $standby);

# Crashes between readers and writers.
for my $round (1 .. 3)
{
	sql("UPDATE replayed SET n = n + 1 WHERE id % 7 = $round; SELECT zundo.discard(); $seq SELECT sum(n) FROM replayed; CHECKPOINT;
		UPDATE replayed SET n = n + 1 WHERE id % 11 = $round; SELECT zundo.discard(); $seq SELECT sum(n) FROM replayed");
	my $open = session($node);
	ask($open, "BEGIN; DELETE FROM replayed WHERE id % 13 = $round; UPDATE replayed SET n = 100");
	sql("$seq SELECT sum(n) FROM replayed");
	$node->stop('immediate');
	eval { $open->quit };
	$node->start;
	agree('replayed', "crash $round");
}
$node->wait_for_catchup($standby);
agree('replayed', 'standby in the end', $standby);
$standby->promote;
$standby->safe_psql('postgres', "SELECT zundo.discard(); $seq SELECT sum(n) FROM replayed");
agree('replayed', 'promoted standby', $standby);
no_crash($standby);
$standby->stop;
$node->stop;

# Without checksums and wal_log_hints readers cause no images of pages: the bit of a page
# that has not changed since the last checkpoint is left to VACUUM, also in a session that
# has written no WAL yet. The first statements of this node find no bit.
$node = zundo_node('plain', "wal_log_hints = off\nautovacuum = off\n");
if (sql('SHOW data_checksums') eq 'off')
{
	sql('CREATE EXTENSION zundo');
	table('plain');
	sql('CHECKPOINT');
	$pages = clear('plain');
	sql("$seq SELECT sum(n) FROM plain") for 1 .. 2;
	sql('SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT sum(n) FROM plain WHERE id > 0');
	is(clear('plain'), $pages, 'not after a checkpoint');
	sql("UPDATE plain SET n = 1 WHERE id % 10 = 0; SELECT zundo.discard(); $seq SELECT sum(n) FROM plain");
	cmp_ok(clear('plain'), '<=', 3, 'but of pages that have changed since');
	agree('plain', 'without images');
}
no_crash($node);
$node->stop;
done_testing();
