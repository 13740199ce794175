# A lock belongs to the row that was locked, not to a later row with the same
# line pointer. While lockers are in progress, a row is moved away from its
# place, or back from the place to which it was moved.
# Rules: DML-9, LOCK-11, TAG-5.
use strict;
use warnings;
use Test::More;
use ZundoTest;

my $node = zundo_node('places', <<'C');
wal_consistency_checking = 'zundo'
max_worker_processes = 0
max_prepared_transactions = 20
lock_timeout = '300ms'
C
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');

# places TABLE: returns the line pointers in use.
sub places { my ($table) = @_; return sql("SELECT count(*) FROM zundo.page_items('$table', 0) WHERE lp_state <> 'unused'"); }

sub table
{
	my ($name) = @_;
	sql("CREATE TABLE $name (id int PRIMARY KEY, m int) USING zheap;
		CREATE INDEX ON $name (m);
		INSERT INTO $name SELECT g, 0 FROM generate_series(1, 10) g; SELECT zundo.discard()");
	return;
}

# mover: starts a session whose transaction has an xid already.
sub mover
{
	my $mover = $node->background_psql('postgres', on_error_stop => 1);
	$mover->query_safe('BEGIN; SELECT pg_current_xact_id()');
	return $mover;
}

# newcomers TABLE NAME: vacuums the old places and inserts new rows, which have
# been locked by a transaction that has ended.
sub newcomers
{
	my ($table, $name) = @_;
	sql('SELECT zundo.discard();', "VACUUM (INDEX_CLEANUP on) $table;", "INSERT INTO $table SELECT g, 0 FROM generate_series(101, 130) g;",
		"BEGIN; SELECT id FROM $table WHERE id > 100 FOR KEY SHARE; COMMIT;");
	passes($node, "DELETE FROM $table WHERE id > 100", "$name: new rows are not locked");
	passes($node, "UPDATE $table SET id = id + 1000 WHERE id > 100", "$name: nor are their keys");
	is(sql("SELECT * FROM zundo.check('$table')"), '', "$name: zundo.check");
	return;
}

# 1. Locks in a slot, locks in undo, locks in the page's common list.
table('inline');
my $mover = mover();
sql('BEGIN; SELECT id FROM inline WHERE id = 1 FOR KEY SHARE; PREPARE TRANSACTION $$inline$$');
$mover->query_safe('UPDATE inline SET m = m + 1 WHERE id = 1; COMMIT');
newcomers('inline', 'a lock in a slot');
timed_out($node, 'DELETE FROM inline WHERE id = 1', 'a lock in a slot: the moved row is locked');
sql('COMMIT PREPARED $$inline$$');
passes($node, 'DELETE FROM inline WHERE id = 1', 'a lock in a slot: it has ended');

table('record');
$mover->query_safe('BEGIN; SELECT pg_current_xact_id()');
sql('BEGIN; SELECT id FROM record WHERE id < 9 FOR KEY SHARE; PREPARE TRANSACTION $$record$$');
$mover->query_safe('UPDATE record SET m = m + 1 WHERE id < 8; COMMIT');
newcomers('record', 'locks in undo');
timed_out($node, "DELETE FROM record WHERE id = $_", "locks in undo: row $_ is locked") for 1 .. 8;
sql('COMMIT PREPARED $$record$$');
passes($node, 'DELETE FROM record', 'locks in undo: they have ended');

table('list');
$mover->query_safe('BEGIN; SELECT pg_current_xact_id()');
my $second = mover();
sql('BEGIN; SELECT id FROM list WHERE id < 3 FOR KEY SHARE; PREPARE TRANSACTION $$list$$');
$mover->query_safe('UPDATE list SET m = m + 1 WHERE id = 1; COMMIT');
$second->query_safe('UPDATE list SET m = m + 1 WHERE id = 1; COMMIT');
newcomers('list', 'a lock in a list');
timed_out($node, 'DELETE FROM list WHERE id = 1', 'a lock in a list: the row that was moved twice is locked');
timed_out($node, 'DELETE FROM list WHERE id = 2', 'a lock in a list: the other one is');
$_->quit for $mover, $second;
crash($node);
timed_out($node, 'DELETE FROM list WHERE id = 1', 'a lock in a list: after a crash too');
passes($node, 'DELETE FROM list WHERE id > 2', 'a lock in a list: after a crash no other row is locked');
sql('COMMIT PREPARED $$list$$');
passes($node, 'DELETE FROM list', 'a lock in a list: they have ended');

# 2. A move that is rolled back: a transaction that has locked the row beside it
# has a lock at the new place too.
table('back');
$mover = mover();
$mover->query_safe('UPDATE back SET m = m + 1 WHERE id = 1');
sql('BEGIN; SELECT id FROM back WHERE id = 1 FOR KEY SHARE; PREPARE TRANSACTION $$back$$');
$mover->query_safe('ROLLBACK');
newcomers('back', 'a move rolled back');
timed_out($node, 'DELETE FROM back WHERE id = 1', 'a move rolled back: the row is locked');
sql('COMMIT PREPARED $$back$$');
passes($node, 'DELETE FROM back', 'a move rolled back: the locker has ended');

# The locker's memory of that lock does not apply to the next row at this place, which
# it can lock itself.
table('again');
my $again = $node->background_psql('postgres', on_error_stop => 1);
$mover->query_safe('BEGIN; UPDATE again SET m = m + 1 WHERE id = 1');
$again->query_safe('BEGIN; SELECT id FROM again WHERE id > 1 FOR KEY SHARE; SELECT id FROM again WHERE id = 1 FOR KEY SHARE');
$mover->query_safe('ROLLBACK');
newcomers('again', 'locked again');
is(sql('SELECT ctid FROM again WHERE id = 101'), '(0,11)', 'locked again: a row has come to where the other one was');
$again->query_safe('SELECT id FROM again WHERE id = 101 FOR KEY SHARE');
timed_out($node, 'DELETE FROM again WHERE id = 101', 'locked again: it is locked');
$again->query_safe('COMMIT');
$again->quit;

# The same with a move that commits: its list does not name later lockers, and
# so does not keep it from being settled.
table('beside');
$mover->query_safe('BEGIN; UPDATE beside SET m = m + 1 WHERE id < 8');
sql('BEGIN; SELECT id FROM beside WHERE id < 8 FOR KEY SHARE; PREPARE TRANSACTION $$beside$$');
sql('BEGIN; SELECT id FROM beside WHERE id = 1 FOR KEY SHARE; PREPARE TRANSACTION $$beside1$$');
$mover->query_safe('COMMIT');
newcomers('beside', 'beside a move');
timed_out($node, "DELETE FROM beside WHERE id = $_", "beside a move: row $_ is locked") for 1 .. 7;
sql('COMMIT PREPARED $$beside$$');
timed_out($node, 'DELETE FROM beside WHERE id = 1', 'beside a move: by two');
sql('COMMIT PREPARED $$beside1$$');
passes($node, 'DELETE FROM beside', 'beside a move: they have ended');

# 3. Without an index: the row does not fit any more, and inserting prunes. Its
# bytes are freed nevertheless.
sql(q{CREATE TABLE bare (id int, t text) USING zheap;
	ALTER TABLE bare ALTER t SET STORAGE PLAIN;
	INSERT INTO bare SELECT g, repeat('x', 1500) FROM generate_series(1, 5) g; SELECT zundo.discard()});
$mover->query_safe(q{BEGIN; UPDATE bare SET t = repeat('y', 3000) WHERE id = 1});
sql('BEGIN; SELECT id FROM bare WHERE id = 1 FOR KEY SHARE; PREPARE TRANSACTION $$bare$$');
$mover->query_safe('COMMIT');
sql(q{SELECT zundo.discard(); VACUUM bare; INSERT INTO bare SELECT g, repeat('z', 1400) FROM generate_series(101, 103) g;
	BEGIN; SELECT id FROM bare WHERE id > 100 FOR KEY SHARE; COMMIT});
is(sql(q{SELECT count(*) FROM bare WHERE id > 100 AND (ctid::text::point)[0] = 0}), '1', 'without an index: the room of the moved row is used again');
passes($node, 'DELETE FROM bare WHERE id > 100', 'without an index: new rows are not locked');
timed_out($node, 'DELETE FROM bare WHERE id = 1', 'without an index: the moved row is');
is(sql("SELECT * FROM zundo.check('bare')"), '', 'without an index: zundo.check');
sql('COMMIT PREPARED $$bare$$');

# 4. Locks in a slot become records after the row has moved on and its place is a stub.
# (Its slot's number, in the stub, is that of the mover: a high one, lest replay wrote to
# where the page's LSN is.)
table('converted');
sql(q{ALTER TABLE converted ADD pad text; UPDATE converted SET pad = repeat('y', 500) WHERE id = 1; SELECT zundo.discard()});
sql(map { ("BEGIN; UPDATE converted SET m = m WHERE id = $_;", "PREPARE TRANSACTION 'converted$_';") } 3 .. 10);
my $locker = $node->background_psql('postgres', on_error_stop => 1);
$locker->query_safe('BEGIN; SELECT id FROM converted WHERE id = 1 FOR KEY SHARE');
sql('UPDATE converted SET m = m + 1 WHERE id = 1;', q{INSERT INTO converted SELECT 1000 + g, 0, repeat('x', 1900) FROM generate_series(1, 3) g;},
	map { "INSERT INTO converted VALUES ($_, 0, repeat('x', 400));" } 1011 .. 1013);
is(sql(q{SELECT lp_state, slot FROM zundo.page_items('converted', 0) WHERE lp = 1}), 'stub|10', 'locks become records: the row has moved on');
$locker->query_safe('DELETE FROM converted WHERE id = 2');
sql('CREATE TABLE flushes_wal ()');
crash($node);
is(sql(q{SELECT count(*) FROM converted WHERE id <= 1000; SELECT * FROM zundo.check('converted')}), '10', 'locks become records: replayed');
sql(map { "ROLLBACK PREPARED 'converted$_';" } 3 .. 10);
$locker->quit;

# Line pointers can be used again when the lockers have ended.
my %before = map { $_ => places($_) } qw(inline record list back beside bare);
sql('SELECT zundo.discard(); SELECT zundo.discard();', map { "VACUUM (INDEX_CLEANUP on) $_;" } sort keys %before);
for my $table (sort keys %before)
{
	cmp_ok(places($table), '<', $before{$table}, "$table: the place is free when the locker has ended");
	is(sql("SELECT * FROM zundo.check('$table')"), '', "$table: zundo.check in the end");
}
$_->quit for $mover;
crash($node);
no_crash($node);
$node->stop;
done_testing();
