-- Modules of contrib on zheap tables: what looks at heap pages refuses and changes nothing, the rest works.
SELECT count(*) < 8 AS lacks_some FROM pg_available_extensions WHERE name IN ('pg_visibility', 'pgstattuple', 'pageinspect',
	'amcheck', 'pg_prewarm', 'pgrowlocks', 'pg_freespacemap', 'pg_surgery') \gset
\if :lacks_some
\echo skipped: the server lacks extensions of contrib
\quit
\endif
SET client_min_messages = warning;
CREATE EXTENSION pg_visibility;
CREATE EXTENSION pgstattuple;
CREATE EXTENSION pageinspect;
CREATE EXTENSION amcheck;
CREATE EXTENSION pg_prewarm;
CREATE EXTENSION pgrowlocks;
CREATE EXTENSION pg_freespacemap;
CREATE EXTENSION pg_surgery;
-- Rows whose bytes, read as a heap header, have a committed inserter and a deleter that is to be looked up.
CREATE TABLE v (c1 int, c2 int, c3 int, c4 int, c5 int) USING zheap;
INSERT INTO v SELECT 2, 2, 3, 4, 1 FROM generate_series(1, 50);
CREATE TABLE h (c1 int) USING heap;
INSERT INTO h SELECT generate_series(1, 50);
-- the undo worker, which has just been started, has a snapshot while it connects to the database; VACUUM must see all rows as old
DO $$ BEGIN
	FOR i IN 1..600 LOOP
		EXIT WHEN zundo.undo_bytes_in_use() = 0;
		PERFORM pg_sleep(0.05);
	END LOOP;
END $$;
VACUUM v, h;
SELECT * FROM pg_check_visible('v');
SELECT DISTINCT v FROM v;
SELECT (SELECT count(*) FROM pg_check_visible(c.oid::regclass)) FROM pg_class c WHERE relname = 'v';
DO $$ BEGIN PERFORM pg_check_visible('v'); EXCEPTION WHEN feature_not_supported THEN RAISE WARNING 'refused'; END $$;
CREATE FUNCTION other_name(regclass, OUT t_ctid tid) RETURNS SETOF tid AS '$libdir/pg_visibility', 'pg_check_visible' LANGUAGE C STRICT;
SELECT * FROM other_name('v');
SELECT DISTINCT v FROM v;
-- only calls of these functions are refused, and only for zheap tables
SELECT pg_relation_size('v');
SELECT * FROM pg_check_visible('h');
SELECT * FROM other_name('h');
SELECT count(*) FROM v;
-- other functions of pg_visibility work
SELECT * FROM pg_check_frozen('v');
SELECT * FROM pg_visibility_map_summary('v');
SELECT * FROM pg_visibility('v');
SELECT pg_truncate_visibility_map('v');
SELECT * FROM pg_visibility_map_summary('v');
VACUUM v;
SELECT * FROM pg_visibility_map('v');
SELECT * FROM zundo.check('v');
-- modules that refuse zheap tables themselves
\set VERBOSITY sqlstate
SELECT pgstattuple('v');
SELECT pgstattuple_approx('v');
SELECT * FROM pgrowlocks('v');
SELECT * FROM verify_heapam('v');
SELECT heap_force_kill('v'::regclass, ARRAY['(0,1)']::tid[]);
SELECT heap_force_freeze('v'::regclass, ARRAY['(0,1)']::tid[]);
-- modules that work on zheap tables
SELECT pg_relpages('v'), pg_prewarm('v'), pg_prewarm('v', 'read'), (SELECT count(*) FROM pg_freespace('v'));
SELECT special < pagesize AS slots, pagesize, version FROM page_header(get_raw_page('v', 0));
CREATE TABLE k (id int PRIMARY KEY, k int, s text) USING zheap;
INSERT INTO k SELECT g, g, 's' || g FROM generate_series(1, 2000) g;
CREATE INDEX k_k ON k (k);
CREATE INDEX k_s ON k (s) WHERE k % 2 = 0;
UPDATE k SET k = k + 1 WHERE id % 3 = 0;
UPDATE k SET k = k - 1, s = s || 'x' WHERE id % 3 = 0;
DELETE FROM k WHERE id % 7 = 0;
BEGIN;
UPDATE k SET k = -k, s = 'gone';
ROLLBACK;
SELECT bt_index_check(i, true), bt_index_parent_check(i, true, true) FROM unnest('{k_pkey,k_k,k_s}'::regclass[]) i;
VACUUM k;
SELECT bt_index_check(i, true), bt_index_parent_check(i, true, true) FROM unnest('{k_pkey,k_k,k_s}'::regclass[]) i;
SELECT * FROM zundo.check('v');
SELECT * FROM zundo.check('k');
DROP TABLE v, h, k;
