-- Views and functions for monitoring.
SET client_min_messages = warning;
CREATE TABLE m (id int PRIMARY KEY, n int, t text) USING zheap;
ALTER TABLE m SET (autovacuum_enabled = off);
CREATE TABLE h (id int PRIMARY KEY) USING heap;
-- a page with known contents
INSERT INTO m VALUES (1, 10, 'one'), (2, NULL, NULL), (3, 30, 'three');
UPDATE m SET n = 11 WHERE id = 1;
DELETE FROM m WHERE id = 3;
BEGIN;
SELECT id FROM m WHERE id = 2 FOR UPDATE;
SELECT lp, lp_state, len, natts, slot > 0 AS has_slot, row_state, flags, lock, substr(data, 6) AS columns FROM zundo.page_items('m', 0);
SELECT count(*) >= 4 AS slots, count(*) FILTER (WHERE xid = pg_current_xact_id()) AS own,
	bool_and((xid IS NULL) = (undo_ptr IS NULL)) AS consistent FROM zundo.page_slots('m', 0);
SELECT DISTINCT status FROM zundo.page_slots('m', 0) WHERE xid = pg_current_xact_id();
SELECT type, relation::regclass, block, item, nrows, cid FROM zundo.undo_records()
	WHERE relation = 'm'::regclass AND xid = pg_current_xact_id();
COMMIT;
-- undo in use grows, and becomes less when it is discarded
SELECT zundo.discard() >= 0;
SELECT zundo.undo_bytes_in_use() AS before \gset
BEGIN;
UPDATE m SET t = 'changed' || id;
INSERT INTO m SELECT g, g, 'bulk' FROM generate_series(10, 1000) g;
SELECT zundo.undo_bytes_in_use() > :before AS grows;
SELECT sum(bytes) = zundo.undo_bytes_in_use() AS adds_up FROM zundo.stat_undo;
SELECT attached, bytes > 0 AS bytes, extents, oldest_xid IS NOT NULL AS oldest FROM zundo.stat_undo WHERE pid = pg_backend_pid();
COMMIT;
-- what keeps undo from being discarded
SELECT kind, name FROM zundo.stat_horizon WHERE kind = 'prepared transaction' AND name LIKE 'monitoring%';
BEGIN;
UPDATE m SET n = n + 1 WHERE id = 10;
PREPARE TRANSACTION 'monitoring';
SELECT kind, name, pid, xid IS NOT NULL AS xid, age >= 0 AS age, since <= now() AS since FROM zundo.stat_horizon
	WHERE kind = 'prepared transaction' AND name LIKE 'monitoring%';
ROLLBACK PREPARED 'monitoring';
SELECT n FROM m WHERE id = 10;
-- sizes of both kinds of tables
SELECT schema, name, am, table_bytes = pg_relation_size(name::regclass) AS table_ok, index_bytes = pg_indexes_size(name::regclass) AS index_ok,
	total_bytes = pg_total_relation_size(name::regclass) AS total_ok FROM zundo.table_sizes WHERE name IN ('m', 'h') ORDER BY name;
SELECT am FROM zundo.table_sizes WHERE name = 'undo_log';
-- each view, each of its columns and each function has a comment
SELECT c.oid::regclass, a.attname FROM pg_depend d
	JOIN pg_class c ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND c.relkind IN ('v', 'm')
	JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
	WHERE d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zundo')
		AND (col_description(c.oid, a.attnum) IS NULL OR obj_description(c.oid, 'pg_class') IS NULL);
SELECT p.oid::regprocedure FROM pg_depend d
	JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
	WHERE d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zundo')
		AND obj_description(p.oid, 'pg_proc') IS NULL;
-- a DELETE of all rows that is rolled back
BEGIN;
DELETE FROM m;
ROLLBACK;
SELECT count(*) FROM m;
-- statistics: updates in place are HOT
CREATE TABLE st (id int PRIMARY KEY, n int, k int) USING zheap;
ALTER TABLE st SET (autovacuum_enabled = off);
CREATE INDEX ON st (k);
INSERT INTO st SELECT g, 0, 0 FROM generate_series(1, 20) g;
UPDATE st SET n = n + 1;
UPDATE st SET k = k + 1 WHERE id <= 5;
DELETE FROM st WHERE id = 20;
BEGIN;
UPDATE st SET n = 0 WHERE id = 1;
DELETE FROM st WHERE id = 2;
INSERT INTO st VALUES (21, 0, 0);
ROLLBACK;
SELECT pg_stat_force_next_flush();
SELECT n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del, n_live_tup FROM pg_stat_user_tables WHERE relname = 'st';
SELECT seq_scan >= 1 AS scanned, seq_tup_read >= 20 AS read FROM pg_stat_user_tables WHERE relname = 'st';
-- what the last statement did
UPDATE st SET n = n + 1 WHERE id BETWEEN 3 AND 5;
SELECT updated_in_place, moved, undo_written > 0 AS written, records_read, versions_rebuilt FROM zundo.last_statement();
SELECT updated_in_place FROM zundo.last_statement();
BEGIN;
UPDATE st SET k = k + 1 WHERE id = 3;
SELECT updated_in_place, moved FROM zundo.last_statement();
DO $$ BEGIN UPDATE st SET n = n + 1 WHERE id = 4; UPDATE st SET n = n + 1 WHERE id = 4; END $$;
ROLLBACK;
SELECT updated_in_place, moved FROM zundo.last_statement();
SELECT count(*) FROM st;
SELECT updated_in_place, moved, undo_written FROM zundo.last_statement();
SELECT schemaname, relname, updated_in_place, moved, undo_written > 0 AS undo_written, records_read > 0 AS records_read
	FROM zundo.stat_tables WHERE relid = 'st'::regclass;
-- an index build is a scan with its rows, as on heap
CREATE TABLE built (id int, n int) USING zheap;
INSERT INTO built SELECT g, g FROM generate_series(1, 50) g;
CREATE INDEX ON built (id);
CREATE INDEX CONCURRENTLY ON built (n);
SELECT pg_stat_force_next_flush();
SELECT seq_scan, seq_tup_read FROM pg_stat_user_tables WHERE relname = 'built';
DROP TABLE built;
VACUUM ANALYZE st;
SELECT pg_stat_force_next_flush();
SELECT n_live_tup, vacuum_count, analyze_count FROM pg_stat_user_tables WHERE relname = 'st';
SELECT reltuples FROM pg_class WHERE relname = 'st';
-- zundo.check of tables, and what it refuses
SELECT * FROM zundo.check('m');
SELECT * FROM zundo.check('st');
SELECT * FROM zundo.check('zundo.undo_log');
-- a check that is cancelled leaves the session as it was
CREATE TABLE large (id int, n int) USING zheap;
INSERT INTO large SELECT g, 0 FROM generate_series(1, 100000) g;
BEGIN;
SET LOCAL statement_timeout = 1;
\set VERBOSITY sqlstate
-- the server may forget why before it says so
SELECT * FROM zundo.check('large');
\set VERBOSITY default
ROLLBACK;
SELECT * FROM zundo.check('large');
DROP TABLE m, h, st, large;
