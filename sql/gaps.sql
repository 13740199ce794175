-- A row that grows leaves a gap on its page. The gap is used even if pruning the page found nothing earlier in the same command.
CREATE TABLE t (id int, f text) USING zheap WITH (autovacuum_enabled = off);
ALTER TABLE t ALTER f SET STORAGE plain;
INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 6) g;
-- row 1 finds no room and moves; row 2 takes its room from the hole; row 3 needs the room that row 2 has left; row 4 finds no room
UPDATE t SET f = repeat('y', CASE id WHEN 1 THEN 3000 WHEN 2 THEN 1500 WHEN 3 THEN 1400 WHEN 4 THEN 2000 ELSE 1000 END);
SELECT id, ctid, length(f) FROM t ORDER BY id;
BEGIN;
UPDATE t SET f = repeat('z', 900 + 200 * id);
ROLLBACK;
SELECT id, ctid, f = repeat('y', length(f)) AS same FROM t ORDER BY id;
SELECT * FROM zundo.check('t');
DROP TABLE t;
