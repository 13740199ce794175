# How far `oldest` advances and what is discarded: transactions with younger
# subtransactions, and several logs whose transactions overlap so that there is
# always an older snapshot.
# Rules: UNDO-7, UNDO-18.
use strict;
use warnings;
use Test::More;
use ZundoTest;

my $node = zundo_node('discard', <<'C');
max_worker_processes = 0
C
$node->safe_psql('postgres', <<'S');
CREATE EXTENSION zundo;
CREATE TABLE z (id int PRIMARY KEY, v int) USING zheap;
CREATE TABLE big (id int, v text) USING zheap;
INSERT INTO z SELECT g, 0 FROM generate_series(1, 20) g;
INSERT INTO big SELECT g, repeat('x', 200) FROM generate_series(1, 10000) g;
S

# One process makes all discard passes, so that it remembers what it has read.
my $discarder = $node->background_psql('postgres', on_error_stop => 1);
my ($a, $b) = map { $node->background_psql('postgres', on_error_stop => 1) } 1 .. 2;
my $oldest = 'SELECT max(oldest_xid::text::bigint) FROM zundo.stat_undo';
$discarder->query_safe('SELECT zundo.discard()');

# A subtransaction is younger than a running transaction, its top-level one is older.
$b->query_safe("BEGIN; INSERT INTO big VALUES (0, 'a')");
$a->query_safe('BEGIN; SELECT txid_current()');
$b->query_safe('SAVEPOINT s; UPDATE z SET v = 1 WHERE id = 1; DELETE FROM z WHERE id = 2; RELEASE s');
$b->query_safe("UPDATE big SET v = repeat('y', 200); COMMIT");
for my $round (1 .. 2)
{
	$discarder->query_safe('SELECT zundo.discard()');
	# takes the extents that were freed
	$b->query_safe("UPDATE big SET v = repeat('$round', 200)") for 1 .. 2;
}
is($node->safe_psql('postgres', "SELECT * FROM zundo.check('z')"), '', 'zundo.check');
$node->safe_psql('postgres', "SET statement_timeout = '60s'; CREATE INDEX ON z (v); VACUUM FULL z");
$node->safe_psql('postgres', 'BEGIN ISOLATION LEVEL SERIALIZABLE; UPDATE z SET v = 2 WHERE id = 1; COMMIT');
is($node->safe_psql('postgres', 'SELECT id, v FROM z WHERE id < 4 ORDER BY id'), "1|2\n3|0", 'rows');
$a->query_safe('COMMIT');

# Transactions of two logs in turn, all of each log small enough to be merged.
# Each session has a log of its own: both write at the same time first.
$_->query_safe('BEGIN; INSERT INTO big VALUES (0)') for $a, $b;
$_->query_safe('COMMIT') for $a, $b;
my ($first, $second) = map { $node->background_psql('postgres', on_error_stop => 1) } 1 .. 2;
$first->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
for (1 .. 15) { $_->query_safe('UPDATE z SET v = v + 1 WHERE id = 5') for $a, $b; }
$second->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
my $xmin = $second->query_safe('SELECT pg_snapshot_xmin(pg_current_snapshot())');
for (1 .. 15) { $_->query_safe('UPDATE z SET v = v + 1 WHERE id = 5') for $a, $b; }
$discarder->query_safe('SELECT zundo.discard()');
$first->query_safe('COMMIT');
$discarder->query_safe('SELECT zundo.discard()');
is($node->safe_psql('postgres', $oldest), $xmin, 'oldest gets to the oldest snapshot');
# the undo of the last 30 transactions is not before oldest, so it is still there (UNDO-7)
is($second->query_safe('SELECT v FROM z WHERE id = 5'), '30', 'the oldest snapshot sees its version');
is($node->safe_psql('postgres', 'SELECT v FROM z WHERE id = 5'), '60', 'other sessions see the newest version');
$second->query_safe('COMMIT');
sound($node, '', qw(z zundo.undo_log));
$_->quit for $first, $second, $a, $b, $discarder;
crash($node);
is($node->safe_psql('postgres', 'SELECT zundo.discard() >= 0; SELECT v FROM z WHERE id = 5'), "t\n60", 'after a crash');
sound($node, '', qw(z zundo.undo_log));
# zundo.stat_horizon names what counts for `oldest`: not the snapshot of a VACUUM, but a
# setting of 15.
my $vacuum = $node->background_psql('postgres');
my $pid = $vacuum->query_safe('SELECT pg_backend_pid()');
$vacuum->query_until(qr/begins/, "SET vacuum_cost_delay = '100ms'; SET vacuum_cost_limit = 1;\n\\echo begins\nVACUUM big;\n");
ok($node->poll_query_until('postgres', "SELECT backend_xmin IS NOT NULL AND EXISTS (SELECT FROM pg_stat_progress_vacuum p WHERE p.pid = a.pid)
	FROM pg_stat_activity a WHERE pid = $pid"), 'VACUUM has a snapshot');
is($node->safe_psql('postgres', 'SELECT kind, name FROM zundo.stat_horizon'), '', 'which holds nothing back');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
$vacuum->{run}->kill_kill;
if (server_major() < 16)
{
	$node->append_conf('postgresql.conf', 'vacuum_defer_cleanup_age = 10');
	$node->reload;
	ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM zundo.stat_horizon
		WHERE kind = 'setting' AND name = 'vacuum_defer_cleanup_age' AND age BETWEEN 10 AND 12}), 'vacuum_defer_cleanup_age is named');
}
no_crash($node);
$node->stop;
done_testing();
