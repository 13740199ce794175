-- on: heap zheap
-- Rows that one command deletes share undo records (RANGE-2, RANGE-3): what its
-- functions, triggers, cursors and subtransactions do in between.
CREATE TABLE t (id int, who text) WITH (autovacuum_enabled = off);
CREATE FUNCTION look() RETURNS TABLE (rows bigint, ids bigint, digest text) LANGUAGE sql AS
$$ SELECT count(*), sum(id), md5(string_agg(id || coalesce(who, '-'), ',' ORDER BY id, who)) FROM t $$;
CREATE FUNCTION fill(n int) RETURNS void LANGUAGE sql AS
$$ TRUNCATE t; INSERT INTO t SELECT g, CASE WHEN g % 4 > 0 THEN 'r' || g END FROM generate_series(1, n) g $$;

-- a function of the command changes the same page, with a later command id
CREATE FUNCTION also(i int) RETURNS bool LANGUAGE plpgsql AS
$$ BEGIN
  IF i % 10 = 3 THEN DELETE FROM t WHERE id IN (i + 5, i + 7); END IF;
  IF i % 10 = 7 THEN UPDATE t SET who = 'also' WHERE id = i + 60; INSERT INTO t VALUES (1000 + i, 'also'); END IF;
  RETURN i % 2 = 1;
END $$;
SELECT fill(100);
BEGIN;
DELETE FROM t WHERE id <= 40 AND also(id);
SELECT * FROM look();
SAVEPOINT s;
DELETE FROM t WHERE id <= 80 AND also(id);
SELECT * FROM look();
ROLLBACK TO s;
SELECT * FROM look();
DELETE FROM t WHERE id BETWEEN 41 AND 60;
SELECT * FROM look();
COMMIT;
SELECT * FROM look();

-- the function deletes in a subtransaction that is rolled back
CREATE FUNCTION in_vain(i int) RETURNS bool LANGUAGE plpgsql AS
$$ BEGIN
  IF i % 4 = 0 THEN
    BEGIN
      DELETE FROM t WHERE id BETWEEN i - 6 AND i + 6;
      INSERT INTO t VALUES (-i, 'in vain');
      RAISE EXCEPTION 'back';
    EXCEPTION WHEN raise_exception THEN NULL;
    END;
  END IF;
  RETURN i % 3 > 0;
END $$;
SELECT fill(100);
DELETE FROM t WHERE in_vain(id);
SELECT * FROM look();

-- two commands in the reverse order of the rows, and each row by itself
SELECT fill(100);
BEGIN;
DELETE FROM t WHERE id > 50;
DELETE FROM t WHERE id <= 30;
SAVEPOINT s;
DELETE FROM t;
ROLLBACK TO s;
SELECT * FROM look();
DO $$ BEGIN FOR i IN REVERSE 50..41 LOOP DELETE FROM t WHERE id = i; END LOOP; END $$;
SELECT * FROM look();
COMMIT;
SELECT * FROM look();

-- cursors see the rows of the commands before them; each shows the row that it
-- stands at, and deletes it
SELECT fill(60);
BEGIN;
DECLARE c0 CURSOR FOR SELECT count(*), sum(id) FROM t;
DELETE FROM t WHERE id % 3 = 0;
DECLARE c1 CURSOR FOR SELECT count(*), sum(id) FROM t;
SAVEPOINT s;
UPDATE t SET who = 'u' WHERE id % 5 = 0;
DELETE FROM t WHERE id % 5 IN (0, 1);
DECLARE c2 CURSOR FOR SELECT count(*), sum(id) FROM t;
INSERT INTO t SELECT g, 'new' FROM generate_series(101, 110) g;
DELETE FROM t WHERE id > 50;
FETCH c2;
FETCH c1;
FETCH c0;
SELECT * FROM look();
ROLLBACK TO s;
SELECT * FROM look();
DECLARE d CURSOR FOR SELECT id FROM t WHERE id > 20 FOR UPDATE;
FETCH d;
FETCH d;
DELETE FROM t WHERE CURRENT OF d;
SELECT * FROM look();
COMMIT;

-- rows of several shapes and authors: columns added, nulls, updated, locked and
-- moved rows, rows of this transaction
SELECT fill(40);
ALTER TABLE t ADD COLUMN more int;
INSERT INTO t SELECT g, 'wider', nullif(g % 3, 0) FROM generate_series(41, 80) g;
UPDATE t SET more = 7 WHERE id % 9 = 0;
UPDATE t SET who = repeat('w', 100) WHERE id % 11 = 0;
BEGIN;
INSERT INTO t SELECT g, 'mine', g FROM generate_series(81, 100) g;
UPDATE t SET more = 8 WHERE id % 13 = 0;
SELECT count(*) FROM (SELECT FROM t WHERE id % 7 = 0 FOR UPDATE) l;
SELECT count(*) FROM (SELECT FROM t WHERE id % 8 = 0 FOR KEY SHARE) l;
SAVEPOINT s;
WITH gone AS (DELETE FROM t WHERE id % 2 = 0 RETURNING *) SELECT count(*), sum(id), sum(more), sum(length(who)) FROM gone;
DELETE FROM t WHERE id % 3 = 0;
SELECT * FROM look();
ROLLBACK TO s;
SELECT * FROM look();
DELETE FROM t WHERE id % 3 = 0;
COMMIT;
SELECT * FROM look();
SELECT sum(more) FROM t;
CREATE TABLE bare ();
INSERT INTO bare DEFAULT VALUES; INSERT INTO bare DEFAULT VALUES; INSERT INTO bare DEFAULT VALUES;
ALTER TABLE bare ADD COLUMN a int;
INSERT INTO bare SELECT generate_series(1, 5);
BEGIN;
DELETE FROM bare;
SELECT count(*) FROM bare;
ROLLBACK;
SELECT count(*), sum(a) FROM bare;
DELETE FROM bare;
SELECT count(*) FROM bare;

-- triggers get the rows that are deleted, at the end of the command and of the
-- transaction
CREATE TABLE log (what text, id int, who text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
  INSERT INTO log VALUES (TG_NAME || coalesce(TG_ARGV[0], ''), OLD.id, OLD.who);
  IF TG_WHEN = 'BEFORE' AND OLD.id % 10 = 4 THEN DELETE FROM t WHERE id IN (OLD.id + 30, OLD.id + 31); END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER before BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER after AFTER DELETE ON t FOR EACH ROW EXECUTE FUNCTION note();
CREATE CONSTRAINT TRIGGER later AFTER DELETE ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();
SELECT fill(40);
BEGIN;
DELETE FROM t WHERE id <= 10;
SAVEPOINT s;
DELETE FROM t WHERE id BETWEEN 11 AND 20;
ROLLBACK TO s;
DELETE FROM t WHERE id BETWEEN 15 AND 30;
SELECT what, count(*), sum(id), md5(string_agg(id || coalesce(who, '-'), ',' ORDER BY id)) FROM log GROUP BY what ORDER BY what;
COMMIT;
SELECT what, count(*), sum(id), md5(string_agg(id || coalesce(who, '-'), ',' ORDER BY id)) FROM log GROUP BY what ORDER BY what;
SELECT * FROM look();
DROP TABLE t, bare, log;
DROP FUNCTION look(), fill(int), also(int), in_vain(int), note();
