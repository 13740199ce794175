-- on: heap zheap
-- A command changes a row, calls a function that changes it again, and meets the row once more. Whether that is an error depends
-- on the command that replaced the version which it sees, not on the one that made the newest version.
CREATE TABLE t (id int PRIMARY KEY, n int, b text);
INSERT INTO t SELECT g, g, 'b' FROM generate_series(1, 10) g;
CREATE FUNCTION again(i int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	UPDATE t SET b = b || 'z' WHERE id = i;
	RETURN i;
END $$;
CREATE FUNCTION move(i int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	UPDATE t SET id = id + 100 WHERE id = i;
	RETURN i;
END $$;
CREATE FUNCTION remove(i int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	DELETE FROM t WHERE id = i;
	RETURN i;
END $$;

SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_seqscan = off;
-- the same MERGE comes to the row a second time, which MERGE itself reports as an error; the same UPDATE does, and skips the row
\set VERBOSITY sqlstate
MERGE INTO t USING (VALUES (3), (5), (3)) v (k) ON t.id = v.k WHEN MATCHED THEN UPDATE SET n = n + CASE v.k WHEN 5 THEN again(3) ELSE 1 END;
MERGE INTO t USING (VALUES (3), (5), (3)) v (k) ON t.id = v.k WHEN MATCHED THEN UPDATE SET n = n + CASE v.k WHEN 5 THEN move(3) ELSE 1 END;
MERGE INTO t USING (VALUES (3), (5), (3)) v (k) ON t.id = v.k WHEN MATCHED THEN UPDATE SET n = n + CASE v.k WHEN 5 THEN remove(3) ELSE 1 END;
MERGE INTO t USING (VALUES (5), (3)) v (k) ON t.id = v.k WHEN MATCHED THEN UPDATE SET n = n + CASE v.k WHEN 5 THEN again(3) + again(3) ELSE 1 END;
BEGIN;
UPDATE t SET n = n + CASE t.id WHEN 5 THEN again(3) ELSE 1 END FROM (VALUES (3), (5), (3)) v (k) WHERE t.id = v.k;
SELECT * FROM t WHERE id IN (3, 5) ORDER BY id;
ROLLBACK;
BEGIN;
UPDATE t SET n = n + CASE t.id WHEN 5 THEN move(3) ELSE 1 END FROM (VALUES (3), (5), (3)) v (k) WHERE t.id = v.k;
SELECT * FROM t WHERE id IN (3, 5, 103) ORDER BY id;
ROLLBACK;
BEGIN;
DELETE FROM t USING (VALUES (3), (5), (3)) v (k) WHERE t.id = v.k AND CASE t.id WHEN 5 THEN again(7) ELSE 1 END > 0;
SELECT count(*) FROM t;
ROLLBACK;
UPDATE t SET n = n + CASE t.id WHEN 5 THEN again(3) ELSE 1 END FROM (VALUES (5), (3)) v (k) WHERE t.id = v.k;

-- the same upsert comes to the row a second time, and uses its own snapshot
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'x'), (1, 3, 'x') ON CONFLICT (id) DO UPDATE SET b = t.b || excluded.b;
ROLLBACK;
BEGIN;
INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'x'), (1, 3, 'x') ON CONFLICT (id) DO UPDATE SET b = t.b || excluded.b;
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'x'), (1, 3, 'x') ON CONFLICT (id) DO UPDATE SET n = t.n + again(2);
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO t VALUES (1, 1, 'x') ON CONFLICT (id) DO UPDATE SET n = t.n + again(1);
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO t VALUES (1, 1, 'x') ON CONFLICT (id) DO UPDATE SET n = t.n + move(1);
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO t VALUES (1, 1, 'x') ON CONFLICT (id) DO UPDATE SET n = t.n + remove(1);
ROLLBACK;
\set VERBOSITY default
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_seqscan;
SELECT * FROM t ORDER BY id;
SELECT watch.look();
DROP TABLE t;
DROP FUNCTION again, move, remove;
