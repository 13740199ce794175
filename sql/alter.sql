-- ALTER TABLE, rewrites, partitions, inheritance, unlogged tables: the rows stay the same.
SET client_min_messages = warning;
CREATE TABLE r (id int PRIMARY KEY, n int, t text, k int DEFAULT 4) USING zheap;
INSERT INTO r SELECT g, g % 7, 'row ' || g FROM generate_series(1, 1000) g;
ALTER TABLE r ALTER t SET STORAGE EXTERNAL;
UPDATE r SET t = repeat(md5(id::text), 300) WHERE id % 100 = 0;
DELETE FROM r WHERE id % 10 = 3;
CREATE VIEW state AS SELECT count(*), sum(id) AS ids, sum(n) AS ns, sum(length(t)) AS ts, md5(string_agg(id || ':' || n || ':' || t, ',' ORDER BY id)) FROM r;
SELECT * FROM state;
-- a change of the access method, to heap and back
ALTER TABLE r SET ACCESS METHOD heap;
SELECT * FROM state;
UPDATE r SET n = n + 1;
ALTER TABLE r SET ACCESS METHOD zheap;
SELECT * FROM state;
SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE c.oid = 'r'::regclass;
UPDATE r SET n = n - 1;
SELECT * FROM state;
-- rewrites
VACUUM FULL r;
SELECT * FROM state;
CLUSTER r USING r_pkey;
SELECT * FROM state;
CREATE INDEX r_n ON r (n);
CLUSTER r USING r_n;
SELECT bool_and(ok) FROM (SELECT n >= lag(n) OVER (ORDER BY ctid) IS NOT FALSE AS ok FROM r) x;
SELECT * FROM state;
CLUSTER r;
ALTER TABLE r ALTER k TYPE bigint USING k::bigint + 1;
SELECT sum(k) FROM r;
ALTER TABLE r ADD COLUMN d timestamptz DEFAULT clock_timestamp(), ADD COLUMN c int DEFAULT 5 NOT NULL;
ALTER TABLE r DROP COLUMN d;
SELECT * FROM state;
SELECT sum(c) FROM r;
UPDATE r SET c = 6 WHERE id <= 10;
SELECT sum(c) FROM r;
-- a rewrite that is rolled back, after changes of its own transaction
BEGIN;
UPDATE r SET n = -1;
DELETE FROM r WHERE id < 500;
ALTER TABLE r ALTER k TYPE numeric;
INSERT INTO r VALUES (5000, 1, 'new', 1, 1);
SELECT count(*), sum(id), sum(n) FROM r;
ROLLBACK;
SELECT * FROM state;
-- a rewrite keeps rows that an older snapshot of the same transaction sees
BEGIN;
DECLARE c CURSOR FOR SELECT count(*), sum(n) FROM r;
UPDATE r SET n = n + 100;
VACUUM FULL r;
ROLLBACK;
-- TRUNCATE
BEGIN;
TRUNCATE r;
SELECT count(*) FROM r;
INSERT INTO r VALUES (1, 1, 'one', 1);
SELECT id, n, t FROM r;
ROLLBACK;
SELECT * FROM state;
BEGIN;
CREATE TABLE young (id int PRIMARY KEY, v int) USING zheap;
INSERT INTO young SELECT g, 0 FROM generate_series(1, 1000) g;
SAVEPOINT a;
UPDATE young SET v = 1;
TRUNCATE young;
INSERT INTO young VALUES (1, 1);
ROLLBACK TO a;
SELECT count(*), sum(v) FROM young;
TRUNCATE young;
INSERT INTO young SELECT g, 2 FROM generate_series(1, 10) g;
UPDATE young SET v = 3 WHERE id > 5;
COMMIT;
SELECT count(*), sum(v) FROM young;
-- a table of an aborted subtransaction
BEGIN;
INSERT INTO young VALUES (11, 11);
SAVEPOINT a;
CREATE TABLE never (id int, t text) USING zheap;
INSERT INTO never SELECT g, repeat('x', 500) FROM generate_series(1, 5000) g;
UPDATE never SET t = 'y';
ROLLBACK TO a;
UPDATE young SET v = 12 WHERE id = 11;
COMMIT;
SELECT * FROM young WHERE id = 11;
SELECT to_regclass('never');
-- CREATE TABLE AS, materialized views, COPY
SET default_table_access_method = zheap;
CREATE TABLE copied AS SELECT id, n FROM r WHERE id < 10;
CREATE MATERIALIZED VIEW m AS SELECT n, count(*) FROM r GROUP BY n;
SELECT * FROM m ORDER BY n;
UPDATE r SET n = 0 WHERE n = 6;
REFRESH MATERIALIZED VIEW m;
SELECT * FROM m ORDER BY n;
RESET default_table_access_method;
COPY copied FROM stdin WITH (DELIMITER ',');
100,1
101,\N
\.
COPY (SELECT * FROM copied ORDER BY id) TO stdout;
BEGIN;
TRUNCATE copied;
COPY copied FROM stdin WITH (FREEZE, DELIMITER ',');
1,1
2,2
\.
COMMIT;
SELECT * FROM copied ORDER BY id;
COPY copied FROM stdin WITH (DELIMITER ',');
3,3
4,four
\.
SELECT * FROM copied ORDER BY id;
-- partitions, mixed with heap
CREATE TABLE p (id int, k int, t text) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100) USING zheap;
CREATE TABLE p2 (t text, k int, id int) USING heap;
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (100) TO (200);
CREATE TABLE p3 (t text, id int, gone int, k int) USING zheap;
ALTER TABLE p3 DROP COLUMN gone;
ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (200) TO (300);
CREATE INDEX ON p (k);
INSERT INTO p SELECT g, g % 5, 'p' || g FROM generate_series(0, 299) g;
UPDATE p SET k = k + 10 WHERE id % 50 = 0;
UPDATE p SET id = id + 100 WHERE id IN (7, 107) RETURNING tableoid::regclass, *;
UPDATE p SET id = id - 200 WHERE id = 299 RETURNING tableoid::regclass, *;
SELECT tableoid::regclass, count(*), sum(id), sum(k) FROM p GROUP BY 1 ORDER BY 1;
BEGIN;
UPDATE p SET id = (id + 100) % 300;
SELECT tableoid::regclass, count(*), sum(id), sum(k) FROM p GROUP BY 1 ORDER BY 1;
ROLLBACK;
SELECT tableoid::regclass, count(*), sum(id), sum(k) FROM p GROUP BY 1 ORDER BY 1;
DELETE FROM p WHERE k = 3 AND id > 280 RETURNING tableoid::regclass, id;
ALTER TABLE p DETACH PARTITION p3;
SELECT count(*) FROM p3;
-- inheritance
CREATE TABLE mother (a int, b text) USING zheap;
CREATE TABLE daughter (c int) INHERITS (mother) USING zheap;
INSERT INTO mother VALUES (1, 'm');
INSERT INTO daughter VALUES (2, 'd', 3);
UPDATE mother SET b = b || '!';
ALTER TABLE mother ADD COLUMN e int DEFAULT 9;
SELECT tableoid::regclass, * FROM mother ORDER BY a;
SELECT * FROM daughter;
-- a table becomes unlogged, and logged again
CREATE UNLOGGED TABLE ul (id int PRIMARY KEY, n int) USING zheap;
INSERT INTO ul SELECT g, 0 FROM generate_series(1, 100) g;
BEGIN;
UPDATE ul SET n = 1;
DELETE FROM ul WHERE id > 50;
ROLLBACK;
UPDATE ul SET n = 2 WHERE id <= 10;
SELECT count(*), sum(n) FROM ul;
ALTER TABLE ul SET LOGGED;
UPDATE ul SET n = n + 1;
SELECT count(*), sum(n) FROM ul;
ALTER TABLE ul SET UNLOGGED;
SELECT count(*), sum(n) FROM ul;
-- generated columns, domains, defaults, rules, triggers
CREATE DOMAIN small AS int CHECK (VALUE < 100);
CREATE TABLE g (id int GENERATED ALWAYS AS IDENTITY, a small, twice int GENERATED ALWAYS AS (a * 2) STORED) USING zheap;
CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE NOTICE '% % -> %', TG_OP, OLD, NEW; RETURN NULL; END $$;
CREATE FUNCTION more() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN NEW.a := NEW.a + 1; RETURN NEW; END $$;
CREATE TRIGGER before BEFORE INSERT OR UPDATE ON g FOR EACH ROW EXECUTE FUNCTION more();
CREATE TRIGGER after AFTER INSERT OR UPDATE OR DELETE ON g FOR EACH ROW EXECUTE FUNCTION shout();
SET client_min_messages = notice;
INSERT INTO g (a) VALUES (1), (2);
UPDATE g SET a = a + 10;
UPDATE g SET a = 200 WHERE id = 1;
BEGIN;
UPDATE g SET a = 20 WHERE id = 1;
UPDATE g SET a = 30 WHERE id = 1;
DELETE FROM g WHERE id = 1;
ROLLBACK;
DELETE FROM g WHERE id = 2;
SET client_min_messages = warning;
SELECT * FROM g;
-- transition tables
CREATE FUNCTION counts() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE NOTICE 'old % new %', (SELECT sum(n) FROM o), (SELECT sum(n) FROM w); RETURN NULL; END $$;
CREATE TABLE tt (id int PRIMARY KEY, n int) USING zheap;
CREATE TRIGGER t AFTER UPDATE ON tt REFERENCING OLD TABLE AS o NEW TABLE AS w FOR EACH STATEMENT EXECUTE FUNCTION counts();
INSERT INTO tt SELECT g, g FROM generate_series(1, 10) g;
SET client_min_messages = notice;
UPDATE tt SET n = n + 1;
BEGIN;
UPDATE tt SET n = n + 1;
UPDATE tt SET n = n * 2;
ROLLBACK;
SET client_min_messages = warning;
-- deferred constraints, and SET CONSTRAINTS in a function
CREATE TABLE par (id int PRIMARY KEY) USING zheap;
CREATE TABLE chi (id int PRIMARY KEY, par int REFERENCES par DEFERRABLE INITIALLY DEFERRED, u int UNIQUE DEFERRABLE, note text) USING zheap;
CREATE FUNCTION now_check() RETURNS void LANGUAGE plpgsql AS
$$ BEGIN UPDATE chi SET note = 'in'; SET CONSTRAINTS ALL IMMEDIATE; UPDATE chi SET note = 'out'; END $$;
BEGIN;
INSERT INTO chi VALUES (1, 1, 1, ''), (2, 2, 2, '');
UPDATE chi SET u = 3 - u;
UPDATE chi SET note = 'a';
INSERT INTO par VALUES (1), (2);
SELECT now_check();
COMMIT;
SELECT * FROM chi ORDER BY id;
BEGIN;
INSERT INTO chi VALUES (3, 3, 3, '');
UPDATE chi SET note = 'b' WHERE id = 3;
SAVEPOINT a;
UPDATE chi SET par = 1 WHERE id = 3;
ROLLBACK TO a;
SELECT now_check();
ROLLBACK;
BEGIN;
UPDATE chi SET par = 9, note = 'c' WHERE id = 1;
UPDATE chi SET note = 'd' WHERE id = 1;
COMMIT;
DELETE FROM par WHERE id = 1;
SELECT * FROM chi ORDER BY id;
SELECT c.oid::regclass, f.* FROM pg_class c JOIN pg_am a ON a.oid = c.relam AND a.amname = 'zheap', zundo.check(c.oid::regclass) f
	WHERE c.relkind IN ('r', 'm') ORDER BY 1;
