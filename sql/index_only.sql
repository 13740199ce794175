-- Index-only scans: VACUUM sets the bits of the visibility map, changes of the table clear them.
CREATE FUNCTION fetches(query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
		IF line ~ 'Heap Fetches' THEN RETURN substring(line FROM '\d+'); END IF;
	END LOOP;
	RETURN -1;
END $$;
CREATE FUNCTION visible(rel regclass, OUT part float8) LANGUAGE sql AS $$
	SELECT round((relallvisible / relpages::float8)::numeric, 2) FROM pg_class WHERE oid = rel $$;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET max_parallel_workers_per_gather = 0;

CREATE TABLE t (id int PRIMARY KEY, n int, filler text) USING zheap WITH (autovacuum_enabled = off);
INSERT INTO t SELECT g, 0, repeat('x', 100) FROM generate_series(1, 1000) g;
-- (from 19 on this scan sets the bits of the pages whose rows everybody sees by now)
SELECT fetches('SELECT count(id) FROM t') > 0 AS before_vacuum;
-- the undo worker, which has just been started, has a snapshot while it connects to the database; VACUUM must see all rows as old
DO $$ BEGIN
	FOR i IN 1..600 LOOP
		EXIT WHEN zundo.undo_bytes_in_use() = 0;
		PERFORM pg_sleep(0.05);
	END LOOP;
END $$;
VACUUM t;
SELECT visible('t');
SELECT fetches('SELECT count(id) FROM t') AS after_vacuum;

-- an update in place clears the bit of its page only
UPDATE t SET n = 1 WHERE id = 1;
-- (from 19 on the first row of a page that is fetched sets the page's bit again)
SELECT fetches('SELECT id FROM t WHERE id <= 3') > 0 AS page_changed, fetches('SELECT id FROM t WHERE id >= 990') AS page_not_changed;
-- row locks clear no bit
BEGIN;
SELECT id FROM t WHERE id = 1000 FOR UPDATE;
SELECT id FROM t WHERE id = 999 FOR KEY SHARE;
COMMIT;
SELECT fetches('SELECT id FROM t WHERE id >= 990') AS locked;
-- a deletion, and its rollback
BEGIN;
DELETE FROM t WHERE id = 995;
SELECT id FROM t WHERE id BETWEEN 994 AND 996;
ROLLBACK;
SELECT id FROM t WHERE id BETWEEN 994 AND 996;
SELECT * FROM zundo.check('t');
VACUUM t;
SELECT fetches('SELECT id FROM t WHERE id >= 990') AS again;
DELETE FROM t WHERE id = 995;
SELECT id FROM t WHERE id BETWEEN 994 AND 996;
-- dead rows: the VACUUM that removes their index entries also sets the bit
VACUUM t;
SELECT visible('t'), fetches('SELECT id FROM t WHERE id >= 990') AS cleaned;
DELETE FROM t WHERE id = 996;
VACUUM (INDEX_CLEANUP off) t;
SELECT visible('t') < 1 AS not_cleaned;
SELECT id FROM t WHERE id BETWEEN 994 AND 998;
SELECT * FROM zundo.check('t');
VACUUM t;
-- a row that moves: the bits of both pages are cleared
UPDATE t SET id = 2000 WHERE id = 2;
SELECT id FROM t WHERE id IN (1, 2, 3, 2000);
SELECT * FROM zundo.check('t');
VACUUM t;
-- insertions of one row and of many rows, speculative ones, and one that is given up
INSERT INTO t VALUES (3000);
SELECT id FROM t WHERE id >= 2000;
VACUUM t;
BEGIN;
INSERT INTO t SELECT g FROM generate_series(3001, 3005) g;
SELECT id FROM t WHERE id >= 2000;
ROLLBACK;
SELECT id FROM t WHERE id >= 2000;
VACUUM t;
INSERT INTO t VALUES (3000) ON CONFLICT DO NOTHING;
INSERT INTO t VALUES (3001), (3000) ON CONFLICT (id) DO UPDATE SET n = 7;
SELECT id FROM t WHERE id >= 2000;
SELECT * FROM zundo.check('t');
VACUUM t;
SELECT visible('t');

-- the file of the table is truncated, replaced, copied
DELETE FROM t WHERE id > 300;
VACUUM t;
SELECT count(id), fetches('SELECT count(id) FROM t'), visible('t') FROM t;
VACUUM FULL t;
SELECT fetches('SELECT count(id) FROM t') > 0 AS rewritten;
VACUUM t;
SELECT fetches('SELECT count(id) FROM t');
ANALYZE t;
SELECT visible('t');
SELECT * FROM zundo.check('t');
UPDATE t SET n = n + 1;
SELECT count(id), sum(n) FROM t;
SELECT * FROM zundo.check('t');

-- an unlogged table; the recovery that follows these tests replays set and cleared bits
CREATE UNLOGGED TABLE u (id int PRIMARY KEY) USING zheap WITH (autovacuum_enabled = off);
INSERT INTO u SELECT generate_series(1, 1000);
VACUUM u;
SELECT visible('u'), fetches('SELECT count(id) FROM u');
DELETE FROM u WHERE id = 7;
SELECT count(id) FROM u;
SELECT * FROM zundo.check('u');
DROP TABLE u;
VACUUM t;
UPDATE t SET n = 5 WHERE id = 200;
SELECT * FROM zundo.check('t');
