-- Rows of trigger events that do not fit into work_mem are written to a temporary file. An error there, in a savepoint:
-- triggers that fire later in the transaction get the same rows as if the error had not occurred.
-- Rules: HANDLE-1.
SET work_mem = '64kB';
CREATE TABLE t (id int PRIMARY KEY, n int, pad text) USING zheap;
CREATE TABLE noted (at bigserial, id int, old int, new int);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO noted (id, old, new) VALUES (OLD.id, OLD.n, NEW.n);
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER later AFTER UPDATE ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();
INSERT INTO t SELECT i, 0, repeat('p', 1000) FROM generate_series(1, 3) i;
BEGIN;
DO $$ BEGIN FOR i IN 1 .. 100 LOOP UPDATE t SET n = i WHERE id = 1 + i % 2; END LOOP; END $$;
SELECT count(*) AS files FROM pg_ls_tmpdir() WHERE name ~ ('^pgsql_tmp' || pg_backend_pid());
SAVEPOINT s;
UPDATE t SET n = n + 1;
SET LOCAL zundo.fault = 'rows-written:disk';
DO $$ BEGIN FOR i IN 1 .. 4 LOOP UPDATE t SET n = n + i; END LOOP; END $$;
ROLLBACK TO s;
-- the second write fails: a part of a row has been written
SET LOCAL zundo.fault = 'rows-written:error:2';
DO $$ BEGIN FOR i IN 1 .. 10 LOOP UPDATE t SET n = n + i; END LOOP; END $$;
ROLLBACK TO s;
SET LOCAL zundo.fault = '';
SET LOCAL temp_file_limit = '200kB';
\set VERBOSITY sqlstate
DO $$ BEGIN FOR i IN 1 .. 100 LOOP UPDATE t SET n = n + i; END LOOP; END $$;
\set VERBOSITY default
ROLLBACK TO s;
UPDATE t SET n = n + 100;
SELECT id, n FROM t ORDER BY id;
COMMIT;
SELECT count(*) AS files FROM pg_ls_tmpdir() WHERE name ~ ('^pgsql_tmp' || pg_backend_pid());
SELECT id, count(*), sum(old), sum(new), min(new - old), max(new - old) FROM noted GROUP BY id ORDER BY id;
-- within a function, and at the end of a transaction
SET temp_file_limit = '200kB';
TRUNCATE noted;
DO $$
BEGIN
	UPDATE t SET n = 0;
	BEGIN
		FOR i IN 1 .. 200 LOOP UPDATE t SET n = n + 1; END LOOP;
	EXCEPTION WHEN configuration_limit_exceeded THEN
		RAISE NOTICE '%', SQLSTATE;
	END;
	FOR i IN 1 .. 20 LOOP UPDATE t SET n = n + 1; END LOOP;
END $$;
SELECT id, count(*), sum(old), sum(new), min(new - old), max(new - old) FROM noted GROUP BY id ORDER BY id;
\set VERBOSITY sqlstate
DO $$ BEGIN FOR i IN 1 .. 200 LOOP UPDATE t SET n = n + 1; END LOOP; END $$;
\set VERBOSITY default
-- no file is left, and none is needed for the next transactions
SELECT count(*) AS files FROM pg_ls_tmpdir() WHERE name ~ ('^pgsql_tmp' || pg_backend_pid());
UPDATE t SET n = n + 1;
SELECT id, n FROM t ORDER BY id;
-- rows are kept only for triggers that fire under session_replication_role
BEGIN;
SET LOCAL session_replication_role = replica;
DO $$ BEGIN FOR i IN 1 .. 100 LOOP UPDATE t SET n = n + 1; END LOOP; END $$;
SELECT count(*) AS files FROM pg_ls_tmpdir() WHERE name ~ ('^pgsql_tmp' || pg_backend_pid());
COMMIT;
ALTER TABLE t ENABLE ALWAYS TRIGGER later;
TRUNCATE noted;
BEGIN;
SET LOCAL session_replication_role = replica;
DO $$ BEGIN FOR i IN 1 .. 30 LOOP UPDATE t SET n = n + 1; END LOOP; END $$;
SELECT count(*) AS files FROM pg_ls_tmpdir() WHERE name ~ ('^pgsql_tmp' || pg_backend_pid());
COMMIT;
SELECT id, count(*), min(new - old), max(new - old) FROM noted GROUP BY id ORDER BY id;
SELECT * FROM zundo.check('t');
