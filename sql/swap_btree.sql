-- zundo.swap_btree, a setting for tests: indexes of zheap tables are zbtree where they would be btree, unique ones from 18 on
CREATE VIEW methods AS SELECT c.relname, CASE WHEN i.indisunique AND t.amname = 'zheap' AND a.amname =
		CASE WHEN current_setting('server_version_num')::int < 180000 THEN 'btree' ELSE 'zbtree' END THEN 'zbtree from 18 on' ELSE a.amname END AS amname
	FROM pg_class c JOIN pg_am a ON a.oid = c.relam JOIN pg_index i ON i.indexrelid = c.oid JOIN pg_class r ON r.oid = i.indrelid LEFT JOIN pg_am t ON t.oid = r.relam
	WHERE c.relkind IN ('i', 'I') AND c.relnamespace = 'public'::regnamespace ORDER BY 1;
SET zundo.swap_btree = on;
CREATE TABLE z (id int PRIMARY KEY, a int, t text, EXCLUDE USING btree (a WITH =)) USING zheap;
CREATE INDEX z_plain ON z (a);
CREATE INDEX z_named ON z USING btree (t text_pattern_ops, a DESC) INCLUDE (id) WHERE a > 0;
CREATE INDEX z_expression ON z ((a + 1));
CREATE INDEX CONCURRENTLY z_concurrent ON z (a, t);
CREATE INDEX z_hash ON z USING hash (a);
CREATE UNIQUE INDEX z_unique ON z (t);
-- an operator class that zbtree does not have
CREATE OPERATOR CLASS other_ops FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 3 =, OPERATOR 5 >, FUNCTION 1 btint4cmp(int, int);
CREATE INDEX z_class ON z (a other_ops);
CREATE TABLE z_like (LIKE z INCLUDING INDEXES) USING zheap;
CREATE TABLE h (id int PRIMARY KEY, a int) USING heap;
CREATE INDEX h_plain ON h (a);
CREATE MATERIALIZED VIEW m USING zheap AS SELECT 1 AS a;
CREATE INDEX m_plain ON m (a);
SET default_table_access_method = zheap;
CREATE TABLE p (a int, b text) PARTITION BY RANGE (a);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE INDEX p_plain ON p (b);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);
CREATE TABLE p3 (a int, b text);
CREATE INDEX p3_plain ON p3 (b);
ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30);
-- a merged partition (19) would be a heap table, which cannot have the zbtree index
SELECT current_setting('server_version_num')::int >= 190000 AS merges \gset
\if :merges
ALTER TABLE p MERGE PARTITIONS (p1, p2) INTO p12;
\else
DROP TABLE p1, p2;
CREATE TABLE p12 PARTITION OF p FOR VALUES FROM (0) TO (20);
\endif
SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE relname = 'p12';
-- an index that is rebuilt keeps its access method
DROP INDEX z_class;
ALTER TABLE z ALTER a TYPE bigint;
SELECT * FROM methods;
SET zundo.swap_btree = off;
CREATE INDEX z_as_said ON z (a);
SELECT * FROM methods WHERE relname = 'z_as_said';
