-- What is refused, with which words, and that the session and the table go on.
SET client_min_messages = warning;
CREATE EXTENSION zundo;
CREATE TABLE b (id int PRIMARY KEY, t text) USING zheap;
INSERT INTO b VALUES (1, 'one');
-- sizes
CREATE TABLE wide (id int, t text, u text) USING zheap;
ALTER TABLE wide ALTER t SET STORAGE PLAIN, ALTER u SET STORAGE PLAIN;
INSERT INTO wide VALUES (1, repeat('x', 8000), '');
INSERT INTO wide VALUES (2, repeat('x', 9000), '');
UPDATE wide SET u = repeat('y', 1000);
SELECT id, length(t), length(u) FROM wide;
DO $$ BEGIN EXECUTE (SELECT 'CREATE TABLE many (' || string_agg('c' || g || ' int', ', ') || ') USING zheap' FROM generate_series(1, 1600) g); END $$;
DO $$ BEGIN EXECUTE (SELECT 'INSERT INTO many VALUES (' || string_agg(CASE WHEN g % 3 = 0 THEN 'NULL' ELSE g::text END, ', ') || ')' FROM generate_series(1, 1600) g); END $$;
SELECT c1, c2, c3, c1599, c1600 FROM many;
UPDATE many SET c3 = 3, c1600 = NULL;
SELECT c1, c2, c3, c1599, c1600 FROM many;
ALTER TABLE many ADD COLUMN one_more int;
-- the undo log is no table
SELECT * FROM zundo.undo_log;
TABLE zundo.undo_log;
INSERT INTO zundo.undo_log DEFAULT VALUES;
UPDATE zundo.undo_log SET ctid = NULL;
DELETE FROM zundo.undo_log;
TRUNCATE zundo.undo_log;
CLUSTER zundo.undo_log;
COPY zundo.undo_log TO stdout;
LOCK TABLE zundo.undo_log IN ACCESS EXCLUSIVE MODE;
ALTER TABLE zundo.undo_log SET ACCESS METHOD heap;
CREATE INDEX ON zundo.undo_log ((1));
DROP TABLE zundo.undo_log;
VACUUM zundo.undo_log;
ANALYZE zundo.undo_log;
SELECT * FROM zundo.check('zundo.undo_log');
CREATE TABLE mine (a int) USING zundo_undo;
-- settings
SET zundo.undo_compression = 'zip';
SET zundo.eager_rollback_pages = -1;
SET zundo.undo_limit = 5;
SET zundo.max_databases = 5;
SET zundo.fault = 'nonsense';
SET zundo.fault = 'nonsense:error';
SET zundo.fault = 'undo-alloc:explode';
SET zundo.unknown = 1;
SHOW zundo.fault;
-- functions
SELECT * FROM zundo.page_items('b', -1);
SELECT * FROM zundo.page_items('b', 100);
SELECT * FROM zundo.page_items('b_pkey', 0);
SELECT * FROM zundo.page_slots('pg_class', 0);
SELECT * FROM zundo.check('pg_class');
SELECT * FROM zundo.undo_records(NULL, -1);
BEGIN;
INSERT INTO b VALUES (2, 'two');
SELECT zundo.discard();
ROLLBACK;
-- who may do what
CREATE ROLE regress_zundo_nobody;
SET ROLE regress_zundo_nobody;
SELECT * FROM zundo.page_items('b', 0);
SELECT * FROM zundo.undo_records();
SELECT zundo.discard();
SELECT count(*) FROM zundo.stat_rollback;
SELECT count(*) >= 0 FROM zundo.stat_undo;
SELECT zundo.undo_bytes_in_use() >= 0;
SET zundo.fault = 'undo-alloc:error';
RESET ROLE;
DROP ROLE regress_zundo_nobody;
-- constraint violations in the middle of a statement
INSERT INTO b SELECT g, 'x' FROM generate_series(5, -5, -1) g;
UPDATE b SET id = 1 / (id - 1);
SELECT * FROM b;
-- the extension stays as long as its tables
DROP EXTENSION zundo;
SELECT * FROM b;
DROP ACCESS METHOD zheap;
DROP TABLE wide, many;
SELECT * FROM zundo.check('b');
DROP EXTENSION zundo CASCADE;
SELECT to_regclass('b');
CREATE TABLE b (id int) USING zheap;
CREATE EXTENSION zundo;
CREATE TABLE b (id int) USING zheap;
INSERT INTO b VALUES (1);
UPDATE b SET id = 2;
SELECT * FROM b;
DROP TABLE b;
