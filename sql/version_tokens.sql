-- xmin and ctid as guards of updates: what is refused (guard/zxmin_id.c, guard/zctid.c); xmin_token has what is not
SET client_min_messages = warning;
CREATE TABLE v (id int PRIMARY KEY, n int) USING zheap;
CREATE TABLE h (id int PRIMARY KEY, n int) USING heap;
INSERT INTO v VALUES (1, 100), (2, 200);
INSERT INTO h VALUES (1, 100), (2, 200);
CREATE VIEW tokens AS SELECT id, xmin AS token, n FROM v;
-- xmin as a transaction id is refused, in every form that the planner sees (GUARD-2)
\set SHOW_CONTEXT never
SELECT age(xmin) FROM v;
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY terse
SELECT 1 FROM v WHERE age(xmin) < 100;
SELECT pg_xact_commit_timestamp(xmin) FROM v;
SELECT pg_xact_status(xmin::text::xid8) FROM v;
SELECT pg_visible_in_snapshot(xmin::text::xid8, pg_current_snapshot()) FROM v;
SELECT * FROM v WHERE xmin::text::bigint > 3 ORDER BY xmin::text::bigint;
SELECT * FROM v WHERE xmin::text::bigint BETWEEN 3 AND 1000;
SELECT n FROM v WHERE (xmin::text, id) > ('3', 1);
SELECT max(xmin::text::bigint) FROM v;
SELECT max(xmin::text::bigint) OVER () FROM v;
SELECT id FROM v GROUP BY id HAVING max(xmin::text) > '3';
SELECT greatest(xmin::text, '3') FROM v;
SELECT CASE WHEN xmin::text > '3' THEN 1 END FROM v;
SELECT id FROM tokens WHERE age(token) > 5;
SELECT id FROM (SELECT id, xmin AS x FROM v) s WHERE age(x) > 5;
SELECT id FROM (SELECT id, xmin AS x FROM h UNION ALL SELECT id, xmin FROM v) u WHERE age(x) > 5;
SELECT id, age(x) FROM (SELECT id, xmin AS x FROM h UNION ALL SELECT id, xmin FROM v) u;
SELECT id FROM (SELECT id, age(xmin) AS x FROM h UNION ALL SELECT id, age(xmin) FROM v) u;
SELECT id FROM h WHERE EXISTS (SELECT FROM v WHERE v.id = h.id AND v.xmin::text > h.xmin::text);
SELECT id FROM v WHERE (SELECT max(n) FROM h WHERE h.xmin::text > v.xmin::text) > 0;
SELECT (SELECT age(v.xmin) FROM h LIMIT 1) FROM v;
SELECT s.* FROM v, age(v.xmin) s;
WITH t AS (UPDATE v SET n = n WHERE age(xmin) > 3 RETURNING *) SELECT * FROM t;
INSERT INTO v VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = 2 WHERE age(v.xmin) > 3;
INSERT INTO v VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = age(v.xmin);
INSERT INTO v VALUES (3, 1) RETURNING age(xmin);
UPDATE v SET n = age(xmin);
UPDATE v SET n = n RETURNING age(xmin);
DELETE FROM v RETURNING age(xmin);
MERGE INTO v USING h ON v.id = h.id WHEN MATCHED THEN UPDATE SET n = age(v.xmin);
MERGE INTO v USING h ON v.id = h.id AND age(v.xmin) = 1 WHEN MATCHED THEN DELETE;
CREATE TABLE copied AS SELECT id, n FROM v WHERE xmin::text::bigint > 3;
PREPARE since(bigint) AS SELECT * FROM v WHERE xmin::text::bigint > $1;
EXECUTE since(3);
CREATE TABLE late (id int, n int) USING heap;
PREPARE planned AS SELECT age(xmin) FROM late;
EXECUTE planned;
ALTER TABLE late SET ACCESS METHOD zheap;
EXECUTE planned;
CREATE FUNCTION plain(int) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN UPDATE v SET n = n + 1 WHERE age(xmin) > $1; RETURN FOUND; END $$;
SELECT plain(1);
CREATE FUNCTION since(int) RETURNS SETOF v LANGUAGE sql STABLE AS $$ SELECT id, n FROM v WHERE age(xmin) > $1 $$;
SELECT * FROM since(3);
CREATE FUNCTION newer(xid, xid) RETURNS bool LANGUAGE sql AS $$ SELECT age($1) < age($2) $$;
SELECT id FROM v WHERE newer(xmin, '3');
CREATE POLICY p ON v USING (age(xmin) > 3);
CREATE ROLE reader;
GRANT SELECT ON v TO reader;
ALTER TABLE v ENABLE ROW LEVEL SECURITY;
SET ROLE reader;
SELECT * FROM v;
RESET ROLE;
DROP POLICY p ON v;
CREATE POLICY p ON v USING (xmin <> pg_current_xact_id()::xid);
GRANT UPDATE ON v TO reader;
SET ROLE reader;
BEGIN;
SELECT count(*) FROM v;
UPDATE v SET n = n + 1;
SELECT count(*) FROM v;
ROLLBACK;
RESET ROLE;
DROP POLICY p ON v;
ALTER TABLE v DISABLE ROW LEVEL SECURITY;
-- partitioned and inherited tables of which one child is a zheap table
CREATE TABLE p (id int, n int) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p (PRIMARY KEY (id)) FOR VALUES FROM (0) TO (10) USING heap;
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id);
CREATE TABLE p21 PARTITION OF p2 (PRIMARY KEY (id)) FOR VALUES FROM (10) TO (20) USING zheap;
CREATE TABLE parent (id int) USING heap;
CREATE TABLE child () INHERITS (parent) USING zheap;
SELECT age(xmin) FROM p;
UPDATE p SET n = 1 WHERE age(xmin) > 3 AND id < 5;
UPDATE p SET n = 1 WHERE age(xmin) > 3 AND id = 15;
INSERT INTO p VALUES (15, 1) RETURNING age(xmin);
SELECT age(xmin) FROM parent;
SELECT age(xmin) FROM ONLY parent;
-- which of xmin and the own transaction id is older, how far they are apart, or whether another one is near to it
SELECT id FROM v WHERE xmin::text::bigint < txid_current();
SELECT id FROM v WHERE txid_current() - xmin::text::bigint = 1;
SELECT id, xmin::text::bigint > txid_current() - 1000 AS fresh FROM v;
SELECT id, txid_current() - xmin::text::bigint AS age FROM v;
SELECT id FROM v WHERE xmin IN (pg_current_xact_id()::xid, '3'::xid);
SELECT id FROM v WHERE xmin::text::bigint = txid_current() - 5;
SELECT id FROM v WHERE xmin::text::bigint / 10 = txid_current() / 10;
SELECT CASE xmin WHEN pg_current_xact_id()::xid THEN 1 WHEN '3' THEN 2 END FROM v;
SELECT id FROM (SELECT id, xmin AS x FROM h UNION ALL SELECT id, xmin FROM v) u WHERE x = pg_current_xact_id()::xid;
SELECT id FROM v WHERE EXISTS (SELECT FROM h WHERE v.xmin = pg_current_xact_id()::xid OFFSET 0);
-- whether it is the own one is answered for each row of a partitioned table
BEGIN;
INSERT INTO p VALUES (2, 2), (12, 12);
INSERT INTO p VALUES (3, 3) ON CONFLICT DO NOTHING;
SELECT id, xmin = pg_current_xact_id()::xid AS mine, xmin::text = txid_current()::text AS id_shown FROM p ORDER BY id;
UPDATE p SET n = n + 1 WHERE xmin = pg_current_xact_id()::xid RETURNING id, xmin = pg_current_xact_id()::xid AS mine;
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM v WHERE xmin = pg_current_xact_id()::xid;
-- a row that a savepoint's subtransaction has written is shown as that of the transaction; on heap it is not
SAVEPOINT s;
UPDATE v SET n = n + 1 WHERE id = 1;
RELEASE s;
SELECT id FROM v WHERE xmin = pg_current_xact_id()::xid;
SAVEPOINT s;
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE WARNING '% %: own %', TG_WHEN, OLD.id, OLD.xmin = pg_current_xact_id()::xid; RETURN NEW; END $$;
CREATE TRIGGER before BEFORE UPDATE ON v FOR EACH ROW EXECUTE FUNCTION tell();
CREATE TRIGGER after AFTER UPDATE ON v FOR EACH ROW EXECUTE FUNCTION tell();
UPDATE v SET n = n + 1 WHERE id IN (1, 2);
ROLLBACK TO s;
-- where the own id is not seen beside it, xmin is the token; zundo.xmin_or_own answers
DO $$
DECLARE
	own xid := pg_current_xact_id();
BEGIN
	ASSERT (SELECT count(*) = 0 FROM v WHERE xmin = own);
	ASSERT (SELECT count(*) = 1 FROM v WHERE zundo.xmin_or_own(xmin, cmax, tableoid) = own);
END $$;
SELECT id, zundo.xmin_or_own(xmin, cmax, tableoid) = xmin AS token, cmax = '4294967295' AS of_others FROM v ORDER BY id;
SELECT id, zundo.xmin_or_own(xmin, cmax, tableoid) = xmin AS heap FROM h ORDER BY id;
SELECT zundo.xmin_or_own('7', '0', 'pg_class_oid_index'::regclass), zundo.xmin_or_own('7', '0', 1), zundo.xmin_or_own('7', NULL, 1) IS NULL AS nothing;
ROLLBACK;
-- not refused: heap tables, all comparisons for equality, order and groups
SELECT age(xmin) <> 0 AS aged FROM h WHERE id = 1;
SELECT count(*) FROM h WHERE xmin::text::bigint < txid_current();
SELECT count(*) FROM (SELECT id FROM v ORDER BY xmin::text) s;
SELECT count(*) FROM (SELECT DISTINCT xmin FROM v) s;
SELECT count(*) FROM (SELECT xmin, count(*), rank() OVER (ORDER BY xmin::text) FROM v GROUP BY xmin) s;
SELECT id FROM h WHERE EXISTS (SELECT FROM v WHERE v.id = h.id AND v.xmin <> h.xmin OFFSET 0);
SELECT id FROM v WHERE (SELECT count(*) FROM h WHERE h.xmin = v.xmin) > 0;
SELECT 'W/' || id || '-' || xmin::text IS NOT NULL AS tag, json_build_object('etag', xmin) IS NOT NULL AS json FROM v WHERE id = 1;
-- updates by a ctid from outside the statement are refused (GUARD-3)
\set VERBOSITY default
UPDATE v SET n = 7 WHERE ctid = '(0,1)';
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY terse
DELETE FROM v WHERE ctid = '(0,1)';
DELETE FROM v WHERE ctid = ANY ('{"(0,1)","(0,2)"}');
UPDATE v SET n = 7 WHERE ctid = '(0,1)' AND n = 3 OR ctid = '(0,2)';
UPDATE v SET n = 7 FROM h WHERE v.ctid = '(0,1)' AND h.id = v.id;
WITH u AS (UPDATE v SET n = 7 WHERE ctid = '(0,1)' RETURNING n) SELECT * FROM u;
UPDATE v SET n = 7 WHERE id = 1 AND ctid = '(0,1)';
UPDATE v SET n = 7 WHERE id = 2 OR '(0,1)' = ctid;
UPDATE v SET n = 7 WHERE ctid::text = '(0,1)';
UPDATE v SET n = 7 WHERE ctid::varchar IN ('(0,1)', '(0,2)');
UPDATE v SET n = 7 WHERE ctid IS NOT DISTINCT FROM '(0,1)';
-- xmin beside it is no proof if it may be another version's or another row's, or if it is compared otherwise
UPDATE v SET n = 7 WHERE ctid = '(0,1)' AND xmin = (SELECT xmin FROM v WHERE ctid = '(0,1)');
UPDATE v SET n = 7 WHERE ctid = '(0,1)' AND xmin = ANY ('{3,4}'::xid[]);
UPDATE v SET n = 7 WHERE ctid = '(0,1)' OR xmin = '3';
UPDATE v SET n = 7 WHERE ctid = '(0,1)' AND xmin <> '3';
UPDATE v SET n = 7 WHERE ctid = '(0,1)' AND NOT xmin = '3';
UPDATE v SET n = 7 WHERE (ctid = '(0,1)' AND xmin = '3') OR (ctid = '(0,2)' AND n = 200);
UPDATE v SET n = 7 WHERE ctid = '(0,1)' AND xmin::text::"char" = '3';
UPDATE v SET n = 7 WHERE ctid = '(0,1)' AND xmin::text::float4 = 3;
UPDATE v SET n = 7 FROM v w WHERE v.ctid = '(0,1)' AND w.xmin = '3';
UPDATE v SET n = 7 FROM v w WHERE v.ctid = '(0,1)' AND v.xmin = w.xmin;
UPDATE v SET n = 7 FROM (VALUES ('3'::xid)) s(x) WHERE v.ctid = '(0,1)' AND v.xmin = s.x;
WITH s AS (SELECT ctid AS c, xmin AS x FROM v) UPDATE v SET n = 7 FROM s a, s b WHERE v.ctid = a.c AND a.c = '(0,1)' AND b.x = '3';
CREATE FUNCTION token_of(tid) RETURNS xid LANGUAGE sql STABLE AS 'SELECT xmin FROM v WHERE ctid = $1';
UPDATE v SET n = 7 WHERE ctid = '(0,1)' AND xmin = token_of('(0,1)');
DROP FUNCTION token_of;
MERGE INTO v USING (VALUES (1)) s(n) ON v.ctid = '(0,1)' WHEN MATCHED AND v.n = 3 THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (3, 0);
-- of a statement that changes no zheap table nothing is evaluated but by the planner
CREATE FUNCTION told(int) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'evaluated'; RETURN false; END $$;
DELETE FROM h WHERE ctid = '(0,1)' AND told(1);
DROP FUNCTION told;
-- with every kind of scan: a small table is read by a sequential scan
BEGIN;
SET LOCAL enable_tidscan = off;
EXPLAIN (COSTS OFF) UPDATE v SET n = 7 WHERE ctid = '(0,1)';
UPDATE v SET n = 7 WHERE ctid = '(0,1)';
ROLLBACK;
BEGIN;
SET LOCAL enable_tidscan = off;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
EXPLAIN (COSTS OFF) DELETE FROM v WHERE id = 1 AND ctid = '(0,1)';
DELETE FROM v WHERE id = 1 AND ctid = '(0,1)';
ROLLBACK;
BEGIN;
SET LOCAL enable_tidscan = off;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_indexscan = off;
DELETE FROM v WHERE id = 1 AND ctid = '(0,1)';
ROLLBACK;
MERGE INTO v USING (VALUES (1)) s(n) ON v.ctid = '(0,1)' WHEN MATCHED THEN DELETE;
UPDATE parent SET id = 2 WHERE ctid = '(0,1)';
PREPARE by_tid(tid) AS UPDATE v SET n = 7 WHERE ctid = $1;
EXECUTE by_tid('(0,1)');
DO $$ DECLARE c tid; BEGIN SELECT ctid INTO c FROM v WHERE id = 1; UPDATE v SET n = 7 WHERE ctid = c; END $$;
SET default_transaction_isolation = 'repeatable read';
EXECUTE by_tid('(0,1)');
RESET default_transaction_isolation;
-- locks and changes of other tables do not allow it for this one
BEGIN;
UPDATE h SET n = n;
SELECT count(*) FROM (SELECT FROM parent FOR UPDATE) s;
EXECUTE by_tid('(0,1)');
ROLLBACK;
EXPLAIN (COSTS OFF) UPDATE v SET n = 7 WHERE ctid = '(0,1)';
-- nor do ctids from outside that come as rows
CREATE TABLE saved (c tid, k text, again int) USING heap;
INSERT INTO saved SELECT ctid, ctid::text, id FROM v;
ANALYZE saved;
PREPARE by_tids(tid[]) AS UPDATE v SET n = 7 FROM unnest($1) c WHERE v.ctid = c;
EXECUTE by_tids('{"(0,1)"}');
UPDATE v SET n = 7 FROM (VALUES ('(0,1)'::tid, 1), ('(0,2)', 2)) s(c, n) WHERE v.ctid = s.c;
DELETE FROM v USING saved WHERE v.ctid = saved.c;
DELETE FROM v WHERE ctid IN (SELECT c FROM saved);
DELETE FROM v WHERE ctid = (SELECT c FROM saved WHERE again = 1);
DELETE FROM v WHERE ctid = ANY (ARRAY(SELECT c FROM saved));
DELETE FROM v WHERE id = 7 OR ctid IN (SELECT c FROM saved);
DELETE FROM v WHERE id = 7 OR (ctid, 1) IN (SELECT c, again FROM saved);
DELETE FROM v USING saved WHERE v.ctid::text = saved.k;
DELETE FROM v USING saved WHERE v.ctid = saved.k::tid;
WITH s AS MATERIALIZED (SELECT max(c) AS c FROM saved) DELETE FROM v USING s WHERE v.ctid = s.c;
DELETE FROM v USING (SELECT c FROM saved UNION ALL SELECT c FROM saved OFFSET 0) s WHERE v.ctid = s.c;
DELETE FROM v WHERE ctid IN (SELECT c FROM saved UNION SELECT ctid FROM h WHERE false);
UPDATE v SET n = 7 WHERE ctid = (SELECT '(0,1)'::tid);
WITH s AS (DELETE FROM saved RETURNING c) UPDATE v SET n = 7 FROM s WHERE v.ctid = s.c;
DELETE FROM v USING jsonb_to_recordset('[{"c": "(0,1)"}]') s(c tid) WHERE v.ctid = s.c;
MERGE INTO v USING saved ON v.ctid = saved.c WHEN MATCHED THEN UPDATE SET n = 7
WHEN NOT MATCHED THEN INSERT VALUES (again, 0);
UPDATE parent SET id = 2 FROM saved WHERE parent.ctid = saved.c;
WITH d AS (DELETE FROM v USING saved WHERE v.ctid = saved.c RETURNING id) SELECT * FROM d;
-- in a subquery, for several relations at once, and from other sources of rows
PREPARE in_subquery(tid[]) AS UPDATE v SET n = 7 WHERE ctid IN (SELECT ctid FROM v WHERE ctid = ANY($1));
EXECUTE in_subquery('{"(0,1)"}');
UPDATE v SET n = 7 WHERE id = (SELECT id FROM v WHERE ctid = '(0,1)');
WITH s AS MATERIALIZED (SELECT id FROM v WHERE ctid = '(0,1)') UPDATE v SET n = 7 FROM s WHERE v.id = s.id;
UPDATE v SET n = 7 FROM h, saved s, saved u WHERE h.ctid = u.c AND v.ctid = s.c AND h.id = v.id;
UPDATE v SET n = 7 FROM h, saved s, saved u WHERE v.ctid = s.c AND h.ctid = u.c AND h.id = v.id;
WITH RECURSIVE s(c, n) AS (SELECT c, 1 FROM saved UNION ALL SELECT c, n + 1 FROM s WHERE n < 2)
UPDATE v SET n = 7 FROM s WHERE v.ctid = s.c;
INSERT INTO v VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = 7 WHERE v.ctid = '(0,1)';
UPDATE v SET n = 7 WHERE (ctid, 1) = (SELECT c, again FROM saved WHERE again = 1);
UPDATE v SET n = 7 WHERE ctid = ALL (SELECT c FROM saved WHERE again = 1);
UPDATE v SET n = s.n FROM (VALUES (NULL, 1), ('(0,1)'::tid, random()::int)) s(c, n) WHERE v.ctid = s.c;
UPDATE v SET n = s.n FROM ROWS FROM (generate_series(1, ceil(random())::int), unnest(ARRAY['(0,1)'::tid])) s(n, c) WHERE v.ctid = s.c;
UPDATE v SET n = 7 FROM (VALUES ('3'::xid)) o(x) WHERE EXISTS (SELECT FROM saved s WHERE EXISTS (SELECT FROM v w WHERE w.ctid = s.c AND w.xmin = o.x AND w.id = v.id));
INSERT INTO v SELECT id, 7 FROM v WHERE ctid = '(0,1)' ON CONFLICT (id) DO UPDATE SET n = excluded.n;
INSERT INTO v VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = 7 WHERE v.ctid::text = '(0,' || excluded.n || ')';
UPDATE v SET n = 7 WHERE ctid = (SELECT c FROM saved WHERE again = v.id);
UPDATE v SET n = 7 WHERE EXISTS (SELECT FROM saved WHERE c = v.ctid OFFSET 0);
UPDATE v SET n = 7 WHERE (SELECT count(*) FROM saved WHERE c = v.ctid) > 0;
UPDATE v SET n = 7 FROM (SELECT id, ctid = '(0,1)' AS hit FROM v OFFSET 0) s WHERE s.id = v.id AND s.hit;
CREATE FUNCTION same(tid, tid) RETURNS bool LANGUAGE sql AS 'SELECT $1 = $2';
UPDATE v SET n = 7 WHERE same(ctid, '(0,1)');
UPDATE v SET n = 7 WHERE NOT ctid <> '(0,1)';
DROP FUNCTION same;
MERGE INTO v USING (VALUES (1)) s(n) ON v.n > 0 WHEN MATCHED AND v.id = (SELECT id FROM v WHERE ctid = '(0,1)') THEN DELETE;
-- an outer join chooses the rows, or what is stored in them, by whether it finds one
UPDATE v SET n = coalesce(saved.again, v.n) FROM v w LEFT JOIN saved ON saved.c = w.ctid WHERE v.id = w.id;
UPDATE v SET n = coalesce(saved.again, v.n) FROM saved RIGHT JOIN v w ON saved.c = w.ctid WHERE v.id = w.id;
UPDATE v SET n = 7 FROM v w LEFT JOIN saved ON saved.c = w.ctid WHERE v.id = w.id AND saved.again > 0;
UPDATE v SET n = 7 FROM v w LEFT JOIN saved ON saved.c = w.ctid WHERE v.id = w.id AND NOT saved.c IS NULL;
UPDATE v SET n = 7 FROM saved LEFT JOIN v w ON saved.c = w.ctid WHERE v.id = w.id;
UPDATE v SET n = 7 FROM v w FULL JOIN saved ON saved.c = w.ctid WHERE v.id = w.id;
UPDATE v SET n = 7 FROM (v w LEFT JOIN saved s ON s.c = w.ctid) LEFT JOIN h ON h.id = s.again WHERE v.id = w.id AND h.n > 0;
DELETE FROM v WHERE id IN (SELECT CASE WHEN saved.c IS NOT NULL THEN w.id END FROM v w LEFT JOIN saved ON saved.c = w.ctid);
DELETE FROM v WHERE id IN (SELECT w.id FROM v w LEFT JOIN saved ON saved.c = w.ctid GROUP BY w.id, saved.c HAVING count(saved.c) > 0);
DELETE FROM v USING saved LEFT JOIN v w ON w.ctid = saved.c, LATERAL (SELECT w.id AS k) l WHERE v.id = l.k;
-- a plan that was made before the partition was a table of zheap
CREATE TABLE later (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);
CREATE TABLE later_heap PARTITION OF later FOR VALUES FROM (0) TO (9) USING heap;
PREPARE upsert AS INSERT INTO later VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = 7 WHERE later.ctid = '(0,1)';
EXECUTE upsert;
EXECUTE upsert;
ALTER TABLE later_heap SET ACCESS METHOD zheap;
EXECUTE upsert;
DEALLOCATE upsert;
DROP TABLE later;
CREATE TABLE keyed (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);
CREATE TABLE keyed_zheap PARTITION OF keyed FOR VALUES FROM (0) TO (9) USING zheap;
INSERT INTO keyed VALUES (1, 100);
INSERT INTO keyed VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = 7 WHERE keyed.ctid = '(0,1)';
BEGIN;
SELECT n FROM keyed WHERE id = 1 FOR UPDATE;
INSERT INTO keyed VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = 7 WHERE keyed.ctid = '(0,1)' RETURNING n;
ROLLBACK;
DROP TABLE keyed;
CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM v USING gone WHERE v.ctid = gone.c; RETURN NULL; END $$;
CREATE TRIGGER change AFTER DELETE ON saved REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION change();
DELETE FROM saved;
DROP TRIGGER change ON saved;
CREATE TABLE mixed (id int, n int) PARTITION BY RANGE (id);
CREATE TABLE mixed_heap PARTITION OF mixed FOR VALUES FROM (0) TO (2) USING heap;
CREATE TABLE mixed_zheap PARTITION OF mixed FOR VALUES FROM (2) TO (9) USING zheap;
INSERT INTO mixed VALUES (1, 1), (2, 2), (3, 3);
SET enable_tidscan = off;
UPDATE mixed SET n = 7 FROM saved WHERE mixed.ctid = saved.c;
RESET enable_tidscan;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT FROM v LIMIT 1;
DELETE FROM v WHERE ctid = '(0,1)';
ROLLBACK;
-- with every kind of join
CREATE FUNCTION refused(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text; plan text = 'none';
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		plan := coalesce(substring(line FROM 'Nested Loop|Merge Join|Hash Join'), plan);
	END LOOP;
	EXECUTE query;
	RETURN 'NOT REFUSED, ' || plan;
EXCEPTION WHEN feature_not_supported THEN
	RETURN 'refused, ' || plan;
END $$;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SELECT refused('DELETE FROM v USING saved WHERE v.ctid = saved.c');
SET enable_tidscan = off;
SELECT refused('DELETE FROM v USING saved WHERE v.ctid = saved.c');
SET enable_nestloop = off;
SET enable_mergejoin = on;
SELECT refused('DELETE FROM v USING saved WHERE v.ctid = saved.c');
SET enable_hashjoin = on;
SET enable_mergejoin = off;
SELECT refused('DELETE FROM v USING saved WHERE v.ctid = saved.c');
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_nestloop;
RESET enable_tidscan;
-- these rows cannot have changed: they, or the table, are locked
BEGIN;
LOCK TABLE v IN SHARE ROW EXCLUSIVE MODE;
UPDATE v SET n = n FROM saved WHERE v.ctid = saved.c RETURNING id;
ROLLBACK;
BEGIN;
SELECT id FROM v FOR UPDATE;
UPDATE v SET n = n FROM saved WHERE v.ctid = saved.c RETURNING id;
ROLLBACK;
CREATE MATERIALIZED VIEW m USING zheap AS SELECT id, n FROM v;
CREATE UNIQUE INDEX ON m (id);
UPDATE v SET n = n + 1 WHERE id = 1;
REFRESH MATERIALIZED VIEW CONCURRENTLY m;
SELECT m.id FROM m JOIN v ON (m.id, m.n) IS NOT DISTINCT FROM (v.id, v.n) ORDER BY 1;
DROP MATERIALIZED VIEW m;
-- these ctids are from inside, or nothing is said of the rows that have them
UPDATE v SET n = v.n FROM (SELECT max(ctid) AS c FROM v) s WHERE v.ctid = s.c RETURNING id;
WITH l AS (SELECT ctid AS c FROM v FOR UPDATE) UPDATE v SET n = n FROM l WHERE v.ctid = l.c RETURNING id;
UPDATE v SET n = n WHERE ctid IN (SELECT unnest(array_agg(ctid)) FROM v) RETURNING id;
UPDATE v SET n = n WHERE ctid IN (SELECT ctid FROM v EXCEPT SELECT c FROM saved WHERE again = 1) RETURNING id;
UPDATE v SET n = n WHERE ctid IN (SELECT ctid FROM v WHERE id = 1 UNION SELECT ctid FROM v WHERE id = 2) RETURNING id;
BEGIN;
WITH s AS (DELETE FROM h RETURNING ctid AS c) UPDATE v SET n = n FROM s WHERE v.ctid = s.c AND false;
WITH s AS (INSERT INTO saved SELECT ctid FROM v FOR UPDATE RETURNING c) UPDATE v SET n = n FROM s WHERE v.ctid = s.c RETURNING id;
ROLLBACK;
UPDATE v SET n = n WHERE id = 7 OR ctid IN (SELECT ctid FROM v) RETURNING id;
UPDATE v SET n = n WHERE ctid NOT IN (SELECT c FROM saved) RETURNING id;
UPDATE v SET n = n FROM (SELECT ctid AS c, id FROM v WHERE id = 1 UNION ALL SELECT NULL::tid, 5) s WHERE v.ctid = s.c RETURNING v.id;
UPDATE mixed SET n = 7 FROM saved WHERE mixed.id = 1 AND mixed.ctid = saved.c RETURNING mixed.id;
INSERT INTO v VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = v.n WHERE v.id = 1 RETURNING id;
UPDATE v SET n = n WHERE NOT EXISTS (SELECT FROM saved WHERE saved.c = v.ctid) RETURNING id;
UPDATE v SET n = n FROM saved WHERE v.id = saved.again AND v.ctid <> saved.c RETURNING id;
CREATE FUNCTION lock_rows() RETURNS SETOF tid LANGUAGE sql VOLATILE AS 'SELECT ctid FROM v FOR UPDATE';
UPDATE v SET n = n FROM lock_rows() c WHERE v.ctid = c RETURNING id;
DROP FUNCTION refused, lock_rows, change;
DROP TABLE mixed;
DROP TABLE saved;
-- not refused: a ctid from inside the statement, of a row that is locked or was changed, and reads
SELECT id FROM v WHERE ctid = '(0,1)';
UPDATE v SET n = n WHERE ctid IS DISTINCT FROM '(999,1)' AND id = 1 RETURNING id;
UPDATE h SET n = h.n FROM v WHERE v.ctid = '(0,1)' AND h.id = v.id RETURNING h.id;
UPDATE v SET n = n WHERE ctid = ANY (ARRAY(SELECT ctid FROM v WHERE id = 1 FOR UPDATE)) RETURNING id;
UPDATE v SET n = n WHERE ctid = (SELECT ctid FROM v WHERE id = 1) RETURNING id;
UPDATE v SET n = v.n FROM v w WHERE v.ctid = w.ctid AND w.id = 1 RETURNING v.id;
DO $$ DECLARE c tid; BEGIN SELECT ctid INTO c FROM v WHERE id = 1 FOR UPDATE; UPDATE v SET n = n WHERE ctid = c; END $$;
BEGIN;
SELECT id FROM v WHERE id = 1 FOR SHARE;
EXECUTE by_tid('(0,1)');
ROLLBACK;
BEGIN;
SAVEPOINT s;
UPDATE v SET n = n + 1 RETURNING ctid, id;
EXECUTE by_tid('(0,1)');
RELEASE s;
EXECUTE by_tid('(0,1)');
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM v WHERE id = 1;
FETCH c;
UPDATE v SET n = n WHERE CURRENT OF c RETURNING id;
COMMIT;
-- each row is asked: only those that the transaction has locked or changed itself may be changed
CREATE TABLE asked (id int PRIMARY KEY, n int) USING zheap;
INSERT INTO asked SELECT g, 0 FROM generate_series(1, 4) g;
PREPARE ask(tid[]) AS UPDATE asked SET n = n + 1 WHERE ctid = ANY ($1) RETURNING id, n;
BEGIN;
SELECT id FROM asked WHERE id < 3 FOR NO KEY UPDATE;
EXECUTE ask('{"(0,1)","(0,2)"}');
EXECUTE ask('{"(0,9)"}');
SAVEPOINT s;
\set VERBOSITY default
EXECUTE ask('{"(0,1)","(0,3)"}');
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY terse
ROLLBACK TO s;
SELECT id FROM asked WHERE id = 3 FOR KEY SHARE;
EXECUTE ask('{"(0,3)"}');
ROLLBACK TO s;
SELECT id FROM asked WHERE id = 3 FOR SHARE;
EXECUTE ask('{"(0,3)"}');
ROLLBACK TO s;
EXECUTE ask('{"(0,3)"}');
ROLLBACK TO s;
UPDATE asked SET n = 5 WHERE id > 2;
EXECUTE ask('{"(0,3)","(0,4)"}');
ROLLBACK TO s;
DELETE FROM asked WHERE ctid = '(0,4)';
ROLLBACK TO s;
ROLLBACK;
-- a snapshot of the transaction says nothing of what was read before
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT ctid FROM asked WHERE id = 1;
EXECUTE ask('{"(0,1)"}');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT ctid FROM asked WHERE id = 1 FOR UPDATE;
EXECUTE ask('{"(0,1)"}');
ROLLBACK;
-- the check of a foreign key locks FOR KEY SHARE only
CREATE TABLE refers (id int REFERENCES asked) USING zheap;
BEGIN;
INSERT INTO refers VALUES (1);
EXECUTE ask('{"(0,1)"}');
ROLLBACK;
DROP TABLE refers;
-- the change of a row is known after the relcache has forgotten the table
BEGIN;
UPDATE asked SET n = 3 WHERE id = 1;
CREATE INDEX ON asked (n);
EXECUTE ask('{"(0,1)"}');
ROLLBACK;
-- no other session changes a temporary table
CREATE TEMPORARY TABLE mine (a int) USING zheap;
INSERT INTO mine VALUES (1), (2);
UPDATE mine SET a = 0 WHERE ctid = '(0,1)' RETURNING a;
DO $$ DECLARE r record; BEGIN FOR r IN SELECT ctid FROM mine LOOP UPDATE mine SET a = a + 1 WHERE ctid = r.ctid; END LOOP; END $$;
DROP TABLE mine;
-- a stable function reads the table with the snapshot of the statement, unless it is one of the server's
CREATE FUNCTION victims(many int) RETURNS SETOF tid STABLE LANGUAGE sql AS 'SELECT ctid FROM asked ORDER BY id LIMIT many';
DELETE FROM asked WHERE ctid IN (SELECT victims(1)) RETURNING id;
UPDATE asked SET n = n WHERE ctid = (SELECT victims(1)) RETURNING id;
UPDATE asked SET n = n WHERE ctid = ANY (ARRAY(SELECT victims(2))) RETURNING id;
CREATE FUNCTION victim() RETURNS tid STABLE LANGUAGE sql AS 'SELECT min(ctid) FROM asked';
UPDATE asked SET n = n WHERE ctid = victim() RETURNING id;
DROP FUNCTION victim;
SET zundo_test.place = '(0,2)';
DELETE FROM asked WHERE ctid = current_setting('zundo_test.place')::tid;
-- a TID as a lock may have shown it, and others that no row has
SET enable_seqscan = off;
SELECT id FROM asked WHERE ctid = '(0,16386)';
SELECT id FROM asked WHERE ctid IN ('(0,32770)', '(0,49154)', '(7,16386)', '(0,0)', '(0,65535)');
SELECT id FROM asked WHERE ctid > '(0,16385)' OR ctid BETWEEN '(0,3)' AND '(0,16386)' ORDER BY id;
SELECT currtid2('asked', '(0,16386)'), currtid2('asked', '(0,2)');
RESET enable_seqscan;
DEALLOCATE ask;
DROP FUNCTION victims;
DROP TABLE asked;
-- the locking query may have pruned partitions
CREATE TABLE parts (id int, k int) PARTITION BY RANGE (k);
CREATE TABLE parts_a PARTITION OF parts FOR VALUES FROM (0) TO (10) USING zheap;
CREATE TABLE parts_b PARTITION OF parts FOR VALUES FROM (10) TO (20) USING zheap;
INSERT INTO parts SELECT g, g FROM generate_series(1, 15) g;
PREPARE in_part(oid, tid) AS UPDATE parts SET id = id + 1 WHERE tableoid = $1 AND ctid = $2 RETURNING id;
EXECUTE in_part('parts_a'::regclass, '(0,3)');
BEGIN;
SELECT tableoid::regclass, ctid FROM parts WHERE k = 3 FOR UPDATE;
EXECUTE in_part('parts_a'::regclass, '(0,3)');
EXECUTE in_part('parts_b'::regclass, '(0,3)');
ROLLBACK;
DEALLOCATE in_part;
DROP TABLE parts;
SET zundo.allow_ctid_guard = on;
BEGIN;
EXECUTE by_tid('(0,1)');
ROLLBACK;
RESET zundo.allow_ctid_guard;
DELETE FROM h WHERE ctid = '(0,1)';
-- a version column, maintained by zundo.row_version()
CREATE TABLE c (id int PRIMARY KEY, n int, version xid8, b bigint, x xid, t text) USING zheap;
CREATE TRIGGER a BEFORE INSERT OR UPDATE ON c FOR EACH ROW EXECUTE FUNCTION zundo.row_version('version');
CREATE TRIGGER b BEFORE INSERT OR UPDATE ON c FOR EACH ROW EXECUTE FUNCTION zundo.row_version('b');
CREATE TRIGGER x BEFORE INSERT OR UPDATE ON c FOR EACH ROW EXECUTE FUNCTION zundo.row_version('x');
INSERT INTO c VALUES (1, 1, '3') RETURNING version = pg_current_xact_id() AS v, b::text = pg_current_xact_id()::text AS b,
	x = pg_current_xact_id()::xid AS x;
SELECT version AS token FROM c \gset
UPDATE c SET n = n + 1 WHERE id = 1 AND version = :'token' RETURNING n, version > :'token' AS later, version::xid = x AND b::text = x::text AS alike;
UPDATE c SET n = n + 1, version = :'token' WHERE id = 1 AND version = :'token' RETURNING n;
SELECT zundo.row_version();
CREATE TRIGGER t BEFORE INSERT OR UPDATE ON c FOR EACH ROW EXECUTE FUNCTION zundo.row_version('t');
UPDATE c SET n = 3;
DROP TRIGGER t ON c;
CREATE TRIGGER t BEFORE INSERT OR UPDATE ON c FOR EACH ROW EXECUTE FUNCTION zundo.row_version('none');
UPDATE c SET n = 3;
DROP TRIGGER t ON c;
CREATE TRIGGER t BEFORE INSERT OR UPDATE ON c FOR EACH ROW EXECUTE FUNCTION zundo.row_version();
UPDATE c SET n = 3;
DROP TRIGGER t ON c;
CREATE TRIGGER t AFTER UPDATE ON c FOR EACH ROW EXECUTE FUNCTION zundo.row_version('version');
UPDATE c SET n = 3;
DROP TRIGGER t ON c;
CREATE TRIGGER t BEFORE UPDATE ON c FOR EACH STATEMENT EXECUTE FUNCTION zundo.row_version('version');
UPDATE c SET n = 3;
DROP TRIGGER t ON c;
CREATE TRIGGER t BEFORE DELETE ON c FOR EACH ROW EXECUTE FUNCTION zundo.row_version('version');
DELETE FROM c;
-- the example of docs/limits.md
ALTER TABLE v ADD COLUMN version xid8 NOT NULL DEFAULT pg_current_xact_id();
CREATE TRIGGER version BEFORE INSERT OR UPDATE ON v FOR EACH ROW EXECUTE FUNCTION zundo.row_version('version');
SELECT version AS token FROM v WHERE id = 1 \gset
UPDATE v SET n = n + 1 WHERE id = 1 AND version = :'token' RETURNING version = pg_current_xact_id() AS ours;
UPDATE v SET n = n + 1 WHERE id = 1 AND version = :'token';
INSERT INTO v VALUES (9, 9) RETURNING version = pg_current_xact_id() AS ours;
SELECT id FROM v WHERE version > :'token' ORDER BY id;
DROP OWNED BY reader;
DROP ROLE reader;
