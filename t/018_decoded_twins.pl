# Random transactions on a heap table and on a zheap table, decoded from one
# slot: the two streams must be equal, change by change. Values in and out of
# line, every replica identity, savepoints, errors, DDL within transactions,
# prepared transactions. In every tenth round several transactions are decoded
# together, after a kill -9 of the decoding session or of the server while a
# transaction was open. ZUNDO_RANDOM_SEED repeats a run,
# ZUNDO_DECODED_TRANSACTIONS makes it longer.
# Rules: DECODE-1, DECODE-2, DECODE-3.
use strict;
use warnings;
use ZundoTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = $ENV{ZUNDO_RANDOM_SEED} || 1 + int rand 1_000_000;
my $transactions = $ENV{ZUNDO_DECODED_TRANSACTIONS} || 60;
note("seed $seed");
srand $seed;
my $node = zundo_node('twins', "max_prepared_transactions = 4\nautovacuum = off\nlogical_decoding_work_mem = 64kB", allows_streaming => 'logical');
# From 18 on, the server marks subtransactions of an aborted transaction that has reached
# the limit as streamed, and fails an assertion (ctx->streaming, logical.c) when it
# decodes their end without streaming, of heap tables as well: there the limit is never
# reached.
if ($node->pg_version >= 18)
{
	$node->append_conf('postgresql.conf', 'logical_decoding_work_mem = 64MB');
	$node->restart;
}
$node->safe_psql('postgres', q{CREATE EXTENSION zundo; SELECT pg_create_logical_replication_slot('twins', 'test_decoding', false, true)});
my %columns;
for my $am (qw(heap zheap))
{
	$node->safe_psql('postgres', qq{CREATE SCHEMA $am; SET search_path = $am; SET default_table_access_method = $am;
		CREATE TABLE t (id int PRIMARY KEY, k text NOT NULL, v text, b bool, n numeric, u int);
		CREATE UNIQUE INDEX by_k ON t (k, id); CREATE INDEX ON t (u); ALTER TABLE t ALTER v SET STORAGE EXTERNAL; ALTER TABLE t ALTER k SET STORAGE EXTERNAL});
}

sub any { return $_[ int rand @_ ] }
my @lengths = (0, 1, 5, 100, 126, 127, 128, 600, 2100, 3000, 9000);
sub value { my $n = any(@lengths); my $c = any('a' .. 'z'); return any(1 .. 6) == 1 ? 'NULL' : any(1, 2) == 1 ? "repeat('$c', $n)" : "(SELECT left(string_agg(md5('$c' || i), ''), $n) FROM generate_series(1, " . (1 + int $n / 30) . ") i)" }
sub key { return "repeat('" . any('k' .. 'p') . "', " . any(0, 3, 50, 50, 50, 1300) . ')' }
sub number { return any('NULL', 0, 1, -5, '3.14159', '1e50', '12345678901234567890') }
sub bool { return any('true', 'false', 'NULL') }
my $added = 0;

sub statement
{
	my $id = 1 + int rand 40;
	my $set = any('v = ' . value(), 'v = v || ' . value(), 'b = ' . bool(), 'n = ' . number() . ', b = ' . bool(), "u = " . any(1 .. 9), 'k = ' . key(), "id = id + " . any(1, 40), 'v = ' . value() . ', k = ' . key());
	my $row = "$id, " . key() . ', ' . value() . ', ' . bool() . ', ' . number() . ', ' . any(1 .. 9);
	my $from = 100 + int rand 100_000;
	my $rows = any(2, 5, 40, 300);
	return any(
		("INSERT INTO t VALUES ($row)") x 6,
		("UPDATE t SET $set WHERE id = $id") x 14,
		("DELETE FROM t WHERE id = $id") x 4,
		("INSERT INTO t VALUES ($row) ON CONFLICT (id) DO UPDATE SET $set") x 4,
		("INSERT INTO t VALUES ($row) ON CONFLICT DO NOTHING") x 2,
		"INSERT INTO t (id, k, v) SELECT g, 'many', repeat('m', g % 5 * " . any(1, 30, 700) . ") FROM generate_series($from, $from + $rows) g",
		"COPY t (id, k, v) FROM PROGRAM 'perl -e \"print \$_, qq(\\tcopied\\t), q(c) x (\$_ % 7 * " . any(1, 20, 500) . "), qq(\\n) for $from .. $from + $rows\"'",
		"COPY t (id, k) FROM PROGRAM 'echo bad'",
		"MERGE INTO t USING (SELECT $id AS id) s ON t.id = s.id WHEN MATCHED AND t.u > 4 THEN DELETE WHEN MATCHED THEN UPDATE SET $set WHEN NOT MATCHED THEN INSERT VALUES ($row)",
		("SAVEPOINT a", "SAVEPOINT a", "ROLLBACK TO a", "RELEASE a") x 2,
		"SELECT 1 FROM t WHERE id = $id FOR UPDATE",
		'ALTER TABLE t REPLICA IDENTITY ' . any('DEFAULT', 'DEFAULT', 'FULL', 'FULL', 'NOTHING', 'USING INDEX by_k'),
		"ALTER TABLE t ADD x" . ++$added . any(' int', ' text', ' int DEFAULT 7', ' bigint DEFAULT random() * 0'),
		'ALTER TABLE t DROP COLUMN IF EXISTS x' . any(1 .. $added),
		'ALTER TABLE t ALTER u TYPE ' . any('int', 'bigint', 'smallint'),
		'DELETE FROM t WHERE id IN (SELECT max(id) FROM t)',
		'CHECKPOINT');
}

sub transaction
{
	my ($number) = @_;
	my @statements = map { statement() } 1 .. any(1, 3, 10, 25);
	return join ";\n", @statements if any(1 .. 4) == 1;
	my $savepoints = 0;
	@statements = grep {
		$savepoints++ if $_ eq 'SAVEPOINT a';
		$_ ne 'CHECKPOINT' && (!/^R\w+ (?:TO )?a$/ || $savepoints > 0) && ($_ ne 'RELEASE a' || $savepoints-- > 0)
	} @statements;
	# One error ends a transaction with all its changes, and most long ones meet a
	# duplicate key: so half of the transactions survive their errors, each statement in a
	# subtransaction that psql makes.
	my $survives = any(0, 1);
	my @ends = ('COMMIT', 'COMMIT', 'COMMIT', 'ROLLBACK', "PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'", "PREPARE TRANSACTION 'p'; ROLLBACK PREPARED 'p'");
	# All servers up to 19 fail to decode, of heap tables as well, a prepared transaction
	# that was rolled back meanwhile and has rewritten a table in a subtransaction ("could
	# not map filenumber"): they look whether it has ended only for changes of the top
	# transaction (rbtxn_prepared(change->txn), reorderbuffer.c).
	pop @ends if grep { /^ALTER/ } @statements and $survives || grep { /SAVEPOINT/ } @statements;
	return join ";\n", ($survives ? "\\set ON_ERROR_ROLLBACK on\nBEGIN" : 'BEGIN'), @statements, any(@ends);
}

# run AM, SQL: runs random statements on the table of this access method, and ignores their errors.
sub run
{
	my ($am, $sql) = @_;
	$node->psql('postgres', "SET search_path = $am; SET default_table_access_method = $am;\n$sql", on_error_stop => 0);
	return;
}

# shown_together: returns what the slot shows from the place where it was saved last, by table.
sub shown_together
{
	my %shown = (heap => '', zheap => '');
	my $am = '';
	for my $line (split /\n/, $node->safe_psql('postgres', q{SELECT data FROM pg_logical_slot_get_changes('twins', NULL, NULL, 'include-xids', '0', 'skip-empty-xacts', '1')}))
	{
		if ($line =~ /^(?:BEGIN|COMMIT|PREPARE|ROLLBACK)/) { next }
		$am = $1 if $line =~ s/^table (heap|zheap)\.t:/table t:/;
		$shown{$am} .= "$line\n";
	}
	return %shown;
}

# Several transactions on each table, then the session that reads the slot or the whole
# server is killed.
my $kills = 0;
sub after_kill
{
	my @sql = map { transaction($_) } 1 .. any(1, 3, 6);
	$node->safe_psql('postgres', 'CHECKPOINT');	# saves the slot
	for my $sql (@sql) { run($_, $sql) for qw(heap zheap) }
	my @open = map { my $session = session($node); ask($session, "SET search_path = $_", 'BEGIN', "UPDATE t SET v = 'open'", 'DELETE FROM t WHERE id % 2 = 0'); $session } qw(heap zheap);
	if (any(1, 2) == 1)
	{
		my $reader = session($node);
		my $pid = ask($reader, 'SELECT pg_backend_pid()');
		$reader->query_until(qr/reads/, "\\echo reads\nSELECT count(*) FROM generate_series(1, 200), pg_logical_slot_peek_changes('twins', NULL, NULL);\n");
		select(undef, undef, undef, rand 0.05);
		kill 9, $pid or die "$pid: $!";
		wait_for_death($node) or die 'the server lives on';
		eval { $reader->quit };
	}
	else
	{
		$node->stop('immediate');
	}
	for my $session (@open) { eval { $session->quit } }
	$node->start;
	$kills++;
	return (join("\n-- next\n", @sql), shown_together());
}

my ($changes, $differences) = (0, 0);
for my $i (1 .. $transactions)
{
	my ($sql, %shown) = $i % 10 == 0 ? after_kill() : transaction($i);
	for my $am ($i % 10 == 0 ? () : qw(heap zheap))
	{
		run($am, $sql);
		$shown{$am} = $node->safe_psql('postgres', q{SELECT data FROM pg_logical_slot_get_changes('twins', NULL, NULL, 'include-xids', '0', 'skip-empty-xacts', '1')});
		$shown{$am} =~ s/\b$am\.t:/t:/g;
	}
	$changes += () = $shown{heap} =~ /^table t:/mg;
	next if $shown{heap} eq $shown{zheap};
	$differences++;
	is($shown{zheap}, $shown{heap}, "transaction $i of seed $seed") or diag $sql;
	last;
}
is($differences, 0, "seed $seed: $transactions transactions, $changes changes");
cmp_ok($changes, '>', $transactions, 'there were changes');
is($kills, int($transactions / 10), 'killed as often as was meant') if $differences == 0;
is($node->safe_psql('postgres', 'SELECT count(*), sum(hashtext(t::text)::bigint) FROM zheap.t'), $node->safe_psql('postgres', 'SELECT count(*), sum(hashtext(t::text)::bigint) FROM heap.t'), 'the tables are equal');
sound($node, '', 'zheap.t');
no_crash($node);
$node->stop;
done_testing();
