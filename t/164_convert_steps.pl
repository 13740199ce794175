# zundo.convert, held up between its steps: beside each kind of DDL it either continues, and the
# table is what its twin is, or ends with an error; then one call cleans up, and the table is
# converted. A dump of each step is restored and converted. A fast stop does not wait for it. A
# conversion that waits for its first lock can be seen.
# Rules: CONVERT-1, CONVERT-4.
# long
use strict;
use warnings;
use IPC::Run qw(start finish);
use PostgreSQL::Test::Utils;
use Test::More;
use File::Spec;
use Time::HiRes;
use ZundoTest;

my $node = zundo_node('steps', "wal_level = logical\nmax_connections = 100\nallow_in_place_tablespaces = on\nmax_prepared_transactions = 2\n");
my $dir = $node->basedir;
sql(<<'S');
CREATE EXTENSION zundo;
CREATE ROLE other;
GRANT USAGE ON SCHEMA zundo TO other;
CREATE SCHEMA elsewhere;
GRANT ALL ON SCHEMA public TO PUBLIC;
CREATE TABLESPACE space LOCATION '';
CREATE FUNCTION passes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.pad := concat(NEW.pad, 'x'); RETURN NEW; END $$;
CREATE FUNCTION one() RETURNS int LANGUAGE plpgsql VOLATILE AS 'BEGIN RETURN 1; END';
CREATE PROCEDURE wait_for(name text) LANGUAGE plpgsql AS $$ BEGIN
	FOR i IN 1 .. 1200 LOOP
		EXIT WHEN EXISTS (SELECT FROM pg_stat_activity WHERE application_name = name AND wait_event = 'PgSleep')
			OR i > 200 AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = name);
		COMMIT;
		PERFORM pg_sleep(0.05);
	END LOOP;
END $$;
S
sub left { return sql(q{SELECT (SELECT count(*) FROM zundo.conversions) + (SELECT count(*) FROM pg_trigger WHERE tgname ~ '^zundo_convert')}) }

# psql NAME LINE...: starts psql with these statements.
# printed RUN: waits for its end, and returns what it has printed.
sub psql
{
	my ($name, @lines) = @_;
	my $file = "$dir/$name";
	unlink $file;
	append_to_file($file, join('', map { "$_;\n" } @lines));
	return [ start([ 'psql', '-X', '-q', '-A', '-t', '-d', $node->connstr('postgres') . " application_name=$name", '-f', $file ], '<', File::Spec->devnull, '>', "$file.out", '2>&1'), "$file.out" ];
}
sub printed { my ($psql) = @_; finish($psql->[0]); return slurp_file($psql->[1]) =~ s/^psql:[^:]*:\d+: //gmr; }

# 1. DDL. T is the table and, in a second run, its twin; D and E are their domain and enum. A
# conversion continues beside it (on), ends, or either, as the step may be. Then the table's name, if it
# is another (none if it is gone), and what comes before the conversion.
my @ddl = (
	[ 'ALTER TABLE T ADD n int', 'ends' ],
	[ 'ALTER TABLE T ADD n int DEFAULT 5', 'ends' ],
	[ 'ALTER TABLE T ADD n int DEFAULT one()', 'ends' ],
	[ 'ALTER TABLE T DROP pad', 'ends' ],
	[ 'ALTER TABLE T RENAME c TO n', 'ends' ],
	[ 'ALTER TABLE T RENAME TO T_new', 'on', 'T_new' ],
	[ 'ALTER TABLE T SET SCHEMA elsewhere', 'on', 'elsewhere.T' ],
	[ 'ALTER TABLE T ALTER id TYPE bigint', 'ends' ],
	[ 'ALTER TABLE T ALTER c TYPE varchar(20)', 'ends' ],
	[ 'ALTER TABLE T ALTER v SET NOT NULL', 'ends' ],
	[ 'ALTER TABLE T ALTER v SET DEFAULT 9, ALTER v SET STATISTICS 7, ALTER v SET (n_distinct = 5), REPLICA IDENTITY FULL, CLUSTER ON T_pkey', 'on' ],
	[ 'ALTER TABLE T ALTER pad SET STORAGE EXTERNAL', 'ends' ],
	[ 'ALTER TABLE T SET (fillfactor = 50)', 'ends' ],
	[ 'ALTER TABLE T SET TABLESPACE space', 'ends' ],
	[ 'ALTER TABLE T SET UNLOGGED', 'ends' ],
	[ 'ALTER TABLE T SET ACCESS METHOD zheap', 'either' ],
	[ 'ALTER TABLE T ALTER w DROP EXPRESSION', 'ends' ],
	[ 'ALTER TABLE T ADD CONSTRAINT T_k CHECK (v > -7) NOT VALID; ALTER TABLE T VALIDATE CONSTRAINT T_k; ALTER TABLE T DROP CONSTRAINT T_c', 'on' ],
	[ 'ALTER TABLE T ADD CONSTRAINT T_u UNIQUE (id, v)', 'ends' ],
	[ 'ALTER TABLE T ADD CONSTRAINT T_f FOREIGN KEY (id) REFERENCES T', 'on' ],
	[ 'CREATE INDEX T_n ON T (pad)', 'ends' ],
	[ 'CREATE INDEX CONCURRENTLY T_n ON T (pad)', 'ends' ],
	[ 'DROP INDEX T_v', 'ends' ],
	[ 'REINDEX TABLE T', 'ends' ],
	[ 'ALTER INDEX T_v RENAME TO T_n; COMMENT ON INDEX T_n IS $$x$$', 'on' ],
	[ 'ALTER DOMAIN D ADD CONSTRAINT small CHECK (VALUE < 4000)', 'on' ],
	[ 'ALTER DOMAIN D SET NOT NULL', 'on' ],
	[ 'DROP DOMAIN D CASCADE', 'ends', 'T without d' ],
	[ 'ALTER TYPE E ADD VALUE $$new$$; UPDATE T SET e = $$new$$ WHERE id = 2', 'on' ],
	[ 'ALTER TYPE E RENAME VALUE $$ok$$ TO $$well$$', 'on' ],
	[ 'DROP TYPE E CASCADE', 'ends' ],
	[ 'DROP TABLE T', 'ends', '' ],
	[ 'TRUNCATE T', 'ends' ],
	[ 'BEGIN; TRUNCATE T; ROLLBACK; BEGIN; ALTER TABLE T DISABLE TRIGGER ALL; UPDATE T SET v = 8; ROLLBACK', 'on' ],
	[ 'BEGIN; SAVEPOINT s; TRUNCATE T; ROLLBACK TO s; UPDATE T SET v = 8 WHERE id = 2; COMMIT', 'on' ],
	[ 'BEGIN; ALTER TABLE T DISABLE TRIGGER ALL; UPDATE T SET v = 8; ALTER TABLE T ENABLE TRIGGER ALL; COMMIT', 'ends' ],
	[ 'GRANT SELECT ON T TO other; REVOKE UPDATE ON T FROM PUBLIC', 'on' ],
	[ 'ALTER TABLE T OWNER TO other', 'ends' ],
	[ 'ALTER TABLE T ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; CREATE POLICY p ON T USING (id < 0)', 'on' ],
	[ 'CREATE TRIGGER b BEFORE INSERT OR UPDATE ON T FOR EACH ROW EXECUTE FUNCTION passes()', 'on' ],
	[ 'CREATE RULE r AS ON UPDATE TO T WHERE OLD.id = 6 DO INSTEAD NOTHING', 'on' ],
	[ 'CREATE PUBLICATION T_pub FOR TABLE T; ALTER PUBLICATION T_pub SET TABLE T (id) WHERE (id > 0)', 'on' ],
	[ 'CREATE STATISTICS T_s ON v, c FROM T; ANALYZE T; COMMENT ON TABLE T IS $$x$$; COMMENT ON COLUMN T.v IS $$x$$', 'on' ],
	[ 'VACUUM T; VACUUM (FREEZE) T', 'on' ],
	[ 'VACUUM FULL T', 'ends' ],
	[ 'CLUSTER T USING T_pkey', 'ends' ],
	[ 'CREATE TABLE T_p (LIKE T INCLUDING CONSTRAINTS INCLUDING GENERATED, PRIMARY KEY (id)) PARTITION BY RANGE (id); ALTER TABLE T_p ATTACH PARTITION T DEFAULT; UPDATE T_p SET id = id + 3000 WHERE id = 2; INSERT INTO T_p (id) VALUES (6000)', 'on' ],
	[ 'ALTER TABLE T_q DETACH PARTITION T', 'on', 'T', 'CREATE TABLE T_q (LIKE T INCLUDING CONSTRAINTS INCLUDING GENERATED, PRIMARY KEY (id)) PARTITION BY RANGE (id); ALTER TABLE T_q ATTACH PARTITION T DEFAULT' ],
	[ 'ALTER TABLE T_q DETACH PARTITION T CONCURRENTLY', 'on', 'T', 'CREATE TABLE T_q (LIKE T INCLUDING CONSTRAINTS INCLUDING GENERATED, PRIMARY KEY (id)) PARTITION BY RANGE (id); ALTER TABLE T_q ATTACH PARTITION T FOR VALUES FROM (-100000) TO (100000)' ],
	[ 'CREATE TABLE T_i () INHERITS (T); INSERT INTO T_i (id) VALUES (7000)', 'on' ],
	[ 'CREATE VIEW T_view AS SELECT * FROM T', 'on' ],
	[ 'REASSIGN OWNED BY other TO CURRENT_USER', 'either', 'T', 'ALTER TABLE T OWNER TO other' ],
);
my $filter = $ENV{DDL} // '.';

# on NAME N: the text with the names of kind N; NAME is t or w.
sub on { my ($text, $name, $n) = @_; return $text =~ s/\bT(?=\b|_)/$name$n/gr =~ s/\b([DE])\b/lc($1) . $n/ger; }

# both TEXT N: its statements for table and twin, which are in transactions of both.
sub both
{
	my ($text, $n) = @_;
	return $text =~ /^BEGIN/ ? map({ split /; */, on($text, $_, $n) } 't', 'w')
	  : map({ /\bT(?=\b|_)/ ? (on($_, 't', $n), on($_, 'w', $n)) : on($_, 't', $n) } split /; */, $text);
}

my $changes = 'UPDATE T SET v = v + 1, d = 4 WHERE id % 3 = 0; DELETE FROM T WHERE id % 7 = 0; UPDATE T SET id = id + 1000 WHERE id % 5 = 0; INSERT INTO T (id, v, d) VALUES (0, 0, 5), (2001, 1, 6)';
my $later = 'DELETE FROM T WHERE id % 11 = 0; UPDATE T SET id = -id WHERE id % 4 = 0; INSERT INTO T (id, d, v) SELECT 11, 1, 1 WHERE NOT EXISTS (SELECT FROM T WHERE id = 11)';

# commits: begin, copy, refresh, index, built, index, built, refresh, exchange
for my $step (1 .. 5, 8, 9)
{
	my ($from, $to) = $step % 2 ? ('heap', 'zheap') : ('zheap', 'heap');
	my @kinds = grep { $ddl[$_][0] =~ /$filter/ } 0 .. $#ddl;
	$node->safe_psql('postgres', join "\n", 'SET client_min_messages = error;', map {
		my $n = $_;
		(on('CREATE DOMAIN D AS int CHECK (VALUE <> -1); CREATE TYPE E AS ENUM ($$sad$$, $$ok$$);', 't', $n),
			map({ on("CREATE TABLE T (id int PRIMARY KEY, d D, e E, v int, w int GENERATED ALWAYS AS (v * 2) STORED, c varchar(10), pad text, d2 D DEFAULT 7, CONSTRAINT T_c CHECK (v > -5)) USING $from;
				INSERT INTO T SELECT i, CASE i % 9 WHEN 0 THEN 5000 WHEN 3 THEN NULL ELSE i END, 'ok', i FROM generate_series(1, 200) i; CREATE INDEX T_v ON T (v);", $_, $n) } 't', 'w'),
			map({ "$_;" } both($ddl[$n][3] // '', $n)))
	} @kinds);
	while (my @batch = splice @kinds, 0, 13)
	{
		my (%converts, %changes);
		for my $n (@batch)
		{
			$converts{$n} = psql("convert_$n", 'SET client_min_messages = warning', "SET zundo.fault = 'convert-committed:sleep:$step'", "CALL zundo.convert('t$n', '$to')");
			$changes{$n} = psql("changes_$n", "SET client_min_messages = warning; SET deadlock_timeout = '10s'", "CALL wait_for('convert_$n')", both($changes, $n), both($ddl[$n][0], $n), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'convert_$n' AND wait_event = 'PgSleep'", defined $ddl[$n][2] ? () : both($later, $n));
		}
		for my $n (@batch)
		{
			my ($ddl, $outcome, $name) = @{ $ddl[$n] };
			my ($table, $twin) = map { on(($name // 'T') =~ s/ .*//r, $_, $n) } 't', 'w';
			my $what = "step $step: " . substr($ddl, 0, 90);
			my $changed = printed($changes{$n});
			# these lock several tables, in any order, and may be a deadlock's victim if they look for one while
			# the conversion waits for its 50 ms, or meet a copy that is dropped
			like($changed, $ddl =~ /^REASSIGN|^DROP DOMAIN/ ? qr/^(ERROR:  could not open relation with OID \d+\n|ERROR:  deadlock detected\n(DETAIL|HINT|Process).*\n)?[01]\n$/s : qr/^[01]\n$/, "$what: works");
			# nor does a command that came too late, on a slow machine, end the conversion
			$outcome = 'either' if $outcome eq 'ends' && $changed !~ /^1$/;
			my $error = printed($converts{$n});
			my $ended = qr/^ERROR:  (table "\w+" was changed by another command while it was converted\nHINT:  Call zundo.convert_cleanup, then zundo.convert again.\n)$/;
			like($error, $outcome eq 'on' || $step == 9 ? qr/^$/ : $outcome eq 'ends' ? $ended : qr/^$|$ended/, "$what: $outcome");
			next if $table eq '';
			is(sql($error eq '' ? () : "CALL zundo.convert_cleanup('$table');" . ($ddl =~ /UNLOGGED/ ? '' : "CALL zundo.convert('$table', '$to');"),
				"SELECT count(*) FROM ((TABLE $table EXCEPT ALL TABLE $twin) UNION ALL (TABLE $twin EXCEPT ALL TABLE $table)) x;
				SET enable_seqscan = off; SELECT (SELECT count(*) FROM $table WHERE id > -10000) - (SELECT count(*) FROM $twin)"), "0\n0", "$what: table and twin");
		}
	}
	is(left(), 0, 'nothing is left');
	$node->safe_psql('postgres', join("\n", 'SET client_min_messages = error; DROP OWNED BY other;', map { "DROP TABLE IF EXISTS $_ CASCADE;" } map { my $n = $_; map { ("$_$n", "elsewhere.$_$n", "$_${n}_new", "$_${n}_p", "$_${n}_q") } 't', 'w' } 0 .. $#ddl)
		. "\n" . join("\n", map { "DROP DOMAIN IF EXISTS d$_ CASCADE; DROP TYPE IF EXISTS e$_ CASCADE; DROP PUBLICATION IF EXISTS t${_}_pub; DROP PUBLICATION IF EXISTS w${_}_pub;" } 0 .. $#ddl));
}

# 2. A dump of each step, which may be made beside the conversion, has the table's rows,
# and what is left of the copy: after restoring it the table is converted as if nothing had been,
# and advice names the rest.
sql(<<'S');
CREATE TABLE referenced (id int PRIMARY KEY) USING heap;
INSERT INTO referenced SELECT generate_series(1, 10);
CREATE TABLE orders (id int PRIMARY KEY, r int REFERENCES referenced, v int, doc text) USING heap;
INSERT INTO orders SELECT i, 1 + i % 10, i, repeat(md5(i::text), CASE WHEN i % 50 = 0 THEN 500 ELSE 1 END) FROM generate_series(1, 300) i;
CREATE INDEX orders_v ON orders (v);
S
my $rows = 'SELECT count(*), sum(id), sum(v), md5(string_agg(doc, $$,$$ ORDER BY id)) FROM orders';
for my $step (1 .. 9)
{
	my $to = $step % 2 ? 'zheap' : 'heap';
	my $convert = psql("dump_$step", 'SET client_min_messages = warning', "SET zundo.fault = 'convert-committed:sleep:$step'", "CALL zundo.convert('orders', '$to')");
	sql("CALL wait_for('dump_$step')");
	sql('UPDATE orders SET v = v + 1 WHERE id % 3 = 0; UPDATE orders SET id = id + 1000 WHERE id = ' . $step);
	command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-Fc', '-f', "$dir/$step.dump" ], "step $step: a dump");
	is(printed($convert), '', 'the conversion continues');
	my $expected = sql($rows);
	$node->safe_psql('postgres', "CREATE DATABASE restored_$step");
	command_ok([ 'pg_restore', '-e', '-d', $node->connstr("restored_$step"), "$dir/$step.dump" ], 'restored');
	is($node->safe_psql("restored_$step", $rows), $expected, 'its rows');
	my $advice = $node->safe_psql("restored_$step", q{SELECT statement FROM zundo.advise() WHERE finding = 'leftover'});
	like($advice, qr/^(DROP TABLE zundo\.(copy|log)_\d+\n?)*$/, 'advice');
	$node->safe_psql("restored_$step", $advice =~ s{$}{;}gmr);
	$node->safe_psql("restored_$step", 'UPDATE orders SET v = v + 1');
	my ($to2) = grep { $_ ne $node->safe_psql("restored_$step", q{SELECT amname FROM pg_am a JOIN pg_class c ON c.relam = a.oid WHERE c.oid = 'orders'::regclass}) } 'heap', 'zheap';
	command_ok([ 'zundo-convert', '-h', $node->host, '-p', $node->port, '-q', "--to=$to2", '-t', 'orders', "restored_$step" ], "converted there to $to2");
	is($node->safe_psql("restored_$step", "UPDATE orders SET v = v - 1; $rows; SELECT count(*) FROM pg_class WHERE relnamespace = 'zundo'::regnamespace AND relname ~ '^(copy|log)_'"), "$expected\n0", 'its rows');
	$node->safe_psql('postgres', "DROP DATABASE restored_$step");
}

# 3. A fast stop in each step ends the conversion at once. A conversion that waits for its first
# lock says so, and is stopped, too; as is one that waits for the exchange.
for my $step (1 .. 9, 'start', 'exchang')
{
	my $to = sql(q{SELECT amname FROM pg_am a JOIN pg_class c ON c.relam = a.oid WHERE c.oid = 'orders'::regclass}) eq 'heap' ? 'zheap' : 'heap';
	my $holder = session($node);
	my ($pid, $convert);
	if ($step =~ /\d/)
	{
		$convert = psql("stop_$step", "SET zundo.fault = 'convert-committed:sleep:$step'", "CALL zundo.convert('orders', '$to')");
		sql("CALL wait_for('stop_$step')");
	}
	else
	{
		$pid = ask($holder, 'SELECT pg_backend_pid()');
		$holder->query_safe($step eq 'start' ? 'BEGIN; UPDATE orders SET v = v WHERE id = 200' : 'BEGIN; SELECT count(*) FROM orders');
		$convert = psql("stop_$step", "CALL zundo.convert('orders', '$to')");
		ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM zundo.conversions WHERE relation = 'orders'::regclass AND phase ~ '^$step' AND blocked_by = '{$pid}' AND table_bytes > 0"), "$step: can be seen");
		my ($rc, $out, $err) = $node->psql('postgres', "CALL zundo.convert('orders', '$to')");
		like($err, qr/table "orders" is being converted by another session/, 'another call');
	}
	my $begun = Time::HiRes::time();
	$node->stop('fast');
	my $time = Time::HiRes::time() - $begun;
	cmp_ok($time, '<', 60, sprintf('step %s: a fast stop: %.1f s', $step, $time));
	like(printed($convert), qr/^(psql:.*\n)?(NOTICE:.*\n.*\n)?$|terminating connection|server closed the connection/s, 'ends the conversion');
	$holder->quit;
	$node->start;
	sql(q{CALL zundo.convert_cleanup('orders')});
	is(left(), 0, 'nothing is left');
}
done_testing();
