-- Changes rows in all ways that WAL and undo have records for. The part fuzz of ./zundo
-- test runs this, and damages the records (fuzz.c).
CREATE EXTENSION zundo;
CREATE EXTENSION zundo_test;
SET default_table_access_method = zheap;
CREATE TABLE t (id int PRIMARY KEY, n int, v text, j jsonb, w numeric, b bool);
CREATE TABLE full_identity (a text, b int, c varchar, d float8);
ALTER TABLE full_identity REPLICA IDENTITY FULL;
CREATE UNLOGGED TABLE u (LIKE t INCLUDING ALL);
CREATE TABLE narrow (a smallint);
CREATE TABLE wide (a int, b text STORAGE PLAIN, c text) PARTITION BY LIST (a);
CREATE TABLE wide_1 PARTITION OF wide FOR VALUES IN (1);
CREATE TABLE wide_2 PARTITION OF wide DEFAULT;
CREATE INDEX ON t USING zbtree (n);
SELECT zundo.discard() IS NULL \g /dev/null
CHECKPOINT;
INSERT INTO t SELECT g, g, repeat('x', g % 90), jsonb_build_object('k', g), g / 3.0, g % 3 = 0 FROM generate_series(1, 3000) g;
INSERT INTO u SELECT * FROM t WHERE id < 300;
INSERT INTO full_identity SELECT 'a' || g, g, repeat('long ', g % 50), g FROM generate_series(1, 200) g;
INSERT INTO narrow SELECT g FROM generate_series(1, 2000) g;
INSERT INTO wide SELECT 1, repeat('w', 1000 + g), repeat(md5(g::text), 40) FROM generate_series(1, 60) g;
DO $$
DECLARE
	i int;
	tables text[] := '{t,u}';
	tab text;
BEGIN
	FOR i IN 1..40 LOOP
		FOREACH tab IN ARRAY tables LOOP
			EXECUTE format('INSERT INTO %I VALUES ($1, $1, $2) ON CONFLICT (id) DO UPDATE SET v = excluded.v', tab) USING 5000 + i, md5(i::text);
			EXECUTE format('UPDATE %I SET n = n + 1, b = NOT b WHERE id %% 97 = $1', tab) USING i % 97;
			EXECUTE format('UPDATE %I SET v = repeat(chr(97 + $1 %% 26), $1 * 7) WHERE id %% 101 = $1', tab) USING i;
			EXECUTE format('UPDATE %I SET id = -id WHERE id = $1', tab) USING i;
			EXECUTE format('DELETE FROM %I WHERE id %% 103 = $1', tab) USING i;
			BEGIN
				EXECUTE format('SELECT count(*) FROM (SELECT FROM %I WHERE id %% 7 = $1 %% 7 FOR SHARE) s', tab) USING i;
				EXECUTE format('UPDATE %I SET j = NULL, w = w + 1 WHERE id %% 89 = $1', tab) USING i;
				IF i % 3 = 0 THEN
					RAISE division_by_zero;
				END IF;
			EXCEPTION WHEN division_by_zero THEN NULL;
			END;
		END LOOP;
		UPDATE full_identity SET c = c || 'x', d = -d WHERE b % 50 = i % 50;
		DELETE FROM full_identity WHERE b = i;
		PERFORM count(*) FROM (SELECT FROM narrow WHERE a % 4 = i % 4 FOR NO KEY UPDATE) s;
		UPDATE narrow SET a = a + 1 WHERE a % 50 = i % 50;
		UPDATE wide SET a = 3 - a WHERE length(b) % 60 = i % 60;
		UPDATE wide SET b = b || 'y', c = md5(c) WHERE length(b) % 50 = i % 50;
		COMMIT;
		IF i % 15 = 0 THEN
			EXECUTE 'ALTER TABLE t ADD COLUMN more_' || i || ' text DEFAULT ' || i;
		END IF;
	END LOOP;
END $$;
-- images of hot pages, by which old snapshots pass over long chains
SELECT count(*) FROM t \g /dev/null
DO $$
BEGIN
	FOR i IN 1..150 LOOP
		UPDATE t SET n = n + 1 WHERE id BETWEEN 1000 AND 1040;
		COMMIT;
	END LOOP;
END $$;
BEGIN;
UPDATE t SET w = w + 1 WHERE id % 5 = 0;
DELETE FROM narrow;
ROLLBACK;
VACUUM t;
CLUSTER t USING t_pkey;
COPY narrow FROM PROGRAM 'seq 1 500';
DELETE FROM narrow WHERE a % 3 = 0;
TRUNCATE wide;
