-- EXPLAIN (ANALYZE, UNDO), from 18 on. A query that follows a change in the same statement reads old rows.
SELECT current_setting('server_version_num')::int < 180000 AS before_18 \gset
\set VERBOSITY terse
CREATE TABLE z (id int, k int, t text) USING zheap;
INSERT INTO z SELECT g, g, repeat('x', 20) FROM generate_series(1, 20) g;
CREATE INDEX z_k ON z USING zbtree (k);
CREATE TABLE h (id int, k int) USING heap;
INSERT INTO h SELECT g, g FROM generate_series(1, 20) g;
ANALYZE z, h;
EXPLAIN (ANALYZE, UNDO, COSTS off, TIMING off, SUMMARY off, BUFFERS off) SELECT 1;
\if :before_18
SET zundo.explain_undo = on;
DROP TABLE z, h;
\quit
\endif
-- the option
EXPLAIN (UNDO) SELECT 1;
EXPLAIN (UNDO, ANALYZE false) SELECT 1;
EXPLAIN (UNDO off, COSTS off) SELECT 1;
EXPLAIN (UNDO wrong, ANALYZE) SELECT 1;

-- each answer is what EXPLAIN shows of a statement, without counts that may vary
CREATE FUNCTION explain(query text, options text DEFAULT 'UNDO', vary text DEFAULT 'records|pages|bytes')
	RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text; BEGIN
	FOR line IN EXECUTE format('EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off, BUFFERS off, %s) %s', options, query) LOOP
		RETURN NEXT regexp_replace(replace(line, 'InitPlan expr_', 'InitPlan '), format('(%s)=\d+', vary), '\1=N', 'g');
	END LOOP;
END $$;
CREATE FUNCTION inner_explain(options text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
	RAISE NOTICE '%', (SELECT string_agg(line, E'\n') FROM explain('UPDATE z SET t = ''n'' WHERE id = 2', options) line);
	RETURN true;
END $$;
SET enable_bitmapscan = off;
SET enable_indexscan = off;
SET enable_sort = off;
CREATE FUNCTION change(n int) RETURNS int LANGUAGE sql AS 'UPDATE z SET t = t || ''.'' WHERE id <= n; SELECT n';
SELECT explain('WITH u AS (UPDATE z SET t = ''new'' WHERE id <= 3 RETURNING 1) SELECT FROM (SELECT count(*) FROM u) c, z', vary => 'bytes');
-- plain scans, also of heap, and a function that reads undo where it is called
BEGIN;
SELECT explain('SELECT * FROM z');
SELECT explain('UPDATE z SET t = '''' WHERE id = 1');
SELECT explain('SELECT * FROM z');
SELECT explain('SELECT * FROM h WHERE k = 3 AND change(k) = 3');
SELECT explain('SELECT * FROM z WHERE change(3) = k');
SELECT explain('SELECT (SELECT max(k) FROM z) FROM h WHERE id <= (SELECT change(4)) AND id IN (SELECT k FROM z)');
ROLLBACK;
-- changes: in place, moved, of heap, locks
CREATE TABLE m (id int PRIMARY KEY, t text) USING zheap;
SELECT explain('INSERT INTO m SELECT id FROM z');
SELECT explain('UPDATE m SET id = id + 20');
SELECT explain('INSERT INTO m VALUES (21), (41) ON CONFLICT (id) DO UPDATE SET t = ''''');
SELECT explain('MERGE INTO m USING h ON m.id = h.id + 20 WHEN MATCHED AND m.id < 25 THEN UPDATE SET t = ''x'' WHEN MATCHED THEN DELETE');
SELECT explain('DELETE FROM m');
SELECT explain('UPDATE h SET k = k');
SELECT explain('SELECT * FROM z WHERE id < 3 FOR UPDATE');
CREATE TABLE p (id int, t text) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10) USING zheap;
SELECT explain('INSERT INTO p VALUES (1)');
SELECT explain('UPDATE p SET t = ''x''');
SELECT explain('CREATE TABLE made USING zheap AS SELECT * FROM z WHERE change(1) = k');
-- old keys of zbtree
SET enable_indexscan = on;
SET enable_seqscan = off;
SELECT explain('WITH u AS (UPDATE z SET k = k + 100 WHERE k BETWEEN 2 AND 4 RETURNING 1) SELECT FROM (SELECT count(*) FROM u) c, z WHERE k > 15');
SET enable_bitmapscan = on;
SET enable_indexscan = off;
SELECT explain('WITH u AS (UPDATE z SET k = k - 100 WHERE k > 100 RETURNING 1) SELECT FROM (SELECT count(*) FROM u) c, z WHERE k < 5');
RESET enable_bitmapscan;
RESET enable_indexscan;
RESET enable_seqscan;
-- formats
SELECT explain('UPDATE z SET t = '''' WHERE id = -1', 'UNDO, FORMAT json');
SELECT explain('UPDATE z SET t = '''' WHERE id = -1', 'UNDO, FORMAT xml');
SELECT explain('UPDATE z SET t = '''' WHERE id = -1', 'UNDO, FORMAT yaml');
SELECT explain('UPDATE h SET k = 0 WHERE id = -1', 'UNDO, FORMAT yaml');
-- prepared statements, cursors, rules
PREPARE change_one (int) AS UPDATE z SET t = 'p' WHERE id = $1;
SELECT explain('EXECUTE change_one (change(1))');
SELECT explain('DECLARE c CURSOR FOR SELECT * FROM z WHERE change(1) = k');
CREATE RULE also AS ON UPDATE TO h DO ALSO UPDATE z SET t = 'r' WHERE id = old.id;
SELECT explain('UPDATE h SET k = 1 WHERE id = 1');
-- EXPLAIN within a query that is explained, without and with the option
SELECT explain('SELECT FROM z WHERE id = 1 AND inner_explain(''UNDO'')');
SELECT explain('SELECT FROM z WHERE id = 1 AND inner_explain(''VERBOSE off'')');
SELECT explain('SELECT FROM z WHERE id = 1 AND inner_explain(''UNDO'')', 'VERBOSE off');
-- an error in the middle
SELECT explain('UPDATE z SET t = (k / (k - 3))::text');
DO $$ BEGIN
	PERFORM explain('SELECT FROM z WHERE change(1) = k / (k - 3)');
EXCEPTION WHEN division_by_zero THEN
	RAISE NOTICE '%', (SELECT string_agg(line, E'\n') FROM explain('UPDATE z SET t = '''' WHERE id = 1') line);
END $$;
EXPLAIN (ANALYZE, UNDO) UPDATE z SET t = (k / (k - 3))::text;
SELECT explain('UPDATE z SET t = ''e'' WHERE id = 1');
-- the setting
CREATE ROLE explain_user;
GRANT SELECT, UPDATE ON z TO explain_user;
SET ROLE explain_user;
SELECT explain('UPDATE z SET t = ''x'' WHERE id = 1');
SELECT explain('UPDATE z SET t = ''y'' WHERE id = 1', 'VERBOSE off');
SET zundo.explain_undo = on;
SELECT explain('UPDATE z SET t = ''x'' WHERE id = 1', 'VERBOSE off');
SELECT explain('UPDATE z SET t = ''y'' WHERE id = 1', 'UNDO off');
SELECT explain('SELECT FROM z WHERE change(2) = k', 'VERBOSE off');
EXPLAIN (COSTS off) UPDATE z SET t = '';
RESET zundo.explain_undo;
RESET ROLE;
DROP TABLE z, h, m, p, made;
DROP FUNCTION change, explain, inner_explain;
DROP ROLE explain_user;
