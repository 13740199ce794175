# Generated columns in publications, from 18 on: publish_generated_columns, and
# stored generated columns in column lists. A heap table and a zheap table with
# the same changes are published in the same ways: subscribers get the same
# columns and rows of both, and what the server refuses is the same.
# newest
# Rules: DECODE-1, DECODE-3.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

plan skip_all => 'generated columns are published from 18 on' if server_major() < 18;

my $conf = "max_replication_slots = 20\nmax_wal_senders = 20\nmax_logical_replication_workers = 12\nmax_sync_workers_per_subscription = 4\nmax_worker_processes = 24\nwal_retrieve_retry_interval = 100ms\nlogical_decoding_work_mem = 64kB\n";
my $publisher = zundo_node('publisher', $conf, allows_streaming => 'logical');
my $subscriber = zundo_node('subscriber', $conf, allows_streaming => 'logical');
$publisher->safe_psql('postgres', 'CREATE EXTENSION zundo');
my @ams = qw(heap zheap);

# each_am SQL: runs the statements on the publisher, once for each access method, with _AM and AM replaced.
sub each_am
{
	my ($sql) = @_;
	$publisher->safe_psql('postgres', $sql =~ s/_AM(?![A-Z])/_$_/gr =~ s/\bAM\b/$_/gr) for @ams;
	return;
}

# refused NAME, SQL, WHAT: checks that the statements fail on both access methods with the same message.
sub refused
{
	my ($name, $sql, $what) = @_;
	my %err;
	for my $am (@ams)
	{
		my ($rc, $out, $err) = $publisher->psql('postgres', $sql =~ s/_AM\b/_$am/gr);
		$err{$am} = $err =~ s/_$am(?![a-z])/_AM/gr;
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($err{zheap}, $err{heap}, "$name: the same message");
	like($err{heap}, $what, "$name: what it says");
	return;
}

# Two stored generated columns, one of them out of line in some rows, and a virtual one where the replica identity is not
# the whole row.
my $columns = 'n int, g int GENERATED ALWAYS AS (n * 2) STORED, v text, t text GENERATED ALWAYS AS (v || id) STORED';
each_am(qq{
	CREATE TABLE keyed_AM (id int PRIMARY KEY, $columns, x int GENERATED ALWAYS AS (n + 1) VIRTUAL) USING AM;
	CREATE TABLE wholly_AM (id int, $columns) USING AM; ALTER TABLE wholly_AM REPLICA IDENTITY FULL;
	CREATE TABLE by_generated_AM (id int, n int, g int GENERATED ALWAYS AS (n * 2) STORED NOT NULL UNIQUE) USING AM;
	ALTER TABLE by_generated_AM REPLICA IDENTITY USING INDEX by_generated_AM_g_key});
each_am("ALTER TABLE ${_}_AM ALTER t SET STORAGE EXTERNAL") for qw(keyed wholly);
each_am(q{INSERT INTO keyed_AM (id, n, v) SELECT g, g, repeat('v', g % 3 * 1500) FROM generate_series(1, 30) g;
	INSERT INTO wholly_AM (id, n, v) SELECT g, g, repeat('w', g % 3 * 1500) FROM generate_series(1, 30) g});

# How the tables are published, with the columns that the subscriber gets.
my %ways = (
	none => ['keyed_AM', 'publish_generated_columns = none', 'id n v'],
	stored => ['keyed_AM, wholly_AM, by_generated_AM', 'publish_generated_columns = stored', 'id n g v t'],
	listed => ['keyed_AM (id, g, t)', 'publish_generated_columns = none', 'id g t'],
	listed_too => ['keyed_AM (t, id, n)', 'publish_generated_columns = stored', 'id n t'],
	unlisted => ['keyed_AM (id, n)', 'publish_generated_columns = stored', 'id n'],
	filtered => ['keyed_AM WHERE (x > 21), wholly_AM WHERE (g > 20)', q{publish = 'insert', publish_generated_columns = stored}, 'id n g v t']);
my $connect = $publisher->connstr . ' dbname=postgres';
for my $way (sort keys %ways)
{
	my ($tables, $options, $got) = @{$ways{$way}};
	my $both = join ', ', map { my $am = $_; $tables =~ s/_AM\b/_$am/gr } @ams;
	$publisher->safe_psql('postgres', "CREATE PUBLICATION $way FOR TABLE $both WITH ($options)");
	$subscriber->safe_psql('postgres', "CREATE DATABASE $way");
	# what is not published keeps its default
	$subscriber->safe_psql($way, join(';', 'CREATE EXTENSION zundo; SET default_table_access_method = zheap',
			map { my $am = $_; (map { "CREATE TABLE ${_}_$am (id int, n int DEFAULT -1, g int DEFAULT -1, v text DEFAULT '-', t text DEFAULT '-')" } qw(keyed wholly by_generated)),
				"ALTER TABLE keyed_$am ADD PRIMARY KEY (id)", "ALTER TABLE by_generated_$am ADD UNIQUE (g), ALTER g SET NOT NULL, ALTER g DROP DEFAULT; ALTER TABLE by_generated_$am REPLICA IDENTITY USING INDEX by_generated_${am}_g_key" } @ams));
	$subscriber->safe_psql($way, "CREATE SUBSCRIPTION s_$way CONNECTION '$connect' PUBLICATION $way");
}
$subscriber->wait_for_subscription_sync($publisher, "s_$_", $_) for sort keys %ways;

# same NAME: checks what the subscribers have got: the same of both tables, the publisher's values in the columns that are
# published, and defaults in the others. Subscriptions to some publications do not get updates and deletions.
sub same
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $way (sort keys %ways)
	{
		my ($tables, $options, $got) = @{$ways{$way}};
		$publisher->wait_for_catchup("s_$way");
		for my $table (grep { $tables =~ /\b${_}_AM/ } qw(keyed wholly by_generated))
		{
			my $sum = "SELECT count(*), min(id), md5(string_agg(r::text, ',' ORDER BY r::text)) FROM";
			my ($heap, $zheap) = map { $subscriber->safe_psql($way, "$sum ${table}_$_ r") } @ams;
			is($zheap, $heap, "$name: $way, $table");
			next if $way eq 'filtered';
			my %has = map { $_ => 1 } split / /, $got;
			my $expected = join ', ', map { $has{$_->[0]} && !($table eq 'by_generated' && $_->[0] =~ /[vt]/) ? $_->[0] : "$_->[1] AS $_->[0]" } ['id', 0], ['n', -1], ['g', -1], ['v', "'-'::text"], ['t', "'-'::text"];
			is($zheap, $publisher->safe_psql('postgres', "$sum (SELECT $expected FROM ${table}_zheap) r"), '... has the published columns');
		}
	}
	return;
}
same('initial copy');

my @changes = (
	q{INSERT INTO keyed_AM (id, n, v) SELECT g, g, repeat('i', g % 3 * 1500) FROM generate_series(31, 60) g; INSERT INTO wholly_AM (id, n, v) SELECT g, g, repeat('j', g % 3 * 1500) FROM generate_series(31, 60) g},
	q{UPDATE keyed_AM SET n = n + 100 WHERE id % 2 = 0; UPDATE wholly_AM SET n = n + 100 WHERE id % 2 = 0},
	q{UPDATE keyed_AM SET v = repeat('u', 3000) WHERE id % 5 = 0; UPDATE wholly_AM SET v = repeat('u', 3000) WHERE id % 5 = 0},
	q{UPDATE keyed_AM SET v = NULL WHERE id % 7 = 0; UPDATE wholly_AM SET n = NULL WHERE id % 7 = 0},
	q{UPDATE keyed_AM SET id = id + 1000 WHERE id % 11 = 0; UPDATE wholly_AM SET id = id + 1000 WHERE id % 11 = 0},
	q{BEGIN; UPDATE keyed_AM SET n = 1 WHERE id = 1; SAVEPOINT a; UPDATE keyed_AM SET n = 2 WHERE id = 1; ROLLBACK TO a; UPDATE wholly_AM SET n = 3 WHERE id = 1; COMMIT; BEGIN; UPDATE keyed_AM SET n = 0; ROLLBACK},
	q{DELETE FROM keyed_AM WHERE id % 13 = 0; DELETE FROM wholly_AM WHERE id % 13 = 0; UPDATE keyed_AM SET n = DEFAULT WHERE id = 2},
	q{INSERT INTO keyed_AM (id, n, v) VALUES (3, 0, 'c'), (2000, 0, 'c') ON CONFLICT (id) DO UPDATE SET n = keyed_AM.n + 1});
for my $change (@changes)
{
	each_am($change);
	same($change =~ s/;.*//sr);
}
# The replica identity is a generated column.
each_am('INSERT INTO by_generated_AM (id, n) SELECT g, g FROM generate_series(1, 20) g; UPDATE by_generated_AM SET id = id + 1 WHERE n < 5; UPDATE by_generated_AM SET n = n + 100 WHERE n < 10; DELETE FROM by_generated_AM WHERE n = 15');
same('a generated column as the replica identity');

# The option is changed between transactions, and an expression within one.
$publisher->safe_psql('postgres', 'ALTER PUBLICATION none SET (publish_generated_columns = stored); ALTER PUBLICATION stored SET TABLE keyed_heap, keyed_zheap, wholly_heap, wholly_zheap');
each_am('TRUNCATE keyed_AM, wholly_AM');
$_->[2] = 'id n g v t' for $ways{none};
$ways{stored}[0] = 'keyed_AM, wholly_AM';
$subscriber->safe_psql($_, 'TRUNCATE ' . join ', ', map { ("keyed_$_", "wholly_$_") } @ams) for keys %ways;
each_am(q{INSERT INTO keyed_AM (id, n, v) VALUES (1, 1, 'a'), (2, 2, repeat('b', 3000)); INSERT INTO wholly_AM (id, n, v) VALUES (1, 1, 'a');
	BEGIN; UPDATE keyed_AM SET n = 5 WHERE id = 1; ALTER TABLE keyed_AM ALTER g SET EXPRESSION AS (n * 3); UPDATE keyed_AM SET n = 6 WHERE id = 1; UPDATE keyed_AM SET n = 7 WHERE id = 2; COMMIT});
# The rewrite itself is not published, so all rows were updated after it.
same('another expression');
each_am(q{ALTER TABLE keyed_AM ALTER t DROP EXPRESSION; UPDATE keyed_AM SET t = 'plain' WHERE id = 1; INSERT INTO keyed_AM (id, n, v, t) VALUES (9, 9, 'v', 'own'); UPDATE wholly_AM SET n = n + 1});
same('no expression any more');

# What the server refuses.
refused('a virtual column in a column list', 'CREATE PUBLICATION refused FOR TABLE keyed_AM (id, x)', qr/ERROR: .*virtual generated column/);
$publisher->safe_psql('postgres', 'CREATE PUBLICATION refusing FOR TABLE by_generated_heap, by_generated_zheap, wholly_heap, wholly_zheap WITH (publish_generated_columns = none)');
refused("$_ while the replica identity is not published", $_, qr/ERROR:  cannot (?:update|delete from) table "(?:by_generated|wholly)_AM"\nDETAIL:  Replica identity must not contain unpublished generated columns/)
	for 'UPDATE by_generated_AM SET id = 0 WHERE n = 11', 'UPDATE wholly_AM SET n = 0', 'DELETE FROM by_generated_AM WHERE n = 11', 'BEGIN; MERGE INTO by_generated_AM USING (SELECT 11 AS k) s ON n = k WHEN MATCHED THEN DELETE';
$publisher->safe_psql('postgres', 'DROP PUBLICATION refusing');
each_am('UPDATE by_generated_AM SET id = 0 WHERE n = 11');
sound($publisher, '', map { "${_}_zheap" } qw(keyed wholly by_generated));
no_crash($_) for $publisher, $subscriber;
$_->stop for $subscriber, $publisher;
done_testing();
