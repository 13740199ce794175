# Publications of zheap tables: zheap to heap, zheap to zheap and heap to zheap,
# with initial copy, every replica identity, values out of line, row filters,
# column lists, partitions, streaming and two_phase, DDL, and statements that
# begin before the publication; the walsender and the publisher are killed.
# Rules: DECODE-1, DECODE-2, DECODE-3.
# long
use strict;
use warnings;
use ZundoTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $conf = "max_replication_slots = 20\nmax_wal_senders = 20\nmax_prepared_transactions = 8\nlogical_decoding_work_mem = 64kB\nwal_retrieve_retry_interval = 100ms\n";
my $publisher = zundo_node('publisher', $conf, allows_streaming => 'logical');
my $to_heap = zundo_node('to_heap', "${conf}default_table_access_method = heap", allows_streaming => 'logical');
my $to_zheap = zundo_node('to_zheap', "${conf}default_table_access_method = zheap", allows_streaming => 'logical');
my @subscribers = ($to_heap, $to_zheap);
my @all = ($publisher, @subscribers);
$_->safe_psql('postgres', 'CREATE EXTENSION zundo') for @all;

# All tables of the publisher are zheap tables, except one.
my $tables = q{
	CREATE TABLE keyed (id int PRIMARY KEY, v text, w int);
	CREATE TABLE wholly (id int, v text, w int); ALTER TABLE wholly REPLICA IDENTITY FULL;
	CREATE TABLE by_index (id int NOT NULL, v text, UNIQUE (id)); ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_id_key;
	CREATE TABLE wide (id int PRIMARY KEY, a text, b text, n int); ALTER TABLE wide ALTER a SET STORAGE EXTERNAL;
	CREATE TABLE longkey (k text PRIMARY KEY, n int); ALTER TABLE longkey ALTER k SET STORAGE EXTERNAL;
	CREATE TABLE part (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
	CREATE TABLE part1 PARTITION OF part FOR VALUES FROM (0) TO (100); CREATE TABLE part2 PARTITION OF part FOR VALUES FROM (100) TO (200);
	CREATE TABLE filtered (id int PRIMARY KEY, v text, secret text);
	CREATE TABLE logged (id int);
	CREATE TABLE heaped (id int PRIMARY KEY, v text) USING heap};
$publisher->safe_psql('postgres', "SET default_table_access_method = zheap; $tables");
(my $plain = $tables) =~ s/ USING heap$//;
$plain =~ s/, secret text//;
$_->safe_psql('postgres', $plain) for @subscribers;
$publisher->safe_psql('postgres', q{
	INSERT INTO keyed SELECT g, 'copied', g FROM generate_series(1, 100) g; UPDATE keyed SET v = 'copied later' WHERE id % 3 = 0;
	INSERT INTO wholly SELECT g, 'copied', g FROM generate_series(1, 50) g;
	INSERT INTO by_index SELECT g, 'copied' FROM generate_series(1, 50) g;
	INSERT INTO wide SELECT g, repeat('a', 3000), repeat('b', g), g FROM generate_series(1, 20) g;
	INSERT INTO part SELECT g, 'copied' FROM generate_series(1, 199) g;
	INSERT INTO filtered SELECT g, 'copied', 'secret' FROM generate_series(1, 20) g;
	INSERT INTO heaped SELECT g, 'copied' FROM generate_series(1, 20) g;
	CREATE PUBLICATION p FOR TABLE keyed, wholly, by_index, wide, longkey, heaped, part WITH (publish_via_partition_root);
	CREATE PUBLICATION f FOR TABLE filtered (id, v) WHERE (id % 2 = 0), TABLE logged});
my $connection = $publisher->connstr . ' dbname=postgres';
$to_heap->safe_psql('postgres', "CREATE SUBSCRIPTION sh CONNECTION '$connection' PUBLICATION p, f WITH (streaming = on)");
$to_zheap->safe_psql('postgres', "CREATE SUBSCRIPTION sz CONNECTION '$connection' PUBLICATION p, f WITH (two_phase = on)");
$to_heap->wait_for_subscription_sync($publisher, 'sh');
$to_zheap->wait_for_subscription_sync($publisher, 'sz');

my %names = (to_heap => 'sh', to_zheap => 'sz');
sub same
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $subscriber (@subscribers)
	{
		$publisher->wait_for_catchup($names{ $subscriber->name });
		for my $table (qw(keyed wholly by_index wide longkey part heaped logged))
		{
			my $sum = "SELECT count(*), coalesce(sum(hashtext(t::text)::bigint), 0) FROM $table t";
			is($subscriber->safe_psql('postgres', $sum), $publisher->safe_psql('postgres', $sum), "$what: $table, " . $subscriber->name);
		}
		my $filtered = q{SELECT count(*), sum(hashtext(id || coalesce(v, '-'))::bigint) FROM filtered WHERE id % 2 = 0};
		is($subscriber->safe_psql('postgres', $filtered), $publisher->safe_psql('postgres', $filtered), "$what: filtered, " . $subscriber->name);
		is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM filtered WHERE id % 2 <> 0'), '0', "$what: the row filter");
	}
	return;
}
same('initial copy');

$publisher->safe_psql('postgres', $_) for (
	q{UPDATE keyed SET w = w + 1; UPDATE keyed SET id = id + 1000 WHERE id < 50; DELETE FROM keyed WHERE id % 7 = 0; INSERT INTO keyed VALUES (1, 'new', 1), (2, 'new', 2) ON CONFLICT (id) DO UPDATE SET v = 'old'},
	q{UPDATE wholly SET w = w + 1 WHERE id % 2 = 0; UPDATE wholly SET v = NULL WHERE id < 10; DELETE FROM wholly WHERE id > 40; INSERT INTO wholly VALUES (NULL, NULL, NULL); UPDATE wholly SET v = repeat('long', 3000) WHERE id = 20;
		UPDATE wholly SET w = 0 WHERE id = 20},
	q{UPDATE by_index SET v = 'u'; UPDATE by_index SET id = id + 100 WHERE id < 20; DELETE FROM by_index WHERE id = 30},
	q{UPDATE wide SET n = n + 1; UPDATE wide SET a = a || 'x', b = repeat('b', 4000) WHERE id < 5; UPDATE wide SET id = id + 100 WHERE id = 7; INSERT INTO wide SELECT g, repeat('n', 9000), NULL, g FROM generate_series(200, 220) g; DELETE FROM wide WHERE id = 8},
	q{INSERT INTO longkey SELECT repeat('k', 2200) || g, g FROM generate_series(1, 9) g; UPDATE longkey SET n = n + 10; UPDATE longkey SET k = 'short' || n WHERE n > 15; DELETE FROM longkey WHERE n = 11},
	q{UPDATE part SET v = 'u' WHERE id % 5 = 0; UPDATE part SET id = id + 100 WHERE id = 0; DELETE FROM part WHERE id = 150; UPDATE part SET id = 150 WHERE id = 50},
	q{UPDATE filtered SET v = 'u'; UPDATE filtered SET id = id + 101 WHERE id < 5; DELETE FROM filtered WHERE id = 10; UPDATE filtered SET secret = 's'},
	q{BEGIN; UPDATE heaped SET v = 'beside'; UPDATE keyed SET v = 'beside'; SAVEPOINT a; DELETE FROM keyed; ROLLBACK TO a; INSERT INTO wide VALUES (300, repeat('z', 5000)); DELETE FROM heaped WHERE id = 1; COMMIT},
	q{BEGIN; UPDATE keyed SET v = 'aborted'; DELETE FROM wide; ROLLBACK});
same('DML');
$publisher->safe_psql('postgres', q{
	BEGIN; INSERT INTO keyed SELECT g, 'large', g FROM generate_series(10000, 14000) g; SAVEPOINT a; UPDATE keyed SET v = 'gone' WHERE id >= 10000; ROLLBACK TO a; UPDATE keyed SET w = -1 WHERE id % 2 = 0;
	INSERT INTO wide SELECT g, repeat('s', 3000), 's', g FROM generate_series(1000, 1100) g; DELETE FROM keyed WHERE id % 3 = 0; COMMIT});
same('a large transaction, streamed to one of them');
$publisher->safe_psql('postgres', q{BEGIN; UPDATE keyed SET v = 'prepared'; DELETE FROM wholly WHERE id = 3; INSERT INTO wide VALUES (2000, repeat('p', 9000)); PREPARE TRANSACTION 'p'; BEGIN; INSERT INTO by_index VALUES (5000); PREPARE TRANSACTION 'r'; ROLLBACK PREPARED 'r'});
$publisher->wait_for_catchup('sz');
is($to_zheap->safe_psql('postgres', 'SELECT count(*) FROM pg_prepared_xacts'), '1', 'prepared on the subscriber, too');
$publisher->safe_psql('postgres', q{COMMIT PREPARED 'p'});
same('prepared');

# DDL amid transactions, and rewrites; the subscribers' tables get the columns first.
$_->safe_psql('postgres', 'ALTER TABLE keyed ADD x int; ALTER TABLE by_index ALTER id TYPE bigint') for @subscribers;
$publisher->safe_psql('postgres', q{BEGIN; UPDATE keyed SET w = 1 WHERE id < 60; ALTER TABLE keyed ADD x int; UPDATE keyed SET x = id WHERE id < 70; INSERT INTO keyed VALUES (-1, 'x', 1, 1); COMMIT;
	ALTER TABLE by_index ALTER id TYPE bigint; UPDATE by_index SET v = 'after'; VACUUM FULL keyed; UPDATE keyed SET v = 'after' WHERE id < 90; CLUSTER wide USING wide_pkey; UPDATE wide SET n = 0; TRUNCATE wholly; INSERT INTO wholly VALUES (1, 'a', 1);
	ALTER TABLE heaped SET ACCESS METHOD zheap; UPDATE heaped SET v = 'was heap'; DELETE FROM heaped WHERE id = 5});
same('DDL');

# A statement begins before the publication and writes after the slot's snapshot.
$publisher->safe_psql('postgres', q{SET default_table_access_method = zheap; CREATE TABLE late (id int PRIMARY KEY, n int); INSERT INTO late VALUES (1, 0), (2, 0), (3, 0); CREATE VIEW gate AS SELECT length(pg_advisory_xact_lock_shared(1)::text) AS n});
for my $sql ('UPDATE late SET n = n + 1 + (SELECT n FROM gate) WHERE id = 1', 'INSERT INTO late SELECT n + 30, 5 FROM gate', 'DELETE FROM late USING gate WHERE late.id = gate.n + 2')
{
	my $holder = $publisher->background_psql('postgres');
	$holder->query_safe('SELECT pg_advisory_lock(1)');
	my $writer = $publisher->background_psql('postgres', on_error_stop => 0);
	$writer->query_until(qr/begun/, "\\echo begun\n$sql;\n\\echo ended\n");
	$publisher->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'advisory'}) or die 'the statement does not wait';
	$publisher->safe_psql('postgres', 'CREATE PUBLICATION late FOR TABLE late');
	$to_heap->safe_psql('postgres', "CREATE TABLE late (id int PRIMARY KEY, n int); CREATE SUBSCRIPTION late CONNECTION '$connection' PUBLICATION late");
	$to_heap->wait_for_subscription_sync($publisher, 'late');
	$holder->query_safe('SELECT pg_advisory_unlock(1)');
	$writer->query_until(qr/ended/, '');
	is($writer->{stderr}, '', "not refused: $sql");
	$writer->quit;
	$holder->quit;
	$publisher->wait_for_catchup('late');
	my $rows = 'SELECT string_agg(late::text, $$ $$ ORDER BY id) FROM late';
	is($to_heap->safe_psql('postgres', $rows), $publisher->safe_psql('postgres', $rows), "begun before the publication: $sql");
	$to_heap->safe_psql('postgres', 'DROP SUBSCRIPTION late');
	$to_heap->safe_psql('postgres', 'DROP TABLE late');
	$publisher->safe_psql('postgres', 'DROP PUBLICATION late');
}

# The walsenders and the publisher are killed under load.
for my $round (1 .. 3)
{
	my $load = $publisher->background_psql('postgres', on_error_stop => 0);
	$load->query_until(qr/begun/, "\\echo begun\n" . join("\n", map {
		"BEGIN; UPDATE keyed SET w = w + 1 WHERE id % 5 = $_ % 5; INSERT INTO logged VALUES ($_); UPDATE wide SET a = repeat('k', 2500 + $_) WHERE id % 4 = $_ % 4; UPDATE by_index SET id = id + 1000 WHERE id % 11 = $_ % 11; COMMIT;" } 1 .. 60) . "\n\\echo ended\n");
	if ($round < 3)
	{
		$publisher->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_replication});
		$load->query_until(qr/ended/, '');
		$load->quit;
	}
	else
	{
		$publisher->poll_query_until('postgres', 'SELECT count(*) > 125 FROM logged');
		$publisher->stop('immediate');
		eval { $load->quit };
		$publisher->start;
	}
	same("killed, round $round");
}
for my $node (@all)
{
	sound($node, '', 'zundo.undo_log');
	no_crash($node);
}
sound($publisher, '', qw(keyed wholly by_index wide longkey filtered part1 part2 heaped));
sound($to_zheap, '', qw(keyed wholly by_index wide longkey filtered));
$_->stop for @subscribers, $publisher;
done_testing();
