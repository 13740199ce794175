# What a backend remembers outside of pages: which pages its transaction has
# changed, which columns the indexes of a table have, memory for row changes,
# handles of versions for triggers. After errors, and beside other sessions,
# nothing that is remembered is outdated.
# Rules: ABORT-4, HANDLE-7.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('state', 'restart_after_crash = off');
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');

# 1. An update that fails when everything but its statistics is done: the
# rollback must know its page. Otherwise the changes of the savepoint are not
# taken off the page before the transaction changes it again, and the changes of
# one row get into two slots, out of order.
my $rows = q{SELECT string_agg(id || ' ' || n || ' ' || t, ', ' ORDER BY id) FROM t};
my $own = q{SELECT count(*) FROM zundo.page_slots('t', 0) WHERE status IN ('own', 'aborted')};
my $undone = '1 1 AAAABBBB, 2 0 AAAABBBB, 3 0 AAAABBBB';
for my $case ([ 'off', 1 ], [ 'on', 1 ], [ 'off', 0 ])
{
	my ($move, $fails) = @$case;
	my $session = session($node);
	# In the third case no update fails, but the list has no room. If the transaction did
	# not know that it has changed a page which is not in the list (ABORT-4), the changes
	# of the savepoint would stay on it, too.
	ask($session, 'SET zundo.eager_rollback_pages = 0') if !$fails;
	my $fault = $fails ? q{SET LOCAL zundo.fault = 'row-counted:error:1'} : 'SELECT 1';
	ask($session, q{DROP TABLE IF EXISTS t}, q{CREATE TABLE t (id int PRIMARY KEY, n int, t text) USING zheap WITH (fillfactor = 50)},
		q{INSERT INTO t SELECT g, 0, 'AAAABBBB' FROM generate_series(1, 3) g}, 'SELECT zundo.discard()');
	ask($session, 'BEGIN', 'UPDATE t SET n = 1 WHERE id = 1');
	ask($session, 'SAVEPOINT a', "SET LOCAL zundo.move_updates = $move", $fault, q{UPDATE t SET t = 'lost' WHERE id = 2});
	like($complaint, $fails ? qr/row-counted/ : qr/^$/, 'an update fails at the fault point that counts it, or succeeds');
	ask($session, 'ROLLBACK TO a', 'RELEASE a', 'SAVEPOINT b', 'UPDATE t SET n = 2 WHERE id = 1', q{UPDATE t SET t = 'b2' WHERE id = 2},
		q{UPDATE t SET t = 'AAAAxxxxxxxxBBBB' WHERE id = 1});
	is(ask($session, $own), 1, 'the transaction has one slot of the page');
	ask($session, 'SAVEPOINT c', "SET LOCAL zundo.move_updates = $move", $fault, q{UPDATE t SET t = 'lost' WHERE id = 3});
	like($complaint, $fails ? qr/row-counted/ : qr/^$/, 'another one');
	ask($session, 'ROLLBACK TO c', 'RELEASE c', q{UPDATE t SET t = t || 'CCC' WHERE id = 1});
	is(ask($session, $own), 1, 'one slot still');
	is(ask($session, 'ROLLBACK TO b', $rows), $undone, 'all of it is taken back');
	is(ask($session, 'COMMIT', $rows), $undone, 'and after the end');
	# when the page is taken off the list, its place in the hash is free again:
	# else it would count as noted
	my $lost = q{UPDATE t SET t = 'lost' WHERE id = 2};
	is(ask($session, 'BEGIN', 'SAVEPOINT a', $lost, 'ROLLBACK TO a', $lost, 'ROLLBACK TO a', 'UPDATE t SET n = 1 WHERE id = 1', $own),
		1, 'the same page twice: one slot');
	is(ask($session, 'COMMIT', $rows), $undone, 'the same page twice: the rows');
	$session->quit;
	sound($node, $fails ? 'updates that could not be counted' : 'pages that are not in the list', 't');
}

# 2. The same after a savepoint in which the extension was dropped, made anew and used.
my $session = session($node);
ask($session, q{DROP TABLE t}, q{CREATE TABLE t (id int PRIMARY KEY, n int, t text) USING zheap WITH (fillfactor = 50)},
	q{INSERT INTO t SELECT g, 0, 'AAAABBBB' FROM generate_series(1, 3) g}, 'SELECT zundo.discard()');
my $renew = q{SET LOCAL zundo.drop_rows_with_extension = on; DROP EXTENSION zundo CASCADE; CREATE EXTENSION zundo; CREATE TABLE other (id int) USING zheap; INSERT INTO other VALUES (1)};
ask($session, 'BEGIN', 'UPDATE t SET n = 1 WHERE id = 1');
ask($session, 'SAVEPOINT a', q{UPDATE t SET t = 'lost' WHERE id = 2}, $renew, 'ROLLBACK TO a', 'RELEASE a');
ask($session, 'SAVEPOINT b', 'UPDATE t SET n = 2 WHERE id = 1', q{UPDATE t SET t = 'b2' WHERE id = 2}, q{UPDATE t SET t = 'AAAAxxxxxxxxBBBB' WHERE id = 1});
is(ask($session, $own), 1, 'the extension came back: the transaction has one slot of the page');
ask($session, 'SAVEPOINT c', q{UPDATE t SET t = 'lost' WHERE id = 3}, $renew, 'ROLLBACK TO c', 'RELEASE c', q{UPDATE t SET t = t || 'CCC' WHERE id = 1});
is(ask($session, $own), 1, 'one slot still');
is(ask($session, 'ROLLBACK TO b', $rows), $undone, 'all of it is taken back');
is(ask($session, 'COMMIT', $rows), $undone, 'and after the end');
$session->quit;
sound($node, 'the extension dropped and back', qw(t zundo.undo_log));

# 3. CREATE INDEX CONCURRENTLY makes its index known while another session reads which
# columns have indexes: that session's next update of the new index's column must not
# leave the row in place, for the build may have passed it.
$node->safe_psql(
	'postgres', q{
	CREATE TABLE p (id int PRIMARY KEY) USING zheap;
	CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p, a int, t text) USING zheap;
	INSERT INTO p VALUES (1);
	INSERT INTO c SELECT g, 1, g, 'x' FROM generate_series(1, 10) g;
	CREATE FUNCTION slow(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
		$$BEGIN PERFORM pg_advisory_lock_shared(1); PERFORM pg_advisory_unlock_shared(1); RETURN $1; END$$});
my $writer = session($node);
my $builder = session($node);
my $gate = session($node);
ask($gate, 'SELECT pg_advisory_lock(1)');
ask($writer, q{SET zundo.fault = 'columns-read:sleep'});
$writer->query_until(qr/begun/, "\\echo begun\nUPDATE c SET t = 'y' WHERE id = 1;\n");
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'UPDATE c%'}), 'an update is reading the columns');
$builder->query_until(qr/begun/, "\\echo begun\nCREATE INDEX CONCURRENTLY c_a ON c (a, slow(id));\n");
ask($writer, 'SET zundo.fault = $$$$');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}), 'the index is being built');
ask($writer, 'UPDATE c SET a = 1000 WHERE id = 5');
ask($gate, 'SELECT pg_advisory_unlock(1)');
ask($builder, 'SELECT 1');
is($node->safe_psql('postgres', q{SELECT indisvalid FROM pg_index WHERE indexrelid = 'c_a'::regclass}), 't', 'the index is valid');
is($node->safe_psql('postgres', q{SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT id FROM c WHERE a = 1000}), 5, 'and has the row that was updated meanwhile');
$_->quit for ($writer, $builder, $gate);

# 4. Memory that a wide row has needed is freed, also after an error.
my $big = session($node);
my $kept = q{SELECT sum(total_bytes) < 300000 FROM pg_backend_memory_contexts WHERE name = 'zheap row changes'};
my $value = q{(SELECT string_agg(sha512(i::text::bytea), '') FROM generate_series(1, 100000) i)};
ask($big, 'CREATE TABLE wide (id int PRIMARY KEY, v bytea) USING zheap', 'BEGIN', "INSERT INTO wide VALUES (1, $value)");
is(ask($big, $kept), 't', 'memory after a wide row');
ask($big, "UPDATE wide SET v = v || '1'", "SET LOCAL zundo.fault = 'undo-prepare:error'", "INSERT INTO wide VALUES (2, $value)");
like($complaint, qr/undo-prepare/, 'an insertion fails');
is(ask($big, 'ROLLBACK', $kept), 't', 'memory after the failed insertion');
$big->quit;

# 4a. A scan of an index that has read many old versions of a page keeps few of them (MAX_MEMORY).
my $wide = q{(SELECT string_agg(md5(random()::text || i || g), '') FROM generate_series(1, 6) i)};
$node->safe_psql('postgres', "CREATE TABLE viewed (id int PRIMARY KEY, n int, pad text) USING zheap; INSERT INTO viewed SELECT g, 1, $wide FROM generate_series(1, 200) g");
my $view = session($node);
ask($view, 'SET enable_seqscan = off; SET enable_bitmapscan = off', 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM viewed');
$node->safe_psql('postgres', 'DO $$ BEGIN FOR k IN 1..100 LOOP ' . "UPDATE viewed SET n = 0, pad = (SELECT string_agg(md5(random()::text || i || id), '') FROM generate_series(1, 6) i); END LOOP; END \$\$");
ask($view, 'DECLARE c CURSOR FOR SELECT n FROM viewed WHERE id > 0 ORDER BY id');
is(ask($view, 'MOVE 34 IN c', 'FETCH 1 FROM c'), '1', 'a cursor with an old snapshot');
is(ask($view, q{SELECT coalesce(sum(total_bytes), 0) < 1000000 FROM pg_backend_memory_contexts WHERE name = 'zheap old versions'}), 't', 'and its memory');
is(ask($view, 'FETCH ALL FROM c') =~ tr/1/1/, 165, 'the other rows');
$view->quit;

# 5. Handles of versions for trigger events, and their rows, are freed with the statement,
# not with the transaction; those of deferred events are kept, their rows in memory up to
# work_mem (HANDLE-1).
my $many = session($node);
ask($many, 'CREATE TABLE fired (n int)', 'CREATE TABLE often (id int, n int, pad text) USING zheap', q{INSERT INTO often SELECT g, 0, repeat('p', 500) FROM generate_series(1, 500) g},
	q{CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN IF OLD.id = 7 AND OLD.n % 5 = 0 THEN INSERT INTO fired VALUES (OLD.n); END IF; RETURN NULL; END$$},
	'CREATE TRIGGER a AFTER UPDATE ON often FOR EACH ROW EXECUTE FUNCTION fire()');
my $often = q{DO 'BEGIN FOR i IN 1..20 LOOP UPDATE often SET n = n + 1; END LOOP; END'};
my $named = q{SELECT total_bytes < 200000 FROM pg_backend_memory_contexts WHERE name = 'TopTransactionContext'};
ask($many, 'BEGIN', $often);
is(ask($many, $named), 't', 'memory after many statements');
is(ask($many, 'TABLE fired'), "0\n5\n10\n15", 'what their triggers saw');
ask($many, 'ROLLBACK', 'CREATE CONSTRAINT TRIGGER b AFTER UPDATE ON often DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fire()', 'DROP TRIGGER a ON often');
ask($many, 'BEGIN', $often, 'UPDATE often SET n = 0', 'COMMIT');
is(ask($many, 'TABLE fired'), "0\n5\n10\n15\n20", 'what deferred triggers saw');
$many->quit;

# 6. The pin on the last undo page, which a transaction keeps: not longer than
# the subtransaction that has made the undo log itself, nor than the transaction, however
# that ends. (A pin that is left is a warning in the log.)
$node->safe_psql('postgres', 'CREATE DATABASE other');
my $other = $node->background_psql('other', on_error_stop => 0);
my $make = q{CREATE EXTENSION zundo; CREATE TABLE o (n int) USING zheap; INSERT INTO o VALUES (1); INSERT INTO o VALUES (2)};
ask($other, 'BEGIN', 'SAVEPOINT a', $make, 'ROLLBACK TO a');
is($complaint, '', 'an undo log that is written goes with its savepoint');
is(ask($other, $make, 'SAVEPOINT b', 'INSERT INTO o VALUES (3)', 'ROLLBACK TO b', 'INSERT INTO o VALUES (4)', 'COMMIT', 'SELECT sum(n) FROM o'),
	7, 'an undo log made again stays');
is(ask($other, 'BEGIN', 'SET LOCAL zundo.drop_rows_with_extension = on', 'INSERT INTO o SELECT g FROM generate_series(1, 3000) g', 'DROP EXTENSION zundo CASCADE', 'COMMIT', q{SELECT to_regclass('o')}),
	'', 'and can be dropped in the transaction that wrote to it');
unlike($complaint, qr/ERROR|WARNING/, 'without a complaint');
ask($other, $make, 'BEGIN', 'INSERT INTO o VALUES (5)', 'DECLARE c CURSOR WITH HOLD FOR TABLE o', 'INSERT INTO o VALUES (6)', 'COMMIT',
	'DO $$BEGIN FOR i IN 7..9 LOOP INSERT INTO o VALUES (i); INSERT INTO o VALUES (i); IF i = 8 THEN ROLLBACK; ELSE COMMIT; END IF; END LOOP; END$$');
is(ask($other, 'SELECT sum(n) FROM o'), 46, 'commits and rollbacks within a statement');
$other->quit;

# 7. A session that is terminated while an update evaluates an index expression, which
# itself updates a row (zdml_nest). No error handler runs then.
sql(q{
CREATE FUNCTION update_row() RETURNS void LANGUAGE plpgsql AS $$BEGIN UPDATE public.evaluated SET n = n + 1 WHERE id = 2; END$$;
CREATE FUNCTION ends(id int, n int) RETURNS int LANGUAGE plpgsql IMMUTABLE COST 1 AS $$
BEGIN
	IF id = 1 AND n > 1 THEN PERFORM public.update_row(); END IF;
	IF id = 2 AND n > 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(60); END IF;
	RETURN 0;
END$$;
CREATE TABLE evaluated (id int PRIMARY KEY, n int) USING zheap;
CREATE INDEX ON evaluated (ends(id, n));
INSERT INTO evaluated VALUES (1, 1), (2, 1);
});
$node->psql('postgres', 'UPDATE evaluated SET n = n + 1 WHERE id = 1', stderr => \my $ended);
like($ended, qr/terminating connection due to administrator command/, 'terminated within an index expression');
is(sql('SELECT * FROM evaluated ORDER BY id'), "1|1\n2|1", 'nothing is left of it');
sound($node, 'in the end', qw(p c wide often evaluated zundo.undo_log));
unlike(slurp_file($node->logfile), qr/refcount leak|resource was not closed|is pinned/, 'no pin is left');
no_crash($node);
$node->stop;

# With few buffers, that pin of idle transactions does not keep other sessions from
# getting a buffer.
my $small = zundo_node('small', "shared_buffers = 256kB\nmax_connections = 60");
sql('CREATE EXTENSION zundo; CREATE TABLE s (id int, n int) USING zheap; INSERT INTO s SELECT g, 0 FROM generate_series(1, 40) g');
my @idle = map { session($small) } 1 .. 40;
my @failed = grep { ask($idle[ $_ - 1 ], 'BEGIN', "UPDATE s SET n = 1 WHERE id = $_"); $complaint ne '' } 1 .. 40;
is("@failed", '', 'more writers than there are buffers');
ask($_, 'COMMIT') for @idle;
is(sql('SELECT sum(n) FROM s'), '40', 'what they have written');
$_->quit for @idle;
no_crash($small);
done_testing();
