-- Temporary tables of access method :am. Run for heap and for zheap with the same expected output.
SET default_table_access_method = :am;
CREATE TEMP TABLE t (id int PRIMARY KEY, a int, b text);
INSERT INTO t SELECT i, i, repeat('x', i % 50) FROM generate_series(1, 1000) i;
UPDATE t SET a = a + 1 WHERE id % 3 = 0;
DELETE FROM t WHERE id % 10 = 0;
SELECT count(*), sum(a), sum(length(b)) FROM t;
SELECT * FROM t WHERE id = 33;
-- own older versions: a cursor opened before
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id, a, b FROM t WHERE id < 8 ORDER BY id;
FETCH 2 FROM c;
UPDATE t SET a = -a, b = b || 'longer' WHERE id < 8;
DELETE FROM t WHERE id = 5;
INSERT INTO t VALUES (0, 0, 'new');
DECLARE d CURSOR FOR SELECT id, a FROM t WHERE id < 8 ORDER BY id;
UPDATE t SET a = 1000 WHERE id < 8;
FETCH ALL FROM c;
FETCH ALL FROM d;
FETCH BACKWARD ALL FROM c;
ROLLBACK;
SELECT * FROM t WHERE id < 8 ORDER BY id;
SELECT id FROM t WHERE a < 0 OR b LIKE '%longer';
-- the same in REPEATABLE READ, with subtransactions
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT sum(a) FROM t;
DECLARE c CURSOR FOR SELECT count(*), sum(a) FROM t;
SAVEPOINT s1;
UPDATE t SET a = a * 2;
SAVEPOINT s2;
DELETE FROM t WHERE id % 2 = 0;
SELECT count(*), sum(a) FROM t;
ROLLBACK TO s2;
SELECT count(*), sum(a) FROM t;
UPDATE t SET a = a + 1;
SAVEPOINT s3;
UPDATE t SET a = a + 1, b = b || repeat('y', 100) WHERE id < 500;
RELEASE s3;
SELECT count(*), sum(a), sum(length(b)) FROM t;
ROLLBACK TO s1;
SELECT count(*), sum(a), sum(length(b)) FROM t;
UPDATE t SET a = a + 7 WHERE id < 10;
FETCH ALL FROM c;
COMMIT;
SELECT count(*), sum(a), sum(length(b)) FROM t;
-- WITH HOLD, also over a rollback of what it has not seen
BEGIN;
DECLARE h CURSOR WITH HOLD FOR SELECT id, a FROM t WHERE id < 5 ORDER BY id;
UPDATE t SET a = 0 WHERE id < 5;
COMMIT;
UPDATE t SET a = 50 WHERE id < 5;
FETCH ALL FROM h;
CLOSE h;
-- rolled back, then read, then changed; then the same of more than one table
BEGIN;
CREATE TEMP TABLE gone (a int);
INSERT INTO gone SELECT generate_series(1, 1000);
CREATE TEMP TABLE u AS SELECT i AS id, i AS a FROM generate_series(1, 3000) i;
SAVEPOINT s;
UPDATE u SET a = 0;
ROLLBACK TO s;
UPDATE u SET a = a + 1 WHERE id <= 1000;
COMMIT;
SELECT count(*), sum(a) FROM u;
BEGIN;
UPDATE t SET b = b || 'z', a = 3;
UPDATE u SET a = -1;
DELETE FROM u WHERE id > 100;
INSERT INTO u SELECT generate_series(1, 100);
ROLLBACK;
SELECT count(*), sum(a) FROM u;
UPDATE u SET a = a + 1 WHERE id = 1;
SELECT count(*), sum(a), min(a) FROM u;
SELECT count(*), sum(a), sum(length(b)) FROM t;
-- a rolled back change, then a rolled back DROP, TRUNCATE, ALTER
BEGIN;
UPDATE u SET a = -1;
ROLLBACK;
BEGIN;
DROP TABLE u;
UPDATE t SET a = a WHERE id = 1;
ROLLBACK;
SELECT count(*), sum(a) FROM u;
BEGIN;
UPDATE u SET a = -1;
ROLLBACK;
BEGIN;
TRUNCATE u;
INSERT INTO u VALUES (1, 1);
SELECT * FROM u;
ROLLBACK;
SELECT count(*), sum(a) FROM u;
BEGIN;
UPDATE u SET a = -1;
ROLLBACK;
BEGIN;
ALTER TABLE u ALTER a TYPE bigint;
UPDATE u SET a = a + 1;
SELECT count(*), sum(a) FROM u;
ROLLBACK;
SELECT count(*), sum(a) FROM u;
BEGIN;
UPDATE u SET a = -1 WHERE id < 5;
SAVEPOINT s;
TRUNCATE u;
INSERT INTO u VALUES (1, 1);
ROLLBACK TO s;
SELECT count(*), sum(a) FROM u;
UPDATE u SET a = -2 WHERE id < 5;
COMMIT;
SELECT count(*), sum(a) FROM u;
-- ON COMMIT
BEGIN;
CREATE TEMP TABLE del (a int PRIMARY KEY) ON COMMIT DELETE ROWS;
INSERT INTO del SELECT generate_series(1, 1000);
SELECT count(*) FROM del;
COMMIT;
SELECT count(*) FROM del;
BEGIN;
INSERT INTO del SELECT generate_series(1, 10);
SAVEPOINT s;
UPDATE del SET a = a + 100;
ROLLBACK TO s;
SELECT sum(a) FROM del;
COMMIT;
SELECT count(*) FROM del;
BEGIN;
INSERT INTO del SELECT generate_series(1, 10);
ROLLBACK;
SELECT count(*) FROM del;
BEGIN;
CREATE TEMP TABLE dropped ON COMMIT DROP AS SELECT 1 AS a;
UPDATE dropped SET a = 2;
SELECT * FROM dropped;
COMMIT;
SELECT * FROM dropped;
INSERT INTO del VALUES (1);
SELECT count(*) FROM del;
-- upserts, locks, MERGE, RETURNING, triggers, foreign keys
INSERT INTO t VALUES (1, 1, 'one'), (2000, 1, 'two') ON CONFLICT (id) DO UPDATE SET b = 'conflict' RETURNING *;
INSERT INTO t VALUES (1, 1, 'one') ON CONFLICT DO NOTHING;
INSERT INTO t VALUES (1, 1, 'one');
BEGIN;
SELECT * FROM t WHERE id < 4 ORDER BY id FOR UPDATE;
SAVEPOINT s;
SELECT * FROM t WHERE id < 4 ORDER BY id FOR KEY SHARE;
UPDATE t SET id = -id WHERE id < 4;
ROLLBACK TO s;
UPDATE t SET a = 11 WHERE id = 3 RETURNING *;
COMMIT;
MERGE INTO t USING (VALUES (3, 'm'), (3000, 'm')) v (id, b) ON t.id = v.id
	WHEN MATCHED THEN UPDATE SET b = v.b WHEN NOT MATCHED THEN INSERT VALUES (v.id, 0, v.b);
SELECT * FROM t WHERE b = 'm' ORDER BY id;
CREATE TEMP TABLE child (id int REFERENCES t ON DELETE CASCADE ON UPDATE CASCADE, note text);
INSERT INTO child SELECT id, 'c' FROM t WHERE id BETWEEN 1 AND 20;
INSERT INTO child VALUES (10, 'no such row');
UPDATE t SET id = id + 5000 WHERE id BETWEEN 1 AND 3;
DELETE FROM t WHERE id BETWEEN 4 AND 8;
SELECT id FROM child ORDER BY id;
CREATE FUNCTION pg_temp.log_it() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE NOTICE '% % -> %', TG_OP, OLD.a, NEW.a; RETURN NULL; END $$;
CREATE TRIGGER log_it AFTER UPDATE ON u FOR EACH ROW EXECUTE FUNCTION pg_temp.log_it();
UPDATE u SET a = 77 WHERE id = 5;
BEGIN;
UPDATE u SET a = 78 WHERE id = 5;
SAVEPOINT s;
UPDATE u SET a = 79 WHERE id = 5;
ROLLBACK TO s;
UPDATE u SET a = 80 WHERE id = 5;
COMMIT;
DROP TRIGGER log_it ON u;
-- large values
CREATE TEMP TABLE big (id int, v text);
INSERT INTO big SELECT i, string_agg(md5((i * 1000 + g)::text), '') FROM generate_series(1, 20) i, generate_series(1, 300) g GROUP BY i;
BEGIN;
UPDATE big SET v = v || 'x' WHERE id < 10;
DELETE FROM big WHERE id > 15;
ROLLBACK;
SELECT count(*), sum(length(v)), md5(string_agg(v, '' ORDER BY id)) FROM big;
-- COMMIT and ROLLBACK within loops
DO $$
DECLARE r record; n int := 0;
BEGIN
	FOR r IN SELECT id, a FROM u WHERE id <= 100 ORDER BY id LOOP
		UPDATE u SET a = a + 1000 WHERE id = r.id + 1;
		IF r.id % 3 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
		n := n + r.a;
	END LOOP;
	RAISE NOTICE 'sum as of the beginning: %', n;
END $$;
SELECT count(*), sum(a) FROM u WHERE id <= 101;
DO $$
BEGIN
	FOR i IN 1 .. 300 LOOP
		BEGIN
			UPDATE u SET a = a + 1 WHERE id % 100 = i % 100;
			IF i % 2 = 0 THEN RAISE EXCEPTION 'no'; END IF;
		EXCEPTION WHEN raise_exception THEN NULL;
		END;
	END LOOP;
END $$;
SELECT count(*), sum(a) FROM u;
-- utility commands, also over what has been rolled back
BEGIN;
DELETE FROM u WHERE id > 1500;
UPDATE u SET a = 0;
ROLLBACK;
CREATE INDEX u_a ON u (a);
SET enable_seqscan = off;
SELECT count(*) FROM u WHERE a = 0;
SELECT count(*), sum(a) FROM u WHERE a > 1000;
RESET enable_seqscan;
BEGIN;
UPDATE u SET a = 0;
ROLLBACK;
VACUUM u;
ANALYZE u;
SELECT count(*), sum(a) FROM u;
DELETE FROM u WHERE id > 1000;
VACUUM (FREEZE, ANALYZE) u;
SELECT count(*), sum(a) FROM u;
BEGIN;
UPDATE u SET a = 0;
ROLLBACK;
CLUSTER u USING u_a;
SELECT count(*), sum(a) FROM u;
VACUUM FULL u;
REINDEX TABLE u;
SELECT count(*), sum(a) FROM u;
BEGIN;
UPDATE u SET a = -5 WHERE id = 1;
CLUSTER u;
UPDATE u SET a = -6 WHERE id = 2;
SELECT count(*) FROM u WHERE a < 0;
ROLLBACK;
SELECT count(*), sum(a), min(a) FROM u;
-- prepared transactions are refused
BEGIN;
UPDATE u SET a = 0;
PREPARE TRANSACTION 'temp';
SELECT count(*), sum(a), min(a) FROM u;
-- partitions and inheritance
CREATE TEMP TABLE p (k int, v int) PARTITION BY RANGE (k);
CREATE TEMP TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);
CREATE TEMP TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (200);
INSERT INTO p SELECT i, i FROM generate_series(0, 199) i;
UPDATE p SET k = k + 50 WHERE k BETWEEN 90 AND 95;
BEGIN;
UPDATE p SET k = 199 - k;
ROLLBACK;
SELECT tableoid::regclass, count(*), sum(k) FROM p GROUP BY 1 ORDER BY 1;
-- more undo than is kept in memory; nothing of it in the shared log, no WAL
SELECT zundo.undo_bytes_in_use() AS bytes \gset
CREATE FUNCTION pg_temp.wal_bytes(statement text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, WAL, FORMAT JSON) ' || statement INTO plan;
	RETURN plan->0->'Plan'->>'WAL Bytes';
END $$;
CREATE TEMP TABLE many AS SELECT i AS id, md5(i::text) AS v FROM generate_series(1, 100000) i;
BEGIN;
DECLARE c CURSOR FOR SELECT count(*), sum(hashtext(v)) FROM many;
SELECT pg_temp.wal_bytes('UPDATE many SET v = md5(v)') < 1000 AS hardly_any_wal;
SELECT pg_temp.wal_bytes('DELETE FROM many WHERE id % 2 = 0') < 1000 AS hardly_any_wal;
SAVEPOINT s;
UPDATE many SET v = md5(v || 'y');
FETCH ALL FROM c;
ROLLBACK TO s;
SELECT count(*), sum(hashtext(v)) FROM many;
UPDATE many SET v = 'z' WHERE id < 1000;
ROLLBACK;
SELECT count(*), sum(hashtext(v)) FROM many;
UPDATE many SET v = md5(v) WHERE id % 100 = 0;
SELECT count(*), sum(hashtext(v)) FROM many;
SELECT zundo.undo_bytes_in_use() - :bytes < 200000 AS no_shared_undo;
-- every invariant of zheap tables; nothing on heap
SELECT c.relname, f.* FROM pg_class c JOIN pg_am a ON a.oid = c.relam, zundo.check(c.oid) f
	WHERE a.amname = 'zheap' AND c.relkind IN ('r', 'm') AND c.relnamespace = pg_my_temp_schema();
BEGIN;
UPDATE many SET v = 'z' WHERE id % 3 = 0;
SAVEPOINT s;
DELETE FROM many WHERE id < 10000;
ROLLBACK TO s;
UPDATE t SET a = 0;
SELECT c.relname, f.* FROM pg_class c JOIN pg_am a ON a.oid = c.relam, zundo.check(c.oid) f
	WHERE a.amname = 'zheap' AND c.relkind IN ('r', 'm') AND c.relnamespace = pg_my_temp_schema();
ROLLBACK;
SELECT c.relname, f.* FROM pg_class c JOIN pg_am a ON a.oid = c.relam, zundo.check(c.oid) f
	WHERE a.amname = 'zheap' AND c.relkind IN ('r', 'm') AND c.relnamespace = pg_my_temp_schema();
SELECT count(*) FROM t WHERE a = 0;
-- between the access methods
BEGIN;
UPDATE u SET a = -1;
ROLLBACK;
ALTER TABLE u SET ACCESS METHOD heap;
UPDATE u SET a = a + 1 WHERE id < 10;
ALTER TABLE u SET ACCESS METHOD zheap;
UPDATE u SET a = a + 1 WHERE id < 10;
SELECT count(*), sum(a), min(a) FROM u;
DISCARD TEMP;
SELECT * FROM t;
RESET default_table_access_method;
