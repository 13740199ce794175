# Decoding of values out of line, with very little memory: what is decoded of a zheap table
# is what is decoded of a heap table, and a subscriber to which transactions are streamed,
# amid their values, has the rows of the publisher.
# Rules: DECODE-1.
use strict;
use warnings;
use Digest::MD5 'md5_hex';
use ZundoTest;
use PostgreSQL::Test::Utils;
use Test::More;

# What is streamed avoids two faults of the server; heap tables alone show the first. When
# a transaction is spilled amid a value, a savepoint whose changes have all been streamed
# counts as spilled, without a final_lsn, which ReorderBufferRestoreCleanup asserts (seen on 17
# and 18):
# so a savepoint is rolled back, or is the last of its transaction. From 18 on another
# assertion may fail once decoding finds that a transaction was aborted
# (test/random/README.md): so nothing is rolled back there.
my $rolls_back = server_major() < 18;
my $node = zundo_node('documents', "logical_decoding_work_mem = 64kB\nmax_prepared_transactions = 4\nmax_replication_slots = 8\n", allows_streaming => 'logical');
my $doc = q{CREATE FUNCTION doc(seed int, n int) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT left(string_agg(md5(seed || '.' || g), ''), n) FROM generate_series(1, n / 32 + 1) g $$};
$node->safe_psql('postgres', 'CREATE DATABASE far');
for my $database (qw(postgres far))
{
	$node->safe_psql($database, "CREATE EXTENSION zundo; $doc");
	for my $am ($database eq 'far' ? qw(zheap heap) : qw(heap zheap))
	{
		# a table named after heap is a zheap table there
		my $t = $database eq 'far' ? { heap => 'zheap', zheap => 'heap' }->{$am} : $am;
		$node->safe_psql($database, "CREATE TABLE default_$t (id int PRIMARY KEY, n int, v text, w text) USING $am; ALTER TABLE default_$t ALTER v SET STORAGE EXTERNAL;
			CREATE TABLE full_$t (LIKE default_$t INCLUDING ALL) USING $am; ALTER TABLE full_$t REPLICA IDENTITY FULL");
	}
}
sql(q{CREATE PUBLICATION p FOR ALL TABLES; SELECT pg_create_logical_replication_slot('shown', 'test_decoding', false, true); SELECT pg_create_logical_replication_slot('applied', 'pgoutput')});
my $connect = $node->connstr . ' dbname=postgres';
$node->safe_psql('far', "CREATE SUBSCRIPTION s CONNECTION '$connect' PUBLICATION p WITH (create_slot = false, copy_data = false, slot_name = 'applied', streaming = on)");

# shown: returns what the slot shows of each table, sorted, because a command changes the
# rows of heap and zheap tables in their physical order.
sub shown
{
	my %shown;
	for my $line (split /\n/, sql(q{SELECT data FROM pg_logical_slot_get_changes('shown', NULL, NULL, 'include-xids', '0', 'skip-empty-xacts', '1')}))
	{
		next unless $line =~ s/^(table public\.\w+)_(heap|zheap):/$1:/;
		my $am = $2;
		$line =~ s/'([^']{100,})'/length($1) . ' ' . md5_hex($1)/ge;
		push @{ $shown{$am} }, $line;
	}
	return { map { $_ => join("\n", sort @{ $shown{$_} }) } keys %shown };
}

my @transactions = (
	['insertion', 'INSERT INTO T SELECT g, 0, doc(g, 1000 + 4000 * (g % 4)), doc(-g, 100) FROM generate_series(1, 12) g'],
	['unchanged values', 'UPDATE T SET n = n + 1', q{UPDATE T SET n = n + 1, w = 'w' WHERE id > 6}],
	['key beside unchanged values', 'UPDATE T SET id = id + 100 WHERE id IN (3, 4)', 'UPDATE T SET id = id - 100 WHERE id > 100'],
	['new values', 'UPDATE T SET v = doc(id + 50, 9000) WHERE id < 8', 'UPDATE T SET v = reverse(v), w = doc(id, 5000)', 'UPDATE T SET w = NULL'],
	['deletion', 'DELETE FROM T WHERE id IN (5, 6)', 'INSERT INTO T VALUES (5, 5, doc(5, 9000))'],
	['one large value', 'UPDATE T SET v = doc(1, 300000) WHERE id = 1', 'UPDATE T SET n = 7 WHERE id = 1', 'DELETE FROM T WHERE id = 2'],
	['savepoints', 'UPDATE T SET v = doc(2, 90000) WHERE id = 3', 'SAVEPOINT a', 'UPDATE T SET v = doc(3, 90000)', 'INSERT INTO T VALUES (50, 0, doc(50, 150000))', 'ROLLBACK TO a', 'UPDATE T SET n = -1, v = v || $$+$$ WHERE id < 6',
		'SAVEPOINT b', 'DELETE FROM T WHERE id > 8', 'ROLLBACK TO b'],
	['released savepoint', 'INSERT INTO T VALUES (51, 0, doc(51, 80000))', 'SAVEPOINT c', 'UPDATE T SET n = 5 WHERE id > 7', 'RELEASE c'],
	['upserts', 'INSERT INTO T VALUES (1, 0, doc(9, 70000)), (60, 0, doc(60, 9000)) ON CONFLICT (id) DO UPDATE SET n = 9, w = excluded.v', 'INSERT INTO T VALUES (1, 0, doc(8, 70000)), (61, 0, doc(61, 9000)) ON CONFLICT DO NOTHING'],
	['COPY', q{COPY T (id, n, v) FROM PROGRAM 'perl -e "print \$_, qq(\t0\t), chr(64 + \$_ % 50) x 30000, qq(\n) for 70 .. 79"'}],
	['deletion of all but one', 'DELETE FROM T WHERE id > 1', 'UPDATE T SET n = 0']);
for my $table (qw(default full))
{
	for (@transactions)
	{
		my ($what, @sql) = @$_;
		next if !$rolls_back && grep { /ROLLBACK/ } @sql;
		for my $am (qw(heap zheap))
		{
			sql('BEGIN;', (map { s/\bT\b/${table}_$am/gr . ';' } @sql), $what eq 'new values' ? "PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p';" : 'COMMIT;');
		}
		my $shown = shown();
		is($shown->{zheap} // '', $shown->{heap} // '', "$table: $what");
		cmp_ok(() = ($shown->{heap} // '') =~ /^table/mg, '>', 0, '... is shown');
	}
	# nothing is decoded of a transaction that is undone, nor of its values
	sql("BEGIN; UPDATE ${table}_zheap SET v = doc(1, 90000); SAVEPOINT s; INSERT INTO ${table}_zheap VALUES (90, 0, doc(90, 90000)); RELEASE s; ROLLBACK") if $rolls_back;
	is(scalar(keys %{ shown() }), 0, "$table: a transaction that is rolled back");
}

# Two transactions that are streamed side by side while they are in progress.
my @writers = map { session($node) } 1 .. 2;
my @change = map { [ grep { $rolls_back || !/SAVEPOINT|ROLLBACK/ } split /;/, "BEGIN; INSERT INTO TABLE SELECT g * 2 + $_, 1, doc(g, 20000) FROM generate_series(1000, 1030) g; SAVEPOINT a; UPDATE TABLE SET v = doc(5, 30000) WHERE id > 1 AND id % 2 = $_; ROLLBACK TO a;"
	  . " UPDATE TABLE SET n = 2 WHERE id > 1 AND id % 2 = $_; UPDATE TABLE SET v = reverse(v) WHERE id > 1 AND id % 4 = $_; DELETE FROM TABLE WHERE id > 1 AND id % 6 = $_; COMMIT" ] } 0, 1;
for my $t (qw(default_heap default_zheap full_heap full_zheap))
{
	for my $n (0 .. $#{ $change[0] })
	{
		ask($writers[$_], $change[$_][$n] =~ s/TABLE/$t/gr), is($complaint, '', "$t, step $n") for 0, 1;
	}
}
$_->quit for @writers;
$node->wait_for_catchup('s');
for my $t (qw(default_heap default_zheap full_heap full_zheap))
{
	my $rows = "SELECT count(*), md5(string_agg(md5(t::text), ',' ORDER BY id)) FROM $t t";
	is($node->safe_psql('far', $rows), sql($rows), "the subscriber has the rows of $t");
}
my ($shown, $expected) = (shown(), '');
is($shown->{zheap}, $shown->{heap}, 'both tables are shown alike');
cmp_ok(sql(q{SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = 'applied'}), '>', 10, 'transactions were streamed');
sound($node, '', qw(default_zheap full_zheap));
is($node->safe_psql('far', q{SELECT * FROM zundo.check('default_heap')}), '', 'zundo.check of a subscribed table');
no_crash($node);
$node->safe_psql('far', 'ALTER SUBSCRIPTION s DISABLE');
$node->stop;
done_testing();
