-- The life of rows in one session: insert, update in place and by moving,
-- delete, rollback, savepoints, indexes, TOAST, ALTER TABLE.
CREATE EXTENSION IF NOT EXISTS zundo;
SET client_min_messages = warning;
CREATE TABLE z (id int PRIMARY KEY, n int, t text) USING zheap;
INSERT INTO z SELECT g, g * 10, 'row ' || g FROM generate_series(1, 5) g;
SELECT * FROM z ORDER BY id;
-- in place: the TID stays, the table does not grow
SELECT ctid, id FROM z WHERE id = 3;
UPDATE z SET n = n + 1 WHERE id = 3;
SELECT ctid, * FROM z WHERE id = 3;
-- a key change moves the row
UPDATE z SET id = 30 WHERE id = 3;
SELECT * FROM z ORDER BY id;
SELECT * FROM z WHERE id = 3;
SET enable_seqscan = off;
SELECT * FROM z WHERE id = 30;
RESET enable_seqscan;
DELETE FROM z WHERE id = 2;
SELECT * FROM z ORDER BY id;
-- rollback of every kind of change
BEGIN;
UPDATE z SET n = -1, t = repeat('long', 100);
DELETE FROM z WHERE id = 4;
INSERT INTO z VALUES (100, 100, 'hundred');
UPDATE z SET id = 31 WHERE id = 30;
SELECT id, n, length(t) FROM z ORDER BY id;
ROLLBACK;
SELECT * FROM z ORDER BY id;
-- savepoints
BEGIN;
UPDATE z SET n = 1 WHERE id = 1;
SAVEPOINT a;
UPDATE z SET n = 2 WHERE id = 1;
SAVEPOINT b;
UPDATE z SET n = 3 WHERE id = 1;
DELETE FROM z WHERE id = 5;
ROLLBACK TO b;
SELECT * FROM z ORDER BY id;
UPDATE z SET n = 4 WHERE id = 1;
ROLLBACK TO a;
SELECT * FROM z ORDER BY id;
RELEASE a;
COMMIT;
SELECT * FROM z ORDER BY id;
-- own changes and a cursor opened before them
BEGIN;
DECLARE c CURSOR FOR SELECT id, n FROM z ORDER BY id;
UPDATE z SET n = n + 1000;
DELETE FROM z WHERE id = 1;
INSERT INTO z VALUES (7, 7, 'seven');
FETCH ALL FROM c;
SELECT id, n FROM z ORDER BY id;
ROLLBACK;
-- unique violations
INSERT INTO z VALUES (1, 0, 'again');
-- sizes: grow, shrink, grow within the room
UPDATE z SET t = repeat('x', 500) WHERE id = 1;
UPDATE z SET t = 'y' WHERE id = 1;
UPDATE z SET t = repeat('z', 400) WHERE id = 1;
SELECT id, n, left(t, 3), length(t) FROM z WHERE id = 1;
-- NULLs, all kinds of types
CREATE TABLE types (i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, b bool, c char(10),
	v varchar, n numeric, d date, ts timestamptz, iv interval, u uuid, a int8[], j jsonb, p point,
	nm name) USING zheap;
INSERT INTO types VALUES (1, 2, 3, 4.5, 5.5, true, 'char', 'varchar', 123456789.123456789,
	'2026-11-21', '2026-11-21 12:00+00', '1 day 2 hours', '00000000-0000-0000-0000-000000000001',
	'{1,2,3}', '{"a": [1, 2]}', '(1,2)', 'a name');
INSERT INTO types DEFAULT VALUES;
UPDATE types SET a = a || 4::int8, j = j || '{"b": null}' WHERE i2 = 1;
SET timezone = 'UTC';
SELECT * FROM types ORDER BY i2;
-- TOAST
CREATE TABLE toasted (id int, v text) USING zheap;
ALTER TABLE toasted ALTER v SET STORAGE EXTERNAL;
INSERT INTO toasted SELECT g, repeat(md5(g::text), 1000) FROM generate_series(1, 3) g;
BEGIN;
UPDATE toasted SET v = repeat('short', 2) WHERE id = 1;
DELETE FROM toasted WHERE id = 2;
ROLLBACK;
UPDATE toasted SET id = id + 10;
SELECT id, length(v), left(v, 8) FROM toasted ORDER BY id;
-- ALTER TABLE
ALTER TABLE z ADD COLUMN extra int DEFAULT 42;
SELECT id, n, extra FROM z ORDER BY id;
UPDATE z SET n = 0 WHERE id = 4;
INSERT INTO z VALUES (8, 8, 'eight', NULL);
SELECT id, n, extra FROM z ORDER BY id;
ALTER TABLE z DROP COLUMN t;
SELECT * FROM z ORDER BY id;
ALTER TABLE z ALTER COLUMN n TYPE bigint;
SELECT * FROM z ORDER BY id;
CREATE INDEX ON z (n);
SET enable_seqscan = off;
SELECT * FROM z WHERE n = 0;
RESET enable_seqscan;
-- VACUUM, ANALYZE, TRUNCATE
DELETE FROM z WHERE id < 5;
VACUUM z;
ANALYZE z;
SELECT count(*) FROM z;
INSERT INTO z SELECT g, g, g FROM generate_series(1000, 1100) g;
SELECT count(*), sum(n) FROM z;
TRUNCATE z;
SELECT count(*) FROM z;
SELECT * FROM zundo.check('z');
SELECT * FROM zundo.check('types');
SELECT * FROM zundo.check('toasted');
DROP TABLE z, types, toasted;
-- in place with AFTER triggers too; a TID that is returned can be used
CREATE TABLE place (id int PRIMARY KEY, n int) USING zheap;
CREATE FUNCTION say() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '% -> %', OLD, NEW; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER say AFTER UPDATE ON place DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION say();
INSERT INTO place VALUES (1, 1);
SET client_min_messages = notice;
BEGIN;
UPDATE place SET n = 2 RETURNING ctid, n;
UPDATE place SET n = 3 WHERE ctid = '(0,1)' RETURNING ctid, n;
SELECT n FROM place WHERE ctid = '(0,32769)';
COMMIT;
SELECT n FROM place WHERE ctid = '(0,32769)';
SELECT * FROM zundo.check('place');
DROP TABLE place;
