# What PostgreSQL 19 adds that concerns rows: each statement answers as on heap.
# newest
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

plan skip_all => 'statements that 19 has added' if server_major() < 19;

my $node = zundo_node('nineteen', "max_prepared_transactions = 5\nwal_level = logical\nlock_timeout = 60s\n");
sql('CREATE EXTENSION zundo');
my @ams = qw(heap zheap);

# both NAME, SQL: checks that the SQL, with _AM in the names of tables and USING AM
# replaced, gives the same on both access methods; returns it.
sub both
{
	my ($name, $sql) = @_;
	my %out;
	for my $am (@ams)
	{
		(my $own = $sql) =~ s/_AM\b/_$am/g;
		$own =~ s/\bAM\b/$am/g;
		my ($rc, $out, $err) = $node->psql('postgres', $own);
		$out{$am} = "$out\n$err" =~ s/_$am\b/_AM/gr;
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($out{zheap}, $out{heap}, $name);
	return $out{zheap};
}

# beside NAME, FIRST, OTHER, SECOND: a session does FIRST, another one OTHER, the first
# one SECOND, which is compared.
sub beside
{
	my ($name, $first, $other, $second) = @_;
	my %out;
	for my $am (@ams)
	{
		my $session = session($node);
		my @own = map { s/_AM\b/_$am/gr } $first, $other, $second;
		ask($session, $own[0]);
		sql($own[1]);
		$out{$am} = ask($session, $own[2]) . "\n" . $complaint =~ s/_$am\b/_AM/gr =~ s/psql:<stdin>:\d+: //gr =~ s/\S*QUERY_SEPARATOR.*//gr;
		$session->quit;
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($out{zheap}, $out{heap}, $name);
	return $out{zheap};
}

# A slot fills in the columns that the row is too old to have.
both('columns added with a default', q{
	CREATE TABLE added_AM (a int, b text) USING AM;
	INSERT INTO added_AM SELECT g, 'b' || g FROM generate_series(1, 5) g;
	ALTER TABLE added_AM ADD c int DEFAULT 7, ADD d text DEFAULT 'd', ADD e int;
	SELECT * FROM added_AM ORDER BY a; SELECT d FROM added_AM; SELECT count(e), sum(c) FROM added_AM;
	UPDATE added_AM SET b = 'x' WHERE a = 2; SELECT * FROM added_AM ORDER BY a;
	SELECT x, x.d FROM added_AM x WHERE x.c = 7 ORDER BY a});

# ON CONFLICT DO SELECT.
both('tables', 'CREATE TABLE q_AM (id int PRIMARY KEY, n int, note text) USING AM; INSERT INTO q_AM SELECT g, g FROM generate_series(1, 9) g');
both('DO SELECT', q{
	INSERT INTO q_AM VALUES (5, 0), (20, 20) ON CONFLICT (id) DO SELECT RETURNING *;
	INSERT INTO q_AM VALUES (6, 0) ON CONFLICT (id) DO SELECT FOR UPDATE RETURNING *;
	INSERT INTO q_AM VALUES (7, 0) ON CONFLICT (id) DO SELECT WHERE q_AM.n = excluded.n RETURNING *;
	INSERT INTO q_AM VALUES (30, 1), (30, 2) ON CONFLICT (id) DO SELECT RETURNING *;
	INSERT INTO q_AM VALUES (31, 1), (31, 2) ON CONFLICT (id) DO SELECT FOR SHARE RETURNING *;
	SELECT * FROM q_AM ORDER BY id});
both('DO SELECT of own rows', q{
	BEGIN;
	UPDATE q_AM SET n = 100 WHERE id = 1; DELETE FROM q_AM WHERE id = 2; INSERT INTO q_AM VALUES (40, 40);
	SAVEPOINT s; UPDATE q_AM SET n = 101 WHERE id = 1; ROLLBACK TO s;
	INSERT INTO q_AM VALUES (1, 0), (2, 0), (40, 0), (2, 1) ON CONFLICT (id) DO SELECT RETURNING *;
	WITH u AS (UPDATE q_AM SET n = 7 WHERE id = 3 RETURNING n), i AS (INSERT INTO q_AM VALUES (3, 0) ON CONFLICT (id) DO SELECT RETURNING n)
		SELECT u.n FROM u, i;
	COMMIT;
	SELECT * FROM q_AM ORDER BY id});

# The statement waits in the function after it has taken its snapshot; the row is changed
# before the statement comes to it.
my $gate = session($node);
for my $end ('UPDATE q_AM SET n = n + 1000 WHERE id = 5', 'UPDATE q_AM SET n = n WHERE id = 5', 'INSERT INTO q_AM VALUES (50, 50)', 'DELETE FROM q_AM WHERE id = 6; INSERT INTO q_AM VALUES (6, 66)')
{
	for my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
	{
		for my $lock ('', 'FOR KEY SHARE')
		{
			my %out;
			my ($id) = $end =~ /UPDATE/ ? 5 : $end =~ /50/ ? 50 : 6;
			sql("DELETE FROM q_$_ WHERE id = 50") for @ams;
			for my $am (@ams)
			{
				ask($gate, 'SELECT pg_advisory_lock(1)');
				my $session = session($node);
				ask($session, "BEGIN ISOLATION LEVEL $level");
				$session->query_until(qr/starts/, "\\echo starts\nINSERT INTO q_$am SELECT $id, 0 FROM (SELECT pg_advisory_lock_shared(1)) ON CONFLICT (id) DO SELECT $lock RETURNING n;\n");
				$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted})
					or die 'it does not wait';
				sql($end =~ s/_AM/_$am/gr);
				ask($gate, 'SELECT pg_advisory_unlock(1)');
				$out{$am} = ask($session, 'SELECT 1', 'COMMIT') . ($complaint =~ /ERROR: (.*)/ ? $1 : '');
				$session->quit;
			}
			is($out{zheap}, $out{heap}, "DO SELECT $lock under $level, the row met after $end: $out{heap}");
		}
	}
}
$gate->quit;

# FOR PORTION OF: the old row is fetched after the change, and triggers see all.
my $log = both('FOR PORTION OF', q{
	CREATE TABLE price_AM (id int, valid int4range, cost int, note text, EXCLUDE USING gist (valid WITH &&)) USING AM;
	CREATE TABLE seen_AM (what text) USING AM;
	CREATE FUNCTION see_AM() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO seen_AM VALUES (TG_WHEN || ' ' || TG_OP || ' ' || coalesce(OLD::text, '-') || ' ' || coalesce(NEW::text, '-')); RETURN coalesce(NEW, OLD); END $$;
	CREATE TRIGGER before BEFORE INSERT OR UPDATE OR DELETE ON price_AM FOR EACH ROW EXECUTE FUNCTION see_AM();
	CREATE TRIGGER after AFTER INSERT OR UPDATE OR DELETE ON price_AM FOR EACH ROW EXECUTE FUNCTION see_AM();
	INSERT INTO price_AM VALUES (1, '[1,100)', 10, repeat('x', 3000)), (2, '[100,200)', 20, 'n'), (3, '[300,400)', 30, NULL);
	UPDATE price_AM FOR PORTION OF valid FROM 20 TO 30 SET cost = 11 WHERE id = 1;
	DELETE FROM price_AM FOR PORTION OF valid FROM 90 TO 120;
	UPDATE price_AM FOR PORTION OF valid FROM 310 TO 320 SET cost = cost + 1, note = 'y' WHERE id = 3 RETURNING id, valid, cost, note;
	BEGIN; UPDATE price_AM SET cost = cost + 1; DELETE FROM price_AM FOR PORTION OF valid FROM 1 TO 1000 WHERE id = 2; ROLLBACK;
	BEGIN; UPDATE price_AM SET cost = cost + 5 WHERE id = 3; UPDATE price_AM FOR PORTION OF valid FROM 350 TO 360 SET cost = 0 WHERE id = 3; COMMIT;
	SELECT id, valid, cost, length(note) FROM price_AM ORDER BY valid;
	SELECT length(what), left(what, 60) FROM seen_AM ORDER BY what});
like($log, qr/^3\|\[310,320\)\|31\|y$/m, 'and RETURNING has the row');
beside('FOR PORTION OF after another change', "BEGIN ISOLATION LEVEL READ COMMITTED; DECLARE c CURSOR FOR SELECT 1",
	'UPDATE price_AM SET cost = 77 WHERE id = 3', 'UPDATE price_AM FOR PORTION OF valid FROM 330 TO 340 SET cost = cost + 1 WHERE id = 3; COMMIT; SELECT id, valid, cost FROM price_AM WHERE id = 3 ORDER BY valid');
beside('FOR PORTION OF under an old snapshot', 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM price_AM',
	'UPDATE price_AM SET cost = 78 WHERE id = 3', 'DELETE FROM price_AM FOR PORTION OF valid FROM 330 TO 335 WHERE id = 3; ROLLBACK; SELECT id, valid, cost FROM price_AM WHERE id = 3 ORDER BY valid');

# REPACK keeps what old snapshots see; REPACK of whole databases skips the undo log.
sql(q{CREATE TABLE r (id int PRIMARY KEY, n int, pad text) USING zheap; INSERT INTO r SELECT g, g, repeat('p', 300) FROM generate_series(1, 3000) g;
	CREATE TABLE rh (id int PRIMARY KEY, n int) USING heap; INSERT INTO rh SELECT g FROM generate_series(1, 3000) g});
my $old = session($node);
my $look = 'SAVEPOINT s; SELECT count(*), sum(n) FROM r; ROLLBACK TO s';	# keeps no lock on the table
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
sql('UPDATE r SET n = -n WHERE id % 2 = 0; DELETE FROM r WHERE id % 3 = 0');
my $now = sql('SELECT count(*), sum(n) FROM r');
for my $repack ('REPACK r', 'REPACK r USING INDEX r_pkey', 'REPACK (ANALYZE) r', 'REPACK (VERBOSE off)', 'REPACK', 'REPACK USING INDEX', 'CLUSTER')
{
	my $file = sql(q{SELECT pg_relation_filenode('r')});
	my $undo = sql(q{SELECT pg_relation_filenode('zundo.undo_log')});
	my ($rc, $out, $err) = $node->psql('postgres', $repack);
	is($err, '', $repack);
	isnt(sql(q{SELECT pg_relation_filenode('r')}), $file, '... has a new file');
	is(sql(q{SELECT pg_relation_filenode('zundo.undo_log')}), $undo, '... and the undo log its old one');
	is(ask($old, $look), '3000|4501500', '... and what an old snapshot sees');
	is(sql('SELECT count(*), sum(n) FROM r'), $now, '... and what a new one sees');
}
for my $refused (['BEGIN; REPACK; ROLLBACK', 'REPACK cannot run inside a transaction block'], ['REPACK (CONCURRENTLY)', 'requires an explicit table name'],
	['REPACK (ANALYZE)', 'multiple tables'], ['REPACK zundo.undo_log', '"zundo.undo_log" cannot be'])
{
	my ($rc, $out, $err) = $node->psql('postgres', '\set VERBOSITY verbose' . "\n$refused->[0]");
	like($err, qr/ERROR:  (?:0A000|25001): .*$refused->[1]/, "$refused->[0] is refused");
}
sql('CREATE ROLE nobody; GRANT SELECT ON r TO nobody');
my ($rc, $out, $err) = $node->psql('postgres', 'SET ROLE nobody; SET client_min_messages = error; REPACK');
is($err, '', 'REPACK without rights does nothing');
is(ask($old, $look), '3000|4501500', 'what an old snapshot sees');
ask($old, 'COMMIT');
# REPACK takes no lock on the undo log, so new writers do not wait.
ask($old, 'BEGIN; UPDATE r SET n = n WHERE id = 1');
my $repacker = session($node, timeout => 5 * $PostgreSQL::Test::Utils::timeout_default);
$repacker->query_until(qr/starts/, "\\echo starts\nREPACK;\n");
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE relation = 'r'::regclass AND NOT granted}) or die 'it does not wait';
is(sql("SET lock_timeout = '10s'; CREATE TABLE beside (id int) USING zheap; INSERT INTO beside VALUES (1) RETURNING id"), 1, 'writers continue while REPACK waits for a table');
ask($old, 'COMMIT');
$repacker->query_safe('SELECT 1');
$repacker->quit;
$old->quit;

# REPACK (CONCURRENTLY) of a heap table ignores decoded changes of zheap tables.
sql(q{CREATE TABLE mine (id int PRIMARY KEY, n int, pad text) USING heap; INSERT INTO mine SELECT g, g, 'mine' FROM generate_series(1, 1000) g;
	CREATE TABLE theirs (id int PRIMARY KEY, n int, pad text) USING zheap; INSERT INTO theirs SELECT g, -g, 'theirs' FROM generate_series(1, 1000) g});
my $reader = session($node);
ask($reader, 'BEGIN; SELECT count(*) FROM mine');
my $concurrent = session($node);
my $was = sql(q{SELECT pg_relation_filenode('mine')});
$concurrent->query_until(qr/starts/, "\\echo starts\nREPACK (CONCURRENTLY) mine;\n");
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE relation = 'mine'::regclass AND NOT granted}) or die 'it does not wait';
sql(q{UPDATE theirs SET n = n - 1000000, pad = repeat('t', 100) WHERE id <= 20; DELETE FROM theirs WHERE id BETWEEN 21 AND 30; INSERT INTO theirs SELECT g, -g, repeat('long', 2000) FROM generate_series(2001, 2010) g;
	INSERT INTO theirs VALUES (2001, 0) ON CONFLICT DO NOTHING; UPDATE theirs SET id = id + 10000 WHERE id < 10});
ask($reader, 'COMMIT');
$concurrent->query_safe('SELECT 1');
is($concurrent->{stderr} =~ s/.*QUERY_SEPARATOR.*//gr =~ s/\s//gr, '', 'REPACK (CONCURRENTLY) of a heap table beside changes of a zheap table');
isnt(sql(q{SELECT pg_relation_filenode('mine')}), $was, '... has a new file');
is(sql("SELECT count(*), sum(n), min(n), count(*) FILTER (WHERE pad <> 'mine') FROM mine"), '1000|500500|1|0', '... and the rows of the table alone');
is(sql('SET enable_seqscan = off; SELECT count(*) FROM mine WHERE id > 0'), 1000, '... also by its index');
$_->quit for $reader, $concurrent;

# REPACK (CONCURRENTLY) of a zheap table, and of a heap table with the same changes,
# beside writers (CLUSTER-1e).
sql(qq{CREATE TABLE live_$_ (id int PRIMARY KEY, n int, gone text, v text, t text) USING $_; ALTER TABLE live_$_ ALTER t SET STORAGE EXTERNAL;
	INSERT INTO live_$_ SELECT g, g, 'gone', repeat('v', g % 100), repeat('t', g % 3 * 1500) FROM generate_series(1, 2000) g;
	ALTER TABLE live_$_ DROP COLUMN gone, ADD COLUMN added int DEFAULT 7; CREATE INDEX ON live_$_ (n);
	BEGIN; UPDATE live_$_ SET n = 0; ROLLBACK}) for @ams;
sql('CREATE INDEX live_z ON live_zheap USING zbtree (v)');
my $repacks = 0;
for my $how ('REPACK (CONCURRENTLY) live_AM', 'REPACK (CONCURRENTLY) live_AM USING INDEX live_AM_pkey', 'REPACK (CONCURRENTLY, ANALYZE) live_AM')
{
	my @writers = map { my $writer = session($node); $writer } 1 .. 3;
	for my $w (0 .. 2)
	{
		my $sql = join '', map {
			my $i = $_ * 3 + $w;
			my @do = ("UPDATE live_AM SET n = n + 1 WHERE id % 400 = $i % 400 AND id % 3 = $w", "UPDATE live_AM SET v = v || 'x', t = t || 'y' WHERE id = $i * 7 % 2000 / 3 * 3 + $w",
				"UPDATE live_AM SET id = id + 1000002 WHERE id = $i % 900 / 3 * 3 + $w", "DELETE FROM live_AM WHERE id = 1200 + $i % 600 / 3 * 3 + $w",
				"INSERT INTO live_AM (id, n, v, t) VALUES (10000000 + $i * 3 + $w + $repacks * 10000, $i, 'new', repeat('n', $i % 3000)) ON CONFLICT (id) DO UPDATE SET n = -1",
				"SAVEPOINT a", "UPDATE live_AM SET n = n + 7, t = 'back' WHERE id % 100 = $w", "ROLLBACK TO a", "UPDATE live_AM SET added = $i WHERE id = $i % 2000");
			'BEGIN; ' . join('; ', map { my $do = $_; $do =~ /AM/ ? map { $do =~ s/AM/$_/gr } @ams : $do } @do) . ($i % 5 ? "; COMMIT;\n" : "; ROLLBACK;\n") } 1 .. 150;
		$sql =~ s/WHERE id = \$i % 2000/WHERE false/g;
		$writers[$w]->query_until(qr/writes/, "\\echo writes\n$sql\\echo written\n");
	}
	for my $am (reverse(@ams), reverse(@ams))
	{
		my $file = sql("SELECT pg_relation_filenode('live_$am')");
		my ($rc, $out, $err) = $node->psql('postgres', $how =~ s/AM/$am/gr);
		is($err, '', "$how, $am");
		isnt(sql("SELECT pg_relation_filenode('live_$am')"), $file, '... has a new file');
		$repacks++;
	}
	for my $writer (@writers)
	{
		$writer->query_until(qr/written/, '');
		is($writer->{stderr} =~ s/.*(?:QUERY_SEPARATOR|deadlock|DETAIL|HINT|CONTEXT|Process \d|aborted).*\n?//gr =~ s/\s//gr, '', 'a writer beside it');
		$writer->quit;
	}
	my %rows = map { $_ => sql("SELECT count(*), sum(hashtextextended(x::text, 0)) FROM live_$_ x; SET enable_seqscan = off; SELECT count(*), sum(id::bigint) FROM live_$_ WHERE id > 0; SELECT count(*) FROM live_$_ WHERE n > -100") } @ams;
	is($rows{zheap}, $rows{heap}, "$how: the same rows as of the heap table, also by indexes: $rows{heap}");
	is(sql(q{SET enable_seqscan = off; SELECT count(*) FROM live_zheap WHERE v >= ''}), sql(q{SELECT count(*) FROM live_zheap}), '... and by zbtree');
	is(sql("SELECT * FROM zundo.check('live_zheap')"), '', '... zundo.check');
}
crash($node);
is(sql('SELECT count(*), sum(hashtextextended(x::text, 0)) FROM live_zheap x'), sql('SELECT count(*), sum(hashtextextended(x::text, 0)) FROM live_heap x'), 'after a crash');

# Ranges of TIDs in parallel read no other block.
my $parallel = 'SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2; SET parallel_leader_participation = ';
both('a table of some blocks', q{CREATE TABLE tids_AM (id int, pad text) USING AM WITH (parallel_workers = 2);
	INSERT INTO tids_AM SELECT g, repeat('t', 900) FROM generate_series(1, 800) g; VACUUM ANALYZE tids_AM;
	CREATE TABLE ranges_AM (lo tid, hi tid) USING AM WITH (parallel_workers = 0);
	INSERT INTO ranges_AM VALUES ('(0,0)', '(10,0)'), ('(50,0)', '(60,0)'), ('(90,0)', '(20,0)'), ('(95,0)', '(2000000,0)'), ('(20,3)', '(20,5)')});
for my $leader ('on', 'off')
{
	for my $am (@ams)
	{
		my $plan = sql("$parallel$leader;", "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS ON) SELECT count(*) FROM tids_$am WHERE ctid >= '(40,0)' AND ctid < '(44,0)'");
		like($plan, qr/Parallel Tid Range Scan/, "$am: a parallel scan of a range of TIDs");
		my ($scan) = $plan =~ /Parallel Tid Range Scan.*?Buffers: [^\n]*?hit=(\d+)/s;
		cmp_ok($scan, '<', 20, "$am: it reads only the blocks of the range: $scan");
	}
	for my $range (["ctid >= '(40,0)' AND ctid < '(44,0)'", 1], ["ctid > '(95,2)'", 1], ["ctid < '(0,3)'", 1], ["ctid > '(70,0)' AND ctid < '(60,0)'", 0], ["ctid > '(4000000,0)'", 0])
	{
		my $same = both("a parallel range, leader $leader: $range->[0]", "$parallel$leader; SELECT count(*) > 0, min(id) >= 1 FROM tids_AM WHERE $range->[0]");
		my ($serial, $many) = map { sql("$parallel$leader; SET max_parallel_workers_per_gather = $_; SELECT count(*), sum(id), min(id), max(id) FROM tids_zheap WHERE $range->[0]") } 0, 2;
		is($many, $serial, '... has the rows of the serial scan');
	}
	my $repeated = "SELECT lo, count(*), sum(id) FROM ranges_zheap LEFT JOIN (SELECT id FROM tids_zheap WHERE ctid >= '(40,0)' AND ctid < '(44,0)' OFFSET 0) t ON hi > '(15,0)' GROUP BY lo ORDER BY lo";
	my $nested = 'SET enable_material = off; SET enable_hashjoin = off; SET enable_mergejoin = off;';
	like(sql("$parallel$leader;", $nested, "EXPLAIN (COSTS OFF) $repeated"), qr/Nested Loop.*Gather.*Parallel Tid Range Scan/s, 'a parallel scan that is repeated');
	my ($serial, $many) = map { sql("$parallel$leader; $nested SET max_parallel_workers_per_gather = $_; $repeated") } 0, 2;
	is($many, $serial, '... has the rows of the serial one');
}

# MERGE and SPLIT make partitions of the parent's access method, heap if it has none.
both('MERGE and SPLIT', q{
	CREATE TABLE parts_AM (id int PRIMARY KEY, v text) PARTITION BY RANGE (id) USING AM;
	CREATE TABLE parts1_AM PARTITION OF parts_AM FOR VALUES FROM (0) TO (100);
	CREATE TABLE parts2_AM PARTITION OF parts_AM FOR VALUES FROM (100) TO (200);
	CREATE TABLE partsd_AM PARTITION OF parts_AM DEFAULT;
	CREATE INDEX ON parts_AM (v);
	INSERT INTO parts_AM SELECT g, repeat(md5(g::text), g % 4 * 40) FROM generate_series(0, 299) g;
	UPDATE parts_AM SET v = v || id WHERE id % 3 = 0; DELETE FROM parts_AM WHERE id % 7 = 0;
	BEGIN; ALTER TABLE parts_AM MERGE PARTITIONS (parts1_AM, parts2_AM) INTO parts12_AM; SELECT count(*) FROM parts12_AM; ROLLBACK;
	ALTER TABLE parts_AM MERGE PARTITIONS (parts1_AM, parts2_AM) INTO parts12_AM;
	ALTER TABLE parts_AM SPLIT PARTITION parts12_AM INTO (PARTITION partsa_AM FOR VALUES FROM (0) TO (50), PARTITION partsb_AM FOR VALUES FROM (50) TO (200));
	SELECT tableoid::regclass, count(*), sum(id), sum(hashtext(v)::bigint) FROM parts_AM GROUP BY 1 ORDER BY 2;
	SET enable_seqscan = off; SELECT count(*) FROM parts_AM WHERE id BETWEEN 40 AND 60;
	SELECT relname, amname = 'AM' FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE relname LIKE 'parts__AM' ORDER BY 1});
is(sql(q{SET default_table_access_method = zheap;
	CREATE TABLE plain (id int) PARTITION BY RANGE (id);
	ALTER TABLE plain SET ACCESS METHOD DEFAULT;
	CREATE TABLE plain1 PARTITION OF plain FOR VALUES FROM (0) TO (10); CREATE TABLE plain2 PARTITION OF plain FOR VALUES FROM (10) TO (20);
	ALTER TABLE plain MERGE PARTITIONS (plain1, plain2) INTO plain12;
	SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE relname = 'plain12'}), 'heap', 'a parent without an access method of its own: docs/limits.md');
my $merge = 'ALTER TABLE indexed MERGE PARTITIONS (indexed1, indexed2) INTO indexed12';
sql(q{SET default_table_access_method = zheap;
	CREATE TABLE indexed (id int, v text) PARTITION BY RANGE (id); CREATE INDEX ON indexed USING zbtree (v);
	CREATE TABLE indexed1 PARTITION OF indexed FOR VALUES FROM (0) TO (10); CREATE TABLE indexed2 PARTITION OF indexed FOR VALUES FROM (10) TO (20);
	INSERT INTO indexed SELECT g, 'v' || g FROM generate_series(0, 19) g; UPDATE indexed SET v = v || 'x' WHERE id % 2 = 0});
($rc, $out, $err) = $node->psql('postgres', "SET default_table_access_method = zheap; $merge");
like($err, qr/ERROR:  index "\S+" cannot use access method "zbtree"\n.*Table "indexed12" is not a zheap table/, '... and which has a zbtree index: refused');
sql("ALTER TABLE indexed SET ACCESS METHOD zheap; $merge; ALTER TABLE indexed SPLIT PARTITION indexed12 INTO (PARTITION indexed3 FOR VALUES FROM (0) TO (5), PARTITION indexed4 FOR VALUES FROM (5) TO (20))");
is(sql(q{SET enable_seqscan = off; SELECT count(*), count(*) FILTER (WHERE v LIKE '%x') FROM indexed WHERE v > ''; SELECT count(*) FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE relname ~ '^indexed[34]_v_idx$' AND amname = 'zbtree'}),
	"20|10\n2", 'with zheap as its access method, MERGE and SPLIT build the zbtree indexes');
my $during = session($node);
ask($during, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
sql('UPDATE partsa_zheap SET v = NULL; ALTER TABLE parts_zheap MERGE PARTITIONS (partsa_zheap, partsb_zheap) INTO partsab_zheap');
is(ask($during, 'SELECT count(*) FROM partsab_zheap'), sql('SELECT 0'), 'as on heap, an older snapshot sees no row of a merged partition');
$during->quit;

# COPY ... ON_ERROR SET_NULL.
both('COPY with errors set to null', qq{CREATE TABLE c_AM (id int, n int, note text) USING AM;
COPY c_AM FROM stdin WITH (ON_ERROR SET_NULL);
1\tx\ta
2\t5\tb
\\.
SELECT * FROM c_AM ORDER BY id});

# Autovacuum with parallel workers for the indexes.
sql(q{CREATE TABLE av (id int PRIMARY KEY, a int, b text) USING zheap WITH (autovacuum_enabled = off, autovacuum_parallel_workers = 2);
	CREATE INDEX ON av (a); CREATE INDEX ON av (b); INSERT INTO av SELECT g, g % 100, 'b' || g FROM generate_series(1, 20000) g; DELETE FROM av WHERE id % 2 = 0});
sql('SELECT zundo.discard()') for 1 .. 2;
my $size = -s $node->logfile;
$node->append_conf('postgresql.conf', "autovacuum = on\nautovacuum_naptime = 1s\nautovacuum_max_parallel_workers = 2\nmin_parallel_index_scan_size = 0\nautovacuum_vacuum_cost_delay = 0\nlog_min_messages = debug2\n");
$node->reload;
sql('ALTER TABLE av SET (autovacuum_enabled = on, autovacuum_vacuum_threshold = 50)');
ok($node->wait_for_log(qr/launched 2 parallel vacuum workers? for index vacuuming/, $size), 'autovacuum has workers for the indexes');
ok($node->poll_query_until('postgres', q{SELECT autovacuum_count > 0 FROM pg_stat_user_tables WHERE relname = 'av'}), '... and ends');
for my $key ('id', 'a', 'b')
{
	is(sql("SET enable_seqscan = off; SELECT count(*), sum(id) FROM (SELECT id FROM av ORDER BY $key OFFSET 0) x"), '10000|100000000', "... the index on $key has the rows that are left");
}
sound($node, '', 'av');

sound($node, '', map { "${_}_zheap" } qw(added q price seen tids partsab partsd c));
sound($node, '', qw(r beside indexed3 indexed4 zundo.undo_log));
is(sql('SELECT unclear_answered, unclear_refused FROM zundo.stat_database WHERE datname = current_database()'), '0|0', 'no fetch was unclear');
no_crash($node);
done_testing();
