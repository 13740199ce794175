-- on: heap zheap
-- Rows that a statement names by a ctid from outside, and that are right: its xmin proves the row, or nothing is changed by it (GUARD-3).
SET client_min_messages = warning;
CREATE TABLE t (id int PRIMARY KEY, n int);
INSERT INTO t VALUES (1, 10), (2, 20), (3, 30);
CREATE TABLE seen (id int, c tid, x xid);
INSERT INTO seen SELECT id, ctid, xmin FROM t;
-- ctid and xmin of an earlier transaction, as a driver with row versions sends them
SELECT ctid AS c, xmin AS x FROM t WHERE id = 1 \gset
PREPARE change(tid, xid) AS UPDATE t SET n = n + 1 WHERE ctid = $1 AND xmin = $2 RETURNING id, n;
PREPARE change_text(text, text) AS UPDATE t SET n = n + 1 WHERE ctid::text = $1 AND $2 = xmin::text RETURNING id, n;
PREPARE change_number(tid, bigint) AS UPDATE t SET n = n + 1 WHERE n > 0 AND (xmin::text::bigint = $2 AND ctid = $1) RETURNING id, n;
EXECUTE change(:'c', :'x');
EXECUTE change(:'c', :'x');
EXECUTE change_text(:'c', :'x');
EXECUTE change_number(:'c', :'x');
SELECT ctid AS c, xmin AS x FROM t WHERE id = 1 \gset
EXECUTE change_text(:'c', :'x');
SELECT ctid AS c, xmin AS x FROM t WHERE id = 1 \gset
EXECUTE change_number(:'c', :'x');
UPDATE t SET n = n + 1 WHERE ctid = '(0,9)' AND xmin = :'x' RETURNING id;
SELECT ctid AS c, xmin AS x FROM t WHERE id = 1 \gset
UPDATE t SET n = n + 1 WHERE ctid = :'c' AND xmin = :'x' AND n < 0 RETURNING id;
UPDATE t SET n = n + 1 WHERE (ctid = '(0,9)' AND xmin = '3') OR (ctid = :'c' AND xmin = :'x') RETURNING id, n;
DELETE FROM t WHERE ctid = :'c' AND xmin = :'x' RETURNING id;
SELECT ctid AS c, xmin AS x FROM t WHERE id = 1 \gset
BEGIN;
DELETE FROM t WHERE ctid = :'c' AND xmin = :'x' RETURNING id;
ROLLBACK;
-- an update that changes nothing is a change, also one in a loop and one that a trigger makes
UPDATE t SET n = n WHERE id = 1;
EXECUTE change(:'c', :'x');
SELECT ctid AS c, xmin AS x FROM t WHERE id = 1 \gset
DO $$ BEGIN FOR i IN 1 .. 300 LOOP UPDATE t SET n = n WHERE id = 1; END LOOP; END $$;
EXECUTE change(:'c', :'x');
-- a rollback takes the change away, the row is again what was read
SELECT ctid AS c, xmin AS x FROM t WHERE id = 1 \gset
BEGIN;
SAVEPOINT s;
UPDATE t SET n = 0 WHERE id = 1;
EXECUTE change(:'c', :'x');
ROLLBACK TO s;
EXECUTE change(:'c', :'x');
ROLLBACK;
SET default_transaction_isolation = 'repeatable read';
SET plan_cache_mode = force_generic_plan;
EXECUTE change(:'c', :'x');
EXECUTE change(:'c', :'x');
RESET default_transaction_isolation;
RESET plan_cache_mode;
-- many at once: from a table, arrays, VALUES; in MERGE and ON CONFLICT
UPDATE t SET n = n + 1 FROM seen WHERE t.ctid = seen.c AND t.xmin = seen.x RETURNING t.id;
UPDATE t SET n = n + 1 FROM seen WHERE t.ctid = seen.c AND t.xmin = seen.x RETURNING t.id;
TRUNCATE seen;
INSERT INTO seen SELECT id, ctid, xmin FROM t WHERE id > 1;
SELECT array_agg(c) AS cs, array_agg(x) AS xs FROM seen \gset
WITH d AS (DELETE FROM t USING unnest(:'cs'::tid[], :'xs'::xid[]) s(c, x) WHERE t.ctid = s.c AND t.xmin = s.x RETURNING id) SELECT count(*) FROM d;
INSERT INTO t VALUES (2, 20), (3, 30);
SELECT ctid AS c, xmin AS x FROM t WHERE id = 3 \gset
BEGIN;
UPDATE t SET n = s.n FROM (VALUES (:'c'::tid, :'x'::xid, 5), ('(0,9)', '3', 6)) s(c, x, n) WHERE t.ctid = s.c AND t.xmin = s.x RETURNING t.id, t.n;
MERGE INTO t USING (VALUES (1)) s(k) ON t.ctid = :'c' AND t.xmin = :'x' WHEN MATCHED THEN UPDATE SET n = -1 WHEN NOT MATCHED THEN INSERT VALUES (4, 40);
SELECT * FROM t ORDER BY id;
ROLLBACK;
BEGIN;
INSERT INTO t VALUES (3, 0) ON CONFLICT (id) DO UPDATE SET n = 7 WHERE t.ctid = :'c' AND t.xmin = :'x' RETURNING n;
INSERT INTO t VALUES (3, 0) ON CONFLICT (id) DO UPDATE SET n = 8 WHERE t.ctid = '(0,9)' AND t.xmin = :'x' RETURNING n;
ROLLBACK;
-- a view that shows them, a table with partitions, a function
CREATE VIEW shown AS SELECT id, n, ctid AS c, xmin AS x FROM t;
UPDATE shown SET n = n + 1 WHERE c = :'c' AND x = :'x' RETURNING id;
UPDATE shown SET n = n + 1 WHERE c = :'c' AND x = :'x' RETURNING id;
DROP VIEW shown;
CREATE TABLE p (id int, n int) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);
INSERT INTO p VALUES (1, 10), (11, 110);
SELECT ctid AS c, xmin AS x FROM p WHERE id = 11 \gset
UPDATE p SET n = n + 1 WHERE tableoid = 'p2'::regclass AND ctid = :'c' AND xmin = :'x' RETURNING id;
UPDATE p SET n = n + 1 WHERE tableoid = 'p2'::regclass AND ctid = :'c' AND xmin = :'x' RETURNING id;
DROP TABLE p;
CREATE FUNCTION change_by(tid, xid) RETURNS SETOF int LANGUAGE sql AS 'UPDATE t SET n = n + 1 WHERE ctid = $1 AND xmin = $2 RETURNING id';
SELECT ctid AS c, xmin AS x FROM t WHERE id = 3 \gset
SELECT change_by(:'c', :'x');
SELECT change_by(:'c', :'x');
DO $$
DECLARE r record; done int = 0;
BEGIN
	FOR r IN SELECT ctid, xmin FROM t LOOP
		UPDATE t SET n = n + 1 WHERE ctid = r.ctid AND xmin = r.xmin;
		done := done + 1;
		ASSERT FOUND;
		UPDATE t SET n = n + 1 WHERE ctid = r.ctid AND xmin = r.xmin;
		ASSERT NOT FOUND;
	END LOOP;
	RAISE WARNING '% rows', done;
END $$;
-- MERGE that changes nothing in rows that match
TRUNCATE seen;
INSERT INTO seen SELECT id, ctid, xmin FROM t WHERE id = 1;
INSERT INTO seen VALUES (5, '(0,99)', '3');
SELECT FROM t;
BEGIN;
MERGE INTO t USING seen ON t.ctid = seen.c WHEN NOT MATCHED THEN INSERT VALUES (seen.id, 50);
MERGE INTO t USING seen ON t.ctid = seen.c WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED THEN INSERT VALUES (seen.id + 1, 60);
SELECT * FROM t WHERE id > 3 ORDER BY id;
ROLLBACK;
MERGE INTO t USING seen ON t.id = seen.id WHEN MATCHED THEN UPDATE SET n = 0 WHEN NOT MATCHED THEN INSERT VALUES (seen.id, 50);
DELETE FROM t WHERE id = 5;
DO $$
DECLARE n int;
BEGIN
	IF current_setting('server_version_num')::int < 170000 THEN RETURN; END IF;
	EXECUTE 'MERGE INTO t USING (SELECT ''(0,99)''::tid AS c) s ON t.ctid = s.c WHEN NOT MATCHED BY SOURCE AND t.id = 2 THEN UPDATE SET n = t.n';
	GET DIAGNOSTICS n = ROW_COUNT;
	ASSERT n = 1;
END $$;
-- outer joins by ctid that do not choose the rows, and that choose those without one
UPDATE seen SET c = t.ctid FROM t WHERE t.id = seen.id;
UPDATE t SET n = coalesce(o.n, 0) + 1 FROM seen LEFT JOIN t o ON o.ctid = seen.c WHERE t.id = seen.id RETURNING t.id, t.n;
UPDATE seen SET c = t.ctid FROM t WHERE t.id = seen.id;
UPDATE t SET n = 2 FROM seen LEFT JOIN t o ON o.ctid = seen.c WHERE t.id = seen.id RETURNING t.id, o.n;
UPDATE seen SET c = t.ctid FROM t WHERE t.id = seen.id;
WITH u AS (UPDATE t SET n = n FROM t o LEFT JOIN seen ON seen.c = o.ctid WHERE t.id = o.id AND seen.c IS NULL RETURNING t.id) SELECT * FROM u ORDER BY id;
WITH u AS (UPDATE t SET n = n FROM seen RIGHT JOIN t o ON seen.c = o.ctid WHERE t.id = o.id AND seen.c IS NULL RETURNING t.id) SELECT * FROM u ORDER BY id;
WITH u AS (UPDATE t SET n = n WHERE id IN (SELECT o.id FROM t o LEFT JOIN seen ON seen.c = o.ctid WHERE seen.c IS NULL) RETURNING id) SELECT * FROM u ORDER BY id;
-- beside other outer joins that may set to null what chooses the rows, or ctid and xmin of a table
UPDATE t SET n = t.n FROM seen LEFT JOIN t o ON o.ctid = seen.c LEFT JOIN seen s ON s.id = seen.id WHERE t.id = seen.id AND s.id = 1 RETURNING t.id;
UPDATE t SET n = t.n FROM seen s RIGHT JOIN seen ON s.id = seen.id LEFT JOIN t o ON o.ctid = seen.c WHERE t.id = seen.id AND s.id = 1 RETURNING t.id;
UPDATE t SET n = t.n FROM seen s FULL JOIN seen ON s.id = seen.id LEFT JOIN t o ON o.ctid = seen.c WHERE t.id = s.id RETURNING t.id;
UPDATE t SET n = t.n FROM seen LEFT JOIN seen s ON s.id = seen.id LEFT JOIN t o ON o.ctid = seen.c LEFT JOIN seen r ON r.id = s.id WHERE t.id = seen.id RETURNING t.id;
UPDATE seen SET c = t.ctid, x = t.xmin FROM t WHERE t.id = seen.id;
UPDATE t SET n = t.n FROM t o JOIN seen s ON o.ctid = s.c RIGHT JOIN seen ON seen.id = s.id WHERE t.id = o.id AND o.xmin = s.x RETURNING t.id;
UPDATE t SET n = t.n FROM t o JOIN seen s ON o.ctid = s.c RIGHT JOIN seen ON seen.id = s.id WHERE t.id = o.id AND o.xmin = s.x RETURNING t.id;
UPDATE t SET n = n WHERE id NOT IN (SELECT id FROM t WHERE ctid = '(0,99)') AND id = 2 RETURNING id;
UPDATE t SET n = n WHERE id <> ALL (SELECT id FROM t WHERE ctid = '(0,99)') AND id = 2 RETURNING id;
UPDATE t SET n = n WHERE NOT EXISTS (SELECT FROM seen WHERE seen.c = t.ctid AND seen.x = '3') AND id = 2 RETURNING id;
-- a ctid by which something is read only
SELECT ctid AS c FROM t WHERE id = 2 \gset
UPDATE t SET n = (SELECT n FROM t WHERE ctid = :'c') WHERE id = 3 RETURNING n;
UPDATE t SET n = n WHERE id = 3 RETURNING (SELECT n FROM t WHERE ctid = :'c');
SELECT ctid AS c FROM t WHERE id = 2 \gset
WITH w AS (UPDATE t SET n = n WHERE id = 3 RETURNING n) SELECT t.n, w.n FROM w, t WHERE ctid = :'c';
WITH r AS (SELECT n FROM t WHERE ctid = :'c'), w AS (UPDATE t SET n = n WHERE id = 3 RETURNING n) SELECT r.n, w.n FROM w, r;
INSERT INTO t SELECT 9, n FROM t WHERE ctid = :'c' ON CONFLICT DO NOTHING RETURNING n;
-- rows that the transaction has locked, whatever has locked them
CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
SELECT ctid AS c FROM t WHERE id = 2 \gset
BEGIN;
INSERT INTO t VALUES (2, 0) ON CONFLICT (id) DO UPDATE SET n = 0 WHERE false;
UPDATE t SET n = 7 WHERE ctid = :'c' RETURNING id;
ROLLBACK;
BEGIN;
CREATE TRIGGER skip BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION skip();
COMMIT;
BEGIN;
UPDATE t SET n = 7 WHERE id = 2;
DELETE FROM t WHERE ctid = :'c' RETURNING id;
ROLLBACK;
DROP TRIGGER skip ON t;
BEGIN;
SET LOCAL track_counts = off;
UPDATE t SET n = n WHERE id = 2 RETURNING ctid AS c \gset
UPDATE t SET n = 7 WHERE ctid = :'c' RETURNING id;
ROLLBACK;
