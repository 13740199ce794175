-- Values out of line: which updates go through the toaster, and what becomes of the values.
CREATE FUNCTION records(command text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, WAL, TIMING off, SUMMARY off, FORMAT json) ' || command INTO plan;
	RETURN plan -> 0 -> 'Plan' ->> 'WAL Records';
END $$;
CREATE FUNCTION chunks(rel regclass) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM %s', (SELECT reltoastrelid::regclass FROM pg_class WHERE oid = rel)) INTO n;
	RETURN n;
END $$;
CREATE TABLE t (id int PRIMARY KEY, n int, a text, b text, c text) USING zheap WITH (autovacuum_enabled = off);
ALTER TABLE t ALTER a SET STORAGE external, ALTER b SET STORAGE external;
INSERT INTO t SELECT g, 0, repeat('a' || g, 1500), CASE WHEN g % 2 = 0 THEN repeat('b' || g, 1500) END, 'c'
FROM generate_series(1, 40) g;
CREATE VIEW wrong AS SELECT id, left(a, 4) AS a, left(b, 4) AS b FROM t
	WHERE a IS DISTINCT FROM repeat('a' || id, 1500) OR
	b IS DISTINCT FROM CASE WHEN id % 2 = 0 THEN repeat('b' || id, 1500) END;
SELECT chunks('t') AS chunks, count(*) FROM t;
-- the values stay: one record for each row, no lock before it, nothing in the TOAST table
SELECT records('UPDATE t SET n = n + 1') < 50 AS one_each, chunks('t') AS chunks;
SELECT records('UPDATE t SET n = n + 1, c = c || NULL WHERE id < 20') < 25 AS one_each, chunks('t') AS chunks;
BEGIN;
UPDATE t SET n = n + 1;
SAVEPOINT s;
UPDATE t SET n = n + 1, c = 'cc';
ROLLBACK TO s;
UPDATE t SET n = n + 1;
ROLLBACK;
SELECT sum(n), count(c) FROM t;
SELECT * FROM wrong;
-- a row that moves takes its values along
ALTER TABLE t ADD d int DEFAULT 7;
CREATE INDEX ON t (d);
SELECT records('UPDATE t SET d = 8 WHERE id <= 20') < 70 AS three_each, chunks('t') AS chunks;
SELECT * FROM wrong;
-- the column gets another value, or null; two columns exchange their values
UPDATE t SET a = repeat('A' || id, 1500) WHERE id = 1;
UPDATE t SET a = repeat('a' || id, 1500) WHERE id = 1;
SELECT chunks('t') AS chunks;
BEGIN;
UPDATE t SET b = NULL;
UPDATE t SET n = -1;
SELECT chunks('t') AS chunks, count(a), count(b) FROM t;
ROLLBACK;
BEGIN;
UPDATE t SET a = b, b = a WHERE id % 2 = 0;
SELECT chunks('t') AS chunks;
SELECT id, left(a, 2), left(b, 2), length(a), length(b) FROM t WHERE id IN (2, 40) ORDER BY id;
UPDATE t SET a = b, b = a WHERE id % 2 = 0;
SELECT * FROM wrong;
COMMIT;
UPDATE t SET b = a WHERE id = 3;
UPDATE t SET n = 3 WHERE id = 3;
UPDATE t SET a = NULL WHERE id = 3;
SELECT id, a, left(b, 2) AS b, length(b) FROM t WHERE id = 3;
UPDATE t SET a = b, b = NULL WHERE id = 3;
SELECT * FROM wrong;
SELECT chunks('t') AS chunks;
-- a row that becomes too wide, or exceeds the table's target, is toasted
UPDATE t SET c = (SELECT string_agg(md5(g::text), '') FROM generate_series(1, 100) g) WHERE id = 4;
SELECT chunks('t') AS chunks, pg_relation_size('t') AS size;
ALTER TABLE t ALTER c SET STORAGE external;
ALTER TABLE t SET (toast_tuple_target = 128);
UPDATE t SET c = repeat('c', 300) WHERE id = 5;
SELECT chunks('t') AS chunks;
SELECT * FROM wrong;
-- the value of a dropped column goes with the next update
ALTER TABLE t DROP b CASCADE;
UPDATE t SET n = 0;
SELECT chunks('t') AS chunks, count(*) FROM t WHERE a = repeat('a' || id, 1500);
SELECT * FROM zundo.check('t');
DROP TABLE t;
DROP FUNCTION records, chunks;
