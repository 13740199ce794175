# The flag "all-visible" of each page, and its bits in the visibility map, are on a standby
# and after a crash what they were on the primary. wal_consistency_checking cannot tell: the
# server masks the flag, and the whole content of the map's pages.
# Rules: VMAP-1, VMAP-2, VMAP-3.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

# no worker and no checkpoint: nothing but the statements below changes a page, and redo
# changes pages record by record instead of taking them from images
my $node = zundo_node('primary', <<'C', allows_streaming => 1);
max_worker_processes = 0
max_prepared_transactions = 5
checkpoint_timeout = 1h
max_wal_size = 4GB
C
sql(q{
CREATE EXTENSION zundo;
CREATE EXTENSION pageinspect;
CREATE FUNCTION flags() RETURNS TABLE (r regclass, block int, flag bool, bits int) LANGUAGE sql AS $$
	SELECT oid::regclass, b, (p.flags & 4) <> 0,
		CASE WHEN 8192 * (b / 32672 + 1) > pg_relation_size(oid, 'vm') THEN 0
		ELSE get_byte(get_raw_page(oid::regclass::text, 'vm', b / 32672), 24 + b % 32672 / 4) >> b % 4 * 2 & 3 END
	FROM pg_class, generate_series(0, (pg_relation_size(oid) / 8192)::int - 1) b,
		page_header(get_raw_page(oid::regclass::text, 'main', b)) p
	WHERE relname IN ('t', 'moved') ORDER BY 1, 2 $$;
-- an update of t leaves the row in place, as long as it fits; one of moved moves it
CREATE TABLE t (id int PRIMARY KEY, n int, filler text) USING zheap WITH (fillfactor = 100);
CREATE TABLE moved (id int PRIMARY KEY, n int, filler text) USING zheap;
CREATE INDEX ON moved (n);
INSERT INTO t SELECT g, 0, repeat('x', 200) FROM generate_series(1, 1000) g;
INSERT INTO moved SELECT g, 0, repeat('x', 200) FROM generate_series(1, 500) g;
SELECT zundo.discard();
VACUUM t, moved;
});
my $standby = standby_of($node);

# same NAME: checks that the standby has the same flags and bits; returns them.
sub same
{
	my ($name) = @_;
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	my $here = sql('SELECT * FROM flags()');
	is($standby->safe_psql('postgres', 'SELECT * FROM flags()'), $here, "$name: the standby");
	return $here;
}
like(same('vacuumed'), qr/^t\|0\|t\|1$/m, 'the first page is flagged, and has its bit');

my $scan = 'SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;';
my $prepared = 0;

# change: returns a random statement.
sub change
{
	my $table = rand() < 0.6 ? 't' : 'moved';
	my ($id, $new, $n) = (1 + int rand 1000, 1001 + int rand 3000, int rand 100);
	my $rows = 'id BETWEEN ' . $id . ' AND ' . ($id + int rand 30);
	my @kinds = (
		"UPDATE $table SET n = $n WHERE id = $id;",
		"UPDATE $table SET n = $n WHERE $rows;",
		"UPDATE $table SET filler = repeat('y', " . int(rand 900) . ") WHERE id = $id;",
		"DELETE FROM $table WHERE id = $id;",
		"DELETE FROM $table WHERE $rows;",
		"INSERT INTO $table VALUES ($new, $n, 'one');",
		"INSERT INTO $table SELECT g, $n, repeat('z', 300) FROM generate_series($new, $new + 40) g ON CONFLICT DO NOTHING;",
		"INSERT INTO $table VALUES ($id, $n, 'upserted') ON CONFLICT (id) DO UPDATE SET n = $n;",
		"COPY $table FROM STDIN;\n" . join('', map { 5000 + int(rand 100000) . "\t$n\tcopied\n" } 1 .. 20) . '\.',
		"BEGIN; SELECT id FROM $table WHERE $rows FOR UPDATE; SELECT id FROM $table WHERE $rows FOR KEY SHARE; COMMIT;",
		"BEGIN; UPDATE $table SET n = $n WHERE $rows; SAVEPOINT s; DELETE FROM $table WHERE id = $id; ROLLBACK TO s; COMMIT;",
		"BEGIN; UPDATE $table SET n = $n WHERE $rows; INSERT INTO $table VALUES ($new, 0, ''); ROLLBACK;",
		"$scan SELECT sum(n) FROM $table;",
		"$scan SELECT sum(n) FROM $table;",
		"SELECT zundo.discard(); VACUUM $table;",
		"SELECT zundo.discard(); VACUUM $table;",
		"SELECT zundo.discard(); VACUUM (INDEX_CLEANUP off, TRUNCATE off) $table;",
		"SELECT zundo.discard(); VACUUM (DISABLE_PAGE_SKIPPING) $table;");
	push @kinds, "VACUUM FULL $table;", "DELETE FROM $table WHERE id > 3000; SELECT zundo.discard(); VACUUM $table;" if rand() < 0.2;
	push @kinds, "BEGIN; UPDATE $table SET n = -1 WHERE $rows; PREPARE TRANSACTION 'p" . $prepared++ . "';" if rand() < 0.3;
	return $kinds[ rand @kinds ];
}

my $seed = $ENV{ZUNDO_SEED} // int rand 1e9;
srand $seed;
note("seed $seed");
my ($flagged, $cleared, %was) = (0, 0);
# a few seeds change too few flags in 24 rounds
for my $round (1 .. 60)
{
	my $changes = join "\n", map { change() } 1 .. 1 + int rand 6;
	$node->psql('postgres', "SET statement_timeout = '30s'; SET lock_timeout = '200ms';\n$changes", on_error_stop => 0);
	my $flags = same("round $round (seed $seed)");
	if ($round % 6 == 0)
	{
		crash($node);
		is(sql('SELECT * FROM flags()'), $flags, "round $round: after a crash");
		sql("ROLLBACK PREPARED '$_'") for split /\n/, sql('SELECT gid FROM pg_prepared_xacts');
	}
	my %is = map { /^(\w+\|\d+)\|(.*)$/ } split /\n/, $flags;
	for (keys %is)
	{
		next if !defined $was{$_} || $was{$_} eq $is{$_};
		$is{$_} eq 't|1' ? $flagged++ : $was{$_} eq 't|1' ? $cleared++ : 0;
	}
	%was = %is;
	last if $round >= 24 && $round % 6 == 0 && $flagged > 20 && $cleared > 20;
}
cmp_ok($flagged, '>', 20, 'pages were flagged');
cmp_ok($cleared, '>', 20, 'and flags were cleared');
sound($node, 'at the end', 't', 'moved');

# promotion changes no flag
$standby->promote;
is($standby->safe_psql('postgres', 'SELECT * FROM flags()'), sql('SELECT * FROM flags()'), 'promoted');
sound($standby, 'promoted', 't', 'moved');
no_crash($_) for $node, $standby;
$standby->stop;
$node->stop;
done_testing();
