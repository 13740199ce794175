-- zundo.xmin_or_own, which the planner puts into queries: only the extension's own, and for all roles
SET client_min_messages = warning;
SELECT current_database() AS here \gset
CREATE DATABASE or_own TEMPLATE template0;
CREATE ROLE or_own_reader;
\c or_own
SET client_min_messages = warning;
-- without the extension anybody may have made a function of this name
CREATE SCHEMA zundo;
CREATE FUNCTION zundo.xmin_or_own(xid, cid, oid) RETURNS xid LANGUAGE plpgsql AS $$ BEGIN RAISE 'called by %', current_user; END $$;
CREATE TABLE p (id int) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
BEGIN;
INSERT INTO p VALUES (1);
SELECT count(*) FROM p WHERE xmin = pg_current_xact_id()::xid;
COMMIT;
DROP SCHEMA zundo CASCADE;
-- nobody but the owner may execute new functions
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
CREATE EXTENSION zundo;
CREATE TABLE z (id int PRIMARY KEY, n int) USING zheap;
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20) USING zheap;
INSERT INTO z VALUES (1, 1), (2, 2);
GRANT SELECT, INSERT, UPDATE ON z, p TO or_own_reader;
SET ROLE or_own_reader;
BEGIN;
UPDATE z SET n = n + 1 WHERE id = 1;
INSERT INTO p VALUES (3), (13);
SELECT id FROM z WHERE xmin = pg_current_xact_id()::xid;
SELECT id, xmin = pg_current_xact_id()::xid AS mine FROM p ORDER BY id;
INSERT INTO z VALUES (1, 0) ON CONFLICT (id) DO UPDATE SET n = 9 WHERE z.xmin <> pg_current_xact_id()::xid RETURNING n;
SELECT id FROM z WHERE zundo.xmin_or_own(xmin, cmax, tableoid) = pg_current_xact_id()::xid;
ROLLBACK;
RESET ROLE;
\c :here
DROP DATABASE or_own;
DROP ROLE or_own_reader;
