-- Each kind of change of a page that VACUUM has flagged all-visible takes the flag and the page's bit away (VMAP-2).
CREATE TABLE f (id int PRIMARY KEY, n int, note text) USING zheap WITH (autovacuum_enabled = off);
-- makes VACUUM flag all pages, waiting for snapshots of others that do not yet see all rows
CREATE PROCEDURE flag() LANGUAGE plpgsql AS $$ BEGIN
	FOR i IN 1..600 LOOP
		EXIT WHEN zundo.undo_bytes_in_use() = 0;
		PERFORM pg_sleep(0.05);
	END LOOP;
END $$;
CREATE FUNCTION flagged() RETURNS bool LANGUAGE sql AS $$ SELECT relallvisible = relpages FROM pg_class WHERE oid = 'f'::regclass $$;
-- rows that an index-only scan had to fetch, since the bit of their page is not set
CREATE FUNCTION fetches() RETURNS int LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	FOR line IN EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT id FROM f WHERE id > 0 LOOP
		IF line ~ 'Heap Fetches' THEN RETURN substring(line FROM '\d+'); END IF;
	END LOOP;
	RETURN -1;
END $$;
\set found 'SELECT fetches() > 0 AS cleared, (SELECT count(*) FROM f) AS rows, c.* FROM (SELECT) AS s LEFT JOIN zundo.check(\'f\') AS c ON true;'
SET enable_seqscan = off;
SET enable_bitmapscan = off;
INSERT INTO f SELECT i, 0, '' FROM generate_series(1, 10) i;
CALL flag();
VACUUM f;
SELECT flagged(), fetches();

-- an update in place, a deletion, an insertion
UPDATE f SET n = 1 WHERE id = 3;
:found
CALL flag();
VACUUM f;
DELETE FROM f WHERE id = 4;
:found
CALL flag();
VACUUM f;
INSERT INTO f VALUES (11, 0, '');
:found

-- an insertion of several rows, and COPY
CALL flag();
VACUUM f;
INSERT INTO f SELECT i, 0, '' FROM generate_series(12, 14) i;
:found
CALL flag();
VACUUM f;
COPY f FROM STDIN;
20	0	a
21	0	b
\.
:found

-- a longer row, one that moves on its page, one that moves to another page
CALL flag();
VACUUM f;
UPDATE f SET note = repeat('x', 900) WHERE id = 5;
:found
CALL flag();
VACUUM f;
UPDATE f SET id = id + 100 WHERE id = 6;
:found
CALL flag();
VACUUM f;
UPDATE f SET note = (SELECT string_agg(md5(g::text), '') FROM generate_series(1, 50) g) WHERE id < 10;
:found

-- changes that are undone, and a speculative insertion that finds a conflict
CALL flag();
VACUUM f;
BEGIN;
UPDATE f SET n = 2 WHERE id = 7;
DELETE FROM f WHERE id = 8;
ROLLBACK;
:found
CALL flag();
VACUUM f;
INSERT INTO f VALUES (1, 0, ''), (30, 0, '') ON CONFLICT (id) DO UPDATE SET n = 3;
:found
CALL flag();
VACUUM f;
SELECT flagged(), fetches();
SELECT id, n, left(note, 3), length(note) FROM f ORDER BY id;
