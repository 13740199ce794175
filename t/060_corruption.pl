# Damaged pages and damaged undo raise errors that name the place, and never
# crash the server. Other rows stay readable.
# Rules: PAGE-1, PAGE-2, PAGE-3, PAGE-7, VMAP-1, CHAIN-1, CHAIN-7, ROW-1, TUPLE-3, UNDO-4.
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

# checksums would find the damage before we do
my $node = zundo_node('corruption', <<'C', no_data_checksums => 1);
lock_timeout = 300
restart_after_crash = off
max_prepared_transactions = 5
C
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');
my $datadir = $node->data_dir;

# damage PATH CHANGE...: writes bytes into a relation's file while the server is down.
sub damage
{
	my ($path, @changes) = @_;
	open(my $file, '+<:raw', "$datadir/$path") or die "$path: $!";
	while (my ($offset, $bytes) = splice(@changes, 0, 2))
	{
		sysseek($file, $offset, 0) or die $!;
		syswrite($file, $bytes) == length $bytes or die $!;
	}
	close $file;
	return;
}

sub read_at
{
	my ($path, $offset, $length) = @_;
	open(my $file, '<:raw', "$datadir/$path") or die "$path: $!";
	sysseek($file, $offset, 0) or die $!;
	my $bytes;
	sysread($file, $bytes, $length) == $length or die $!;
	close $file;
	return $bytes;
}

# Runs statements on a damaged table: each may fail, but none may crash the server.
sub survives
{
	my ($name, $table) = @_;
	for my $sql (
		"SELECT count(*) FROM $table",
		"SET enable_seqscan = off; SELECT * FROM $table WHERE id = 3",
		"UPDATE $table SET n = n + 1",
		"UPDATE $table SET n = n + 1 WHERE id = 3",
		"UPDATE $table SET t = repeat('long', 50) WHERE id = 5",
		"UPDATE $table SET id = id + 100000 WHERE id = 7",
		"DELETE FROM $table WHERE id = 9",
		"SET zundo.allow_ctid_guard = on; DELETE FROM $table WHERE ctid = '(0,3)'",
		"SELECT * FROM $table WHERE id < 20 FOR UPDATE",
		"INSERT INTO $table SELECT g, 0, 'new' FROM generate_series(50001, 50050) g",
		"BEGIN; UPDATE $table SET n = 0 WHERE id = 11; ROLLBACK",
		"ANALYZE $table",
		"VACUUM $table",
		"CREATE INDEX ON $table (n)",
		"SELECT * FROM zundo.check('$table')",
		"SELECT * FROM zundo.page_items('$table', 0)",
		"SELECT * FROM zundo.page_slots('$table', 0)")
	{
		my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql", timeout => $PostgreSQL::Test::Utils::timeout_default);
		next if $rc == 0;
		unlike($err, qr/server closed the connection|terminated|PANIC|TRAP/, "$name: server stays up: $sql");
		like($err, qr/ERROR/, "$name: an error: $sql");
		unlike($err, qr/58P01|XX000/, "$name: ... that is foreseen: $sql");
	}
	is($node->safe_psql('postgres', 'SELECT count(*) FROM sound'), '1000', "$name: another table is readable");
	return;
}

$node->safe_psql('postgres', q{
	CREATE TABLE sound (id int PRIMARY KEY, n int, t text) USING zheap;
	INSERT INTO sound SELECT g, 0, 'sound' FROM generate_series(1, 1000) g;
});

# name => [ offset in the page, bytes ] ...
my $pd_special = 8192 - 16 - 4 * 16;
my %damages = (
	lower => [ 12, pack('S<', 9) ],
	upper => [ 14, pack('S<', 20) ],
	special => [ 16, pack('S<', 8185) ],
	far_lines => [ 12, pack('S<', 6000) ],
	version => [ 8192 - 4, pack('S<', 0x1234) ],
	item_outside => [ 24 + 4 * 2, pack('L<', 8190 | (1 << 15) | (100 << 17)) ],
	stub_state => [ 24 + 4 * 2, pack('L<', 500 | (2 << 15) | (1 << 17)) ],
	garbage_rows => [ 7000, "\xff" x 500 ],
	garbage_slots => [ $pd_special, "\xee" x 64 ],
	garbage_lines => [ 24, "\xa5" x 32 . "\x24" x 168 ],
	garbage_all => [ 24, "\x5a" x 8168 ]);

# Damage that is found on the page itself is reported with relation and block; other rows of the page stay readable. Row
# 3 was updated: it has a slot of its own.
my %overflow = (overflow_far => 0xFFFFFF, overflow_map => 2, overflow_undo => 4);
$damages{$_} = [ 8192 - 8, pack('L<', $overflow{$_}) ] for keys %overflow;
my %found_here = (
	slot_xid => sub { my ($page) = @_; my $s = slot_of_row($page, 3); return (8176 - 16 * $s, pack('Q<', 238 * 2**40)) },
	slot_next_xid => sub { my ($page) = @_; my $s = slot_of_row($page, 3); return (8176 - 16 * $s, pack('Q<', 100_000_000)) },
	slot_pointer => sub { my ($page) = @_; my $s = slot_of_row($page, 3); return (8176 - 16 * $s + 8, "\x77" x 8) },
	row_columns => sub { my ($page) = @_; return (place_of_row($page, 3), pack('L<', header_of_row($page, 3) & ~0x7FF | 500 | 1 << 20)) },
	row_slack => sub { my ($page) = @_; return (place_of_row($page, 3), pack('L<', header_of_row($page, 3) | 1 << 31),
		place_of_row($page, 3) + room_of_row($page, 3) - 1, "\xfa") },
	row_value => sub { my ($page) = @_; return (place_of_row($page, 3) + 5 + 8, "\xff") },
	stub_slot => sub { return (24 + 4 * 2, pack('L<', 300 | (2 << 15) | (2 << 17))) },
	gone_slot => sub { my ($page) = @_; return (place_of_row($page, 3), pack('L<', header_of_row($page, 3) & ~(511 << 11 | 3 << 22) | 300 << 11 | 2 << 22)) },
	row_slot => sub { my ($page) = @_; return (place_of_row($page, 3), pack('L<', header_of_row($page, 3) & ~(511 << 11) | 300 << 11)) });
$damages{$_} = [] for keys %found_here;

# No reader can see that a value is shorter than its row says (other bytes behind it may be a count, TOKEN-5), or that a page is marked in the visibility map alone.
my %unseen = (
	row_short => sub { my ($page) = @_; return (place_of_row($page, 3) + 5 + 8, "\x0brow \0\0") },
	map_only => sub { my ($page) = @_; return (10, pack('S<', unpack('S<', substr($page, 10, 2)) & ~4)) });
$damages{$_} = [] for keys %unseen;

# What zundo.check reports of these damages.
my %check_says = (
	row_short => qr/the columns take \d+ of the row's \d+ bytes, and the others are not a count of repetitions/,
	map_only => qr/the visibility map marks the page all-visible, but the page header does not/,
	version => qr/the page is neither new nor a zheap page: The page header or a line pointer/,
	stub_state => qr/stub names slot \d+, the page has \d+|stub has state \d/,
	slot_xid => qr/slot \d+ has transaction ID \d+, which has not been assigned yet/,
	# a pointer to far behind the last extent: the block is not read, which would be another error (UNDO-4b)
	slot_pointer => qr/slot \d+: undo [\d.]+ of transaction \d+ is gone, oldest is \d+/,
	row_value => qr/column 3 reaches beyond the end of the row/,
	stub_slot => qr/stub names slot 300, the page has \d/,
	gone_slot => qr/row names slot 300, the page has \d/,
	row_slot => qr/row names slot 300, the page has \d/,
	row_slack => qr/slack does not fit the room of \d+ bytes/,
	row_columns => qr/row of \d+ bytes cannot have \d+ attributes and a null bitmap/,
	overflow_map => qr/block 0 of relation "d_overflow_map" is corrupted Its overflow transaction slots are not in block 2/,
	item_outside => qr/item \[\d+,\d+\) lies outside the row area/,
	garbage_lines => qr/lies outside the row area.*line pointer has offset \d+ and length \d+/s);

sub place_of_row { my ($page, $item) = @_; return unpack('L<', substr($page, 20 + 4 * $item, 4)) & 0x7FFF }
sub room_of_row { my ($page, $item) = @_; return unpack('L<', substr($page, 20 + 4 * $item, 4)) >> 17 }
sub header_of_row { my ($page, $item) = @_; return unpack('L<', substr($page, place_of_row($page, $item), 4)) }
sub slot_of_row { my ($page, $item) = @_; return header_of_row($page, $item) >> 11 & 511 }

for my $name (sort keys %damages)
{
	$node->safe_psql('postgres', qq{
		CREATE TABLE d_$name (id int PRIMARY KEY, n int, t text) USING zheap;
		INSERT INTO d_$name SELECT g, 0, 'row ' || g FROM generate_series(1, 2000) g;
		CHECKPOINT;
	});
}
# The open transaction holds `oldest`; where a slot is damaged, it is the row's writer.
my @open = grep { /^slot_/ } sort keys %damages;
my @ended = grep { !/^slot_|^map_only/ } sort keys %damages;
my $update = "SET n = n + 0, t = 'row 3' WHERE id = 3";
$node->safe_psql('postgres', join('', "BEGIN;\n", (map { "UPDATE d_$_ $update;\n" } @open), "PREPARE TRANSACTION 'row3'"));
$node->safe_psql('postgres', join('', map { "UPDATE d_$_ $update;\n" } @ended));
$node->poll_query_until('postgres', 'VACUUM d_map_only; SELECT relallvisible > 0 FROM pg_class WHERE relname = \'d_map_only\'', "VACUUM\nt");
$node->safe_psql('postgres', 'CHECKPOINT');
my %path = map { $_ => $node->safe_psql('postgres', "SELECT pg_relation_filepath('d_$_')") } keys %damages;
$node->stop;
$damages{$_} = [ ($found_here{$_} // $unseen{$_})->(read_at($path{$_}, 0, 8192)) ] for keys %found_here, keys %unseen;
damage($path{$_}, @{ $damages{$_} }) for keys %damages;
$node->start;
for my $name (sort keys %damages)
{
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT sum(n), count(t) FROM d_$name");
	if ($rc != 0)
	{
		like($err, qr/XX001/, "$name: SQLSTATE is data_corrupted") or diag($err);
		like($err, qr/block 0\b/, "$name: names the block");
		like($err, qr/block 0 of relation "d_$name" is corrupted|row \d+ in block 0 of relation "d_$name" is corrupted|undo of block 0 of relation "d_$name" cannot be followed|block 0 of relation "d_$name" has changes of transaction/,
			"$name: names the relation") if $found_here{$name} || $overflow{$name};
	}
	if ($found_here{$name})
	{
		isnt($rc, 0, "$name: the page's rows as a whole are not");
		is($node->safe_psql('postgres', "SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT sum(n) || ',' || count(t) FROM d_$name WHERE id IN (1, 2, 4, 5)"),
			'0,4', "$name: but others of the page are readable");
	}
	# a damaged row, not a damaged slot, which every access to the page needs
	is($node->safe_psql('postgres', "SET enable_seqscan = off; SET enable_indexscan = off; SELECT sum(n) || ',' || count(t) FROM d_$name WHERE id IN (1, 2, 4, 5)"),
		'0,4', "$name: a bitmap scan reads the other rows of the page")
	  if $name =~ /^(?:row_.*|stub_slot|gone_slot|item_outside)$/;
	if ($name !~ /garbage_rows|garbage_slots/)
	{
		($rc, $out, $err) = $node->psql('postgres', "SELECT count(*) FROM zundo.check('d_$name')");
		ok($rc == 0 && $out > 0, "$name: zundo.check finds it and does not fail") or diag($err);
		like($node->safe_psql('postgres', "SELECT detail FROM zundo.check('d_$name')"), $check_says{$name}, "$name: zundo.check says what") if $check_says{$name};
	}
	# a slot number that the page never had: a row that names it does not count as visible to all
	if ($name =~ /^(?:stub|gone|row)_slot$/)
	{
		for my $sql ("VACUUM FULL d_$name", "CREATE INDEX ON d_$name (n)", $name eq 'row_slot' ? () : "VACUUM d_$name")
		{
			($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql");
			like($err, qr/XX001: block 0 of relation "d_$name" is corrupted\nDETAIL:  A row refers to transaction slot 300/, "$name: $sql");
		}
	}
	survives($name, "d_$name");
	cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM d_$name WHERE ctid >= '(1,1)'"), '>', 500,
		"$name: rows on other pages are readable")
	  if $name ne 'garbage_all';
}

# A rollback comes to the damage: the page is not rolled back, and the message names it.
my $log_size = -s $node->logfile;
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'row3'});
ok($node->wait_for_log(qr/block 0 of relation "d_slot_/, $log_size), 'the undo worker names the block that it cannot undo');
is($node->safe_psql('postgres', 'SELECT count(*) FROM sound'), '1000', 'rollback: another table is readable');
# the worker may look at a table for a moment
$node->safe_psql('postgres', 'SET lock_timeout = 0; ' . ($_ eq 'slot_xid' ? 'TRUNCATE' : 'DROP TABLE') . " d_$_") for @open;
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), 'with the damaged tables gone it is done');

# undo: an old snapshot needs a record that is damaged
$node->safe_psql('postgres', q{
	CREATE TABLE d_undo (id int PRIMARY KEY, n int, t text) USING zheap;
	INSERT INTO d_undo SELECT g, 0, 'row' FROM generate_series(1, 300) g;
	CREATE TABLE d_zeroed (id int PRIMARY KEY, n int, t text) USING zheap;
	INSERT INTO d_zeroed SELECT g, 0, 'row' FROM generate_series(1, 1000) g;
	CREATE TABLE d_unpaired (id int PRIMARY KEY, n int, t text) USING zheap;
	INSERT INTO d_unpaired SELECT g, 0, 'row' FROM generate_series(1, 20) g;
	SELECT zundo.discard();
});
my $unpaired = $node->safe_psql('postgres', q{SELECT pg_relation_filepath('d_unpaired')});
$node->safe_psql('postgres', q{BEGIN; DELETE FROM d_unpaired WHERE id = 3; PREPARE TRANSACTION 'q'});
my $zeroed = $node->safe_psql('postgres', q{SELECT pg_relation_filepath('d_zeroed')});
my $undo = $node->safe_psql('postgres', q{SELECT pg_relation_filepath('zundo.undo_log')});
$node->safe_psql('postgres', q{BEGIN; UPDATE d_undo SET n = n + 1; PREPARE TRANSACTION 'p'});
$node->safe_psql('postgres', 'CHECKPOINT');
$node->stop;
my $size = -s "$datadir/$undo";
for (my $block = 0; $block < $size / 8192; $block++)
{
	my $page = read_at($undo, $block * 8192, 8192);
	# the undo pages contain the rows of the update: damages what follows their headers
	next if unpack('S<', substr($page, 36, 2)) != 0x7A75;
	damage($undo, $block * 8192 + 600, "\xcd" x 3000);
}
damage($zeroed, 0, "\0" x 8192);
damage($unpaired, 8176 - 16 * slot_of_row(read_at($unpaired, 0, 8192), 3) + 8, "\0" x 8);
$node->start;
my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT sum(n) FROM d_undo");
isnt($rc, 0, 'rows whose undo is damaged cannot be read');
like($err, qr/XX001/, 'undo: SQLSTATE is data_corrupted');
like($err, qr/block \d+ of relation "(?:zundo\.undo_log|d_undo)"/, 'undo: names relation and block');
($rc, $out, $err) = $node->psql('postgres', q{ROLLBACK PREPARED 'p'}, timeout => $PostgreSQL::Test::Utils::timeout_default);
unlike($err, qr/server closed|PANIC/, 'undo: rolling back does not take the server down');
sleep 2;
is($node->safe_psql('postgres', 'SELECT count(*) FROM sound'), '1000', 'undo: another table is readable');

# A table page of zeros is taken for a new one, as on heap: its rows are missing, and nothing fails.
my $left = $node->safe_psql('postgres', 'SELECT count(*) FROM d_zeroed');
ok($left > 500 && $left < 1000, 'zeroed: the rows of the other pages');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM d_zeroed WHERE id IN (1, 1000)'), '1', 'zeroed: the same by index');
is($node->safe_psql('postgres', 'VACUUM d_zeroed; UPDATE d_zeroed SET n = 1; INSERT INTO d_zeroed VALUES (2000, 1); SELECT count(*), sum(n) FROM d_zeroed'),
	($left + 1) . '|' . ($left + 1), 'zeroed: the table is vacuumed and written');

# A slot that has an owner and no undo (PAGE-7): what the owner has deleted keeps its line pointer and its bytes,
# since it may not have been committed.
$node->psql('postgres', 'VACUUM d_unpaired; CHECKPOINT');
is($node->safe_psql('postgres', q{SELECT count(*) FROM zundo.check('d_unpaired') WHERE invariant = 'PAGE-7'}), '1', 'unpaired: zundo.check');
is(unpack('L<', read_at($unpaired, 24 + 4 * 2, 4)) >> 15 & 3, 1, 'unpaired: the deleted row is kept');
# An index scan by a snapshot that many rows of the page have to be walked for asks a view of the page.
my @viewed = qw(item_outside stub_slot gone_slot row_slot row_columns row_slack slot_xid slot_next_xid slot_pointer);
$node->safe_psql('postgres', join('', map { qq{
	CREATE TABLE v_$_ (id int PRIMARY KEY, n int, t text) USING zheap WITH (autovacuum_enabled = off);
	INSERT INTO v_$_ SELECT g, 0, 'row ' || g FROM generate_series(1, 100) g;} } @viewed));
$node->safe_psql('postgres', join('', 'BEGIN;', (map { "UPDATE v_$_ $update;" } @viewed), "PREPARE TRANSACTION 'view3'"));
$node->safe_psql('postgres', join('', 'BEGIN;', (map { "UPDATE v_$_ SET n = n + 1, t = 'new' WHERE id > 10;" } @viewed),
	"PREPARE TRANSACTION 'view'; CHECKPOINT"));
$path{$_} = $node->safe_psql('postgres', "SELECT pg_relation_filepath('v_$_')") for @viewed;
$node->stop;
damage($path{$_}, $found_here{$_} ? $found_here{$_}->(read_at($path{$_}, 0, 8192)) : @{ $damages{$_} }) for @viewed;
$node->start;
for my $name (@viewed)
{
	my ($rc, $out, $err) = $node->psql('postgres', "SELECT sum(n), count(t) FROM v_$name");
	isnt($rc, 0, "$name: a scan of the page fails");
	is($node->safe_psql('postgres', "SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT sum(n) || ',' || count(t) FROM v_$name WHERE id > 5"),
		'0,95', "$name: an index scan of its other rows does not");
	($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSET enable_seqscan = off; SET enable_bitmapscan = off; SELECT sum(n) || ',' || count(t) FROM v_$name");
	like($err, qr/XX001/, "$name: until it comes to the damaged one");
}

no_crash($node);
$node->stop('immediate');
done_testing();
