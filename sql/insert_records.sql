-- on: heap zheap
-- Rows that one command inserts share undo records (RANGE-1, RANGE-2): what
-- its functions, triggers, cursors and subtransactions do in between.
CREATE TABLE t (id int, who text);
CREATE FUNCTION pairs() RETURNS TABLE (rows bigint, ids bigint, digest text) LANGUAGE sql AS
$$ SELECT count(*), sum(id), md5(string_agg(id || who, ',' ORDER BY id, who)) FROM t $$;

-- a function of the command inserts into the same page, with a later command id
CREATE FUNCTION also(i int) RETURNS int LANGUAGE plpgsql AS
$$ BEGIN
  IF i % 3 = 0 THEN INSERT INTO t VALUES (1000 + i, 'inner'), (2000 + i, 'inner too'); END IF;
  RETURN i;
END $$;
BEGIN;
INSERT INTO t SELECT also(g), 'outer' FROM generate_series(1, 20) g;
SELECT count(DISTINCT cmin::text) > 1 AS several, bool_and(xmin = pg_current_xact_id()::xid) AS mine FROM t;
SELECT * FROM pairs();
COMMIT;
SELECT * FROM pairs();

-- the function inserts in a subtransaction that is rolled back
CREATE FUNCTION in_vain(i int) RETURNS int LANGUAGE plpgsql AS
$$ BEGIN
  IF i % 4 = 0 THEN
    BEGIN
      INSERT INTO t SELECT g, 'in vain' FROM generate_series(1, 5) g;
      UPDATE t SET who = 'in vain' WHERE id = i - 1;
      RAISE EXCEPTION 'back';
    EXCEPTION WHEN raise_exception THEN NULL;
    END;
  END IF;
  RETURN i;
END $$;
TRUNCATE t;
INSERT INTO t SELECT in_vain(g), 'outer' FROM generate_series(1, 40) g;
SELECT * FROM pairs();
SELECT count(*) FROM t WHERE who = 'in vain';

-- the command's own rows change while it runs: by a trigger
CREATE FUNCTION fix() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
  IF NEW.id % 5 = 0 THEN UPDATE t SET who = who || '+' WHERE id = NEW.id - 1; END IF;
  IF NEW.id % 7 = 0 THEN DELETE FROM t WHERE id = NEW.id - 2; END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER fix AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION fix();
TRUNCATE t;
INSERT INTO t SELECT g, 'x' FROM generate_series(1, 300) g;
SELECT * FROM pairs();
ALTER TABLE t DISABLE TRIGGER fix;
CREATE FUNCTION fix_before() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
  IF NEW.id % 5 = 0 THEN UPDATE t SET who = who || '-' WHERE id = NEW.id - 1; END IF;
  IF NEW.id % 7 = 0 THEN DELETE FROM t WHERE id = NEW.id - 2; END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER fix_before BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION fix_before();
TRUNCATE t;
INSERT INTO t SELECT g, 'x' FROM generate_series(1, 300) g;
SELECT * FROM pairs();
DROP TRIGGER fix_before ON t;

-- cursors see what their command saw, however the page was filled
TRUNCATE t;
BEGIN;
INSERT INTO t SELECT g, 'one' FROM generate_series(1, 30) g;
DECLARE c1 CURSOR FOR SELECT count(*), sum(id) FROM t;
INSERT INTO t SELECT g, 'two' FROM generate_series(31, 60) g;
DECLARE c2 CURSOR FOR SELECT count(*), sum(id) FROM t;
SAVEPOINT s;
INSERT INTO t SELECT g, 'three' FROM generate_series(61, 90) g;
UPDATE t SET who = 'changed' WHERE id % 10 = 0;
DECLARE c3 CURSOR FOR SELECT count(*), sum(id) FROM t WHERE who <> 'changed';
DELETE FROM t WHERE id % 10 = 1;
FETCH c3;
FETCH c1;
ROLLBACK TO s;
INSERT INTO t SELECT g, 'four' FROM generate_series(91, 100) g;
FETCH c2;
SELECT * FROM pairs();
COMMIT;
SELECT * FROM pairs();

-- a cursor that is opened while the command runs, before its last rows
CREATE FUNCTION opens(i int) RETURNS int LANGUAGE plpgsql AS
$$ DECLARE c refcursor := 'opened'; BEGIN
  IF i = 10 THEN OPEN c FOR SELECT count(*) FROM t; END IF;
  RETURN i;
END $$;
TRUNCATE t;
BEGIN;
INSERT INTO t SELECT opens(g), 'x' FROM generate_series(1, 20) g;
FETCH opened;
COMMIT;

-- ON CONFLICT, COPY with a trigger, and multi-row VALUES on the same pages
CREATE TABLE k (id int PRIMARY KEY, who text);
BEGIN;
INSERT INTO k SELECT g, 'plain' FROM generate_series(1, 10) g;
INSERT INTO k SELECT g, 'again' FROM generate_series(5, 15) g ON CONFLICT (id) DO UPDATE SET who = 'both';
INSERT INTO k SELECT g, 'new' FROM generate_series(12, 25) g ON CONFLICT DO NOTHING;
SAVEPOINT s;
INSERT INTO k SELECT g, 'gone' FROM generate_series(20, 40) g ON CONFLICT (id) DO UPDATE SET who = 'gone';
ROLLBACK TO s;
INSERT INTO k VALUES (41, 'v'), (42, 'v'), (43, 'v');
COPY k FROM stdin;
50	copied
51	copied
\.
INSERT INTO k VALUES (61, 'w'), (62, 'w'), (63, 'w');
COMMIT;
SELECT who, count(*), sum(id) FROM k GROUP BY who ORDER BY who;

-- places of deleted rows are used again, between rows that stay
CREATE TABLE holes (id int, pad text);
INSERT INTO holes SELECT g, repeat('p', 40) FROM generate_series(1, 400) g;
DELETE FROM holes WHERE id % 10 BETWEEN 3 AND 6 OR id BETWEEN 100 AND 200;
VACUUM holes;
BEGIN;
INSERT INTO holes SELECT g, repeat('q', 40) FROM generate_series(1001, 1300) g;
UPDATE holes SET pad = 'short' WHERE id % 9 = 0;
SAVEPOINT s;
INSERT INTO holes SELECT g, repeat('r', 40) FROM generate_series(2001, 2100) g;
ROLLBACK TO s;
INSERT INTO holes SELECT g, repeat('s', 40) FROM generate_series(3001, 3010) g;
SELECT count(*), sum(id), sum(length(pad)) FROM holes;
COMMIT;
SELECT count(*), sum(id), sum(length(pad)) FROM holes;
BEGIN;
INSERT INTO holes SELECT g, repeat('t', 40) FROM generate_series(4001, 4300) g;
ROLLBACK;
SELECT count(*), sum(id), sum(length(pad)) FROM holes;

-- temporary and unlogged tables, and several tables in turn
CREATE TEMP TABLE tmp (id int, n int);
CREATE UNLOGGED TABLE un (id int, n int);
BEGIN;
INSERT INTO tmp SELECT g, also(g) FROM generate_series(1, 500) g;
SAVEPOINT s;
INSERT INTO un SELECT g, in_vain(g) FROM generate_series(1, 500) g;
INSERT INTO tmp SELECT g, -1 FROM generate_series(501, 600) g;
ROLLBACK TO s;
INSERT INTO tmp SELECT g, 1 FROM generate_series(601, 700) g;
INSERT INTO un SELECT g, 1 FROM generate_series(701, 900) g;
COMMIT;
SELECT count(*), sum(id), sum(n) FROM tmp;
SELECT count(*), sum(id), sum(n) FROM un;
BEGIN;
INSERT INTO tmp SELECT g, 0 FROM generate_series(1, 300) g;
INSERT INTO un SELECT g, 0 FROM generate_series(1, 300) g;
ROLLBACK;
SELECT count(*), sum(id), sum(n) FROM tmp;
SELECT count(*), sum(id), sum(n) FROM un;
CREATE TABLE parts (id int, n int) PARTITION BY HASH (id);
SELECT format('CREATE TABLE parts_%s PARTITION OF parts FOR VALUES WITH (MODULUS 40, REMAINDER %s)', g, g)
FROM generate_series(0, 39) g \gexec
INSERT INTO parts SELECT g, 2 * g FROM generate_series(1, 2000) g;
SELECT count(*), sum(id), sum(n) FROM parts;

-- foreign keys: checks lock rows of the page into which the command inserts
CREATE TABLE tree (id int PRIMARY KEY, up int REFERENCES tree);
INSERT INTO tree SELECT g, nullif(g / 2, 0) FROM generate_series(1, 300) g;
SELECT count(*), sum(up) FROM tree;
DELETE FROM tree WHERE id = 5;
DROP TABLE t, k, holes, un, parts, tree;
DROP FUNCTION pairs, also, in_vain, fix, fix_before, opens;

-- the insertion of several rows that was read last is kept: others take
-- the line pointers meanwhile, and the rows change
CREATE FUNCTION kept(t text) RETURNS TABLE (k_sum bigint, v_sum bigint, by_index text) LANGUAGE plpgsql AS
$$ DECLARE sums bigint := 0; x bigint;
BEGIN
  SET LOCAL enable_seqscan = off;
  SET LOCAL enable_bitmapscan = off;
  FOR i IN 1 .. 600 LOOP
    EXECUTE format('SELECT sum(v * %s) FROM %I WHERE k = %s', i, t, i) INTO x;
    sums := sums + coalesce(x, 0);
  END LOOP;
  RETURN QUERY EXECUTE format('SELECT sum(k), sum(v), %L FROM %I', sums, t);
END $$;
CREATE TABLE a (k int, v int);
CREATE TEMP TABLE b (k int, v int);
BEGIN;
INSERT INTO a SELECT g, g FROM generate_series(1, 400) g;
INSERT INTO b SELECT g, g FROM generate_series(1, 400) g;
CREATE INDEX ON a (k);
CREATE INDEX ON b (k);
SELECT * FROM kept('a') a, kept('b') b;
DECLARE c CURSOR FOR SELECT k, v FROM b WHERE k > 395 ORDER BY k;
FETCH 2 FROM c;
SAVEPOINT s;
INSERT INTO a SELECT g, -g FROM generate_series(401, 600) g;
INSERT INTO b SELECT g, -g FROM generate_series(401, 600) g;
CREATE INDEX a_v ON a (v);
SELECT * FROM kept('a') a, kept('b') b;
UPDATE a SET v = v + 7 WHERE k % 3 = 0;
DELETE FROM b WHERE k % 3 = 0;
SELECT * FROM kept('a') a, kept('b') b;
ROLLBACK TO s;
FETCH 2 FROM c;
SELECT * FROM kept('a') a, kept('b') b;
INSERT INTO a SELECT g, 2 * g FROM generate_series(401, 500) g;
INSERT INTO b SELECT g, 2 * g FROM generate_series(401, 500) g;
CREATE INDEX a_v ON a (v);
SELECT * FROM kept('a') a, kept('b') b;
FETCH 2 FROM c;
COMMIT;
SELECT * FROM kept('a') a, kept('b') b;
SET enable_seqscan = off;
SELECT sum(v), count(*) FROM a WHERE v > 0;
RESET enable_seqscan;
DROP TABLE a, b;
DROP FUNCTION kept;
