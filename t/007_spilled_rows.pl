# Rows of trigger events in a temporary file: a write that fails in the middle of a page, as
# on a full disk, in a savepoint and not; a file that was damaged is an error, never another
# row.
# Rules: HANDLE-1.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('spilled', "work_mem = '64kB'\nlog_temp_files = 0\n");
sql(q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int PRIMARY KEY, n int, pad text) USING zheap;
	CREATE TABLE noted (id int, old int, new int);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF OLD.pad <> repeat('p', 2000) OR NEW.pad <> OLD.pad THEN RAISE EXCEPTION 'wrong: %', OLD; END IF;
		INSERT INTO public.noted VALUES (OLD.id, OLD.n, NEW.n);
		RETURN NULL;
	END $$;
	CREATE CONSTRAINT TRIGGER later AFTER UPDATE ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();
	INSERT INTO t SELECT i, 0, repeat('p', 2000) FROM generate_series(1, 100) i;
});
my $noted = 'SELECT count(*), min(new - old), max(new - old), max(new) FROM noted';
my $updates = q{DO 'BEGIN FOR i IN 1..%d LOOP UPDATE t SET n = n + 1; END LOOP; END'};
my $session = session($node);
my $pid = ask($session, 'SELECT pg_backend_pid()');

# limit BYTES: lets the session's process write no file beyond this length
sub limit { return system_log('prlimit', '--pid', $pid, "--fsize=$_[0]:unlimited") == 0 }

# 1. The write at this length is done in part. (WAL segments and the table are shorter.)
SKIP:
{
	skip 'no prlimit', 3 if !limit('unlimited');
	ask($session, 'BEGIN', sprintf($updates, 30), 'SAVEPOINT s');
	limit(20_000_001);
	ask($session, sprintf($updates, 30));
	like($complaint, qr/ERROR: +could not write to file ".*pgsql_tmp.*": No space left on device/, 'a write fails');
	ask($session, 'ROLLBACK TO s', sprintf($updates, 5));
	is($complaint, '', 'the transaction continues');
	limit('unlimited');
	ask($session, sprintf($updates, 20), 'COMMIT');
	is(ask($session, $noted), '5500|1|1|55', 'its triggers get the right rows');
	limit(20_000_001);
	ask($session, sprintf($updates, 60));
	like($complaint, qr/ERROR: +could not write to file ".*pgsql_tmp.*": No space left on device/, 'a write fails outside of a savepoint');
	limit('unlimited');
}

# 2. Somebody damages the file: the undo pointer of a change, before its transaction's id,
# or the length.
sub other_change
{
	my ($file, $xid) = @_;
	my $bytes = slurp_file($file);
	my $id = pack('Q', $xid);
	$bytes =~ /\Q$id\E.{1000,}?(?=.{8}\Q$id\E)/gs or die 'no row found';
	my $at = pos($bytes);
	open my $f, '+<:raw', $file or die $!;
	seek $f, $at, 0;
	print $f 'damaged!';
	close $f;
	return;
}
for my $damage (
	[ 'rows of a trigger event for row .* are damaged', \&other_change ],
	[ 'could not read file ".*pgsql_tmp.*": read 0 of 8192', sub { truncate $_[0], 0 or die $! } ])
{
	my ($message, $break) = @$damage;
	my $before = ask($session, 'SELECT sum(n) FROM t');
	my $xid = ask($session, 'BEGIN', sprintf($updates, 5), 'SELECT pg_current_xact_id()');
	my @files = glob($node->data_dir . "/base/pgsql_tmp/pgsql_tmp$pid.*");
	is(scalar(@files), 1, 'there is a file');
	$break->($files[0], $xid);
	ask($session, 'COMMIT');
	like($complaint, qr/ERROR: +$message/, 'damage is found');
	is(ask($session, 'SELECT sum(n) FROM t'), $before, 'and nothing committed');
}
ask($session, 'TRUNCATE noted', 'BEGIN', sprintf($updates, 5), 'COMMIT');
is(ask($session, 'SELECT count(*), min(new - old), max(new - old) FROM noted'), '500|1|1', 'the next transaction works');
my $files = sub { return scalar(() = glob($node->data_dir . '/base/pgsql_tmp/*')) };
is($files->(), 0, 'no file is left');

# 3. Rows end with their events, also in the transaction.
ask($session, 'CREATE TABLE p (id int, n int, pad text) PARTITION BY RANGE (id)', 'CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (1) TO (100) USING zheap',
	'CREATE TRIGGER now AFTER UPDATE ON p FOR EACH ROW EXECUTE FUNCTION note()', 'INSERT INTO p SELECT * FROM t WHERE id < 100',
	'TRUNCATE noted', 'BEGIN', 'UPDATE p SET n = n + 1', 'UPDATE p SET n = n + 1');
is($files->(), 0, 'those of a partition with the statement');
is(ask($session, 'COMMIT', 'SELECT count(*), min(new - old), max(new - old) FROM noted'), '198|1|1', 'and its triggers get the right rows');
ask($session, 'BEGIN', (map { "DECLARE c$_ CURSOR FOR SELECT 1" } 1 .. 3), (map { "CLOSE c$_" } 1 .. 3), sprintf($updates, 5));
is($files->(), 1, 'deferred events have a file');
ask($session, 'SET CONSTRAINTS ALL IMMEDIATE');
is($files->(), 0, 'those of deferred events with SET CONSTRAINTS, after cursors that were closed in the order of their beginning');
ask($session, 'COMMIT');
$session->quit;
like(slurp_file($node->logfile), qr/LOG: +temporary file: path "base\/pgsql_tmp\/pgsql_tmp$pid\.\d+", size \d+/, 'log_temp_files');
unlike(slurp_file($node->logfile), qr/file leak/, 'no leak');
sound($node, 'in the end', 't');
no_crash($node);
$node->stop;
done_testing();
