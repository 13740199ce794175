-- Every way to reach rows, through every index access method of the server, after
-- updates, deletes and rollbacks.
SET client_min_messages = warning;
CREATE TABLE s (id int, n int, t text, a int[], p point, r int4range) USING zheap;
INSERT INTO s SELECT g, g % 100, 'text ' || g, ARRAY[g % 10, g % 7], point(g, g % 50), int4range(g, g + 10)
	FROM generate_series(1, 5000) g;
CREATE UNIQUE INDEX s_btree ON s (id);
CREATE INDEX s_btree_n ON s (n);
CREATE INDEX s_hash ON s USING hash (t);
CREATE INDEX s_gin ON s USING gin (a);
CREATE INDEX s_gist ON s USING gist (p);
CREATE INDEX s_spgist ON s USING spgist (r);
CREATE INDEX s_brin ON s USING brin (id) WITH (pages_per_range = 2);
CREATE INDEX s_partial ON s (t) WHERE n = 42;
CREATE INDEX s_expr ON s ((n * 2));
ANALYZE s;

-- asks every index and the table itself for the same rows
CREATE FUNCTION ask() RETURNS TABLE (what text, rows bigint, sum bigint) LANGUAGE plpgsql AS $$
DECLARE
	q text;
	way text;
BEGIN
	FOREACH q IN ARRAY ARRAY[
		'id BETWEEN 100 AND 300', 'n = 42', 't = ''text 777''', 't = ''changed 778''', 'a @> ARRAY[3, 5]',
		'p <@ box ''((0,0),(400,25))''', 'r @> 1234', 'n = 42 AND t > ''text 2''', 'n * 2 = 84', 'n = 1042'] LOOP
		FOREACH way IN ARRAY ARRAY['enable_seqscan', 'enable_indexscan', 'enable_bitmapscan'] LOOP
			PERFORM set_config('enable_seqscan', (way = 'enable_seqscan')::text, true),
				set_config('enable_indexscan', (way = 'enable_indexscan')::text, true),
				set_config('enable_indexonlyscan', (way = 'enable_indexscan')::text, true),
				set_config('enable_bitmapscan', (way = 'enable_bitmapscan')::text, true);
			what := q || ' by ' || substr(way, 8);
			EXECUTE 'SELECT count(*), sum(id + n) FROM s WHERE ' || q INTO rows, sum;
			RETURN NEXT;
		END LOOP;
	END LOOP;
END $$;
-- returns one line for each question that all plans answer alike, otherwise one line for each plan
CREATE VIEW answers AS
	SELECT split_part(what, ' by ', 1) AS question, rows, sum, string_agg(split_part(what, ' by ', 2), ' ' ORDER BY what) AS ways
	FROM ask() GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
SELECT * FROM answers;
-- rolled back changes of every kind
BEGIN;
UPDATE s SET n = n + 1000 WHERE id % 2 = 0;
UPDATE s SET t = 'changed ' || id, p = point(-id, 0), r = NULL, a = '{}' WHERE id < 1000;
DELETE FROM s WHERE id BETWEEN 200 AND 250;
INSERT INTO s SELECT g, 42, 'new', '{3,5}', point(1, 1), int4range(1, 2000) FROM generate_series(6001, 6100) g;
SELECT * FROM answers;
ROLLBACK;
SELECT * FROM answers;
-- committed changes of every kind
UPDATE s SET n = n + 1000 WHERE id % 2 = 0;
UPDATE s SET t = 'changed ' || id, p = point(-id, 0), r = NULL, a = '{}' WHERE id < 1000;
DELETE FROM s WHERE id BETWEEN 200 AND 250;
INSERT INTO s SELECT g, 42, 'new', '{3,5}', point(1, 1), int4range(1, 2000) FROM generate_series(6001, 6100) g;
SELECT * FROM answers;
VACUUM s;
SELECT * FROM answers;
UPDATE s SET n = n - 1000 WHERE n >= 1000;
REINDEX TABLE s;
SELECT * FROM answers;
-- order of rows, and scans in both directions
SELECT id, n FROM s WHERE id > 4995 ORDER BY id DESC LIMIT 3;
SELECT id, round((p <-> point(3000, 10))::numeric, 9) AS d FROM s WHERE id BETWEEN 2900 AND 3100 ORDER BY p <-> point(3000, 10), 1 LIMIT 3;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM s WHERE id BETWEEN 1 AND 10;
FETCH 3 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH LAST FROM c;
FETCH PRIOR FROM c;
FETCH ABSOLUTE 5 FROM c;
UPDATE s SET n = -1 WHERE CURRENT OF c;
FETCH RELATIVE 1 FROM c;
DELETE FROM s WHERE CURRENT OF c;
FETCH FIRST FROM c;
FETCH ALL FROM c;
SELECT id, n FROM s WHERE id BETWEEN 1 AND 10 ORDER BY id;
ROLLBACK;
-- scans and fetches by TID
CREATE TABLE tids (id int) USING zheap;
INSERT INTO tids SELECT generate_series(1, 20);
DELETE FROM tids WHERE id = 7;
UPDATE tids SET id = -id WHERE id = 9;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM tids;
MOVE LAST FROM c;
MOVE FORWARD 1 FROM c;
FETCH BACKWARD 2 FROM c;
DELETE FROM tids WHERE id > 15;
FETCH BACKWARD 3 FROM c;
FETCH 2 FROM c;
ROLLBACK;
EXPLAIN (COSTS OFF) SELECT ctid, id FROM tids WHERE ctid IN ('(0,3)', '(0,7)', '(0,9)', '(0,100)', '(99,1)');
SELECT ctid, abs(id) FROM tids WHERE ctid IN ('(0,3)', '(0,7)', '(0,100)', '(99,1)');
EXPLAIN (COSTS OFF) SELECT id FROM tids WHERE ctid >= '(0,18)' AND ctid < '(1,0)';
SELECT id FROM tids WHERE ctid >= '(0,18)' AND ctid <= '(0,20)';
SELECT id FROM tids WHERE ctid < '(0,3)' ORDER BY ctid DESC;
SELECT count(*) FROM tids WHERE ctid > '(5,0)';
SELECT id FROM tids t WHERE ctid = (SELECT ctid FROM tids WHERE id = 12);
SET zundo.allow_ctid_guard = on;
DELETE FROM tids WHERE ctid = '(0,12)';
SELECT id FROM tids WHERE id BETWEEN 11 AND 13 ORDER BY id;
-- TABLESAMPLE
SELECT count(*) FROM s TABLESAMPLE bernoulli (100);
SELECT count(*) FROM s TABLESAMPLE system (100);
SELECT count(*) FROM s TABLESAMPLE bernoulli (0);
SELECT count(*) BETWEEN 1 AND 4000 FROM s TABLESAMPLE bernoulli (30) REPEATABLE (1);
-- this session's link to its undo becomes invalid in the midst of a scan
BEGIN;
CREATE FUNCTION let_read(id int) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	IF id = 10 THEN
		GRANT SELECT ON zundo.undo_log TO PUBLIC;
	END IF;
	RETURN true;
END $$;
SET LOCAL enable_indexscan = off;
SET LOCAL enable_bitmapscan = off;
SELECT count(*) FROM s WHERE let_read(id);
ROLLBACK;
-- parallel scans
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET min_parallel_index_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
BEGIN;
-- (the number of pages that VACUUM finds all-visible depends on other tests)
SET LOCAL enable_indexonlyscan = off;
UPDATE s SET n = n + 1 WHERE id <= 100;
EXPLAIN (COSTS OFF) SELECT count(*), sum(n) FROM s;
SELECT count(*), sum(n) FROM s;
SET LOCAL enable_indexonlyscan = on;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SELECT count(*), sum(n) FROM s WHERE id BETWEEN 1 AND 3000;
SET LOCAL enable_bitmapscan = on;
SET LOCAL enable_indexscan = off;
SELECT count(*), sum(n) FROM s WHERE id BETWEEN 1 AND 3000;
ROLLBACK;
SELECT count(*), sum(n) FROM s;
SET max_parallel_maintenance_workers = 2;
CREATE INDEX s_parallel ON s (n, id);
SET enable_seqscan = off;
SELECT count(*) FROM s WHERE n = 42 AND id > 0;
RESET enable_seqscan;
-- an index that is built while old versions are needed
BEGIN;
UPDATE tids SET id = id + 100;
CREATE INDEX ON tids (id);
SET LOCAL enable_seqscan = off;
SELECT count(*) FROM tids WHERE id > 100;
ROLLBACK;
CREATE INDEX CONCURRENTLY ON tids (id);
REINDEX INDEX CONCURRENTLY tids_id_idx;
SET enable_seqscan = off;
SELECT count(*), min(id), max(id) FROM tids WHERE id > -100;
RESET enable_seqscan;
-- constraints with other index access methods
CREATE TABLE ex (id int, r int4range, EXCLUDE USING gist (r WITH &&)) USING zheap;
INSERT INTO ex VALUES (1, '[1,10)'), (2, '[10,20)');
INSERT INTO ex VALUES (3, '[5,15)');
UPDATE ex SET r = '[1,11)' WHERE id = 1;
BEGIN;
DELETE FROM ex WHERE id = 1;
INSERT INTO ex VALUES (3, '[2,9)');
ROLLBACK;
SELECT * FROM ex ORDER BY id;
-- compiled queries (the tests' servers have jit = off)
SET jit = on;
SET jit_above_cost = 0;
SET jit_optimize_above_cost = 0;
SET jit_inline_above_cost = 0;
SELECT count(*), sum(n), sum(length(t)), max(upper(r)), max(p[0]) FROM s WHERE n % 3 = 1 AND t LIKE 'text%';
WITH u AS (UPDATE s SET n = n + 1 WHERE id % 500 = 3 RETURNING id, n) SELECT count(*), sum(id), sum(n) FROM u;
RESET jit;
RESET jit_above_cost;
RESET jit_optimize_above_cost;
RESET jit_inline_above_cost;
SELECT * FROM zundo.check('s');
SELECT * FROM zundo.check('tids');
SELECT * FROM zundo.check('ex');
DROP VIEW answers;
DROP FUNCTION ask;
DROP TABLE s, tids, ex;
