-- Commands for all tables of a database skip zundo.undo_log.
CREATE TABLE a (id int PRIMARY KEY, v text) USING zheap;
INSERT INTO a SELECT g, repeat('x', 100) FROM generate_series(1, 2000) g;
DELETE FROM a WHERE id % 4 > 0;
CREATE TABLE h (id int PRIMARY KEY, v text) USING heap;
INSERT INTO h SELECT * FROM a;
CREATE MATERIALIZED VIEW m USING zheap AS SELECT id FROM a;
CREATE TABLE p (id int) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10) USING zheap;
CREATE TEMP TABLE was AS SELECT oid, relfilenode FROM pg_class WHERE oid IN ('a'::regclass, 'h'::regclass, 'm'::regclass, 'p1'::regclass, 'zundo.undo_log'::regclass);
CREATE TEMP VIEW moved AS SELECT oid::regclass AS name FROM pg_class JOIN was USING (oid) WHERE pg_class.relfilenode <> was.relfilenode ORDER BY 1;
VACUUM FULL;
TABLE moved;
SELECT pg_relation_size('a') / 8192 AS pages, count(*) FROM a;
UPDATE was SET relfilenode = pg_relation_filenode(oid);
-- zundo.undo_log in a list of tables, and alone
VACUUM (FULL, ANALYZE) zundo.undo_log, a;
TABLE moved;
SELECT reltuples FROM pg_class WHERE oid = 'a'::regclass;
VACUUM FULL zundo.undo_log;
VACUUM (FULL false) zundo.undo_log;
VACUUM zundo.undo_log, a;
ANALYZE zundo.undo_log;
-- not within a function or a transaction block, as for any table
BEGIN;
VACUUM FULL;
ROLLBACK;
-- a role without rights
CREATE ROLE regress_whole;
SET ROLE regress_whole;
SET client_min_messages = error;
VACUUM FULL;
RESET client_min_messages;
RESET ROLE;
DROP ROLE regress_whole;
-- other commands
CLUSTER a USING a_pkey;
CLUSTER;
VACUUM (FREEZE, ANALYZE);
ANALYZE;
SELECT format('REINDEX DATABASE %I', current_database()) \gexec
REINDEX SCHEMA zundo;
SELECT count(*), sum(id) FROM a;
SELECT count(*) FROM m;
SELECT zundo.check('a');
SELECT zundo.check('m');
SELECT zundo.check('zundo.undo_log');
DROP VIEW moved;
DROP TABLE a, h, p, was CASCADE;
