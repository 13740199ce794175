-- A row that grows takes from the free space of its page only what it lacks, wherever it lies on the page.
CREATE TABLE t (id int, f text) USING zheap WITH (autovacuum_enabled = off);
ALTER TABLE t ALTER f SET STORAGE plain;
INSERT INTO t SELECT g, repeat('x', 900) FROM generate_series(1, 8) g;
CREATE VIEW places AS SELECT id, ctid, length(f) - 900 AS more, f = repeat(left(f, 1), length(f)) AS same FROM t ORDER BY id;
CREATE VIEW counts AS SELECT updated_in_place, moved_for_space FROM zundo.stat_tables WHERE relid = 't'::regclass;
-- the free space is less than a row: updates to the same bytes, whose count takes a byte each, and by some more
UPDATE t SET f = f;
UPDATE t SET f = f WHERE id IN (1, 4, 8);
UPDATE t SET f = repeat(chr(96 + id), 900 + 20 * id) WHERE id IN (1, 4, 8);
SELECT * FROM places;
SELECT pg_stat_force_next_flush();
SELECT * FROM counts;
-- beside the rooms of undone insertions, and a stub of a deleted row that was saved for a snapshot
DELETE FROM t WHERE id IN (2, 3);
BEGIN;
INSERT INTO t SELECT g, 'undone' FROM generate_series(20, 24) g;
UPDATE t SET f = repeat('r', 910 + 10 * id) WHERE id BETWEEN 4 AND 8;
SELECT * FROM places;
ROLLBACK;
SELECT * FROM places;
UPDATE t SET f = repeat(chr(96 + id), 905 + 40 * id) WHERE id BETWEEN 4 AND 8;
SELECT * FROM places;
-- what does not fit moves
UPDATE t SET f = repeat('m', 3000) WHERE id = 5;
UPDATE t SET f = repeat('m', 5000) WHERE id = 6;
SELECT * FROM places;
SELECT * FROM zundo.check('t');
DROP VIEW places, counts;
DROP TABLE t;
