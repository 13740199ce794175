-- The index access method zbtree: builds, scans, operator classes, what it refuses
-- (ZBTREE-2, ZBTREE-3).
SET client_min_messages = warning;
-- its operator families have the same names as those of btree, and as many functions, but for equalimage (ZBTREE-2)
WITH am AS (SELECT (SELECT oid FROM pg_am WHERE amname = 'btree') AS b, (SELECT oid FROM pg_am WHERE amname = 'zbtree') AS z)
SELECT
	(SELECT count(*) FROM pg_opfamily, am WHERE opfmethod = b AND pg_opfamily.oid < 16384) = (SELECT count(*) FROM pg_opfamily, am WHERE opfmethod = z) AS families,
	(SELECT count(*) FROM pg_opclass, am WHERE opcmethod = b AND pg_opclass.oid < 16384) = (SELECT count(*) FROM pg_opclass, am WHERE opcmethod = z) AS classes,
	(SELECT count(*) FROM pg_amop, am WHERE amopmethod = b AND pg_amop.oid < 16384) = (SELECT count(*) FROM pg_amop, am WHERE amopmethod = z) AS operators,
	(SELECT count(*) FROM pg_amproc p JOIN pg_opfamily f ON f.oid = p.amprocfamily, am WHERE opfmethod = b AND amprocnum <> 4 AND f.oid < 16384)
		= (SELECT count(*) FROM pg_amproc p JOIN pg_opfamily f ON f.oid = p.amprocfamily, am WHERE opfmethod = z) AS functions;
-- they have the same operators and functions
SELECT count(*) FROM pg_opfamily b JOIN pg_opfamily z ON z.opfname = b.opfname AND z.opfnamespace = b.opfnamespace
		AND z.opfmethod = (SELECT oid FROM pg_am WHERE amname = 'zbtree')
	JOIN pg_amop o ON o.amopfamily = b.oid
	WHERE b.opfmethod = (SELECT oid FROM pg_am WHERE amname = 'btree') AND NOT EXISTS (SELECT FROM pg_amop m
		WHERE m.amopfamily = z.oid AND (m.amopopr, m.amopstrategy, m.amoplefttype, m.amoprighttype, m.amoppurpose)
			= (o.amopopr, o.amopstrategy, o.amoplefttype, o.amoprighttype, o.amoppurpose));
SELECT opcname FROM pg_opclass WHERE opcmethod = (SELECT oid FROM pg_am WHERE amname = 'zbtree') AND NOT amvalidate(oid);
SELECT count(*) FROM pg_opclass z WHERE opcmethod = (SELECT oid FROM pg_am WHERE amname = 'zbtree')
	AND NOT EXISTS (SELECT FROM pg_opclass b WHERE b.opcmethod = (SELECT oid FROM pg_am WHERE amname = 'btree')
		AND (b.opcname, b.opcnamespace, b.opcintype, b.opcdefault) = (z.opcname, z.opcnamespace, z.opcintype, z.opcdefault));
SELECT amname, pg_indexam_has_property(oid, 'can_order') AS can_order, pg_indexam_has_property(oid, 'can_unique') = (current_setting('server_version_num')::int >= 180000) AS can_unique,
	pg_indexam_has_property(oid, 'can_multi_col') AS can_multi_col, pg_indexam_has_property(oid, 'can_exclude') AS can_exclude,
	pg_indexam_has_property(oid, 'can_include') AS can_include FROM pg_am WHERE amname = 'zbtree';
-- indexes of every kind
CREATE TABLE s (id int PRIMARY KEY, n int, t text, name name, c varchar(20), d timestamptz, m numeric, a int[]) USING zheap WITH (autovacuum_enabled = off);
INSERT INTO s SELECT g, g % 500, 'text ' || g % 1000, 'name ' || g, 'c' || g % 77, '2020-01-01 UTC'::timestamptz + g * interval '1 hour',
	g % 300 / 2.0, ARRAY[g % 10, g] FROM generate_series(1, 5000) g;
UPDATE s SET n = NULL WHERE id % 50 = 0;
CREATE INDEX s_n ON s USING zbtree (n);
CREATE INDEX s_n_desc ON s USING zbtree (n DESC NULLS LAST, t) INCLUDE (c) WITH (fillfactor = 70);
CREATE INDEX s_t ON s USING zbtree (t COLLATE "C");
CREATE INDEX s_pattern ON s USING zbtree (t text_pattern_ops);
CREATE INDEX s_name ON s USING zbtree (name);
CREATE INDEX s_c ON s USING zbtree (c varchar_ops);
CREATE INDEX s_d ON s USING zbtree (d) WHERE d > '2020-03-01';
CREATE INDEX s_m ON s USING zbtree (m);
CREATE INDEX s_a ON s USING zbtree (a);
CREATE INDEX CONCURRENTLY s_expr ON s USING zbtree ((n / 10), lower(t));
SELECT indexrelid::regclass, indisvalid, pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 's'::regclass ORDER BY 1::text;
-- scans of the indexes return the rows that a sequential scan returns
CREATE FUNCTION same(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan text;
	line text;
	way text;
	got text;
	first text;
	index_used text := 'no index';
BEGIN
	FOREACH way IN ARRAY ARRAY['seq', 'index', 'bitmap'] LOOP
		PERFORM set_config('enable_seqscan', (way = 'seq')::text, true), set_config('enable_sort', (way <> 'index')::text, true),
			set_config('enable_indexscan', (way = 'index')::text, true), set_config('enable_indexonlyscan', (way = 'index')::text, true),
			set_config('enable_bitmapscan', (way = 'bitmap')::text, true), set_config('enable_hashjoin', (way = 'seq')::text, true),
			set_config('enable_nestloop', (way = 'seq')::text, true);
		FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
			IF way = 'index' AND line ~ 'Index.* using s_' THEN index_used := substring(line FROM 's_\w+'); END IF;
		END LOOP;
		EXECUTE 'SELECT md5(string_agg(q::text, '';'')) FROM (' || query || ') q' INTO got;
		IF way = 'seq' THEN first := got; END IF;
		IF got IS DISTINCT FROM first THEN RETURN format('%s differs', way); END IF;
	END LOOP;
	RETURN index_used;
END $$;
CREATE FUNCTION all_same() RETURNS TABLE (query text, used text) LANGUAGE sql AS $$
	SELECT q, same(q) FROM unnest(ARRAY[
		'SELECT id FROM s WHERE n = 7 ORDER BY id',
		'SELECT n, count(*) FROM s GROUP BY n ORDER BY n',
		'SELECT n FROM s WHERE n BETWEEN 10 AND 20 ORDER BY n DESC',
		'SELECT n FROM s WHERE n IS NULL',
		'SELECT n, t, c FROM s WHERE n = ANY (ARRAY[3, 44, 3, NULL, 499]) ORDER BY n DESC NULLS LAST, t, c',
		'SELECT count(*) FROM s WHERE n > 8::bigint AND n < 30::smallint',
		'SELECT min(n), max(n) FROM s',
		'SELECT id, t FROM s WHERE t COLLATE "C" LIKE ''text 12%'' ORDER BY t COLLATE "C", id',
		'SELECT id FROM s WHERE name = ''name 77''',
		'SELECT c, count(*) FROM s WHERE c < ''c2'' GROUP BY c ORDER BY c',
		'SELECT id FROM s WHERE d BETWEEN ''2020-03-05'' AND ''2020-03-06'' ORDER BY d',
		'SELECT m FROM s WHERE m >= 149 ORDER BY m',
		'SELECT a FROM s WHERE a < ARRAY[1, 100] ORDER BY a',
		'SELECT id FROM s WHERE n / 10 = 3 AND lower(t) > ''text 5'' ORDER BY lower(t), id',
		'SELECT a.id, b.id FROM s a JOIN s b USING (m) WHERE a.m < 3 ORDER BY a.m, a.id, b.id']) q $$;
SELECT * FROM all_same();
-- after changes of every kind
UPDATE s SET n = n + 1 WHERE id % 3 = 0;
UPDATE s SET t = upper(t), m = m + 0.00 WHERE id % 5 = 0;
DELETE FROM s WHERE id % 7 = 0;
BEGIN;
UPDATE s SET n = -n, m = m + 1000;
SAVEPOINT x;
DELETE FROM s WHERE id < 1000;
ROLLBACK TO x;
SELECT used FROM all_same();
ROLLBACK;
INSERT INTO s (id, n, t) SELECT g, g % 13, 'new' FROM generate_series(6000, 7000) g;
SELECT used FROM all_same();
VACUUM s;
SELECT used FROM all_same();
REINDEX INDEX s_n;
REINDEX TABLE CONCURRENTLY s;
CLUSTER s USING s_n;
SELECT used FROM all_same();
VACUUM FULL s;
ANALYZE s;
SELECT used FROM all_same();
-- the server's rules for conditions name families of btree: they hold for zbtree too
CREATE FUNCTION conditions(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		IF line ~ ' using |Cond:' THEN RETURN NEXT trim(line); END IF;
	END LOOP;
END $$;
CREATE TABLE addresses (id int, a inet, t text) USING zheap WITH (autovacuum_enabled = off);
INSERT INTO addresses SELECT g, '10.0.0.0'::inet + g, 'text ' || g FROM generate_series(1, 3000) g;
CREATE INDEX s_pair ON addresses USING zbtree (id, a);
CREATE INDEX s_address ON addresses USING zbtree (a);
CREATE INDEX s_text ON addresses USING zbtree (t text_pattern_ops);
UPDATE addresses SET a = a + 1, t = t || 'x', id = id + 1;
ANALYZE addresses;
BEGIN;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SELECT conditions('SELECT * FROM addresses WHERE t LIKE ''text 12%''');
SELECT conditions('SELECT * FROM addresses WHERE a << ''10.0.1.0/28''');
-- a comparison of rows is a condition of the index from 18 on, as the executor accepts it
SELECT string_agg(c, ' ') ~ 'using s_pair .*Index Cond: \(ROW\(id, a\) > ROW' = (current_setting('server_version_num')::int >= 180000)
	FROM conditions('SELECT * FROM addresses WHERE (id, a) > (2900, ''10.0.0.1'') ORDER BY id, a LIMIT 10') c;
COMMIT;
SELECT same(q) <> 'no index' FROM unnest(ARRAY['SELECT id FROM addresses WHERE t LIKE ''text 12%x''', 'SELECT id FROM addresses WHERE a << ''10.0.1.0/28''',
	'SELECT id FROM addresses WHERE a <<= ''10.0.1.9/32''', 'SELECT * FROM addresses WHERE (id, a) > (2900, ''10.0.11.86'') ORDER BY id, a',
	'SELECT * FROM addresses WHERE (id, a) <= (99, ''10.0.0.1'') ORDER BY id DESC, a DESC']) q;
-- not while btree's family has an operator that zbtree's lacks
BEGIN;
CREATE FUNCTION later(text, inet) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT $1 < host($2)';
CREATE OPERATOR <<<< (FUNCTION = later, LEFTARG = text, RIGHTARG = inet);
ALTER OPERATOR FAMILY text_pattern_ops USING btree ADD OPERATOR 1 <<<< (text, inet);
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SELECT conditions('SELECT * FROM addresses WHERE t LIKE ''text 12%''');
ROLLBACK;
-- from 18 on the planner looks up the ends of an index: it knows of rows that came after ANALYZE, and not of old keys
CREATE FUNCTION estimate(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
	RETURN plan -> 0 -> 'Plan' -> 'Plan Rows';
END $$;
INSERT INTO addresses (id) SELECT g FROM generate_series(3002, 6000) g;
SELECT (estimate('SELECT * FROM addresses WHERE id > 3001') > 20) = (current_setting('server_version_num')::int >= 180000);
UPDATE addresses SET id = 0 WHERE id > 3001;
SELECT estimate('SELECT * FROM addresses WHERE id > 3001') > 20;
DROP TABLE addresses;
-- plans: the planner uses the index for one key by itself, and cursors move in both directions
EXPLAIN (COSTS OFF) SELECT * FROM s WHERE name = 'name 78';
BEGIN;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL enable_sort = off;
DECLARE c SCROLL CURSOR FOR SELECT n FROM s WHERE n < 3 ORDER BY n;
FETCH 3 FROM c;
UPDATE s SET n = n + 1 WHERE n < 3;
MOVE FORWARD ALL FROM c;
FETCH BACKWARD 2 FROM c;
ROLLBACK;
-- unlogged and temporary tables, partitions, materialized views
CREATE UNLOGGED TABLE u (id int) USING zheap;
CREATE INDEX ON u USING zbtree (id);
INSERT INTO u SELECT generate_series(1, 100);
CREATE TEMP TABLE tt (id int) USING zheap;
CREATE INDEX ON tt USING zbtree (id);
INSERT INTO tt SELECT generate_series(1, 100);
UPDATE tt SET id = id + 1;
SET enable_seqscan = off;
SELECT count(*) FROM u WHERE id < 10;
SELECT count(*) FROM tt WHERE id < 10;
RESET enable_seqscan;
CREATE TABLE p (id int, n int) PARTITION BY RANGE (id);
CREATE INDEX p_n ON p USING zbtree (n);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10) USING zheap;
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20) USING heap;
CREATE TABLE p2 (id int, n int) USING heap;
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
CREATE MATERIALIZED VIEW mv USING zheap AS SELECT * FROM s;
CREATE INDEX ON mv USING zbtree (n);
REFRESH MATERIALIZED VIEW mv;
-- what zbtree refuses
CREATE TABLE h (id int) USING heap;
CREATE INDEX ON h USING zbtree (id);
CREATE INDEX ON pg_class USING zbtree (relname);
ALTER TABLE u SET ACCESS METHOD heap;
CREATE INDEX ON s USING zbtree (n) WITH (nonsense = 1);
CREATE TABLE ex (a int, b int, EXCLUDE USING zbtree (a WITH =)) USING zheap;
INSERT INTO ex VALUES (1, 1), (2, 2);
INSERT INTO ex VALUES (1, 3);
UPDATE ex SET a = 2 WHERE b = 1;
UPDATE ex SET b = 5 WHERE a = 1 RETURNING ctid, *;
INSERT INTO s (id, n) VALUES (1, 5) ON CONFLICT (n) DO NOTHING;
INSERT INTO s (id, n) VALUES (1, 5) ON CONFLICT (id) DO UPDATE SET n = 77 RETURNING id, n;
CREATE TABLE wide (t text) USING zheap;
CREATE INDEX ON wide USING zbtree (t);
INSERT INTO wide SELECT string_agg(md5(g::text), '') FROM generate_series(1, 200) g;
-- types that are created after the extension
CREATE TYPE pair AS (a int, b int);
CREATE TABLE pt (p pair, i int) USING zheap;
CREATE INDEX ON pt USING zbtree (p);
CREATE FUNCTION mod_cmp(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT sign($1 % 10 - $2 % 10)::int';
CREATE OPERATOR FAMILY mod_ops USING btree;
CREATE OPERATOR CLASS mod_ops FOR TYPE int USING btree FAMILY mod_ops AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 mod_cmp(int, int);
CREATE INDEX ON pt USING zbtree (i mod_ops);
SELECT zundo.mirror_opclass('mod_ops');
SELECT zundo.mirror_opclass('public.mod_ops');
CREATE INDEX pt_mod ON pt USING zbtree (i mod_ops);
SELECT zundo.mirror_opclass('int4_ops');
SELECT zundo.mirror_opclass('no_ops');
-- a class that allows entries of several rows
CREATE OPERATOR CLASS image_ops FOR TYPE int USING zbtree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=,
	OPERATOR 5 >, FUNCTION 1 btint4cmp(int, int), FUNCTION 4 btequalimage(oid);
CREATE INDEX ON pt USING zbtree (p, i image_ops);
DROP OPERATOR FAMILY image_ops USING zbtree;
-- plans of other tables: an operator that extends a family of btree alone still shares its equivalence classes
CREATE TYPE num AS (v bigint);
CREATE FUNCTION num_eq(bigint, num) RETURNS bool LANGUAGE sql IMMUTABLE STRICT AS 'SELECT $1 = $2.v';
CREATE FUNCTION num_eq(num, bigint) RETURNS bool LANGUAGE sql IMMUTABLE STRICT AS 'SELECT $2 = $1.v';
CREATE OPERATOR = (FUNCTION = num_eq, LEFTARG = bigint, RIGHTARG = num, COMMUTATOR = =, MERGES);
CREATE OPERATOR = (FUNCTION = num_eq, LEFTARG = num, RIGHTARG = bigint, COMMUTATOR = =, MERGES);
ALTER OPERATOR FAMILY integer_ops USING btree ADD OPERATOR 3 = (bigint, num), OPERATOR 3 = (num, bigint);
CREATE FUNCTION some_num() RETURNS num LANGUAGE plpgsql STABLE AS 'BEGIN RETURN ROW(42)::num; END';
CREATE TABLE two (a bigint, b bigint) USING heap;
EXPLAIN (COSTS OFF) SELECT * FROM two WHERE a = b AND b = some_num();
-- a key that the toaster puts out of line because another column has grown: the row moves, since a key out of line
-- counts for all entries of its TID (ZBTREE-3)
CREATE TABLE pushed (id int PRIMARY KEY, a text, c text) USING zheap WITH (fillfactor = 30);
ALTER TABLE pushed ALTER a SET STORAGE EXTERNAL, ALTER c SET STORAGE EXTERNAL;
CREATE INDEX pushed_a ON pushed USING zbtree (a);
INSERT INTO pushed VALUES (1, repeat('m', 1500), '');
UPDATE pushed SET a = repeat('p', 1500);
SELECT ctid FROM pushed;
UPDATE pushed SET c = repeat('c', 1000);
SELECT ctid FROM pushed;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT left(a, 1) FROM pushed WHERE a > 'a';
SELECT left(a, 1) FROM pushed WHERE a < 'n';
RESET enable_seqscan;
RESET enable_bitmapscan;
-- a value that is too long for an entry is refused at once, whatever column of the index has it
CREATE TABLE long (id int PRIMARY KEY, a numeric, c text) USING zheap WITH (fillfactor = 30);
ALTER TABLE long ALTER c SET STORAGE EXTERNAL;
CREATE INDEX long_a ON long USING zbtree (a) INCLUDE (c);
INSERT INTO long VALUES (1, 1.0, 'short');
UPDATE long SET c = repeat('c', 2000), a = 1.00;
SELECT ctid, length(c) FROM long;
\set VERBOSITY sqlstate
UPDATE long SET c = repeat('c', 2800);
UPDATE long SET c = repeat('c', 6000);
\set VERBOSITY default
SELECT ctid, a, length(c) FROM long;
UPDATE long SET c = repeat('d', 2600);
REINDEX TABLE long;
SELECT a, length(c) FROM long;
SELECT c.relname, f.* FROM pg_class c JOIN pg_am a ON a.oid = c.relam, zundo.check(c.oid) f
	WHERE a.amname = 'zheap' AND c.relkind IN ('r', 'm');
