-- Updates that store the same columns again are counted behind the last column (TOKEN-5).
CREATE FUNCTION stored(rel regclass, OUT row_state text, OUT natts int, OUT len int, OUT repeated bigint)
	RETURNS SETOF record LANGUAGE sql AS $$
	SELECT row_state, natts, len, repeated
	FROM generate_series(0, pg_relation_size(rel) / 8192 - 1) block, zundo.page_items(rel, block) p
	WHERE lp_state = 'normal' AND row_state IN ('inserted', 'updated') ORDER BY block, lp $$;
CREATE TABLE r (id int PRIMARY KEY, a int, t text) USING zheap;
INSERT INTO r VALUES (1, 10, 'one'), (2, 20, 'two');
UPDATE r SET a = a WHERE id = 1;
SELECT * FROM stored('r');
-- other columns begin anew; the same columns as long ago do, too
UPDATE r SET a = a + 1 WHERE id = 1;
SELECT * FROM stored('r');
UPDATE r SET a = a - 1 WHERE id = 1;
SELECT * FROM stored('r');
-- each repetition is counted, also by the transaction and the command that wrote the row
BEGIN;
UPDATE r SET a = a;
UPDATE r SET a = 10 WHERE id = 1;
SAVEPOINT s;
UPDATE r SET t = t;
UPDATE r SET t = t WHERE id = 2;
SELECT * FROM stored('r');
ROLLBACK TO s;
SELECT * FROM stored('r');
UPDATE r SET t = t || '' WHERE id = 2;
COMMIT;
SELECT * FROM stored('r');
BEGIN;
UPDATE r SET t = t;
UPDATE r SET t = t || '!';
UPDATE r SET t = t;
ROLLBACK;
SELECT * FROM stored('r');
-- the count grows by a byte at 256 and at 65536
DO $$ BEGIN FOR i IN 3..255 LOOP UPDATE r SET a = a WHERE id = 2; COMMIT; END LOOP; END $$;
SELECT * FROM stored('r') OFFSET 1;
UPDATE r SET a = a WHERE id = 2;
SELECT * FROM stored('r') OFFSET 1;
UPDATE r SET a = a WHERE id = 2;
SELECT * FROM stored('r') OFFSET 1;
DO $$ BEGIN FOR i IN 258..65535 LOOP UPDATE r SET a = a WHERE id = 2; END LOOP; END $$;
SELECT * FROM stored('r') OFFSET 1;
UPDATE r SET a = a WHERE id = 2;
SELECT * FROM stored('r') OFFSET 1;
BEGIN;
DO $$ BEGIN FOR i IN 1..300 LOOP UPDATE r SET a = a WHERE id = 2; END LOOP; END $$;
ROLLBACK;
SELECT * FROM stored('r') OFFSET 1;
SELECT * FROM r ORDER BY id;
-- so xmin changes each time
CREATE TABLE k (id int PRIMARY KEY, a int) USING zheap;
INSERT INTO k VALUES (1, 1);
CREATE TABLE token AS SELECT xmin::text AS x FROM k;
DO $$
DECLARE x xid;
BEGIN
	FOR i IN 1..600 LOOP
		UPDATE k SET a = a RETURNING xmin INTO x;
		INSERT INTO token VALUES (x::text);
		COMMIT;
		IF x::text <> (SELECT xmin::text FROM k) THEN RAISE EXCEPTION 'RETURNING and SELECT differ'; END IF;
	END LOOP;
END $$;
SELECT count(*), count(DISTINCT x) FROM token;
SELECT xmin::text AS now FROM k \gset
BEGIN;
UPDATE k SET a = a RETURNING xmin::text IN (SELECT x FROM token) AS seen;
ROLLBACK;
SELECT xmin::text = :'now' AS same FROM k;
VACUUM FULL k;
SELECT xmin::text = :'now' AS same FROM k;
DROP TABLE k, token;
-- all ways to update
INSERT INTO r VALUES (1, 10, 'one') ON CONFLICT (id) DO UPDATE SET a = excluded.a, t = excluded.t;
SELECT repeated FROM stored('r') LIMIT 1;
MERGE INTO r USING (VALUES (1)) v (id) ON r.id = v.id WHEN MATCHED THEN UPDATE SET t = r.t;
SELECT repeated FROM stored('r') LIMIT 1;
BEGIN;
DECLARE c CURSOR FOR SELECT id, a FROM r WHERE id = 1 FOR UPDATE;
FETCH c;
UPDATE r SET a = 10 WHERE CURRENT OF c;
COMMIT;
SELECT repeated FROM stored('r') LIMIT 1;
CREATE FUNCTION keep_old() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$;
CREATE TRIGGER keep_old BEFORE UPDATE ON r FOR EACH ROW EXECUTE FUNCTION keep_old();
UPDATE r SET a = 77, t = 'other' WHERE id = 1;
SELECT repeated, (SELECT a FROM r WHERE id = 1) AS a FROM stored('r') LIMIT 1;
DROP TRIGGER keep_old ON r;
-- an update that is suppressed counts nothing
CREATE TRIGGER suppress BEFORE UPDATE ON r FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
UPDATE r SET a = a WHERE id = 1;
SELECT repeated FROM stored('r') LIMIT 1;
DROP TRIGGER suppress ON r;
SET zundo.move_updates = on;
UPDATE r SET a = a WHERE id = 1;
RESET zundo.move_updates;
SELECT repeated FROM stored('r') ORDER BY repeated LIMIT 1;
-- rewrites keep counts, also those of versions for older snapshots
VACUUM FULL r;
SELECT natts, len, repeated FROM stored('r') ORDER BY repeated;
CLUSTER r USING r_pkey;
SELECT natts, len, repeated FROM stored('r') ORDER BY repeated;
SET enable_indexscan = off;
CLUSTER r;
RESET enable_indexscan;
SELECT natts, len, repeated FROM stored('r') ORDER BY repeated;
SELECT * FROM r ORDER BY id;
-- the number of columns in the header says where the count begins
ALTER TABLE r ADD COLUMN more int DEFAULT 5;
SELECT * FROM r ORDER BY id;
VACUUM FULL r;
SELECT natts, len, repeated FROM stored('r') ORDER BY repeated;
UPDATE r SET a = a;
UPDATE r SET a = a;
ALTER TABLE r ADD COLUMN last text;
SELECT * FROM r ORDER BY id;
SELECT natts, repeated FROM stored('r');
UPDATE r SET a = a;
SELECT natts, repeated FROM stored('r');
UPDATE r SET a = a;
SELECT natts, repeated FROM stored('r');
ALTER TABLE r DROP COLUMN more;
UPDATE r SET a = a;
SELECT natts, repeated FROM stored('r');
UPDATE r SET a = a;
ALTER TABLE r DROP COLUMN t;
SELECT natts, repeated FROM stored('r');
VACUUM FULL r;
SELECT natts, repeated FROM stored('r');
SELECT * FROM r ORDER BY id;
-- ALTER TABLE forms rows anew, and counts anew
ALTER TABLE r SET UNLOGGED;
SELECT natts, repeated FROM stored('r');
SELECT * FROM zundo.check('r');
-- a row without any column; an added column ends where the row's columns end
CREATE TABLE empty () USING zheap;
INSERT INTO empty DEFAULT VALUES;
ALTER TABLE empty ADD COLUMN a int;
UPDATE empty SET a = a;
UPDATE empty SET a = a;
SELECT natts, len, repeated FROM stored('empty');
SELECT * FROM empty;
-- values that are compressed or out of line
CREATE TABLE big (id int, plain text, compressed text, external text) USING zheap;
ALTER TABLE big ALTER plain SET STORAGE plain, ALTER external SET STORAGE external;
INSERT INTO big VALUES (1, repeat('p', 1900), repeat('c', 9000), repeat('e', 9000)), (2, 'p', NULL, repeat('e', 9000)),
	(3, repeat('p', 2500), 'c', 'e'), (4, 'p', repeat('c', 9000), NULL);
UPDATE big SET id = id;
UPDATE big SET id = id;
SELECT repeated FROM stored('big');
UPDATE big SET external = external || '' WHERE id = 2;
SELECT repeated FROM stored('big');
SELECT id, length(plain), length(compressed), length(external) FROM big ORDER BY id;
VACUUM FULL big;
SELECT repeated FROM stored('big');
SELECT id, length(plain), length(compressed), length(external) FROM big ORDER BY id;
SELECT * FROM zundo.check('big');
-- the widest row: an empty page has room for its count
CREATE TABLE wide (id int PRIMARY KEY, t text) USING zheap WITH (autovacuum_enabled = off);
ALTER TABLE wide ALTER t SET STORAGE plain;
INSERT INTO wide VALUES (1, repeat('w', 8063));
SELECT len, repeated FROM stored('wide');
DO $$ BEGIN FOR i IN 1..300 LOOP UPDATE wide SET t = t; COMMIT; END LOOP; END $$;
SELECT len, repeated FROM stored('wide');
BEGIN;
UPDATE wide SET id = 2, t = repeat('v', 8063);
UPDATE wide SET id = id;
ROLLBACK;
SELECT len, repeated FROM stored('wide');
VACUUM FULL wide;
SELECT len, repeated FROM stored('wide');
-- a new row takes the count of the slot along; it is not too wide because of it
CREATE TABLE wide_copy USING zheap AS SELECT * FROM wide;
INSERT INTO wide_copy SELECT * FROM wide;
SELECT id, left(t, 1), length(t) FROM wide_copy;
SELECT * FROM zundo.check('wide');
SELECT * FROM zundo.check('wide_copy');
-- full pages: some rows move, all are counted, those of zbtree indexes and of temporary tables too
CREATE TABLE full_pages (id int PRIMARY KEY, k int, t text) USING zheap WITH (autovacuum_enabled = off);
CREATE INDEX full_k ON full_pages USING zbtree (k);
CREATE TEMP TABLE full_temp (id int PRIMARY KEY, k int, t text) USING zheap;
INSERT INTO full_pages SELECT g, g, repeat('f', 70) FROM generate_series(1, 1000) g;
INSERT INTO full_temp SELECT * FROM full_pages;
UPDATE full_pages SET k = k;
UPDATE full_temp SET k = k;
SELECT repeated, count(*) FROM stored('full_pages') GROUP BY 1;
SELECT repeated, count(*) FROM stored('full_temp') GROUP BY 1;
BEGIN;
UPDATE full_pages SET k = k;
ROLLBACK;
UPDATE full_pages SET k = k + 1000 WHERE id % 2 = 0;
UPDATE full_pages SET k = k;
SELECT repeated, count(*) FROM stored('full_pages') GROUP BY 1 ORDER BY 1;
SET enable_seqscan = off;
SELECT count(*), sum(k) FROM full_pages WHERE k > 0;
RESET enable_seqscan;
SELECT * FROM zundo.check('full_pages');
SELECT * FROM zundo.check_index('full_k');
DROP TABLE r, empty, big, wide, wide_copy, full_pages, full_temp;
DROP FUNCTION stored, keep_old;
