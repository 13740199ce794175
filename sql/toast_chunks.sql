-- on: heap zheap
-- Values out of line: slices, numbers of chunks, storages, rewrites, rollbacks. (See also toast.)
-- Rules: TOAST-1, TOAST-3, TOAST-4.
SET default_toast_compression = pglz;
CREATE FUNCTION chunks(rel regclass) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM %s', (SELECT reltoastrelid::regclass FROM pg_class WHERE oid = rel)) INTO n;
	RETURN n;
END $$;
-- bytes that neither compress nor repeat
CREATE FUNCTION bytes(seed text, n int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT left(string_agg(md5(seed || g), '' ORDER BY g), n) FROM generate_series(1, n / 32 + 1) g $$;
-- lengths about a chunk, a page, and a batch of 64 chunks; the rows are so wide that even short values move out
CREATE TABLE t (id int PRIMARY KEY, len int, d text, p text DEFAULT repeat('p', 2100)) WITH (toast_tuple_target = 128);
ALTER TABLE t ALTER d SET STORAGE external, ALTER p SET STORAGE plain;
CREATE TABLE o AS SELECT n AS id, bytes('d' || n, n) AS d FROM unnest(ARRAY[1, 100, 1899, 1900, 1901, 1995, 1996, 1997, 2500, 3799, 3800, 3801, 7600, 7601, 8000, 121599, 121600, 121601, 127744, 300000]) n;
INSERT INTO t SELECT id, id, d FROM o;
SELECT chunks('t') > 400 AS chunks;
CREATE VIEW wrong AS SELECT t.id, length(t.d), left(t.d, 4) FROM t JOIN o USING (id) WHERE t.d IS DISTINCT FROM o.d;
SELECT * FROM wrong;
-- slices from and to every place about a boundary
SELECT count(*), count(*) FILTER (WHERE substr(t.d, a, n) IS DISTINCT FROM substr(o.d, a, n)) AS wrong
FROM t JOIN (SELECT id, d || '' AS d FROM o OFFSET 0) o USING (id), unnest(ARRAY[1, 2, 1899, 1900, 1901, 1996, 1997, 3800, 3801, 121600, 121601, 299999, 300000, 300001]) a, unnest(ARRAY[0, 1, 2, 1899, 1900, 1901, 3800, 5000, 121600, 300000]) n
WHERE a <= len + 1;
-- replaced, deleted, and back after a rollback; the chunks of values that are gone are not counted
SELECT chunks('t') AS chunks \gset before_
BEGIN;
UPDATE t SET d = bytes('e' || id, len);
SELECT count(*) FROM wrong;
SAVEPOINT s;
DELETE FROM t WHERE id > 5000;
INSERT INTO t VALUES (5, 9000, bytes('d5', 9000));
ROLLBACK TO s;
SELECT count(*) FILTER (WHERE d = bytes('e' || id, len)), count(*) FROM t;
ROLLBACK;
SELECT * FROM wrong;
SELECT chunks('t') - :before_chunks AS more;
UPDATE t SET d = d || '';
UPDATE t SET d = o.d FROM o WHERE o.id = t.id;
SELECT chunks('t') - :before_chunks AS more, count(*) FROM wrong;
-- the same value in a row twice changed by one command, and by a command within a command
CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF NEW.len > 0 THEN UPDATE t SET len = -len, d = bytes('again', 5000) WHERE id = NEW.id; END IF; RETURN NULL; END $$;
CREATE TRIGGER again AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION again();
UPDATE t SET d = bytes('x', 4000) WHERE id IN (1900, 8000);
SELECT id, len, d = bytes('again', 5000) AS again FROM t WHERE len < 0 ORDER BY id;
DROP TRIGGER again ON t;
UPDATE t SET len = -len, d = o.d FROM o WHERE o.id = t.id AND len < 0;
-- an upsert whose insertion is given up
INSERT INTO t VALUES (1900, 0, bytes('new', 6000)) ON CONFLICT (id) DO UPDATE SET d = bytes('d1900', 1900);
INSERT INTO t VALUES (1900, 0, bytes('new', 6000)) ON CONFLICT (id) DO NOTHING;
SELECT chunks('t') - :before_chunks AS more, count(*) FROM wrong;
-- VACUUM of both tables, rewrites of both, TRUNCATE, COPY FREEZE
VACUUM t;
SELECT * FROM wrong;
VACUUM FULL t;
SELECT chunks('t') - :before_chunks AS more, count(*) FROM wrong;
CLUSTER t USING t_pkey;
SELECT chunks('t') - :before_chunks AS more, count(*) FROM wrong;
ALTER TABLE t ALTER len TYPE bigint;
SELECT * FROM wrong;
SELECT reltoastrelid::regclass AS toast FROM pg_class WHERE oid = 't'::regclass \gset
REINDEX TABLE :toast;
VACUUM FULL :toast;
REINDEX TABLE CONCURRENTLY t;
SELECT * FROM wrong;
\getenv builddir PG_ABS_BUILDDIR
\set file :builddir '/toast_chunks.copy'
COPY t TO :'file';
BEGIN;
TRUNCATE t;
SELECT chunks('t');
COPY t FROM :'file' WITH (FREEZE);
COMMIT;
SELECT chunks('t') - :before_chunks AS more, count(*) FROM wrong;
DROP TABLE t, o CASCADE;
-- all storages, in rows of all widths; a PLAIN column whose value moves out if need be; dropped columns
CREATE TABLE s (id int PRIMARY KEY, n int, a text, b text, c text, d text, f text);
ALTER TABLE s ALTER a SET STORAGE plain, ALTER b SET STORAGE main, ALTER c SET STORAGE extended, ALTER d SET STORAGE external;
INSERT INTO s SELECT g, 0, bytes('a', 10 * g), repeat('b', 300 * g), repeat('c', 400 * g), bytes('d', 50 * g), NULL FROM generate_series(1, 100) g;
INSERT INTO s SELECT 100 + g, 0, NULL, bytes('b', 900 * g), bytes('c', 100 * g), NULL, 'f' FROM generate_series(1, 20) g;
ALTER TABLE s DROP f;
UPDATE s SET n = 1, c = c || 'c';
SELECT count(*) FILTER (WHERE a = bytes('a', 10 * id)) AS a, count(*) FILTER (WHERE b = repeat('b', 300 * id)) AS b,
	count(*) FILTER (WHERE c = repeat('c', 400 * id + 1)) AS c, count(*) FILTER (WHERE d = bytes('d', 50 * id)) AS d FROM s WHERE id <= 100;
SELECT count(*) FROM s WHERE id > 100 AND b = bytes('b', 900 * (id - 100)) AND c = bytes('c', 100 * (id - 100)) || 'c';
SELECT sum(pg_column_size(a)) AS a, sum(pg_column_size(b)) AS b, sum(pg_column_size(c)) AS c, sum(pg_column_size(d)) AS d FROM s WHERE id <= 100;
-- temporary and unlogged tables
CREATE TEMP TABLE p AS SELECT * FROM s;
UPDATE p SET d = bytes('D' || id, 4000);
DELETE FROM p WHERE id % 3 = 0;
CREATE UNLOGGED TABLE u AS SELECT * FROM p;
SELECT count(*), count(*) FILTER (WHERE d = bytes('D' || id, 4000)) FROM p;
SELECT count(*), count(*) FILTER (WHERE d = bytes('D' || id, 4000)) FROM u;
DROP TABLE s, p, u;
-- a value that a variable has from a block that was rolled back, whose page then gets other values
CREATE TABLE v (id int PRIMARY KEY, d text);
ALTER TABLE v ALTER d SET STORAGE external;
CREATE FUNCTION after_rollback(len int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	inserted text;
	updated text;
	result text;
BEGIN
	INSERT INTO v VALUES (1, bytes('a', len));
	BEGIN
		INSERT INTO v VALUES (2, bytes('b', len));
		SELECT d INTO inserted FROM v WHERE id = 2;
		UPDATE v SET d = bytes('c', len) WHERE id = 1 RETURNING d INTO updated;
		DELETE FROM v;
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		result := left(inserted, 4);
	END;
	FOR i IN 3..20 LOOP
		INSERT INTO v VALUES (i, bytes('d' || i, len));
		DELETE FROM v WHERE id = i - 2;
	END LOOP;
	RETURN concat_ws(' ', result = left(bytes('b', len), 4), inserted = bytes('b', len), updated = bytes('c', len));
END $$;
SELECT after_rollback(2200);
TRUNCATE v;
SELECT after_rollback(5000);
TRUNCATE v;
SELECT after_rollback(200000);
SELECT count(*), count(*) FILTER (WHERE d = bytes('d' || id, 200000)) FROM v;
DROP TABLE v;
DROP FUNCTION chunks, bytes, again, after_rollback;
