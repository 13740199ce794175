# The same operations on a heap database and on a zheap database of one server
# must give the same results: keys that change back, across crashes and on a
# standby; prepared transactions; index builds and VACUUM under load; copied
# databases; errors during an abort; the apply side of replication; a promoted
# standby.
# newest
# long
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my @engines = qw(heap zheap);
my $node = zundo_node('same', <<'C', allows_streaming => 'logical');
wal_consistency_checking = 'zundo,heap,heap2,btree'
max_prepared_transactions = 20
max_worker_processes = 20
max_wal_size = 4GB
wal_keep_size = 2GB
max_standby_streaming_delay = -1
hot_standby_feedback = on
wal_receiver_status_interval = 1
C
my $amcheck = server_has('amcheck') ? 'CREATE EXTENSION amcheck' : '';
for my $engine (@engines)
{
	$node->safe_psql('postgres', "CREATE DATABASE $engine");
	$node->safe_psql($engine, "CREATE EXTENSION zundo; $amcheck; ALTER DATABASE $engine SET default_table_access_method = $engine");
}
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;

# both CODE: returns what the code returns for each of the two databases.
sub both
{
	my ($code) = @_;
	return map { $code->($_) } @engines;
}

# agree NAME CODE, EXPECTED: checks that the code returns the same for both databases, and
# EXPECTED if that is given.
sub agree
{
	my ($name, $code, $expected) = @_;
	my ($heap, $zheap) = both($code);
	is($zheap, $heap, "$name: heap and zheap agree");
	is($heap, $expected, "$name: as expected") if defined $expected;
	return;
}

# same NAME SQL, NODE, EXPECTED: checks that the SQL has the same output and errors in
# both databases of the node, by default the primary.
sub same
{
	my ($name, $sql, $on, $expected) = @_;
	my $where = $on // $node;
	agree($name, sub {
		my ($rc, $out, $err) = $where->psql($_[0], "\\set VERBOSITY terse\n$sql", on_error_stop => 0);
		$err =~ s/^psql:<stdin>:\d+: //mg;
		return "$out\n$err";
	}, $expected);
	return;
}

# checked NAME: checks that each table has the access method of its database, and that
# tables and indexes are sound.
sub checked
{
	my ($name, $on) = @_;
	my $where = $on // $node;
	my $check = $amcheck ? 'bt_index_check(c.oid, true)' : '*';
	for my $engine (@engines)
	{
		is($where->safe_psql($engine, qq{
			SELECT count(*) > 0, count(*) FILTER (WHERE amname <> '$engine') FROM pg_class c JOIN pg_am a ON a.oid = relam
				WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace;
			SELECT f.* FROM pg_class c JOIN pg_am a ON a.oid = relam AND amname = 'zheap', zundo.check(c.oid) f WHERE relkind = 'r';
			SELECT count($check) > 0 FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid
				JOIN pg_class t ON t.oid = indrelid JOIN pg_am a ON a.oid = c.relam
				WHERE amname = 'btree' AND c.relkind = 'i' AND indisvalid AND t.relnamespace = 'public'::regnamespace}), "t|0\nt", "$name: tables and indexes of $engine");
	}
	return;
}

sub caught_up
{
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	return;
}

my $see = q{
	SELECT 'rows', count(*), sum(id), sum(k), md5(string_agg(format('%s %s %s', id, k, x), ',' ORDER BY id, k)) FROM t;
	SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off;
	SELECT 'index', count(*), sum(id), sum(k) FROM t WHERE k BETWEEN 0 AND 500;
	SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = on;
	SELECT 'bitmap', count(*), sum(id), sum(k) FROM t WHERE k BETWEEN 400 AND 100000;
	SET LOCAL enable_indexscan = on; SET LOCAL enable_indexonlyscan = on;
	SELECT 'only', count(*), sum(k) FROM t WHERE k >= 0;
};
my $look = "BEGIN; $see; COMMIT";
same('the table', q{
	CREATE TABLE t (id int PRIMARY KEY, k int, x text);
	ALTER TABLE t ALTER x SET STORAGE EXTERNAL;
	CREATE INDEX t_k ON t (k);
	CREATE TABLE child (id int PRIMARY KEY, t int REFERENCES t DEFERRABLE INITIALLY DEFERRED);
	INSERT INTO t SELECT g, g, repeat('x', g % 100) FROM generate_series(1, 1000) g;
	INSERT INTO child SELECT g, g FROM generate_series(1, 20) g});
checked('the table');

# A key changes from A to B and back, with old snapshots in between, and a crash in the middle.
my $there = q{UPDATE t SET k = k + 10000 WHERE id % 3 = 0};
my $back = q{UPDATE t SET k = k - 10000 WHERE id % 3 = 0};
my (%here, %far, %open);
caught_up();
my %first;
for my $engine (@engines)
{
	$here{$engine} = $node->background_psql($engine, on_error_stop => 1);
	$far{$engine} = $standby->background_psql($engine, on_error_stop => 1);
	$_->set_query_timer_restart for $here{$engine}, $far{$engine};
	$_->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ') for $here{$engine}, $far{$engine};
	$first{$engine} = $here{$engine}->query_safe($see);
	is($far{$engine}->query_safe($see), $first{$engine}, "key there and back: the standby shows the same rows of $engine");
}
is($first{zheap}, $first{heap}, 'key there and back: the first rows');
ok($node->poll_query_until('postgres', 'SELECT backend_xmin IS NOT NULL FROM pg_stat_replication'), 'key there and back: the primary knows of the snapshot');
for my $step ($there, 'VACUUM t', $back, "BEGIN; $there; ROLLBACK", 'VACUUM t', "BEGIN; $there; SAVEPOINT s; $back; ROLLBACK TO s; COMMIT",
	'BEGIN; DELETE FROM t WHERE id % 5 = 0; ROLLBACK', "UPDATE t SET x = repeat('y', 1500) WHERE id % 3 < 2", 'VACUUM t', $back)
{
	same("key there and back: $step", "$step; " . ($step =~ /VACUUM/ ? '' : $look)) unless $step eq 'VACUUM t';
	same("key there and back: $step", $step) if $step eq 'VACUUM t';
	caught_up();
	for my $engine (@engines)
	{
		is($here{$engine}->query_safe($see), $first{$engine}, "key there and back: an old snapshot of $engine after: $step");
		is($far{$engine}->query_safe($see), $first{$engine}, "key there and back: ... on the standby");
	}
	same("key there and back: on the standby after: $step", $look, $standby);
}
for my $engine (@engines)
{
	$_->quit for $here{$engine}, $far{$engine};
	$open{$engine} = $node->background_psql($engine, on_error_stop => 1);
	$open{$engine}->query_safe("BEGIN; $there AND id > 600; SAVEPOINT s; $back AND id > 600; DELETE FROM t WHERE id > 600 AND id % 7 = 0; UPDATE t SET x = repeat('z', 3000) WHERE id BETWEEN 600 AND 700");
}
# Prepared over crashes and restarts, rolled back and committed after them
my $prepared = q{
	BEGIN; UPDATE t SET k = k + 20000 WHERE id BETWEEN 101 AND 200; UPDATE t SET k = k - 20000 WHERE id BETWEEN 101 AND 150;
		DELETE FROM t WHERE id BETWEEN 201 AND 220; INSERT INTO t SELECT g, g, repeat('p', 2500) FROM generate_series(2001, 2020) g;
		SAVEPOINT s; UPDATE t SET x = repeat('q', 2500) WHERE id BETWEEN 101 AND 120; ROLLBACK TO s; INSERT INTO child VALUES (100, 2001);
	PREPARE TRANSACTION '%s-back';
	BEGIN; UPDATE t SET k = k + 20000 WHERE id BETWEEN 301 AND 400; SELECT count(*) FROM (SELECT 1 FROM t WHERE id BETWEEN 451 AND 500 FOR UPDATE) x;
		INSERT INTO t SELECT g, g, repeat('p', 2500) FROM generate_series(3001, 3020) g; DELETE FROM t WHERE id BETWEEN 401 AND 420; INSERT INTO child VALUES (101, 3001);
	PREPARE TRANSACTION '%s-keep'};
agree('prepared: the rows', sub { return $node->safe_psql($_[0], $prepared =~ s/%s/$_[0]/gr) });
my ($rows) = both(sub { return $node->safe_psql($_[0], $look) });
for my $mode (qw(immediate fast immediate))
{
	$node->stop($mode);
	for my $engine (@engines) { eval { $open{$engine}->quit } if $open{$engine}; }
	%open = ();
	$node->start;
	same("restarts: restarted ($mode)", $look, $node, "$rows\n");
	same('prepared: what is prepared is locked', q{SET lock_timeout = '50ms'; UPDATE t SET k = 0 WHERE id = 101; DELETE FROM t WHERE id = 451;
		INSERT INTO t VALUES (2001, 0, ''); SELECT count(*) FROM (SELECT 1 FROM t WHERE id < 600 FOR UPDATE SKIP LOCKED) x; UPDATE t SET k = k WHERE id = 1});
}
agree('prepared: rolled back', sub { return $node->safe_psql($_[0], "ROLLBACK PREPARED '$_[0]-back'; $look") }, $rows);
agree('prepared: committed', sub { return $node->safe_psql($_[0], "COMMIT PREPARED '$_[0]-keep'; $look") });
$node->stop('immediate');
$node->start;
same('prepared: restarted again', "$look; SELECT * FROM child WHERE id > 50");
same('prepared: the rows can be changed again', "UPDATE t SET k = k + 1; INSERT INTO t VALUES (2001, 1, ''); DELETE FROM t WHERE id = 3001; $look");
same('prepared: ... and vacuumed', 'VACUUM t');
checked('restarts');
caught_up();
same('restarts: on the standby', $look, $standby);

# A database is copied right after rollbacks, and with nothing but them pending.
for my $strategy (qw(wal_log file_copy))
{
	agree("copied database: a copy by $strategy", sub {
		my ($engine) = @_;
		my $before = $node->safe_psql($engine, $look);
		$node->psql($engine, 'BEGIN; UPDATE t SET k = k + 5, x = x || x; DELETE FROM t WHERE id % 2 = 0; SAVEPOINT s; DELETE FROM t; ROLLBACK');
		$node->safe_psql('postgres', "CREATE DATABASE copy_$engine TEMPLATE $engine STRATEGY $strategy");
		my $copy = $node->safe_psql("copy_$engine", $look);
		is($copy, $before, "copied database: $engine: the rows of before");
		is($node->safe_psql($engine, $look), $before, "copied database: $engine: in the template too");
		$copy .= $node->safe_psql("copy_$engine", "UPDATE t SET k = k - 5 WHERE id % 3 = 0; DELETE FROM t WHERE id % 11 = 0 AND id > 100; BEGIN; UPDATE t SET k = 0; ROLLBACK; $look");
		is($node->safe_psql("copy_$engine", q{SELECT f.* FROM pg_class c JOIN pg_am a ON a.oid = relam AND amname = 'zheap', zundo.check(c.oid) f}), '', "copied database: $engine: the copy is sound");
		$node->safe_psql('postgres', "DROP DATABASE copy_$engine");
		return $copy;
	});
}

# An error inside the abort callback, at ROLLBACK, ROLLBACK TO, and the end of failed
# blocks and statements.
for my $fault ('', 'abort-callback:error')
{
	same("abort error: '$fault'", qq{
		SET client_min_messages = error;
		SET zundo.fault = '$fault';
		BEGIN; UPDATE t SET k = k + 7 WHERE id < 300; SAVEPOINT s; UPDATE t SET k = 0, x = 'gone' WHERE id < 200; DELETE FROM t WHERE id < 10; ROLLBACK TO s;
		UPDATE t SET k = k + 1 WHERE id < 20; SELECT count(*), sum(k) FROM t; COMMIT;
		BEGIN; UPDATE t SET k = k + 70 WHERE id < 300; INSERT INTO t VALUES (9000, 0, ''); ROLLBACK; SELECT count(*), sum(k) FROM t;
		BEGIN; UPDATE t SET k = k + 70 WHERE id < 300; SELECT 1 / 0; COMMIT; SELECT count(*), sum(k) FROM t;
		UPDATE t SET k = 100 / (id - 500) WHERE id > 400; SELECT count(*), sum(k) FROM t;
		DO \$\$ BEGIN FOR i IN 1 .. 5 LOOP
			BEGIN UPDATE t SET k = k + i, x = x || i WHERE id % 10 = i; DELETE FROM t WHERE id = 100 + i; RAISE EXCEPTION 'no'; EXCEPTION WHEN raise_exception THEN UPDATE t SET k = k + 1 WHERE id = 100 + i; END;
		END LOOP; END \$\$;
		$look;
		UPDATE t SET k = k + 1; DELETE FROM t WHERE id = 700; INSERT INTO t VALUES (700, 700, 'again'); $look});
	checked("abort error: '$fault'");
}
like(slurp_file($node->logfile), qr/could not immediately undo changes of an aborted transaction/, 'abort error: the fault was met');
ok($node->poll_query_until('zheap', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), 'abort error: all is undone in the end');

# The apply side, in both databases from one publication.
my $publisher = PostgreSQL::Test::Cluster->new('publisher');
$publisher->init(allows_streaming => 'logical');
$publisher->start;
my $tables = q{
	CREATE TABLE keyed (id int PRIMARY KEY, n int, x text);
	CREATE INDEX ON keyed (n);
	CREATE TABLE keyless (a int, b text);
	ALTER TABLE keyless REPLICA IDENTITY FULL;
	CREATE TABLE parted (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);
	CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (100);
	CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (100) TO (1000)};
$publisher->safe_psql('postgres', "$tables; CREATE PUBLICATION p FOR TABLE keyed, keyless, parted");
for my $engine (@engines)
{
	$node->safe_psql($engine, qq{
		$tables;
		CREATE TABLE seen (at serial, what text, old text, new text);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN
			INSERT INTO public.seen (what, old, new) VALUES (tg_table_name || ' ' || tg_op, left(old::text, 40), left(new::text, 40)); RETURN NULL; END \$\$;
		CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON keyed DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();
		ALTER TABLE keyed ENABLE ALWAYS TRIGGER note;
		CREATE SUBSCRIPTION s_$engine CONNECTION '@{[$publisher->connstr]} dbname=postgres' PUBLICATION p});
	$node->poll_query_until($engine, q{SELECT count(*) = 4 FROM pg_subscription_rel WHERE srsubstate IN ('r', 's')}) or die 'the first copy did not end';
}
for my $change (
	q{INSERT INTO keyed SELECT g, g % 10, repeat('x', g) FROM generate_series(1, 100) g; INSERT INTO keyless SELECT g % 5, 'b' || g % 3 FROM generate_series(1, 60) g;
		INSERT INTO parted SELECT g, 0 FROM generate_series(1, 200, 9) g},
	q{BEGIN; UPDATE keyed SET n = n + 1 WHERE id < 20; UPDATE keyed SET n = n + 100 WHERE id < 10; SAVEPOINT s; DELETE FROM keyed WHERE id < 5; ROLLBACK TO s;
		UPDATE keyed SET n = n - 100 WHERE id < 10; UPDATE keyed SET id = id + 1000 WHERE id = 7; UPDATE keyed SET n = 0 WHERE id = 1007; DELETE FROM keyed WHERE id = 8; COMMIT},
	q{UPDATE keyed SET x = repeat('long', 2000) WHERE id = 9; UPDATE keyed SET n = -1 WHERE id = 9; UPDATE keyless SET b = b || '!' WHERE a = 1; DELETE FROM keyless WHERE a = 2;
		UPDATE parted SET id = id + 100 WHERE id < 60; UPDATE parted SET n = n + 1; DELETE FROM parted WHERE id > 170})
{
	$publisher->safe_psql('postgres', $change);
	$publisher->wait_for_catchup("s_$_") for @engines;
	same('apply: what has been applied', q{SELECT * FROM keyed ORDER BY id; SELECT * FROM keyless ORDER BY a, b; SELECT tableoid::regclass, * FROM parted ORDER BY id; SELECT * FROM seen ORDER BY at});
}
$node->safe_psql($_, "DROP SUBSCRIPTION s_$_") for @engines;
$publisher->stop;
checked('apply');

# Indexes are built and tables vacuumed under load: the totals stay the same.
my $scripts = PostgreSQL::Test::Utils::tempdir();
my @load;
my %text = (
	swap => "\\set a random(1, 100)\n\\set b random(101, 200)\nBEGIN;\nSELECT pg_advisory_xact_lock(:a), pg_advisory_xact_lock(:b);\nUPDATE acc SET n = n - 1 WHERE id = :a;\nUPDATE acc SET n = n + 1 WHERE id = :b;\nCOMMIT;\n",
	back => "\\set a random(1, 200)\nBEGIN;\nSELECT pg_advisory_xact_lock(:a);\nUPDATE acc SET k = k + 1000 WHERE id = :a;\nSAVEPOINT s;\nUPDATE acc SET k = k - 1000, x = repeat('x', :a) WHERE id = :a;\nROLLBACK TO s;\n"
	  . "UPDATE acc SET k = k - 1000 WHERE id = :a;\nCOMMIT;\n",
	readd => "\\set a random(1, 200)\nBEGIN;\nSELECT pg_advisory_xact_lock(:a);\nSELECT n AS n FROM acc WHERE id = :a FOR UPDATE \\gset\nDELETE FROM acc WHERE id = :a;\nINSERT INTO acc VALUES (:a, :a, :n, 'again');\nCOMMIT;\n",
	undo => "\\set a random(1, 190)\nBEGIN;\nSELECT count(*) FROM (SELECT 1 FROM acc WHERE id BETWEEN :a AND :a + 10 ORDER BY id FOR UPDATE) x;\nUPDATE acc SET k = -1 WHERE id BETWEEN :a AND :a + 10;\nDELETE FROM acc WHERE id = :a;\nROLLBACK;\n",
	read => "BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT agree();\nSELECT agree();\nCOMMIT;\n");
for my $name (sort keys %text)
{
	append_to_file("$scripts/$name", $text{$name});
	chmod 0644, "$scripts/$name";
	push @load, '-f', "$scripts/$name";
}
agree('under load: the rows', sub {
	my ($engine) = @_;
	$node->safe_psql($engine, q{
		CREATE TABLE acc (id int PRIMARY KEY, k int, n int, x text);
		CREATE INDEX acc_k ON acc (k);
		INSERT INTO acc SELECT g, g, 100, '' FROM generate_series(1, 200) g;
		CREATE FUNCTION agree() RETURNS void LANGUAGE plpgsql AS $$
		DECLARE
			a text;
			b text;
		BEGIN
			SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_seqscan = on;
			SELECT format('%s %s %s', count(*), sum(k), sum(n)) INTO a FROM acc WHERE k >= 0;
			SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = on;
			SELECT format('%s %s %s', count(*), sum(k), sum(n)) INTO b FROM acc WHERE k >= 0;
			IF a <> b OR a <> '200 20100 20000' THEN RAISE EXCEPTION 'by table %, by index %', a, b; END IF;
			SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = on;
			SELECT format('%s %s %s', count(*), sum(k), sum(n)) INTO b FROM acc WHERE k >= 0;
			IF a <> b THEN RAISE EXCEPTION 'by table %, by bitmap %', a, b; END IF;
		END $$});
	my ($out, $err) = ('', '');
	my $pgbench = IPC::Run::start([ 'pgbench', '-n', '-c', '5', '-j', '1', '-T', '7', '--max-tries=100', @load, $node->connstr($engine) ], '>' => \$out, '2>' => \$err);
	my $end = time() + 6;
	my $failed = '';
	while (time() < $end)
	{
		for my $ddl ('CREATE INDEX CONCURRENTLY acc_k2 ON acc (k)', 'VACUUM acc', 'REINDEX INDEX CONCURRENTLY acc_k', 'VACUUM (INDEX_CLEANUP off) acc',
			'CREATE UNIQUE INDEX CONCURRENTLY acc_u ON acc (id, n)', 'VACUUM acc', 'DROP INDEX CONCURRENTLY acc_k2', 'DROP INDEX CONCURRENTLY acc_u')
		{
			my ($rc, $o, $e) = $node->psql($engine, $ddl);
			$failed .= "$ddl: $e\n" if $rc != 0;
		}
	}
	$pgbench->finish;
	unlike($err, qr/error|aborted/i, "under load: $engine: sessions see each row once") or diag($err);
	return $failed . $node->safe_psql($engine, 'SELECT agree(); SELECT count(*), sum(k), sum(n) FROM acc');
}, "\n200|20100|20000");
checked('under load');

# A query on the standby is canceled because replay would remove what it still needs; then
# the standby is promoted.
caught_up();
$standby->append_conf('postgresql.conf', "hot_standby_feedback = off\nmax_standby_streaming_delay = 0");
$standby->reload;
ok($node->poll_query_until('postgres', 'SELECT backend_xmin IS NULL FROM pg_stat_replication'), 'canceled query: no more feedback');
agree('canceled query: the error', sub {
	my ($engine) = @_;
	my ($in, $out, $err) = ('', '', '');
	my $reader = IPC::Run::start([ 'psql', '-X', '-A', '-t', '-d', $standby->connstr($engine) ], '<' => \$in, '>' => \$out, '2>' => \$err,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	$in = "\\set VERBOSITY sqlstate\nBEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT count(*) > 0 FROM t;\n";
	$reader->pump until $out =~ /^t$/m;
	$node->safe_psql($engine, $_) for "UPDATE t SET k = k + 1; DELETE FROM t WHERE id % 19 = 0 AND id > 100; UPDATE t SET x = 'new'", 'SELECT txid_current()', 'SELECT zundo.discard()', 'VACUUM t';
	caught_up();
	$in = "SELECT sum(length(x)), sum(k) FROM t;\nROLLBACK;\n\\q\n";
	eval { $reader->finish };
	$err =~ s/^.*((?:FATAL|ERROR):  *\w+).*$/$1/s;
	return $err;
});
same('canceled query: others see the rows', $look, $standby);
my $before = $node->safe_psql('zheap', $look);
for my $engine (@engines)
{
	$open{$engine} = $node->background_psql($engine, on_error_stop => 1);
	$open{$engine}->query_safe("BEGIN; $there; DELETE FROM t WHERE id % 4 = 0 AND id > 100; UPDATE t SET x = repeat('open', 700) WHERE id % 4 = 1; SAVEPOINT s; INSERT INTO t SELECT g, g, '' FROM generate_series(7001, 7300) g");
	$node->safe_psql($engine, 'CREATE TABLE flush_wal (); DROP TABLE flush_wal');
}
caught_up();
$node->stop('immediate');
for my $engine (@engines) { eval { $open{$engine}->quit }; }
$standby->promote;
same('canceled query: promoted', $look, $standby, "$before\n");
ok($standby->poll_query_until('zheap', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), 'canceled query: promoted: all is undone');
same('canceled query: promoted, later', "$look; $there; DELETE FROM t WHERE id % 3 = 1 AND id > 100; $back; $look", $standby);
same('canceled query: vacuumed', 'VACUUM t', $standby);
same('canceled query: then', $look, $standby);
checked('canceled query', $standby);
for my $server ($node, $standby)
{
	unlike(slurp_file($server->logfile), qr/PANIC|TRAP:|inconsistent page|terminated by signal (?:4|6|7|8|11)/, $server->name . ': no crash in the log');
}
$standby->stop;
done_testing();
