-- A row that grows leaves a gap on its page. It is found although the page was pruned in vain before, in the same command.
CREATE TABLE t (id int, f text) USING zheap WITH (autovacuum_enabled = off);
ALTER TABLE t ALTER f SET STORAGE plain;
INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 6) g;
-- 1 has no room and moves; 2 takes room from the hole; 3 needs what 2 has left; 4 has no room
UPDATE t SET f = repeat('y', CASE id WHEN 1 THEN 3000 WHEN 2 THEN 1500 WHEN 3 THEN 1400 WHEN 4 THEN 2000 ELSE 1000 END);
SELECT id, ctid, length(f) FROM t ORDER BY id;
BEGIN;
UPDATE t SET f = repeat('z', 900 + 200 * id);
ROLLBACK;
SELECT id, ctid, f = repeat('y', length(f)) AS same FROM t ORDER BY id;
SELECT * FROM zundo.check('t');
DROP TABLE t;
