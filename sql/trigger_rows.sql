-- Rows of trigger events that do not fit into work_mem: OLD and NEW are those of each change, whatever has been changed,
-- rolled back and fired before.
-- on: heap zheap
-- Rules: HANDLE-1, HANDLE-3, HANDLE-7.
SET work_mem = '64kB';
CREATE TABLE t (id int PRIMARY KEY, n int, pad text);
CREATE TABLE inner_t (id int PRIMARY KEY, n int, pad text);
CREATE TABLE noted (tag text, id int, old int, new int);
-- each change adds 1 to n, which is also written in front of pad
CREATE FUNCTION pad(n int) RETURNS text LANGUAGE sql AS $$SELECT n || repeat('p', 200 + n % 50)$$;
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF OLD.pad <> pad(OLD.n) THEN RAISE EXCEPTION 'OLD of % %: % %', TG_TABLE_NAME, OLD.id, OLD.n, OLD.pad; END IF;
	IF TG_OP = 'UPDATE' AND (NEW.id <> OLD.id OR NEW.pad <> pad(NEW.n)) THEN
		RAISE EXCEPTION 'NEW of % %: % %', TG_TABLE_NAME, NEW.id, NEW.n, NEW.pad;
	END IF;
	INSERT INTO noted VALUES (TG_NAME || ' ' || TG_TABLE_NAME || ' ' || TG_OP, OLD.id, OLD.n, CASE WHEN TG_OP = 'UPDATE' THEN NEW.n END);
	IF TG_NAME = 'nests' AND OLD.id % 50 = 0 THEN UPDATE inner_t SET n = n + 1, pad = pad(n + 1); END IF;
	RETURN NULL;
END $$;
CREATE VIEW seen AS SELECT tag, count(*), count(DISTINCT id) AS ids, min(old), max(old), min(new - old) AS least, max(new - old) AS most
	FROM noted GROUP BY tag ORDER BY tag COLLATE "C";
INSERT INTO t SELECT i, 0, pad(0) FROM generate_series(1, 300) i;
INSERT INTO inner_t SELECT i, 0, pad(0) FROM generate_series(1, 700) i;

-- triggers that change many rows, whose triggers fire before the others of the outer query; in between a rollback
CREATE TRIGGER nests AFTER UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER first AFTER UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER now AFTER UPDATE ON inner_t FOR EACH ROW EXECUTE FUNCTION note();
UPDATE t SET n = n + 1, pad = pad(n + 1);
TABLE seen;
TRUNCATE noted;
BEGIN;
UPDATE t SET n = n + 1, pad = pad(n + 1);
SAVEPOINT s;
UPDATE t SET n = n + 1, pad = pad(n + 1);
DELETE FROM t WHERE id > 100;
ROLLBACK TO s;
UPDATE t SET n = n + 1, pad = pad(n + 1) WHERE id <= 200;
DELETE FROM t WHERE id > 200;
COMMIT;
TABLE seen;
TRUNCATE noted;
DROP TRIGGER nests ON t;
DROP TRIGGER first ON t;

-- an exception in each call of the inner trigger takes back what was changed there
CREATE FUNCTION tries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		UPDATE inner_t SET n = n + 1, pad = pad(n + 1) WHERE id <= 100 + OLD.id;
		IF OLD.id % 2 = 0 THEN RAISE EXCEPTION USING ERRCODE = 'P0099'; END IF;
	EXCEPTION WHEN SQLSTATE 'P0099' THEN
		UPDATE inner_t SET n = n + 1, pad = pad(n + 1) WHERE id BETWEEN 600 AND 600 + OLD.id;
	END;
	RETURN NULL;
END $$;
CREATE TRIGGER a AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION tries();
CREATE TRIGGER b AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION note();
UPDATE t SET n = n + 1, pad = pad(n + 1) WHERE id <= 20;
TABLE seen;
TRUNCATE noted;
DROP TRIGGER a ON t;
DROP TRIGGER b ON t;
DROP TRIGGER now ON inner_t;

-- deferred events of many savepoints, of which half are rolled back; SET CONSTRAINTS in between, in a savepoint and not
CREATE CONSTRAINT TRIGGER later AFTER UPDATE OR DELETE ON inner_t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();
CREATE PROCEDURE savepoints(n int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. n LOOP
		BEGIN
			UPDATE inner_t SET n = inner_t.n + 1, pad = pad(inner_t.n + 1) WHERE id % 10 = i % 10;
			IF i % 2 = 0 THEN RAISE EXCEPTION USING ERRCODE = 'P0099'; END IF;
		EXCEPTION WHEN SQLSTATE 'P0099' THEN NULL;
		END;
	END LOOP;
END $$;
BEGIN;
CALL savepoints(40);
SAVEPOINT s;
SET CONSTRAINTS ALL IMMEDIATE;
SELECT count(*) FROM noted;
SET CONSTRAINTS ALL DEFERRED;
UPDATE inner_t SET n = n + 1, pad = pad(n + 1);
SET CONSTRAINTS ALL IMMEDIATE;
SELECT count(*) FROM noted;
ROLLBACK TO s;
SELECT count(*) FROM noted;
CALL savepoints(20);
COMMIT;
TABLE seen;
TRUNCATE noted;
BEGIN;
CALL savepoints(20);
SET CONSTRAINTS ALL IMMEDIATE;
TABLE seen;
SET CONSTRAINTS ALL DEFERRED;
CALL savepoints(20);
DELETE FROM inner_t WHERE id > 350;
SET CONSTRAINTS later IMMEDIATE;
TABLE seen;
COMMIT;
TRUNCATE noted;
-- a fired trigger defers the constraints again, and its own change has a deferred event
CREATE FUNCTION defer_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	SET CONSTRAINTS ALL DEFERRED;
	DELETE FROM inner_t WHERE id = 301;
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER again AFTER UPDATE ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION defer_again();
BEGIN;
UPDATE t SET n = n + 1 WHERE id = 1;
SET CONSTRAINTS ALL IMMEDIATE;
DELETE FROM inner_t WHERE id = 302;
DELETE FROM inner_t WHERE id = 303;
COMMIT;
SELECT * FROM noted;
TRUNCATE noted;
DROP TRIGGER again ON t;

-- transactions within a procedure, and cursors that stay open over them and over savepoints
CREATE PROCEDURE commits() LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	FOR r IN SELECT i FROM generate_series(1, 6) i LOOP
		UPDATE inner_t SET n = n + 1, pad = pad(n + 1);
		IF r.i = 3 THEN ROLLBACK; ELSIF r.i % 2 = 0 THEN COMMIT; END IF;
	END LOOP;
END $$;
CALL commits();
TABLE seen;
TRUNCATE noted;
CREATE TRIGGER now AFTER UPDATE ON inner_t FOR EACH ROW EXECUTE FUNCTION note();
CREATE FUNCTION change(i int) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	UPDATE inner_t SET n = n + 1, pad = pad(n + 1) WHERE id <= 300;
	RETURN (SELECT count(*) FROM noted);
END $$;
BEGIN;
DECLARE c CURSOR FOR SELECT change(i) FROM generate_series(1, 5) i;
DECLARE h CURSOR WITH HOLD FOR SELECT change(i) FROM generate_series(1, 2) i;
FETCH 1 FROM c;
SAVEPOINT s;
FETCH 1 FROM c;
UPDATE inner_t SET n = n + 1, pad = pad(n + 1);
ROLLBACK TO s;
FETCH 1 FROM c;
FETCH 1 FROM h;
COMMIT;
FETCH ALL FROM h;
TABLE seen;
TRUNCATE noted;

-- transition tables beside it; the same rows in WITH; rows that move
CREATE FUNCTION totals() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO noted SELECT 'statement', count(*), sum(o.n), sum(n.n) FROM o JOIN n USING (id);
	RETURN NULL;
END $$;
CREATE TRIGGER totals AFTER UPDATE ON inner_t REFERENCING OLD TABLE AS o NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION totals();
CREATE INDEX ON inner_t (n);
UPDATE inner_t SET n = 0, pad = pad(0);
TRUNCATE noted;
WITH u AS (UPDATE inner_t SET n = n + 1, pad = pad(n + 1) WHERE id <= 300 RETURNING *),
	d AS (DELETE FROM inner_t WHERE id > 300 RETURNING *)
	SELECT (SELECT count(*) FROM u), (SELECT count(*) FROM d);
TABLE seen;
TRUNCATE noted;
DROP TABLE t, inner_t CASCADE;

-- foreign keys: cascades whose events wait for the outer query's other triggers
CREATE TABLE parent (id int PRIMARY KEY, n int, pad text);
CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE, n int, pad text);
CREATE INDEX ON child (parent);
CREATE TABLE grandchild (id int PRIMARY KEY, child int REFERENCES child ON DELETE CASCADE, n int, pad text);
CREATE INDEX ON grandchild (child);
CREATE TABLE other (id int PRIMARY KEY, n int, pad text);
INSERT INTO parent SELECT i, i, pad(i) FROM generate_series(1, 100) i;
INSERT INTO child SELECT i, 1 + i % 100, i, pad(i) FROM generate_series(1, 500) i;
INSERT INTO grandchild SELECT i, 1 + i % 500, i, pad(i) FROM generate_series(1, 1000) i;
INSERT INTO other SELECT i, 0, pad(0) FROM generate_series(1, 400) i;
CREATE FUNCTION changes_other() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF OLD.id % 10 = 0 THEN UPDATE other SET n = n + 1, pad = pad(n + 1); END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER m AFTER DELETE ON parent FOR EACH ROW EXECUTE FUNCTION changes_other();
CREATE TRIGGER n AFTER DELETE ON parent FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER n AFTER DELETE ON child FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER n AFTER DELETE ON grandchild FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER n AFTER UPDATE ON other FOR EACH ROW EXECUTE FUNCTION note();
UPDATE parent SET id = id + 1000;
SELECT count(*), min(parent), max(parent) FROM child;
DELETE FROM parent WHERE id <= 1090;
TABLE seen;
SELECT (SELECT count(*) FROM parent), (SELECT count(*) FROM child), (SELECT count(*) FROM grandchild);
DROP TABLE parent, child, grandchild, other, noted CASCADE;
SELECT f.* FROM pg_class c JOIN pg_am a ON a.oid = c.relam AND a.amname = 'zheap', zundo.check(c.oid) f WHERE c.relkind = 'r';
