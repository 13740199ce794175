# What may happen beside zundo.convert: GRANT, which locks no table, is not waited for; a
# command that waits for the copy's lock ends the conversion, where nobody else could; many
# changes at once do not lengthen the exclusive lock. Keys whose equality is coarser than
# their bytes, toasted ones and others, in many conversions at once; apply workers; a crash
# with wal_level = minimal; a tablespace.
# Rules: CONVERT-1, CONVERT-4.
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('beside', <<'C');
wal_level = minimal
max_wal_senders = 0
max_prepared_transactions = 2
max_connections = 60
allow_in_place_tablespaces = on
restart_after_crash = on
C
sql(<<'S');
CREATE EXTENSION zundo;
CREATE ROLE reader;
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE t (id int PRIMARY KEY, d positive, v int) USING heap;
INSERT INTO t SELECT i, i, 0 FROM generate_series(1, 3000) i;
CREATE TABLE twin (id int PRIMARY KEY, d positive, v int) USING heap;
INSERT INTO twin SELECT * FROM t;
S
sub am { return sql(q{SELECT amname FROM pg_am a JOIN pg_class c ON c.relam = a.oid WHERE c.oid = 't'::regclass}) }
sub other { return am() eq 'heap' ? 'zheap' : 'heap' }
sub left { return sql(q{SELECT (SELECT count(*) FROM zundo.conversions) + (SELECT count(*) FROM pg_trigger WHERE tgname ~ '^zundo_convert')}) }
sub equal
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql('SELECT (SELECT count(*) FROM t) - (SELECT count(*) FROM twin), count(*) FROM (SELECT * FROM t EXCEPT SELECT * FROM twin) d'), '0|0', "$name: table and twin are equal");
	is(sql('SET enable_seqscan = off; SELECT count(*) - (SELECT count(*) FROM twin) FROM t WHERE id > 0'), 0, "$name: by the index");
	return;
}

# begin SESSION OPTIONS: begins to convert t, and waits until the copy is there.
sub begin
{
	my ($session, $options) = @_;
	my $am = other();
	$session->query_until(qr/begun/, "\\echo begun\nCALL zundo.convert('t', '$am'$options);\n");
	$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM zundo.conversions WHERE pid IS NOT NULL}) or die 'it does not begin';
	return;
}
my ($converting, $holder, $waiter) = map { session($node) } 1 .. 3;

# 1. Sessions that block it, and GRANT.
my $usable = q{SET statement_timeout = '30s'; UPDATE t SET v = v + 1 WHERE id = 1; UPDATE twin SET v = v + 1 WHERE id = 1; SELECT count(*) FROM t};
for (1 .. 2)
{
	my $am = other();
	$holder->query_safe('BEGIN; GRANT SELECT ON t TO reader');
	$converting->query_until(qr/begun/, "\\echo begun\nCALL zundo.convert('t', '$am');\n");
	$node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'CALL%' AND state = 'active' AND backend_type = 'client backend'});
	for (1 .. 4) { is(sql($usable), 3000, 'the table can be used beside GRANT'); sleep(1) if $_ < 4 }
	$holder->query_safe('COMMIT');
	is(ask($converting, 'SELECT 1'), 1, 'and is converted after it');
	like($complaint, qr/NOTICE:  table "t" could not be locked after 10 attempts\nHINT:  See blocked_by in zundo.conversions.$/, 'the wait is reported');
	is(am(), $am, 'the access method');
	equal('GRANT');

	# the same before the exchange
	$am = other();
	my $pid = ask($holder, 'SELECT pg_backend_pid()');
	$holder->query_safe('BEGIN; SELECT count(*) FROM t');
	begin($converting, '');
	ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM zundo.conversions WHERE phase = 'exchanging' AND blocked_by = '{$pid}'"), 'a reader blocks it');
	$waiter->query_safe('BEGIN; GRANT SELECT ON t TO reader');
	$holder->query_safe('COMMIT');
	for (1 .. 4) { is(sql($usable), 3000, 'the table can be used'); sleep(1) if $_ < 4 }
	$waiter->query_safe('COMMIT');
	is(ask($converting, 'SELECT 1') . $complaint, 1, 'and is converted');
	is(am(), $am, 'the access method');
	equal('a reader');
	sql('REVOKE SELECT ON t FROM reader');
}
sql(q{BEGIN; SELECT count(*) FROM t; PREPARE TRANSACTION 'p'});
begin($converting, '');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM zundo.conversions WHERE phase = 'exchanging' AND blocked_by = '{0}'}), 'a prepared transaction blocks it');
sql(q{COMMIT PREPARED 'p'});
is(ask($converting, 'SELECT 1') . $complaint, 1, 'and is converted');

# 2. Commands that lock the table, and wait for the copy.
my $copy = sql(q{SELECT 'zundo.copy_' || 't'::regclass::oid});
for my $mode ('SHARE UPDATE EXCLUSIVE', 'ACCESS EXCLUSIVE')
{
	# the conversion does not end before
	$holder->query_safe('BEGIN; SELECT count(*) FROM t');
	begin($converting, '');
	$holder->query_until(qr/begun/, "\\echo begun\nLOCK TABLE t IN $mode MODE; LOCK TABLE $copy IN SHARE UPDATE EXCLUSIVE MODE;\n");
	ask($converting, 'SELECT 1');
	like($complaint, qr/table "t" was changed by another command while it was converted/, "$mode: ends it");
	is(ask($holder, 'SELECT 1; COMMIT') . $complaint, 1, 'the other command continues');
	sql(q{CALL zundo.convert_cleanup('t')});
	is(left(), 0, 'nothing is left');
}
equal('other commands');

# 3. More changes than are read under the lock, between the last refresh and the exchange.
sql(q{CREATE TABLE small (id int PRIMARY KEY, v int) USING heap; INSERT INTO small SELECT i, 0 FROM generate_series(1, 5000) i});
for my $am ('zheap', 'heap')
{
	# begin, copy, refresh, index, index, refresh
	$converting->query_until(qr/begun/, "\\echo begun\nSET zundo.fault = 'convert-committed:sleep:6';\nCALL zundo.convert('small', '$am');\n");
	$node->poll_query_until('postgres', "SELECT COALESCE((SELECT phase FROM zundo.conversions), amname) IN ('exchanging', '$am') FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE relname = 'small'");
	sql('UPDATE small SET v = v + 1, id = -id WHERE id % 2 = 0; UPDATE small SET v = v + 1');
	is(ask($converting, 'RESET zundo.fault; SELECT 1') . $complaint, 1, "many changes: to $am");
	is(sql('SELECT count(*), sum(v), sum(id) FROM small'), $am eq 'zheap' ? '5000|7500|-2500' : '5000|15000|-2500', 'the rows');
	sql('UPDATE small SET id = -id WHERE id < 0');
}

# a session that commits such a lot again and again, and lets the conversion have the lock only then
sql(q{CREATE TABLE stop (); CREATE PROCEDURE load() LANGUAGE plpgsql AS $$ BEGIN WHILE NOT EXISTS (SELECT FROM stop) LOOP UPDATE small SET v = v + 1 WHERE id <= 3000; PERFORM pg_sleep(1); COMMIT; END LOOP; END $$});
$holder->query_until(qr/begun/, "\\echo begun\nCALL load();\n");
is(ask($converting, q{CALL zundo.convert('small', 'zheap', lock_wait => 500); SELECT 1}) . $complaint, 1, 'it ends beside a session that commits much');
sql('INSERT INTO stop DEFAULT VALUES');
is(ask($holder, 'SELECT 1') . $complaint, 1, 'which has changed rows');
is(sql('SELECT count(*), count(DISTINCT v + id % 2 * 2) FILTER (WHERE id <= 3000), count(DISTINCT v + id % 2 * 2) FILTER (WHERE id > 3000) FROM small'), '5000|1|1', 'all of them');
$_->quit for $converting, $holder, $waiter;

# 4. Keys.
my $icu = sql(q{SELECT count(*) > 0 FROM pg_collation WHERE collname = 'en-x-icu'}) eq 't';
sql(q{CREATE TYPE pair AS (a int, b text); CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy'); CREATE DOMAIN code AS varchar(20); CREATE TABLESPACE space LOCATION ''});
sql(q{CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false)}) if $icu;
# name => type, key of row i, the key when it has been written anew, column of the index
my %kinds = (
	int => [ 'int GENERATED ALWAYS AS IDENTITY', 'i', undef, 'k' ],
	toasted => [ 'text', q{repeat('k' || i, 150)}, q{repeat('l' || i, 150)}, 'k' ],
	float => [ 'float8', q{CASE i WHEN 5 THEN 'NaN' WHEN 10 THEN 0 ELSE i::float8 END}, q{CASE i WHEN 5 THEN 'inf'::float8 - 'inf' WHEN 10 THEN '-0' ELSE i END}, 'k' ],
	numeric => [ 'numeric', 'i::numeric', 'i * 1.000', 'k' ],
	bpchar => [ 'char(9)', q{'c' || i}, q{'d' || i}, 'k' ],
	pattern => [ 'varchar', q{'c' || i}, q{'C' || i}, 'k varchar_pattern_ops' ],
	collated => [ 'text', q{'c' || i}, q{'C' || i}, 'k COLLATE "C"' ],
	pair => [ 'pair', q{ROW(i, 'c' || i)::pair}, q{ROW(i, 'd' || i)::pair}, 'k' ],
	array => [ 'text[]', q{ARRAY['c', i::text]}, q{ARRAY['d', i::text]}, 'k' ],
	range => [ 'int4range', 'int4range(i, i + 1)', 'int4range(i, i + 2)', 'k' ],
	domain => [ 'code', q{'c' || i}, q{'C' || i}, 'k' ],
	name => [ 'name', q{'c' || i}, q{'C' || i}, 'k' ],
	bytes => [ 'bytea', q{('c' || i)::bytea}, q{('d' || i)::bytea}, 'k' ],
	two => [ 'mood', q{'sad'}, q{'ok'}, 'k, i' ],
	derived => [ 'int GENERATED ALWAYS AS (-i) STORED', undef, undef, 'k' ],
	none => [ 'int', 'i', '-i', 'k' ],
	$icu ? (folded => [ 'text COLLATE folded', q{'c' || i}, q{'C' || i}, 'k' ], finer => [ 'text COLLATE folded', q{'c' || i}, q{'C' || i}, 'k COLLATE "C"' ],
		coarser => [ 'text', q{'c' || i}, q{'C' || i}, 'k COLLATE folded' ]) : ());
my @names = sort keys %kinds;
for my $name (@names)
{
	my ($type, $key, undef, $index) = @{ $kinds{$name} };
	for my $table ("k_$name", "twin_$name")
	{
		sql("CREATE TABLE $table (i int NOT NULL, k $type NOT NULL, v int, pad text) USING heap WITH (toast_tuple_target = 128)" . ($name eq 'array' ? ' TABLESPACE space' : ''));
		sql("ALTER TABLE $table ALTER k SET STORAGE EXTERNAL") if $name eq 'toasted';
		sql("INSERT INTO $table (i, v, pad" . ($key ? ', k) OVERRIDING SYSTEM VALUE' : ')') . " SELECT i, i, repeat('x', 100)" . ($key ? ", $key" : '') . ' FROM generate_series(1, 300) i') if $name ne 'none';
	}
	sql("CREATE UNIQUE INDEX ON k_$name ($index); CREATE INDEX ON k_$name (v)" . ($name eq 'range' ? ' TABLESPACE space' : ''));
	sql("ALTER TABLE k_$name ADD CONSTRAINT later UNIQUE (k, v) DEFERRABLE INITIALLY DEFERRED") if $name eq 'numeric';
}
my %sessions = map { $_ => session($node) } @names;
for my $am ('zheap', 'heap')
{
	for my $name (@names)
	{
		$sessions{$name}->query_until(qr/begun/, "\\echo begun\nCALL zundo.convert('k_$name', '$am', pause => 6000);\n");
	}
	$node->poll_query_until('postgres', 'SELECT count(*) = ' . @names . qq{ FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE relname ~ '^k_' AND relkind = 'r'
		AND (amname = '$am' OR EXISTS (SELECT FROM zundo.conversions v WHERE v.relation = c.oid AND copy_bytes > 0))});
	for my $name (@names)
	{
		my (undef, $key, $anew, undef) = @{ $kinds{$name} };
		for my $table ("k_$name", "twin_$name")
		{
			my $insert = "INSERT INTO $table (i, v" . ($key ? ', k) OVERRIDING SYSTEM VALUE' : ')') . ' SELECT i, i' . ($key ? ", $key" : '') . ' FROM generate_series';
			sql(join ";\n", "UPDATE $table SET v = v + 1 WHERE i % 3 = 0; DELETE FROM $table WHERE i % 7 = 0",
				$anew ? "UPDATE $table SET k = $anew WHERE i % 5 = 0" : (),
				$am eq 'zheap' ? "$insert (1001, 1100) i" : "$insert (2001, 2100) i; DELETE FROM $table WHERE i = 1; $insert (1, 1) i",
				"BEGIN; SAVEPOINT s; UPDATE $table SET v = -1; ROLLBACK TO s; UPDATE $table SET pad = 'y' WHERE i = 2; COMMIT");
		}
	}
	for my $name (@names)
	{
		is(ask($sessions{$name}, 'SELECT 1') . $complaint, 1, "$name to $am");
		is(sql("SELECT count(*) FROM ((SELECT i, k::text, v, pad FROM k_$name EXCEPT ALL SELECT i, k::text, v, pad FROM twin_$name) UNION ALL (SELECT i, k::text, v, pad FROM twin_$name EXCEPT ALL SELECT i, k::text, v, pad FROM k_$name)) d"),
			0, "$name: the rows");
	}
	sql(q{CALL zundo.convert('t', 'zheap'); CALL zundo.convert('t', 'heap')});
	# nothing but WAL has what was copied
	$_->quit for values %sessions;
	crash($node);
	equal('after a crash');
	for my $name (@names)
	{
		is(sql("SELECT count(*) FROM (SELECT i, k::text, v FROM k_$name EXCEPT ALL SELECT i, k::text, v FROM twin_$name) d; SET enable_seqscan = off; SELECT count(*) - (SELECT count(*) FROM twin_$name) FROM k_$name WHERE v > -5"), "0\n0", "$name after a crash");
	}
	%sessions = map { $_ => session($node) } @names;
}
is(left(), 0, 'nothing is left');
is(sql(q{SELECT count(*), bool_and(bytes_free > bytes) FROM zundo.convert_plan('k_array', 'zheap')}), '1|t', 'space is known');
is(sql(q{ALTER TABLE k_array OWNER TO reader; SET ROLE reader; SELECT count(bytes_free) FROM zundo.convert_plan('k_array', 'zheap')}), '0', 'not to a role without rights for pg_tablespace_size');
is(sql(q{GRANT CREATE ON TABLESPACE space TO reader; SET ROLE reader; SELECT count(bytes_free) FROM zundo.convert_plan('k_array', 'zheap')}), '1', 'to a role with these rights');
$node->stop;

# 5. The subscriber's table is converted while changes are applied, the publisher's as well.
my $publisher = zundo_node('publisher', '', allows_streaming => 'logical');
my $subscriber = zundo_node('subscriber', "autovacuum = on\n");
for my $server ($publisher, $subscriber)
{
	$server->safe_psql('postgres', 'CREATE EXTENSION zundo; CREATE TABLE r (id int PRIMARY KEY, v int, pad text) USING heap; CREATE INDEX ON r (v)');
}
$publisher->safe_psql('postgres', q{INSERT INTO r SELECT i, 0, repeat(md5(i::text), 3) FROM generate_series(1, 2000) i; CREATE PUBLICATION p FOR ALL TABLES});
my $dsn = $publisher->connstr . ' dbname=postgres';
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION s CONNECTION '$dsn' PUBLICATION p");
$subscriber->wait_for_subscription_sync($publisher, 's');
my $by = 0;
for my $server ($publisher, $subscriber)
{
	for my $am ('zheap', 'heap')
	{
		my ($session, $reading) = map { session($server) } 1 .. 2;
		$by += 10000;
		$reading->query_safe('BEGIN; SELECT count(*) FROM r');
		$session->query_until(qr/begun/, "\\echo begun\nCALL zundo.convert('r', '$am', step => 5, pause => 400);\n");
		$server->poll_query_until('postgres', q{SELECT count(*) = 1 FROM zundo.conversions WHERE pid IS NOT NULL});
		my ($rc, $out, $err) = $subscriber->psql('postgres', 'ALTER SUBSCRIPTION s REFRESH PUBLICATION');
		like($err, $server == $publisher ? qr/relation "zundo.copy_\d+" does not exist/ : qr/^$/, 'REFRESH PUBLICATION meanwhile');
		$reading->query_safe('COMMIT');
		$reading->quit;
		for my $n (1 .. 10)
		{
			$publisher->safe_psql('postgres', "UPDATE r SET v = v + 1 WHERE id % 20 = $n; DELETE FROM r WHERE id % 40 = $n; INSERT INTO r SELECT i, $n, 'new' FROM generate_series(1, 2000) i WHERE i % 80 = $n ON CONFLICT DO NOTHING;
				UPDATE r SET id = id + $by WHERE id % 400 = $n AND id < 2000");
		}
		is(ask($session, 'SELECT 1') . $complaint, 1, "to $am");
		$publisher->wait_for_catchup('s');
		my $rows = q{SELECT count(*), sum(v), md5(string_agg(concat(id, v, pad), ';' ORDER BY id)) FROM r};
		is($subscriber->safe_psql('postgres', $rows), $publisher->safe_psql('postgres', $rows), "$am: publisher and subscriber are equal");
		is($subscriber->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM r WHERE v >= 0'), $publisher->safe_psql('postgres', 'SELECT count(*) FROM r'), 'and the index');
		$session->quit;
	}
}
$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION s REFRESH PUBLICATION');
done_testing();
