-- zbtree indexes with operator classes of an extension (zundo.mirror_opclass)
SELECT count(*) = 0 AS no_citext FROM pg_available_extensions WHERE name = 'citext' \gset
\if :no_citext
\echo skipped: the server lacks the extension citext
\quit
\endif
SET client_min_messages = warning;
CREATE EXTENSION citext;
CREATE TABLE ci (t citext) USING zheap;
CREATE INDEX ON ci USING zbtree (t);
SELECT zundo.mirror_opclass('citext_ops');
CREATE INDEX ci_t ON ci USING zbtree (t);
INSERT INTO ci VALUES ('One'), ('TWO');
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM ci WHERE t = 'two';
SELECT * FROM ci WHERE t = 'two';
RESET enable_seqscan;
CREATE ROLE regress_zbtree;
SET ROLE regress_zbtree;
SELECT zundo.mirror_opclass('citext_pattern_ops');
RESET ROLE;
DROP ROLE regress_zbtree;
DROP EXTENSION citext CASCADE;
