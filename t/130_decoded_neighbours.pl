# What comes between the WAL records of one decoded row, and beside them: an index
# expression that writes to another table is not evaluated between the values out
# of line of a row and the row, also if the indexes must be looked at anew just
# then; the values of rows that COPY inserts together are kept for the rows on all
# pages that take them; changes in other databases are neither decoded nor streamed.
# long
# Rules: DECODE-1.
use strict;
use warnings;
use ZundoTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = zundo_node('neighbours', "max_replication_slots = 8\nmax_prepared_transactions = 4\n", allows_streaming => 'logical');
sql('CREATE EXTENSION zundo');

# The function claims to be immutable, so that it may be used in an index.
sql(q{
	CREATE TABLE noted (n int) USING heap;
	CREATE FUNCTION note(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO noted VALUES (n); RETURN 0; END $$;
	CREATE FUNCTION noting(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN note(n); END $$;
	CREATE TABLE t (id int PRIMARY KEY, n int, v text) USING zheap WITH (fillfactor = 50);
	ALTER TABLE t ALTER v SET STORAGE EXTERNAL;
	CREATE INDEX t_noting ON t (noting(n));
	INSERT INTO t VALUES (1, 1, 'short'), (2, 2, repeat('long', 1000))});
sql(q{SELECT pg_create_logical_replication_slot('slot', 'test_decoding')});
sub decoded { return sql(q{SELECT data FROM pg_logical_slot_get_changes('slot', NULL, NULL, 'include-xids', '0', 'skip-empty-xacts', '1')}) }

# The holder's lock keeps the update from storing its value out of line. Its change of the
# table reaches the update's session then, which has evaluated the expression before.
my $toast = sql(q{SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 't'::regclass});
my ($fillfactor, $n) = (50, 10);
for my $case (['a new value', 1, q{repeat('new', 1000)}, 'new' x 1000], ['another value', 2, q{repeat('other', 1000)}, 'other' x 1000])
{
	my ($name, $id, $value, $is) = @$case;
	my $holder = session($node);
	my $writer = session($node);
	$fillfactor++;
	$n++;
	ask($holder, 'BEGIN', "REINDEX TABLE $toast", "ALTER TABLE t SET (fillfactor = $fillfactor)");
	$writer->query_until(qr/updates/, "\\echo updates\nUPDATE t SET n = $n, v = $value WHERE id = $id;\n");
	$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_locks WHERE relation = '$toast'::regclass AND NOT granted") or die 'it does not wait';
	ask($holder, 'COMMIT');
	$holder->quit;
	is(ask($writer, 'SELECT 1'), 1, "$name: updated");
	is($complaint, '', '... without an error');
	$writer->quit;
	is(sql("SELECT v = $value FROM t WHERE id = $id"), 't', '... to the value');
	my @lines = split /\n/, decoded();
	my ($update) = grep { $lines[$_] =~ /^table public\.t: UPDATE/ } 0 .. $#lines;
	is($lines[ $update // 0 ], "table public.t: UPDATE: id[integer]:$id n[integer]:$n v[text]:'$is'", '... which is decoded');
	like($lines[ ($update // 0) - 1 ], qr/^table public\.noted: INSERT/, '... after what the function wrote when it was evaluated before');
	like($lines[ ($update // 0) + 1 ], qr/^table public\.noted: INSERT: n\[integer\]:$n$/, '... and before what it wrote for the entry of the moved row');
}

# The values of all rows of a call are logged before the first row; these rows take several
# pages, with a record for each (ZWL_LAST in the last of them).
my %copied;
for my $am (qw(heap zheap))
{
	sql("CREATE TABLE c (id int PRIMARY KEY, near text, far text) USING $am; ALTER TABLE c ALTER near SET STORAGE PLAIN, ALTER far SET STORAGE EXTERNAL");
	decoded();
	sql(q{COPY c FROM PROGRAM 'perl -e "print \$_, qq(\t), chr(64 + \$_) x 1500, qq(\t), chr(96 + \$_) x 2500, qq(\n) for 1 .. 26"'});
	$copied{$am} = decoded();
	cmp_ok(sql("SELECT pg_relation_size('c') / 8192"), '>', 4, "COPY to several pages ($am)");
	sql('DROP TABLE c');
}
is(() = $copied{zheap} =~ /INSERT: id\[integer\]:\d+ near\[text\]:'[A-Z]{1500}' far\[text\]:'[a-z]{2500}'/g, 26, 'every row is decoded with its values');
is($copied{zheap}, $copied{heap}, '... as on heap');

# A database beside that of the slot: its large transaction is in memory with the others,
# but has no changes of this database.
$node->safe_psql('postgres', 'CREATE DATABASE beside');
$node->safe_psql('beside', 'CREATE EXTENSION zundo; CREATE TABLE b_heap (id int PRIMARY KEY, v text) USING heap');
$node->safe_psql('beside', 'CREATE TABLE b_zheap (id int PRIMARY KEY, v text) USING zheap');
for my $am (qw(heap zheap))
{
	for my $end ('COMMIT', "PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'")
	{
		$node->safe_psql('beside', "BEGIN; INSERT INTO b_$am SELECT g, repeat('b', g % 3 * 1500) FROM generate_series(1, 3000) g; UPDATE b_$am SET v = v || 'x'; SAVEPOINT s; UPDATE b_$am SET id = -id WHERE id % 5 = 0;"
			. " INSERT INTO b_$am VALUES (1) ON CONFLICT (id) DO UPDATE SET v = 'conflict'; INSERT INTO b_$am VALUES (0) ON CONFLICT DO NOTHING; DELETE FROM b_$am WHERE id > 100; $end; TRUNCATE b_$am");
	}
	is(sql(q{SET logical_decoding_work_mem = '64kB'; SELECT data FROM pg_logical_slot_get_changes('slot', NULL, NULL, 'skip-empty-xacts', '1', 'stream-changes', '1')}),
		'', "changes in another database are not decoded ($am)");
}
sound($node, '', qw(t zundo.undo_log));
no_crash($node);
$node->stop;
done_testing();
