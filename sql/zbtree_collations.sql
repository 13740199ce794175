-- zbtree refuses operator classes that compare bytes where a collation is not deterministic; needs ICU
-- 16 has the collation unicode also without ICU
SELECT count(*) = 0 AS no_icu FROM pg_collation WHERE collname = 'en-x-icu' \gset
\if :no_icu
\echo skipped: the server lacks ICU
\quit
\endif
CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE cases (t text COLLATE any_case, b char(3) COLLATE any_case) USING zheap;
INSERT INTO cases VALUES ('abc', 'abc'), ('ABC', 'ABC');
CREATE INDEX ON cases USING zbtree (t text_pattern_ops);
CREATE INDEX ON cases USING zbtree (t varchar_pattern_ops);
CREATE INDEX ON cases USING zbtree (b bpchar_pattern_ops);
CREATE INDEX ON cases USING zbtree (t COLLATE "C" text_pattern_ops);
CREATE INDEX ON cases USING zbtree (t, b);
SET enable_seqscan = off;
SELECT t FROM cases WHERE t = 'abc' ORDER BY t COLLATE "C";
SELECT b FROM cases WHERE t = 'abc' AND b = 'abc' ORDER BY b COLLATE "C";
RESET enable_seqscan;
