# Scans mark entries of zbtree indexes that young snapshots do not need, and
# pass over them (MARK-1 to MARK-4): nothing is hidden from a snapshot that
# needs it, when a row gets a key back, after a crash, on a standby and after
# its promotion.
# newest
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Time::HiRes;
use Test::More;
use ZundoTest;

my $node = zundo_node('marks', "enable_seqscan = off\nenable_bitmapscan = off\nzundo.key_queue = 0\nwal_log_hints = on\nmax_prepared_transactions = 5\n"
	  . "checkpoint_timeout = 1h\nrestart_after_crash = on\n", allows_streaming => 1);
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');

# run SQL...: runs statements on the node that is the primary at the moment, and returns the output.
sub run { return $node->safe_psql('postgres', join(";\n", @_)) }

# make_tables KIND: makes a heap table and a zheap table with the same rows, 400 of each key.
sub make_tables
{
	my ($kind) = @_;
	for my $t (['h', 'heap', 'btree'], ['z', 'zheap', 'zbtree'])
	{
		my ($table, $am, $method) = @$t;
		run(qq{DROP TABLE IF EXISTS $table; CREATE $kind TABLE $table (id int PRIMARY KEY, a int, b text) USING $am WITH (fillfactor = 70, autovacuum_enabled = off);
			CREATE INDEX ${table}_a ON $table USING $method (a, id);
			INSERT INTO $table SELECT g, g % 4, 'b' || g FROM generate_series(1, 1600) g; ANALYZE $table});
	}
	return;
}
sub both { my ($sql) = @_; run(map { $sql =~ s/\bT\b/$_/gr } 'h', 'z'); return }
sub dead { return run(q{SELECT dead FROM zundo.index_entries('z_a')}) }

# mark LEAST NAME [WHERE]: scans z until at least this number of entries is marked as
# dead, and checks that it is reached; with WHERE only by entries of these rows.
sub mark
{
	my ($least, $what, $where) = @_;
	my @scans = defined $where ? "SELECT count(b) FROM z WHERE $where"
	  : ('SELECT count(b) FROM z WHERE a >= -1000000', 'SELECT count(b) FROM (SELECT b FROM z WHERE a < 1000000 ORDER BY a DESC, id DESC) s');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for (1 .. 300)
	{
		run(@scans);
		last if dead() >= $least;
		select(undef, undef, undef, 0.02);
	}
	cmp_ok(dead(), '>=', $least, $what);
	return;
}

# Compares the answers from both tables, in the given session or in a new one.
my @queries = ('SELECT count(b), sum(id) FROM T WHERE a = 0', 'SELECT count(b), sum(id) FROM T WHERE a > 0',
	q{SELECT md5(string_agg(id || b, ',')) FROM (SELECT id, b FROM T WHERE a BETWEEN -5 AND 500 ORDER BY a, id) s},
	q{SELECT md5(string_agg(id || b, ',')) FROM (SELECT id, b FROM T WHERE a < 9 ORDER BY a DESC, id DESC) s},
	'SELECT id, b FROM T WHERE a = 0 ORDER BY a, id LIMIT 1', 'SELECT count(b), sum(a) FROM T WHERE a IN (0, 2, 7, 100)');
sub same
{
	my ($what, $session) = @_;
	my $differences = '';
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $query (@queries, 'BITMAP SELECT count(b), sum(id) FROM T WHERE a BETWEEN 0 AND 100')
	{
		my $plan = $query =~ s/^BITMAP //r;
		my $set = $plan eq $query ? '' : 'SET enable_bitmapscan = on; SET enable_indexscan = off; ';
		my $reset = $set ? '; RESET enable_bitmapscan; RESET enable_indexscan' : '';
		my ($h, $z) = map { my $q = $set . ($plan =~ s/\bT\b/$_/r) . $reset; defined $session ? ask($session, $q) : run($q) } 'h', 'z';
		$differences .= "$query: $h but $z\n" if $h ne $z;
	}
	is($differences, '', "$what: the same as heap and btree");
	return;
}
sub sound_index { my ($what) = @_; local $Test::Builder::Level = $Test::Builder::Level + 1; is(run(q{SELECT * FROM zundo.check_index('z_a')}), '', "$what: zundo.check_index"); return }
sub old_snapshot
{
	my $old = session($node);
	ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM z');
	return $old;
}

for my $kind ('', 'UNLOGGED')
{
	my $name = lc($kind || 'logged');
	make_tables($kind);
	my $old = old_snapshot();
	both('UPDATE T SET a = 100 WHERE a = 0');
	both('DELETE FROM T WHERE a = 1 AND id % 3 = 0');
	mark(500, "$name: scans mark stale entries and those of deleted rows beside an old snapshot");
	same("$name: a new snapshot");
	same("$name: the old snapshot", $old);
	sound_index($name);
	my $middle = old_snapshot();
	both('UPDATE T SET a = 200 WHERE a = 100 AND id % 2 = 0');
	mark(600, "$name: later ones");
	same("$name: a snapshot in the middle", $middle);

	# the keys come back: in full, in part, in transactions that abort
	both('UPDATE T SET a = 0 WHERE a = 100');
	same("$name: keys are back");
	run("BEGIN; UPDATE z SET a = 0 WHERE a = 200; SELECT 1 / (1 - count(*)) FROM z WHERE a = 200; ROLLBACK");
	same("$name: keys were back in an aborted transaction");
	both('BEGIN; SAVEPOINT s; UPDATE T SET a = 0 WHERE a = 200 AND id < 500; ROLLBACK TO s; UPDATE T SET a = 0 WHERE a = 200 AND id > 1000; COMMIT');
	same("$name: some are back");
	mark(1, "$name: marked again");
	same("$name: the old snapshot at last", $old);
	same("$name: the one in the middle", $middle);

	# page-full deletion must not believe the marks
	both('UPDATE T SET a = 100 WHERE a = 0');
	mark(300, "$name: before pages are full");
	both(q{INSERT INTO T SELECT g, g % 4, 'n' FROM generate_series(-3000, -1) g});
	same("$name: full pages, the old snapshot", $old);
	same("$name: full pages, the one in the middle", $middle);
	same("$name: full pages");
	sound_index("$name, full pages");
	run('VACUUM z');
	same("$name: VACUUM beside the old snapshot", $old);
	ask($_, 'COMMIT') for $old, $middle;
	$_->quit for $old, $middle;
	run('VACUUM z');
	same("$name: VACUUM");
	sound_index("$name, vacuumed");
}

# marks that are on disk do not hide rows whose keys came back before a crash
make_tables('');
my $old = old_snapshot();
both('UPDATE T SET a = 100 WHERE a = 0');
mark(400, 'before a checkpoint');
run('CHECKPOINT');
both('UPDATE T SET a = 0 WHERE id % 8 = 0 AND a = 100');
run(q{BEGIN; UPDATE z SET a = 0 WHERE id % 8 = 4 AND a = 100 AND id < 900; PREPARE TRANSACTION 'p'});
$old->quit;
crash($node);
# MARK-4: the marks of the rows whose keys came back were taken off in WAL; else those on
# disk would hide the rows now
same('after a crash');
run(q{ROLLBACK PREPARED 'p'});
same('a prepared transaction is rolled back');
sound_index('after a crash');
cmp_ok(dead(), '>', 0, 'marks are still there');
mark(150, 'and new ones are made');

# MARK-2: a server that has just been started has no bound. Its scans see to it that there
# is one, though they meet only rows that are dead to all, and pass over nbtree's marks
# again.
make_tables('');
my $deleter = run('BEGIN; DELETE FROM z WHERE a = 0; SELECT pg_current_xact_id(); COMMIT');
$node->poll_query_until('postgres', "SELECT max(oldest_xid::text::bigint) > $deleter FROM zundo.stat_undo") or die 'oldest stays';
$node->restart;
my @met;
for (1 .. 300)
{
	push @met, run(q{BEGIN; SELECT 'first' FROM z ORDER BY a, id LIMIT 1; SELECT pg_stat_get_xact_tuples_returned('z_a'::regclass); COMMIT}) =~ /(\d+)$/;
	last if $met[-1] == 1;
	select(undef, undef, undef, 0.02);
}
is($met[0], 401, 'the first scan after a start meets all entries of deleted rows');
is($met[-1], 1, 'later ones pass over them');

# MARK-2: nothing is marked before the commits that make entries stale are flushed. A
# crash that loses the commit loses no entry that is needed again. The processes that
# could flush WAL are stopped meanwhile; a small buffer pool would be a reason to flush
# it, too.
$node->append_conf('postgresql.conf', "shared_buffers = 64MB\n");
$node->restart;
make_tables('');
$old = old_snapshot();
mark(0, 'a bound is there') for 1 .. 3;
sub is_unflushed { return run('SELECT pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()') eq 't' }
my @stopped = stop_idle($node, q{backend_type IN ('walwriter', 'background writer', 'checkpointer') OR backend_type ~ 'zundo'});
run('SET synchronous_commit = off; BEGIN; UPDATE h SET a = 100 WHERE a = 0; UPDATE z SET a = 100 WHERE a = 0; COMMIT');
ok(is_unflushed(), 'the commit is not flushed');
run('SET synchronous_commit = off', 'SELECT count(b) FROM z WHERE a >= 0') for 1 .. 20;
ok(is_unflushed(), '... still not');
is(dead(), '0', 'nothing is marked as long as the commit may be lost');
$old->quit;
crashes($node, sub { kill 'KILL', @stopped; return 0 });
is(run('SELECT count(*) FROM h WHERE a = 0'), '400', 'the commit was lost');
same('the commit was lost');
sound_index('the commit was lost');
$old = old_snapshot();
both('UPDATE T SET a = 100 WHERE a = 0');
mark(400, 'but when it is flushed');
$old->quit;

# MARK-2: a transaction in progress that has an id holds the bound back, though it has not
# touched the table
make_tables('');
$old = old_snapshot();
my $long = session($node);
ask($long, 'BEGIN; SELECT pg_current_xact_id()');
both('UPDATE T SET a = 100 WHERE a = 0');
for (1 .. 30)
{
	run('SELECT count(b) FROM z WHERE a >= 0');
	select(undef, undef, undef, 0.02);
}
is(dead(), '0', 'nothing is marked beside an older transaction in progress');
ask($long, 'COMMIT');
mark(400, 'but when it has ended');
same('marked when it has ended');
$_->quit for $long, $old;

# serializable: a reader that has passed over a marked entry, and a writer that makes it count again
for my $table ('h', 'z')
{
	my ($r, $w) = (session($node), session($node));
	ask($_, 'BEGIN ISOLATION LEVEL SERIALIZABLE') for $r, $w;
	ask($r, "SELECT count(b) FROM $table WHERE a = 0");
	ask($w, "SELECT count(b) FROM $table WHERE a = 3000");
	ask($w, "UPDATE $table SET a = 0 WHERE id = 40");
	ask($r, "INSERT INTO $table VALUES (5000, 3000, 'r')");
	my $failed = 0;
	for my $s ($r, $w)
	{
		ask($s, 'COMMIT');
		$failed += $complaint =~ /could not serialize/ ? 1 : 0;
	}
	is($failed, 1, "$table: one of two serializable transactions fails");
	$_->quit for $r, $w;
}
run('TRUNCATE h, z');

# a transaction that reads its own changes beside marked entries, and a cursor that is
# older than these changes
make_tables('');
$old = old_snapshot();
both('UPDATE T SET a = 100 WHERE a = 0');
mark(400, 'for cursors');
my $s = session($node);
ask($s, 'BEGIN');
ask($s, "DECLARE c_$_ CURSOR FOR SELECT id FROM $_ WHERE a = 100 ORDER BY a, id") for 'h', 'z';
ask($s, "UPDATE $_ SET a = 0 WHERE a = 100 AND id < 800") for 'h', 'z';
same('its own changes', $s);
is(ask($s, 'FETCH ALL FROM c_z'), ask($s, 'FETCH ALL FROM c_h'), 'a cursor opened before them');
ask($s, 'ROLLBACK');
same('rolled back', $s);
$s->quit;

# MARK-3: a scan is in the middle of a leaf page, with a snapshot that needs stale entries
# of it; it passes over marked entries, because nothing is marked yet that the snapshot
# needs. Scans with newer snapshots would like to mark these.
run(q{CREATE FUNCTION waits(int, int) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
		IF current_setting('test.wait', true) = 'on' THEN PERFORM pg_advisory_lock_shared(7), pg_advisory_unlock_shared(7); END IF;
		IF current_setting('test.fail', true) = 'on' THEN RAISE 'no comparison'; END IF;
		RETURN $1 >= $2; END $$},
	'CREATE OPERATOR >=# (LEFTARG = int, RIGHTARG = int, FUNCTION = waits, RESTRICT = scalargesel)',
	'CREATE OPERATOR CLASS waiting FOR TYPE int USING zbtree AS OPERATOR 4 >=#, FUNCTION 1 btint4cmp(int, int)',
	'CREATE TABLE m (a int, b text) USING zheap WITH (fillfactor = 50)', q{INSERT INTO m SELECT g, 'b' FROM generate_series(1, 20) g},
	'CREATE INDEX m_a ON m USING zbtree (a waiting)');
my $stale = q{SELECT dead FROM zundo.index_entries('m_a')};
my $anchor = old_snapshot();
run('UPDATE m SET a = a + 100');
for (1 .. 300)
{
	run('SELECT count(b) FROM m WHERE a >=# 0');
	last if run($stale) == 20;
	select(undef, undef, undef, 0.02);
}
is(run($stale), '20', 'entries that only an old snapshot needs are marked');
my ($gate, $late) = (session($node), session($node));
ask($gate, 'SELECT pg_advisory_lock(7)');
ask($late, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM h');
run('UPDATE m SET a = a + 1000');
$late->query_until(qr/begun/, "SET test.wait = on;\n\\echo begun\nSELECT 'seen ' || count(b) || ' of ' || max(a) FROM m WHERE a >=# 0;\n\\echo ended\n");
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}), 'a scan waits within a page');
for (1 .. 30)
{
	run('SELECT count(b) FROM m WHERE a >=# 0');
	select(undef, undef, undef, 0.02);
}
is(run($stale), '20', 'no entry is marked that the scan needs');
ask($gate, 'SELECT pg_advisory_unlock(7)');
like($late->query_until(qr/ended/, "\n"), qr/seen 20 of 120/, 'the scan has found all rows');
ask($late, 'COMMIT');
for (1 .. 300)
{
	run('SELECT count(b) FROM m WHERE a >=# 0');
	last if run($stale) == 40;
	select(undef, undef, undef, 0.02);
}
is(run($stale), '40', 'afterwards they are marked');

# MARK-3: an error within a page, caught in a subtransaction, does not hold the bound back
# until the top transaction ends
my $catcher = session($node);
like(ask($catcher, 'BEGIN', 'SET LOCAL test.fail = on', q{DO $$ BEGIN
	BEGIN PERFORM count(b) FROM m WHERE a >=# 0; EXCEPTION WHEN raise_exception THEN RAISE NOTICE 'caught'; END; END $$}) . $complaint, qr/caught/, 'an error is caught in a scan');
run('UPDATE m SET a = a + 10000');
for (1 .. 300)
{
	run('SELECT count(b) FROM m WHERE a >=# 0');
	last if run($stale) == 60;
	select(undef, undef, undef, 0.02);
}
is(run($stale), '60', 'entries are marked while the top transaction is open');
is(ask($catcher, 'ROLLBACK', 'SELECT count(b) FROM m WHERE a >=# 0'), '20', '... and it finds the rows');
$_->quit for $gate, $late, $catcher, $anchor;
run('DROP TABLE m', 'DROP FUNCTION waits CASCADE');

# races and crashes, forced
SKIP:
{
	my ($rc) = $node->psql('postgres', q{LOAD 'zundo'; SET zundo.fault = 'entries-judged:sleep'});
	skip 'built without fault points', 16 if $rc != 0;

	# a scan has found that an entry is not needed; meanwhile the row gets its key back:
	# the update waits, and removes the mark. If the scan was late, the update has not
	# waited, and the case is repeated.
	my ($waited, $wrong) = (0, '');
	for my $n (1 .. 8)
	{
		both("INSERT INTO T VALUES (9000 + $n, 7, 'race')");
		both("UPDATE T SET a = 8 WHERE id = 9000 + $n");
		both("UPDATE T SET a = 600 + $n WHERE a = 2 AND id < 200 * $n");
		mark(dead() + 1, "race $n: the bound is beyond the change", 'a = 2');
		my $marker = session($node);
		ask($marker, q{SET zundo.fault = 'entries-judged:sleep'});
		$marker->query_until(qr/begun/, "\\echo begun\nSELECT count(b) FROM z WHERE a = 7;\n");
		select(undef, undef, undef, 0.5);
		my $begun = Time::HiRes::time();
		run("UPDATE z SET a = 7 WHERE id = 9000 + $n");
		$waited = Time::HiRes::time() - $begun > 0.4;
		run("UPDATE h SET a = 7 WHERE id = 9000 + $n");
		$wrong .= "race $n; " if run("SELECT count(*) FROM z WHERE a = 7 AND id = 9000 + $n") ne '1';
		ask($marker, 'SELECT 1');
		$wrong .= "race $n, later; " if run("SELECT count(*) FROM z WHERE a = 7 AND id = 9000 + $n") ne '1';
		$marker->quit;
		last if $waited;
	}
	is($wrong, '', 'a key that came back while its entry was judged');
	ok($waited, 'its update has waited for the scan');
	sound_index('after the race');

	# a key comes back, and its entry stays marked until the update comes to it
	$old->quit;
	make_tables('');
	my $beside = old_snapshot();
	both('UPDATE T SET a = 100 WHERE a = 0');
	mark(400, 'before a key comes back');
	my $writer = session($node);
	ask($writer, q{SET zundo.fault = 'keys-due:sleep'});
	$writer->query_until(qr/begun/, "\\echo begun\nUPDATE z SET a = 0 WHERE id = 40;\n");
	select(undef, undef, undef, 0.3);
	sound_index('an update that has not taken the mark off yet');
	run('UPDATE h SET a = 0 WHERE id = 40');
	ask($writer, 'SELECT 1');
	same('when it has');
	sound_index('when it has');
	$_->quit for $writer, $beside;
	both('UPDATE T SET a = 100 WHERE a = 0');

	# kill -9 of a scan that is about to mark entries
	run('CREATE TABLE flush ()', 'DROP TABLE flush');
	my $crashed = 0;
	for (1 .. 100)
	{
		# until the bound is beyond the changes
		$crashed = crashes($node, sub { ($node->psql('postgres', q{SET zundo.fault = 'entries-judged:crash'; SELECT count(b) FROM z WHERE a = 0}))[0] == 0 });
		last if $crashed;
		select(undef, undef, undef, 0.02);
	}
	ok($crashed, 'a crash before entries are marked');
	same('a crash before entries are marked');
	sound_index('a crash before entries are marked');

	# kill -9 of the process that has removed marks; the crash before may have lost those
	# that were there
	mark(400, 'before marks are taken off');
	run('CHECKPOINT');
	ok(crashes($node, sub { ($node->psql('postgres', q{SET zundo.fault = 'marks-cleared:crash:3'; UPDATE z SET a = 0 WHERE a = 100}))[0] == 0 }), 'a crash amid marks that are taken off');
	same('a crash amid marks that are taken off');
	sound_index('and then');
	both('UPDATE T SET a = 0 WHERE a = 100');
	same('once more, without a crash');
}

# a standby gets marks in page images; its scans skip none of these, before and after
# promotion; after it new marks are used
$node->restart;
make_tables('');
$node->backup('marks');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'marks', has_streaming => 1);
$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\n");
$standby->start;
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
my $reader = session($standby);
ask($reader, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM z');
$old = old_snapshot();
both('UPDATE T SET a = 100 WHERE a = 0');
run('CHECKPOINT');
mark(400, 'marks in page images');
run('CREATE TABLE flush2 (); DROP TABLE flush2');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
# MARK-4: replay takes the marks off that the update takes off
my $marked = q{SELECT count(*) FROM generate_series(1, pg_relation_size('z_a') / 8192 - 1) p, zundo.index_items('z_a', p) i, z
	WHERE i.kind = 'entry' AND i.dead AND i.target = z.ctid AND i.key[1] = '0' AND z.id % 8 = 0};
cmp_ok($standby->safe_psql('postgres', $marked), '>', 0, 'the standby has marks of rows that get their keys back');
both('UPDATE T SET a = 0 WHERE a = 100 AND id % 8 = 0');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is($standby->safe_psql('postgres', $marked), '0', '... and no longer');
cmp_ok($standby->safe_psql('postgres', q{SELECT dead FROM zundo.index_entries('z_a')}), '>', 0, 'the standby has marks');
is($standby->safe_psql('postgres', q{SELECT * FROM zundo.check_index('z_a')}), '', 'standby: zundo.check_index');
same('standby: an old snapshot', $reader);
my $new = session($standby);
same('standby: a new one', $new);
$standby->promote;
$standby->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
same('promoted: the old snapshot', $reader);
same('promoted: a session of before', $new);
$_->quit for $reader, $new, $old;
$node->stop;
$node = $standby;
same('promoted');
both('UPDATE T SET a = 0 WHERE a = 100 AND id % 3 = 0');
same('promoted, keys are back');
mark(100, 'promoted: new marks');
same('promoted, with marks in use');
is(run('SELECT count(b) FROM z WHERE a = 0 AND id % 8 = 0'), '200', 'rows whose keys came back before the promotion');
both('UPDATE T SET a = 0 WHERE a = 100');
same('promoted, all keys are back');
sound_index('promoted');
run('VACUUM z');
same('promoted, vacuumed');
no_crash($node);
done_testing();
