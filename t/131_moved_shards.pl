# What Citus does with a shard when it moves, splits or isolates one without blocking
# writers, done here by hand, for there is no package of Citus: a published table is
# copied beside a writer, whole or in two halves by row filters, to other databases of the
# same server, whose tables are published themselves while they are filled. No write is
# refused, none is lost, also of statements that began before the publication. On zheap as
# on heap.
# long
# Rules: DECODE-1, DECODE-2.
use strict;
use warnings;
use ZundoTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = zundo_node('shards', "max_replication_slots = 40\nmax_wal_senders = 40\nmax_logical_replication_workers = 20\nmax_worker_processes = 60\n"
	  . "logical_decoding_work_mem = 64kB\nwal_retrieve_retry_interval = 100ms\n", allows_streaming => 'logical');
sql('CREATE EXTENSION zundo');
my @ams = qw(heap zheap);
my @targets = qw(whole low high);
my %filter = (whole => '', low => 'WHERE (hashint4(tenant) < 0)', high => 'WHERE (hashint4(tenant) >= 0)');
sub table { my ($am) = @_; return "CREATE TABLE shard_$am (tenant int, id int, n int, v text, PRIMARY KEY (tenant, id)) USING $am; ALTER TABLE shard_$am ALTER v SET STORAGE EXTERNAL" }
for my $target (@targets)
{
	$node->safe_psql('postgres', "CREATE DATABASE $target");
	$node->safe_psql($target, 'CREATE EXTENSION zundo; ' . join '; ', map { table($_), "CREATE PUBLICATION onward_$_ FOR TABLE shard_$_" } @ams);
}
sql($_) for map { table($_) } @ams;
sql(q{CREATE VIEW gate AS SELECT length(pg_advisory_xact_lock_shared(1)::text) AS n; CREATE TABLE running (what text) USING heap; INSERT INTO running VALUES ('writes')});

# The writer commits after each few rows until there is nothing in "running".
for my $am (@ams)
{
	sql(qq{INSERT INTO shard_$am SELECT g % 50, g, 0, repeat('v', g % 3 * 1200) FROM generate_series(1, 2000) g;
		CREATE PROCEDURE write_$am() LANGUAGE plpgsql AS \$\$ DECLARE i int := 0; BEGIN
			WHILE EXISTS (SELECT FROM running) LOOP
				i := i + 1;
				UPDATE shard_$am SET n = n + 1 WHERE tenant = i % 50 AND id = 1 + i * 7 % 2000;
				UPDATE shard_$am SET n = n + 1, v = repeat('w', i % 4 * 900) WHERE tenant = i % 50 AND id % 40 = i % 40;
				UPDATE shard_$am SET id = id + 100000 * i WHERE tenant = i % 50 AND id % 97 = i % 97 AND id < 20000;
				DELETE FROM shard_$am WHERE tenant = i % 50 AND id % 401 = i % 401;
				INSERT INTO shard_$am VALUES (i % 50, 10000 + i, 0, repeat('i', i % 5 * 800)) ON CONFLICT (tenant, id) DO UPDATE SET n = -1;
				COMMIT;
				BEGIN UPDATE shard_$am SET v = repeat('gone', 700) WHERE tenant = i % 50; RAISE EXCEPTION 'no'; EXCEPTION WHEN raise_exception THEN NULL; END;
				COMMIT;
			END LOOP; END \$\$});
}
my %writer = map { $_ => session($node, timeout => 5 * $PostgreSQL::Test::Utils::timeout_default) } @ams;
$writer{$_}->query_until(qr/writes/, "\\echo writes\nCALL write_$_();\n") for @ams;

# A statement that has its snapshot and writes only when all is published and copied.
ask(my $holder = session($node), 'SELECT pg_advisory_lock(1)');
my %late = map { $_ => session($node) } @ams;
$late{$_}->query_until(qr/begins/, "\\echo begins\nINSERT INTO shard_$_ SELECT g, -1 - g, 5, repeat('late', 1000) FROM generate_series(1, 20) g, (SELECT n FROM gate OFFSET 0) s;\n") for @ams;
$node->poll_query_until('postgres', q{SELECT count(*) = 2 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) or die 'they do not wait';

my $connection = $node->connstr . ' dbname=postgres';
for my $am (@ams)
{
	for my $target (@targets)
	{
		my $name = "${target}_$am";
		sql("CREATE PUBLICATION $name FOR TABLE shard_$am $filter{$target}");
		sql("SELECT pg_create_logical_replication_slot('$name', 'pgoutput')");	# the subscription would wait for itself
		$node->safe_psql($target, "CREATE SUBSCRIPTION $name CONNECTION '$connection' PUBLICATION $name WITH (create_slot = false, slot_name = '$name')");
	}
}
for my $target (@targets)
{
	ok($node->poll_query_until($target, q{SELECT count(*) = 2 FROM pg_subscription_rel WHERE srsubstate = 'r'}), "copied beside the writer: $target");
}
ask($holder, 'SELECT pg_advisory_unlock(1)');
for my $session (map { $late{$_} } @ams)
{
	is(ask($session, 'SELECT 1'), 1, 'a statement from before the publication');
	is($complaint, '', '... is not refused');
}
sql('DELETE FROM running');
for my $session (map { $writer{$_} } @ams)
{
	is(ask($session, 'SELECT 1'), 1, 'the writer ends');
	is($complaint, '', '... and was never refused');
}
$_->quit for $holder, values %late, values %writer;
for my $am (@ams)
{
	for my $target (@targets)
	{
		$node->wait_for_catchup("${target}_$am");
		my $rows = "SELECT count(*), sum(hashtextextended(s::text, 0)), count(*) FILTER (WHERE id < 0) FROM shard_$am s $filter{$target}";
		my $is = $node->safe_psql('postgres', $rows);
		is($node->safe_psql($target, $rows =~ s/ WHERE \(hash.*//r), $is, "$target, $am: every row, and no other: $is");
		$node->safe_psql($target, "DROP SUBSCRIPTION ${target}_$am");
		is($node->safe_psql($target, "SELECT * FROM zundo.check('shard_$am')"), '', '... zundo.check') if $am eq 'zheap';
		sql("DROP PUBLICATION ${target}_$am");
	}
}
sound($node, '', qw(shard_zheap zundo.undo_log));
no_crash($node);
$node->stop;
done_testing();
