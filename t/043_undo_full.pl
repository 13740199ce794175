# zundo.undo_full: what a writer does when zundo.undo_limit is reached: error,
# wait, cancel.
# Rules: UNDO-31, UNDO-33.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('full', <<'C', allows_streaming => 1);
zundo.undo_limit = '8MB'
zundo.undo_full = 'wait'
zundo.undo_compression = 'none'
zundo.undo_full_exempt = ''
zundo.eager_rollback_pages = 1024
max_prepared_transactions = 2
deadlock_timeout = 100ms
wal_receiver_status_interval = 1
C
$node->safe_psql('postgres', <<'S');
CREATE EXTENSION zundo;
CREATE ROLE small_user;
CREATE TABLE z (id int PRIMARY KEY, n int, v text) USING zheap;
CREATE TABLE w (id int PRIMARY KEY, n int, v text) USING zheap;
CREATE TABLE other (id int PRIMARY KEY, n int) USING zheap;
CREATE PROCEDURE fill() LANGUAGE plpgsql AS $$
	BEGIN
		-- with undo_full = 'error': as often as it goes
		LOOP UPDATE z SET n = n + 1, v = repeat(md5(n::text || id), 4); COMMIT; END LOOP;
	END $$;
S

# Each of the sessions gets a log with an extent before the limit is reached. They
# write at the same time; otherwise one would continue the log of another.
my %known;
sub known_session
{
	my $session = session($node);
	$session->{pid} = $session->query_safe('SELECT pg_backend_pid()');
	$known{ $session->{pid} } = $session;
	my @live = map { $known{$_} } split(/\n/, $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE pid IN (${\join(', ', keys %known)})"));
	$_->query_safe("BEGIN; INSERT INTO other VALUES (-$_->{pid}, 0) ON CONFLICT (id) DO UPDATE SET n = 0") for @live;
	$_->query_safe('COMMIT') for @live;
	return $session;
}
$node->safe_psql('postgres', 'INSERT INTO other VALUES (0, 0), (1, 0)');
my ($filler, $writer, $second, $old) = map { known_session() } 1 .. 4;
$filler->query_safe(q{SET zundo.undo_full = 'error'; INSERT INTO z SELECT g, 0, repeat('x', 128) FROM generate_series(1, 4000) g; INSERT INTO w SELECT g, 0, repeat('x', 128) FROM generate_series(1, 4000) g});

# run SESSION SQL: runs the statement to its end; returns SQLSTATE and stderr.
sub run
{
	my ($session, $sql) = @_;
	$session->{stderr} = '';
	my $out = $session->query("$sql;\n\\echo :SQLSTATE");
	my $err = $session->{stderr};
	$session->{stderr} = '';
	my ($state) = $out =~ /([0-9A-Z]{5})\s*$/;
	return wantarray ? ($state, $err) : $state;
}

# start SESSION SQL: runs the statement and returns when it waits for free undo. finish
# SESSION: waits for the end of that statement; returns what run returns.
sub start
{
	my ($session, $sql) = @_;
	$session->{stderr} = '';
	$session->query_until(qr/go/, "\\echo go\n$sql;\n\\echo :SQLSTATE done\n");
	ok( $node->poll_query_until(
			'postgres',
			"SELECT wait_event_type = 'Extension' AND wait_event IN ('Extension', 'ZundoUndoFull') FROM pg_stat_activity WHERE pid = $session->{pid}"),
		"waits: $sql");
	return;
}

sub finish
{
	my ($session) = @_;
	my $out = $session->query_until(qr/[0-9A-Z]{5} done/, '');
	my ($state) = $out =~ /([0-9A-Z]{5}) done/;
	my $err = $session->{stderr};
	$session->{stderr} = '';
	return wantarray ? ($state, $err) : $state;
}

# fill: uses up all undo space, by transactions younger than the one that keeps
# undo.
sub fill
{
	my ($state) = run($filler, 'CALL fill()');
	is($state, '53400', 'the undo log is full');
	return;
}

# room: checks that there is space again, and that all rows are there.
sub room
{
	my ($when) = @_;
	ok($node->poll_query_until('postgres', 'SELECT zundo.undo_bytes_in_use() < 2000000 AND NOT EXISTS (SELECT FROM zundo.stat_rollback)'), "room again after $when");
	is($node->safe_psql('postgres', qq{SELECT count(*), count(DISTINCT n), bool_and(v LIKE md5((n - 1)::text || id) || '%' OR n = 0) FROM $_}),
		'4000|1|t', "rows of $_ after $when") for qw(z w);
	return;
}
my $hold = 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT sum(n) FROM other';
my $small = 'UPDATE w SET n = n + 1, v = repeat(md5(n::text || id), 4)';

# zundo.undo_full = error
is(run($old, $hold), '00000', 'a snapshot is taken');
my ($state, $err) = run($filler, 'CALL fill()');
is($state, '53400', 'error');
like($err, qr/undo of this database has reached "zundo\.undo_limit"/, 'error: its message');

# zundo.undo_full = wait: until the old transaction ends, which sees the same rows as
# before meanwhile
start($writer, $small);
is($old->query_safe('SELECT count(DISTINCT n) FROM z'), '1', 'the old snapshot still reads');
$old->query_safe('COMMIT');
is(finish($writer), '00000', 'wait: the writer continues');
room('wait');

# a wait that ends without space: by the timeout, a cancel, a termination
run($old, $hold);
fill();
$writer->query_safe("SET zundo.undo_full_timeout = '100ms'");
($state, $err) = run($writer, $small);
is($state, '53400', 'wait: too long');
like($err, qr/Process $old->{pid} still prevents undo from being discarded after a wait of 100 ms/, 'wait: the error names the session that keeps undo');
$writer->query_safe("RESET zundo.undo_full_timeout; SET statement_timeout = '100ms'");
($state, $err) = run($writer, $small);
is($state, '57014', 'wait: statement_timeout');
$writer->query_safe("SET statement_timeout = 0");
start($writer, $small);
$node->safe_psql('postgres', "SELECT pg_cancel_backend($writer->{pid})");
is(finish($writer), '57014', 'wait: canceled');

# Waiting is useless if the session that keeps the undo waits for the writer.
$second->query_safe('BEGIN; UPDATE other SET n = 1 WHERE id = 1');
$old->query_until(qr/go/, "\\echo go\nSELECT * FROM other WHERE id = 1 FOR UPDATE;\n\\echo :SQLSTATE done\n");
($state, $err) = run($second, $small);
is($state, '53400', 'wait: in a circle');
like($err, qr/Process $old->{pid}, which prevents undo from being discarded, waits for this transaction/, 'wait: the error names the session that waits');
$second->query_safe('ROLLBACK');
is(finish($old), '00000', 'the waiting session continues');

start($writer, $small);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($writer->{pid})");
ok($node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $writer->{pid})"), 'wait: terminated');
eval { $writer->quit };
$old->query_safe('COMMIT');
room('errors');
$writer = known_session();

# Waiting is useless if our own snapshot, our own changes, a prepared transaction or a
# slot keeps the undo.
run($writer, $hold);
fill();
($state, $err) = run($writer, $small);
is($state, '53400', 'hopeless: own snapshot');
like($err, qr/This transaction itself prevents undo from being discarded/, 'hopeless: own snapshot is named');
$writer->query_safe('ROLLBACK');
room('own snapshot');

($state, $err) = run($writer, 'DO $$ BEGIN LOOP UPDATE w SET v = v || repeat(md5(id::text), 10); END LOOP; END $$');
is($state, '53400', 'hopeless: own changes');
like($err, qr/This transaction (?:itself prevents undo from being discarded|has written . MB itself)/, 'hopeless: own changes are named');
room('own changes');

$writer->query_safe("BEGIN; UPDATE other SET n = 3 WHERE id = 1; PREPARE TRANSACTION 'p'");
fill();
($state, $err) = run($writer, $small);
is($state, '53400', 'hopeless: a prepared transaction');
like($err, qr/Prepared transaction \d+ prevents undo from being discarded/, 'hopeless: the prepared transaction is named');
$writer->query_safe("ROLLBACK PREPARED 'p'");
room('prepared transaction');

$node->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->append_conf('postgresql.conf', "primary_slot_name = 's'\nhot_standby_feedback = on\n");
$node->safe_psql('postgres', "SELECT pg_create_physical_replication_slot('s')");
$standby->start;
ok($node->poll_query_until('postgres', 'SELECT xmin IS NOT NULL FROM pg_replication_slots'), 'a standby has its slot keep undo');
my $reader = $standby->background_psql('postgres', on_error_stop => 0);
run($reader, $hold);
fill();
($state, $err) = run($writer, $small);
is($state, '53400', 'hopeless: a replication slot');
like($err, qr/A replication slot with xmin \d+ prevents undo from being discarded/, 'hopeless: the slot is named');
is($reader->query_safe('SELECT count(DISTINCT n) FROM z'), '1', 'the standby still reads');
$reader->quit;
$standby->stop;
$node->poll_query_until('postgres', 'SELECT NOT active FROM pg_replication_slots');
$node->safe_psql('postgres', "SELECT pg_drop_replication_slot('s')");
room('a slot');

# Writers that wait for each other: the one with the oldest snapshot fails, then
# the other continues.
run($writer, $hold);
fill();
start($second, $small);
($state, $err) = run($writer, $small);
is($state, '53400', 'two writers: one fails');
like($err, qr/This transaction itself prevents undo from being discarded/, 'two writers: because of its own snapshot');
$writer->query_safe('ROLLBACK');
is(finish($second), '00000', 'two writers: the other one continues');
room('two writers');

# A transaction that was writing when our statement began has made our snapshot
# old.
$old->query_safe('BEGIN; UPDATE other SET n = 4 WHERE id = 1');
fill();
($state, $err) = run($writer, $small);
is($state, '53400', 'hopeless: a snapshot as old as a transaction');
like($err, qr/Transaction \d+ of process $old->{pid} prevents undo from being discarded, and so does the snapshot of this statement/, 'hopeless: both are named');
$old->query_safe('ROLLBACK');
room('a transaction as old as the snapshot');

# cancel: the statement of the session that keeps undo, also where it would
# catch errors, but of no other session
like((run($writer, 'SET ROLE small_user; SET zundo.undo_full = cancel'))[1], qr/permission denied/, 'cancel is not for everybody');
$writer->query_safe("RESET ROLE; SET zundo.undo_full = 'cancel'");
for my $statement ('SELECT pg_sleep(100)', 'DO $$ BEGIN PERFORM pg_sleep(100); EXCEPTION WHEN OTHERS THEN NULL; END $$')
{
	run($old, $hold);
	$old->query_until(qr/go/, "\\echo go\n$statement;\n\\echo :SQLSTATE done\n");
	asleep($node, $old->{pid});
	fill();
	my $number = $second->query_safe("$hold");
	$second->query_until(qr/go/, "\\echo go\nSELECT pg_sleep(100);\n\\echo :SQLSTATE done\n");
	asleep($node, $second->{pid});
	is(run($writer, $small), '00000', 'cancel: the writer continues');
	($state, $err) = finish($old);
	is($state, '72000', "cancel: SQLSTATE of $statement");
	like($err, qr/snapshot too old.*zundo\.undo_full = cancel/s, 'cancel: its message');
	is($node->safe_psql('postgres', "SELECT state, wait_event FROM pg_stat_activity WHERE pid = $second->{pid}"), 'active|PgSleep', 'cancel: not of others');
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($second->{pid})");
	is(finish($second), '57014', 'a session canceled for another reason gets that reason');
	$_->query_safe('ROLLBACK') for $old, $second;
	room('cancel');
}
like(slurp_file($node->logfile), qr/LOG:  canceled the statement of process $old->{pid}/, 'cancel: the log says so');
is(run($old, 'SELECT count(*) FROM z'), '00000', 'cancel: the session lives');

# cancel: a session that does not keep the undo is not canceled
$filler->query_safe("BEGIN; UPDATE other SET n = 3 WHERE id = 1; PREPARE TRANSACTION 'p'");
run($old, $hold);
fill();
($state, $err) = run($writer, $small);
is($state, '53400', 'cancel: hopeless');
like($err, qr/Prepared transaction \d+ prevents undo from being discarded/, 'cancel: the prepared transaction is named');
is($old->query_safe('SELECT count(DISTINCT n) FROM z'), '1', 'cancel: a younger snapshot still reads');
$_->query_safe('ROLLBACK') for $old;
$filler->query_safe("ROLLBACK PREPARED 'p'");
room('cancel beside a prepared transaction');

# cancel: an idle session is terminated; if our snapshot is as old as its
# transaction, this helps the next statement
for my $idle ($hold, 'BEGIN; UPDATE other SET n = 6')
{
	run($old, $idle);
	fill();
	if ($idle ne $hold)
	{
		($state, $err) = run($writer, $small);
		is($state, '53400', 'cancel: too late for this statement');
		like($err, qr/This transaction itself prevents undo from being discarded/, 'cancel: too late for its snapshot');
	}
	is(run($writer, $small), '00000', 'cancel: the writer continues');
	ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $old->{pid}"), 'cancel: a session that is idle in a transaction is terminated');
	like(slurp_file($node->logfile), qr/LOG:  terminated process $old->{pid}, which waits for its client and prevents undo/, 'cancel: the log says so');
	eval { $old->quit };
	room('after the idle session was terminated');
	$old = known_session();
}

sound($node, '', qw(z w other zundo.undo_log));
$_->quit for $filler, $writer, $second, $old;
no_crash($node, qr/WARNING|is damaged|DATA_CORRUPTED/);
$node->stop;
done_testing();
