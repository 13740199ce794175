# Crashes of the server in the middle of transactions, of rollbacks and of the
# undo workers' own steps. Afterwards all that was committed is there, and
# nothing else.
# Rules: ROLLBACK-1, UNDO-13.
# newest
use strict;
use warnings;
use Test::More;
use ZundoTest;

my $node = zundo_node('crash', <<'C');
wal_consistency_checking = 'all'
max_wal_size = 4GB
checkpoint_timeout = 1h
max_prepared_transactions = 5
restart_after_crash = off
C
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');
$node->safe_psql(
	'postgres', q{
	CREATE TABLE t (id int PRIMARY KEY, n int, pad text) USING zheap;
	CREATE INDEX t_n ON t (n);
	CREATE TABLE plain (id int, pad text) USING zheap;
	CREATE UNLOGGED TABLE fleeting (id int) USING zheap;
	INSERT INTO t SELECT g, g % 10, repeat('p', g % 100) FROM generate_series(1, 1000) g;
	INSERT INTO plain SELECT g, repeat('q', 50) FROM generate_series(1, 3000) g;
	INSERT INTO fleeting SELECT generate_series(1, 10);
});

# Returns all that readers can see of the tables, by sequential and by index scans.
my $state = q{
	SELECT count(*), sum(id), sum(n), md5(string_agg(t::text, ',' ORDER BY id)) FROM t;
	SELECT count(*), sum(id), md5(string_agg(plain::text, ',' ORDER BY id)) FROM plain;
	SET enable_seqscan = off; SET enable_bitmapscan = off;
	SELECT n, count(*), sum(id) FROM t WHERE n IS NOT NULL GROUP BY n ORDER BY n;
	SELECT count(*) FROM t WHERE id > 0;
};

# Waits until all aborted changes have been undone on the pages.
sub rollbacks_done
{
	my ($what) = @_;
	ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), "$what: all is rolled back");
	return;
}

sub tables_sound
{
	my ($what) = @_;
	for my $table (qw(t plain fleeting zundo.undo_log))
	{
		is($node->safe_psql('postgres', "SELECT * FROM zundo.check('$table')"), '', "$what: zundo.check of $table");
	}
	return;
}

# Starts the server after a crash, and compares the tables with what is expected.
sub recovered
{
	my ($what, $expected) = @_;
	$node->start;
	is($node->safe_psql('postgres', $state), $expected, "$what: the rows of before");
	tables_sound($what);
	rollbacks_done($what);
	is($node->safe_psql('postgres', $state), $expected, "$what: and after the undo workers");
	tables_sound("$what, later");
	return;
}

my $changes = q{
	UPDATE t SET pad = pad || 'x' WHERE id % 3 = 0;
	UPDATE t SET n = n + 100 WHERE id % 7 = 0;
	UPDATE t SET id = id + 100000 WHERE id % 11 = 0;
	DELETE FROM t WHERE id % 13 = 0;
	INSERT INTO t SELECT g, 5, 'new' FROM generate_series(5001, 5300) g;
	SAVEPOINT a;
	UPDATE t SET pad = repeat('y', 300) WHERE id % 5 = 0;
	ROLLBACK TO a;
	UPDATE t SET n = -1 WHERE id % 17 = 0;
	DELETE FROM plain WHERE id % 2 = 0;
	UPDATE plain SET pad = pad || pad;
};

# 1. A transaction is open when the server dies; its WAL is on disk because others commit.
my $before = $node->safe_psql('postgres', $state);
my $writer = $node->background_psql('postgres', on_error_stop => 1);
$writer->query_safe("BEGIN; $changes");
is($node->safe_psql('postgres', $state), $before, 'others do not see an open transaction');
$node->safe_psql('postgres', 'CREATE TABLE flush_wal ()');
$node->stop('immediate');
eval { $writer->quit };
recovered('open transaction', $before);
is($node->safe_psql('postgres', 'SELECT count(*) FROM fleeting'), '0', 'an unlogged table is empty after a crash');

# 2. The same, with pages of the open transaction written by a checkpoint.
$writer = $node->background_psql('postgres', on_error_stop => 1);
$writer->query_safe("BEGIN; $changes");
$node->safe_psql('postgres', 'CHECKPOINT');
$node->stop('immediate');
eval { $writer->quit };
recovered('open transaction on disk', $before);

# 3. Committed changes are there after a crash.
$node->safe_psql('postgres', "BEGIN; $changes COMMIT");
$before = $node->safe_psql('postgres', $state);
$node->stop('immediate');
recovered('committed', $before);

# 4. The server dies at each fault point of a writing session, within a transaction of
# several statements.
my %reached_by = (
	'insert-logged' => q{BEGIN; DELETE FROM t WHERE id < 50; INSERT INTO t VALUES (-1, 1, 'x')},
	'update-logged' => q{BEGIN; DELETE FROM t WHERE id < 50; UPDATE t SET pad = 'z' WHERE id > 900},
	'delete-logged' => q{BEGIN; UPDATE t SET pad = 'z' WHERE id > 900; DELETE FROM t WHERE id < 50},
	'move-logged' => q{BEGIN; DELETE FROM plain WHERE id < 50; UPDATE t SET id = id + 1000000 WHERE id BETWEEN 100 AND 130},
	'abort-callback' => q{BEGIN; UPDATE t SET n = n + 1; DELETE FROM plain WHERE id < 500; ROLLBACK},
	'rollback-logged' => q{BEGIN; UPDATE t SET n = n + 1 WHERE id < 400; DELETE FROM plain WHERE id < 500; ROLLBACK},
	'inline-lock-logged' => q{BEGIN; UPDATE t SET n = n + 1 WHERE id < 50; SELECT 1 FROM plain WHERE id < 20 FOR KEY SHARE},
	'locks-converted' => q{BEGIN; DELETE FROM t WHERE id < 50; SELECT 1 FROM plain WHERE id < 4 FOR KEY SHARE; DELETE FROM plain WHERE id < 20},
	'prune-logged' => q{VACUUM t; VACUUM plain},
	'indexes-cleaned' => q{VACUUM (INDEX_CLEANUP ON) t; VACUUM (INDEX_CLEANUP ON) plain},
);
for my $fault (sort keys %reached_by)
{
	# something for VACUUM to prune
	$node->safe_psql('postgres', q{UPDATE t SET pad = repeat('w', 200) WHERE id % 4 = 0; UPDATE t SET pad = 'v' WHERE id % 4 = 0;
		DELETE FROM plain WHERE id % 50 = 1; INSERT INTO plain SELECT g, 'again' FROM generate_series(1, 50) g});
	all_discarded($node);
	$before = $node->safe_psql('postgres', $state);
	my ($rc) = $node->psql('postgres',
		"SET zundo.eager_rollback_pages = 1000;\nSET zundo.fault = '$fault:crash';\n" . join(";\n", split(/; */, $reached_by{$fault})) . ";\n");
	isnt($rc, 0, "$fault: the session died");
	ok(wait_for_death($node), "$fault: and the server with it");
	recovered($fault, $before);
}

# 5. The worker dies while it rolls back what a session left to it; the next
# worker continues.
$before = $node->safe_psql('postgres', $state);
$node->append_conf('postgresql.conf', "zundo.fault = 'rollback-logged:crash'");
# a worker that runs may take the new setting too late
$node->restart;
$node->psql('postgres', "SET zundo.fault = ''; SET zundo.eager_rollback_pages = 0;
	BEGIN; UPDATE t SET n = n + 1; DELETE FROM plain; ROLLBACK");
ok(wait_for_death($node), 'an undo worker died in a rollback');
$node->append_conf('postgresql.conf', "zundo.fault = ''");
recovered('death of an undo worker', $before);

# 6. A prepared transaction survives, and can be rolled back or committed afterwards.
$node->safe_psql('postgres', q{BEGIN; UPDATE t SET n = 77 WHERE id BETWEEN 200 AND 300; DELETE FROM plain WHERE id > 2900;
	PREPARE TRANSACTION 'one'});
$node->safe_psql('postgres', q{BEGIN; UPDATE t SET n = 88 WHERE id BETWEEN 400 AND 500; PREPARE TRANSACTION 'two'});
$before = $node->safe_psql('postgres', $state);
crash($node);
is($node->safe_psql('postgres', $state), $before, 'prepared: the rows of before');
tables_sound('prepared');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'one'});
rollbacks_done('prepared');
is($node->safe_psql('postgres', $state), $before, 'prepared and rolled back: the rows of before');
my $count = $node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE id BETWEEN 400 AND 500');
$node->safe_psql('postgres', q{COMMIT PREPARED 'two'});
is($node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE n = 88'), $count, 'prepared and committed after a crash');
tables_sound('prepared, later');

# 7. A table made by the transaction that dies is gone, and undo of it does no harm.
$before = $node->safe_psql('postgres', $state);
$writer = $node->background_psql('postgres', on_error_stop => 1);
$writer->query_safe(q{BEGIN; CREATE TABLE gone (id int) USING zheap; INSERT INTO gone SELECT generate_series(1, 5000);
	UPDATE gone SET id = -id; TRUNCATE plain; INSERT INTO plain VALUES (1, 'only')});
$node->safe_psql('postgres', 'CREATE TABLE flush_wal_too ()');
$node->stop('immediate');
eval { $writer->quit };
recovered('table of a lost transaction', $before);

# 8. Nothing remains: all undo can be discarded.
ok( $node->poll_query_until('postgres', 'SELECT zundo.discard() IS NOT NULL AND zundo.undo_bytes_in_use() < 100000 AND txid_current() > 0'),
	'undo is given back');
tables_sound('the end');
no_crash($node);
$node->stop;
done_testing();
