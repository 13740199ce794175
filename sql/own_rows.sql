-- on: heap zheap
-- Rows that earlier commands of the transaction have changed, on a page where
-- the last command has changed others: which version a snapshot sees, and which
-- one a command changes, must not depend on what was remembered of the records
-- (zown_accepts_row). Changes of savepoints that were rolled back stay on the
-- page until somebody undoes them.
SET zundo.eager_rollback_pages = 0;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
CREATE TABLE t (id int PRIMARY KEY, v int, f text);
CREATE FUNCTION fill() RETURNS void LANGUAGE sql AS
$$ DELETE FROM t; INSERT INTO t SELECT i, 0, 'f' FROM generate_series(1, 12) i $$;
-- reads each row by itself, locks it, and updates it
CREATE FUNCTION visit() RETURNS TABLE (id int, v int, locked int, updated int, len int) LANGUAGE plpgsql AS
$$
BEGIN
	FOR i IN 1..12 LOOP
		id := i;
		SELECT t.v, length(t.f) INTO v, len FROM t WHERE t.id = i;
		SELECT t.v INTO locked FROM t WHERE t.id = i FOR UPDATE;
		UPDATE t SET v = t.v + 1000 WHERE t.id = i RETURNING t.v INTO updated;
		RETURN NEXT;
	END LOOP;
END
$$;

-- the rolled back changes are in the way of the next command's
SELECT fill();
BEGIN;
UPDATE t SET v = id;
SAVEPOINT a;
UPDATE t SET v = 100 WHERE id = 1;
DELETE FROM t WHERE id = 2;
UPDATE t SET f = repeat('long', 300) WHERE id = 3;
ROLLBACK TO a;
UPDATE t SET v = v + 10 WHERE id = 10;
SELECT * FROM visit();
COMMIT;
SELECT id, v, length(f) FROM t ORDER BY id;

-- they are the last ones
SELECT fill();
BEGIN;
UPDATE t SET v = id;
SAVEPOINT a;
UPDATE t SET v = 100 WHERE id IN (1, 4);
DELETE FROM t WHERE id = 2;
UPDATE t SET f = repeat('long', 300) WHERE id = 3;
ROLLBACK TO a;
SELECT * FROM visit();
COMMIT;
SELECT id, v, length(f) FROM t ORDER BY id;

-- a savepoint within another one, of which one stays
SELECT fill();
BEGIN;
SAVEPOINT a;
UPDATE t SET v = id WHERE id < 7;
SAVEPOINT b;
UPDATE t SET v = 200 WHERE id IN (2, 8);
RELEASE b;
SAVEPOINT c;
UPDATE t SET v = 300 WHERE id IN (2, 3, 9);
DELETE FROM t WHERE id = 4;
ROLLBACK TO c;
UPDATE t SET v = v + 1 WHERE id = 9;
SELECT * FROM visit();
ROLLBACK TO a;
UPDATE t SET v = v + 5 WHERE id = 5;
SELECT * FROM visit();
COMMIT;
SELECT id, v FROM t ORDER BY id;

-- rows of our own insertion and deletion
BEGIN;
DELETE FROM t;
INSERT INTO t SELECT i, i, 'new' FROM generate_series(1, 12) i;
SAVEPOINT a;
DELETE FROM t WHERE id = 7;
UPDATE t SET v = 0 WHERE id = 8;
ROLLBACK TO a;
DELETE FROM t WHERE id = 12;
SELECT * FROM visit();
COMMIT;
SELECT id, v FROM t ORDER BY id;

-- a cursor between two commands
SELECT fill();
BEGIN;
UPDATE t SET v = id;
DECLARE early CURSOR FOR SELECT id, v FROM t ORDER BY id;
DECLARE held CURSOR WITH HOLD FOR SELECT id, v FROM t ORDER BY id;
FETCH 2 FROM early;
UPDATE t SET v = v + 100 WHERE id IN (3, 5);
DECLARE middle CURSOR FOR SELECT id, v FROM t ORDER BY id;
FETCH 2 FROM early;
UPDATE t SET v = v + 100 WHERE id IN (5, 6);
DELETE FROM t WHERE id = 8;
FETCH 4 FROM early;
FETCH ALL FROM middle;
UPDATE t SET v = v + 1000 WHERE id = 12;
FETCH ALL FROM early;
COMMIT;
FETCH ALL FROM held;
CLOSE held;

-- a query whose function changes rows that it has yet to read, and rows that
-- it has read
SELECT fill();
CREATE FUNCTION bump(i int) RETURNS int LANGUAGE plpgsql AS
$$
DECLARE x int;
BEGIN
	UPDATE t SET v = v + 1 WHERE id IN (i, 13 - i);
	SELECT sum(v) INTO x FROM t WHERE id IN (i, 13 - i);
	RETURN x;
END
$$;
BEGIN;
UPDATE t SET v = 10 * id;
SELECT id, v, bump(id) FROM t ORDER BY id;
DO
$$
DECLARE r record;
BEGIN
	FOR r IN SELECT id, v FROM t ORDER BY id LOOP
		UPDATE t SET v = v + r.v WHERE id = 13 - r.id;
		UPDATE t SET v = v + 1 WHERE id = r.id % 12 + 1;
	END LOOP;
END
$$;
SELECT id, v FROM t ORDER BY id;
COMMIT;

-- triggers that change further rows of the page
SELECT fill();
CREATE FUNCTION further() RETURNS trigger LANGUAGE plpgsql AS
$$
BEGIN
	IF pg_trigger_depth() < 3 THEN
		UPDATE t SET v = v + 1 WHERE id = NEW.id % 12 + 1;
	END IF;
	INSERT INTO seen VALUES (pg_trigger_depth(), NEW.id, OLD.v, NEW.v);
	RETURN NULL;
END
$$;
CREATE TABLE seen (depth int, id int, old int, new int);
CREATE TRIGGER further AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION further();
BEGIN;
UPDATE t SET v = id;
SAVEPOINT a;
UPDATE t SET v = v + 10 WHERE id < 5;
ROLLBACK TO a;
UPDATE t SET v = v + 100 WHERE id < 5 RETURNING id, v;
COMMIT;
SELECT depth, id, old, new, count(*) FROM seen GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4;
SELECT id, v FROM t ORDER BY id;
DROP TABLE t, seen;
DROP FUNCTION fill, visit, bump, further;
