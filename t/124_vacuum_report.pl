# What VACUUM (VERBOSE) and the log of autovacuum say of a zheap table: the lines of
# heap's report in this version whose figures exist, and one about undo. Autovacuum
# beside an open DELETE does not come again and again.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use ZundoTest;

my $node = zundo_node('vacuum_report', <<'C');
autovacuum_naptime = 1s
track_io_timing = on
max_prepared_transactions = 5
C
$node->append_conf('postgresql.conf', 'track_cost_delay_timing = on') if server_major() >= 18;
$node->reload;
sql('CREATE EXTENSION zundo');
my @ams = ('heap', 'zheap');
sql(map { "CREATE TABLE $_ (id int PRIMARY KEY, k int) USING $_ WITH (autovacuum_enabled = off); CREATE INDEX ${_}_k ON $_ (k);"
	. "INSERT INTO $_ SELECT g, g FROM generate_series(1, 20000) g;" } @ams);

# report OPTIONS TABLE: returns what VACUUM (VERBOSE) reports of the table.
sub report
{
	my ($options, $table) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "VACUUM (VERBOSE$options) $table");
	is($rc, 0, "VACUUM (VERBOSE$options) $table");
	return $err;
}

# shape TEXT: returns the lines about the table itself with what differs by nature taken
# out: numbers, and the name of the table.
sub shape
{
	my ($text, $am) = @_;
	$text =~ s/^.*finished vacuuming.*"postgres\.pg_toast.*\z//ms;
	my @lines = grep { /\S/ } split /\n/, $text;
	s/^psql:\S+ //, s/^INFO:\s+//, s/-?\d+(\.\d+)?/N/g, s/\bz?heap\b/T/g, s/\bz?heap_/T_/g, s/\s+$// for @lines;
	s/^aggressively //, s/, N eagerly scanned// for @lines;
	# heap freezes, zheap does not
	@lines = grep { !/^frozen: / } @lines;
	s/^(visibility map: N pages set all-visible), .*/$1/ for @lines;
	return @lines;
}

my $offset = 0;

# log_with PATTERN: waits until the server log has it from $offset on, and returns the log
# from there.
sub log_with
{
	my $pattern = shift;
	for (1 .. 600)
	{
		last if slurp_file($node->logfile, $offset) =~ $pattern;
		usleep(100_000);
	}
	return slurp_file($node->logfile, $offset);
}

my $round = 0;
for my $options ('', ', FREEZE', ', INDEX_CLEANUP off', ', PARALLEL 0, TRUNCATE off', ', DISABLE_PAGE_SKIPPING, INDEX_CLEANUP on')
{
	sql(map { "DELETE FROM $_ WHERE id % 7 = $round; INSERT INTO $_ SELECT max(id) + 1, 1 FROM $_;" } @ams);
	$round++;
	sql('SELECT zundo.discard()');
	my @heap = shape(report($options, 'heap'));
	my $text = report($options, 'zheap');
	my @zheap = shape($text);
	is((grep { /^undo: N changes of aborted transactions undone, N pages had rows with stale index keys$/ } @zheap), 1, "undo$options");
	my %is_heap = map { $_ => 1 } grep { !/^new rel/ } @heap;
	my %is_zheap = map { $_ => 1 } grep { !/^new rel|^undo: / } @zheap;
	is_deeply([sort keys %is_zheap], [sort keys %is_heap], "the same lines as heap$options") or diag($text);
}

# The figures themselves.
sub figure { my ($text, $pattern) = @_; return $text =~ $pattern ? join('|', grep { defined } $1, $2, $3) : "nothing: $text"; }
my $left = sql('SELECT count(*) FROM zheap');
my $blocks = sql("SELECT pg_relation_size('zheap') / 8192");
report(', INDEX_CLEANUP on', 'zheap');
my $gone = sql('WITH d AS (DELETE FROM zheap WHERE id % 4 = 1 RETURNING 1) SELECT count(*) FROM d');
sql('SELECT zundo.discard()');
my $text = report(', INDEX_CLEANUP on', 'zheap');
is(figure($text, qr/pages: (\d+) removed, (\d+) remain, (\d+) scanned/), "0|$blocks|$blocks", 'pages');
is(figure($text, qr/tuples: (\d+) removed, (\d+) remain, (\d+) are dead/), join('|', $gone, $left - $gone, 0), 'rows');
is(figure($text, qr/index scan needed: \d+ pages from table \([\d.]+% of total\) had (\d+) dead item identifiers removed/), $gone, 'line pointers');
like($text, qr/index "zheap_k": pages: \d+ in total, /, 'an index');
like($text, qr/WAL usage: [1-9]\d* records, \d+ full page images, [1-9]\d* bytes/, 'WAL');
like($text, qr/buffer usage: [1-9]\d* hits, /, 'buffers');
like($text, qr/removable cutoff: [1-9]\d*, which was \d+ XIDs old/, 'cutoff');
is(figure(report('', 'zheap'), qr/pages: (\d+) removed, \d+ remain, (\d+) scanned/), '0|1', 'nothing has changed: the last page');
sql('BEGIN; UPDATE zheap SET k = k + 1 WHERE id % 4 = 2; ROLLBACK');
like(report('', 'zheap'), qr/undo: \d+ changes of aborted transactions undone/, 'undone');
sql("DELETE FROM zheap WHERE (ctid::text::point)[0] >= $blocks / 2; SELECT zundo.discard()");
$text = report('', 'zheap');
like($text, qr/table "zheap": truncated $blocks to \d+ pages/, 'truncated');
cmp_ok(figure($text, qr/pages: (\d+) removed/), '>', 0, 'truncated: pages removed');
my $holder = session($node);
sql("INSERT INTO zheap SELECT g, g FROM generate_series(100001, 110000) g; DELETE FROM zheap WHERE id > 100000");
ask($holder, 'BEGIN', "LOCK TABLE zheap IN ROW SHARE MODE");
sql('SELECT zundo.discard()');
like(report('', 'zheap'), qr/table "zheap": stopping truncate due to conflicting lock request/, 'the table is locked');
$holder->quit;

# A reader's snapshot: dead rows that cannot be removed yet.
my $reader = session($node);
ask($reader, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM zheap');
$gone = sql('WITH d AS (DELETE FROM zheap WHERE id % 4 = 2 RETURNING 1) SELECT count(*) FROM d');
is(figure(report('', 'zheap'), qr/tuples: (\d+) removed, \d+ remain, (\d+) are dead but not yet removable/), "0|$gone", 'dead rows that a snapshot needs');
$reader->quit;

# What autovacuum logs, by the setting of the server and that of the table.
sql('SELECT zundo.discard()');
$offset = -s $node->logfile;
sql(map { "CREATE TABLE $_ (id int PRIMARY KEY, k int) USING zheap; INSERT INTO $_ SELECT g, g FROM generate_series(1, 5000) g; DELETE FROM $_ WHERE id > 1000;" }
	'logged', 'silent', 'slow');
sql('ALTER TABLE logged SET (log_autovacuum_min_duration = 0); ALTER TABLE slow SET (log_autovacuum_min_duration = 3600000)');
sql('SELECT zundo.discard()');
$node->append_conf('postgresql.conf', "autovacuum = on\nlog_autovacuum_min_duration = -1");
$node->reload;
ok($node->poll_query_until('postgres', q{SELECT count(*) = 3 FROM pg_stat_user_tables WHERE relname IN ('logged', 'silent', 'slow') AND autovacuum_count > 0}), 'autovacuum came');
# the count is reported before the line is written
my $log = log_with(qr/of table "postgres\.public\.logged"(?s:.*)system usage: CPU/);
like($log, qr/LOG:  automatic vacuum of table "postgres\.public\.logged": index scans: 1\n\s+pages: \d+ removed, .*\n\s+tuples: \d+ removed, /, 'logged');
like($log, qr/of table "postgres\.public\.logged"[^"]*"logged_pkey": pages: .*?\n\s+undo: .*?\n(?:\s+.*\n)*?\s+WAL usage: .*\n\s+system usage: CPU: user: /, 'logged: all of it');
unlike($log, qr/vacuum of table "postgres\.public\.(?:silent|slow)"/, 'not logged: settings of server and table');
$node->append_conf('postgresql.conf', "log_autovacuum_min_duration = 0");
$node->reload;
sql("INSERT INTO $_ SELECT g, g FROM generate_series(1001, 5000) g; DELETE FROM $_ WHERE id > 1000; SELECT zundo.discard()") for 'silent', 'slow';
ok($node->poll_query_until('postgres', q{SELECT count(*) = 2 FROM pg_stat_user_tables WHERE relname IN ('silent', 'slow') AND autovacuum_count > 1}), 'autovacuum came again');
$log = log_with(qr/of table "postgres\.public\.silent"(?s:.*)system usage: CPU/);
like($log, qr/LOG:  automatic vacuum of table "postgres\.public\.silent": index scans: /, 'logged: setting of the server');
unlike($log, qr/vacuum of table "postgres\.public\.slow"/, 'not logged: setting of the table');

# Autovacuum beside an open DELETE, after one VACUUM: it does not come for rows that
# are not dead.
sql((map { "CREATE TABLE open_$_ (id int PRIMARY KEY, v int) USING $_ WITH (autovacuum_enabled = off); INSERT INTO open_$_ SELECT g, g FROM generate_series(1, 20000) g;" } @ams), 'SELECT pg_stat_force_next_flush()');
sql(map { "VACUUM ANALYZE open_$_;" } @ams);
sql(map { "BEGIN; DELETE FROM open_$_ WHERE id <= 15000; PREPARE TRANSACTION 'open_$_';" } @ams);
sql(map { "VACUUM open_$_;" } @ams);
my $counts = q{SELECT relname, n_live_tup, n_dead_tup FROM pg_stat_user_tables WHERE relname LIKE 'open%' ORDER BY 1};
is(sql($counts), "open_heap|20000|0\nopen_zheap|20000|0", 'beside an open DELETE');

# Now autovacuum looks at the tables beside the open DELETE, too.
sql('ANALYZE open_heap; ANALYZE open_zheap');
sql(map { "ALTER TABLE open_$_ RESET (autovacuum_enabled);" } @ams);
sleep(4);
my %runs = split /[|\n]/, sql(q{SELECT relname, autovacuum_count FROM pg_stat_user_tables WHERE relname LIKE 'open%'});
cmp_ok($runs{open_zheap}, '<=', $runs{open_heap}, 'beside an open DELETE: autovacuum comes as often as on heap');
is(sql($counts), "open_heap|20000|0\nopen_zheap|20000|0", 'beside an open DELETE, after ANALYZE');
sql("ROLLBACK PREPARED 'open_heap'; COMMIT PREPARED 'open_zheap'");
is(sql("SELECT * FROM zundo.check('$_')"), '', "zundo.check: $_") for 'zheap', 'logged', 'open_zheap';
no_crash($node);
$node->stop;
done_testing();
