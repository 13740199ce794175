# Sessions that keep undo, some without a snapshot or a transaction id: by a lock on a
# table that is to be rolled back. A role without rights can do so. They are named, and with
# zundo.undo_full = cancel the undo is gone within zundo.undo_full_timeout.
# Rules: RESOLVE-2, UNDO-31, UNDO-33.
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);
use ZundoTest;

my $node = zundo_node('holders', <<'C');
zundo.undo_limit = '12MB'
zundo.undo_full = 'error'
zundo.undo_full_timeout = '60s'
zundo.undo_compression = 'none'
zundo.eager_rollback_pages = 0
max_prepared_transactions = 2
C
$node->safe_psql('postgres', <<'S');
CREATE EXTENSION zundo;
CREATE ROLE eve LOGIN; CREATE ROLE app LOGIN;
CREATE SCHEMA eve AUTHORIZATION eve;
GRANT USAGE ON SCHEMA eve TO app;
CREATE TABLE app_t (id int, n int, v text) USING zheap;
INSERT INTO app_t SELECT g, 0, repeat('x', 128) FROM generate_series(1, 2000) g;
ALTER TABLE app_t OWNER TO app;
CREATE PROCEDURE fill(times int) LANGUAGE plpgsql AS $$
	BEGIN FOR i IN 1 .. times LOOP UPDATE app_t SET n = n + 1, v = repeat(md5(n::text || id), 4); COMMIT; END LOOP; END $$;
S
my $conn = $node->connstr('postgres');

# by ROLE: starts a session of this role, which continues after errors.
sub by
{
	my ($role) = @_;
	local $ENV{PGUSER} = $role;
	my $session = session($node);
	$session->{pid} = $session->query_safe('SELECT pg_backend_pid()');
	return $session;
}

# begin SESSION SQL: starts a statement that has to wait; returns when it does.
sub begin
{
	my ($session, $sql) = @_;
	$session->{stderr} = '';
	$session->query_until(qr/go/, "\\echo go\n$sql;\n\\echo :SQLSTATE done\n");
	$node->poll_query_until('postgres', "SELECT state = 'active' AND wait_event_type IN ('Lock', 'Timeout') FROM pg_stat_activity WHERE pid = $session->{pid}");
	return;
}

# result SESSION: waits for the end of that statement; returns SQLSTATE and the errors.
sub result
{
	my ($session) = @_;
	my ($state) = $session->query_until(qr/[0-9A-Z]{5} done/, '') =~ /([0-9A-Z]{5}) done/;
	return ($state, $session->{stderr});
}

# fill TIMES [SETTING]: returns the error that the role app gets when it has updated all of
# its rows this often, and the seconds that it took. The setting is made by a superuser.
sub fill
{
	my ($times, $full) = @_;
	my $start = time;
	$node->safe_psql('postgres', "ALTER ROLE app SET zundo.undo_full = '$full'");
	my $err = ($node->psql('postgres', "CALL fill($times)", connstr => "$conn user=app"))[2];
	return ($err, time - $start);
}

# stall: leaves a rollback in eve's table, in front of which the sessions in do_before have
# queued.
my $eve = by('eve');
$eve->query_safe('CREATE TABLE eve.mine (a int, b int, c text) USING zheap');
$eve->query_safe(q{INSERT INTO eve.mine SELECT g, g, repeat('y', 100) FROM generate_series(1, 5000) g});
sub stall
{
	my ($before) = @_;
	$eve->query_safe('BEGIN; UPDATE eve.mine SET b = b + 1');
	$before->();
	$eve->query_safe('ROLLBACK');
	return;
}
my $pending = q{SELECT count(*) FROM zundo.stat_rollback WHERE waits_for = 'eve.mine'::regclass};

sub room
{
	my ($when) = @_;
	ok($node->poll_query_until('postgres', 'SELECT zundo.undo_bytes_in_use() < 1500000 AND NOT EXISTS (SELECT FROM zundo.stat_rollback)'), "room again after $when");
	is($node->safe_psql('postgres', 'SELECT count(*), bool_and(a = b) FROM eve.mine'), '5000|t', "eve's rows after $when");
	return;
}

# gone SESSION WHY: tests that the session was terminated for the undo that it kept.
sub gone
{
	my ($session, $why) = @_;
	$session->{stderr} = '';
	eval { $session->query('SELECT 1') };
	like($session->{stderr}, qr/FATAL:  terminating connection due to administrator command\n.*DETAIL:  The transaction kept old row versions.*\(zundo\.undo_full = cancel\)/s, $why);
	eval { $session->quit };
	return;
}

# Weaker locks do not stop the rollback: undo, that of other tables included, is given back
# while they are held.
for my $mode ('SHARE', 'SHARE ROW EXCLUSIVE', 'EXCLUSIVE')
{
	my $holder = by('eve');
	stall(sub { begin($holder, "BEGIN; LOCK TABLE eve.mine IN $mode MODE") });
	is((result($holder))[0], '00000', "$mode is granted");
	my ($err) = fill(10, 'error');
	is($err, '', "writers beside $mode have space");
	ok($node->poll_query_until('postgres', 'SELECT zundo.undo_bytes_in_use() < 1500000'), 'undo is given back');
	is($node->safe_psql('postgres', "SELECT mode, granted FROM pg_locks WHERE relation = 'eve.mine'::regclass"),
		($mode =~ s/(\w+)/\u\L$1/gr =~ s/ //gr) . 'Lock|t', '... while the lock is held');
	my $more = '';
	for (1 .. $mode eq 'SHARE' ? 6 : 0)
	{
		# the worker may be slower than a writer
		$more .= (fill(10, 'error'))[0];
		$node->poll_query_until('postgres', 'SELECT zundo.undo_bytes_in_use() < 1500000');
	}
	is($more, '', '... so that writers never reach the limit') if $mode eq 'SHARE';
	$holder->query_safe('COMMIT');
	$holder->quit;
	room($mode);
}

# ACCESS EXCLUSIVE does: the message of a writer names the session that holds it.
my $holder = by('eve');
stall(sub { begin($holder, 'BEGIN; LOCK TABLE eve.mine') });
result($holder);
ok($node->poll_query_until('postgres', "$pending AND state = 'waiting for lock'" =~ s/count\(\*\)/count(*) = 1/r), 'the rollback waits for the lock');
is($node->safe_psql('postgres', "SELECT backend_xmin, backend_xid FROM pg_stat_activity WHERE pid = $holder->{pid}"), '|', 'of a session without snapshot and transaction id');
my ($err) = fill(100, 'error');
my $named = qr/Process $holder->{pid} prevents undo from being discarded: the rollback of transaction \d+ waits for its AccessExclusiveLock on table "mine"\./;
like($err, qr/undo of this database has reached "zundo\.undo_limit"\nDETAIL:[^\n]* $named/, 'error: the session is named');
is($node->safe_psql('postgres', q{SELECT kind, name LIKE 'eve %', pid, relation, mode FROM zundo.stat_horizon LIMIT 1}),
	"lock|t|$holder->{pid}|eve.mine|AccessExclusiveLock", 'and is the first row of stat_horizon');
$node->safe_psql('postgres', q{ALTER ROLE app SET zundo.undo_full_timeout = '1s'});
($err) = fill(1, 'wait');
like($err, qr/Process $holder->{pid} still prevents undo from being discarded after a wait of 1000 ms \("zundo\.undo_full_timeout"\)\. $named/, 'wait: so it is at the end of the wait');
$node->safe_psql('postgres', 'ALTER ROLE app RESET zundo.undo_full_timeout');

# cancel: it waits for its client, and is terminated. A writer whose wait takes longer than
# the timeout fails.
($err) = fill(100, 'cancel');
is($err, '', 'cancel: the writer continues');
gone($holder, 'a session that is terminated gets the reason');
like(slurp_file($node->logfile), qr/LOG:  terminated process $holder->{pid}, which waits for its client and prevents undo of transaction \d+/, 'and so does the log');
room('an idle session');

# Sessions that wait for ACCESS EXCLUSIVE are in front of the worker, which does not queue.
my $reader = by('eve');
$reader->query_safe('BEGIN; LOCK TABLE eve.mine IN ACCESS SHARE MODE');
my @waiters = map { by('eve') } 1 .. 3;
stall(sub { begin($_, 'BEGIN; LOCK TABLE eve.mine') for @waiters });
ok($node->poll_query_until('postgres', q{SELECT count(*) = 3 FROM zundo.stat_horizon WHERE kind = 'lock' AND mode = 'AccessExclusiveLock (waiting)'}), 'sessions that wait are rows of stat_horizon');
($err) = fill(100, 'error');
like($err, qr/waits for its request for AccessExclusiveLock on table "mine"/, 'error: one of them is named');
($err) = fill(100, 'cancel');
is($err, '', 'cancel: the writer continues');
for my $waiter (@waiters)
{
	my ($state, $msg) = result($waiter);
	is($state, '72000', 'a statement that is canceled gets SQLSTATE 72000');
	like($msg, qr/snapshot too old\nDETAIL:  The transaction kept old row versions.*zundo\.undo_full = cancel/s, '... and the reason');
	$waiter->quit;
}
is(ask($reader, 'SELECT 1'), '1', 'a session with a weaker lock is left alone');
$reader->query_safe('COMMIT');
room('waiting sessions');

# A session of an exempt role is named and left alone.
$node->safe_psql('postgres', q{ALTER SYSTEM SET zundo.undo_full_exempt = 'eve'; ALTER ROLE app SET zundo.undo_full_timeout = '3s'});
$node->reload;
$holder = by('eve');
stall(sub { begin($holder, 'BEGIN; LOCK TABLE eve.mine') });
result($holder);
($err) = fill(100, 'cancel');
like($err, qr/Process $holder->{pid}, which is exempt from cancellation \("zundo\.undo_full_exempt"\), still prevents undo/, 'an exempt session is named');
is(ask($holder, 'SELECT 1'), '1', '... and left alone');
$node->safe_psql('postgres', q{ALTER SYSTEM RESET zundo.undo_full_exempt; ALTER ROLE app RESET zundo.undo_full_timeout});
$node->reload;

# A prepared transaction is named and left alone.
$holder->query_safe("PREPARE TRANSACTION 'eve has it'");
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM zundo.stat_horizon WHERE name = 'eve has it' AND kind = 'lock'});
is($node->safe_psql('postgres', q{SELECT kind, name, pid, relation, mode FROM zundo.stat_horizon LIMIT 1}),
	'lock|eve has it||eve.mine|AccessExclusiveLock', 'a prepared transaction is the first row of stat_horizon');
for my $full ('error', 'wait', 'cancel')
{
	($err, my $took) = fill(100, $full);
	like($err, qr/A prepared transaction prevents undo from being discarded: the rollback of transaction \d+ waits for its AccessExclusiveLock on table "mine"/, "$full: a prepared transaction is named");
	cmp_ok($took, '<', 45, '... without a wait for the timeout');
}
crash($node);
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_prepared_xacts"), '1', 'it is there after a restart');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM zundo.stat_horizon WHERE name = 'eve has it' AND kind = 'lock'}), '... and is named');
$node->safe_psql('postgres', "ROLLBACK PREPARED 'eve has it'");
$eve = by('eve');
room('a prepared transaction');

# Sessions that lock the table one after the other do not keep the worker away for ever.
my $script = PostgreSQL::Test::Utils::tempdir() . '/turns.sql';
append_to_file($script, "BEGIN; LOCK TABLE eve.mine; SELECT pg_sleep(0.05); COMMIT;\n" x 3000);
my @crowd = map { by('eve') } 1 .. 4;
stall(sub {
	$_->query_until(qr/go/, "\\echo go\n\\i $script\n") for @crowd;
	$node->poll_query_until('postgres', q{SELECT count(*) = 4 FROM pg_locks WHERE NOT granted}) });
($err) = fill(100, 'cancel');
is($err, '', 'cancel: the writer continues beside sessions that take turns');
$node->safe_psql('postgres', q{SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE usename = 'eve' AND state <> 'idle'});
$_->{run}->kill_kill for @crowd;
room('sessions that took turns');

# Row locks that are recorded in undo of an older transaction keep that undo.
$eve->query_safe('CREATE TABLE eve.locked (id int PRIMARY KEY, b int) USING zheap; CREATE INDEX ON eve.locked (b)');
$eve->query_safe('INSERT INTO eve.locked VALUES (1, 1), (2, 2)');
$holder = by('eve');
$eve->query_safe('BEGIN; UPDATE eve.locked SET b = 3 WHERE id = 2');
$holder->query_safe('BEGIN; SELECT FROM eve.locked WHERE id = 1 FOR KEY SHARE');
$eve->query_safe('UPDATE eve.locked SET b = 4 WHERE id = 1; COMMIT');
($err) = fill(100, 'error');
like($err, qr/(?:Process|Transaction \d+ of process) $holder->{pid} prevents undo from being discarded/, 'error: the session that has locked a row is named');
is($node->safe_psql('postgres', q{SELECT kind FROM zundo.stat_horizon LIMIT 1}), 'row locks', '... which keeps older undo');
# The statement that ends the holder has a snapshot that is as old as the holder's transaction
# id, so its own space may be missing; the next one has it.
($err) = fill(100, 'cancel');
like($err, qr/^$|DETAIL:[^\n]* This transaction itself prevents undo from being discarded/, 'cancel: the writer continues, or its snapshot is as old');
gone($holder, 'the session that has locked the row is terminated');
($err) = fill(100, 'cancel');
is($err, '', '... and the next writer continues');
room('row locks');

# A function that catches the cancellation.
$holder = by('eve');
begin($holder, 'BEGIN ISOLATION LEVEL REPEATABLE READ; DO $$ BEGIN LOOP BEGIN PERFORM count(*) FROM eve.mine; PERFORM pg_sleep(100); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$');
($err) = fill(100, 'cancel');
is($err, '', 'cancel: the writer continues');
ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $holder->{pid}"), 'a session that catches the cancellation is terminated');
like(slurp_file($node->logfile), qr/LOG:  terminated process $holder->{pid}, which continues after cancellation/, '... as the log says');
$holder->{run}->kill_kill;
room('a function that catches errors');

# Many sessions, each with an older snapshot than the next.
@crowd = map { my $session = by('eve'); $session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM eve.mine LIMIT 1'); fill(1, 'error'); $session } 1 .. 12;
($err) = fill(100, 'cancel');
is($err, '', 'cancel: the writer continues');
$_->{run}->kill_kill for @crowd;
room('many sessions');

# Autovacuum evaluates expressions of indexes.
$eve->query_safe(q{CREATE FUNCTION eve.slow(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN IF current_setting(''application_name'') = '''' THEN PERFORM pg_sleep(1000); END IF; RETURN i; END'});
$eve->query_safe('CREATE TABLE eve.analyzed (a int) USING heap WITH (autovacuum_analyze_threshold = 1, autovacuum_analyze_scale_factor = 0); CREATE INDEX ON eve.analyzed (eve.slow(a))');
$eve->query_safe('INSERT INTO eve.analyzed SELECT generate_series(1, 100)');
$node->safe_psql('postgres', 'ALTER SYSTEM SET autovacuum_naptime = 1');
$node->safe_psql('postgres', 'ALTER SYSTEM SET autovacuum = on');
$node->reload;
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'autovacuum worker' AND wait_event = 'PgSleep'}), 'a function stops an analysis by autovacuum');
($err) = fill(100, 'cancel');
is($err, '', 'cancel: the writer continues');
like(slurp_file($node->logfile), qr/ERROR:  (?:snapshot too old|canceling autovacuum task)\n(?:[^\n]*\n){1,6}\tautomatic analyze of table "postgres\.eve\.analyzed"/, 'the analysis is canceled');
$node->safe_psql('postgres', 'ALTER SYSTEM SET autovacuum = off');
$node->reload;
$eve->query_safe('DROP TABLE eve.analyzed');
room('an analysis');

sound($node, '', qw(app_t eve.mine eve.locked zundo.undo_log));
$eve->quit;
no_crash($node, qr/is damaged|DATA_CORRUPTED/);
$node->stop;
done_testing();
