# Flags and options of the table AM interface whose effect no other test shows
# (docs/duties.md). Those that the server itself does not use are passed by
# zundo_test. The results are compared with those of heap.
# newest
use strict;
use warnings;
use Test::More;
use ZundoTest;

# a table of 200 pages is large enough for synchronized scans and for a ring of buffers
my $node = zundo_node('duties', "shared_buffers = 4MB\nautovacuum = off\n");
$node->safe_psql('postgres', 'CREATE EXTENSION zundo; CREATE EXTENSION zundo_test');
my @ams = qw(heap zheap);

# both SQL NAME: checks that SQL, with AM replaced by each access method, returns the same
# for both; returns it.
sub both
{
	my ($sql, $name) = @_;
	my %out;
	for my $am (@ams)
	{
		(my $own = $sql) =~ s/\bAM\b/$am/g;
		$own =~ s/_AM\b/_$am/g;
		my ($rc, $out, $err) = $node->psql('postgres', $own);
		$out{$am} = "$out\n$err";
		$out{$am} =~ s/_$am\b/_AM/g;
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($out{zheap}, $out{heap}, $name);
	return $out{heap};
}

for my $am (@ams)
{
	$node->safe_psql('postgres', qq{
		CREATE TABLE rows_$am (id int, note text) USING $am;
		INSERT INTO rows_$am SELECT i, 'note' FROM generate_series(1, 6) i;
		CREATE TABLE wide_$am (id int, note text) USING $am WITH (autovacuum_enabled = off);
		INSERT INTO wide_$am SELECT i, repeat('x', 900) FROM generate_series(1, 4000) i;
		CREATE FUNCTION lock_$am(place tid, mode int, policy int, flags int) RETURNS text LANGUAGE plpgsql AS \$\$
		DECLARE result int;
		BEGIN
			result := zundo_test_table_lock('rows_$am', place, mode, policy, flags);
			RAISE EXCEPTION '%', result;
		EXCEPTION WHEN OTHERS THEN
			RETURN SQLERRM;
		END \$\$;
	});
}

# 1. TUPLE_LOCK_FLAG_*, LockWaitPolicy and TM_Result: all modes and flags, of rows in all
# states. 1 untouched, 2 updated since the snapshot, 3 deleted since, 4 being updated, 5
# being deleted, 6 locked FOR SHARE.
my $matrix = q{
	BEGIN ISOLATION LEVEL %s;
	SELECT count(*) FROM rows_AM;
	%s;
	SELECT n, mode, flags, lock_AM(format('(0,%%s)', n)::tid, mode, 1, flags)
		FROM generate_series(1, 6) n, generate_series(0, 3) mode, generate_series(0, 3) flags
		ORDER BY n, mode, flags;
};
my $writer = $node->background_psql('postgres', on_error_stop => 1);
for my $level ('READ COMMITTED', 'REPEATABLE READ')
{
	for my $own ('', "DELETE FROM rows_AM WHERE id = 6;")
	{
		$writer->query_safe('BEGIN');
		$writer->query_safe("UPDATE rows_$_ SET note = note || '.' WHERE id = 4; DELETE FROM rows_$_ WHERE id = 5;") for @ams;
		$writer->query_safe("SELECT FROM rows_$_ WHERE id = 6 FOR SHARE") for $own eq '' ? @ams : ();
		my $locks = both(sprintf($matrix, $level, $own), "row locks under $level" . ($own ? ', with own changes' : ''));
		like($locks, qr/^4\|3\|0\|6$/m, 'TM_WouldBlock of a row that is being updated');
		like($locks, qr/^4\|0\|1\|0$/m, 'a lock that does not conflict is taken beside the update');
		$writer->query_safe('ROLLBACK');
	}
}

# 2. wait = false: TM_BeingModified.
$writer->query_safe('BEGIN');
$writer->query_safe("UPDATE rows_$_ SET note = 'w' WHERE id = 4") for @ams;
like(both(q{SELECT zundo_test_table_delete('rows_AM', '(0,4)', false)}, 'a deletion that is not to wait'), qr/^5$/m, 'TM_BeingModified');
$writer->query_safe('ROLLBACK');

# 3. Changes since the snapshot of a REPEATABLE READ transaction.
for my $change ('UPDATE rows_%s SET note = \'x\' WHERE id = 2', 'DELETE FROM rows_%s WHERE id = 3')
{
	my %result;
	for my $am (@ams)
	{
		my $reader = $node->background_psql('postgres', on_error_stop => 1);
		$reader->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM rows_$am");
		$node->safe_psql('postgres', sprintf($change, $am));
		my $n = $change =~ /DELETE/ ? 3 : 2;
		$result{$am} = $reader->query_safe("SELECT zundo_test_table_delete('rows_$am', '(0,$n)', false)") . ' '
		  . $reader->query_safe("SELECT string_agg(lock_$am('(0,$n)', mode, 1, flags), ',' ORDER BY mode, flags)
			FROM generate_series(0, 3) mode, generate_series(0, 1) flags");
		$reader->quit;
	}
	is($result{zheap}, $result{heap}, "TM_Updated and TM_Deleted: $change");
}

# 4. crosscheck: a referential action of a REPEATABLE READ transaction meets a row that
# its snapshot does not see.
for my $action ('CASCADE', 'SET NULL')
{
	my %err;
	for my $am (@ams)
	{
		$node->safe_psql('postgres', qq{
			DROP TABLE IF EXISTS child_$am, parent_$am;
			CREATE TABLE parent_$am (id int PRIMARY KEY) USING $am;
			CREATE TABLE child_$am (parent int REFERENCES parent_$am ON DELETE $action) USING $am;
			INSERT INTO parent_$am VALUES (1)});
		my $reader = $node->background_psql('postgres', on_error_stop => 0);
		$reader->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM child_$am");
		$node->safe_psql('postgres', "INSERT INTO child_$am VALUES (1)");
		my ($out) = $reader->query("DELETE FROM parent_$am WHERE id = 1");
		($err{$am}) = $reader->{stderr} =~ /(ERROR:.*)/;
		$reader->quit;
		is($node->safe_psql('postgres', "SELECT * FROM child_$am"), '1', "$action: the new row is there, $am");
	}
	is($err{zheap}, $err{heap}, "crosscheck: $action");
	like($err{zheap}, qr/could not serialize access/, 'a conflicting update fails');
}

$writer->quit;

# 5. TABLE_INSERT_SKIP_FSM: holes are not filled.
for my $am (@ams)
{
	$node->safe_psql('postgres', "DELETE FROM wide_$am WHERE id BETWEEN 100 AND 2000");
	$node->safe_psql('postgres', "SELECT zundo.discard(); VACUUM wide_$am") for 1 .. 2;
	my $last = $node->safe_psql('postgres', "SELECT pg_relation_size('wide_$am') / 8192 - 1");
	my $tid = $node->safe_psql('postgres', "SELECT zundo_test_table_insert('wide_$am', 0, 2)");
	my ($block) = $tid =~ /^\((\d+),/;
	cmp_ok($block, '>=', $last, "$am: without the map a row goes to the end");
	$tid = $node->safe_psql('postgres', "SELECT zundo_test_table_insert('wide_$am', 0, 0) FROM generate_series(1, 300) ORDER BY 1 LIMIT 1");
	($block) = $tid =~ /^\((\d+),/;
	cmp_ok($block, '<', $last, "$am: with it into a hole");
}

# 6. SO_ALLOW_SYNC: a scan begins where another one is, unless the flag forbids that.
for my $am (@ams)
{
	my $first = "SELECT id FROM wide_$am LIMIT 1";
	my $start = $node->safe_psql('postgres', "SET synchronize_seqscans = off; $first");
	$node->safe_psql('postgres', "BEGIN; DECLARE c CURSOR FOR SELECT id FROM wide_$am; MOVE 3000 IN c; COMMIT" =~ s/3000/1800/r);
	isnt($node->safe_psql('postgres', "SET synchronize_seqscans = on; $first"), $start, "$am: synchronized scans");
	is($node->safe_psql('postgres', "SET synchronize_seqscans = off; $first"), $start, "$am: not synchronized");
}

# 7. SO_ALLOW_STRAT: a large scan does not evict all other pages from shared buffers.
SKIP:
for my $am (@ams)
{
	skip 'the server lacks pg_buffercache of contrib', scalar @ams unless server_has('pg_buffercache');
	$node->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS pg_buffercache');
	$node->restart;
	$node->safe_psql('postgres', "SELECT count(*) FROM wide_$am");
	cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('wide_$am')"),
		'<', 100, "$am: a ring of buffers");
}

# 8. VACUUM: TRUNCATE, SKIP_LOCKED, PROCESS_MAIN.
my $size = q{SELECT pg_relation_size('wide_AM') / 8192 > 10};
$node->safe_psql('postgres', "DELETE FROM wide_$_") for @ams;
$node->safe_psql('postgres', 'SELECT zundo.discard()') for 1 .. 3;
like(both("VACUUM (TRUNCATE false) wide_AM; $size", 'VACUUM (TRUNCATE false)'), qr/^t$/m, 'the pages stay');
both("ALTER TABLE wide_AM SET (vacuum_truncate = off); VACUUM wide_AM; $size; ALTER TABLE wide_AM RESET (vacuum_truncate)", 'vacuum_truncate');
if ($node->pg_version >= 16)
{
	both("VACUUM (PROCESS_MAIN false) wide_AM; $size", 'VACUUM (PROCESS_MAIN false)');
}
$writer = $node->background_psql('postgres', on_error_stop => 1);
$writer->query_safe('BEGIN');
$writer->query_safe("LOCK TABLE wide_$_ IN SHARE UPDATE EXCLUSIVE MODE") for @ams;
like(both("VACUUM (SKIP_LOCKED) wide_AM; $size", 'VACUUM (SKIP_LOCKED)'), qr/skipping vacuum of "wide_AM"/, 'it is skipped');
$writer->query_safe('ROLLBACK');
like(both("VACUUM (TRUNCATE true) wide_AM; $size", 'VACUUM (TRUNCATE true)'), qr/^f$/m, 'the pages go');
$writer->quit;

# 9. An index entry without a row is an error, not the entry of a dead row: the page may be lost.
for my $am (@ams)
{
	$node->safe_psql('postgres', "CREATE TABLE keys_$am (id int PRIMARY KEY) USING $am; INSERT INTO keys_$am VALUES (1), (2)");
	my $ask = "SELECT zundo_test_index_delete('keys_$am', 'keys_${am}_pkey', '(0,%d)')";
	is($node->safe_psql('postgres', sprintf($ask, 1)), 'f', "$am: the entry of a live row stays");
	my ($rc, $out, $err) = $node->psql('postgres', '\set VERBOSITY verbose' . "\n" . sprintf($ask, 3));
	like($err, $am eq 'heap' ? qr/XX002.*points past end/ : qr/XX002: block \d+ of index.*points to nonexistent item 3 in block 0 of relation/, "$am: an entry past the end of the page");
}

# 10. SnapshotSelf: what is committed or the session's own. Others insert, update and
# delete the rows 8, 2 and 3, and have rolled back or committed the same for 9, 4, 5 and 7.
my $aborter = $node->background_psql('postgres', on_error_stop => 1);
$writer = $node->background_psql('postgres', on_error_stop => 1);
$aborter->query_safe('SET zundo.eager_rollback_pages = 0; BEGIN');
$writer->query_safe('BEGIN');
for my $am (@ams)
{
	$node->safe_psql('postgres', "CREATE TABLE self_$am (id int, note text) USING $am;
		INSERT INTO self_$am SELECT i, 'note' FROM generate_series(1, 7) i; DELETE FROM self_$am WHERE id = 7");
	$writer->query_safe("INSERT INTO self_$am VALUES (8, 'new')");
	$aborter->query_safe("INSERT INTO self_$am VALUES (9, 'new'); UPDATE self_$am SET note = 'a' WHERE id = 4; DELETE FROM self_$am WHERE id = 5");
	$writer->query_safe("UPDATE self_$am SET note = 'w' WHERE id = 2; DELETE FROM self_$am WHERE id = 3");
}
$aborter->query_safe('ROLLBACK');
my $self = q{BEGIN; DELETE FROM self_AM WHERE id = 1;
	SELECT n, zundo_test_table_fetch('self_AM', format('(0,%s)', n)::tid) FROM generate_series(1, 9) n WHERE n <> 2 OR };
my $seen = both("$self true", 'SnapshotSelf beside changes of others');
is(($seen =~ s/\n+\z//r), join("\n", '1|', (map { "$_|note" } 2 .. 6), '7|', '8|', '9|'), 'what it sees');
$writer->query_safe('COMMIT');
like(both("$self false", 'SnapshotSelf after a commit'), qr/^3\|\n.*^8\|new$/ms, 'what it sees then');
$_->quit for $aborter, $writer;

# 11. A row that another command than the locking one, or this itself, has inserted; a later
# one has changed another row.
for my $am (@ams)
{
	$node->safe_psql('postgres', "CREATE TABLE early_$am (id int, note text) USING $am; INSERT INTO early_$am VALUES (1, 'note')");
}
is(both(q{BEGIN; INSERT INTO early_AM VALUES (2, 'own'); UPDATE early_AM SET note = 'own' WHERE id = 1;
	SELECT zundo_test_table_lock('early_AM', '(0,2)', 3, 1, 2, earlier) FROM (VALUES (2), (1), (0)) e (earlier)}, 'a lock for earlier commands'),
	"1\n0\n0\n", 'TM_Invisible to the command that has inserted the row');

sound($node, '', map { "${_}_zheap" } qw(rows wide parent child self early));
no_crash($node);
done_testing();
