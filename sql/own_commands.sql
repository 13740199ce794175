-- on: heap zheap
-- A command that calls functions continues with its own command id afterwards, so its later changes are newer than theirs although
-- its id is smaller. A cursor opened in such a function must see the changes of the command, and not those of later functions.
CREATE TABLE t (id int PRIMARY KEY, v int);
INSERT INTO t SELECT g, g FROM generate_series(1, 10) g;
ANALYZE t;
CREATE TABLE other (n int);
CREATE FUNCTION beside(i int, query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	c refcursor := 'c';
BEGIN
	IF i = 5 THEN
		OPEN c SCROLL FOR EXECUTE query;
		UPDATE t SET v = v + 100 WHERE id = 2;
		DELETE FROM t WHERE id = 3;
		INSERT INTO t VALUES (12, 12);
	END IF;
	RETURN i * 1000;
END $$;

-- sequential scans read all rows of a page at once
BEGIN;
UPDATE t SET v = beside(id, 'SELECT id, v FROM t ORDER BY id') WHERE id IN (5, 6);
FETCH ALL FROM c;
SELECT id, v FROM t ORDER BY id;
ROLLBACK;

-- index scans read single rows
SET enable_seqscan = off;
SET enable_bitmapscan = off;
BEGIN;
INSERT INTO t VALUES (11, 11);
UPDATE t SET v = beside(id, 'SELECT id, v FROM t WHERE id < 100') WHERE id IN (5, 6);
INSERT INTO other VALUES (1);
FETCH ALL FROM c;
MOVE ABSOLUTE 3 IN c;
FETCH PRIOR FROM c;
ROLLBACK;

-- bitmap scans
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SET enable_bitmapscan = on;
BEGIN;
UPDATE t SET v = beside(id, 'SELECT id, v FROM t WHERE id < 100 ORDER BY id') WHERE id IN (5, 6);
FETCH ALL FROM c;
ROLLBACK;
RESET enable_seqscan;
RESET enable_indexscan;
RESET enable_indexonlyscan;

-- a trigger reads the cursor, the rows of its command move, and a subtransaction is rolled back
CREATE INDEX ON t (v);
CREATE FUNCTION beside_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM beside(OLD.id, 'SELECT id, v FROM t ORDER BY id');
	RETURN NEW;
END $$;
CREATE TRIGGER beside BEFORE UPDATE ON t FOR EACH ROW WHEN (OLD.id >= 5) EXECUTE FUNCTION beside_trigger();
BEGIN;
SAVEPOINT a;
UPDATE t SET v = v * 1000 WHERE id BETWEEN 5 AND 7;
ROLLBACK TO a;
UPDATE t SET v = v * 1000 WHERE id BETWEEN 5 AND 7;
SAVEPOINT b;
UPDATE t SET v = -v WHERE id BETWEEN 7 AND 8;
ROLLBACK TO b;
FETCH ALL FROM c;
CLOSE c;
SELECT id, v FROM t ORDER BY id;
COMMIT;
SELECT id, v FROM t ORDER BY id;

-- a row that the command itself, or a function that it has called, has changed: ON CONFLICT must not change it again
DROP TRIGGER beside ON t;
CREATE FUNCTION change(i int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	UPDATE t SET v = -v WHERE id = i;
	RETURN i;
END $$;
INSERT INTO t VALUES (1, 5), (1, 6) ON CONFLICT (id) DO UPDATE SET v = excluded.v;
INSERT INTO t VALUES (change(1), 5) ON CONFLICT (id) DO UPDATE SET v = excluded.v;
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO t VALUES (1, 5), (1, 6) ON CONFLICT (id) DO UPDATE SET v = excluded.v;
ROLLBACK;
DROP INDEX t_v_idx;
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO t VALUES (1, 5), (1, 6) ON CONFLICT (id) DO UPDATE SET v = excluded.v;
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
INSERT INTO t VALUES (change(2), 5) ON CONFLICT (id) DO UPDATE SET v = excluded.v;
ROLLBACK;

-- a cursor's snapshot is from before CLUSTER, and what it will read is only opened afterwards
CREATE FUNCTION total() RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN (SELECT count(*) || ' rows, ' || sum(v) FROM t);
END $$;
CREATE INDEX byv ON t (v);
BEGIN;
DECLARE c0 CURSOR FOR SELECT total();
INSERT INTO t VALUES (20, 1), (21, 1);
UPDATE t SET v = v + 10 WHERE id = 1;
DECLARE c1 CURSOR FOR SELECT total();
UPDATE t SET v = v + 100 WHERE id IN (1, 2, 20);
DECLARE c2 CURSOR FOR SELECT total();
DELETE FROM t WHERE id IN (4, 20);
SET LOCAL enable_indexscan = off;
CLUSTER t USING t_pkey;
SET LOCAL enable_indexscan = on;
UPDATE t SET v = v + 1000 WHERE id = 5;
CLUSTER t USING byv;
FETCH c2;
FETCH c1;
FETCH c0;
SELECT total();
SET LOCAL enable_seqscan = off;
SELECT id FROM t WHERE id > 0 ORDER BY id;
COMMIT;
SELECT total();

SELECT watch.look();
DROP TABLE t, other;
DROP FUNCTION beside, beside_trigger, change, total;
