# Conflict statistics of logical replication, from 18 on: a subscription with
# heap tables and one with zheap tables get the same changes, and meet the same
# conflicts of each kind. What pg_stat_subscription_stats counts and what the log
# says of them is the same while the undo of the local changes is kept; after
# that, docs/limits.md says what zheap tables do not tell. The rows are the same
# in both cases.
# newest
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

plan skip_all => 'conflicts are counted from 18 on' if server_major() < 18;

my $publisher = zundo_node('publisher', '', allows_streaming => 'logical');
my $subscriber = zundo_node('subscriber', <<'C', allows_streaming => 'logical');
track_commit_timestamp = on
max_logical_replication_workers = 8
max_worker_processes = 16
wal_retrieve_retry_interval = 100ms
log_line_prefix = ''
C
my @ams = qw(heap zheap);

my $keyed = 'CREATE TABLE keyed (id int PRIMARY KEY, n int UNIQUE, v text); CREATE TABLE parted (id int PRIMARY KEY, n int)';
my $wholly = 'CREATE TABLE wholly (id int, n int, v text); ALTER TABLE wholly REPLICA IDENTITY FULL';
my $rows = q{INSERT INTO keyed SELECT g, g, 'first' FROM generate_series(1, 40) g; INSERT INTO parted SELECT g, g FROM generate_series(1, 40) g; INSERT INTO wholly SELECT g, g, 'first' FROM generate_series(1, 40) g};
$publisher->safe_psql('postgres', "$keyed; $wholly; CREATE PUBLICATION p FOR ALL TABLES");
my $connect = $publisher->connstr . ' dbname=postgres';
for my $am (@ams)
{
	$subscriber->safe_psql('postgres', "CREATE DATABASE $am");
	$subscriber->safe_psql($am, 'CREATE EXTENSION zundo');
	my $index = $am eq 'heap' ? 'btree' : 'zbtree';
	$subscriber->safe_psql($am, "SET default_table_access_method = $am; $keyed PARTITION BY RANGE (id); $wholly;
		CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (20); CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (20) TO (100);
		CREATE INDEX keyed_v ON keyed USING $index (v); CREATE INDEX wholly_n ON wholly USING $index (n);
		CREATE SUBSCRIPTION s_$am CONNECTION '$connect' PUBLICATION p WITH (disable_on_error = true)");
}
$subscriber->wait_for_subscription_sync($publisher, "s_$_", $_) for @ams;
# Not copied: the origin of copied rows is another one than that of the changes which follow.
$publisher->safe_psql('postgres', $rows);
$publisher->wait_for_catchup("s_$_") for @ams;
my %origin = map { $_ => $subscriber->safe_psql('postgres', "SELECT 'pg_' || oid FROM pg_subscription WHERE subname = 's_$_'") } @ams;

my @kinds = qw(insert_exists update_origin_differs update_exists update_missing delete_origin_differs delete_missing multiple_unique_conflicts);
push @kinds, 'update_deleted' if server_major() >= 19;
my %count = map { my $am = $_; $am => { map { $_ => 0 } @kinds, 'error' } } @ams;

# counted AM: returns what is counted for the subscription.
sub counted
{
	my ($am) = @_;
	my $shown = join " || ' ' || ", map { "'$_ ' || confl_$_" } @kinds;
	return "SELECT $shown || ' errors ' || apply_error_count FROM pg_stat_subscription_stats WHERE subname = 's_$am'";
}

# both SQL: runs the statements in both databases of the subscriber.
sub both
{
	my ($sql) = @_;
	$subscriber->safe_psql($_, $sql) for @ams;
	return;
}

# says AM, FROM: returns what the worker of this subscription has logged of conflicts from this place on, without ids and
# times.
sub says
{
	my ($am, $from) = @_;
	my $log = slurp_file($subscriber->logfile, $from);
	my @said = $log =~ /^(?:LOG|ERROR): +(?:\w{5}: )?(conflict detected[^\n]*\n)DETAIL: +([^\n]*\n(?:\t[^\n]*\n)*)CONTEXT: +processing remote data for replication origin "$origin{$am}"/mg;
	return join('', @said) =~ s/in transaction \d+/in transaction N/gr =~ s/ at \d+-\d\d-\d\d [\d:.]+[+-][\d:]*\d/ at T/gr;
}

# conflict NAME, LOCAL, REMOTE, KIND...: the subscriber does LOCAL in both databases, then the publisher REMOTE; conflicts
# of these kinds must be counted on both. Kinds that raise an error disable the subscription: then LOCAL is undone by
# UNDO, the last argument. Returns what was said, by access method.
my $kept;
sub conflict
{
	my ($name, $local, $remote, @found) = @_;
	my $undo = @found && $found[-1] =~ / / ? pop @found : undef;
	both($local);
	if (!$kept)
	{
		$subscriber->poll_query_until('zheap', 'SELECT zundo.discard() IS NOT NULL AND zundo.undo_bytes_in_use() = 0') or die 'undo is kept';
	}
	my $from = -s $subscriber->logfile;
	$publisher->safe_psql('postgres', $remote);
	my %said;
	for my $am (@ams)
	{
		for my $kind (@found)
		{
			# docs/limits.md: not detected once the undo of the local change has been discarded
			$count{$am}{$kind}++ unless $am eq 'zheap' && !$kept && $kind =~ /origin_differs/;
		}
		if ($undo)
		{
			$count{$am}{error}++;
			$subscriber->poll_query_until('postgres', "SELECT NOT subenabled FROM pg_subscription WHERE subname = 's_$am'") or die "no error: $am";
			$subscriber->safe_psql($am, "$undo; ALTER SUBSCRIPTION s_$am ENABLE");
		}
		$publisher->wait_for_catchup("s_$am");
		my $expected = join(' ', map { "$_ $count{$am}{$_}" } @kinds) . " errors $count{$am}{error}";
		$subscriber->poll_query_until('postgres', counted($am), $expected);
		is($subscriber->safe_psql('postgres', counted($am)), $expected, "$name: what is counted ($am)");
		$said{$am} = says($am, $from);
	}
	same($name);
	return \%said;
}

# same NAME: checks that both databases have the same rows.
sub same
{
	my ($name) = @_;
	my ($heap, $zheap) = map { my $am = $_; join "\n", map { $subscriber->safe_psql($am, "SELECT $_ FROM $_ ORDER BY $_") } qw(keyed parted wholly) } @ams;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($zheap, $heap, "$name: the rows");
	return;
}

# told NAME, SAID, WHAT: checks that both logs say the same, and that it contains WHAT.
sub told
{
	my ($name, $said, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($said->{zheap}, $said->{heap}, "$name: the messages");
	like($said->{heap}, $what, "$name: what they say");
	return;
}

# While a snapshot keeps the undo of local changes, everything is as on heap. Then without one, with other rows.
for my $base (0, 20)
{
	my $state = $base ? 'undo is gone' : 'undo is kept';
	$kept = !$base;
	my @holders;
	if ($kept)
	{
		@holders = map { $subscriber->background_psql($_) } @ams;
		$_->set_query_timer_restart() for @holders;
		$_->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1') for @holders;
	}
	my @id = map { $base + $_ } 0 .. 19;
	my %said;
	$said{'update_origin_differs'} = conflict("$state, a local update, then a remote one", "UPDATE keyed SET n = n WHERE id = $id[1]", "UPDATE keyed SET v = 'remote' WHERE id = $id[1]", 'update_origin_differs');
	$said{'... whose values changed'} = conflict("$state, another value", "UPDATE keyed SET v = 'local' WHERE id = $id[2]", "UPDATE keyed SET v = 'remote' WHERE id = $id[2]", 'update_origin_differs');
	$said{'... after a subtransaction'} = conflict("$state, changed by a subtransaction", "BEGIN; SAVEPOINT a; UPDATE keyed SET v = 'local' WHERE id = $id[3]; RELEASE a; SAVEPOINT b; UPDATE keyed SET v = 'no' WHERE id = $id[3]; ROLLBACK TO b; COMMIT", "UPDATE keyed SET n = -n WHERE id = $id[3]", 'update_origin_differs');
	$said{'... inserted here'} = conflict("$state, inserted here", "DELETE FROM keyed WHERE id = $id[4]; INSERT INTO keyed VALUES ($id[4], $id[4], 'here')", "UPDATE keyed SET v = 'remote' WHERE id = $id[4]", 'update_origin_differs');
	$said{'... in a partition'} = conflict("$state, in a partition", "UPDATE parted SET n = 0 WHERE id = $id[5]", "UPDATE parted SET n = 5 WHERE id = $id[5]", 'update_origin_differs');
	$said{'delete_origin_differs'} = conflict("$state, a local update, then a remote deletion", "UPDATE keyed SET v = 'local' WHERE id = $id[6]", "DELETE FROM keyed WHERE id = $id[6]", 'delete_origin_differs');
	if ($kept)
	{
		told($_, $said{$_}, qr/modified locally in transaction N at T/) for sort keys %said;
	}
	else
	{
		like($said{$_}{heap}, qr/origin_differs/, "$state: $_, reported on heap") for sort keys %said;
		is(join('', map { $said{$_}{zheap} } keys %said), '', '... and on zheap not, as docs/limits.md says');
	}

	# What needs no author is the same in both states.
	told('update_missing', conflict("$state, missing, update", "DELETE FROM keyed WHERE id = $id[7]", "UPDATE keyed SET v = 'remote' WHERE id = $id[7]", 'update_missing'), qr/update_missing/);
	told('delete_missing', conflict("$state, missing, delete", "DELETE FROM keyed WHERE id = $id[8]", "DELETE FROM keyed WHERE id = $id[8]", 'delete_missing'), qr/delete_missing/);
	told('several', conflict("$state, missing in a partition, and wholly", "DELETE FROM parted WHERE id = $id[9]; UPDATE wholly SET v = 'local' WHERE id IN ($id[9], $id[10])",
			"UPDATE parted SET n = 9 WHERE id = $id[9]", 'update_missing'), qr/update_missing/);
	told('FULL, update', conflict("$state, REPLICA IDENTITY FULL, update", 'SELECT 1', "UPDATE wholly SET n = -n WHERE id = $id[9]", 'update_missing'), qr/update_missing/);
	told('FULL, delete', conflict("$state, REPLICA IDENTITY FULL, delete", 'SELECT 1', "DELETE FROM wholly WHERE id = $id[10]", 'delete_missing'), qr/delete_missing/);
	told('no conflict', conflict("$state, rows that only the publisher has changed", 'SELECT 1', "UPDATE keyed SET v = 'again' WHERE id = $id[11]; UPDATE keyed SET v = 'and again' WHERE id = $id[11]; UPDATE wholly SET v = 'again' WHERE id = $id[11]; DELETE FROM keyed WHERE id = $id[11]"), qr/^$/);
	told('rolled back here', conflict("$state, a local change that was rolled back", "BEGIN; UPDATE keyed SET v = 'no' WHERE id = $id[12]; DELETE FROM keyed WHERE id = $id[13]; ROLLBACK", "UPDATE keyed SET v = 'remote' WHERE id IN ($id[12], $id[13])"), qr/^$/);
	told('locked here', conflict("$state, a row that was locked here", "SELECT * FROM keyed WHERE id = $id[14] FOR UPDATE", "UPDATE keyed SET v = 'remote' WHERE id = $id[14]"), qr/^$/);

	# Conflicts that stop the subscription.
	my %error;
	$error{insert_exists} = conflict("$state, a key that is there", "INSERT INTO keyed VALUES ($base + 100, $base + 100, 'here')", "INSERT INTO keyed VALUES ($base + 100, $base + 101, 'there')", 'insert_exists', "DELETE FROM keyed WHERE id = $base + 100");
	$error{update_exists} = conflict("$state, a value that is there", "INSERT INTO keyed VALUES ($base + 102, $base + 102, 'here')", "UPDATE keyed SET n = $base + 102 WHERE id = $id[15]", 'update_exists', "DELETE FROM keyed WHERE id = $base + 102");
	$error{multiple_unique_conflicts} = conflict("$state, two keys that are there", "INSERT INTO keyed VALUES ($base + 103, $base + 104, 'here'), ($base + 105, $base + 106, 'here')", "INSERT INTO keyed VALUES ($base + 103, $base + 106, 'there')", 'multiple_unique_conflicts',
		"DELETE FROM keyed WHERE id IN ($base + 103, $base + 105)");
	for my $kind (sort keys %error)
	{
		like($error{$kind}{heap}, qr/conflict=$kind(?:.*\n)+.*(?:modified locally in transaction N at T\b.*\n?)+/, "$state: $kind, the author");
		# docs/limits.md: without the author, once the undo has gone
		my $expected = $error{$kind}{heap};
		$expected =~ s/modified locally in transaction N at T/modified in transaction N/g if !$kept;
		is($error{$kind}{zheap}, $expected, "$state: $kind, the message on zheap");
	}
	for my $holder (@holders)
	{
		$holder->query_safe('COMMIT');
		$holder->quit;
	}
}

is($subscriber->safe_psql('zheap', q{SELECT c.relname, f.* FROM pg_class c JOIN pg_am a ON a.oid = c.relam, zundo.check_index(c.oid) f WHERE amname = 'zbtree' AND relkind = 'i'}), '', 'sound zbtree indexes');
is($subscriber->safe_psql('zheap', q{SELECT c.relname, f.* FROM pg_class c JOIN pg_am a ON a.oid = c.relam, zundo.check(c.oid) f WHERE amname = 'zheap' AND relkind = 'r'}), '', 'sound tables');
no_crash($_) for $publisher, $subscriber;
$_->stop for $subscriber, $publisher;
done_testing();
