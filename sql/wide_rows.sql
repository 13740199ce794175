-- Rows that a heap page can hold and a zheap page cannot; wide rows and fillfactor. On heap and on zheap.
CREATE FUNCTION insert_wide(rel regclass, len int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('INSERT INTO %s VALUES ($1, repeat(''a'', $1), ''b'')', rel) USING len;
	RETURN 'ok';
EXCEPTION WHEN program_limit_exceeded THEN
	RETURN SQLSTATE;
END $$;
CREATE TABLE h (a int, b text, c text) USING heap WITH (fillfactor = 10);
CREATE TABLE z (a int, b text, c text) USING zheap WITH (fillfactor = 10);
ALTER TABLE h ALTER b SET STORAGE plain, ALTER c SET STORAGE plain;
ALTER TABLE z ALTER b SET STORAGE plain, ALTER c SET STORAGE plain;
SELECT len, insert_wide('h', len) AS heap, insert_wide('z', len) AS zheap
FROM unnest('{8060, 8070, 8080, 8100, 8126, 8200, 20000}'::int[]) len;
SELECT a, length(b), b = repeat('a', a) AS same, c FROM z ORDER BY a;
SELECT count(*) FROM pg_class c, LATERAL pg_relation_size(c.reltoastrelid) WHERE oid = 'z'::regclass AND pg_relation_size > 0;
-- the table remains usable
UPDATE z SET c = 'cc' WHERE a = 8100;
UPDATE z SET b = repeat('x', 8110) WHERE a = 8080;
UPDATE z SET b = 'short' WHERE a = 8126;
BEGIN;
UPDATE z SET b = repeat('y', 8110);
DELETE FROM z WHERE a = 8100;
ROLLBACK;
SELECT a, length(b), left(b, 1), c FROM z ORDER BY a;
SELECT count(*) FROM zundo.check('z');
-- fillfactor 10: a nearly empty page is good enough, as on heap
CREATE TABLE hf (a int, b text) USING heap WITH (fillfactor = 10);
CREATE TABLE zf (a int, b text) USING zheap WITH (fillfactor = 10);
INSERT INTO hf VALUES (1, NULL);
INSERT INTO hf VALUES (2, repeat('a', 1000));
INSERT INTO hf VALUES (3, repeat('a', 1000));
INSERT INTO zf VALUES (1, NULL);
INSERT INTO zf VALUES (2, repeat('a', 1000));
INSERT INTO zf VALUES (3, repeat('a', 1000));
SELECT pg_relation_size('hf') AS heap, pg_relation_size('zf') AS zheap;
SELECT * FROM zundo.check('zf');
DROP FUNCTION insert_wide;
