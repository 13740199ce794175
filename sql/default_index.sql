-- zundo.default_index: where no access method is named, an index of a zheap table is zbtree if it can be.
-- Before 18 unique ones are btree.
SELECT current_setting('server_version_num')::int < 180000 AS before_18 \gset
\set VERBOSITY terse
CREATE VIEW methods AS SELECT c.relname, a.amname, c.reloptions FROM pg_class c JOIN pg_am a ON a.oid = c.relam
	WHERE c.relkind IN ('i', 'I') AND c.relnamespace = 'public'::regnamespace ORDER BY relname COLLATE "C";
CREATE TABLE z (id int, a int, b text, j jsonb) USING zheap;
CREATE TABLE h (id int, a int, b text) USING heap;
INSERT INTO z SELECT g, g, g FROM generate_series(1, 10) g;
CREATE INDEX z_off ON z (a);
CREATE ROLE regress_no_rights;
SET ROLE regress_no_rights;
SET zundo.default_index = zbtree;
RESET ROLE;
DROP ROLE regress_no_rights;
SET zundo.default_index = hash;

-- whether the statement names a method
CREATE INDEX z_1 ON z (a);
CREATE INDEX z_2 ON z USING btree (a);
CREATE INDEX z_3 ON ONLY (z) (a); CREATE INDEX z_4 ON ONLY (z) USING btree (a); CREATE INDEX z_5 ON z (a) /* USING btree */ WHERE a > 5;
CREATE INDEX z_6 ON z -- USING btree (
	(a);
CREATE INDEX "using btree (" ON public.z (a);
CREATE TABLE "using" ("using" int, "btree" int) USING zheap;
CREATE INDEX ON "using" ("using");
CREATE INDEX IF NOT EXISTS u_2 ON "using" /* ( */ USING /* ( */ btree ("using");
CREATE INDEX U&"u_!0033" UESCAPE '!' ON U&"usin!0067" UESCAPE '!' (btree, (overlay('abc' PLACING 'x' FROM 1)));
CREATE INDEX CONCURRENTLY IF NOT EXISTS z_7 ON z (a DESC NULLS LAST) INCLUDE (b) WITH (fillfactor = 70) WHERE b IS DISTINCT FROM 'x USING btree';
CREATE INDEX CONCURRENTLY z_8 ON z USING btree (a);
CREATE INDEX z_9 ON z ((a + 1), lower(b), (b || b)) WITH (deduplicate_items = off);
CREATE UNIQUE INDEX z_unique_btree ON z USING btree (a);
SELECT 1 AS one\; CREATE INDEX z_11 ON z (a)\; CREATE INDEX z_12 ON z USING btree (a)\; CREATE INDEX z_13 ON z (b);
DO $$ BEGIN EXECUTE 'SELECT 1; CREATE INDEX z_14 ON z (a)'; CREATE INDEX z_15 ON z (a); CREATE INDEX z_16 ON z USING btree (a); EXECUTE format('CREATE INDEX %I ON z USING btree (a)', 'z_17'); END $$;
CREATE FUNCTION make() RETURNS void LANGUAGE sql AS 'CREATE INDEX z_18 ON z (a); CREATE INDEX z_19 ON z USING btree (a); SELECT';
SELECT make();
-- where it cannot be zbtree
CREATE INDEX z_gin ON z USING gin (j);
CREATE INDEX z_jsonb ON z (j);
CREATE TYPE pair AS (a int, b int);
ALTER TABLE z ADD p pair;
CREATE INDEX z_class ON z (p record_image_ops);
CREATE INDEX h_a ON h (a);
SELECT * FROM methods;
CREATE UNIQUE INDEX z_unique ON z (a);
SELECT amname = CASE WHEN :'before_18' THEN 'btree' ELSE 'zbtree' END AS expected FROM methods WHERE relname = 'z_unique';
DROP TABLE z, h, "using";
-- a partition that is being detached: the command ends before the last lock on the table is gone
CREATE TABLE p (a int) PARTITION BY RANGE (a);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10) USING zheap;
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20) USING heap;
BEGIN;
SELECT * FROM p;
PREPARE TRANSACTION 'p';
SET lock_timeout = '10ms';
ALTER TABLE p DETACH PARTITION p1 CONCURRENTLY;
RESET lock_timeout;
COMMIT PREPARED 'p';
SELECT relname, inhdetachpending, relispartition FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE inhparent = 'p'::regclass ORDER BY 1;
CREATE INDEX p1_a ON p1 (a);
CREATE INDEX p2_a ON p2 (a);
SELECT * FROM methods;
ALTER TABLE p1 ADD UNIQUE (a);
ALTER TABLE p DETACH PARTITION p1 FINALIZE;
DROP TABLE p, p1;

\if :before_18
\quit
\endif

-- constraints, also those of columns that a command adds
CREATE TABLE z (id int PRIMARY KEY, a int UNIQUE, b int UNIQUE WITH (fillfactor = 70), c int UNIQUE DEFERRABLE, d text, r int4range,
	UNIQUE NULLS NOT DISTINCT (d) INCLUDE (a), EXCLUDE (d WITH =), EXCLUDE USING gist (r WITH &&)) USING zheap;
ALTER TABLE z ADD e serial UNIQUE, ADD f int UNIQUE INITIALLY DEFERRED, ADD g int, ADD UNIQUE (g, a), ADD h bigint UNIQUE WITH (access_method = zbtree);
CREATE TABLE h (id int PRIMARY KEY) USING heap;
ALTER TABLE h ADD UNIQUE (id);
CREATE TABLE c (id int) USING zheap;
ALTER TABLE c SET ACCESS METHOD heap, ADD PRIMARY KEY (id);
ALTER TABLE c SET ACCESS METHOD zheap, ADD UNIQUE (id) WITH (access_method = zbtree);
CREATE TEMP TABLE t (id int PRIMARY KEY) USING zheap;
CREATE UNIQUE INDEX z_using ON z (a, b);
ALTER TABLE z ADD UNIQUE USING INDEX z_using;
-- the copy has the method of the original
SET zundo.default_index = btree;
CREATE TABLE o (id int PRIMARY KEY, a int) USING zheap;
CREATE INDEX o_a ON o USING zbtree (a);
CREATE INDEX o_e ON o ((a + 1)) WITH (access_method = zbtree);
SET zundo.default_index = zbtree;
CREATE TABLE o_like (LIKE o INCLUDING INDEXES, b int UNIQUE) USING zheap;
CREATE SCHEMA s CREATE TABLE s (id int PRIMARY KEY) USING zheap CREATE INDEX s_i ON s (id);
SELECT * FROM methods UNION ALL SELECT relname, amname, reloptions FROM pg_class c JOIN pg_am a ON a.oid = c.relam
	WHERE c.relkind = 'i' AND c.relnamespace IN ('s'::regnamespace, pg_my_temp_schema()) ORDER BY 1;
DROP TABLE z, h, c, o, o_like, s.s;
DROP SCHEMA s;

-- partitioned tables: all tables of a tree have the same answer
SET default_table_access_method = heap;
CREATE TABLE p0 (id int PRIMARY KEY) PARTITION BY RANGE (id);
SET default_table_access_method = zheap;
CREATE TABLE p (id int PRIMARY KEY, a int) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE TABLE p2 (a int, id int PRIMARY KEY);
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
CREATE INDEX p_a ON p (a);
CREATE TABLE m (id int, a int) PARTITION BY RANGE (id);
CREATE TABLE m1 PARTITION OF m FOR VALUES FROM (0) TO (10);
CREATE TABLE m2 PARTITION OF m FOR VALUES FROM (10) TO (20) USING heap;
CREATE INDEX m_a ON ONLY m (a);
CREATE INDEX m1_a ON m1 (a);
CREATE INDEX m2_a ON m2 (a);
ALTER INDEX m_a ATTACH PARTITION m1_a;
ALTER INDEX m_a ATTACH PARTITION m2_a;
ALTER TABLE m ADD PRIMARY KEY (id);
SELECT * FROM methods;
DROP TABLE p0, p, m;

-- an operator class that zbtree lacks
RESET default_table_access_method;
CREATE TABLE z (a int, b xid8) USING zheap;
DO $$ DECLARE o record; BEGIN
	FOR o IN SELECT * FROM (VALUES ('<', 'lt'), ('<=', 'le'), ('=', 'eq'), ('>=', 'ge'), ('>', 'gt')) v (op, name) LOOP
		EXECUTE format('CREATE FUNCTION pair_%s(pair, pair) RETURNS bool LANGUAGE internal IMMUTABLE STRICT AS %L', o.name, 'record_' || o.name);
		EXECUTE format('CREATE OPERATOR %s (FUNCTION = pair_%s, LEFTARG = pair, RIGHTARG = pair)', o.op, o.name);
	END LOOP;
END $$;
CREATE FUNCTION pair_cmp(pair, pair) RETURNS int LANGUAGE internal IMMUTABLE STRICT AS 'btrecordcmp';
CREATE OPERATOR CLASS pair_ops DEFAULT FOR TYPE pair USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 pair_cmp(pair, pair);
ALTER TABLE z ADD p pair UNIQUE, ADD q pair, ADD UNIQUE (q), ADD UNIQUE (a, b);
CREATE INDEX z_p ON z (p);
CREATE INDEX z_e ON z ((ROW(1, 2)::pair));
CREATE INDEX z_w ON z (a, b);
ALTER TABLE z ALTER a TYPE pair USING NULL, ADD UNIQUE (a);
ALTER TABLE z ADD r pair UNIQUE WITH (access_method = zbtree);
ALTER TABLE z ADD c int;
ALTER TABLE z ALTER c TYPE pair USING NULL, ADD UNIQUE (c);
\set VERBOSITY sqlstate
CREATE INDEX z_n ON z (missing);
\set VERBOSITY terse
CREATE INDEX z_n ON z ((missing + 1));
CREATE INDEX z_n ON missing (a);
SELECT * FROM methods;
DROP TABLE z;
DROP TYPE pair CASCADE;
