# Sessions are terminated, canceled and timed out at random moments under load.
# No balance is lost, no lock remains, and every page passes zundo.check.
# Rules: DML-1.
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep time);
use ZundoTest;

my $seconds = $ENV{ZUNDO_TERMINATE_SECONDS} || 8;
my $seed = $ENV{ZUNDO_SEED} || time;
srand($seed);
note("seed $seed");

my $node = zundo_node('terminate', <<'C');
max_connections = 50
zundo.eager_rollback_pages = 4
autovacuum_naptime = 1s
log_min_messages = error
autovacuum = on
C
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE acc (id int PRIMARY KEY, n int, t text) USING zheap;
	CREATE INDEX ON acc (n);
	CREATE TABLE hist (id bigserial, a int, b int) USING zheap;
	INSERT INTO acc SELECT g, 1000, '' FROM generate_series(1, 500) g;
});
my %scripts = (
	move => q{
\set a random(1, 500)
\set b random(1, 500)
BEGIN;
UPDATE acc SET n = n - 1 WHERE id = :a;
SAVEPOINT s;
UPDATE acc SET t = repeat('x', (:b % 300)) WHERE id = :a;
UPDATE acc SET n = n - 5 WHERE id = :b;
ROLLBACK TO s;
UPDATE acc SET n = n + 1 WHERE id = :b;
INSERT INTO hist (a, b) VALUES (:a, :b);
COMMIT;
},
	bulk => q{
\set a random(1, 400)
BEGIN;
SELECT count(*) FROM (SELECT id FROM acc WHERE id BETWEEN :a AND :a + 100 ORDER BY id FOR UPDATE) x;
UPDATE acc SET n = n + 1, t = 'bulk' WHERE id BETWEEN :a AND :a + 50;
UPDATE acc SET n = n - 1 WHERE id BETWEEN :a AND :a + 50;
DELETE FROM hist WHERE id % 7 = :a % 7;
COMMIT;
},
	abort => q{
\set a random(1, 500)
BEGIN;
INSERT INTO hist (a, b) SELECT g, 0 FROM generate_series(1, 3000) g;
UPDATE acc SET n = 0, id = -id WHERE id BETWEEN :a AND :a + 20;
ROLLBACK;
},
	timeout => q{
SET statement_timeout = 3;
UPDATE acc SET n = n + 0, t = t || 'y';
RESET statement_timeout;
});
my $connstr = $node->connstr('postgres');
my $dir = PostgreSQL::Test::Utils::tempdir();
my @bench;
for my $name (sort keys %scripts)
{
	append_to_file("$dir/$name.sql", $scripts{$name});
	for my $i (1 .. ($name eq 'move' ? 3 : 2))
	{
		my ($in, $out) = ('', '');
		# a client ends when its session is terminated, so the shell starts it again
		push @bench, IPC::Run::start(
			[ 'sh', '-c', "until [ -e '$dir/end' ]; do PGAPPNAME=load pgbench -n -T $seconds --max-tries=1 -c 1 -f '$dir/$name.sql' \"$connstr\" >/dev/null 2>&1; done" ],
			'<', \$in, '>&', \$out);
	}
}
my ($terminated, $canceled, $end) = (0, 0, time + $seconds);
# a busy machine needs longer for this
while (time < $end || $terminated <= 5 && time < $end + $PostgreSQL::Test::Utils::timeout_default)
{
	usleep(int(rand(60_000)));
	my $how = rand() < 0.5 ? 'pg_terminate_backend' : 'pg_cancel_backend';
	my ($rc, $n) = $node->psql('postgres',
		"SELECT count($how(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE application_name = 'load' ORDER BY random() LIMIT 2) x");
	$how =~ /term/ ? ($terminated += $n || 0) : ($canceled += $n || 0) if $rc == 0;
}
append_to_file("$dir/end", '');
for (@bench) { $_->kill_kill(grace => 1) }
cmp_ok($terminated, '>', 5, "sessions were terminated ($terminated) and canceled ($canceled)");
ok( $node->poll_query_until('postgres',
		q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'load'}),
	'all sessions have ended');
cmp_ok($node->safe_psql('postgres', q{SELECT nextval('hist_id_seq')}), '>', 1000, 'there was load');
is($node->safe_psql('postgres', 'SELECT count(*), sum(n), count(DISTINCT abs(id)) FROM acc'), '500|500000|500', 'no balance is lost');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*), sum(n) FROM acc WHERE n > -2000000000'),
	'500|500000', 'the index agrees');
is($node->safe_psql('postgres', 'SELECT count(*) FROM hist WHERE b = 0'), '0', 'nothing of the aborted insertions');
is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT id FROM acc FOR UPDATE NOWAIT) x'), '500', 'no row stays locked');
ok( $node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM zundo.stat_rollback}), 'no rollback is left undone');
is($node->safe_psql('postgres', "SELECT * FROM zundo.check('$_')"), '', "zundo.check of $_") for qw(acc hist zundo.undo_log);
$node->safe_psql('postgres', 'VACUUM acc, hist');
ok( $node->poll_query_until('postgres', q{SELECT zundo.discard() >= 0 AND zundo.undo_bytes_in_use() < 1000000}), 'undo is given back');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal (?:4|6|7|8|11)/, 'no crash in the log');
$node->stop;
done_testing();
