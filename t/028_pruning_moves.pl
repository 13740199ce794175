# A move within a full page prunes it in the same WAL record (PRUNE-3 in
# change/README.md). Which moves do so; their replay after crashes and on a standby, whose
# old snapshots keep their rows, with wal_consistency_checking.
# Rules: PRUNE-3, SAVED-6.
# long
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('pruning', <<'C', allows_streaming => 1);
wal_consistency_checking = 'all'
max_worker_processes = 0
zundo.eager_rollback_pages = 0
max_wal_size = 4GB
checkpoint_timeout = 1h
restart_after_crash = off
C
sql('CREATE EXTENSION zundo;', 'CREATE EXTENSION pg_walinspect;');
my $standby = standby_of($node, "max_standby_streaming_delay = 0\nhot_standby_feedback = off\n");

# Tables of one page: room for some more rows in t, its twin on heap and u; for none in the others.
sql(q{
	CREATE TABLE t (id int, n int, pad text) USING zheap;
	CREATE TABLE h (id int, n int, pad text) USING heap;
	CREATE UNLOGGED TABLE u (id int, n int, pad text) USING zheap;
}, map { "CREATE INDEX ON $_ (n); INSERT INTO $_ SELECT g, g, repeat('x', 790) FROM generate_series(1, 8) g;" } qw(t h u));
my @full = qw(others self undone locked gap);
sql(map { "CREATE TABLE $_ (id int, n int, pad text) USING zheap; CREATE INDEX ON $_ (n); INSERT INTO $_ SELECT g, g, repeat('s', 190) FROM generate_series(1, "
	. ($_ eq 'gap' ? 36 : 38) . ') g;' } @full);

my $mark;
sub from_here
{
	$mark = sql('SELECT pg_current_wal_insert_lsn();');
	return;
}

# Returns the number of moves that prune, of other moves, and of PRUNE records since from_here().
sub counts
{
	sql("SELECT pg_logical_emit_message(true, 'test', 'flush');");
	return sql(qq{SELECT count(*) FILTER (WHERE record_type = 'MOVE' AND description LIKE '%, prunes by%'),
		count(*) FILTER (WHERE record_type = 'MOVE' AND description NOT LIKE '%, prunes by%'),
		count(*) FILTER (WHERE record_type = 'PRUNE')
		FROM pg_get_wal_records_info('$mark', pg_current_wal_flush_lsn()) WHERE resource_manager = 'zundo';});
}

# Returns how many records since from_here() have a conflict horizon.
sub conflicts
{
	sql("SELECT pg_logical_emit_message(true, 'test', 'flush');");
	return sql(qq{SELECT count(*) FROM pg_get_wal_records_info('$mark', pg_current_wal_flush_lsn())
		WHERE resource_manager = 'zundo' AND description LIKE '%conflict horizon%' AND record_type IN ('MOVE', 'PRUNE');});
}

# Returns how many items the moves since from_here() had, in ascending order.
sub items
{
	return sql(qq{SELECT string_agg(DISTINCT substring(description, 'prunes by (\\d+) items'), ',')
		FROM pg_get_wal_records_info('$mark', pg_current_wal_flush_lsn()) WHERE resource_manager = 'zundo' AND record_type = 'MOVE';});
}

sub state
{
	my ($table) = @_;
	return "SELECT count(*), sum(n), md5(string_agg(id || ' ' || n || pad, ',' ORDER BY id, n)) FROM $table";
}

# Compares t with its twin h, and both with the standby.
sub same
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql(state('t') . ';'), sql(state('h') . ';'), "$what: the rows of heap");
	is(sql('SET enable_seqscan = off;', 'SELECT count(*), sum(n) FROM t WHERE n > -1000000;'),
		sql('SELECT count(*), sum(n) FROM h WHERE n > -1000000;'), "$what: by the index");
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	for my $table ('t', @full)
	{
		is($standby->safe_psql('postgres', state($table)), sql(state($table) . ';'), "$what: $table on the standby");
	}
	sound($node, $what, qw(t u zundo.undo_log), @full);
	return;
}

# Updates one row after the other, each in a transaction of its own. Then the table must
# not have more than one page, so VACUUM has to come now and then.
sub updates
{
	my ($times, @tables) = @_;
	for my $t (@tables)
	{
		sql("DO \$\$ BEGIN FOR i IN 1 .. $times LOOP UPDATE $t SET n = n + 100 WHERE id = 1 + i * 3 % 8; COMMIT; END LOOP; END \$\$;");
	}
	return;
}

sub clean
{
	sql('SELECT zundo.discard();', 'VACUUM t, u;');
	return;
}

# 1. Each move of a full page prunes it of what an earlier transaction has left, which is
# saved for an old snapshot. The standby's old snapshot keeps its rows; it ends when a row is
# pruned that no snapshot of the primary needs, not earlier (SAVED-6).
# (Heap's twin is changed later: its pruning would end it.)
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
my ($held, $old) = (session($node), session($standby));
ask($held, 'BEGIN ISOLATION LEVEL REPEATABLE READ', state('t'));
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ');
my $seen = ask($old, state('t'));
from_here();
updates(120, 't');
my ($merged, $alone, $prunes) = split(/\|/, counts());
cmp_ok($merged, '>=', 110, 'moves that prune their page');
is($merged + $alone, 120, 'of all moves');
is($prunes, '0', 'no PRUNE records');
is(sql(q{SELECT pg_relation_size('t');}), '8192', 'the table has still one page');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is(ask($old, state('t')), $seen, 'an old snapshot of the standby sees its rows');
is($complaint, '', 'no conflict');
is(conflicts(), '0', 'nothing is pruned unsaved');
ask($held, 'COMMIT');
$held->quit;
from_here();
updates(2, 't');
is(conflicts(), '2', 'each move prunes what the one before has left, unsaved');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
eval { ask($old, state('t')) };
like(slurp_file($standby->logfile), qr/conflict with recovery/, 'that conflicts');
eval { $old->quit };
sql('SELECT zundo.discard();');
updates(120, 'h');
updates(2, 'h');
same('one page');
clean();
updates(60, 't', 'h');
same('after discard');

# 2. The room of rows that have become shorter, also that of the row that moves.
sql(q{UPDATE others SET pad = 's' WHERE id IN (3, 5);});
from_here();
sql(q{UPDATE others SET n = n + 1000 WHERE id = 6;});
is(counts(), '1|0|0', 'the room that two rows have left');
is(items(), '2', 'both of them are cut');
sql(q{UPDATE self SET pad = 's' WHERE id = 7;});
from_here();
sql(q{UPDATE self SET n = n + 1000, pad = repeat('t', 150) WHERE id = 7;});
is(counts(), '1|0|0', 'the room that the row itself has left');
is(items(), '1', 'it is cut');
same('shorter rows');

# A move that prunes is rolled back.
sql(q{UPDATE undone SET pad = 's' WHERE id IN (9, 11);});
my $before = sql(state('undone') . ';');
from_here();
sql(q{BEGIN; UPDATE undone SET n = n + 1000, pad = repeat('t', 150) WHERE id = 9; SAVEPOINT s;
	UPDATE undone SET n = n + 1000 WHERE id = 11; ROLLBACK TO s; UPDATE undone SET n = n + 2000 WHERE id = 12; ROLLBACK;});
like(counts(), qr/^1\|/, 'a move that prunes, rolled back');
is(sql(state('undone') . ';'), $before, 'the rows are there again');
same('rolled back');

# 3. Rows whose insertion is undone leave gaps, which are closed without any item.
from_here();
sql(q{BEGIN; SAVEPOINT s; INSERT INTO gap SELECT g, g, repeat('g', 190) FROM generate_series(37, 38) g; ROLLBACK TO s;
	UPDATE gap SET n = 1000, pad = repeat('G', 190) WHERE id = 3; COMMIT;});
is(counts(), '1|0|0', 'gaps between rows');
is(items(), '0', 'no line pointer is pruned');
is(sql(join(' + ', map { "pg_relation_size('$_')" } @full) =~ s/^/SELECT /r . ';'), 8192 * @full, 'one page each');

# 4. Those that do not: the record has to have the row, or the page is not logged.
my $locker = session($node);
sql(q{UPDATE locked SET pad = 's' WHERE id IN (7, 9);});
ask($locker, 'BEGIN', 'SELECT id FROM locked WHERE id = 8 FOR KEY SHARE');
from_here();
sql(q{UPDATE locked SET n = n + 1000 WHERE id = 8;});
is(counts(), '0|1|1', 'a move with the locks of others has a PRUNE record before it');
ask($locker, 'COMMIT');
$locker->quit;
from_here();
updates(40, 'u');
is(counts(), '0|0|0', 'an unlogged table');
same('others');

# 5. Crashes: of the server after the record, with the transaction open, and with old pages on disk.
sub dies
{
	my ($what, @sql) = @_;
	my $rows = sql(state('t') . ';');
	$node->psql('postgres', join("\n", @sql));
	ok(wait_for_death($node), "$what: the server died");
	$node->start;
	is(sql(state('t') . ';'), $rows, "$what: the rows of before");
	same($what);
	clean();
	updates(40, 't', 'h');
	same("$what, changed again");
	return;
}
my $crash = q{SET zundo.fault = 'move-logged:crash';};
dies('first record', $crash, q{UPDATE t SET n = n + 1 WHERE id = 5;});
dies('after a checkpoint', 'CHECKPOINT;', $crash, q{UPDATE t SET n = n + 1 WHERE id = 6;});
dies('in a subtransaction', 'BEGIN;', q{UPDATE t SET n = n + 1 WHERE id = 5;}, 'SAVEPOINT s;', 'CHECKPOINT;', $crash,
	q{UPDATE t SET n = n + 1 WHERE id = 6;});
sql(q{UPDATE t SET pad = 'short' WHERE id IN (3, 4); UPDATE h SET pad = 'short' WHERE id IN (3, 4);});
dies('a shorter row', $crash, q{UPDATE t SET n = n + 1, pad = repeat('y', 700) WHERE id = 3;});

# Error before the record: nothing has been pruned or moved.
from_here();
my ($rc, $out, $err) = $node->psql('postgres', qq{SET zundo.fault = 'before-change:error';\nUPDATE t SET n = n + 1 WHERE id = 5;});
like($err, qr/before-change/, 'an error before the change');
is(counts(), '0|0|0', 'nothing was written');
updates(20, 't', 'h');
same('after an error');

clean();
$standby->stop('immediate');
updates(60, 't', 'h');
$standby->start;
same('the standby starts again');

# 6. Without full-page images.
$node->append_conf('postgresql.conf', 'full_page_writes = off');
$node->reload;
ok($node->poll_query_until('postgres', q{SELECT current_setting('full_page_writes') = 'off'}), 'no images from now on');
clean();
sql('CHECKPOINT;');
updates(5, 't', 'h');
from_here();
updates(40, 't', 'h');
($merged, $alone, $prunes) = split(/\|/, counts());
cmp_ok($merged, '>=', 5, 'without images: moves prune, too');
same('without images');
crash($node);
same('without images, recovered');

$standby->promote;
is($standby->safe_psql('postgres', state('t')), sql(state('h') . ';'), 'promoted: the rows');
sound($standby, 'promoted', 't', @full);
no_crash($standby);
$standby->stop;
$node->stop;
done_testing();
