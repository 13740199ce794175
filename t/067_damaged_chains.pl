# What zundo.check says of slots, chains and rows that fit the layout of the page
# and are wrong. Only zundo itself could write them; here the test does.
# Rules: CHAIN-3, CHAIN-4, CHAIN-8, CHAIN-9, CHAIN-10, CHAIN-12, PAGE-6, PAGE-7, ROW-1.
use strict;
use warnings;
use Test::More;
use ZundoTest;

# without workers, which would undo and discard what is needed here
my $node = zundo_node('chains', <<'C', no_data_checksums => 1);
max_worker_processes = 0
max_prepared_transactions = 20
C
my @tables = qw(inline list late mode plain status opened torn columns items kind half stray stub unsaved circle);
sql('CREATE EXTENSION zundo;');
sql("CREATE TABLE $_ (id int PRIMARY KEY, n int, t text) USING zheap; INSERT INTO $_ SELECT g, 0, repeat('t', 40) FROM generate_series(1, 10) g;") for @tables;
sql("CREATE INDEX ON $_ (n);") for qw(list late mode stray stub unsaved circle);
sql('SELECT zundo.discard();');

# stays NAME SQL...: prepares a transaction of these statements, which stays in progress.
# The first one keeps `oldest` where it is.
sub stays { my ($name, @sql) = @_; return sql('BEGIN;', (map { "$_;" } @sql), "PREPARE TRANSACTION '$name';") }
my $xid = stays('plain', 'UPDATE plain SET n = 1 WHERE id = 1', 'SELECT pg_current_xact_id()');
stays('inline', 'SELECT 1 FROM inline WHERE id <= 2 FOR KEY SHARE');
stays('opened', 'SELECT 1 FROM opened WHERE id <= 9 FOR UPDATE');
stays($_, "UPDATE $_ SET n = 1 WHERE id = 1") for qw(items kind half torn);
for my $table (qw(list late mode stray))
{
	# the row moves, and its lock with it
	stays($table, "SELECT 1 FROM $table WHERE id = 1 FOR KEY SHARE");
	sql("UPDATE $table SET n = 1 WHERE id = 1;");
}
# eight writers of a page that has four slots: a chain of two of them in each
my @writers = map { sql('BEGIN;', "UPDATE status SET n = 1 WHERE id = $_;", 'SELECT pg_current_xact_id();', 'COMMIT;') } 1 .. 8;
is(sql(q{SELECT count(*), count(DISTINCT xid) FROM zundo.page_slots('status', 0);}), '4|4', 'no slot was added');
# a row that has moved and leaves a stub
my $mover = sql('BEGIN;', 'UPDATE stub SET n = 1 WHERE id = 1;', 'SELECT pg_current_xact_id();', 'COMMIT;');
sql("UPDATE $_ SET n = 1 WHERE id = 1;") for qw(unsaved circle);
for my $table (qw(stub unsaved circle))
{
	# of the same length, so that its space suffices for the row that finds the page full
	sql("INSERT INTO $table SELECT 1000 + g, 0, repeat('t', 40) FROM generate_series(1, 200) g;");
	is(sql("SELECT lp_state FROM zundo.page_items('$table', 0) WHERE lp = 1;"), 'stub', "$table: the row has left a stub");
}
# two deleted rows whose space another gets are saved in a second record, not compressed
sql('DELETE FROM circle WHERE id IN (1001, 1002);');
sql("UPDATE circle SET t = repeat('x', 80) WHERE id = 5;");
sound($node, 'as they are', @tables);
my %path = map { $_ => $node->data_dir . '/' . sql("SELECT pg_relation_filepath('$_');") } @tables, 'zundo.undo_log';
my %oid = map { $_ => sql("SELECT '$_'::regclass::oid;") } @tables;
$node->stop;

# change TABLE CHANGE: CHANGE->() changes the bytes of block 0 of the table, which are in $_[0].
sub change
{
	my ($table, $change) = @_;
	my $page = read_block($path{$table}, 0);
	$change->($page);
	write_block($path{$table}, 0, $page);
	return;
}

# slot PAGE CHOOSE: returns the place of the first inline slot for which CHOOSE->(flags,
# xid) is true.
sub slot
{
	my ($page, $choose) = @_;
	for my $n (1 .. (8176 - unpack('S<', substr($page, 16, 2))) / 16)
	{
		my $word = unpack('Q<', substr($page, 8176 - 16 * $n, 8));
		return 8176 - 16 * $n if $choose->($word >> 48, $word & 2**48 - 1);
	}
	die 'no such slot';
}

# record TABLE TYPE ITEM CHANGE: CHANGE->() changes the bytes of the table's only undo
# record of this type and item; they begin at $_[1] in $_[0], and their fixed part ends
# after 20 bytes. TYPE + 16: only a record that has a pointer to an older one.
sub record
{
	my ($table, $type, $item, $change) = @_;
	my $found = 0;
	for my $block (0 .. (-s $path{'zundo.undo_log'}) / 8192 - 1)
	{
		my $page = read_block($path{'zundo.undo_log'}, $block);
		# relation OID, block 0, item without flags, which follow type, length, xid and
		# the difference of file and OID
		my ($key, $at) = (pack('L<L<S<', $oid{$table}, 0, $item), -1);
		while (($at = index($page, $key, $at + 1)) >= 10)
		{
			next if (ord(substr($page, $at - 10, 1)) & ($type | 15)) != $type;
			$change->($page, $at - 10);
			write_block($path{'zundo.undo_log'}, $block, $page);
			$found++;
		}
	}
	is($found, 1, "$table: one record");
	return;
}

# two inline locks, the second one in the third place
change('inline', sub {
	my $at = slot($_[0], sub { $_[0] & 1 }) + 8;
	my $locks = unpack('Q<', substr($_[0], $at, 8));
	substr($_[0], $at, 8) = pack('Q<', $locks & 0xFFF | $locks >> 12 << 24) });
# a list of locks whose youngest locker is another one than the slot says
change('list', sub {
	my $at = slot($_[0], sub { $_[0] & 2 });
	substr($_[0], $at, 8) = pack('Q<', unpack('Q<', substr($_[0], $at, 8)) - 1) });
# a lock in such a list whose transaction is younger than the youngest locker
record('late', 7, 11, sub {
	my $at = $_[1] + unpack('S<', substr($_[0], $_[1] + 1, 2)) - 8;
	substr($_[0], $at, 8) = pack('Q<', unpack('Q<', substr($_[0], $at, 8)) + 1) });
# a list of locks that is taken for a chain, and a chain that is taken for a list of locks
change('mode', sub { substr($_[0], slot($_[0], sub { $_[0] & 2 }) + 6, 1) = "\0" });
change('plain', sub { substr($_[0], slot($_[0], sub { $_[1] == $xid }) + 6, 1) = "\2" });
# a row of the table's first three columns, and of a fourth one
change('columns', sub {
	my $at = unpack('L<', substr($_[0], 24, 4)) & 0x7FFF;
	substr($_[0], $at, 4) = pack('L<', unpack('L<', substr($_[0], $at, 4)) & ~0x7FF | 4) });
# the first lock of two, each of which has a record, is an open one like the second; both are for all rows with the tag
record('opened', 5, 1, sub {
	is(ord(substr($_[0], $_[1] + 21, 1)), 3, 'the mode of the first lock');
	substr($_[0], $_[1] + 21, 1) = chr(128 + 3) });
# a record of an impossible length
record('torn', 2, 1, sub { substr($_[0], $_[1] + 1, 2) = pack('S<', 5) });
# a record of an item that no page has
record('items', 2, 1, sub { substr($_[0], $_[1] + 18, 2) = pack('S<', unpack('S<', substr($_[0], $_[1] + 18, 2)) & ~511 | 400) });
# a pointer to undo of a temporary table, and none, in slots of transactions in progress
for my $case ([ 'kind', sub { $_[0] & 2**44 - 1 } ], [ 'half', sub { 0 } ])
{
	my ($table, $pointer) = @$case;
	change($table, sub {
		my $at = slot($_[0], sub { $_[1] > 0 }) + 8;
		substr($_[0], $at, 8) = pack('Q<', $pointer->(unpack('Q<', substr($_[0], $at, 8)))) });
}
# a list of locks that begins with the record of a move
change('stray', sub {
	my ($list, $mover) = (slot($_[0], sub { $_[0] & 2 }), slot($_[0], sub { !($_[0] & 3) && $_[1] > $xid }));
	substr($_[0], $list + 8, 8) = substr($_[0], $mover + 8, 8) });
# the list of saved rows is cut off
change('unsaved', sub { substr($_[0], 8176, 8) = "\0" x 8 });
# the second record of saved rows, to which the page points, leads to itself
my $saved;
change('circle', sub { $saved = substr($_[0], 8176, 8) });
record('circle', 8 + 16, 0, sub { substr($_[0], $_[1] + 21, 8) = $saved });
# a transaction that has committed counts as aborted: the first of the eight writers, on top
# of which a later one has committed, and the one that has left a stub
for my $committed ($writers[0], $mover)
{
	my ($path, $place, $bits) = ($node->data_dir . '/pg_xact/0000', $committed >> 2, 2 * ($committed & 3));
	open(my $file, '+<:raw', $path) or die $!;
	sysseek($file, $place, 0) or die $!;
	sysread($file, my $byte, 1) == 1 or die $!;
	is(ord($byte) >> $bits & 3, 1, "transaction $committed has committed");
	sysseek($file, $place, 0) or die $!;
	syswrite($file, chr(ord($byte) ^ 3 << $bits)) == 1 or die $!;
	close $file;
}

$node->start;
my $undo = qr/slot \d+: undo \d+\.\d+\.\d+/;
my %says = (
	inline => qr/^CHAIN-9\|\|slot \d+: inline locks [0-9A-F]+\/[0-9A-F]+$/,
	list => qr/^CHAIN-10\|\|$undo names lockers up to \d+, but the pointer to it only up to \d+$/,
	late => qr/^CHAIN-10\|11\|slot \d+: a lock of transaction \d+ in a list for lockers up to \d+$/,
	mode => qr/^CHAIN-1\|\|slot \d+ belongs to transaction \d+, but its newest record to \d+\nCHAIN-3\|\|slot \d+: a page image, saved rows or a list of locks are in the chain$/,
	plain => qr/^CHAIN-10\|\|$undo in a list of locks has type 2$/,
	status => qr/^CHAIN-4\|\|$undo of the aborted transaction $writers[0] lies below that of a committed one$/,
	stub => qr/^PAGE-6\|1\|stub of a row whose author $mover has not committed$/m,
	unsaved => qr/^CHAIN-13\|1\|the row of the stub was not saved$/,
	circle => qr/^E\|\|undo of block 0 of relation "circle" cannot be followed/,
	opened => qr/^CHAIN-12\|\|$undo of transaction \d+ is an open LOCK below another one$/,
	torn => qr/^E\|\|invalid undo record in block \d+ of relation "zundo\.undo_log"/,
	columns => qr/^ROW-1\|1\|the row has 4 columns, the table 3$/,
	stray => qr/^CHAIN-10\|\|$undo in a list of locks has type \d+/,
	items => qr/^CHAIN-3\|\|$undo is of items 400 to 400$/,
	kind => qr/^CHAIN-8\|\|slot \d+: undo pointer [0-9A-F]+\/[0-9A-F]+ is of another kind of table$/,
	half => qr/^PAGE-7\|\|slot \d+ has transaction \d+ and undo pointer 0\/00000000$/);
like(sql("SELECT invariant, item, detail FROM zundo.check('$_');"), $says{$_}, "$_: zundo.check says what is wrong") for @tables;
like(sql(q{SELECT detail FROM zundo.check('zundo.undo_log');}), qr/^log \d+: undo \d+\.\d+\.\d+ is of items 400 to 400$/m, 'of the undo log, too');
my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT 1 FROM stray WHERE id = 1 FOR UPDATE");
like($err, qr/XX001: undo record [0-9A-F\/]+ of block 0 of relation file \d+ is not a list of locks/, 'a locker that reads such a list gets an error');
for my $table (qw(unsaved circle))
{
	($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nCREATE INDEX ON $table (t)");
	like($err, qr/XX001: undo of block 0 of relation "$table" cannot be followed/, "$table: an index build that needs the row of the stub gets an error");
}
no_crash($node);
$node->stop('immediate');
done_testing();
