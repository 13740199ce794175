# zundo.set_index_method: an index gets the other access method, both ways, beside writers,
# with all that belongs to it; what is refused; errors, cancellation and crashes after each
# of its transactions; beside an old snapshot.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('method', "restart_after_crash = on\nzundo.key_queue = 0\n");
my $unique = server_major() >= 18;
my $faults = ($node->psql('postgres', q{LOAD 'zundo'; SET zundo.fault = 'index-step:error'}))[0] == 0;
sql(q{
CREATE EXTENSION zundo;
CREATE TABLE t (id int, a int NOT NULL, b text, c name, d numeric) USING zheap WITH (fillfactor = 80);
INSERT INTO t SELECT g, g, 'x' || g, 'n' || g, g FROM generate_series(1, 1000) g;
CREATE TABLE r (a int) USING zheap;
CREATE OPERATOR FAMILY f USING btree;
CREATE OPERATOR CLASS own FOR TYPE int USING btree FAMILY f AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 btint4cmp(int, int);
CREATE INDEX plain ON t (a);
CREATE INDEX expr ON t (lower(b) COLLATE "C" DESC NULLS LAST, (a + id)) INCLUDE (b, d) WITH (fillfactor = 70) WHERE a > 10;
ALTER INDEX expr ALTER COLUMN 1 SET STATISTICS 37;
COMMENT ON INDEX expr IS 'a comment';
CREATE INDEX classes ON t (c, b text_pattern_ops, b varchar_pattern_ops, a own) WITH (deduplicate_items = off);
ALTER TABLE t CLUSTER ON plain;
-- all that the catalogs know of the indexes of t, but their OIDs, files, access method and places in the statement
CREATE FUNCTION describe(name) RETURNS text LANGUAGE sql AS $$
	SELECT regexp_replace(replace(replace(row(i.*, c.relname, c.reloptions, c.relowner, c.relnamespace, c.reltablespace, c.relpersistence, obj_description(c.oid),
		(SELECT array_agg(row(attname, attnum, attcollation, attstattarget, attoptions)::text ORDER BY attnum) FROM pg_attribute WHERE attrelid = c.oid),
		(SELECT array_agg(pg_describe_object(refclassid, refobjid, refobjsubid) || deptype::text ORDER BY refclassid, refobjid, refobjsubid) FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid AND refclassid <> 'pg_opclass'::regclass),
		(SELECT array_agg(pg_describe_object(classid, objid, objsubid) || deptype::text ORDER BY classid, objid, objsubid) FROM pg_depend WHERE refclassid = 'pg_class'::regclass AND refobjid = c.oid),
		(SELECT array_agg(conname ORDER BY conname) FROM pg_constraint WHERE conindid = c.oid), (SELECT count(*) FROM pg_trigger WHERE tgconstrindid = c.oid),
		(SELECT array_agg(s.staattnum || ' ' || s.stadistinct ORDER BY s.staattnum) FROM pg_statistic s WHERE starelid = c.oid), pg_get_indexdef(c.oid))::text, c.oid::text, 'OID'), i.indclass::text, 'CLASSES'), ':location -?\d+', '', 'g')
	FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid WHERE c.relname = $1 $$;
-- the operator classes that the index depends on
CREATE FUNCTION depends(name) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(pg_describe_object(refclassid, refobjid, 0), ', ' ORDER BY pg_describe_object(refclassid, refobjid, 0)) FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = $1::regclass AND refclassid = 'pg_opclass'::regclass $$;
CREATE FUNCTION methods() RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(amname, ' ' ORDER BY c.relname) FROM pg_index i JOIN pg_class c ON c.oid = indexrelid JOIN pg_am a ON a.oid = relam WHERE indrelid = 't'::regclass $$;
-- faults of the indexes, and differences between what they find and what a scan of the table does
CREATE FUNCTION problems() RETURNS SETOF text LANGUAGE plpgsql AS $$
	DECLARE q text; found text[]; n int := 0;
	BEGIN
		RETURN QUERY SELECT i.relname || ' ' || f FROM pg_class i JOIN pg_am a ON a.oid = i.relam AND amname = 'zbtree' JOIN pg_index x ON indexrelid = i.oid AND indisvalid, zundo.check_index(i.oid) f WHERE i.relkind = 'i';
		RETURN QUERY SELECT f::text FROM zundo.check('t') f;
		FOREACH q IN ARRAY ARRAY['a > 0', 'a > 10 AND lower(b) COLLATE "C" > ''''', 'c > ''''', 'a BETWEEN 100 AND 3000'] LOOP
			found := NULL;
			FOR i IN 0 .. 1 LOOP
				PERFORM set_config('enable_seqscan', CASE i WHEN 0 THEN 'on' ELSE 'off' END, true), set_config('enable_indexscan', CASE i WHEN 1 THEN 'on' ELSE 'off' END, true), set_config('enable_bitmapscan', 'off', true);
				EXECUTE 'SELECT $1 || (count(*) || '' '' || coalesce(sum(hashtext(id || '' '' || a || b || c)::bigint), 0)) FROM t WHERE ' || q INTO found USING found;
			END LOOP;
			IF found[1] <> found[2] THEN RETURN NEXT q || ': ' || found::text; END IF;
		END LOOP;
	END $$;
-- changes the table until somebody says stop, in many transactions
CREATE TABLE stop ();
CREATE PROCEDURE write(base int) LANGUAGE plpgsql AS $$
	DECLARE n int := 0;
	BEGIN
		WHILE NOT EXISTS (SELECT FROM pg_class WHERE relname = 'stopped') LOOP
			n := n + 1;
			UPDATE t SET a = a + 1000000 WHERE id = base + n % 400;
			COMMIT;
			UPDATE t SET a = a - 1000000 WHERE id = base + n % 400;
			COMMIT;
			UPDATE t SET b = 'y' || n, d = n WHERE id = base + n * 7 % 400;
			DELETE FROM t WHERE id = base + n * 3 % 400;
			COMMIT;
			INSERT INTO t SELECT i, i, 'z' || n, 'n' || i, i FROM (SELECT base + n * 3 % 400) s(i);
			IF n % 3 = 0 THEN ROLLBACK; INSERT INTO t SELECT i, i, 'z' || n, 'n' || i, i FROM (SELECT base + n * 3 % 400) s(i); END IF;
			COMMIT;
		END LOOP;
	END $$;
});
my @indexes = qw(plain expr classes);
if ($unique)
{
	sql(q{CREATE UNIQUE INDEX uniq ON t (a) INCLUDE (d); ALTER TABLE r ADD FOREIGN KEY (a) REFERENCES t (a) ON UPDATE CASCADE; CREATE UNIQUE INDEX ident ON t (a) NULLS NOT DISTINCT; ALTER TABLE t REPLICA IDENTITY USING INDEX ident});
	push @indexes, qw(uniq ident);
}
sql('ANALYZE t');

# to METHOD, INDEX: returns what the call prints.
sub to
{
	my ($method, $index, $set) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', ($set // '') . "CALL zundo.set_index_method('$index', '$method')");
	return $err;
}

sub problems { return sql('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM problems(); COMMIT') }

# what belongs to an index, both ways
my %before = map { $_ => sql("SELECT describe('$_')") } @indexes;
like(to('zbtree', 'classes'), qr/operator class "own" does not exist for access method "zbtree".*HINT:  Create the class with zundo.mirror_opclass\(\)/s, 'a class that zbtree lacks');
sql(q{SELECT zundo.mirror_opclass('own')});
for my $index (@indexes)
{
	is(to('zbtree', $index), '', "$index: to zbtree");
	is(sql("SELECT describe('$index')"), $before{$index} =~ s/USING btree/USING zbtree/r, "$index: with all that belongs to it");
}
is(sql('SELECT methods()'), join(' ', ('zbtree') x @indexes), 'all are zbtree');
is(sql(q{SELECT depends('classes')}), 'operator class name_ops for access method zbtree, operator class own for access method zbtree, operator class text_pattern_ops for access method zbtree, operator class varchar_pattern_ops for access method zbtree', 'dependencies on operator classes');
is(problems(), '', 'sound');
sql('UPDATE t SET a = a + 5000 WHERE id % 3 = 0; UPDATE t SET a = a - 5000 WHERE id % 6 = 0');
sql(q{DO $$ DECLARE i regclass; BEGIN FOR i IN SELECT indexrelid FROM pg_index WHERE indrelid = 't'::regclass LOOP CALL zundo.set_index_method(i, 'btree'); END LOOP; END $$});
is(sql("SELECT describe('$_')"), $before{$_}, "$_: as it was") for @indexes;
is(sql(q{SELECT depends('classes')}), 'operator class own for access method btree', 'dependencies on operator classes');
is(problems(), '', 'sound');
is(sql(q{SELECT count(*) FROM pg_class WHERE relname LIKE 'zundo%twin%'}), '0', 'nothing is left');
is(to('btree', 'plain'), '', 'an index that has this access method');

# beside writers
sql('UPDATE t SET a = id');
my @writers = map { my $s = session($node); $s->query_until(qr/go/, "\\echo go\nCALL write(" . ($_ * 400 + 1) . ");\n"); $s } 0, 1;
for my $method ('zbtree', 'btree', 'zbtree')
{
	for my $index (@indexes)
	{
		is(to($method, $index), '', "$index: to $method beside writers");
	}
	is(problems(), '', 'sound beside writers');
}
sql('CREATE TABLE stopped ()');
for (@writers) { $_->query('SELECT 1'); is($_->{stderr}, '', 'no error of a writer'); $_->quit; }
is(problems(), '', 'sound after them');
is(sql('SELECT count(*), count(DISTINCT a) FROM t'), '1000|1000', 'all rows are there');

# an old snapshot is waited for; a canceled call leaves an index that the next one drops
my $old = session($node);
my $caller = session($node);
my $waits = q{SELECT count(*) = 1 FROM pg_stat_progress_create_index JOIN pg_locks USING (pid) WHERE phase = 'waiting for old snapshots' AND NOT granted};
my $rows = q{SET enable_seqscan = off; SELECT count(*), sum(a) FROM t WHERE a > 0};
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class');
sql('UPDATE t SET a = a + 1000 WHERE id <= 100');
$caller->query_until(qr/go/, "\\echo go\nCALL zundo.set_index_method('plain', 'btree');\n");
ok($node->poll_query_until('postgres', $waits), 'the call waits for the old snapshot');
sql(q{SELECT pg_cancel_backend(pid) FROM pg_stat_progress_create_index});
ask($caller, 'SELECT 1');
like($complaint, qr/canceling statement due to user request/, 'the call is canceled');
is(sql(q{SELECT count(*) FROM pg_index JOIN pg_class ON oid = indexrelid WHERE relname = format('zundo_%s_twin', 'plain'::regclass::oid) AND NOT indisvalid}), '1', 'what it leaves');
my $expected = ask($old, 'SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*), sum(a) FROM t WHERE a > 0', 'RESET enable_indexscan');
is(ask($old, $rows), $expected, 'rows of the old snapshot');
sql('UPDATE t SET a = a + 1000 WHERE id <= 100');
ask($old, 'COMMIT');
like(to('btree', 'plain'), qr/NOTICE:  dropping invalid index "zundo_\d+_twin", which an earlier call has left$/, 'the next call drops it');
is(problems(), '', 'sound');
is(sql(q{SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE relname = 'plain'}), 'btree', 'the index is btree');

# a left index that was made valid is not dropped; names that others have taken do not matter
sql(q{CREATE TABLE left_ (a int) USING zheap; CREATE INDEX left_a ON left_ (a)});
my $name = sql(q{SELECT format('zundo_%s_twin', 'left_a'::regclass::oid)});
sql("CREATE TABLE $name ()");
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class');
$caller->query_until(qr/go/, "\\echo go\nCALL zundo.set_index_method('left_a', 'zbtree');\n");
ok($node->poll_query_until('postgres', $waits), 'the call waits for the old snapshot');
sql(q{SELECT pg_cancel_backend(pid) FROM pg_stat_progress_create_index});
ask($caller, 'SELECT 1');
like($complaint, qr/canceling statement due to user request/, 'the call is canceled');
ask($old, 'COMMIT');
sql('REINDEX TABLE left_');
like(to($_, 'left_a'), qr/^\S*\s*ERROR:  index "${name}1", which an earlier call has left, is valid\nDETAIL:  .*\nHINT:  Drop it with DROP INDEX CONCURRENTLY, and repeat the call.$/, "to $_: a left index that is valid") for 'zbtree', 'btree';
sql("DROP INDEX CONCURRENTLY ${name}1");
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class');
$caller->query_until(qr/go/, "\\echo go\nCALL zundo.set_index_method('left_a', 'zbtree');\n");
ok($node->poll_query_until('postgres', $waits), 'the call waits for the old snapshot');
my $other = sql(qq{SELECT format('zundo_%s_twin', '${name}1'::regclass::oid)});
sql("CREATE TABLE $other ()");
ask($old, 'COMMIT');
ask($caller, 'SELECT 1');
is($complaint, '', 'the call succeeds');
is(sql(q{SELECT string_agg(amname, ' ') FROM pg_class c JOIN pg_index ON c.oid = indexrelid JOIN pg_am a ON a.oid = relam WHERE indrelid = 'left_'::regclass}), 'zbtree', 'and leaves no other index');

# calls wait for each other without a snapshot, and check again what they wait for
sql("DROP TABLE left_, $name, $other");
sql(q{CREATE ROLE former; CREATE TABLE w (a int, b int) USING zheap; CREATE INDEX w_a ON w (a); CREATE INDEX w_b ON w (b); ALTER TABLE w OWNER TO former});
my %second = map { $_ => session($node) } 'a', 'b';
my $lock = q{SELECT count(*) = %d FROM pg_locks WHERE relation = 'w'::regclass AND mode = 'ShareUpdateExclusiveLock' AND NOT granted};
ask($old, 'BEGIN; LOCK w IN ROW EXCLUSIVE MODE; SELECT pg_current_xact_id()');
$caller->query_until(qr/go/, "\\echo go\nCALL zundo.set_index_method('w_a', 'zbtree');\n");
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_progress_create_index WHERE phase = 'waiting for writers before build'}), 'a call waits for a writer');
$second{$_}->query_until(qr/go/, "\\echo go\nCALL zundo.set_index_method('w_$_', 'zbtree');\n") for sort keys %second;
ok($node->poll_query_until('postgres', sprintf($lock, 2)), 'others wait for the first');
ask($old, 'COMMIT');
ask($caller, 'SELECT 1');
is($complaint, '', 'the first one succeeds');
ask($second{b}, 'SELECT 1');
is($complaint, '', 'and one for another index');
ask($second{a}, 'SELECT 1');
like($complaint, qr/ERROR:  index "w_a" was dropped or replaced by another command/, 'one for the same index is refused');
for (['DROP INDEX w_b', qr/ERROR:  index "w_b" was dropped or replaced by another command/], ['ALTER TABLE w OWNER TO CURRENT_USER', qr/must be owner of index w_b/], ['DROP TABLE w', qr/ERROR:  index "w_b" was dropped or replaced by another command/])
{
	my ($command, $message) = @$_;
	ask($second{a}, 'SET ROLE former') if $command =~ /OWNER/;
	ask($old, "BEGIN; $command");
	$second{a}->query_until(qr/go/, "\\echo go\nCALL zundo.set_index_method('w_b', 'btree');\n");
	ok($node->poll_query_until('postgres', sprintf($lock, 1)), "a call waits for $command");
	ask($old, 'COMMIT');
	ask($second{a}, 'SELECT 1', 'RESET ROLE');
	like($complaint, $message, "$command: the call is refused");
	sql('CREATE INDEX IF NOT EXISTS w_b ON w (b)') if $command !~ /TABLE w$/;
}
sql('DROP ROLE former');
$_->quit for $old, $caller, values %second;

# constraints, with the storage parameter that a dump needs
if ($unique)
{
	sql(q{CREATE TABLE k (id int PRIMARY KEY WITH (fillfactor = 80), u int, CONSTRAINT k_u UNIQUE NULLS NOT DISTINCT (u) INCLUDE (id)) USING zheap;
		INSERT INTO k SELECT g, g FROM generate_series(1, 100) g;
		CREATE TABLE k_r (id int REFERENCES k ON UPDATE CASCADE, u int REFERENCES k (u)) USING zheap; INSERT INTO k_r VALUES (1, 1), (2, 2);
		COMMENT ON CONSTRAINT k_pkey ON k IS 'a comment'; ALTER TABLE k REPLICA IDENTITY USING INDEX k_pkey});
	my %was = map { $_ => sql("SELECT describe('$_')") } qw(k_pkey k_u);
	for my $method ('zbtree', 'btree')
	{
		for my $index (qw(k_pkey k_u))
		{
			is(to($method, $index), '', "$index: to $method");
			my $is = sql("SELECT describe('$index')");
			is($is =~ s/"\{fillfactor=80,access_method=zbtree\}"/{fillfactor=80}/r =~ s/\{access_method=zbtree\}//r =~ s/, access_method=zbtree\)/)/r =~ s/ WITH \(access_method=zbtree\)//r,
				$was{$index} =~ s/USING btree/USING $method/r, "$index: with all that belongs to it");
			is(scalar(() = $is =~ /access_method=zbtree/g), $method eq 'zbtree' ? 2 : 0, "$index: its storage parameters");
		}
		my $place = sql(q{SELECT ctid FROM k WHERE id = 50});
		sql(q{UPDATE k SET id = id + 1000, u = u + 1000 WHERE id = 50; UPDATE k SET id = id - 1000, u = u - 1000 WHERE id = 1050});
		is(sql(q{SELECT ctid FROM k WHERE id = 50}), $place, 'an update of the keys leaves the row in place') if $method eq 'zbtree';
		is(sql(q{UPDATE k SET id = 201 WHERE id = 1; SELECT id FROM k_r WHERE u = 1; UPDATE k SET id = 1 WHERE id = 201;
			INSERT INTO k VALUES (2, 500) ON CONFLICT (id) DO UPDATE SET u = k.u RETURNING u; INSERT INTO k VALUES (500, 3) ON CONFLICT ON CONSTRAINT k_u DO NOTHING; SELECT count(*) FROM k}),
			"201\n2\n100", 'ON UPDATE CASCADE and ON CONFLICT');
		for (['INSERT INTO k VALUES (500, 7)', qr/duplicate key value violates unique constraint "k_u"/], ['UPDATE k SET id = 2 WHERE id = 3', qr/duplicate key value violates unique constraint "k_pkey"/],
			['INSERT INTO k_r VALUES (500)', qr/violates foreign key constraint "k_r_id_fkey"/], ['DELETE FROM k WHERE u = 2', qr/violates foreign key constraint "k_r_/])
		{
			like(($node->psql('postgres', $_->[0]))[2], $_->[1], "$method: $_->[0]");
		}
		my $file = PostgreSQL::Test::Utils::tempdir() . "/$method.sql";
		$node->command_ok([ 'pg_dump', '-t', 'k', '-s', '-f', $file, '-d', $node->connstr('postgres') ], 'pg_dump');
		is(scalar(() = slurp_file($file) =~ /(?:PRIMARY KEY|UNIQUE) .*access_method='?zbtree'?\);/g), $method eq 'zbtree' ? 2 : 0, 'a dump has the storage parameter');
		is(problems(), '', 'sound');
	}
	sql('DROP TABLE k_r, k');
}

# refusals, before anything is made
sql(q{
CREATE ROLE other; CREATE TABLE h (a int PRIMARY KEY, b int, p point); CREATE INDEX h_b ON h (b);
CREATE TABLE z (a int PRIMARY KEY, b int UNIQUE DEFERRABLE, c text, p point, EXCLUDE USING zbtree (c WITH =)) USING zheap; CREATE INDEX z_p ON z USING gist (p);
CREATE UNIQUE INDEX z_u ON z (a);
CREATE TABLE part (a int, b int) PARTITION BY LIST (a); CREATE TABLE part1 PARTITION OF part FOR VALUES IN (1) USING zheap; CREATE INDEX part_b ON part (b);
GRANT SELECT ON t TO other;
});
for (
	['plain', 'hash', qr/access method of an index cannot be changed to "hash"\nDETAIL:  It can be changed from "btree" to "zbtree" and back/],
	['t', 'zbtree', qr/"t" is not an index/],
	['h_b', 'zbtree', qr/index "h_b" cannot use access method "zbtree"\nDETAIL:  Table "h" is not a zheap table/],
	['pg_class_oid_index', 'zbtree', qr/index "pg_class_oid_index" cannot use access method "zbtree"/],
	['z_pkey', 'zbtree', $unique ? qr/^$/ : qr/access method "zbtree" does not support unique indexes/],
	['z_b_key', 'zbtree', $unique ? qr/index "z_b_key" cannot use access method "zbtree"\nDETAIL:  Its constraint is deferrable/ : qr/access method "zbtree" does not support unique indexes/],
	['z_u', 'zbtree', $unique ? qr/^$/ : qr/access method "zbtree" does not support unique indexes/],
	['z_c_excl', 'btree', qr/cannot change the access method of index "z_c_excl" of an exclusion constraint/],
	['z_p', 'zbtree', qr/index "z_p" has access method "gist"/],
	['part_b', 'zbtree', qr/cannot change the access method of partitioned index "part_b" or of one of its partitions/],
	['part1_b_idx', 'zbtree', qr/cannot change the access method of partitioned index "part1_b_idx" or of one of its partitions/],
	['pg_toast.pg_toast_' . sql(q{SELECT 'z'::regclass::oid}) . '_index', 'zbtree', $unique ? qr/user-defined indexes on system catalog tables are not supported/ : qr/access method "zbtree" does not support unique indexes/])
{
	my ($index, $method, $message) = @$_;
	like(to($method, $index), $message, "refused: $index, $method");
}
like(to('zbtree', 'plain', 'SET ROLE other; '), qr/must be owner of index plain/, 'refused: not the owner');
like(to('zbtree', 'plain', 'SET default_transaction_read_only = on; '), qr/cannot execute zundo.set_index_method in a read-only transaction/, 'refused: read-only');
like(to('zbtree', 'tmp_a', 'CREATE TEMP TABLE tmp (a int) USING zheap; CREATE INDEX tmp_a ON tmp (a); '), qr/cannot change the access method of index "tmp_a" of a temporary table/, 'refused: a temporary table');
like(to('zbtree', 'plain', 'BEGIN; '), qr/zundo.set_index_method cannot run inside a transaction block/, 'refused: a transaction block');
like(to('zbtree', 'plain', 'SELECT 1 \\; '), qr/zundo.set_index_method cannot run inside a transaction block/, 'refused: several statements at once');
like(($node->psql('postgres', q{DO $$ BEGIN CALL zundo.set_index_method('plain', 'zbtree'); EXCEPTION WHEN division_by_zero THEN END $$}))[2], qr/cannot run inside a transaction block/, 'refused: a subtransaction');
like(($node->psql('postgres', 'DROP OWNED BY other; DROP ROLE other; CREATE INDEX CONCURRENTLY bad ON t ((1 / (id - 7)))'))[2], qr/division by zero/, 'an invalid index');
like(to('zbtree', 'bad'), qr/index "bad" is not valid/, 'refused: an invalid index');
sql('DROP INDEX bad');
is(sql(q{SELECT count(*) FROM pg_class WHERE relname LIKE 'zundo%twin%'}), '0', 'nothing is left');

# functions of the owner run with the owner's rights also if a superuser calls; an owner needs no other rights
sql(q{
CREATE ROLE mallory;
CREATE FUNCTION own(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN IF current_user <> 'mallory' THEN RAISE 'runs as %', current_user; END IF; RETURN $1; END $$;
CREATE TABLE m (a int) USING zheap; INSERT INTO m SELECT generate_series(1, 100); ALTER TABLE m OWNER TO mallory;
GRANT CREATE ON SCHEMA public TO mallory; SET ROLE mallory; CREATE INDEX m_own ON m (own(a), (own(1))) WHERE own(a) > 5; RESET ROLE; REVOKE CREATE ON SCHEMA public FROM mallory});
is(to('zbtree', 'm_own'), '', 'called by a superuser');
is(to('btree', 'm_own', 'SET ROLE mallory; '), '', 'called by the owner');
sql('DROP TABLE m; DROP FUNCTION own; DROP ROLE mallory');

# errors and crashes after each transaction
for my $action ($faults ? ('error', 'crash') : ())
{
	my $method = 'zbtree';
	my ($index, $twins) = ($unique ? 'uniq' : 'plain', 0);
	my $done = 0;
	sql("CALL zundo.set_index_method('$index', 'btree')");
	for (my $n = 1; !$done && $n < 30; $n++)
	{
		my $err;
		crashes($node, sub { $err = to($method, $index, "SET zundo.fault = 'index-step:$action:$n'; "); $err !~ /connection/ });
		$done = $err eq '';
		my $left = sql(q{SELECT count(*) FROM pg_class WHERE relname = format('zundo_%s_twin', '} . $index . q{'::regclass::oid)});
		$twins += $left;
		is(problems(), '', "$action $n, to $method: sound");
		sql('UPDATE t SET a = a + 1000000 WHERE id % 50 = 3; UPDATE t SET a = a - 1000000 WHERE id % 50 = 3');
		$err = to($method, $index);
		like($err, $left ? qr/^\S*\s*NOTICE:  dropping invalid index "zundo_\d+_twin", which an earlier call has left$/ : qr/^$/, "$action $n, to $method: the next call");
		is(sql(qq{SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE relname = '$index'}), $method, "$action $n: the index is $method");
		is(problems(), '', "$action $n, to $method: sound after it");
		$method = $method eq 'btree' ? 'zbtree' : 'btree';
	}
	ok($done, 'a call reaches its end');
	cmp_ok($twins, '>', 5, 'most of them leave an index');
}
is(sql(q{SELECT count(*) FROM pg_class WHERE relname LIKE 'zundo%twin%'}), '0', 'nothing is left');
is(sql('SELECT count(*), count(DISTINCT a) FROM t'), '1000|1000', 'all rows are there');
no_crash($node);
done_testing();
