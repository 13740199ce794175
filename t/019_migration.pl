# Runs the commands of docs/migration.md, which move a database of heap tables
# to zheap beside writers, and back. Then pg_createsubscriber (17) with heap and
# zheap tables.
use strict;
use warnings;
use FindBin;
use IPC::Run;
use ZundoTest;
use PostgreSQL::Test::Utils;
use Test::More;

# The blocks of commands under each heading of the guide.
my ($heading, %blocks) = ('');
my $guide = slurp_file("$FindBin::RealBin/../docs/migration.md");
while ($guide =~ /^## ([^\n]*)$|^```sh\n(.*?)^```$/msg)
{
	if (defined $1) { $heading = $1 } else { push @{ $blocks{$heading} }, $2 }
}
is(join(' ', map { "$_ " . @{ $blocks{$_} } } sort keys %blocks), 'Back 1 Copy 1 Identity 1 Schema 2 Switch 4', 'the commands of the guide');

my $conf = "wal_retrieve_retry_interval = 100ms\n";
my $old = zundo_node('old', $conf . "shared_preload_libraries = ''\n", allows_streaming => 'logical');
my $new = zundo_node('new', $conf, allows_streaming => 'logical');
like(($old->psql('postgres', '\set VERBOSITY verbose
	CREATE EXTENSION zundo'))[2], qr/55000: zundo must be loaded via "shared_preload_libraries"/, 'CREATE EXTENSION fails without the preload');
$old->safe_psql('postgres', q{
	CREATE TABLE keyed (id bigserial PRIMARY KEY, v text, n int);
	CREATE TABLE "Key less" (a int, b text);
	CREATE TABLE by_index (code text NOT NULL UNIQUE, v int); ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_code_key;
	CREATE TABLE nothing (a int); ALTER TABLE nothing REPLICA IDENTITY NOTHING;
	CREATE TABLE deferred (id int PRIMARY KEY DEFERRABLE, v int); INSERT INTO deferred SELECT g, g FROM generate_series(1, 50) g;
	CREATE TABLE wide (id int PRIMARY KEY, a text, n int); ALTER TABLE wide ALTER a SET STORAGE EXTERNAL;
	CREATE TABLE part (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
	CREATE TABLE part1 PARTITION OF part FOR VALUES FROM (0) TO (100); CREATE TABLE part2 PARTITION OF part FOR VALUES FROM (100) TO (200);
	CREATE TABLE child (id int PRIMARY KEY, parent bigint REFERENCES keyed DEFERRABLE);
	CREATE SEQUENCE unused START 77; CREATE SEQUENCE "Other"; SELECT setval('"Other"', 5);
	CREATE MATERIALIZED VIEW sums AS SELECT sum(n) FROM keyed;
	INSERT INTO keyed (v, n) SELECT repeat('v', g % 90), g FROM generate_series(1, 3000) g;
	INSERT INTO "Key less" SELECT g, 'b' FROM generate_series(1, 50) g;
	INSERT INTO by_index SELECT 'code ' || g, g FROM generate_series(1, 50) g; INSERT INTO nothing VALUES (1), (2);
	INSERT INTO wide SELECT g, repeat('w', 3000), g FROM generate_series(1, 20) g; INSERT INTO part SELECT g, 'p' FROM generate_series(0, 199) g;
	INSERT INTO child SELECT g, g FROM generate_series(1, 40) g});

my $folder = PostgreSQL::Test::Utils::tempdir();
sub commands
{
	my ($name) = @_;
	for my $block (@{ $blocks{$name} })
	{
		local $ENV{OLD} = $old->connstr('postgres');
		local $ENV{NEW} = $new->connstr('postgres');
		my $rc = IPC::Run::run([ 'bash', '-e', '-o', 'pipefail', '-c', "cd $folder\n$block" ], '>', \my $out, '2>', \my $err);
		local $Test::Builder::Level = $Test::Builder::Level + 1;
		ok($rc, "commands of $name") or diag($block, $out, $err);
		is($err =~ s/^NOTICE: .*\n//mgr, '', "$name: no complaints");
	}
	return;
}

# The changes that applications make in the database that they use at the moment.
my $round = 0;
my $stream = q{
	INSERT INTO keyed (v, n) SELECT 'ROUND', g FROM generate_series(1, 5) g;
	UPDATE keyed SET n = n + 1 WHERE id % 7 = ROUND % 7; UPDATE keyed SET id = id + 100000 WHERE id = 2000 + ROUND; DELETE FROM keyed WHERE id = 1000 + ROUND;
	UPDATE "Key less" SET b = b || ROUND % 10 WHERE a % 5 = ROUND % 5; DELETE FROM "Key less" WHERE a = 20 + ROUND; INSERT INTO "Key less" VALUES (ROUND, NULL);
	UPDATE by_index SET v = v + 1 WHERE v % 3 = 0; UPDATE by_index SET code = code || '!' WHERE code LIKE 'code 1%'; INSERT INTO nothing VALUES (ROUND);
	UPDATE deferred SET v = v + 1 WHERE id % 9 = ROUND % 9; DELETE FROM deferred WHERE id = ROUND;
	UPDATE wide SET n = n + 1; UPDATE wide SET a = repeat('x', 2500 + ROUND) WHERE id = ROUND % 20;
	UPDATE part SET id = (SELECT min(i) FROM generate_series(200 - ROUND, 200 - ROUND) i) WHERE false; UPDATE part SET v = v || 'u' WHERE id % 11 = ROUND % 11;
	INSERT INTO child VALUES (1000 + ROUND, 1); DELETE FROM child WHERE id = ROUND; SELECT nextval('"Other"');
};
sub work
{
	my ($node, $rounds) = @_;
	for (1 .. $rounds)
	{
		$round++;
		$node->safe_psql('postgres', $stream =~ s/ROUND/$round/gr);
	}
	return;
}
my $state = join ';', map { "SELECT count(*), sum(hashtextextended(t::text, 0)) FROM $_ t" } '"Key less"', qw(keyed by_index nothing deferred wide part child);
$state .= q{; SELECT sequencename, last_value FROM pg_sequences ORDER BY 1};

commands('Identity');
commands('Schema');
is($new->safe_psql('postgres', q{SELECT string_agg(DISTINCT amname, ',') FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE c.relkind IN ('r', 'm') AND relnamespace = 'public'::regnamespace}), 'zheap', 'the new tables are zheap');
is($old->safe_psql('postgres', q{SELECT string_agg(DISTINCT amname, ',') FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE c.relkind IN ('r', 'm') AND relnamespace = 'public'::regnamespace}), 'heap', 'the old ones are heap');
work($old, 2);
commands('Copy');
work($old, 10);
commands('Switch');
is($new->safe_psql('postgres', $state), $old->safe_psql('postgres', $state), 'heap to zheap: rows and sequences');
is($new->safe_psql('postgres', 'SELECT * FROM sums'), $new->safe_psql('postgres', 'SELECT sum(n) FROM keyed'), 'the materialized view');
is($new->safe_psql('postgres', q{SELECT nextval('unused')}), '77', 'a sequence that was not used');
work($new, 10);
commands('Back');
is($old->safe_psql('postgres', $state), $new->safe_psql('postgres', $state), 'and back to heap: rows and sequences');
work($old, 1);
for my $node ($old, $new)
{
	is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM pg_replication_slots) + (SELECT count(*) FROM pg_subscription) + (SELECT count(*) FROM pg_publication)'), '0', $node->name . ': nothing is left over');
	no_crash($node);
}
sound($new, '', 'keyed', '"Key less"', qw(by_index nothing deferred wide part1 part2 child sums zundo.undo_log));
$_->stop for $old, $new;

# A standby becomes a subscriber, and its heap table a zheap table while changes wait.
SKIP:
{
	skip 'pg_createsubscriber came with 17', 1 if server_major() < 17;
	my $primary = zundo_node('primary', $conf . "max_replication_slots = 10\n", allows_streaming => 'logical');
	my $tables = 'CREATE TABLE old_AM (id int PRIMARY KEY, v text) USING AM; INSERT INTO old_AM SELECT g, repeat(g::text, 900) FROM generate_series(1, 500) g; UPDATE old_AM SET v = v || 1 WHERE id % 3 = 0';
	$primary->safe_psql('postgres', join ';', 'CREATE EXTENSION zundo', map { $tables =~ s/AM/$_/gr } qw(heap zheap));
	$primary->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	$standby->set_standby_mode();
	$standby->start;
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));
	$standby->stop;
	# rows whose undo is still there when the copy becomes a server of its own
	$primary->safe_psql('postgres', "BEGIN; UPDATE old_$_ SET v = 'rolled back' WHERE id < 50; ROLLBACK") for qw(heap zheap);
	command_ok([ 'pg_createsubscriber', '--pgdata', $standby->data_dir, '--publisher-server', $primary->connstr('postgres'), '--socketdir', $standby->host,
			'--subscriber-port', $standby->port, '--database', 'postgres', '--subscription', 'made', '--publication', 'made' ], 'pg_createsubscriber');
	my $change = q{UPDATE old_AM SET v = v || 'x' WHERE id % 5 = 0; UPDATE old_AM SET id = id + 1000 WHERE id < 20; DELETE FROM old_AM WHERE id % 7 = 0; INSERT INTO old_AM VALUES (0, repeat('n', 5000))};
	$primary->safe_psql('postgres', $change =~ s/AM/$_/gr) for qw(heap zheap);
	$standby->start;
	my $rows = 'SELECT count(*), sum(hashtextextended(t::text, 0)) FROM old_zheap t; SELECT count(*), sum(hashtextextended(t::text, 0)) FROM old_heap t';
	$standby->wait_for_subscription_sync($primary, 'made');
	$primary->wait_for_catchup('made');
	is($standby->safe_psql('postgres', $rows), $primary->safe_psql('postgres', $rows), 'pg_createsubscriber: changes of heap and zheap tables');
	$standby->safe_psql('postgres', 'ALTER SUBSCRIPTION made DISABLE');
	$primary->safe_psql('postgres', "UPDATE old_$_ SET v = 'y' || id; DELETE FROM old_$_ WHERE id % 11 = 0") for qw(heap zheap);
	$standby->safe_psql('postgres', 'ALTER TABLE old_heap SET ACCESS METHOD zheap');
	$standby->safe_psql('postgres', 'ALTER SUBSCRIPTION made ENABLE');
	$primary->wait_for_catchup('made');
	is($standby->safe_psql('postgres', $rows), $primary->safe_psql('postgres', $rows), 'its heap table became zheap while changes waited');
	sound($standby, '', qw(old_heap old_zheap zundo.undo_log));
	no_crash($_) for $primary, $standby;
	$_->stop for $standby, $primary;
}
done_testing();
