# Many rows of a page are locked by one LOCK record (TAG-1, TAG-2, TAG-5). Counts
# these records; crashes, a standby, rollbacks, prepared transactions and VACUUM
# FULL; what zundo.check reports of a tag that names no slot.
# Rules: TAG-2, CLUSTER-1.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('locked', <<'C', allows_streaming => 1, no_data_checksums => 1);
wal_consistency_checking = 'all'
max_wal_size = 4GB
checkpoint_timeout = 1h
max_prepared_transactions = 10
restart_after_crash = off
lock_timeout = '300ms'
C
sql('CREATE EXTENSION zundo;', 'CREATE EXTENSION pg_walinspect;');
my $standby = standby_of($node);
sql(q{
	CREATE TABLE t (id int PRIMARY KEY, n int, pad text) USING zheap WITH (fillfactor = 90);
	INSERT INTO t SELECT g, 0, repeat('p', 40) FROM generate_series(1, 1000) g;
	CREATE UNLOGGED TABLE u (id int PRIMARY KEY, n int) USING zheap;
	INSERT INTO u SELECT g, 0 FROM generate_series(1, 100) g;
});
my $pages = sql(q{SELECT pg_relation_size('t') / 8192;});

# Returns which rows of ids 1 .. 30 another session could lock in this mode, as ranges.
sub free_for
{
	my ($mode, $table) = @_;
	$table ||= 't';
	my @ids = split /,/, sql("SELECT coalesce(string_agg(id::text, ','), '') FROM (SELECT id FROM $table WHERE id <= 30
		ORDER BY id FOR $mode SKIP LOCKED) l;");
	my @ranges;
	for my $id (@ids)
	{
		if (@ranges && $ranges[-1][1] == $id - 1) { $ranges[-1][1] = $id; }
		else { push @ranges, [ $id, $id ]; }
	}
	return join ',', map { $_->[0] == $_->[1] ? $_->[0] : "$_->[0]-$_->[1]" } @ranges;
}

# Returns how many LOCK records of transactions in progress the table's undo has, and how
# many of them are open.
sub lock_records
{
	return sql(q{SELECT count(*), count(*) FILTER (WHERE 'open' = ANY (flags))
		FROM zundo.undo_records(NULL, NULL) WHERE type = 'LOCK' AND status = 'in progress' AND relation = 't'::regclass;});
}

# 1. Records for the first locks of a page, then one for all others.
my %shown = ('KEY SHARE' => 'For Key Share', 'SHARE' => 'For Share');
my %kept = ('KEY SHARE' => 6, 'SHARE' => 6, 'NO KEY UPDATE' => 2, 'UPDATE' => 2);
for my $mode (sort keys %kept)
{
	my $s = session($node);
	my $start = sql('SELECT pg_current_wal_insert_lsn();');
	ask($s, 'BEGIN', "SELECT count(*) FROM (SELECT 1 FROM t FOR $mode) l");
	my ($all, $open) = split /\|/, lock_records();
	is($all, $pages * $kept{$mode}, "FOR $mode: $kept{$mode} records a page");
	is($open, $pages, "FOR $mode: one of them is open");
	is(sql("SELECT count(*), count(DISTINCT locked_row), min(mode) = max(mode) FROM zundo.row_locks('t');"), '1000|1000|t',
		"FOR $mode: zundo.row_locks shows each row");
	is(free_for('UPDATE'), '', "FOR $mode: nobody else may delete");
	ask($s, 'ROLLBACK');
	is(free_for('UPDATE'), '1-30', "FOR $mode: rolled back");
	$s->quit;
	sound($node, "FOR $mode", qw(t zundo.undo_log));
}

# Locks FOR UPDATE that follow weaker ones need no further record, but for those of a
# subtransaction, which end with it.
for my $mode ('KEY SHARE', 'SHARE')
{
	my $s = session($node);
	sql("SELECT count(*) FROM (SELECT 1 FROM t FOR UPDATE) l;");
	ask($s, 'BEGIN', "SELECT count(*) FROM (SELECT 1 FROM t FOR $mode) l", 'SAVEPOINT s',
		'SELECT count(*) FROM (SELECT 1 FROM t WHERE id BETWEEN 11 AND 20 FOR UPDATE) l');
	is(free_for('KEY SHARE'), '1-10,21-30', "FOR $mode, in a subtransaction FOR UPDATE: what is locked");
	ask($s, 'ROLLBACK TO s', 'RELEASE s');
	is(free_for('KEY SHARE'), '1-30', '... and after its rollback');
	is(free_for('UPDATE'), '', '... which leaves the weaker locks');
	my $start = sql('SELECT pg_current_wal_insert_lsn();');
	ask($s, 'SELECT count(*) FROM (SELECT 1 FROM t WHERE id > 10 FOR UPDATE) l');
	is(lock_records(), $pages * $kept{$mode} . "|$pages", "FOR $mode, then FOR UPDATE: no further record");
	is(sql("SELECT string_agg(mode || ' ' || n, ', ' ORDER BY n) FROM (SELECT mode, count(DISTINCT locked_row) n
		FROM zundo.row_locks('t') GROUP BY mode) l;"), "$shown{$mode} 10, For Update 990", '... zundo.row_locks shows the stronger ones');
	is(free_for('KEY SHARE'), '1-10', '... and others wait for them');
	ask($s, 'ROLLBACK');
	is(free_for('UPDATE'), '1-30', '... rolled back');
	$s->quit;
	sound($node, "FOR $mode, then FOR UPDATE", qw(t zundo.undo_log));
}

# An update takes over the locks of its transaction, unless it can be rolled back without
# them.
for my $mode ('KEY SHARE', 'SHARE', 'NO KEY UPDATE', 'UPDATE')
{
	my $s = session($node);
	my $shared = $mode =~ /SHARE/;
	ask($s, 'BEGIN', "SELECT id FROM t WHERE id <= 3 FOR $mode", 'UPDATE t SET n = n WHERE id = 1', 'SAVEPOINT s',
		'UPDATE t SET n = n WHERE id = 2');
	is(sql(q{SELECT string_agg(coalesce(lock, 'none'), ',' ORDER BY lp) FROM zundo.page_items('t', 0) WHERE lp <= 3;}),
		$mode eq 'NO KEY UPDATE' ? 'none,no key update,no key update' : 'none,update,update', "updated after FOR $mode: the lock hints");
	is(free_for('KEY SHARE'), $mode eq 'UPDATE' ? '4-30' : '1-30', "... others' KEY SHARE locks");
	is(free_for('SHARE'), $shared ? '3-30' : '4-30', "... others' SHARE locks");
	ask($s, 'ROLLBACK TO s');
	is(free_for('SHARE'), $shared ? '2-30' : '4-30', "... and after ROLLBACK TO");
	is(free_for('UPDATE'), '4-30', '... the locks are still held');
	ask($s, 'ROLLBACK');
	is(free_for('UPDATE'), '1-30', '... and end with the transaction');
	$s->quit;
	sound($node, "updated after FOR $mode", 't');
}

sub same
{
	my ($what) = @_;
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	is($standby->safe_psql('postgres', 'SELECT count(*), sum(n), sum(id) FROM t'), sql('SELECT count(*), sum(n), sum(id) FROM t;'),
		"$what: the same rows on the standby");
	return;
}
same('locks');

# 2. Prepared transactions hold their rows over a crash; what a savepoint had locked is free.
my $lock = sub { return "SELECT count(*) FROM (SELECT 1 FROM $_[0] WHERE id BETWEEN $_[1] AND $_[2] FOR $_[3]) l;" };
sql('BEGIN;', $lock->('t', 1, 10, 'UPDATE'), q{PREPARE TRANSACTION 'whole';});
sql('BEGIN;', $lock->('t', 11, 14, 'UPDATE'), 'SAVEPOINT s;', $lock->('t', 15, 20, 'UPDATE'), 'ROLLBACK TO s;',
	q{PREPARE TRANSACTION 'part';});
sql('BEGIN;', $lock->('t', 21, 29, 'KEY SHARE'), q{UPDATE t SET n = 1 WHERE id = 22;}, $lock->('t', 28, 30, 'SHARE'),
	q{PREPARE TRANSACTION 'mixed';});
sql('BEGIN;', $lock->('t', 101, 120, 'KEY SHARE'), $lock->('t', 101, 115, 'UPDATE'), 'SAVEPOINT s;', $lock->('t', 116, 120, 'UPDATE'),
	'ROLLBACK TO s;', q{PREPARE TRANSACTION 'stronger';});
is(free_for('UPDATE'), '15-20', 'prepared');
is(free_for('NO KEY UPDATE'), '15-21,23-27', 'prepared');
crash($node);
is(free_for('UPDATE'), '15-20', 'prepared, crashed');
is(free_for('NO KEY UPDATE'), '15-21,23-27', 'prepared, crashed');
my $kinds = q{SELECT string_agg(mode || ' ' || n, ', ' ORDER BY n) FROM (SELECT mode, count(DISTINCT locked_row) n
	FROM zundo.row_locks('t') JOIN pg_prepared_xacts ON transaction::text = locker::text WHERE gid = 'stronger' GROUP BY mode) l;};
is(sql($kinds), 'For Key Share 5, For Update 15', 'made stronger, prepared, crashed');
sql(q{ROLLBACK PREPARED 'stronger';});
sql(q{UPDATE t SET n = n + 5, pad = repeat('q', 44) WHERE id BETWEEN 23 AND 27;}, q{VACUUM t;});
is(free_for('UPDATE'), '15-20', 'an update beside the locks keeps them');
crash($node);
is(free_for('UPDATE'), '15-20', 'and does so over a crash');
sql(q{COMMIT PREPARED 'part';}, q{ROLLBACK PREPARED 'whole';});
is(free_for('UPDATE'), '1-20', 'two have ended');
sql(q{ROLLBACK PREPARED 'mixed';});
is(free_for('UPDATE'), '1-30', 'all have ended');
is(sql('SELECT sum(n) FROM t;'), '25', 'the rolled back update is undone');
sound($node, 'prepared', qw(t zundo.undo_log));
same('prepared');

# The tags of a transaction that has committed stay in the rows. A later transaction that
# gets the same slot takes them off when it makes its own open record (TAG-2): otherwise
# its lock would be on 20 rows.
sql('BEGIN;', $lock->('t', 1, 20, 'UPDATE'), 'COMMIT;');
my @slots = split /\n/, sql(map { ('BEGIN;', $lock->('t', 3, 6, 'UPDATE') =~ s/count\(\*\)/count(*) = 0/r,
	q{SELECT (SELECT slot FROM zundo.page_slots('t', 0) WHERE status = 'own'), (SELECT count(*) FROM zundo.row_locks('t'));}, 'COMMIT;') } 1 .. 40);
is(join(' ', grep { !/^(?:\d+\|4|f)$/ } @slots), '', 'old tags: they lock nothing for the next owners of their slot');
my %owned = map { $_ => 1 } grep { /\|/ } @slots;
cmp_ok(scalar(keys %owned), '<', 40, 'old tags: each slot has had several owners');

# 3. The server crashes at a lock by tag, with a prepared transaction on the same page;
# and while an open record is being undone.
sub dies
{
	my ($what, @sql) = @_;
	$node->psql('postgres', join("\n", @sql));
	ok(wait_for_death($node), "$what: the server died");
	$node->start;
	is(free_for('UPDATE'), '1-4,25-30', "$what: only the prepared transaction's rows are held");
	ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), "$what: all is rolled back");
	is(free_for('UPDATE'), '1-4,25-30', "$what: and after that");
	sound($node, $what, qw(t u zundo.undo_log));
	same($what);
	return;
}
sql('BEGIN;', $lock->('t', 5, 24, 'UPDATE'), q{PREPARE TRANSACTION 'p';});
my $crash = q{SET zundo.fault = 'inline-lock-logged:crash';};
dies('a lock by tag', 'BEGIN;', $lock->('t', 25, 27, 'UPDATE'), 'CHECKPOINT;', $crash, $lock->('t', 28, 30, 'UPDATE'));
dies('a lock that becomes stronger', 'BEGIN;', $lock->('t', 25, 30, 'NO KEY UPDATE'), 'CHECKPOINT;', $crash, $lock->('t', 25, 30, 'UPDATE'));
dies('in a subtransaction', 'BEGIN;', $lock->('t', 1, 2, 'UPDATE'), 'SAVEPOINT s;', $lock->('t', 25, 29, 'UPDATE'), 'ROLLBACK TO s;',
	'SAVEPOINT s2;', $lock->('t', 500, 502, 'UPDATE'), $crash, $lock->('t', 503, 504, 'UPDATE'));
# the crashes have emptied it
sql(q{INSERT INTO u SELECT g, 0 FROM generate_series(1, 100) g;});
dies('an unlogged table', 'BEGIN;', $lock->('t', 25, 30, 'UPDATE'), $lock->('u', 1, 3, 'UPDATE'), $crash, $lock->('u', 4, 9, 'UPDATE'));
dies('rollback', q{SET zundo.fault = 'rollback-logged:crash';}, 'BEGIN;', $lock->('t', 25, 30, 'UPDATE'), 'ROLLBACK;');
sql(q{COMMIT PREPARED 'p';});
is(free_for('UPDATE'), '1-30', 'committed');

# 4. A rewrite takes no tags along. Rows that are before `oldest` are visible to all in
# the new file: they name no slot there (CLUSTER-1).
ok($node->poll_query_until('postgres', 'SELECT zundo.undo_bytes_in_use() = 0'), 'all rows are before oldest');
# the worker may look at the table for a moment
sql(q{SET lock_timeout = 0; VACUUM FULL t;});
is(sql(q{SELECT count(*) FILTER (WHERE slot <> 0), count(*) FROM generate_series(0, pg_relation_size('t') / 8192 - 1) b, zundo.page_items('t', b);}),
	'0|1000', 'rewritten: no row names a slot');
sound($node, 'rewritten', 't');
is(free_for('UPDATE'), '1-30', 'rewritten: nothing is locked');
same('rewritten');

# 5. An update in place that adds index entries keeps tags, and its rollback takes only
# its own bytes back.
sql(q{CREATE INDEX t_n ON t USING zbtree (n);}, q{UPDATE t SET n = id WHERE id <= 30;});
sql('BEGIN;', $lock->('t', 1, 30, 'KEY SHARE'), q{PREPARE TRANSACTION 'shared';});
my $held = sql(q{SELECT count(*) FROM zundo.row_locks('t');});
sql('BEGIN;', q{UPDATE t SET n = n + 1000 WHERE id <= 20;}, q{UPDATE t SET n = n + 1000 WHERE id <= 10;}, 'ROLLBACK;');
sql(q{UPDATE t SET n = n + 5000 WHERE id BETWEEN 16 AND 25;}, q{VACUUM t;});
is(sql(q{SELECT count(*) FROM zundo.row_locks('t');}), $held, 'index entries added: the locks are kept');
is(free_for('UPDATE') . '/' . free_for('NO KEY UPDATE'), '/1-30', 'index entries added: what can still be locked');
crash($node);
is(free_for('UPDATE') . '/' . free_for('NO KEY UPDATE'), '/1-30', 'index entries added, crashed: what can still be locked');
sql(q{COMMIT PREPARED 'shared';});
is(sql(q{SET enable_seqscan = off; SELECT string_agg(id::text, ' ' ORDER BY id) FROM t WHERE n BETWEEN 5016 AND 5025;}),
	join(' ', 16 .. 25), 'index entries added: the rows are found');
is(sql(q{SELECT count(*) FROM zundo.check_index('t_n');}), '0', 'index entries added: the index is sound');
sound($node, 'index entries added', qw(t zundo.undo_log));
same('index entries added');

# 6. BEFORE triggers lock the rows, but what our transaction wrote needs no record for that.
sql(q{CREATE TABLE own (id int, v int) USING zheap;
	CREATE FUNCTION as_it_is() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
	CREATE TRIGGER b BEFORE UPDATE ON own FOR EACH ROW EXECUTE FUNCTION as_it_is();});
for my $command ('UPDATE own SET v = 1', 'UPDATE own SET v = 2', 'SELECT count(*) FROM (SELECT 1 FROM own FOR NO KEY UPDATE) l',
	'SELECT count(*) FROM (SELECT 1 FROM own WHERE v = 0 FOR UPDATE) l')
{
	my $s = session($node);
	ask($s, 'BEGIN', 'INSERT INTO own SELECT g, 0 FROM generate_series(1, 300) g', 'UPDATE own SET v = 1 WHERE id % 100 = 0', $command);
	is(sql(q{SELECT count(*) FROM zundo.undo_records(NULL, NULL)
		WHERE type = 'LOCK' AND status = 'in progress' AND relation = 'own'::regclass}), '0', "no LOCK record: $command");
	ask($s, 'ROLLBACK');
	$s->quit;
}

# 7. A tag that names no slot of the page.
sql('BEGIN;', $lock->('t', 1, 9, 'UPDATE'), q{COMMIT;}, 'CHECKPOINT;');
my $path = $node->data_dir . '/' . sql(q{SELECT pg_relation_filepath('t');});
$standby->stop;
$node->stop;
my $page = read_block($path, 0);
my $lp = unpack('L<', substr($page, 24 + 4 * 5, 4));
is(ord(substr($page, ($lp & 0x7FFF) + 4, 1)) > 0, 1, 'row 6 has a tag');
substr($page, ($lp & 0x7FFF) + 4, 1) = chr(77);
write_block($path, 0, $page);
$node->start;
like($node->safe_psql('postgres', q{SELECT invariant, item, detail FROM zundo.check('t')}),
	qr/^PAGE-3\|6\|lock tag names slot 77, the page has \d+ of its own$/m, 'zundo.check says that the tag names no slot');
no_crash($node);
$node->stop('immediate');
done_testing();
