# Values out of line: each row says what its value must be. Value ids that collide with
# those of live, deleted and undone values; an error and a kill -9 at each place that
# storing, deleting and saving chunks reaches; zundo.undo_limit; snapshots of a standby and
# its promotion; rewrites and moves of the table beside an old snapshot; speculative
# insertions that are given up; the TOAST table's size beside an open transaction.
# Rules: TOAST-1, TOAST-2, TOAST-3, TOAST-4.
# long
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('chunks', <<'C', allows_streaming => 1);
wal_consistency_checking = 'zundo'
restart_after_crash = off
max_prepared_transactions = 10
checkpoint_timeout = 1h
allow_in_place_tablespaces = on
zundo.undo_compression = 'none'
C
sql(<<'S');
CREATE EXTENSION zundo;
CREATE TABLESPACE side LOCATION '';
CREATE TABLE other (id int) USING zheap;
-- n characters that do not compress
CREATE FUNCTION doc(seed int, n int) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT left(string_agg(md5(seed || '.' || g), ''), n) FROM generate_series(1, n / 32 + 1) g $$;
CREATE FUNCTION make(tab text, rows int) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
	EXECUTE format('CREATE TABLE %1$s (id int PRIMARY KEY, seed int, n int, v text) USING zheap WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off);
		ALTER TABLE %1$s ALTER v SET STORAGE EXTERNAL;
		INSERT INTO %1$s SELECT g, g, 5000 + g * 700, doc(g, 5000 + g * 700) FROM generate_series(1, %2$s) g', tab, rows);
END $$;
CREATE FUNCTION toast(tab regclass) RETURNS regclass LANGUAGE sql AS $$ SELECT reltoastrelid::regclass FROM pg_class WHERE oid = tab $$;
-- faults of the rows, and values that no row has
CREATE FUNCTION faults(tab regclass) RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN
	RETURN QUERY EXECUTE format('SELECT format(''row %%s: %%s of %%s'', id, length(v), n) FROM %s WHERE v IS DISTINCT FROM doc(seed, n)', tab);
	RETURN QUERY EXECUTE format('SELECT format(''%%s values of %%s, %%s bytes of %%s'', c.n, t.n, c.bytes, t.bytes) FROM
		(SELECT count(DISTINCT chunk_id) AS n, coalesce(sum(length(chunk_data)), 0) AS bytes FROM %s) c,
		(SELECT count(*) AS n, coalesce(sum(n), 0) AS bytes FROM %s WHERE n > 2100) t WHERE c <> t', toast(tab), tab);
	RETURN QUERY SELECT c::text FROM unnest(ARRAY[tab, toast(tab)]) t, zundo.check(t) c;
END $$;
S
my $all = 'SELECT count(*), md5(string_agg(md5(t::text), $$,$$ ORDER BY id)) FROM %s t';
sub rows { my ($t) = @_; return sprintf($all, $t) }

# faultless WHAT TABLE...: tests that the rows have their values, and no other value is stored.
sub faultless
{
	my ($what, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql("SELECT faults('$_')"), '', "$what: the values of $_") for @tables;
	return;
}
sub ids { my ($t) = @_; return split /\n/, sql("SELECT DISTINCT chunk_id FROM ${\sql(\"SELECT toast('$t')\")} ORDER BY 1") }
sub old_snapshot
{
	my ($where) = @_;
	my $session = session($where // $node);
	ask($session, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM other');
	return $session;
}
sub ended { my (@sessions) = @_; for (@sessions) { eval { ask($_, 'ROLLBACK'); $_->quit } } return }

# 1. The counter of value ids is set back: a live value, one that is deleted while an old
# snapshot needs it, and one that was undone are there already.
sql(q{SELECT make('ids', 2)});
my ($first) = ids('ids');
sql(q{BEGIN; INSERT INTO ids VALUES (3, 3, 9000, doc(3, 9000)); ROLLBACK});
$node->stop;
command_ok([ 'pg_resetwal', '-o', $first, $node->data_dir ], 'the next value id is one that is taken');
$node->start;
my $old = old_snapshot();
sql('DELETE FROM ids WHERE id = 2');
sql('INSERT INTO ids SELECT g, g, 9000, doc(g, 9000) FROM generate_series(11, 13) g');
is((ids('ids'))[1], $first + 3, 'ids that have entries are not taken again, dead or alive');
is(ask($old, 'SELECT id, seed, n, v = doc(seed, n) FROM ids ORDER BY id'), "1|1|5700|t\n2|2|6400|t", 'the old snapshot reads both values');
faultless('ids collide', 'ids');
ended($old);
all_discarded($node);
sql('VACUUM ids');
faultless('ids collide, after VACUUM', 'ids');

# 2. Errors, and crashes at the same places. A statement is repeated with a fault at the
# first, second, ... visit of a point until it succeeds, which is rolled back, too.
my %changes = (
	insert => 'INSERT INTO t VALUES (100, 100, 9000, doc(100, 9000))',
	update => 'UPDATE t SET seed = seed + 1000, n = 9500, v = doc(seed + 1000, 9500) WHERE id = 3',
	delete => 'DELETE FROM t WHERE id = 3',
	upsert => 'INSERT INTO t VALUES (3, 0, 8000, doc(0, 8000)) ON CONFLICT (id) DO UPDATE SET seed = 50, n = excluded.n, v = doc(50, excluded.n)',
	copy => q{COPY t FROM PROGRAM 'perl -e "print qq(200\t0\t5000\t), q(x) x 5000, qq(\n201\t0\t5000\t), q(y) x 5000, qq(\n)"'});
my @points = qw(insert-page undo-prepare row-locked rows-saved);
sql(q{SELECT make('t', 8)});
my %reached;
for my $how (sort keys %changes)
{
	my $session = session($node);
	for my $point (@points)
	{
		for my $nth (1 .. 40)
		{
			ask($session, 'BEGIN', q{UPDATE t SET seed = 77, n = 7777, v = doc(77, 7777) WHERE id = 5}, 'SAVEPOINT s', "SET LOCAL zundo.fault = '$point:" . ($nth % 2 ? 'error' : 'disk') . ":$nth'", $changes{$how});
			my $failed = $complaint =~ /fault point "$point"|No space left/;
			$complaint eq '' || $failed || fail("$how, $point: $complaint");
			ask($session, 'ROLLBACK TO s');
			is(ask($session, q{SELECT faults('t')}), '', "$how, $point: the values after an error") if $nth == 2;
			ask($session, 'ROLLBACK');
			last unless $failed;
			$reached{"$how $point"}++;
		}
	}
	$session->quit;
}
faultless('errors', 't');
note(join ', ', map { "$_: $reached{$_}" } sort keys %reached);
sub crash_at
{
	my ($how, $point, $nth, $sql) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($rc) = $node->psql('postgres', "SET zundo.fault = '$point:crash:$nth'; $sql");
	isnt($rc, 0, "$how: killed at $point, visit $nth");
	wait_for_death($node) or die 'the server lives on';
	$node->start;
	return;
}
for (['update', 'insert-logged', 1], ['update', 'delete-logged', 2], ['upsert', 'insert-logged', 2], ['upsert', 'update-logged', 1], ['delete', 'delete-logged', 3], ['insert', 'insert-logged', 3], ['copy', 'insert-page', 3])
{
	my ($how, $point, $nth) = @$_;
	crash_at($how, $point, $nth, $changes{$how});
	faultless("$how, killed at $point", 't');
}
# Chunks that an old snapshot needs are saved because others take their space.
for my $fault ('rows-saved:error', 'rows-saved:crash', 'prune-logged:crash')
{
	my ($point, $action) = split /:/, $fault;
	sql(q{DROP TABLE IF EXISTS s; SELECT make('s', 12)});
	$old = old_snapshot();
	my $seen = ask($old, rows('s'));
	sql('DELETE FROM s WHERE id > 4');
	my $refill = 'INSERT INTO s SELECT g, g, 5000, doc(g, 5000) FROM generate_series(101, 112) g';
	if ($action eq 'error')
	{
		like(($node->psql('postgres', "SET zundo.fault = '$point:error:2'; $refill"))[2], qr/fault point "$point"/, "$point: an error");
		is(ask($old, rows('s')), $seen, "$point: the old snapshot after it");
		sql("$refill; VACUUM s");
		is(ask($old, rows('s')), $seen, "$point: and after the refill");
	}
	else { crash_at('refill', $point, 2, $refill) }
	ended($old);
	faultless($fault, 's');
}

# 3. zundo.undo_limit is reached amid values.
sql(q{SELECT make('l', 10); ALTER SYSTEM SET zundo.undo_limit = '2MB'; ALTER SYSTEM SET zundo.undo_full = 'error'; SELECT pg_reload_conf()});
ok($node->poll_query_until('postgres', q{SELECT current_setting('zundo.undo_limit') = '2MB'}), 'the limit is set');
$old = old_snapshot();
my $seen = ask($old, rows('l'));
my ($done, $message) = (0, '');
while ($message eq '' && $done < 200)
{
	$message = ($node->psql('postgres', 'UPDATE l SET seed = seed + 100, v = doc(seed + 100, n)'))[2];
	$done++ if $message eq '';
}
like($message, qr/has reached "zundo\.undo_limit"/, "the limit is reached after $done updates");
is(ask($old, rows('l')), $seen, 'at the limit: the old snapshot');
faultless('at the limit', 'l');
ended($old);
sql(q{ALTER SYSTEM RESET zundo.undo_limit; ALTER SYSTEM RESET zundo.undo_full; SELECT pg_reload_conf()});
ok(all_discarded($node), 'undo is discarded when the snapshot has ended');
sql('UPDATE l SET seed = seed + 100, v = doc(seed + 100, n)');
faultless('after the limit', 'l');

# 4. A standby reads values while their chunks are deleted, overwritten and discarded.
my $standby = standby_of($node, "max_standby_streaming_delay = 0\nwal_receiver_status_interval = 1\nhot_standby_feedback = off\nwal_retrieve_retry_interval = 100ms\n");
sub caught_up { $node->wait_for_catchup($standby, 'replay', $node->lsn('insert')); return }
sub right
{
	my ($session, $t, $expected, $what) = @_;
	return if $session->{over};
	my $found = eval { ask($session, rows($t)) };
	$session->{over} = $@ ne '' || $complaint =~ /conflict with recovery/;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($session->{over} || ($complaint eq '' && $found eq $expected), "$what: " . ($session->{over} ? 'a conflict' : 'the values of its snapshot')) or diag("$found, not $expected; $complaint");
	return;
}
sql(q{SELECT make('far', 12)});
caught_up();
my @readers = map { old_snapshot($standby) } 1 .. 2;
my @seen = (sql(rows('far'))) x 2;
$old = old_snapshot();
sql('DELETE FROM far WHERE id % 3 = 0');
caught_up();
right($readers[0], 'far', $seen[0], 'standby, deleted');
sql('INSERT INTO far SELECT g, g, 5000, doc(g, 5000) FROM generate_series(101, 110) g');
caught_up();
right($readers[0], 'far', $seen[0], 'standby, refilled');
push @readers, old_snapshot($standby);
push @seen, sql(rows('far'));
sql('UPDATE far SET seed = seed + 500, v = doc(seed + 500, n)', ';', 'VACUUM far');
caught_up();
right($readers[$_], 'far', $seen[$_], "standby, replaced, reader $_") for 0, 2;
my $open = session($node);
ask($open, 'BEGIN', 'UPDATE far SET seed = 1, v = doc(1, n)', 'DELETE FROM far WHERE id > 5', 'INSERT INTO far VALUES (1000, 1, 90000, doc(1, 90000))');
ended($old);
sql('SELECT zundo.discard()', ';', 'VACUUM far', ';', 'INSERT INTO far SELECT g, g, 5000, doc(g, 5000) FROM generate_series(201, 210) g');
caught_up();
right($readers[$_], 'far', $seen[$_], "standby, discarded, reader $_") for 0 .. 2;
is($standby->safe_psql('postgres', q{SELECT count(*) FROM far WHERE v IS DISTINCT FROM doc(seed, n)}), '0', 'standby: the values of a new snapshot');
my $current = sql(rows('far'));
$node->stop('immediate');
$standby->promote;
ended($open, @readers);
is($standby->safe_psql('postgres', rows('far')), $current, 'promoted: the committed rows');
is($standby->safe_psql('postgres', "SELECT faults('$_')"), '', "promoted: the values of $_") for qw(far t l);
$standby->safe_psql('postgres', 'UPDATE far SET seed = seed + 1, v = doc(seed + 1, n); SELECT zundo.discard(); VACUUM far');
is($standby->safe_psql('postgres', q{SELECT faults('far')}), '', 'promoted: written, too');
no_crash($standby);
$standby->stop;
$node->start;

# 5. Rewrites beside an old snapshot, which reads afterwards, and beside changes that are
# not committed.
my @moves = (
	['SET TABLESPACE', 'ALTER TABLE m SET TABLESPACE side'],
	['VACUUM FULL', 'VACUUM FULL m'],
	['CLUSTER', 'CLUSTER m USING m_pkey'],
	['VACUUM FULL of the TOAST table', 'VACUUM FULL TOAST'],
	['REINDEX of the TOAST table', 'REINDEX TABLE TOAST']);
for (@moves)
{
	my ($what, $sql) = @$_;
	sql(q{DROP TABLE IF EXISTS m; SELECT make('m', 12)});
	$old = old_snapshot();
	$seen = sql(rows('m'));
	sql("DELETE FROM m WHERE id % 3 = 0; UPDATE m SET seed = seed + 1, v = doc(seed + 1, n) WHERE id % 3 = 1");
	sql("INSERT INTO m SELECT g, g, 5000, doc(g, 5000) FROM generate_series(101, 110) g");
	my $between = old_snapshot();
	my $later = sql(rows('m'));
	sql("BEGIN; UPDATE m SET seed = 0, v = doc(0, n); ROLLBACK; UPDATE m SET seed = seed + 1, v = doc(seed + 1, n) WHERE id > 2");
	my $toast = sql(q{SELECT toast('m')});
	sql($sql =~ s/TOAST$/$toast/r);
	is(ask($old, rows('m')), $seen, "$what: the old snapshot");
	is(ask($between, rows('m')), $later, "$what: the one between");
	sql("DELETE FROM m WHERE id < 5; INSERT INTO m SELECT g, g, 5000, doc(g, 5000) FROM generate_series(201, 210) g; VACUUM m");
	is(ask($old, rows('m')), $seen, "$what and refill: the old snapshot");
	is(ask($between, rows('m')), $later, "$what and refill: the one between");
	ended($old, $between);
	sql("SELECT zundo.discard(); VACUUM m");
	is(sql("SELECT * FROM faults('m') f" . ($what =~ /^(?:VACUUM FULL|CLUSTER)$/ ? ' WHERE f !~ $$ values of $$' : '')), '', "$what: the values");
}
sql(q{DROP TABLE m; SELECT make('m', 12)});
for my $am (qw(heap zheap))
{
	sql("BEGIN; UPDATE m SET seed = 0, v = doc(0, n); SAVEPOINT s; ALTER TABLE m SET ACCESS METHOD $am; UPDATE m SET seed = 5, v = doc(5, n); ROLLBACK TO s; ROLLBACK");
	faultless("SET ACCESS METHOD $am rolled back", 'm') if $am eq 'heap';
	sql("ALTER TABLE m SET ACCESS METHOD $am; UPDATE m SET seed = seed + 1, v = doc(seed + 1, n)");
	is(sql("SELECT count(*) FILTER (WHERE v = doc(seed, n)), string_agg(DISTINCT amname, ' ') FROM m, pg_class c JOIN pg_am a ON a.oid = relam WHERE c.oid IN ('m'::regclass, toast('m'))"),
		"24|$am", "SET ACCESS METHOD $am: values, and the access method of both tables");
}
faultless('SET ACCESS METHOD both ways', 'm');
sql(<<'S');
COPY m TO PROGRAM 'cat > copied';
BEGIN; UPDATE m SET seed = 0, v = doc(0, n); TRUNCATE m; INSERT INTO m VALUES (1, 1, 9000, doc(1, 9000)); SAVEPOINT s; TRUNCATE m; COPY m FROM PROGRAM 'cat copied' WITH (FREEZE); ROLLBACK TO s; UPDATE m SET seed = 2, v = doc(2, n); ROLLBACK;
S
faultless('TRUNCATE rolled back', 'm');
sql(q{BEGIN; TRUNCATE m; COPY m FROM PROGRAM 'cat copied' WITH (FREEZE); COMMIT; SELECT zundo.discard()});
faultless('COPY FREEZE', 'm');
sql(q{UPDATE m SET seed = 3, v = doc(3, n) WHERE id > 6; DELETE FROM m WHERE id < 4; VACUUM m});
faultless('COPY FREEZE, changed', 'm');

# 6. Two sessions insert the same key; one of them gives up its insertion, of which the
# values are stored already.
for my $how ('DO NOTHING', 'DO UPDATE SET seed = excluded.seed, n = excluded.n, v = excluded.v')
{
	for my $end (qw(COMMIT ROLLBACK))
	{
		my ($holder, $giver) = map { session($node) } 1 .. 2;
		my $pid = ask($giver, 'SELECT pg_backend_pid()');
		ask($holder, 'BEGIN', 'INSERT INTO m VALUES (500, 500, 9000, doc(500, 9000))');
		$giver->query_until(qr/inserts/, "\\echo inserts\nINSERT INTO m VALUES (500, 7, 12000, doc(7, 12000)), (501, 8, 8000, doc(8, 8000)) ON CONFLICT (id) $how;\n");
		ok($node->poll_query_until('postgres', "SELECT wait_event = 'transactionid' FROM pg_stat_activity WHERE pid = $pid"), "$how: it waits");
		ask($holder, $end);
		is(ask($giver, 'SELECT seed FROM m WHERE id >= 500 ORDER BY id'), ($end eq 'COMMIT' && $how eq 'DO NOTHING' ? 500 : 7) . "\n8", "$how, the other one has ended by $end");
		$_->quit for $holder, $giver;
		faultless("$how, $end", 'm');
		sql('DELETE FROM m WHERE id >= 500');
	}
}
# Both have stored their values when one finds the other's entry.
my ($one, $two) = map { session($node) } 1 .. 2;
my $pid = ask($one, 'SELECT pg_backend_pid()');
$one->query_until(qr/inserts/, "SET zundo.fault = 'insert-logged:sleep';\n\\echo inserts\nINSERT INTO m VALUES (600, 1, 9000, doc(1, 9000)) ON CONFLICT (id) DO UPDATE SET seed = 2, n = 9000, v = doc(2, 9000);\n");
asleep($node, $pid);
ask($two, 'INSERT INTO m VALUES (600, 3, 9000, doc(3, 9000)) ON CONFLICT (id) DO NOTHING');
ask($one, 'SELECT 1');
faultless('two speculative insertions', 'm');
$_->quit for $one, $two;

# 7. Documents are replaced one by one beside an open transaction: the TOAST table does not
# grow.
sql(<<'S');
CREATE TABLE grow (id int PRIMARY KEY, n int, v text) USING zheap;
ALTER TABLE grow ALTER v SET STORAGE EXTERNAL;
INSERT INTO grow SELECT g, 10000, doc(g, 10000) FROM generate_series(1, 200) g;
CREATE PROCEDURE replace_all(rounds int) LANGUAGE plpgsql AS $$ BEGIN
	FOR i IN 0 .. rounds * 200 - 1 LOOP UPDATE grow SET v = reverse(v) WHERE id = 1 + i % 200; COMMIT; END LOOP;
END $$;
S
my $before = sql(q{SELECT pg_relation_size(toast('grow'))});
$old = old_snapshot();
ask($old, rows('grow'));
sql('CALL replace_all(5)');
my $times = sql(q{SELECT pg_relation_size(toast('grow'))}) / $before;
cmp_ok($times, '<=', 1.02, 'all documents replaced five times beside an old snapshot: size of the TOAST table');
is(ask($old, q{SELECT count(*) FROM grow WHERE v = doc(id, n)}), '200', 'the old snapshot reads the first ones');
ended($old);
ok(all_discarded($node), 'undo is gone afterwards');
no_crash($node);
$node->stop;
done_testing();
