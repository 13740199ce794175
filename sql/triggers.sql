-- Triggers and foreign keys: what OLD and NEW are, and when.
-- on: heap zheap
SELECT current_setting('default_table_access_method') AS am \gset
-- an index makes the order of rows the same for all access methods
SET enable_seqscan = off;
SET enable_bitmapscan = off;
CREATE FUNCTION say() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE NOTICE '% % %: % -> %', TG_TABLE_NAME, TG_NAME, TG_OP,
		CASE WHEN TG_OP <> 'INSERT' THEN OLD::text END, CASE WHEN TG_OP <> 'DELETE' THEN NEW::text END;
	RETURN NULL;
END $$;
-- immediate and deferred triggers of one table, several changes of one row
CREATE TABLE t (id int PRIMARY KEY, n int, x text);
CREATE TRIGGER now AFTER INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION say();
CREATE TRIGGER now_big AFTER UPDATE ON t FOR EACH ROW WHEN (OLD.n > 100 AND NEW.n <> OLD.n) EXECUTE FUNCTION say();
CREATE CONSTRAINT TRIGGER later AFTER INSERT OR UPDATE OR DELETE ON t DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION say();
INSERT INTO t VALUES (1, 1, 'one'), (2, 2, 'two');
UPDATE t SET n = n + 100 WHERE id > 0;
UPDATE t SET n = n + 100 WHERE id > 0;
UPDATE t SET x = repeat(x, 30) WHERE id = 2;
UPDATE t SET x = 'short' WHERE id = 2;
BEGIN;
INSERT INTO t VALUES (3, 3, 'three');
UPDATE t SET n = 31 WHERE id = 3;
UPDATE t SET n = 32, x = 'a longer text' WHERE id = 3;
UPDATE t SET id = 33 WHERE id = 3;
UPDATE t SET n = 34 WHERE id = 33;
DELETE FROM t WHERE id = 33;
UPDATE t SET n = 0 WHERE id = 1;
COMMIT;
-- ROLLBACK TO between them, and released savepoints
BEGIN;
UPDATE t SET n = 1 WHERE id = 1;
SAVEPOINT a;
UPDATE t SET n = 2 WHERE id = 1;
SAVEPOINT b;
UPDATE t SET n = 3 WHERE id = 1;
UPDATE t SET id = 10 WHERE id = 1;
ROLLBACK TO b;
UPDATE t SET n = 4 WHERE id = 1;
SAVEPOINT c;
UPDATE t SET n = 5 WHERE id = 1;
RELEASE c;
DELETE FROM t WHERE id = 2;
ROLLBACK TO a;
UPDATE t SET n = 6 WHERE id = 1;
RELEASE a;
SAVEPOINT d;
DELETE FROM t WHERE id = 1;
ROLLBACK TO d;
COMMIT;
SELECT * FROM t ORDER BY id;
-- SET CONSTRAINTS: outside and inside a function
BEGIN;
UPDATE t SET n = 7 WHERE id = 1;
UPDATE t SET n = 8 WHERE id = 1;
SET CONSTRAINTS later IMMEDIATE;
UPDATE t SET n = 9 WHERE id = 1;
SET CONSTRAINTS later DEFERRED;
UPDATE t SET n = 10 WHERE id = 1;
CREATE FUNCTION fire() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	UPDATE t SET n = n + 1 WHERE id = 1;
	SET CONSTRAINTS later IMMEDIATE;
	UPDATE t SET n = n + 1 WHERE id = 1;
	SET CONSTRAINTS later DEFERRED;
	RETURN n FROM t WHERE id = 1;
END $$;
SELECT fire();
UPDATE t SET n = fire() WHERE id = 2;
COMMIT;
-- subtransactions of a function, some rolled back; all at the commit of one statement
CREATE FUNCTION tries() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO t VALUES (5, 0, 'five');
	FOR i IN 1 .. 4 LOOP
		BEGIN
			UPDATE t SET n = i WHERE id = 5;
			IF i % 2 = 0 THEN RAISE EXCEPTION 'no'; END IF;
		EXCEPTION WHEN raise_exception THEN
			UPDATE t SET x = x || i WHERE id = 5;
		END;
	END LOOP;
	UPDATE t SET n = n * 10 WHERE id = 5;
	RETURN n FROM t WHERE id = 5;
END $$;
SELECT tries();
DROP TRIGGER now ON t;
DELETE FROM t WHERE id = 5;
SELECT tries();
DROP TRIGGER later ON t;
-- a trigger that updates the same row again, and one that looks at it
CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.n < 3 THEN
		UPDATE t SET n = NEW.n + 1 WHERE id = NEW.id;
	END IF;
	RAISE NOTICE '%: % -> %, now %', TG_NAME, OLD, NEW, (SELECT n FROM t WHERE id = NEW.id);
	RETURN NULL;
END $$;
CREATE TRIGGER a_again AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION again();
CREATE TRIGGER b_say AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION say();
UPDATE t SET n = 0 WHERE id = 1;
UPDATE t SET n = 2 WHERE id > 0;
-- a trigger that changes other rows of the statement
CREATE OR REPLACE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF pg_trigger_depth() = 1 THEN
		UPDATE t SET x = NEW.id || ' was here' WHERE id > 0 AND id <> NEW.id;
		DELETE FROM t WHERE id = 5 AND NEW.id = 2;
	END IF;
	RETURN NULL;
END $$;
UPDATE t SET n = n * 2 WHERE id > 0;
SELECT * FROM t ORDER BY id;
DROP TRIGGER a_again ON t;
-- BEFORE triggers change what is stored
CREATE FUNCTION before() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.x := NEW.x || '!';
	RETURN NEW;
END $$;
CREATE TRIGGER before BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION before();
UPDATE t SET n = -n WHERE id > 0;
DROP TRIGGER before ON t;
-- RETURNING
UPDATE t SET n = 20 WHERE id = 1 RETURNING id, n, x;
CREATE TRIGGER c_delete AFTER DELETE ON t FOR EACH ROW EXECUTE FUNCTION say();
BEGIN;
WITH u AS (UPDATE t SET n = 21 WHERE id = 1 RETURNING ctid AS c) SELECT count(*) FROM u;
CREATE TABLE c AS SELECT id, ctid AS c FROM t;
UPDATE t SET n = 22 FROM c WHERE t.id = 1 AND c.id = 1 AND t.ctid = c.c;
DELETE FROM t WHERE id = 2 RETURNING *, xmax = pg_current_xact_id()::xid AS by_us;
ROLLBACK;
INSERT INTO t VALUES (1, 0, 'new') ON CONFLICT (id) DO UPDATE SET n = t.n + 1, x = excluded.x
	RETURNING *, xmin = pg_current_xact_id()::xid AS by_us, xmax = 0 AS inserted;
INSERT INTO t VALUES (9, 0, 'new') ON CONFLICT (id) DO UPDATE SET n = t.n + 1, x = excluded.x
	RETURNING *, xmin = pg_current_xact_id()::xid AS by_us, xmax = 0 AS inserted;
BEGIN;
INSERT INTO t VALUES (9, 0, 'newer') ON CONFLICT (id) DO UPDATE SET n = t.n + 1, x = excluded.x
	RETURNING *, xmin = pg_current_xact_id()::xid AS by_us, xmax = 0 AS inserted;
INSERT INTO t VALUES (9, 0, 'newest') ON CONFLICT (id) DO UPDATE SET n = t.n + 1, x = excluded.x
	RETURNING *, xmin = pg_current_xact_id()::xid AS by_us, xmax = 0 AS inserted;
-- a function that the statement calls locks another row
CREATE FUNCTION lock_row(i int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM t WHERE id = i FOR UPDATE;
	RETURN i;
END $$;
INSERT INTO t VALUES (9, 0, 'locks') ON CONFLICT (id) DO UPDATE SET n = lock_row(1)
	RETURNING *, xmin = pg_current_xact_id()::xid AS by_us, xmax = 0 AS inserted;
-- a subquery of the statement does
CREATE TABLE u (id int PRIMARY KEY, n int);
INSERT INTO u VALUES (1, 0) ON CONFLICT (id) DO UPDATE SET n = (SELECT 8 FROM t WHERE id = 1 FOR UPDATE)
	RETURNING *, xmax = 0 AS inserted;
INSERT INTO u VALUES (1, 0) ON CONFLICT (id) DO UPDATE SET n = (SELECT 8 FROM t WHERE id = 1 FOR UPDATE)
	RETURNING *, xmax = 0 AS inserted;
UPDATE t SET n = 99 WHERE id = 9 RETURNING xmin = pg_current_xact_id()::xid AS by_us;
ROLLBACK;
UPDATE t SET n = 3 WHERE id = 9 RETURNING xmin = pg_current_xact_id()::xid AS by_us, xmax = 0 AS not_locked;
-- WHERE CURRENT OF
BEGIN;
DECLARE cur CURSOR FOR SELECT * FROM t ORDER BY id FOR UPDATE;
FETCH cur;
UPDATE t SET n = n + 1 WHERE CURRENT OF cur RETURNING *;
UPDATE t SET n = n + 1 WHERE CURRENT OF cur RETURNING *;
FETCH cur;
DELETE FROM t WHERE CURRENT OF cur;
DELETE FROM t WHERE CURRENT OF cur;
ROLLBACK;
-- MERGE
MERGE INTO t USING (VALUES (1, 100), (7, 70), (9, NULL)) s (id, n) ON t.id = s.id
	WHEN MATCHED AND s.n IS NULL THEN DELETE
	WHEN MATCHED THEN UPDATE SET n = s.n
	WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.n, 'merged');
SELECT * FROM t ORDER BY id;
-- transition tables
CREATE FUNCTION tables() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE NOTICE '% % old: %', TG_TABLE_NAME, TG_OP, (SELECT string_agg(o::text, ' ' ORDER BY id) FROM olds o);
	RAISE NOTICE '% % new: %', TG_TABLE_NAME, TG_OP, (SELECT string_agg(o::text, ' ' ORDER BY id) FROM news o);
	RETURN NULL;
END $$;
CREATE TRIGGER d_tables AFTER UPDATE ON t REFERENCING OLD TABLE AS olds NEW TABLE AS news
	FOR EACH STATEMENT EXECUTE FUNCTION tables();
UPDATE t SET n = n + 1 WHERE id > 0;
DROP TABLE t;
-- through a parent, its children without triggers of their own, and with; rows that change the partition
CREATE TABLE p (id int, n int, x text) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE TABLE mixed_p2 (x text, n int, id int) USING heap;
ALTER TABLE p ATTACH PARTITION mixed_p2 FOR VALUES FROM (10) TO (20);
CREATE TABLE p3 (dropped int, n int, id int, x text);
ALTER TABLE p3 DROP COLUMN dropped;
ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30);
CREATE INDEX ON p (id);
INSERT INTO p VALUES (1, 1, 'a'), (2, 2, 'b'), (11, 11, 'c'), (21, 21, 'd');
CREATE TRIGGER tables AFTER UPDATE ON p REFERENCING OLD TABLE AS olds NEW TABLE AS news
	FOR EACH STATEMENT EXECUTE FUNCTION tables();
UPDATE p SET n = n + 1 WHERE id > 0;
UPDATE p SET id = id + 10 WHERE id < 20;
CREATE TRIGGER rows AFTER INSERT OR UPDATE OR DELETE ON p FOR EACH ROW EXECUTE FUNCTION say();
CREATE CONSTRAINT TRIGGER later AFTER INSERT OR UPDATE OR DELETE ON p DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION say();
BEGIN;
UPDATE p SET n = n + 1 WHERE id >= 12;
UPDATE p SET id = id - 10, n = n + 1 WHERE id < 22;
UPDATE p SET n = 0, id = 22 WHERE id = 2;
UPDATE p SET n = -1 WHERE id = 22;
COMMIT;
SELECT tableoid::regclass, * FROM p ORDER BY id, n;
-- a foreign key to the partitioned table sees such a move as an update
DROP TRIGGER rows ON p;
DROP TRIGGER later ON p;
DROP TRIGGER tables ON p;
DELETE FROM p;
ALTER TABLE p ADD PRIMARY KEY (id);
CREATE TABLE refs_p (id int REFERENCES p ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED, what text);
BEGIN;
INSERT INTO p VALUES (1, 1, 'x'), (12, 2, 'y');
INSERT INTO refs_p VALUES (1, 'one'), (12, 'twelve');
UPDATE p SET n = n + 1 WHERE id > 0;
UPDATE p SET id = 13 WHERE id = 12;
UPDATE p SET n = n + 1 WHERE id > 0;
UPDATE p SET id = 25 WHERE id = 1;
SELECT * FROM refs_p ORDER BY what;
COMMIT;
SELECT * FROM refs_p ORDER BY what;
UPDATE p SET id = id - 10 WHERE id > 0;
SELECT * FROM refs_p ORDER BY what;
DROP TABLE refs_p, p;
-- foreign keys: all actions, to and from tables of the other kind
CREATE PROCEDURE keys(parent_am text, child_am text, del text, upd text, later text) LANGUAGE plpgsql AS $$
DECLARE
	q text;
	who text;
BEGIN
	RAISE NOTICE 'delete %, update %, %', del, upd, later;
	EXECUTE format('CREATE TABLE mixed_parent (id int PRIMARY KEY, n int) USING %I', parent_am);
	EXECUTE format('CREATE TABLE mixed_child (id int PRIMARY KEY, p int DEFAULT 9 REFERENCES mixed_parent ON DELETE %s ON UPDATE %s %s, n int)
		USING %I', del, upd, later, child_am);
	INSERT INTO mixed_parent SELECT g, 0 FROM generate_series(1, 9) g;
	INSERT INTO mixed_child SELECT g, g, 0 FROM generate_series(1, 5) g;
	FOREACH q IN ARRAY ARRAY['UPDATE mixed_child SET n = n + 1', 'UPDATE mixed_parent SET n = n + 1', 'UPDATE mixed_child SET p = 7 WHERE id = 1',
		'UPDATE mixed_child SET p = 77 WHERE id = 1', 'UPDATE mixed_parent SET id = 20 WHERE id = 2', 'DELETE FROM mixed_parent WHERE id = 3',
		'UPDATE mixed_parent SET id = id + 100 WHERE id IN (4, 5)', 'DELETE FROM mixed_parent WHERE id = 105',
		'UPDATE mixed_child SET p = NULL WHERE id = 4', 'UPDATE mixed_child SET p = 6, n = -1 WHERE id = 4',
		'INSERT INTO mixed_child VALUES (6, 66, 0)', 'UPDATE mixed_child SET p = 1 WHERE id = 6'] LOOP
		BEGIN
			EXECUTE q;
			SET CONSTRAINTS ALL IMMEDIATE;
			SET CONSTRAINTS ALL DEFERRED;
		EXCEPTION WHEN integrity_constraint_violation THEN
			RAISE NOTICE '% -> %', q, replace(SQLERRM, 'RESTRICT setting of ', '');
		END;
	END LOOP;
	BEGIN
		SET CONSTRAINTS ALL DEFERRED;
		INSERT INTO mixed_child VALUES (7, 70, 0);
		UPDATE mixed_child SET n = 1 WHERE id = 7;
		UPDATE mixed_child SET p = 71 WHERE id = 7;
		UPDATE mixed_child SET p = 8 WHERE id = 7;
		SET CONSTRAINTS ALL IMMEDIATE;
	EXCEPTION WHEN integrity_constraint_violation THEN
		RAISE NOTICE 'twice -> %', replace(SQLERRM, 'RESTRICT setting of ', '');
	END;
	SELECT string_agg(format('%s>%s(%s)', id, p, n), ' ' ORDER BY id) INTO who FROM mixed_child;
	RAISE NOTICE '%', who;
	DROP TABLE mixed_child, mixed_parent;
END $$;
CALL keys(:'am', :'am', 'CASCADE', 'CASCADE', '');
CALL keys(:'am', 'heap', 'CASCADE', 'SET NULL', 'DEFERRABLE INITIALLY DEFERRED');
CALL keys('heap', :'am', 'SET NULL', 'CASCADE', 'DEFERRABLE INITIALLY DEFERRED');
CALL keys(:'am', :'am', 'SET DEFAULT', 'SET DEFAULT', 'DEFERRABLE');
CALL keys(:'am', :'am', 'NO ACTION', 'NO ACTION', 'DEFERRABLE INITIALLY DEFERRED');
CALL keys('heap', :'am', 'RESTRICT', 'RESTRICT', '');
CALL keys(:'am', 'heap', 'RESTRICT', 'NO ACTION', 'DEFERRABLE');
-- a foreign key to its own table
CREATE TABLE self (id int PRIMARY KEY, boss int REFERENCES self ON DELETE CASCADE ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED,
	n int DEFAULT 0);
CREATE TRIGGER say AFTER UPDATE OR DELETE ON self FOR EACH ROW EXECUTE FUNCTION say();
BEGIN;
INSERT INTO self VALUES (1, 2), (2, 3), (3, 1), (4, 44), (5, 4);
UPDATE self SET n = 1 WHERE id > 0;
UPDATE self SET boss = 5 WHERE id = 4;
UPDATE self SET id = 10 WHERE id = 1;
COMMIT;
SELECT * FROM self ORDER BY id;
BEGIN;
UPDATE self SET boss = 77 WHERE id = 2;
SAVEPOINT s;
UPDATE self SET boss = 3 WHERE id = 2;
ROLLBACK TO s;
COMMIT;
DELETE FROM self WHERE id = 4;
SELECT * FROM self ORDER BY id;
DROP TABLE self;
-- a deferred check of a row that was changed since, and of one that was deleted
CREATE TABLE pk (id int PRIMARY KEY);
CREATE TABLE fk (id int, p int REFERENCES pk DEFERRABLE INITIALLY DEFERRED, n int);
BEGIN;
INSERT INTO fk VALUES (1, 1, 0);
UPDATE fk SET n = 1;
UPDATE fk SET p = 2;
UPDATE fk SET n = 2;
INSERT INTO pk VALUES (2);
COMMIT;
BEGIN;
INSERT INTO fk VALUES (2, 5, 0);
UPDATE fk SET n = 1 WHERE id = 2;
DELETE FROM fk WHERE id = 2;
COMMIT;
BEGIN;
UPDATE fk SET p = 3;
UPDATE fk SET p = 2;
UPDATE fk SET p = 3;
COMMIT;
BEGIN;
UPDATE fk SET p = 3;
SAVEPOINT s;
UPDATE fk SET p = 2;
RELEASE s;
COMMIT;
SELECT * FROM fk;
DROP TABLE fk, pk;
-- deferrable unique constraints beside other triggers: their rechecks look at TIDs
CREATE TABLE u (id int UNIQUE DEFERRABLE INITIALLY DEFERRED, n int, r int4range, EXCLUDE USING gist (r WITH &&) DEFERRABLE INITIALLY DEFERRED);
CREATE CONSTRAINT TRIGGER later AFTER INSERT OR UPDATE OR DELETE ON u DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION say();
INSERT INTO u SELECT g, g, int4range(g * 10, g * 10 + 5) FROM generate_series(1, 3) g;
BEGIN;
UPDATE u SET id = id + 1 WHERE id > 0;
UPDATE u SET n = n + 1 WHERE id > 0;
UPDATE u SET r = int4range(lower(r) + 10, upper(r) + 10) WHERE id > 0;
UPDATE u SET n = n + 1 WHERE id > 0;
COMMIT;
BEGIN;
UPDATE u SET n = 0 WHERE id = 2;
UPDATE u SET id = 3 WHERE id = 2;
UPDATE u SET n = 1 WHERE n = 0;
COMMIT;
BEGIN;
INSERT INTO u VALUES (4, 10, int4range(1, 2));
UPDATE u SET n = 11 WHERE n = 10;
DELETE FROM u WHERE n = 11;
COMMIT;
SELECT * FROM u ORDER BY id;
DROP TABLE u;
-- summarizing indexes beside triggers
CREATE TABLE b (id int, n int, pad text);
INSERT INTO b SELECT g, g, repeat('x', 100) FROM generate_series(1, 2000) g;
CREATE INDEX ON b USING brin (n) WITH (pages_per_range = 1);
CREATE FUNCTION count_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO changes VALUES (OLD.id, OLD.n, NEW.n);
	RETURN NULL;
END $$;
CREATE TABLE changes (id int, old int, new int);
CREATE CONSTRAINT TRIGGER later AFTER UPDATE ON b DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION count_changes();
BEGIN;
UPDATE b SET n = n + 10000;
UPDATE b SET n = n + 10000 WHERE id % 3 = 0;
SAVEPOINT s;
UPDATE b SET n = 0;
ROLLBACK TO s;
UPDATE b SET n = n - 10000 WHERE id % 7 = 0;
COMMIT;
SELECT count(*), sum(old - id), sum(new - id), count(*) FILTER (WHERE (old - id) % 10000 <> 0 OR (new - id) % 10000 <> 0) FROM changes;
SET enable_bitmapscan = on;
SELECT count(*), min(id) FROM b WHERE n BETWEEN 20000 AND 20100;
SELECT count(*), min(id) FROM b WHERE n BETWEEN 0 AND 100;
SET enable_bitmapscan = off;
DROP TABLE b, changes;
-- many rows, values out of line
CREATE TABLE w (id int PRIMARY KEY, n int, x text);
CREATE TABLE seen (id int, same bool, old text, new text);
ALTER TABLE w ALTER x SET STORAGE EXTERNAL;
CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO seen VALUES (OLD.id, OLD.x = NEW.x, left(OLD.x, 5) || length(OLD.x), left(NEW.x, 5) || length(NEW.x));
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER later AFTER UPDATE ON w DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see();
INSERT INTO w SELECT g, 0, repeat('abc' || g, 1000) FROM generate_series(1, 5) g;
BEGIN;
UPDATE w SET n = 1;
UPDATE w SET x = repeat('def' || id, 2000) WHERE id < 4;
UPDATE w SET x = 'short' WHERE id < 3;
UPDATE w SET x = repeat('ghi' || id, 2000) WHERE id = 1;
COMMIT;
SELECT * FROM seen ORDER BY id, old, new;
DROP TABLE w, seen;
-- deferrable unique and exclusion constraints: their triggers have the old row fetched, and look at the new one
CREATE TABLE d (id int PRIMARY KEY, u int UNIQUE DEFERRABLE INITIALLY DEFERRED, x int, t text, EXCLUDE USING btree (x WITH =) DEFERRABLE);
INSERT INTO d SELECT g, g, g, repeat('x', 50) FROM generate_series(1, 60) g;
UPDATE d SET u = u + 1;
UPDATE d SET x = x + 1;
UPDATE d SET x = 61 - x;
UPDATE d SET u = 9 WHERE id BETWEEN 23 AND 25;
UPDATE d SET x = 9 WHERE id BETWEEN 23 AND 25;
BEGIN;
INSERT INTO d VALUES (100, 5, 100), (101, 6, 101);
UPDATE d SET t = repeat('grows', 300) WHERE u IN (5, 6);
UPDATE d SET u = u + 200 WHERE id > 99;
SET CONSTRAINTS ALL IMMEDIATE;
COMMIT;
BEGIN;
INSERT INTO d VALUES (102, 5, 102);
UPDATE d SET t = repeat('grows', 350) WHERE u = 5 AND id < 100;
COMMIT;
SELECT count(*), sum(u), sum(x), sum(length(t)) FROM d;
DROP TABLE d;
-- OLD of a row that one transaction has updated more often than rows are kept in memory
CREATE TABLE many_versions (id int PRIMARY KEY, n int, pad text);
CREATE FUNCTION follows() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF OLD.n <> NEW.n - 1 OR OLD.pad <> repeat('x', 300) THEN RAISE EXCEPTION '% follows %', NEW.n, OLD.n; END IF;
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER follows AFTER UPDATE ON many_versions DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION follows();
INSERT INTO many_versions VALUES (1, 0, repeat('x', 300));
SET work_mem = '64kB';
BEGIN;
DO $$ BEGIN FOR i IN 1..2000 LOOP UPDATE many_versions SET n = n + 1; END LOOP; END $$;
COMMIT;
RESET work_mem;
SELECT id, n FROM many_versions;
SELECT f.* FROM pg_class c JOIN pg_am a ON a.oid = c.relam AND a.amname = 'zheap', zundo.check(c.oid) f WHERE c.relkind = 'r';
