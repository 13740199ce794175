# Data checksums that are switched on and off while zheap tables are written
# (19): a worker of the server writes every page of every relation again, those
# of the undo log too. Pages that zundo writes past the buffers have checksums
# too.
# newest
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

plan skip_all => 'checksums can be switched on while the server runs from 19 on' if server_major() < 19;

my $node = zundo_node('checksums', "autovacuum = on\n", no_data_checksums => 1);
sql('CREATE EXTENSION zundo');
is(sql('SHOW data_checksums'), 'off', 'no checksums at first');
sql(q{CREATE TABLE t (id int PRIMARY KEY, n int, pad text) USING zheap; INSERT INTO t SELECT g, 0, repeat('p', 200) FROM generate_series(1, 3000) g;
	CREATE TABLE history (id int, n int) USING zheap; CREATE UNLOGGED TABLE u (id int) USING zheap; INSERT INTO u SELECT generate_series(1, 1000)});

# load: transactions that update, roll back, insert
my $script = PostgreSQL::Test::Utils::tempdir() . '/load.sql';
append_to_file($script, <<'S');
\set id random(1, 3000)
BEGIN;
UPDATE t SET n = n + 1 WHERE id = :id;
INSERT INTO history VALUES (:id, 1);
SAVEPOINT s;
UPDATE t SET pad = pad || 'x', n = n + 100 WHERE id = :id;
ROLLBACK TO s;
END;
S
my $pgbench = IPC::Run::start(['pgbench', '-n', '-c', '3', '-T', '600', '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres'], '>', \my $out, '2>', \my $err);

sub switched
{
	my ($how, $to) = @_;
	sql("SELECT pg_${how}_data_checksums()");
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($node->poll_query_until('postgres', "SELECT setting = '$to' FROM pg_settings WHERE name = 'data_checksums'"), "$how: checksums are $to");
	return;
}

my $old = session($node);
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
my $seen = ask($old, 'SELECT sum(n) FROM t');
switched('enable', 'on');
is(ask($old, 'SELECT sum(n) FROM t'), $seen, 'an old snapshot sees what it saw');
# rewrites write pages past the buffers, old versions that are needed included
ask($old, 'COMMIT');
sql('VACUUM FULL t');
switched('disable', 'off');
switched('enable', 'on');
my $count = sql('SELECT count(*) FROM history');
ok($node->poll_query_until('postgres', "SELECT count(*) > $count + 100 FROM history"), 'the load continues');
is(sql('SELECT sum(checksum_failures) FROM pg_stat_database'), 0, 'no page was wrong');

# kill -9 and replay; then the server is stopped, and every page of every file is checked
$node->stop('immediate');
$pgbench->finish;
$node->start;
is(sql('SHOW data_checksums'), 'on', 'checksums are on after a crash');
is(sql('SELECT sum(n) FROM t'), sql('SELECT count(*) FROM history'), 'every committed change is there once');
sound($node, '', qw(t history u zundo.undo_log));
$old->quit;
$node->stop('fast');
command_ok(['pg_checksums', '--check', '-D', $node->data_dir], 'every page of every file has its checksum');
$node->start;
is(sql('SELECT count(*) FROM u'), 0, 'the unlogged table is empty after the crash');
no_crash($node);
done_testing();
