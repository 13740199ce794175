-- Wide tables and whole-table commands for access method :am; the same expected output for heap and for zheap.
SET default_table_access_method = :am;
-- 1,600 columns
DO $$ BEGIN EXECUTE (SELECT 'CREATE TABLE wide (' || string_agg(format('c%s %s', i,
	(ARRAY['int', 'text', 'bool', 'int2', 'varchar(20)'])[i % 5 + 1]), ', ' ORDER BY i) || ')' FROM generate_series(1, 1600) i); END $$;
ALTER TABLE wide ADD one_more int;
INSERT INTO wide DEFAULT VALUES;
INSERT INTO wide (c1, c5, c1600, c800) VALUES ('first', 5, 1600, 800), ('second', 50, 16000, 8000);
DO $$ BEGIN EXECUTE (SELECT 'INSERT INTO wide VALUES (' || string_agg(CASE i % 5 WHEN 0 THEN i::text WHEN 1 THEN quote_literal(i % 7)
	WHEN 2 THEN 'true' WHEN 3 THEN (i % 9)::text ELSE quote_literal(i) END, ', ' ORDER BY i) || ')' FROM generate_series(1, 600) i); END $$;
SELECT c1, c2, c3, c5, c800, c1499, c1500, c1600 FROM wide ORDER BY c5;
BEGIN;
UPDATE wide SET c1600 = 7, c1 = 'changed', c1000 = coalesce(c1000, 0) + 1;
SELECT c1, c5, c1000, c1600 FROM wide ORDER BY c5;
SAVEPOINT s;
UPDATE wide SET c1 = NULL, c1600 = NULL, c800 = NULL;
DELETE FROM wide WHERE c5 = 50;
ROLLBACK TO s;
SELECT c1, c5, c1000, c1600 FROM wide ORDER BY c5;
ROLLBACK;
SELECT c1, c5, c1000, c1600 FROM wide ORDER BY c5;
ALTER TABLE wide DROP c1600;
UPDATE wide SET c1599 = 'last' WHERE c5 = 5;
SELECT c1, c5, c1599 FROM wide WHERE c1599 = 'last';
CREATE INDEX ON wide (c1595, c5);
SET enable_seqscan = off;
SELECT c5 FROM wide WHERE c1595 IS NULL AND c5 = 50;
RESET enable_seqscan;
SELECT count(*), count((w).c5) FROM (SELECT wide AS w FROM wide) s;
-- rows close to a page's size, out of line and not
CREATE TABLE wide_row (id int PRIMARY KEY, v text) WITH (fillfactor = 10);
ALTER TABLE wide_row ALTER v SET STORAGE plain;
INSERT INTO wide_row SELECT n, repeat(chr(65 + n % 26), n) FROM unnest(ARRAY[1, 127, 2000, 2001, 4000, 7900, 8000, 8050, 8070]) n;
SELECT id, length(v), octet_length(v), left(v, 1) FROM wide_row ORDER BY id;
BEGIN;
UPDATE wide_row SET v = repeat('z', 8070 - length(v) % 3) WHERE id < 8000;
SELECT id, length(v), left(v, 1) FROM wide_row ORDER BY id;
SAVEPOINT s;
UPDATE wide_row SET v = 'short';
UPDATE wide_row SET v = repeat('y', 8000);
ROLLBACK TO s;
DELETE FROM wide_row WHERE id = 8070;
SELECT id, length(v), left(v, 1) FROM wide_row ORDER BY id;
ROLLBACK;
SELECT id, length(v), left(v, 1) FROM wide_row ORDER BY id;
\set VERBOSITY sqlstate
INSERT INTO wide_row VALUES (8200, repeat('x', 8200));
UPDATE wide_row SET v = repeat('x', 8200) WHERE id = 1;
\set VERBOSITY default
SELECT count(*), sum(length(v)) FROM wide_row;
CREATE TABLE wide_toast (id int, a text, b text, c bytea);
INSERT INTO wide_toast SELECT n, repeat('a', n), (SELECT string_agg(md5(g::text), '') FROM generate_series(1, n / 32) g), decode(repeat('00', n), 'hex')
	FROM unnest(ARRAY[0, 100, 1000, 2000, 2030, 2040, 2050, 4000, 8100, 8200, 100000]) n;
UPDATE wide_toast SET b = b || b WHERE id % 100 = 0;
SELECT id, length(a), length(b), length(c), md5(b) FROM wide_toast ORDER BY id;
-- COPY FREEZE
BEGIN;
CREATE TABLE frozen (id int, v text);
COPY frozen FROM PROGRAM 'printf "1\tone\n2\ttwo\n3\tthree\n"' (FREEZE);
SELECT * FROM frozen ORDER BY id;
SAVEPOINT s;
UPDATE frozen SET v = 'x';
ROLLBACK TO s;
SELECT * FROM frozen ORDER BY id;
COMMIT;
SELECT * FROM frozen ORDER BY id;
COPY frozen FROM PROGRAM 'printf "4\tfour\n"' (FREEZE);
BEGIN;
TRUNCATE frozen;
COPY frozen FROM PROGRAM 'printf "5\tfive\n"' (FREEZE);
SELECT * FROM frozen;
ROLLBACK;
BEGIN;
TRUNCATE frozen;
SAVEPOINT s;
COPY frozen FROM PROGRAM 'printf "6\tsix\n"' (FREEZE);
ROLLBACK TO s;
SELECT * FROM frozen;
COMMIT;
SELECT * FROM frozen;
BEGIN;
TRUNCATE frozen;
COPY frozen FROM PROGRAM 'printf "7\tseven\n"' (FREEZE);
DELETE FROM frozen;
COPY frozen FROM PROGRAM 'printf "8\teight\n"' (FREEZE);
COMMIT;
SELECT * FROM frozen;
-- commands that give a table a new file, with changes of the same transaction before and after
CREATE TABLE t (id int PRIMARY KEY, a int, b text);
CREATE INDEX t_a ON t (a);
INSERT INTO t SELECT i, i % 10, repeat('b', i % 40) FROM generate_series(1, 500) i;
CREATE FUNCTION state() RETURNS text LANGUAGE sql AS
	$$ SELECT format('%s rows, %s', count(*), md5(string_agg(t::text, ',' ORDER BY id))) FROM t $$;
CREATE TEMP TABLE results (n int GENERATED ALWAYS AS IDENTITY, what text, inside text, after_rollback_to text, rolled_back bool);
CREATE PROCEDURE try(command text) LANGUAGE plpgsql AS $$
DECLARE before text := state(); inside text; after text;
BEGIN
	BEGIN
		UPDATE t SET a = a + 1, b = b || 'u' WHERE id % 3 = 0;
		DELETE FROM t WHERE id % 7 = 0;
		BEGIN
			-- (not of rows changed above: CLUSTER of a heap table would lose them)
			UPDATE t SET a = -1 WHERE id % 3 = 1;
			RAISE division_by_zero;
		EXCEPTION WHEN division_by_zero THEN NULL;
		END;
		EXECUTE command;
		inside := state();
		BEGIN
			UPDATE t SET a = a + 2 WHERE id % 5 = 0;
			INSERT INTO t SELECT 1000 + i, i, 'new' FROM generate_series(1, 50) i;
			DELETE FROM t WHERE id BETWEEN 100 AND 120;
			RAISE division_by_zero;
		EXCEPTION WHEN division_by_zero THEN NULL;
		END;
		after := state();
		RAISE no_data_found;
	EXCEPTION WHEN no_data_found THEN NULL;
	END;
	INSERT INTO results (what, inside, after_rollback_to, rolled_back) VALUES (command, inside, after, state() = before);
	EXECUTE command;
	INSERT INTO results (what, inside) VALUES (command, state());
	UPDATE t SET a = a + 1 WHERE id % 4 = 0;
END $$;
CALL try('CLUSTER t USING t_pkey');
CALL try('CLUSTER t USING t_a');
CALL try('ALTER TABLE t SET UNLOGGED');
CALL try('ALTER TABLE t SET LOGGED');
CALL try('ALTER TABLE t SET ACCESS METHOD heap');
CALL try('ALTER TABLE t SET ACCESS METHOD zheap');
SELECT format('ALTER TABLE t SET ACCESS METHOD %s', :'am') AS back \gset
CALL try(:'back');
CALL try('ALTER TABLE t ALTER a TYPE bigint');
CALL try('ALTER TABLE t ADD c int DEFAULT 3');
CALL try('ALTER TABLE t ADD d text DEFAULT md5(''x''), DROP c');
CALL try('ALTER TABLE t ADD e int GENERATED ALWAYS AS (a * 2) STORED');
CALL try('REINDEX TABLE t');
CALL try('CREATE INDEX ON t (b)');
SELECT regexp_replace(what, 'METHOD z?heap', 'METHOD any') AS what, inside, after_rollback_to = inside AS same, rolled_back FROM results ORDER BY n;
-- (heap of 17 damages the index when this happens in an exception block)
BEGIN;
UPDATE t SET a = a + 1 WHERE id % 3 = 0;
SAVEPOINT s;
DELETE FROM t WHERE id % 7 = 0;
ROLLBACK TO s;
DELETE FROM t WHERE id % 11 = 0;
ALTER TABLE t SET TABLESPACE regress_place;
SELECT state();
UPDATE t SET a = a + 1 WHERE id % 5 = 0;
SELECT state();
ROLLBACK;
-- (the indexes keep the entries of the rows that were rolled back, whose pages went with the file, as on heap)
REINDEX TABLE t;
SELECT state();
DELETE FROM t WHERE id % 10 = 0;
ALTER TABLE t SET TABLESPACE regress_place;
SELECT state();
INSERT INTO t SELECT 2000 + i, i, 'moved' FROM generate_series(1, 100) i;
SELECT state();
ALTER TABLE t SET TABLESPACE pg_default;
VACUUM FULL t;
SELECT state();
-- row locks in a file that the same transaction has made, and then empties
BEGIN;
CREATE TABLE emptied (id int);
COPY emptied FROM PROGRAM 'seq 1 20' (FREEZE);
COMMIT;
BEGIN;
SELECT id FROM emptied WHERE id = 1 FOR UPDATE;
PREPARE TRANSACTION 'emptied_1';
BEGIN;
SELECT id FROM emptied WHERE id = 2 FOR UPDATE;
PREPARE TRANSACTION 'emptied_2';
BEGIN;
SELECT id FROM emptied WHERE id = 3 FOR UPDATE;
PREPARE TRANSACTION 'emptied_3';
COMMIT PREPARED 'emptied_1';
COMMIT PREPARED 'emptied_2';
COMMIT PREPARED 'emptied_3';
VACUUM emptied;
BEGIN;
ALTER TABLE emptied SET TABLESPACE regress_place;
SELECT count(*) FROM (SELECT 1 FROM emptied FOR UPDATE) l;
TRUNCATE emptied;
COPY emptied FROM PROGRAM 'seq 1 20' (FREEZE);
SELECT count(*) FROM (SELECT 1 FROM emptied WHERE id <= 3 FOR SHARE) l;
SELECT count(*) FROM (SELECT 1 FROM emptied WHERE id <= 5 FOR UPDATE) l;
COMMIT;
DROP TABLE emptied;
SELECT c.relname, f.* FROM pg_class c JOIN pg_am a ON a.oid = c.relam, zundo.check(c.oid) f
	WHERE a.amname = 'zheap' AND c.relkind IN ('r', 'm');
DROP TABLE wide, wide_row, wide_toast, frozen, t, results;
DROP FUNCTION state;
DROP PROCEDURE try;
RESET default_table_access_method;
