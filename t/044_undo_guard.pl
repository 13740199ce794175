# The limit of undo: which sessions zundo.undo_full = cancel does not cancel,
# the errors of the others, the part that is reserved for superusers, and the
# log messages about large or old undo.
# Rules: UNDO-33.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('guard', <<'C');
zundo.undo_limit = '8MB'
zundo.undo_full = 'cancel'
zundo.undo_full_timeout = '1500ms'
zundo.undo_compression = 'none'
zundo.log_undo_size = '3MB'
zundo.log_undo_age = '1s'
zundo.log_disk_free = 100
C
$node->safe_psql('postgres', <<'S');
CREATE EXTENSION zundo;
CREATE ROLE writer LOGIN; CREATE ROLE keeper LOGIN; CREATE ROLE backup; CREATE ROLE dumper LOGIN IN ROLE backup;
GRANT ALL ON SCHEMA public TO PUBLIC;
CREATE TABLE theirs (id int PRIMARY KEY, n int) USING zheap;
INSERT INTO theirs VALUES (1, 0);
CREATE TABLE mine (id int, n int, v text) USING zheap;
INSERT INTO mine SELECT g, 0, repeat('x', 128) FROM generate_series(1, 2000) g;
GRANT ALL ON mine, theirs TO PUBLIC;
CREATE PROCEDURE fill(times int) LANGUAGE plpgsql AS $$
	BEGIN FOR i IN 1 .. times LOOP UPDATE mine SET n = n + 1, v = repeat(md5(n::text || id), 4); COMMIT; END LOOP; END $$;
SELECT zundo.discard();
S
my $conn = $node->connstr('postgres');

# write_as_writer TIMES: returns the error that the role writer gets when it has updated
# all of its rows this often.
sub write_as_writer
{
	my ($times) = @_;
	return ($node->psql('postgres', "CALL fill($times)", connstr => "$conn user=writer"))[2];
}

# keep ROLE: starts a session of the role that has a snapshot and does nothing.
sub keep
{
	my ($role) = @_;
	local $ENV{PGUSER} = $role;
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	$session->{pid} = $session->query_safe('SELECT pg_backend_pid()');
	$session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT sum(n) FROM mine');
	return $session;
}

# patient SECONDS: how long writers wait from now on. A session that is canceled has a
# second to end, and then the worker has to come.
sub patient
{
	my ($seconds) = @_;
	$node->safe_psql('postgres', "ALTER ROLE writer SET zundo.undo_full_timeout = '${seconds}s'");
	return;
}

sub room
{
	ok($node->poll_query_until('postgres', 'SELECT zundo.undo_bytes_in_use() < 500000'), 'room again');
	return;
}

# A session of a superuser is not canceled by default; then superusers still have some
# space, other roles have none.
my $superuser = $node->safe_psql('postgres', 'SELECT current_user');
my $log = -s $node->logfile;
my $kept = keep($superuser);
my $err = write_as_writer(100);
like($err, qr/undo of this database has reached "zundo\.undo_limit"/, 'a writer that must not cancel fails');
like($err, qr/The last sixteenth is for superusers\. Process $kept->{pid}, which is exempt from cancellation \("zundo\.undo_full_exempt"\), still prevents undo/, 'and its error says why');
is($kept->query('SELECT sum(n) FROM mine'), '0', "a superuser's session is left alone");
like(($node->psql('postgres', 'UPDATE theirs SET n = n + 1', connstr => "$conn user=writer"))[2], qr/has reached "zundo\.undo_limit"/, 'no room for others');
is(($node->psql('postgres', 'UPDATE theirs SET n = n + 1'))[2], '', 'but for superusers');

# The worker has logged the size of undo more than once.
$node->wait_for_log(qr/LOG:  \d+ MB of undo are kept in database "postgres"/, $log);
$node->wait_for_log(qr/LOG:  undo has been kept in database "postgres" for \d+ s/, $log);
my $lines = substr(slurp_file($node->logfile), $log);
my ($size, $by_it) = $lines =~ /LOG:  (\d+) MB of undo are kept in database "postgres"\n[^\n]*DETAIL:  Process $kept->{pid} prevents undo from being discarded with a snapshot with xmin \d+\. Its role is "\Q$superuser\E", its application "044_undo_guard\.pl"\. It keeps (\d+) kB\.\n[^\n]*HINT:  See zundo\.stat_horizon/;
ok(defined $size && $size >= 3, 'the line about size names what keeps undo');
cmp_ok($by_it, '>', 0.7 * 1024 * $size, 'and how much that is');
like(slurp_file($node->logfile), qr/LOG:  disk of the undo log of database "postgres" has \d+% of its space left\n/, 'a line about the disk');
my ($age) = $lines =~ /LOG:  undo has been kept in database "postgres" for (\d+) s\n[^\n]*DETAIL:  Process $kept->{pid} prevents undo from being discarded/;
ok(defined $age && $age >= 1, 'the line about age names what keeps undo');
$node->wait_for_log(qr/kept in database "postgres" for \d+ s.*kept in database "postgres" for \d+ s/s, $log);
cmp_ok(() = slurp_file($node->logfile, $log) =~ /MB of undo are kept/g, '<', 4, 'but not in every cycle');
$kept->query_safe('COMMIT');
$kept->quit;
room();

# Sessions of other roles are terminated, with a message that says why.
$kept = keep('keeper');
patient(60);
is(write_as_writer(40), '', 'a writer that may cancel continues');
$kept->{stderr} = '';
eval { $kept->query('SELECT 1') };
like($kept->{stderr}, qr/FATAL:  terminating connection due to administrator command\n.*DETAIL:  The transaction kept old row versions.*\(zundo\.undo_full = cancel\).*HINT:  Repeat the transaction/s,
	'a session that is terminated gets the reason');
eval { $kept->quit };
like(slurp_file($node->logfile, $log), qr/FATAL:  terminating connection due to administrator command\n[^\n]*DETAIL:  The transaction kept old row versions/, 'and so is the log');
room();
# ... a termination for another reason has the server's message only
my $innocent = $node->background_psql('postgres', on_error_stop => 0);
$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $innocent->query_safe('SELECT pg_backend_pid()') . ', 10000)');
eval { $innocent->query('SELECT 1') };
like($innocent->{stderr}, qr/terminating connection/, 'another session is ended');
unlike($innocent->{stderr}, qr/DETAIL/, 'a session terminated for another reason does not get this one');
eval { $innocent->quit };

# Roles that are named, and their members, are exempt; superusers are not if they are not named.
$node->append_conf('postgresql.conf', "zundo.undo_full_exempt = 'nobody, backup'");
$node->reload;
$kept = keep('dumper');
patient(1);
like(write_as_writer(100), qr/Process $kept->{pid}, which is exempt from cancellation/, 'a member of a role that is named is left alone');
like($kept->query('SELECT count(DISTINCT n) FROM mine'), qr/^1$/, 'and reads');
$kept->query_safe('COMMIT');
$kept->quit;
room();
$kept = keep($superuser);
patient(60);
is(write_as_writer(40), '', 'superusers that are not named are canceled');
eval { $kept->quit };
room();
like(($node->psql('postgres', "ALTER SYSTEM SET zundo.undo_full_exempt = 'a,,b'"))[2], qr/invalid value for parameter "zundo\.undo_full_exempt"/, 'a list that is none');
sound($node, '', qw(mine theirs zundo.undo_log));
no_crash($node, qr/is damaged|DATA_CORRUPTED/);
$node->stop;
done_testing();
