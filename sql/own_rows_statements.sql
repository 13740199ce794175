-- on: heap zheap
-- As own_rows.sql, for statements that look at a row more than once: triggers,
-- foreign keys, ON CONFLICT, MERGE, rows that move, locks.
SET zundo.eager_rollback_pages = 0;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
CREATE TABLE t (id int PRIMARY KEY, v int, f text);
CREATE FUNCTION fill() RETURNS void LANGUAGE sql AS
$$ DELETE FROM t; INSERT INTO t SELECT i, 0, 'f' FROM generate_series(1, 12) i $$;

-- functions: a stable one has the snapshot of the query, a volatile one its own
CREATE FUNCTION as_of_query(i int) RETURNS int STABLE LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT v FROM t WHERE id = i); END $$;
CREATE FUNCTION as_of_now(i int) RETURNS int LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT v FROM t WHERE id = i); END $$;
SELECT fill();
BEGIN;
UPDATE t SET v = id;
UPDATE t SET v = v + 100 WHERE id IN (2, 5);
UPDATE t SET v = v + 10 * as_of_query(13 - id) + as_of_now(13 - id) WHERE id > 0;
SELECT id, v, as_of_query(id) - as_of_now(id) FROM t ORDER BY id;
COMMIT;

-- an exception block per row: every other change is rolled back
CREATE FUNCTION half(i int) RETURNS int LANGUAGE plpgsql AS
$$
BEGIN
	UPDATE t SET v = v + 7 WHERE id = i % 12 + 1;
	IF i % 2 = 0 THEN
		RAISE EXCEPTION 'no';
	END IF;
	RETURN (SELECT sum(v) FROM t);
EXCEPTION WHEN raise_exception THEN
	RETURN (SELECT -sum(v) FROM t);
END
$$;
SELECT fill();
BEGIN;
UPDATE t SET v = id;
SELECT id, v, half(id) FROM t ORDER BY id;
UPDATE t SET v = v + 1 WHERE id < 7;
SELECT id, v, half(id), v, as_of_now(id) FROM t ORDER BY id DESC;
SELECT id, v FROM t ORDER BY id;
COMMIT;

-- locks of our own, and changes of savepoints above and below them
SELECT fill();
BEGIN;
SELECT id FROM t WHERE id < 4 ORDER BY id FOR UPDATE;
SELECT id FROM t WHERE id BETWEEN 4 AND 6 ORDER BY id FOR KEY SHARE;
SAVEPOINT a;
UPDATE t SET v = 10 WHERE id IN (1, 4, 7);
DELETE FROM t WHERE id IN (2, 5, 8);
SELECT id FROM t WHERE id IN (3, 6, 9) ORDER BY id FOR NO KEY UPDATE;
ROLLBACK TO a;
SELECT id, v FROM t WHERE id IN (1, 2, 4, 5) ORDER BY id FOR SHARE;
UPDATE t SET v = v + 1 WHERE id IN (2, 3, 6);
WITH w AS (UPDATE t SET v = v + 1 WHERE id IN (3, 6, 9) RETURNING id, v) SELECT * FROM w ORDER BY id;
WITH w AS (DELETE FROM t WHERE id IN (2, 5) RETURNING id, v) SELECT * FROM w ORDER BY id;
SELECT id, v FROM t ORDER BY id FOR UPDATE;
SAVEPOINT b;
DELETE FROM t WHERE id = 3;
UPDATE t SET v = 50;
ROLLBACK TO b;
SELECT id, v FROM t ORDER BY id FOR UPDATE;
WITH w AS (UPDATE t SET v = v + 1 RETURNING id, v) SELECT * FROM w ORDER BY id;
COMMIT;

-- ON CONFLICT
SELECT fill();
BEGIN;
UPDATE t SET v = id;
UPDATE t SET v = v + 100 WHERE id = 6;
INSERT INTO t SELECT i, 1000, 'n' FROM generate_series(4, 15) i
	ON CONFLICT (id) DO UPDATE SET v = t.v + excluded.v RETURNING id, v;
INSERT INTO t SELECT i, 1000, 'n' FROM generate_series(1, 16) i ON CONFLICT DO NOTHING RETURNING id, v;
SAVEPOINT a;
DELETE FROM t WHERE id > 10;
INSERT INTO t SELECT i, 3, 'n' FROM generate_series(9, 12) i
	ON CONFLICT (id) DO UPDATE SET v = -t.v RETURNING id, v;
ROLLBACK TO a;
INSERT INTO t SELECT i, 5, 'n' FROM generate_series(9, 17) i
	ON CONFLICT (id) DO UPDATE SET v = t.v + 1 RETURNING id, v;
SAVEPOINT a;
INSERT INTO t VALUES (1, 1, 'n'), (2, 1, 'n'), (1, 1, 'n')
	ON CONFLICT (id) DO UPDATE SET v = t.v + 1 RETURNING id, v;
ROLLBACK TO a;
SELECT id, v, f FROM t ORDER BY id;
COMMIT;

-- MERGE
SELECT fill();
BEGIN;
UPDATE t SET v = id;
DELETE FROM t WHERE id = 12;
UPDATE t SET v = v + 100 WHERE id = 6;
MERGE INTO t USING generate_series(5, 14) i ON t.id = i
	WHEN MATCHED AND v > 100 THEN UPDATE SET v = t.v + 1
	WHEN MATCHED AND i % 2 = 0 THEN DELETE
	WHEN MATCHED THEN UPDATE SET f = repeat('long', 300)
	WHEN NOT MATCHED THEN INSERT VALUES (i, -i, 'm');
MERGE INTO t USING generate_series(1, 14) i ON t.id = i
	WHEN MATCHED AND v < 0 THEN DELETE
	WHEN MATCHED THEN UPDATE SET v = t.v + 1000
	WHEN NOT MATCHED THEN DO NOTHING;
SELECT id, v, length(f) FROM t ORDER BY id;
SAVEPOINT a;
MERGE INTO t USING (VALUES (1), (2), (1)) AS s (i) ON t.id = i WHEN MATCHED THEN UPDATE SET v = 0;
ROLLBACK TO a;
MERGE INTO t USING generate_series(1, 3) i ON t.id = i WHEN MATCHED THEN UPDATE SET v = t.v + 1;
SELECT id, v, length(f) FROM t ORDER BY id;
COMMIT;

-- rows that leave their page and are changed again
SELECT fill();
BEGIN;
UPDATE t SET v = id;
UPDATE t SET f = repeat('long', 400) WHERE id % 2 = 1;
UPDATE t SET v = v + 10 WHERE id IN (1, 2);
SAVEPOINT a;
UPDATE t SET f = repeat('longer', 500) WHERE id > 2;
UPDATE t SET f = 'short' WHERE id = 3;
ROLLBACK TO a;
UPDATE t SET v = v + 10 WHERE id IN (3, 4);
WITH w AS (UPDATE t SET v = v + 100, f = f || 'x' RETURNING id, v, length(f)) SELECT * FROM w ORDER BY id;
WITH w AS (DELETE FROM t WHERE id IN (1, 2, 12) RETURNING id, v, length(f)) SELECT * FROM w ORDER BY id;
SELECT id, v, length(f) FROM t ORDER BY id;
COMMIT;

-- all again under one snapshot
SELECT fill();
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM t;
UPDATE t SET v = id;
UPDATE t SET v = v + 10 WHERE id = 3;
INSERT INTO t VALUES (3, 5, 'n'), (4, 5, 'n'), (20, 5, 'n')
	ON CONFLICT (id) DO UPDATE SET v = t.v + excluded.v RETURNING id, v;
INSERT INTO t VALUES (3, 5, 'n'), (5, 5, 'n'), (21, 5, 'n') ON CONFLICT DO NOTHING RETURNING id, v;
SAVEPOINT a;
UPDATE t SET v = 0 WHERE id < 6;
ROLLBACK TO a;
WITH w AS (UPDATE t SET v = v + 100 WHERE id IN (3, 6) RETURNING id, v) SELECT * FROM w ORDER BY id;
WITH w AS (DELETE FROM t WHERE id IN (4, 5, 6) RETURNING id, v) SELECT * FROM w ORDER BY id;
SELECT id, v FROM t ORDER BY id FOR UPDATE;
COMMIT;

-- foreign keys: actions read rows by the newest snapshot and check them by the
-- transaction's
CREATE TABLE parent (id int PRIMARY KEY, v int);
CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON UPDATE CASCADE ON DELETE SET NULL
	DEFERRABLE, n int);
CREATE INDEX ON child (parent);
INSERT INTO parent SELECT i, 0 FROM generate_series(1, 9) i;
INSERT INTO child SELECT i, i % 9 + 1, 0 FROM generate_series(1, 18) i;
CREATE FUNCTION family() RETURNS void LANGUAGE plpgsql AS
$$
BEGIN
	UPDATE parent SET v = v + 1;
	UPDATE child SET n = n + 1;
	UPDATE parent SET v = v + 1 WHERE id = 5;
	INSERT INTO child VALUES (100, 5, 0), (101, 1, 0);
	UPDATE parent SET id = id + 100 WHERE id IN (2, 5);
	UPDATE child SET n = n + 1 WHERE id IN (3, 4, 100);
	BEGIN
		DELETE FROM parent WHERE id IN (3, 102);
		UPDATE parent SET id = 200 WHERE id = 4;
		RAISE EXCEPTION 'no';
	EXCEPTION WHEN raise_exception THEN
	END;
	DELETE FROM parent WHERE id IN (3, 105);
	UPDATE child SET parent = 102 WHERE id IN (1, 2, 3, 101);
	UPDATE parent SET id = 103 WHERE id = 102;
END
$$;
BEGIN;
SELECT family();
SELECT * FROM parent ORDER BY id;
SELECT * FROM child ORDER BY id;
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SET CONSTRAINTS ALL DEFERRED;
SELECT family();
SET CONSTRAINTS ALL IMMEDIATE;
SELECT * FROM parent ORDER BY id;
SELECT * FROM child ORDER BY id;
WITH w AS (UPDATE parent SET id = id + 1000, v = v + 1 RETURNING *) SELECT * FROM w ORDER BY id;
SELECT * FROM child ORDER BY id;
COMMIT;
DROP TABLE child, parent;
DROP FUNCTION family();

-- rows that go to another partition and come back
CREATE TABLE p (id int, part int, v int, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2);
INSERT INTO p SELECT i, i % 2 + 1, 0 FROM generate_series(1, 10) i;
BEGIN;
UPDATE p SET v = id;
UPDATE p SET v = v + 10 WHERE id < 4;
UPDATE p SET part = 3 - part WHERE id IN (1, 2, 5, 6);
SAVEPOINT a;
UPDATE p SET part = 3 - part;
UPDATE p SET v = 0 WHERE id < 6;
ROLLBACK TO a;
UPDATE p SET v = v + 100 WHERE id IN (2, 3);
WITH w AS (UPDATE p SET part = 3 - part, v = v + 1000 RETURNING id, part, v) SELECT * FROM w ORDER BY id;
WITH w AS (DELETE FROM p WHERE id IN (2, 9) RETURNING id, part, v) SELECT * FROM w ORDER BY id;
SELECT tableoid::regclass, * FROM p ORDER BY id;
COMMIT;
DROP TABLE p;

-- triggers before and after, which change other rows of the page
CREATE FUNCTION trace() RETURNS trigger LANGUAGE plpgsql AS
$$
BEGIN
	RAISE NOTICE '% % % -> %, others %', TG_WHEN, OLD.id, OLD.v, NEW.v,
		(SELECT sum(v) FROM t WHERE id <> OLD.id);
	IF pg_trigger_depth() < 2 THEN
		UPDATE t SET v = v + 1 WHERE id = OLD.id % 12 + 1;
	END IF;
	RETURN NEW;
END
$$;
SELECT fill();
CREATE TRIGGER b BEFORE UPDATE OF f ON t FOR EACH ROW EXECUTE FUNCTION trace();
CREATE TRIGGER a AFTER UPDATE OF f ON t FOR EACH ROW EXECUTE FUNCTION trace();
BEGIN;
UPDATE t SET v = id;
UPDATE t SET v = v + 10 WHERE id IN (3, 9);
WITH w AS (UPDATE t SET v = v + 100, f = 'g' WHERE id IN (2, 5, 8) RETURNING id, v) SELECT * FROM w ORDER BY id;
SAVEPOINT a;
WITH w AS (UPDATE t SET v = v + 100, f = 'h' WHERE id IN (1, 2) RETURNING id, v) SELECT * FROM w ORDER BY id;
ROLLBACK TO a;
WITH w AS (UPDATE t SET v = v + 100, f = 'i' WHERE id = 2 RETURNING id, v) SELECT * FROM w ORDER BY id;
SELECT id, v FROM t ORDER BY id;
COMMIT;

-- a prepared transaction, and the next ones of the session
SELECT fill();
BEGIN;
UPDATE t SET v = id WHERE id < 9;
UPDATE t SET v = v + 10 WHERE id = 1;
PREPARE TRANSACTION 'own_rows';
SELECT id, v FROM t ORDER BY id;
BEGIN;
UPDATE t SET v = 5 WHERE id > 9;
UPDATE t SET v = 6 WHERE id = 12;
SELECT id, v FROM t ORDER BY id;
COMMIT;
COMMIT PREPARED 'own_rows';
BEGIN;
UPDATE t SET v = v + 100 WHERE id = 12;
WITH w AS (UPDATE t SET v = v + 1000 RETURNING id, v) SELECT * FROM w ORDER BY id;
COMMIT;
DROP TABLE t;
DROP FUNCTION fill, as_of_query, as_of_now, half, trace;
