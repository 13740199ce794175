# From 19 on, the first logical slot switches decoding on at wal_level =
# replica, and dropping the last one switches it off. What a zheap record
# carries is decided after the transaction has its id, as the server decides:
# statements that began before the switch, transactions and subtransactions with
# and without an id, prepared ones, crash, promotion. Streams and rows are the
# same as of heap.
# newest
# Rules: DECODE-2.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

plan skip_all => 'up to 18 decoding cannot be switched on' if server_major() < 19;

my $node = zundo_node('demand', "wal_level = replica\nmax_prepared_transactions = 4\nmax_connections = 60\nmax_replication_slots = 8\nlock_timeout = 60s\n", allows_streaming => 1);
my @ams = qw(heap zheap);
sql('CREATE EXTENSION zundo; CREATE EXTENSION pg_walinspect');
sql(qq{CREATE TABLE t_$_ (id int PRIMARY KEY, n int, v text) USING $_; ALTER TABLE t_$_ ALTER v SET STORAGE EXTERNAL;
	INSERT INTO t_$_ SELECT g, g, repeat('v', g % 2 * 3000) FROM generate_series(1, 200) g}) for @ams;
sql(qq{CREATE TABLE f_$_ (id int, n int, v text) USING $_; ALTER TABLE f_$_ REPLICA IDENTITY FULL; INSERT INTO f_$_ SELECT g, g, repeat('v', 200) FROM generate_series(1, 50) g}) for @ams;

# level IS NAME [ON]: checks that the server is at this level, now or soon: the
# checkpointer switches off.
sub level
{
	my ($is, $name, $on) = @_;
	$on //= $node;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($on->poll_query_until('postgres', "SELECT current_setting('effective_wal_level') = '$is'"), "$name: effective_wal_level = $is");
	return;
}

# bytes SQL: runs it and returns the bytes that zheap's records of it have without page images.
sub bytes
{
	my ($sql) = @_;
	my $from = sql('CHECKPOINT; SELECT pg_current_wal_insert_lsn()');
	sql($sql);
	return sql("SELECT sum(record_length - fpi_length) FROM pg_get_wal_records_info('$from', pg_current_wal_flush_lsn()) WHERE resource_manager = 'zundo' AND record_type ~ 'INSERT|UPDATE|DELETE|MOVE|CHANGE'");
}

# streams NAME CHANGES [ON]: checks that the slot shows the same of both tables, in order,
# and CHANGES lines at least.
sub streams
{
	my ($name, $changes, $on) = @_;
	$on //= $node;
	my %of = (heap => '', zheap => '');
	for my $line (split /\n/, $on->safe_psql('postgres', q{SELECT data FROM pg_logical_slot_get_changes('slot', NULL, NULL, 'include-xids', '0', 'skip-empty-xacts', '1')}))
	{
		$line =~ s/((.)\2{40,})/"$2 " . length($1) . ' times'/ge;
		$of{$2} .= "$1 $3\n" if $line =~ /^table public\.(\w)_(z?heap): (.*)/;
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($of{zheap}, $of{heap}, "$name: the streams are equal");
	cmp_ok(scalar(() = $of{zheap} =~ /\n/g), '>=', $changes, "$name: $changes changes or more");
	rows($name, $on);
	return $of{zheap};
}

# rows NAME [ON]: checks that both tables have the same rows.
sub rows
{
	my ($name, $on) = @_;
	$on //= $node;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $table (qw(t f))
	{
		my ($heap, $zheap) = map { $on->safe_psql('postgres', "SELECT id, n, length(v), left(v, 5) FROM ${table}_$_ ORDER BY id, n") } @ams;
		is($zheap, $heap, "$name: the rows of $table");
		is($on->safe_psql('postgres', "SELECT * FROM zundo.check('${table}_zheap')"), '', "$name: zundo.check");
	}
	return;
}

my $measured = q{UPDATE t_zheap SET n = n + 1 WHERE id = 150; UPDATE t_zheap SET id = id + 1000 WHERE id = 151; UPDATE t_zheap SET id = id - 1000 WHERE id = 1151; UPDATE f_zheap SET n = n + 1 WHERE id = 40};
(my $heaps = $measured) =~ s/zheap/heap/g;
sql($heaps);
my $plain = bytes($measured);
cmp_ok($plain, '>', 100, "bytes of some updates without a slot: $plain");

# Statements of a transaction after the switch, by table.
my @statements = (
	q{UPDATE t_AM SET n = n + 1000 WHERE id = 1 + BASE}, q{UPDATE t_AM SET id = id + 500 WHERE id = 2 + BASE}, q{DELETE FROM t_AM WHERE id = 3 + BASE}, q{DELETE FROM t_AM WHERE id = 4 + BASE},
	q{INSERT INTO t_AM VALUES (300 + BASE, 0, repeat('i', 5000)), (301 + BASE, 0, 'i')}, q{INSERT INTO t_AM VALUES (5 + BASE, 0) ON CONFLICT (id) DO UPDATE SET n = 7}, q{INSERT INTO t_AM VALUES (303 + BASE, 0) ON CONFLICT DO NOTHING},
	q{SAVEPOINT s; UPDATE t_AM SET v = 'sub' WHERE id = 6 + BASE; UPDATE t_AM SET v = NULL WHERE id = 7 + BASE; RELEASE s}, q{UPDATE f_AM SET n = -n WHERE id = 1 + BASE / 10; DELETE FROM f_AM WHERE id = 2 + BASE / 10},
	q{SAVEPOINT r; DELETE FROM t_AM WHERE id = 8 + BASE; INSERT INTO f_AM VALUES (-1, -1, 'r'); ROLLBACK TO r});
sub statements
{
	my ($am, $base) = @_;
	return map { s/_AM\b/_$am/gr =~ s/BASE/$base/gr } @statements;
}

# The slot is made while transactions are open that have an id (with, sub: only in a
# subtransaction; prepared), that have none (without), and while statements wait that have
# begun without an id.
my @waiting = (q{INSERT INTO t_AM SELECT 4010, 0, 'waited' FROM (SELECT pg_advisory_lock_shared(1)) x}, q{UPDATE t_AM SET n = -1 FROM (SELECT pg_advisory_lock_shared(1) OFFSET 0) x WHERE id = 161},
	q{UPDATE t_AM SET id = 4020 FROM (SELECT pg_advisory_lock_shared(1) OFFSET 0) x WHERE id = 162}, q{DELETE FROM t_AM USING (SELECT pg_advisory_lock_shared(1) OFFSET 0) x WHERE id = 163},
	q{INSERT INTO t_AM SELECT 164, 0, 'waited' FROM (SELECT pg_advisory_lock_shared(1)) x ON CONFLICT (id) DO UPDATE SET n = -2}, q{UPDATE f_AM SET v = 'waited' FROM (SELECT pg_advisory_lock_shared(1) OFFSET 0) x WHERE id = 45},
	q{MERGE INTO t_AM USING (SELECT 165 AS i FROM (SELECT pg_advisory_lock_shared(1) OFFSET 0) y) x ON id = i WHEN MATCHED THEN UPDATE SET n = -3});
my $gate = session($node);
for my $round (0, 1)
{
	my $base = $round * 60;
	my $name = $round ? 'a second slot after the first was dropped' : 'the first slot';
	my %at;
	for my $am (@ams)
	{
		$at{$_}{$am} = session($node) for qw(with sub without repeatable);
		ask($at{with}{$am}, 'BEGIN', "UPDATE t_$am SET n = 0 WHERE id = 20 + $base", "DELETE FROM f_$am WHERE id = 30 + $base / 10");
		ask($at{sub}{$am}, 'BEGIN', 'SAVEPOINT s', "UPDATE t_$am SET n = 0 WHERE id = 21 + $base", 'ROLLBACK TO s');
		ask($at{without}{$am}, 'BEGIN', "SELECT count(*) FROM t_$am");
		ask($at{repeatable}{$am}, 'BEGIN ISOLATION LEVEL REPEATABLE READ', "SELECT count(*) FROM t_$am", 'SAVEPOINT s');
		sql("BEGIN; UPDATE t_$am SET n = 0 WHERE id = 22 + $base; PREPARE TRANSACTION '$am'");
	}
	ask($gate, 'SELECT pg_advisory_lock(1)');
	my @late;
	if (!$round)
	{
		for my $sql (@waiting)
		{
			for my $am (@ams)
			{
				my $session = session($node);
				$session->query_until(qr/starts/, "\\echo starts\n" . $sql =~ s/_AM\b/_$am/gr . ";\n");
				push @late, $session;
				$node->poll_query_until('postgres', qq{SELECT count(*) = @{[scalar @late]} FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) or die 'it does not wait';
			}
		}
	}
	is(sql('SELECT current_setting(\'effective_wal_level\')'), 'replica', "$name: before");
	my $maker = session($node, timeout => 5 * $PostgreSQL::Test::Utils::timeout_default);
	$maker->query_until(qr/starts/, "\\echo starts\nSELECT pg_create_logical_replication_slot('slot', 'test_decoding', false, true);\n");
	level('logical', $name);

	# transactions that have an id continue as they began, and the slot is not ready before they end
	for my $am (@ams)
	{
		ask($at{with}{$am}, statements($am, 23 + $base), 'COMMIT');
		is($complaint, '', "$name: with an id ($am)");
		ask($at{sub}{$am}, "UPDATE t_$am SET n = 1 WHERE id = 32 + $base", "UPDATE f_$am SET n = n + 1 WHERE id = 31 + $base / 10", 'COMMIT');
		is($complaint, '', "$name: with a subtransaction's id ($am)");
		sql("COMMIT PREPARED '$am'");
	}
	$maker->query_safe('SELECT 1');
	$maker->quit;
	# those without get theirs now
	for my $am (@ams)
	{
		ask($at{without}{$am}, statements($am, $base), 'COMMIT');
		is($complaint, '', "$name: without an id ($am)");
		ask($at{repeatable}{$am}, "UPDATE t_$am SET n = 2 WHERE id = 33 + $base", 'ROLLBACK TO s', "UPDATE t_$am SET id = id + 600 WHERE id = 34 + $base", "DELETE FROM f_$am WHERE id = 33 + $base / 10", "PREPARE TRANSACTION 'later_$am'", "COMMIT PREPARED 'later_$am'");
		is($complaint, '', "$name: REPEATABLE READ ($am)");
	}
	my $shown = streams($name, 14);
	unlike($shown, qr/n\[integer\]:0 v\[text\]:'v/, "$name: what has begun before is not shown");
	ask($gate, 'SELECT pg_advisory_unlock(1)');
	if (!$round)
	{
		for my $n (0 .. $#late)
		{
			$late[$n]->query_safe('SELECT 1');
			is($late[$n]->{stderr} =~ s/.*QUERY_SEPARATOR.*//gr =~ s/\s//gr, '', "$name: a statement that has begun before: $waiting[$n / 2]");
			$late[$n]->quit;
		}
		# the order of commits is that of waking: compare what each shows
		my %of;
		for my $line (split /\n/, sql(q{SELECT data FROM pg_logical_slot_get_changes('slot', NULL, NULL, 'include-xids', '0')}))
		{
			push @{$of{$2}}, "$1 $3" =~ s/((.)\2{40,})/"$2 " . length($1)/ger if $line =~ /^table public\.(\w)_(z?heap): (.*)/;
		}
		my ($h, $z) = map { join "\n", sort @{$of{$_}} } @ams;
		is($z, $h, "$name: the streams of statements that have begun before");
		is(scalar @{$of{zheap}}, scalar @waiting, '... each with its change');
		rows("$name, the statements");
	}
	$_->quit for map { values %$_ } values %at;

	# Later transactions, and records without a page image.
	cmp_ok(bytes($measured), '>', $plain + 200, "$name: records have what decoding needs");
	sql($heaps);
	streams("$name, later", 4);
	crash($node);
	level('logical', "$name, after a crash");
	$gate = session($node);
	sql("BEGIN; @{[join ';', statements($_, 100 + $round * 10)]}; COMMIT") for @ams;
	streams("$name, after a crash", 10);

	# The last slot is dropped beside transactions with and without an id.
	my %open;
	for my $am (@ams)
	{
		$open{$_}{$am} = session($node) for qw(with without);
		ask($open{with}{$am}, 'BEGIN', "UPDATE t_$am SET n = 0 WHERE id = 35 + $base");
		ask($open{without}{$am}, 'BEGIN', "SELECT count(*) FROM t_$am");
	}
	sql(q{SELECT pg_drop_replication_slot('slot')});
	level('replica', "$name, dropped");
	for my $am (@ams)
	{
		ask($open{with}{$am}, "DELETE FROM t_$am WHERE id = 36 + $base", "UPDATE f_$am SET n = n * 2", "UPDATE t_$am SET id = id + 700 WHERE id = 37 + $base", 'COMMIT');
		is($complaint, '', "$name, dropped: with an id ($am)");
		ask($open{without}{$am}, "DELETE FROM t_$am WHERE id = 38 + $base", "UPDATE f_$am SET n = n + 2", "UPDATE t_$am SET id = id + 700 WHERE id = 39 + $base", 'COMMIT');
		is($complaint, '', "$name, dropped: without an id ($am)");
		$open{$_}{$am}->quit for qw(with without);
	}
	rows("$name, dropped");
	cmp_ok(abs(bytes($measured) - $plain), '<', 20, "$name, dropped: records are as long as before it");
	sql($heaps);
}
$gate->quit;

# A standby: its level is that of the primary, and after promotion its own, by its slots.
my $standby = standby_of($node, "hot_standby_feedback = on\n");
level('replica', 'standby', $standby);
sql(q{SELECT pg_create_logical_replication_slot('first', 'test_decoding')});
sql("UPDATE t_$_ SET n = n + 1 WHERE id < 50; DELETE FROM f_$_ WHERE id = 49") for @ams;
$node->wait_for_catchup($standby, 'replay');
level('logical', 'standby', $standby);
$standby->create_logical_slot_on_standby($node, 'slot', 'postgres');
sql("BEGIN; @{[join ';', statements($_, 140)]}; COMMIT") for @ams;
$node->wait_for_catchup($standby, 'replay');
streams('a slot on the standby', 10, $standby);
$standby->promote;
level('logical', 'promoted', $standby);
$standby->safe_psql('postgres', "UPDATE t_$_ SET n = n + 1, id = id + 2000 WHERE id = 10; DELETE FROM t_$_ WHERE id = 11; UPDATE f_$_ SET v = 'p' WHERE id = 5; DELETE FROM f_$_ WHERE id = 9") for @ams;
streams('promoted', 4, $standby);
$standby->safe_psql('postgres', q{SELECT pg_drop_replication_slot('slot'); SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots});
level('replica', 'promoted, no slot', $standby);
$standby->safe_psql('postgres', "UPDATE t_$_ SET n = n + 1; DELETE FROM t_$_ WHERE id = 12") for @ams;
rows('promoted, no slot', $standby);
no_crash($_) for $node, $standby;
$_->stop for $standby, $node;
done_testing();
