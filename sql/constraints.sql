-- Constraints whose index is zbtree: WITH (access_method = zbtree). Before 18 it is btree, with a notice.
SELECT current_setting('server_version_num')::int < 180000 AS before_18 \gset
\set VERBOSITY terse
CREATE VIEW methods AS SELECT c.relname, a.amname, c.reloptions FROM pg_class c JOIN pg_am a ON a.oid = c.relam
	WHERE c.relkind IN ('i', 'I') AND c.relnamespace = 'public'::regnamespace ORDER BY 1;
CREATE TABLE z (id int PRIMARY KEY WITH (access_method = zbtree), a int UNIQUE WITH (fillfactor = 70, access_method = 'ZBTREE'), n int,
	CONSTRAINT z_n UNIQUE NULLS NOT DISTINCT (n) INCLUDE (a) WITH (access_method = zbtree)) USING zheap;
ALTER TABLE z ADD b int UNIQUE WITH (access_method = zbtree), ADD t text, ADD UNIQUE (t, a) WITH (access_method = zbtree);
CREATE TABLE z_like (LIKE z INCLUDING INDEXES) USING zheap;
CREATE UNIQUE INDEX z_index ON z (t) WITH (access_method = zbtree);
SELECT * FROM methods;
SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'z_pkey';

\if :before_18
\quit
\endif
-- what constraints do: updates in place, duplicates, ON CONFLICT, foreign keys, replica identity
INSERT INTO z (id, a, n, b, t) SELECT g, g, g, g, g FROM generate_series(1, 5) g;
UPDATE z SET id = id + 10 RETURNING ctid, id;
UPDATE z SET id = id - 10;
UPDATE z SET id = 2 WHERE id = 1;
INSERT INTO z (id) VALUES (3);
INSERT INTO z (id) VALUES (6);
INSERT INTO z (id) VALUES (7);
INSERT INTO z (id, a) VALUES (3, 100) ON CONFLICT (id) DO UPDATE SET a = excluded.a RETURNING id, a;
INSERT INTO z (id, a) VALUES (8, 100) ON CONFLICT ON CONSTRAINT z_a_key DO UPDATE SET id = 9 RETURNING id, a;
INSERT INTO z (id, a) VALUES (9, 3) ON CONFLICT DO NOTHING RETURNING id;
CREATE TABLE r (id int REFERENCES z ON UPDATE CASCADE, a int REFERENCES z (a)) USING zheap;
INSERT INTO r VALUES (9, 100);
INSERT INTO r VALUES (3, 100);
UPDATE z SET id = 3 WHERE id = 9;
SELECT * FROM r;
DELETE FROM z WHERE id = 3;
MERGE INTO z USING (VALUES (1), (20)) v (x) ON id = x WHEN MATCHED THEN UPDATE SET id = 21 WHEN NOT MATCHED THEN INSERT (id, n) VALUES (x, x);
SELECT id, a, n FROM z ORDER BY id;
EXPLAIN (COSTS OFF) SELECT r.id FROM r LEFT JOIN z ON z.id = r.id;
SELECT count(*) FROM methods, zundo.check_index(relname::regclass) WHERE relname LIKE 'z\_%';
ALTER TABLE z CLUSTER ON z_pkey;
REINDEX INDEX CONCURRENTLY z_pkey;
REINDEX TABLE z;
CLUSTER z;
VACUUM FULL z;
SELECT * FROM methods WHERE relname = 'z_pkey';

-- what the parameter does not allow
ALTER INDEX z_pkey RESET (access_method);
ALTER TABLE z_pkey SET (fillfactor = 80, access_method = btree);
ALTER INDEX z_pkey SET (fillfactor = 80);
CREATE INDEX z_wrong ON z (t) WITH (access_method = hash);
CREATE INDEX z_wrong ON z USING zbtree (t) WITH (access_method = btree);
CREATE INDEX z_wrong ON z USING gist (t) WITH (access_method = zbtree);
-- another type: the constraint stays zbtree, with all that depends on it
COMMENT ON CONSTRAINT z_pkey ON z IS 'constraint';
COMMENT ON INDEX z_pkey IS 'index';
ALTER TABLE z REPLICA IDENTITY USING INDEX z_pkey;
ALTER TABLE z ALTER id TYPE bigint, ALTER n TYPE bigint USING n * 2;
CREATE VIEW keys AS SELECT relname, amname, reloptions, indisprimary, indisclustered, indisreplident, obj_description(conindid, 'pg_class') AS index_comment, obj_description(o.oid, 'pg_constraint') AS comment
	FROM pg_constraint o JOIN pg_class c ON c.oid = conindid JOIN pg_index ON indexrelid = conindid JOIN pg_am a ON a.oid = relam WHERE contype IN ('p', 'u') AND conrelid::regclass::text IN ('z', 'v', 'w') ORDER BY 1;
SELECT * FROM keys;
INSERT INTO z (id) VALUES (2);
INSERT INTO r VALUES (1000);
DELETE FROM z WHERE id = 3;
SELECT count(*) FROM methods, zundo.check_index(relname::regclass) WHERE relname LIKE 'z\_%';
CREATE VIEW v_grouped AS SELECT id, a, t FROM z GROUP BY id;
ALTER TABLE z ALTER id TYPE numeric;
DROP VIEW v_grouped;
ALTER TABLE z ALTER id TYPE int, ADD UNIQUE USING INDEX z_index;
-- what comes later in the command, and its event triggers, find the constraint
BEGIN;
CREATE FUNCTION find() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '% %', tg_event, (SELECT array_agg(relname) FROM keys WHERE indisprimary); END $$;
CREATE EVENT TRIGGER find_1 ON table_rewrite EXECUTE FUNCTION find();
CREATE EVENT TRIGGER find_2 ON sql_drop EXECUTE FUNCTION find();
CREATE EVENT TRIGGER find_3 ON ddl_command_end EXECUTE FUNCTION find();
ALTER TABLE z ALTER id TYPE int, ADD parent int REFERENCES z;
ALTER TABLE z DROP parent, ALTER id TYPE bigint;
ROLLBACK;
-- one that drops the index before the command has made it again
BEGIN;
CREATE FUNCTION lose() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN DROP INDEX IF EXISTS z_pkey CASCADE; END $$;
CREATE EVENT TRIGGER lose ON ddl_command_start WHEN tag IN ('ALTER TABLE') EXECUTE FUNCTION lose();
ALTER TABLE z ALTER id TYPE int;
ROLLBACK;
ALTER TABLE z ALTER id TYPE bigint, ADD CONSTRAINT z_pkey CHECK (id > 0);
ALTER TABLE z ALTER id TYPE bigint, ADD PRIMARY KEY (b);
SELECT count(*) FROM keys WHERE comment = 'constraint' AND index_comment = 'index';
CREATE TABLE v (x int, y int, UNIQUE (x, y) WITH (access_method = zbtree)) USING zheap;
ALTER TABLE v DROP COLUMN x, ALTER y TYPE bigint;
DROP TABLE v;
CREATE TABLE v (base int, x int GENERATED ALWAYS AS (base) STORED, y int, UNIQUE (x, y) WITH (access_method = zbtree)) USING zheap;
ALTER TABLE v DROP COLUMN base CASCADE, ALTER y TYPE bigint;
DROP TABLE v;
-- a table that inherits a column may keep it, and with ONLY is not changed
CREATE TABLE v (x int, y int, z int GENERATED ALWAYS AS (y) STORED) USING zheap;
CREATE TABLE w (x int, UNIQUE (x, y) WITH (access_method = zbtree), PRIMARY KEY (z) WITH (access_method = zbtree)) INHERITS (v) USING zheap;
INSERT INTO w VALUES (1, 1), (2, 2);
ALTER TABLE ONLY v ALTER z SET EXPRESSION AS (y + 1);
SELECT * FROM w;
ALTER TABLE v ALTER z SET EXPRESSION AS (y + 2);
SELECT * FROM w;
ALTER TABLE v DROP COLUMN x, DROP COLUMN z, ALTER y TYPE bigint;
SELECT * FROM keys WHERE relname ~ '^w';
INSERT INTO w VALUES (1, 1);
DROP TABLE v, w;
CREATE TABLE v (k varchar(10) PRIMARY KEY WITH (access_method = zbtree)) USING zheap;
CREATE TABLE w (UNIQUE (k) WITH (access_method = zbtree)) INHERITS (v) USING zheap;
INSERT INTO v VALUES ('a'), ('b');
SELECT pg_relation_filenode('v_pkey') AS file \gset
ALTER TABLE v ALTER k TYPE varchar(20);
SELECT pg_relation_filenode('v_pkey') = :file AS "not built again";
BEGIN;
ALTER TABLE v ALTER k TYPE text COLLATE "C";
SAVEPOINT s;
ALTER TABLE v ALTER k TYPE int USING k::int;
ROLLBACK TO s;
COMMIT;
INSERT INTO v VALUES ('a');

-- USING INDEX
CREATE TABLE u (a int, b int, c text COLLATE "C", n int) USING zheap;
INSERT INTO u VALUES (1, 1, 1, 1), (2, 2, 2, NULL);
CREATE UNIQUE INDEX u_a ON u USING zbtree (a) INCLUDE (b) WITH (fillfactor = 80);
CREATE UNIQUE INDEX u_b ON u USING zbtree (b);
CREATE UNIQUE INDEX u_n ON u USING zbtree (n);
CREATE UNIQUE INDEX u_1 ON u USING zbtree (a DESC);
CREATE UNIQUE INDEX u_2 ON u USING zbtree (c COLLATE "POSIX");
CREATE UNIQUE INDEX u_3 ON u USING zbtree (c text_pattern_ops);
CREATE UNIQUE INDEX u_4 ON u USING zbtree (a) WHERE a > 0;
CREATE UNIQUE INDEX u_5 ON u USING zbtree ((a + 1));
CREATE UNIQUE INDEX u_6 ON u USING zbtree (a) NULLS NOT DISTINCT;
CREATE INDEX u_7 ON u USING zbtree (a);
CREATE UNIQUE INDEX u_8 ON u USING zbtree (a, b, a);
ALTER TABLE u ADD UNIQUE USING INDEX u_1;
ALTER TABLE u ADD UNIQUE USING INDEX u_2;
ALTER TABLE u ADD UNIQUE USING INDEX u_3;
ALTER TABLE u ADD UNIQUE USING INDEX u_4;
ALTER TABLE u ADD UNIQUE USING INDEX u_5;
ALTER TABLE u ADD PRIMARY KEY USING INDEX u_6;
ALTER TABLE u ADD UNIQUE USING INDEX u_7;
ALTER TABLE u ADD UNIQUE USING INDEX u_8;
ALTER TABLE u ADD PRIMARY KEY USING INDEX u_8;
ALTER TABLE u ADD UNIQUE USING INDEX u_b DEFERRABLE;
ALTER TABLE u DROP COLUMN b, ADD UNIQUE USING INDEX u_b;
-- with a column, one that is generated from it
BEGIN;
CREATE UNIQUE INDEX u_9 ON u USING zbtree (b) INCLUDE (c);
ALTER TABLE u ADD base int, ADD gen int GENERATED ALWAYS AS (base) STORED, ADD other int;
CREATE UNIQUE INDEX u_gen ON u USING zbtree (gen);
SAVEPOINT s;
ALTER TABLE u DROP COLUMN base CASCADE, ADD UNIQUE USING INDEX u_gen;
ROLLBACK TO s;
ALTER TABLE u DROP COLUMN base CASCADE, ADD UNIQUE USING INDEX u_9;
ROLLBACK;
-- the index of another table is not locked
BEGIN;
SELECT count(*) FROM z;
PREPARE TRANSACTION 'z';
SET lock_timeout = '10ms';
ALTER TABLE u ADD UNIQUE USING INDEX z_index;
RESET lock_timeout;
COMMIT PREPARED 'z';
ALTER TABLE u ADD PRIMARY KEY USING INDEX u_n;
ALTER TABLE u ADD CONSTRAINT u_x UNIQUE USING INDEX u_b, ADD CONSTRAINT u_y UNIQUE USING INDEX u_b;
ALTER TABLE u ADD CONSTRAINT u_key PRIMARY KEY USING INDEX u_a, ADD UNIQUE USING INDEX u_b;
ALTER TABLE u ADD UNIQUE USING INDEX u_b;
SELECT conname, contype, amname, reloptions, pg_get_constraintdef(o.oid) FROM pg_constraint o JOIN pg_class c ON c.oid = conindid JOIN pg_am a ON a.oid = relam WHERE conrelid = 'u'::regclass AND contype <> 'n' ORDER BY 1;
SELECT attname, attnotnull FROM pg_attribute WHERE attrelid = 'u'::regclass AND attnum > 0;
ALTER TABLE u DROP CONSTRAINT u_key, ADD PRIMARY KEY USING INDEX u_6;
ALTER TABLE u ALTER b TYPE bigint, ALTER a TYPE bigint;
INSERT INTO u VALUES (2, 3);
DROP TABLE u, v, w;
SELECT * FROM keys;
-- a primary key does not accept NOT NULL constraints that are not valid, or not inherited
CREATE TABLE v (id int) USING zheap;
CREATE TABLE w () INHERITS (v) USING zheap;
CREATE UNIQUE INDEX w_id ON w USING zbtree (id);
INSERT INTO w VALUES (NULL), (NULL);
ALTER TABLE v ADD CONSTRAINT n NOT NULL id NOT VALID;
ALTER TABLE w ADD PRIMARY KEY USING INDEX w_id;
ALTER TABLE v DROP CONSTRAINT n;
ALTER TABLE w ADD PRIMARY KEY USING INDEX w_id;
TRUNCATE w;
ALTER TABLE w ADD CONSTRAINT n NOT NULL id NO INHERIT;
ALTER TABLE ONLY w ADD PRIMARY KEY USING INDEX w_id;
ALTER TABLE w DROP CONSTRAINT n;
ALTER TABLE ONLY w ADD PRIMARY KEY USING INDEX w_id;
SELECT * FROM keys WHERE relname = 'w_id';
INSERT INTO w VALUES (NULL);
DROP TABLE v, w;
-- an index without it
CREATE UNIQUE INDEX z_without ON z USING zbtree (b);
SELECT * FROM methods WHERE relname = 'z_pkey';
DROP INDEX z_without;

-- where the index cannot be zbtree
\set VERBOSITY default
CREATE TABLE h (id int PRIMARY KEY WITH (access_method = zbtree, fillfactor = 50)) USING heap;
ALTER TABLE h ADD a int UNIQUE WITH (access_method = zbtree);
CREATE TABLE h_like (LIKE z INCLUDING INDEXES) USING heap;
CREATE TABLE copied (a int, b text) USING zheap;
CREATE UNIQUE INDEX copied_index ON copied USING zbtree (a, (b || b) text_pattern_ops) INCLUDE (b) WITH (fillfactor = 70) WHERE a > 5;
CREATE TABLE h_copy (LIKE copied INCLUDING INDEXES) USING heap;
SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'h_copy'::regclass;
DROP TABLE h_copy, copied;
CREATE TABLE d (id int PRIMARY KEY WITH (access_method = zbtree) DEFERRABLE) USING zheap;
ALTER TABLE d ADD a int UNIQUE WITH (access_method = zbtree) DEFERRABLE, ADD UNIQUE (id, a) WITH (access_method = zbtree) DEFERRABLE;
ALTER TABLE d ADD b int UNIQUE WITH (access_method = zbtree) INITIALLY DEFERRED;
ALTER TABLE d ADD c int UNIQUE WITH (access_method = zbtree) REFERENCES z DEFERRABLE, ADD e int REFERENCES z INITIALLY DEFERRED UNIQUE WITH (access_method = zbtree) NOT DEFERRABLE;
CREATE OPERATOR CLASS other_ops FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 3 =, OPERATOR 5 >, FUNCTION 1 btint4cmp(int, int);
CREATE UNIQUE INDEX d_class ON d (a other_ops) WITH (access_method = zbtree);
\set VERBOSITY terse
SELECT * FROM methods WHERE relname ~ '^[hd]_';
-- a temporary table
CREATE TEMP TABLE temporary (id int PRIMARY KEY WITH (access_method = zbtree)) USING zheap;
INSERT INTO temporary VALUES (1), (2);
UPDATE temporary SET id = id + 10 RETURNING ctid, id;
INSERT INTO temporary VALUES (12);
INSERT INTO temporary VALUES (2);
ALTER TABLE temporary ADD a int;
CREATE UNIQUE INDEX temporary_a ON temporary USING zbtree (a);
ALTER TABLE temporary ADD UNIQUE USING INDEX temporary_a;
ALTER TABLE temporary ALTER id TYPE bigint, ALTER a TYPE bigint;
SELECT relname, amname, reloptions FROM pg_constraint JOIN pg_class c ON c.oid = conindid JOIN pg_am a ON a.oid = relam WHERE conrelid = 'temporary'::regclass ORDER BY 1;

-- partitions
SET default_table_access_method = zheap;
CREATE TABLE p (id int PRIMARY KEY WITH (access_method = zbtree), v int) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id);
CREATE TABLE p21 PARTITION OF p2 FOR VALUES FROM (10) TO (20);
CREATE TABLE p3 (id int PRIMARY KEY WITH (access_method = zbtree), v int);
ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30);
CREATE TABLE p4 (id int NOT NULL, v int);
ALTER TABLE p ATTACH PARTITION p4 FOR VALUES FROM (30) TO (40);
CREATE TABLE p5 PARTITION OF p FOR VALUES FROM (40) TO (50) USING heap;
SELECT * FROM methods WHERE relname ~ '^p';
CREATE TABLE p6 (id int PRIMARY KEY, v int);
ALTER TABLE p ATTACH PARTITION p6 FOR VALUES FROM (50) TO (60);
INSERT INTO p SELECT g FROM generate_series(0, 39) g;
UPDATE p SET id = 0 WHERE id = 39;
DELETE FROM p WHERE id IN (9, 19);
INSERT INTO p VALUES (5, 1), (15, 1) ON CONFLICT (id) DO UPDATE SET id = p.id + 4 RETURNING tableoid::regclass, ctid, id;
-- with a heap partition
CREATE TABLE q (id int, v int) PARTITION BY RANGE (id);
CREATE TABLE q1 PARTITION OF q FOR VALUES FROM (0) TO (10);
CREATE TABLE q2 PARTITION OF q FOR VALUES FROM (10) TO (20) USING heap;
ALTER TABLE q ADD PRIMARY KEY (id) WITH (access_method = zbtree);
SELECT * FROM methods WHERE relname ~ '^q';
-- back to btree, without the parameter
CALL zundo.set_index_method('z_a_key', 'btree');
SELECT * FROM methods WHERE relname = 'z_a_key';
-- a constraint that the same command drops does not hinder another type
CREATE TABLE s (a int, b int, CONSTRAINT s_u UNIQUE (a, b) WITH (access_method = zbtree)) PARTITION BY LIST (a);
CREATE TABLE s1 PARTITION OF s FOR VALUES IN (1);
ALTER TABLE s DROP CONSTRAINT IF EXISTS s_v, ALTER b TYPE bigint;
ALTER TABLE s DROP CONSTRAINT s_u, ALTER b TYPE bigint, ADD CONSTRAINT s_u UNIQUE (a, b) WITH (access_method = zbtree);
SELECT * FROM methods WHERE relname ~ '^s';
ALTER TABLE s ADD c int, ADD UNIQUE (a, c) WITH (access_method = zbtree);
ALTER TABLE s DROP COLUMN c, DROP CONSTRAINT s_u, ALTER b TYPE int;
ALTER TABLE s ADD c int, ADD d int, ADD UNIQUE (a, c, d) WITH (access_method = zbtree);
ALTER TABLE s DROP COLUMN c, ALTER d TYPE bigint;
SELECT * FROM methods WHERE relname ~ '^s';
-- another type, or expression, of a column of a partitioned table
CREATE TABLE t (id int, at int, b varchar(5), g int GENERATED ALWAYS AS (at) STORED, PRIMARY KEY (id, at) WITH (access_method = zbtree),
	CONSTRAINT t_u UNIQUE (b, at) WITH (access_method = zbtree), UNIQUE (at, g) WITH (access_method = zbtree)) PARTITION BY RANGE (at);
CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10);
CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (at);
CREATE TABLE t21 PARTITION OF t2 FOR VALUES FROM (10) TO (20);
ALTER TABLE t2 ADD UNIQUE (id, b, at) WITH (access_method = zbtree);
CREATE TABLE t3 (g int GENERATED ALWAYS AS (at) STORED, at int NOT NULL, b varchar(5), id int NOT NULL UNIQUE WITH (access_method = zbtree), CONSTRAINT mine PRIMARY KEY (id, at) WITH (access_method = zbtree));
ALTER TABLE t ATTACH PARTITION t3 FOR VALUES FROM (20) TO (30);
CREATE TABLE t_ref (id int, at int, FOREIGN KEY (id, at) REFERENCES t ON UPDATE CASCADE);
COMMENT ON CONSTRAINT t_pkey ON t IS 'constraint';
COMMENT ON INDEX t_pkey IS 'index';
INSERT INTO t SELECT g, g, g FROM generate_series(0, 29) g;
INSERT INTO t_ref SELECT g, g FROM generate_series(0, 29) g;
CREATE VIEW parts AS SELECT o.conrelid::regclass, o.conname, o.contype, o.conislocal, o.coninhcount, whole.conname AS whole, amname, reloptions, indisprimary, indisvalid, obj_description(c.oid) AS index_comment, obj_description(o.oid) AS comment
	FROM pg_constraint o JOIN pg_class c ON c.oid = o.conindid JOIN pg_index ON indexrelid = c.oid JOIN pg_am a ON a.oid = relam LEFT JOIN pg_constraint whole ON whole.oid = o.conparentid
	WHERE o.contype IN ('p', 'u') AND o.conrelid::regclass::text ~ '^t[0-9]*$' ORDER BY o.conrelid::regclass::text, o.conname;
ALTER TABLE t ALTER id TYPE bigint;
ALTER TABLE t ALTER g SET EXPRESSION AS (at + at);
ALTER TABLE t ALTER b TYPE varchar(10), ALTER g TYPE bigint;
SELECT * FROM parts;
ALTER TABLE t1 ALTER g SET EXPRESSION AS (at);
ALTER TABLE t1 ALTER id TYPE int;
INSERT INTO t VALUES (25, 25, 25);
UPDATE t SET id = id + 100 WHERE id < 25;
SELECT count(*) FROM t_ref WHERE id >= 100;
INSERT INTO t_ref VALUES (1, 1);
SELECT count(*) FROM parts, zundo.check_index(conname::regclass) WHERE conname::text ~ '^t[13]|^t21';
-- in a command of its event trigger
BEGIN;
CREATE FUNCTION nest() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN IF pg_event_trigger_table_rewrite_oid() = 'z'::regclass THEN ALTER TABLE t ALTER b TYPE text; END IF; END $$;
CREATE EVENT TRIGGER nest ON table_rewrite EXECUTE FUNCTION nest();
ALTER TABLE z ALTER id TYPE numeric;
SELECT conrelid, conname, whole, indisprimary FROM parts WHERE whole = 't_u' OR whole = 't2_b_at_idx';
ROLLBACK;
ALTER TABLE t_ref DROP CONSTRAINT t_ref_id_at_fkey;
ALTER TABLE t DETACH PARTITION t3;
ALTER TABLE t DROP CONSTRAINT t_pkey, DROP CONSTRAINT t_u, ALTER id TYPE int;
SELECT conrelid, conname, whole FROM parts WHERE coninhcount > 0;
