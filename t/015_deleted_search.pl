# From PostgreSQL 19 on a subscription with retain_dead_tuples searches deleted
# rows with SnapshotAny and interprets what the scan returns as heap rows. On a
# zheap table the apply worker gets an error (SCAN-4); it continues after the
# option has been switched off.
# newest
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

plan skip_all => 'subscriptions retain dead rows from 19 on' if server_major() < 19;

my $publisher = zundo_node('publisher', '', allows_streaming => 'logical');
my $subscriber = zundo_node('subscriber', <<'C', allows_streaming => 'logical');
max_logical_replication_workers = 8
max_worker_processes = 16
track_commit_timestamp = on
wal_retrieve_retry_interval = 100
C

$_->safe_psql('postgres', 'CREATE EXTENSION zundo') for $publisher, $subscriber;
$publisher->safe_psql('postgres', 'CREATE TABLE keyed (id int PRIMARY KEY, n int) USING heap;
	CREATE TABLE keyless (id int, n int) USING heap; ALTER TABLE keyless REPLICA IDENTITY FULL;
	INSERT INTO keyed SELECT g, g FROM generate_series(1, 10) g; INSERT INTO keyless SELECT g, g FROM generate_series(1, 10) g');
$subscriber->safe_psql('postgres', 'CREATE TABLE keyed (id int PRIMARY KEY, n int) USING zheap;
	CREATE TABLE keyless (id int, n int) USING zheap');
my $connect = $publisher->connstr . ' dbname=postgres';
$publisher->safe_psql('postgres', 'CREATE PUBLICATION p FOR TABLE keyed, keyless');
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION s CONNECTION '$connect' PUBLICATION p WITH (retain_dead_tuples = on)");
$subscriber->wait_for_subscription_sync($publisher, 's');

for my $table (qw(keyed keyless))
{
	my $seen = -s $subscriber->logfile;
	$subscriber->safe_psql('postgres', "DELETE FROM $table WHERE id = 3");
	$publisher->safe_psql('postgres', "UPDATE $table SET n = 30 WHERE id = 3; UPDATE $table SET n = 40 WHERE id = 4");
	ok($subscriber->wait_for_log(qr/ERROR:  (?:0A000: )?the deleted rows of a zheap table cannot be searched/, $seen),
		"$table: the worker gets an error");
	$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION s DISABLE');
	$subscriber->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_subscription WHERE pid IS NOT NULL});
	$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION s SET (retain_dead_tuples = off); ALTER SUBSCRIPTION s ENABLE');
	$publisher->wait_for_catchup('s');
	is($subscriber->safe_psql('postgres', "SELECT count(*), sum(n) FROM $table"), '9|88', "$table: it continues after what the hint says");
	$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION s DISABLE');
	$subscriber->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_subscription WHERE pid IS NOT NULL});
	$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION s SET (retain_dead_tuples = on); ALTER SUBSCRIPTION s ENABLE')
		if $table eq 'keyed';
}
no_crash($_) for $publisher, $subscriber;
done_testing();
