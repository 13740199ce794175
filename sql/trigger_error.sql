-- An error or a cancel while a trigger's old row is searched for, in a savepoint: triggers that fire later in
-- the transaction get the same rows as if the error had not occurred. The rows do not fit into work_mem, so some are
-- searched for (HANDLE-8).
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
SAVEPOINT s;
UPDATE t SET n = n + 1;
SET LOCAL zundo.fault = 'chain-grows:error';
SET CONSTRAINTS ALL IMMEDIATE;
ROLLBACK TO s;
UPDATE t SET n = n + 100;
SELECT id, n FROM t ORDER BY id;
COMMIT;
SELECT id, count(*), sum(old), sum(new), min(new - old), max(new - old) FROM noted GROUP BY id ORDER BY id;
SELECT * FROM zundo.check('t');
