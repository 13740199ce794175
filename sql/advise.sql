-- zundo.advise: what it finds, and that its statements work.
SET client_min_messages = warning;
CREATE SCHEMA "The Shop";
SET search_path = "The Shop";
CREATE FUNCTION counted() RETURNS text LANGUAGE sql AS 'SELECT pg_stat_force_next_flush()::text';
CREATE VIEW advice AS SELECT relation, finding, reason, statement FROM zundo.advise()
	WHERE relation::text LIKE '"The Shop".%' OR relation::text !~ '[.]';
-- heap: updates without HOT, since the pages are full; a table with few updates; one whose updates are HOT
CREATE TABLE "Old Orders" (id int PRIMARY KEY, n int, pad text) USING heap WITH (autovacuum_enabled = off);
INSERT INTO "Old Orders" SELECT g, 0, repeat('x', 500) FROM generate_series(1, 2000) g;
UPDATE "Old Orders" SET n = n + 1;
CREATE TABLE few (id int PRIMARY KEY, n int) USING heap WITH (autovacuum_enabled = off);
INSERT INTO few SELECT g, 0 FROM generate_series(1, 900) g;
UPDATE few SET n = 1;
CREATE TABLE hot (id int PRIMARY KEY, n int) USING heap WITH (autovacuum_enabled = off, fillfactor = 40);
INSERT INTO hot SELECT g, 0 FROM generate_series(1, 20000) g;
UPDATE hot SET n = 1 WHERE id % 10 = 0;
SELECT counted();
SELECT relation, finding, regexp_replace(reason, '; the oldest snapshot is from .*', '') AS reason, statement FROM advice;
SELECT statement FROM advice WHERE finding = 'convert' \gset
:statement;
SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE c.oid = '"Old Orders"'::regclass;
SELECT pg_stat_reset_single_table_counters('"Old Orders"'::regclass) IS NOT NULL AS reset;
SELECT * FROM advice;
-- zheap: rows that move, for a column of a btree index has changed; unique indexes can be zbtree from 18 on, the other ones
-- cannot
CREATE TABLE moved (id int PRIMARY KEY, k int NOT NULL, u int NOT NULL, c text) USING zheap
	WITH (autovacuum_enabled = off, fillfactor = 70);
CREATE INDEX "moved k" ON moved (k DESC, c COLLATE "C" text_pattern_ops) INCLUDE (u);
CREATE UNIQUE INDEX moved_u ON moved (u);
CREATE INDEX moved_expression ON moved ((k + 1));
CREATE INDEX moved_partial ON moved (k) WHERE c LIKE 'a%';
CREATE INDEX moved_zbtree ON moved USING zbtree (c);
INSERT INTO moved SELECT g, g, g, 'c' FROM generate_series(1, 2000) g;
CREATE VIEW moved_by AS SELECT indexrelname, moved FROM zundo.stat_indexes WHERE relid = 'moved'::regclass ORDER BY 1;
UPDATE moved SET c = c;
SELECT * FROM moved_by;
UPDATE moved SET k = k + 1 WHERE id % 5 = 0;
SELECT * FROM advice WHERE relation = 'moved'::regclass;
-- one row is enough; indexes that were not evaluated count by their columns
UPDATE moved SET u = u + 5000 WHERE id = 7;
UPDATE moved SET id = 10000, c = 'b' WHERE id = 8;
SELECT relid = 'moved'::regclass AS of_it, schemaname, relname, indexrelname, moved FROM zundo.stat_indexes
	WHERE indexrelid = '"moved k"'::regclass;
SELECT * FROM moved_by;
SELECT updated_in_place, moved, moved_for_space FROM zundo.stat_tables WHERE relid = 'moved'::regclass;
SELECT finding, reason, statement FROM advice WHERE relation = 'moved'::regclass
	AND (statement !~ 'moved_u|moved_pkey' OR current_setting('server_version_num')::int < 180000);
SELECT count(*) = 2 * (current_setting('server_version_num')::int >= 180000)::int AS unique_from_18
	FROM advice WHERE statement ~ '^CALL zundo.set_index_method.."The Shop".moved_(u|pkey)'', ''zbtree''.$';
-- the statement works; the new index has its own count
SELECT statement FROM advice WHERE statement LIKE '%moved k%' \gset
:statement;
SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE c.oid = '"moved k"'::regclass;
DROP INDEX moved_expression, moved_partial;
UPDATE moved SET k = k + 1;
SELECT * FROM moved_by;
SELECT * FROM advice WHERE relation = 'moved'::regclass AND statement !~ 'moved_u|moved_pkey';
-- moved by a zbtree index: a value that is too long for an entry that is added later
CREATE TABLE long_key (id int, c text) USING zheap;
ALTER TABLE long_key ALTER c SET STORAGE PLAIN;
CREATE INDEX ON long_key USING zbtree (c);
INSERT INTO long_key VALUES (1, 'x');
UPDATE long_key SET c = repeat('x', 2100);
SELECT moved, moved_for_space, (SELECT moved FROM zundo.stat_indexes WHERE relid = 'long_key'::regclass) AS by_index
	FROM zundo.stat_tables WHERE relid = 'long_key'::regclass;
-- an included one, too
DROP INDEX long_key_c_idx;
UPDATE long_key SET c = 'x';
CREATE INDEX ON long_key USING zbtree (id) INCLUDE (c);
UPDATE long_key SET c = 'y';
UPDATE long_key SET c = repeat('x', 2100);
SELECT indexrelname, moved FROM zundo.stat_indexes WHERE relid = 'long_key'::regclass;
-- temporary tables are not counted
CREATE TEMP TABLE own (id int PRIMARY KEY) USING zheap;
INSERT INTO own VALUES (1);
UPDATE own SET id = 2;
SELECT count(*) FROM zundo.stat_indexes WHERE relname = 'own';
-- a class that zbtree lacks: no advice to fail with
CREATE OPERATOR CLASS own_ops FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 3 =, FUNCTION 1 btint4cmp(int, int);
CREATE INDEX moved_own ON moved (k own_ops);
UPDATE moved SET k = k + 1;
SELECT * FROM moved_by;
SELECT statement FROM advice WHERE relation = 'moved'::regclass AND statement ~ 'moved_own';
-- zheap: rows that outgrow their pages
CREATE TABLE grown (id int, pad text) USING zheap WITH (autovacuum_enabled = off);
INSERT INTO grown SELECT g, 'x' FROM generate_series(1, 4000) g;
UPDATE grown SET pad = repeat('x', 200);
SELECT finding, reason ~ '^[0-9]+ of 4000 updates moved the row because its page was full, with fillfactor 100$' AS numbers, statement
	FROM advice WHERE relation = 'grown'::regclass;
ALTER TABLE "The Shop".grown SET (fillfactor = 90);
SELECT statement FROM advice WHERE relation = 'grown'::regclass;
ALTER TABLE "The Shop".grown SET (fillfactor = 70);
SELECT * FROM advice WHERE relation = 'grown'::regclass;
-- an index that a failed build has left; not that of a build in progress
CREATE TABLE twice (id int, n int) USING zheap;
INSERT INTO twice VALUES (1, 1), (1, 2);
\set VERBOSITY terse
CREATE UNIQUE INDEX CONCURRENTLY "twice id" ON twice (id);
UPDATE twice SET id = 3 WHERE n = 1;
SELECT relation, finding, reason, statement FROM advice WHERE relation = 'twice'::regclass;
BEGIN;
LOCK TABLE twice IN SHARE UPDATE EXCLUSIVE MODE;
SELECT count(*) FROM advice WHERE relation = 'twice'::regclass;
COMMIT;
SELECT statement FROM advice WHERE relation = 'twice'::regclass \gset
:statement;
SELECT count(*) FROM advice WHERE relation = 'twice'::regclass;
-- tables that the caller may not read are left out
UPDATE twice SET id = 1;
CREATE UNIQUE INDEX CONCURRENTLY "twice id" ON twice (id);
CREATE ROLE regress_advised;
GRANT USAGE ON SCHEMA "The Shop" TO regress_advised;
SET ROLE regress_advised;
SELECT count(*) FROM zundo.advise() WHERE relation = 'twice'::regclass;
RESET ROLE;
GRANT SELECT ON twice TO regress_advised;
SET ROLE regress_advised;
SELECT count(*) FROM zundo.advise() WHERE relation = 'twice'::regclass;
RESET ROLE;
REVOKE ALL ON twice FROM regress_advised;
ALTER TABLE twice OWNER TO regress_advised;
SET ROLE regress_advised;
SELECT count(*) FROM zundo.advise() WHERE relation = 'twice'::regclass;
RESET ROLE;
DROP SCHEMA "The Shop" CASCADE;
DROP ROLE regress_advised;
