-- When VACUUM cleans the indexes: as on heap, not for dead rows on less than 2 % of the pages, unless the command requests it.
CREATE TABLE t (id int PRIMARY KEY, filler text) USING zheap WITH (autovacuum_enabled = off, fillfactor = 100);
INSERT INTO t SELECT g, repeat('x', 700) FROM generate_series(1, 2000) g;
-- returns the number of index entries that a VACUUM has left to a later one
CREATE FUNCTION dead(OUT t bigint, OUT pages bigint) LANGUAGE sql AS $$
	SELECT count(*), count(DISTINCT block)
	FROM generate_series(0, pg_relation_size('t') / 8192 - 1) block, zundo.page_items('t', block) i WHERE i.lp_state = 'dead' $$;
SELECT pg_relation_size('t') / 8192 BETWEEN 150 AND 250 AS enough_pages;
-- the undo worker, which has just been started, has a snapshot while it connects to the database; VACUUM must see all rows as old
DO $$ BEGIN
	FOR i IN 1..600 LOOP
		EXIT WHEN zundo.undo_bytes_in_use() = 0;
		PERFORM pg_sleep(0.05);
	END LOOP;
END $$;
VACUUM t;

-- dead rows on three pages: the indexes are not cleaned
DELETE FROM t WHERE id <= 22 OR id = 1000;
VACUUM t;
SELECT t, pages FROM dead();
SELECT count(*) FROM t WHERE id IN (1, 2, 3, 23, 1000);
-- the rows' room is used again nevertheless, since their deletion has committed
SELECT pg_relation_size('t') AS size \gset
INSERT INTO t SELECT g, repeat('y', 700) FROM generate_series(3001, 3015) g;
SELECT pg_relation_size('t') = :size AS same_size;
SET enable_seqscan = off;
SELECT id, left(filler, 1) FROM t WHERE id < 24 OR id IN (1000, 1001) OR id > 3012 ORDER BY id;
SELECT * FROM zundo.check('t');
-- INDEX_CLEANUP on
VACUUM (INDEX_CLEANUP on) t;
SELECT t, pages FROM dead();
-- INDEX_CLEANUP off
DELETE FROM t WHERE id % 10 = 0;
VACUUM (INDEX_CLEANUP off) t;
SELECT t > 100 AS many FROM dead();
-- dead rows on many pages: the indexes are cleaned
VACUUM t;
SELECT t, pages FROM dead();
SELECT count(*) FROM t WHERE id > 0;
-- the setting of a table
ALTER TABLE t SET (vacuum_index_cleanup = on);
DELETE FROM t WHERE id = 55;
VACUUM t;
SELECT t, pages FROM dead();
ALTER TABLE t SET (vacuum_index_cleanup = auto);
-- dead rows on the last page only, behind pages that are empty already
DELETE FROM t WHERE id > 1000 AND id < 3000;
VACUUM t;
DELETE FROM t WHERE id = (SELECT id FROM t ORDER BY ctid DESC LIMIT 1);
VACUUM t;
SELECT * FROM zundo.check('t');
SELECT count(*) FROM t;
SELECT count(*) FROM t WHERE id > 0;
-- the failsafe: of a very old table VACUUM does only what lets relfrozenxid advance
DELETE FROM t WHERE id > 500;
SELECT relfrozenxid AS frozen FROM pg_class WHERE oid = 't'::regclass \gset
SET allow_system_table_mods = on;
SET vacuum_failsafe_age = 0;
UPDATE pg_class SET relfrozenxid = '3800000000' WHERE oid = 't'::regclass;
VACUUM (INDEX_CLEANUP on) t;
SELECT t > 100 AS many FROM dead();
SELECT * FROM zundo.check('t');
UPDATE pg_class SET relfrozenxid = :'frozen' WHERE oid = 't'::regclass;
-- the same where the first blocks are skipped because they are all-visible
CREATE TABLE skipped (id int PRIMARY KEY, f text) USING zheap WITH (autovacuum_enabled = off);
ALTER TABLE skipped ALTER f SET STORAGE PLAIN;
INSERT INTO skipped SELECT g, repeat('x', 500) FROM generate_series(1, 2000) g;
RESET vacuum_failsafe_age;
VACUUM skipped;
SET vacuum_failsafe_age = 0;
UPDATE pg_class SET relfrozenxid = '3800000000' WHERE oid = 'skipped'::regclass;
VACUUM (INDEX_CLEANUP on, PROCESS_TOAST off) skipped;
DROP TABLE skipped;
RESET allow_system_table_mods;
RESET vacuum_failsafe_age;
VACUUM t;
SELECT t, pages FROM dead();
SELECT count(*) FROM t WHERE id > 0;
-- a small table: one page is more than 2 % of it
CREATE TABLE small (id int PRIMARY KEY) USING zheap WITH (autovacuum_enabled = off);
INSERT INTO small SELECT generate_series(1, 50);
DELETE FROM small WHERE id = 7;
VACUUM small;
SELECT count(*) FROM zundo.page_items('small', 0) WHERE lp_state = 'dead';
DROP TABLE t, small;
DROP FUNCTION dead;
