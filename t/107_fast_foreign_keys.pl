# 19 checks foreign keys without an SQL statement: it probes the referenced index
# and locks rows from the trigger function, 64 rows at a time. Each statement
# answers, and each row is locked, as on heap: within one transaction, beside
# others that change, move or delete the referenced rows, and under every
# isolation level.
# newest
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

plan skip_all => 'foreign keys are checked by SQL statements up to 18' if server_major() < 19;

my $node = zundo_node('keys', "deadlock_timeout = 100ms\n");
sql('CREATE EXTENSION zundo');
my @ams = qw(heap zheap);

# named SQL, AM: puts the access method into the names.
sub named
{
	my ($sql, $am) = @_;
	return $sql =~ s/_AM\b/_$am/gr =~ s/\bAM\b/$am/gr;
}

# both NAME, SQL: checks that the statements answer the same on both access methods; returns the answer.
sub both
{
	my ($name, $sql) = @_;
	my %out;
	for my $am (@ams)
	{
		my ($rc, $out, $err) = $node->psql('postgres', named($sql, $am), on_error_stop => 0);
		$out{$am} = "$out\n$err" =~ s/_$am(?![a-z])/_AM/gr;
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($out{zheap}, $out{heap}, $name);
	return $out{zheap};
}

# The referenced tables: with a key of one column, of two, and of a type that is compared with another one.
for my $am (@ams)
{
	sql(named(q{
		CREATE TABLE parent_AM (id int PRIMARY KEY, n int, pad text, u int UNIQUE) USING AM;
		CREATE INDEX parent_n_AM ON parent_AM (n);
		INSERT INTO parent_AM SELECT g, g, repeat('p', 100), -g FROM generate_series(1, 400) g;
		CREATE TABLE pair_AM (a int, b text, n int, PRIMARY KEY (a, b)) USING AM;
		INSERT INTO pair_AM SELECT g, 'b' || g, g FROM generate_series(1, 400) g;
		CREATE TABLE child_AM (id int, p int REFERENCES parent_AM) USING AM;
		CREATE TABLE cross_AM (id int, p bigint REFERENCES parent_AM, u smallint REFERENCES parent_AM (u)) USING AM;
		CREATE TABLE two_AM (id int, a bigint, b varchar, FOREIGN KEY (a, b) REFERENCES pair_AM) USING AM;
		CREATE TABLE late_AM (id int, p int REFERENCES parent_AM DEFERRABLE INITIALLY DEFERRED) USING AM;
		CREATE TABLE tree_AM (id int PRIMARY KEY, up int REFERENCES tree_AM) USING AM;
		CREATE VIEW counts_AM AS SELECT (SELECT count(*) FROM child_AM) c, (SELECT count(*) FROM cross_AM) x, (SELECT count(*) FROM two_AM) t, (SELECT count(*) FROM late_AM) l, (SELECT count(*) FROM tree_AM) r}, $am));
}
both('many rows', q{
	INSERT INTO child_AM SELECT g, g % 400 + 1 FROM generate_series(1, 1000) g;
	INSERT INTO cross_AM SELECT g, g % 400 + 1, -(g % 399 + 1) FROM generate_series(1, 300) g;
	INSERT INTO two_AM SELECT g, g, 'b' || g FROM generate_series(1, 200) g;
	INSERT INTO tree_AM SELECT g, nullif(g / 2, 0) FROM generate_series(1, 300) g;
	UPDATE child_AM SET p = 401 - p WHERE id <= 300;
	SELECT * FROM counts_AM});
my $refused = both('rows that are refused', q{
	INSERT INTO child_AM SELECT g, g FROM generate_series(301, 500) g;
	INSERT INTO child_AM VALUES (1, 401);
	INSERT INTO cross_AM SELECT g, 1, -g FROM generate_series(350, 450) g;
	INSERT INTO two_AM SELECT g, g, 'b' || (g + g / 150) FROM generate_series(1, 200) g;
	INSERT INTO tree_AM SELECT g, g + 1 FROM generate_series(400, 500) g;
	UPDATE child_AM SET p = CASE p WHEN 350 THEN 999 ELSE p + 1 END WHERE p < 400;
	INSERT INTO child_AM SELECT g, NULL FROM generate_series(1, 100) g;
	DELETE FROM child_AM WHERE p IS NULL;
	SELECT * FROM counts_AM});
is(scalar(() = $refused =~ /violates foreign key constraint/g), 6, 'six statements fail');

# The referenced rows are changed by the same transaction, and by the same statement.
both('rows of the same transaction', q{
	BEGIN;
	INSERT INTO parent_AM SELECT g, g, 'new' FROM generate_series(1001, 1100) g;
	INSERT INTO child_AM SELECT g, g FROM generate_series(1001, 1100) g;
	UPDATE parent_AM SET pad = 'in place' WHERE id BETWEEN 1001 AND 1050; UPDATE parent_AM SET n = -n WHERE id BETWEEN 1051 AND 1100;
	INSERT INTO child_AM SELECT g, g FROM generate_series(1001, 1100) g;
	SAVEPOINT a; UPDATE parent_AM SET pad = repeat('q', 90), n = 0 WHERE id > 1000; INSERT INTO child_AM SELECT g, g FROM generate_series(1001, 1100) g; ROLLBACK TO a;
	INSERT INTO child_AM SELECT g, g FROM generate_series(1001, 1100) g;
	SAVEPOINT b; INSERT INTO parent_AM VALUES (2000); ROLLBACK TO b;
	SAVEPOINT c; INSERT INTO child_AM VALUES (1, 2000); ROLLBACK TO c;
	SAVEPOINT d; DELETE FROM parent_AM WHERE id = 400 AND NOT EXISTS (SELECT 1 FROM child_AM WHERE p = 400); UPDATE parent_AM SET id = 3000 WHERE id = 1001; ROLLBACK TO d;
	COMMIT;
	WITH p AS (INSERT INTO parent_AM SELECT g, g FROM generate_series(1201, 1300) g RETURNING id) INSERT INTO child_AM SELECT id, id FROM p;
	WITH p AS (UPDATE parent_AM SET n = n + 1 WHERE id BETWEEN 1201 AND 1300 RETURNING id) INSERT INTO child_AM SELECT id, id FROM p;
	WITH p AS (INSERT INTO tree_AM SELECT g, g - 1 FROM generate_series(301, 400) g RETURNING id) INSERT INTO tree_AM SELECT id + 100, id FROM p;
	SELECT * FROM counts_AM});
both('triggers between', q{
	CREATE FUNCTION other_AM() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.id = 70 THEN UPDATE parent_AM SET n = n + 1, pad = 'by trigger' WHERE id = NEW.p; INSERT INTO child_AM VALUES (-1, 5); END IF;
		IF NEW.id = 71 THEN INSERT INTO parent_AM VALUES (5000); END IF;
		IF NEW.id = 72 THEN UPDATE parent_AM SET id = 5001 WHERE id = 5000; END IF; RETURN NEW; END $$;
	CREATE TRIGGER a_other AFTER INSERT ON child_AM FOR EACH ROW EXECUTE FUNCTION other_AM();
	CREATE TRIGGER z_other AFTER INSERT ON child_AM FOR EACH ROW WHEN (NEW.id = 70) EXECUTE FUNCTION other_AM();
	INSERT INTO child_AM SELECT g, g FROM generate_series(1, 130) g;
	INSERT INTO child_AM VALUES (1, 5000);
	INSERT INTO child_AM VALUES (2, 5001);
	DROP TRIGGER a_other ON child_AM; DROP TRIGGER z_other ON child_AM;
	SELECT * FROM counts_AM; SELECT id, n, pad FROM parent_AM WHERE pad = 'by trigger' OR id >= 5000 ORDER BY 1});
both('deferred', q{
	BEGIN; INSERT INTO late_AM SELECT g, g + 6000 FROM generate_series(1, 100) g; INSERT INTO parent_AM SELECT g, g FROM generate_series(6001, 6100) g; COMMIT;
	BEGIN; INSERT INTO late_AM SELECT g, g + 6000 FROM generate_series(50, 150) g; COMMIT;
	BEGIN; UPDATE late_AM SET p = 7000; UPDATE parent_AM SET id = 7000 WHERE id = 6100; SET CONSTRAINTS ALL IMMEDIATE; COMMIT;
	SELECT * FROM counts_AM; SELECT DISTINCT p FROM late_AM});
both('COPY, MERGE, an exception in a function, and a new constraint', q{
	COPY child_AM FROM PROGRAM 'perl -e "print qq(\$_\t\$_\n) for 1 .. 200"';
	COPY child_AM FROM PROGRAM 'perl -e "print qq(\$_\t\$_\n) for 300 .. 500"';
	MERGE INTO child_AM USING generate_series(1, 100) g ON child_AM.id = -g WHEN NOT MATCHED THEN INSERT VALUES (g, g);
	DO $$ BEGIN FOR i IN 395 .. 405 LOOP BEGIN INSERT INTO child_AM VALUES (i, i); EXCEPTION WHEN foreign_key_violation THEN NULL; END; END LOOP; END $$;
	ALTER TABLE child_AM ADD q int; UPDATE child_AM SET q = p; ALTER TABLE child_AM ADD FOREIGN KEY (q) REFERENCES parent_AM;
	SELECT * FROM counts_AM; SELECT sum(q) FROM child_AM});

# beside NAME, OTHER, LEVEL, STATEMENTS: a transaction does OTHER; another one, of this isolation level, runs the
# statements, and may have to wait; then the first one commits, or rolls back. Compares answers, and which rows of parent
# are locked.
sub beside
{
	my ($name, $other, $end, $level, $statements) = @_;
	my %out;
	for my $am (@ams)
	{
		my ($first, $second) = map { session($node) } 1 .. 2;
		my $pid = ask($second, 'SELECT pg_backend_pid()');
		ask($second, "BEGIN ISOLATION LEVEL $level; SELECT count(*) FROM counts_$am");
		ask($first, 'BEGIN', named($other, $am));
		is($complaint =~ s/.*QUERY_SEPARATOR.*\n?//gr, '', "$name: the other transaction ($am)") if $complaint =~ /ERROR/;
		$second->query_until(qr/starts/, "\\echo starts\n" . named($statements, $am) . ";\n");
		$node->poll_query_until('postgres', "SELECT state <> 'active' OR wait_event_type IS NOT DISTINCT FROM 'Lock' FROM pg_stat_activity WHERE pid = $pid AND query LIKE 'INSERT%'");
		$out{$am} = sql("SELECT wait_event_type IS NOT DISTINCT FROM 'Lock' FROM pg_stat_activity WHERE pid = $pid") . "\n";
		ask($first, $end);
		$out{$am} .= ask($second, 'SELECT 1') . "\n" . ($complaint =~ /ERROR: +(.*)/ ? $1 : 'no error') =~ s/_$am(?![a-z])/_AM/gr . "\n";
		# rows that are locked by the second transaction
		$out{$am} .= sql("BEGIN; SELECT 'update', count(*), sum(id) FROM (SELECT id FROM parent_$am FOR UPDATE SKIP LOCKED) x; ROLLBACK; BEGIN; SELECT 'no key update', count(*), sum(id) FROM (SELECT id FROM parent_$am FOR NO KEY UPDATE SKIP LOCKED) x; ROLLBACK");
		ask($second, 'ROLLBACK');
		$_->quit for $first, $second;
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($out{zheap}, $out{heap}, "$name, $end, $level");
	return $out{heap};
}
my $insert = 'INSERT INTO child_AM SELECT g, g FROM generate_series(1, 150) g';
for my $case (['READ COMMITTED', 'COMMIT'], ['READ COMMITTED', 'ROLLBACK'], ['REPEATABLE READ', 'COMMIT'], ['SERIALIZABLE', 'COMMIT'])
{
	my ($level, $end) = @$case;
	# rows without references, which may be deleted: 100, within a batch, and 64 and 65, at its end
	both('no references', 'DELETE FROM child_AM; DELETE FROM cross_AM; DELETE FROM two_AM; DELETE FROM late_AM; DELETE FROM parent_AM; INSERT INTO parent_AM SELECT g, g, 1, -g FROM generate_series(1, 400) g');
	my $is = beside('rows that are updated in place', q{UPDATE parent_AM SET pad = 'x' WHERE id BETWEEN 60 AND 70}, $end, $level, $insert);
	like($is, qr/^f\n/, '... do not wait');
	beside('rows that are moved', q{UPDATE parent_AM SET n = -n WHERE id BETWEEN 60 AND 70}, $end, $level, $insert);
	for my $row (100, 64, 65)
	{
		like(beside("another key of row $row", "UPDATE parent_AM SET id = id + 10000 WHERE id = $row", $end, $level, $insert), qr/^t\n/, '... waits');
		both('the key as before', 'UPDATE parent_AM SET id = id - 10000 WHERE id > 10000');
	}
	beside('a key that changes and changes back', 'UPDATE parent_AM SET id = id + 10000 WHERE id = 100; UPDATE parent_AM SET id = id - 10000 WHERE id = 10100', $end, $level, $insert);
	beside('a key that another row gets', 'UPDATE parent_AM SET id = id + 10000 WHERE id IN (100); INSERT INTO parent_AM VALUES (100, 0, 0, 0)', $end, $level, $insert);
	both('the rows as before', 'DELETE FROM parent_AM WHERE u = 0; UPDATE parent_AM SET id = id - 10000 WHERE id > 10000');
	beside('locked rows', 'SELECT id FROM parent_AM WHERE id IN (3, 100) FOR NO KEY UPDATE; SELECT id FROM parent_AM WHERE id = 140 FOR KEY SHARE', $end, $level, $insert);
	like(beside('a row locked for update', 'SELECT id FROM parent_AM WHERE id = 100 FOR UPDATE', $end, $level, $insert), qr/^t\n/, '... waits');
	beside('updated, then locked', q{UPDATE parent_AM SET pad = 'y' WHERE id = 100; SAVEPOINT a; SELECT id FROM parent_AM WHERE id = 100 FOR UPDATE; ROLLBACK TO a}, $end, $level, $insert);
	beside('two columns', q{UPDATE pair_AM SET b = 'other' WHERE a = 100}, $end, $level, q{INSERT INTO two_AM SELECT g, g, 'b' || g FROM generate_series(1, 150) g});
	both('the pair as before', q{UPDATE pair_AM SET b = 'b' || a WHERE b = 'other'});
	beside('a row that is new', q{INSERT INTO parent_AM VALUES (401, 401, 1, -401)}, $end, $level, 'INSERT INTO child_AM SELECT g, g FROM generate_series(350, 401) g');
	both('without it', 'DELETE FROM parent_AM WHERE id = 401');
	beside('a deleted row', 'DELETE FROM parent_AM WHERE id = 100', $end, $level, $insert);
}
is(sql('SELECT unclear_answered, unclear_refused FROM zundo.stat_database WHERE datname = current_database()'), '0|0', 'no fetch was unclear');
sound($node, '', map { "${_}_zheap" } qw(parent pair child cross two late tree));
no_crash($node);
$node->stop;
done_testing();
