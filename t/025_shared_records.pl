# Rows that one command inserts or deletes share an undo record (RANGE-1 to
# RANGE-3), or need none (FROZEN-1). Counts these records; crashes, a standby, rollbacks and
# prepared transactions in the middle of such a command; what zundo.check
# reports of a forged record.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('shared', <<'C', allows_streaming => 1, no_data_checksums => 1);
wal_consistency_checking = 'all'
max_wal_size = 4GB
checkpoint_timeout = 1h
max_standby_streaming_delay = -1
max_prepared_transactions = 5
restart_after_crash = off
C
sql('CREATE EXTENSION zundo;', 'CREATE EXTENSION pg_walinspect;');
my $standby = standby_of($node);

sql(q{
	CREATE TABLE t (id int, pad text) USING zheap;
	CREATE UNLOGGED TABLE u (id int, pad text) USING zheap;
	CREATE TABLE narrow (id int) USING zheap;
	CREATE TABLE small (id int) USING zheap;
});

# Returns, of the undo that is kept, the number of INSERT records, that of open ones, and
# the greatest number of rows of one.
sub records
{
	my ($table) = @_;
	return sql("SELECT count(*), count(*) FILTER (WHERE 'open' = ANY (flags)), coalesce(max(nrows), 0)
		FROM zundo.undo_records(NULL, NULL) WHERE type = 'INSERT' AND relation = '$table'::regclass;");
}

# 1. One record for the command's first row, one for each page.
my $keeper = session($node);
ask($keeper, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM t');
my $start = sql('SELECT pg_current_wal_insert_lsn();');
sql(q{INSERT INTO t SELECT g, repeat('p', 40) FROM generate_series(1, 2000) g;});
my $pages = sql(q{SELECT pg_relation_size('t') / 8192;});
cmp_ok($pages, '>', 10, 'several pages');
my ($all, $open, $rows) = split /\|/, records('t');
is($all, $pages + 1, 'a record for the first row, and one for each page');
is($open, $pages, 'the latter are open');
cmp_ok($rows, '>=', 290, 'and cover what line pointers a page can have');
is(sql(qq{SELECT count(*) FILTER (WHERE description LIKE '%no undo%'), count(*) FILTER (WHERE description LIKE '%open, rows%')
	FROM pg_get_wal_records_info('$start', pg_current_wal_flush_lsn()) WHERE resource_manager = 'zundo' AND record_type = 'INSERT';}),
	(2000 - $pages - 1) . "|$pages", 'WAL: the other rows name no undo');
sql(q{INSERT INTO narrow VALUES (1); INSERT INTO narrow VALUES (2); INSERT INTO narrow VALUES (3), (4);});
is(records('narrow'), '4|1|288', 'commands of one row make no open record, one of two rows does');
is(ask($keeper, 'SELECT count(*) FROM t'), '0', 'an old snapshot sees none of the rows');
ask($keeper, 'COMMIT');
$keeper->quit;
is(sql('SELECT count(*), sum(id) FROM t;'), '2000|2001000', 'a new one sees all');
sound($node, 'after insertions', qw(t u narrow small zundo.undo_log));

# many commands of two rows on one page: the ranges overlap, and an old snapshot reads through them
$keeper = session($node);
ask($keeper, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM t');
sql(join("\n", map { "INSERT INTO small VALUES ($_), (-$_);" } 1 .. 120));
is(records('small'), '240|120|290', 'one open record for each command');
is(ask($keeper, 'SELECT count(*) FROM small'), '0', 'an old snapshot reads through all of them');
ask($keeper, 'COMMIT');
$keeper->quit;
is(sql('SELECT count(*), sum(id) FROM small;'), '240|0', 'and a new one sees the rows');
sound($node, 'after small commands', 'small');

my $state = q{SELECT count(*), sum(id), md5(string_agg(id || pad, ',' ORDER BY id, pad)) FROM t};
sub same
{
	my ($what) = @_;
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	is($standby->safe_psql('postgres', $state), sql("$state;"), "$what: the same rows on the standby");
	return;
}
same('insertions');

# 2. The server crashes after the WAL record of a row that shares an undo record: at
# several places, with other transactions on the same page.
sub dies
{
	my ($what, @sql) = @_;
	my $before = sql("$state;");
	$node->psql('postgres', join("\n", @sql));
	ok(wait_for_death($node), "$what: the server died");
	$node->start;
	is(sql("$state;"), $before, "$what: the rows of before");
	ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), "$what: all is rolled back");
	is(sql("$state;"), $before, "$what: and after that");
	sound($node, $what, qw(t u narrow small zundo.undo_log));
	same($what);
	return;
}
my $crash = q{SET zundo.fault = 'covered-logged:crash';};
dies('first shared row', $crash, q{INSERT INTO t SELECT g, 'x' FROM generate_series(5001, 5010) g;});
dies('in a subtransaction', 'BEGIN;', q{INSERT INTO t SELECT g, 'x' FROM generate_series(5001, 5010) g;}, 'SAVEPOINT s;',
	q{INSERT INTO t SELECT g, 'y' FROM generate_series(5011, 5020) g;}, 'ROLLBACK TO s;', 'SAVEPOINT s2;', 'CHECKPOINT;', $crash,
	q{INSERT INTO t SELECT g, 'z' FROM generate_series(5021, 5030) g;});
dies('an unlogged table', 'BEGIN;', q{INSERT INTO t SELECT g, 'x' FROM generate_series(5001, 5010) g;}, $crash,
	q{INSERT INTO u SELECT g, 'x' FROM generate_series(1, 10) g;});

# others have put rows into the range, and some of those are gone again, when the
# command's server dies
my $writer = session($node);
ask($writer, 'BEGIN', q{INSERT INTO t SELECT g, 'open' FROM generate_series(6001, 6020) g});
sql(q{INSERT INTO t SELECT g, 'other' FROM generate_series(7001, 7010) g;},
	q{BEGIN; INSERT INTO t SELECT g, 'in vain' FROM generate_series(8001, 8010) g; ROLLBACK;},
	q{UPDATE t SET pad = 'changed' WHERE id IN (7002, 7003); DELETE FROM t WHERE id = 7004;}, 'VACUUM t;');
ask($writer, q{INSERT INTO t SELECT g, 'open' FROM generate_series(6021, 6050) g}, q{UPDATE t SET pad = 'mine' WHERE id IN (7005, 6022)});
same('several in one page');
dies('several in one page', 'CHECKPOINT;', $crash, q{INSERT INTO t SELECT g, 'x' FROM generate_series(5001, 5010) g;});
eval { $writer->quit };
is(sql(q{SELECT string_agg(pad, ',' ORDER BY id) FROM t WHERE id BETWEEN 6000 AND 9000;}),
	'other,changed,changed,other,other,other,other,other,other', "the others' rows are what they were");

# 3. A prepared transaction, rolled back by another session after a restart.
my $before = sql("$state;");
sql('BEGIN;', q{INSERT INTO t SELECT g, 'prepared' FROM generate_series(9001, 9300) g;}, 'SAVEPOINT s;',
	q{INSERT INTO t SELECT g, 'prepared' FROM generate_series(9301, 9310) g;}, q{UPDATE t SET pad = 'p2' WHERE id BETWEEN 9000 AND 9010;},
	q{PREPARE TRANSACTION 'p';});
sql(q{INSERT INTO t SELECT g, 'between' FROM generate_series(10001, 10010) g;});
crash($node);
sql(q{ROLLBACK PREPARED 'p';});
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), 'prepared: rolled back');
is(sql(q{DELETE FROM t WHERE id > 10000;}, "$state;"), $before, 'prepared: only its rows have gone');
sound($node, 'prepared', qw(t zundo.undo_log));
same('prepared');

# 4. Rows that are visible to all at once: one record for each page, and none for its other rows.
sql(q{CREATE MATERIALIZED VIEW v USING zheap AS SELECT id, pad FROM t;},
	q{CREATE TABLE frozen (id int, pad text) USING zheap;}, q{INSERT INTO frozen VALUES (-1, 'before');},
	q{CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';},
	q{CREATE TRIGGER pass BEFORE INSERT ON frozen FOR EACH ROW EXECUTE FUNCTION pass();});
my $copy = q{COPY frozen FROM PROGRAM 'seq -f "%.0f p" 1 2000' (DELIMITER ' ', FREEZE);};
my $frozen = q{SELECT count(*), sum(id), md5(string_agg(id || pad, ',' ORDER BY id)) FROM frozen};

# Returns how many rows the WAL from $start on has without undo, and without slot.
sub rows_without_slot
{
	return sql(qq{SELECT count(*) FROM pg_get_wal_records_info('$start', pg_current_wal_flush_lsn())
		WHERE resource_manager = 'zundo' AND record_type = 'INSERT' AND description LIKE 'slot 0, %, no undo';});
}
$keeper = session($node);
ask($keeper, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM t');
$start = sql('SELECT pg_current_wal_insert_lsn();');
sql(q{REFRESH MATERIALIZED VIEW v;});
$pages = sql(q{SELECT pg_relation_size('v') / 8192;});
cmp_ok($pages, '>', 10, 'REFRESH: several pages');
is(rows_without_slot(), sql('SELECT count(*) FROM t;') - $pages, 'REFRESH: the other rows of each page have no undo');
is(ask($keeper, q{SELECT count(*) = (SELECT count(*) FROM t) FROM v}), 't', 'REFRESH: the older snapshot sees them');
$start = sql('SELECT pg_current_wal_insert_lsn();');
sql('BEGIN;', 'TRUNCATE frozen;', $copy, 'SAVEPOINT s;', q{INSERT INTO frozen SELECT g, 'child' FROM generate_series(3001, 3100) g;},
	q{UPDATE frozen SET pad = 'c' WHERE id % 3 = 0; DELETE FROM frozen WHERE id % 7 = 0;}, 'ROLLBACK TO s;',
	q{UPDATE frozen SET pad = 'm' WHERE id % 11 = 0; DELETE FROM frozen WHERE id = 13;}, 'COMMIT;');
is(rows_without_slot(), 2000 - sql(q{SELECT count(DISTINCT (ctid::text::point)[0]) FROM frozen WHERE id <= 2000;}),
	'COPY FREEZE, row by row: the same');
is(sql('SELECT count(*), sum(id) FROM frozen;'), '1999|2000987', 'changed by their transaction');
is(sql(q{SELECT count(*) FROM frozen WHERE pad = 'm';}), 181, '... and rolled back in part');
ask($keeper, 'COMMIT');
$keeper->quit;
is(sql(qq{BEGIN; TRUNCATE frozen; $copy ROLLBACK; SELECT count(*) FROM frozen;}), 1999, 'rolled back: the rows of before');
is(sql(qq{BEGIN; SAVEPOINT s; TRUNCATE frozen; $copy ROLLBACK TO s; COMMIT; SELECT count(*) FROM frozen;}), 1999, '... in a subtransaction');
$before = sql("$frozen;");
dies('frozen rows', 'BEGIN;', 'TRUNCATE frozen;', $crash, $copy);
is(sql("$frozen;"), $before, 'frozen rows: those of before the crash');
sql('BEGIN;', 'TRUNCATE frozen;', $copy, q{PREPARE TRANSACTION 'f';});
crash($node);
sql(q{COMMIT PREPARED 'f';});
is(sql("SELECT count(*), sum(id) FROM frozen;"), '2000|2001000', 'frozen rows: prepared, and there after a crash');
sound($node, 'frozen rows', qw(v frozen zundo.undo_log));
same('frozen rows');
is($standby->safe_psql('postgres', $frozen), sql("$frozen;"), 'frozen rows: the same on the standby');

# 5. Deletions: as insertions.
sql(q{CREATE TABLE d (id int, pad text) USING zheap; CREATE INDEX ON d (id);
	INSERT INTO d SELECT g, repeat('d', 40) FROM generate_series(1, 2000) g;});
my $state_of_t = $state;
$state =~ s/FROM t$/FROM d/;
$pages = sql(q{SELECT pg_relation_size('d') / 8192;});
$keeper = session($node);
my $all_of_d = ask($keeper, 'BEGIN ISOLATION LEVEL REPEATABLE READ', $state);
$start = sql('SELECT pg_current_wal_insert_lsn();');
my $deletions = qq{SELECT count(*), count(*) FILTER (WHERE 'open' = ANY (flags)), sum(nrows)
	FROM zundo.undo_records(NULL, NULL) WHERE type = 'DELETE' AND relation = 'd'::regclass;};
$before = sql("$state;");
sql('BEGIN;', 'DELETE FROM d;', 'ROLLBACK;');
is(sql("$state;"), $before, 'deletions: rolled back');
like(sql(qq{SELECT count(*) FILTER (WHERE description LIKE '%no undo%'), count(*) FILTER (WHERE description LIKE '%open, rows%')
	FROM pg_get_wal_records_info('$start', pg_current_wal_flush_lsn()) WHERE resource_manager = 'zundo' AND record_type = 'DELETE';}),
	qr/^@{[2000 - $pages - 1]}\|$pages$/, 'deletions: WAL of all but one row of each page names no undo');
like(sql($deletions), qr/^@{[$pages + 1]}\|$pages\|2000$/, 'deletions: an open record for each page');
sql('DELETE FROM d WHERE id % 3 = 0;');
is(ask($keeper, $state), $all_of_d, 'deletions: an old snapshot sees all rows');
same('deletions');
my $fourth = q{SET zundo.fault = 'delete-logged:crash:4';};
dies('fourth deletion', $fourth, 'DELETE FROM d WHERE id <= 60;');
dies('deletion in a subtransaction', 'BEGIN;', 'DELETE FROM d WHERE id BETWEEN 100 AND 120;', 'SAVEPOINT s;', 'DELETE FROM d WHERE id < 130;',
	'ROLLBACK TO s;', 'DELETE FROM d WHERE id BETWEEN 130 AND 140;', 'CHECKPOINT;', $fourth, 'DELETE FROM d WHERE id < 200;');
$before = sql("$state;");
sql('BEGIN;', 'DELETE FROM d WHERE id < 500;', 'SAVEPOINT s;', 'DELETE FROM d WHERE id < 700;',
	q{INSERT INTO d SELECT g, 'p' FROM generate_series(1, 50) g;}, q{DELETE FROM d WHERE pad = 'p' AND id > 10;}, q{PREPARE TRANSACTION 'd';});
sql('DELETE FROM d WHERE id BETWEEN 701 AND 710; UPDATE d SET pad = upper(pad) WHERE id BETWEEN 711 AND 720;');
sql(q{INSERT INTO d SELECT g, repeat('d', 40) FROM generate_series(701, 710) g WHERE g % 3 > 0;});
sql('UPDATE d SET pad = lower(pad) WHERE id BETWEEN 711 AND 720;');
crash($node);
sound($node, 'prepared deletion', qw(d zundo.undo_log));
sql(q{ROLLBACK PREPARED 'd';});
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), 'prepared deletion: rolled back');
is(sql("$state;"), $before, 'prepared deletion: all rows are there');
sound($node, 'deletions', qw(d zundo.undo_log));
same('prepared deletion');
$state = $state_of_t;

# One row of each page, but for two of the first: the second of these opens a record.
sql(q{CREATE TABLE far (id int PRIMARY KEY, pad text) USING zheap;
	INSERT INTO far SELECT g, repeat('f', 40) FROM generate_series(1, 2000) g;});
$start = sql('SELECT pg_current_wal_insert_lsn();');
sql('DELETE FROM far WHERE id IN (100, 101, 500, 900, 1500);');
is(sql(qq{SELECT count(*), count(*) FILTER (WHERE description LIKE '%open, rows%')
	FROM pg_get_wal_records_info('$start', pg_current_wal_flush_lsn()) WHERE resource_manager = 'zundo' AND record_type = 'DELETE';}),
	'5|1', 'deleted by keys: one open record');
sound($node, 'deleted by keys', 'far');

# 6. A record whose range includes rows that were there before it.
sql(q{CREATE TABLE lie (id int) USING zheap; BEGIN; INSERT INTO lie VALUES (1), (2), (3), (4);
	UPDATE lie SET id = -id WHERE id = 3; INSERT INTO lie VALUES (11), (12), (13); PREPARE TRANSACTION 'lie';});
sound($node, 'before the lie', 'lie');
my $path = $node->data_dir . '/' . sql(q{SELECT pg_relation_filepath('zundo.undo_log');});
my $oid = sql(q{SELECT 'lie'::regclass::oid;});
$standby->stop;
$node->stop;
my $found = 0;
for my $block (0 .. (-s $path) / 8192 - 1)
{
	my $page = read_block($path, $block);
	# relation OID, block 0, offset 6, cid 2
	my $at = index($page, pack('L<L<S<C', $oid, 0, 6, 2));
	next if $at < 0;
	substr($page, $at + 8, 2) = pack('S<', 3);
	write_block($path, $block, $page);
	$found++;
}
is($found, 1, 'the open record was found');
$node->start;
like($node->safe_psql('postgres', q{SELECT invariant, item, detail FROM zundo.check('lie')}),
	qr/^CHAIN-6\|3\|row is in state \d+, but its newest undo record has type 1$/m, 'zundo.check says that the record lies');
no_crash($node);
$node->stop('immediate');
done_testing();
