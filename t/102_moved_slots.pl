# Replication slots that outlive their server, with zheap tables: failover slots
# that a standby has synchronized and a slot of the standby itself, both after
# its promotion, and pg_upgrade of a publisher and of a subscriber with their
# slots (17 and later).
# Rules: DECODE-1, DECODE-2.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

plan skip_all => 'failover slots came with 17' if server_major() < 17;

my $conf = "max_replication_slots = 10\nmax_prepared_transactions = 5\nwal_retrieve_retry_interval = 100ms\n";
my $primary = zundo_node('primary', $conf, allows_streaming => 'logical');
my $tables = q{
	CREATE SCHEMA heap; CREATE SCHEMA zheap;
	CREATE TABLE heap.t (id int PRIMARY KEY, v text, n int) USING heap;
	CREATE TABLE zheap.t (id int PRIMARY KEY, v text, n int) USING zheap;
	CREATE TABLE zheap.wholly (id int, v text) USING zheap; ALTER TABLE zheap.wholly REPLICA IDENTITY FULL};
$primary->safe_psql('postgres', "CREATE EXTENSION zundo; $tables");
$primary->safe_psql('postgres', q{ALTER TABLE heap.t ALTER v SET STORAGE EXTERNAL; ALTER TABLE zheap.t ALTER v SET STORAGE EXTERNAL});
my $subscriber = zundo_node('subscriber', $conf);
(my $turned = $tables) =~ s/USING zheap/USING xheap/g;
$turned =~ s/USING heap/USING zheap/g;
$turned =~ s/USING xheap/USING heap/g;
$subscriber->safe_psql('postgres', "CREATE EXTENSION zundo; $turned");

# The same changes of the twins, in one transaction, one statement of each at a time.
my $round = 0;
sub work
{
	my ($node, $end) = @_;
	$round++;
	my @statements = map { s/ROUND/$round/gr } (
		q{INSERT INTO AM.t SELECT g, repeat('v', g % 7 * 700), ROUND FROM generate_series(ROUND * 100, ROUND * 100 + 40) g},
		q{UPDATE AM.t SET n = n + 1 WHERE id = ROUND * 100 + 3}, q{UPDATE AM.t SET id = -id WHERE id = ROUND * 100 + 4},
		q{DELETE FROM AM.t WHERE id = ROUND * 100 + 6}, 'SAVEPOINT a', q{DELETE FROM AM.t WHERE id = ROUND * 100 + 3}, 'ROLLBACK TO a',
		q{UPDATE AM.t SET v = 'short' WHERE id = ROUND * 100 + 5});
	my $both = join '; ', map { my $sql = $_; $sql =~ /AM/ ? map { $sql =~ s/AM/$_/r } qw(heap zheap) : $sql } @statements;
	$node->safe_psql('postgres', "BEGIN; $both; INSERT INTO zheap.wholly VALUES ($round, repeat('w', 3000)); UPDATE zheap.wholly SET v = v || 'x' WHERE id = $round - 1; " . ($end // 'COMMIT'));
	return;
}
my $state = join ';', map { "SELECT '$_', count(*), sum(hashtextextended(t::text, 0)) FROM $_ t" } qw(heap.t zheap.t zheap.wholly);
sub same
{
	my ($node, $what) = @_;
	$node->wait_for_catchup('moved');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($subscriber->safe_psql('postgres', $state), $node->safe_psql('postgres', $state), "$what: the subscriber has the same rows");
	return;
}

# A standby with its own slot, which also keeps the subscription's.
$primary->safe_psql('postgres', q{SELECT pg_create_physical_replication_slot('standby'); CREATE PUBLICATION moved FOR ALL TABLES});
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\nprimary_slot_name = 'standby'\nsync_replication_slots = on\nprimary_conninfo = '" . $primary->connstr . " dbname=postgres'\n");
$standby->start;
$primary->append_conf('postgresql.conf', "synchronized_standby_slots = 'standby'");
$primary->reload;
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION moved CONNECTION '" . $primary->connstr . " dbname=postgres' PUBLICATION moved WITH (failover = true, two_phase = on)");
$subscriber->wait_for_subscription_sync($primary, 'moved');
$standby->create_logical_slot_on_standby($primary, 'own', 'postgres');
work($primary) for 1 .. 5;
same($primary, 'before the failover');

# twins_of_slot NODE NAME LEAST: checks that the node's slot shows the same changes of
# both tables, and LEAST or more.
sub twins_of_slot
{
	my ($node, $what, $at_least) = @_;
	my %shown;
	for my $line (split /\n/, $node->safe_psql('postgres', q{SELECT data FROM pg_logical_slot_get_changes('own', NULL, NULL, 'include-xids', '0')}))
	{
		$shown{$1} .= "$2\n" if $line =~ /^table (heap|zheap)\.t: (.*)/;
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($shown{zheap}, $shown{heap}, "$what: the same changes of both");
	cmp_ok(() = ($shown{zheap} // '') =~ /\n/g, '>=', $at_least, "$what: there are changes");
	return;
}
$primary->wait_for_replay_catchup($standby);
twins_of_slot($standby, 'a slot on the standby', 200);
work($primary, "PREPARE TRANSACTION 'over'");
work($primary);
$primary->wait_for_catchup('moved');
$primary->wait_for_replay_catchup($standby);
$standby->poll_query_until('postgres', q{SELECT synced AND NOT temporary AND invalidation_reason IS NULL FROM pg_replication_slots WHERE slot_name = 'moved'})
	or die 'the slot does not arrive on the standby';

# The primary is lost in the middle of a transaction.
my $lost = session($primary);
ask($lost, q{BEGIN; UPDATE zheap.t SET n = -1; UPDATE heap.t SET n = -1; SELECT pg_switch_wal()});
$primary->wait_for_replay_catchup($standby);
$primary->stop('immediate');
eval { $lost->quit };
$standby->promote;
$subscriber->safe_psql('postgres', "ALTER SUBSCRIPTION moved CONNECTION '" . $standby->connstr . " dbname=postgres'");
$standby->append_conf('postgresql.conf', "synchronized_standby_slots = ''\nsync_replication_slots = off");
$standby->reload;
work($standby);
$standby->safe_psql('postgres', q{COMMIT PREPARED 'over'});
work($standby) for 1 .. 2;
same($standby, 'after the failover');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM zheap.t WHERE n = -1'), '0', 'the lost transaction left nothing');
twins_of_slot($standby, 'the slot of the promoted standby', 200);
crash($standby);
work($standby);
same($standby, 'after a crash of the promoted server');
twins_of_slot($standby, 'and its slot then', 40);

# Both servers are upgraded, the publisher first.
$standby->safe_psql('postgres', q{SELECT pg_drop_replication_slot('own'); SELECT pg_drop_replication_slot('standby') FROM pg_replication_slots WHERE slot_name = 'standby'});
sub upgrade
{
	my ($old, $name) = @_;
	my $new = PostgreSQL::Test::Cluster->new($name);
	$new->init(allows_streaming => 'logical');
	$new->append_conf('postgresql.conf', "shared_preload_libraries = 'zundo'\nautovacuum = off\n$conf");
	$old->stop;
	chdir $new->data_dir . '/..' or die;
	command_ok([ 'pg_upgrade', '--no-sync', '-d', $old->data_dir, '-D', $new->data_dir, '-b', $old->config_data('--bindir'), '-B', $new->config_data('--bindir'),
			'-s', $new->host, '-p', $old->port, '-P', $new->port ], "pg_upgrade to $name");
	$new->start;
	return $new;
}
work($standby);
same($standby, 'before the upgrade');
$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION moved DISABLE');
$standby->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_replication') or die 'the walsender stays';
my $publisher = upgrade($standby, 'publisher');
is($publisher->safe_psql('postgres', q{SELECT plugin, two_phase, failover FROM pg_replication_slots WHERE slot_name = 'moved'}), 'pgoutput|t|t', 'the slot is there');
$subscriber->safe_psql('postgres', "ALTER SUBSCRIPTION moved CONNECTION '" . $publisher->connstr . " dbname=postgres'; ALTER SUBSCRIPTION moved ENABLE");
work($publisher) for 1 .. 3;
same($publisher, 'the publisher is upgraded');
$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION moved DISABLE');
$publisher->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_replication') or die 'the walsender stays';
work($publisher);
my $old_subscriber = $subscriber;
$subscriber = upgrade($old_subscriber, 'new_subscriber');
$subscriber->safe_psql('postgres', "ALTER SUBSCRIPTION moved ENABLE");
work($publisher);
same($publisher, 'the subscriber is upgraded');
sound($publisher, '', qw(zheap.t zheap.wholly zundo.undo_log));
sound($subscriber, '', qw(heap.t zundo.undo_log));
no_crash($_) for $primary, $standby, $publisher, $old_subscriber, $subscriber;
$_->stop for $subscriber, $publisher;
done_testing();
