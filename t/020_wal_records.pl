# Every kind of WAL record is written by the statements it is meant for, read
# back by pg_walinspect with a name and a description, and replayed after a
# crash.
# Rules: LOCK-1, PRUNE-1, VMAP-3.
use strict;
use warnings;
use Test::More;
use ZundoTest;

my $node = zundo_node('wal', <<'C');
wal_consistency_checking = 'all'
max_wal_size = 4GB
checkpoint_timeout = 1h
C
$node->safe_psql('postgres', 'CREATE EXTENSION zundo; CREATE EXTENSION pg_walinspect');
$node->safe_psql(
	'postgres', q{
	CREATE TABLE t (id int PRIMARY KEY, n int, filler text) USING zheap;
	CREATE UNLOGGED TABLE u (id int) USING zheap;
	CREATE TABLE hot (id int PRIMARY KEY, n int) USING zheap;
	CREATE TABLE big (id int, n int, filler text) USING zheap;
	CREATE MATERIALIZED VIEW view USING zheap AS SELECT id, n FROM t;
	CHECKPOINT;
});
my $start = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');

# written KIND, WHY[, WORDS]: wait until the WAL since $start holds a record of that kind,
# all with a sound description, one with these words.
sub written
{
	my ($kind, $why, $words) = @_;
	$words //= '';
	ok( $node->poll_query_until(
			'postgres', qq{
			SELECT count(*) > 0 AND bool_and(description <> '' AND description !~ 'malformed')
				AND bool_or(description LIKE '%$words%')
			FROM pg_get_wal_records_info('$start', pg_current_wal_flush_lsn())
			WHERE resource_manager = 'zundo' AND record_type = '$kind'}),
		"$kind: $why");
	return;
}

$node->safe_psql('postgres', q{INSERT INTO t VALUES (0, 0, 'one row')});
written('INSERT', 'one row');
$node->safe_psql('postgres', q{INSERT INTO t VALUES (5000, 0, 'upsert') ON CONFLICT DO NOTHING});
written('MARK', 'INSERT ... ON CONFLICT');
$node->safe_psql('postgres', "COPY t FROM stdin;\n" . join('', map { "$_\t0\tcopied\n" } 1 .. 500) . "\\.\n");
written('MULTI_INSERT', 'COPY');
written('UNDO_MAP', 'the first undo of a session');
$node->safe_psql('postgres', 'UPDATE t SET n = n + 1 WHERE id = 3');
written('UPDATE', 'in place');
$node->safe_psql('postgres', 'UPDATE t SET id = 1000 WHERE id = 4');
written('MOVE', 'the key changes', 'new row of');
$node->safe_psql('postgres', q{
	INSERT INTO t VALUES (6000, 0, repeat('compressible ', 40));
	UPDATE t SET id = 6001 WHERE id = 6000;
	UPDATE t SET id = 6002, n = 7, filler = 'longer' || filler WHERE id = 6001;
	UPDATE t SET id = 6003, filler = NULL WHERE id = 6002;
	UPDATE t SET id = 6004, filler = 'something else', n = NULL WHERE id = 6003;
});
written('MOVE', 'within a page', 'new row by delta');
$node->safe_psql('postgres', q{
	CREATE TABLE full_pages (id int PRIMARY KEY, n int, filler text) USING zheap WITH (fillfactor = 100);
	INSERT INTO full_pages SELECT g, 0, repeat('compressible ', 40) FROM generate_series(1, 100) g;
	UPDATE full_pages SET id = 6001 WHERE id = 1;
	UPDATE full_pages SET id = 6002, n = 7, filler = 'longer' || filler WHERE id = 20;
	UPDATE full_pages SET id = 6003, filler = repeat('other words ', 45), n = NULL WHERE id = 40;
});
written('MOVE', 'to another page', "new row of $_ bytes, compressed") for 537, 543, 554;
$node->safe_psql('postgres', 'DELETE FROM t WHERE id BETWEEN 100 AND 300');
written('DELETE', 'rows deleted');
$node->safe_psql('postgres', 'SELECT * FROM t WHERE id = 5 FOR UPDATE');
written('LOCK', 'SELECT FOR UPDATE');
$node->safe_psql('postgres', 'SELECT * FROM t WHERE id = 5 FOR KEY SHARE');
written('INLINE_LOCK', 'SELECT FOR KEY SHARE');
$node->safe_psql('postgres', 'BEGIN; UPDATE t SET n = -1 WHERE id < 50; DELETE FROM t WHERE id = 60; ROLLBACK');
written('ROLLBACK', 'undone by the session');
all_discarded($node);
$node->safe_psql('postgres', 'VACUUM t');
written('PRUNE', 'deleted rows are removed');

# A change of an all-visible page clears the bit in its own record, but for a row that moves to another page.
my %change = (
	UPDATE => 'UPDATE seen SET n = n + 1 WHERE id = 1',
	DELETE => 'DELETE FROM seen WHERE id = 2',
	INSERT => q{INSERT INTO seen VALUES (1000, 0, 'one row')},
	MULTI_INSERT => "COPY seen FROM stdin;\n1001\t0\tcopied\n1002\t0\tcopied\n\\.\n",
	MOVE => 'UPDATE seen SET id = 2000 WHERE id = 1000');
my $bits = q{SELECT count(*) FROM generate_series(0, pg_relation_size('seen') / 8192 - 1) b, pg_visibility_map('seen', b)
	WHERE all_visible};
$node->safe_psql('postgres', q{
	CREATE EXTENSION pg_visibility;
	CREATE TABLE seen (id int PRIMARY KEY, n int, filler text) USING zheap WITH (fillfactor = 100);
	INSERT INTO seen SELECT g, 0, repeat('x', 100) FROM generate_series(1, 100) g});
for my $kind ('UPDATE', 'DELETE', 'INSERT', 'MULTI_INSERT', 'MOVE')
{
	all_discarded($node);
	$node->safe_psql('postgres', 'VACUUM seen');
	is($node->safe_psql('postgres', $bits), '2', "before $kind all pages have their bits");
	$node->safe_psql('postgres', $change{$kind});
	is($node->safe_psql('postgres', $bits), '1', '... afterwards one has none');
	written($kind, 'on an all-visible page', 'page was all-visible');
}
is($node->safe_psql('postgres', qq{SELECT count(*) FROM pg_get_wal_records_info('$start', pg_current_wal_flush_lsn())
	WHERE resource_manager = 'zundo' AND description = 'not all-visible'}), '0', 'without records of their own');
all_discarded($node);
$node->safe_psql('postgres', 'VACUUM seen');
$node->safe_psql('postgres', q{UPDATE seen SET filler = repeat('long', 500) WHERE id = 1});
is($node->safe_psql('postgres', $bits), '0', 'a move to another page clears the bits of both');
written('MARK', 'a move to another page', 'not all-visible');
$node->safe_psql('postgres', 'INSERT INTO u SELECT generate_series(1, 10)');
written('UNDO_ONLY', 'an unlogged table');

# An image is saved of a page whose chain becomes long under an old snapshot.
my $holder = $node->background_psql('postgres', on_error_stop => 1);
$node->safe_psql('postgres', 'INSERT INTO hot VALUES (1, 0), (2, 0)');
$holder->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
$holder->query_safe('SELECT n FROM hot');
$node->safe_psql('postgres', q{DO $$ BEGIN FOR i IN 1 .. 5000 LOOP UPDATE hot SET n = n + 1 WHERE id = 1; COMMIT; END LOOP; END $$});
is($holder->query_safe('SELECT sum(n) FROM hot'), '0', 'the old snapshot reads the old row');
written('IMAGE', 'a long chain on one page');
$holder->query_safe('COMMIT');
$holder->quit;

# Much undo is written and discarded, and the file is truncated.
$node->safe_psql('postgres', q{INSERT INTO big SELECT i, 0, repeat(md5(i::text), 4) FROM generate_series(1, 50000) i});
$node->safe_psql('postgres', 'UPDATE big SET filler = repeat(md5((-id)::text), 4)');
$node->safe_psql('postgres', 'SELECT zundo.discard()');
written('UNDO_DISCARD', 'nobody needs the undo');
written('UNDO_TRUNCATE', 'the tail of the undo log has been unused for a while');

# Frozen rows: the replayed page must be the same, its row names no slot.
$node->safe_psql('postgres', 'REFRESH MATERIALIZED VIEW view');
is($node->safe_psql('postgres', q{SELECT bool_and(slot IS NULL OR slot = 0) FROM zundo.page_items('view', 0)}), 't', 'rows of REFRESH MATERIALIZED VIEW name no slot');

my $state = 'SELECT count(*), sum(n), sum(id) FROM t UNION ALL SELECT count(*), sum(n), sum(id) FROM view
	UNION ALL SELECT count(*), sum(n), sum(id) FROM full_pages';
my $before = $node->safe_psql('postgres', $state);
crash($node);
is($node->safe_psql('postgres', $state), $before, 'the same rows after crash recovery');
for my $table (qw(t u hot big view full_pages))
{
	is($node->safe_psql('postgres', "SELECT * FROM zundo.check('$table')"), '', "zundo.check of $table");
}
no_crash($node);
$node->stop;
done_testing();
