-- The same random transactions on a heap table and on a zheap table, with triggers that note OLD and NEW at once and
-- at the end: what was noted must be equal. A row is changed up to hundreds of times in a transaction,
-- in nested subtransactions, half of which are rolled back.
CREATE EXTENSION IF NOT EXISTS zundo;
SET client_min_messages = warning;
-- the rows of a transaction's last events do not fit into memory (HANDLE-1)
SET work_mem = '64kB';
CREATE TABLE h (id int PRIMARY KEY, n int, x text, k int, b int) USING heap;
CREATE TABLE z (id int PRIMARY KEY, n int, x text, k int, b int) USING zheap;
CREATE INDEX ON h (k);
CREATE INDEX ON z (k);
CREATE INDEX ON h USING brin (b);
CREATE INDEX ON z USING brin (b);
CREATE TABLE noted (tab name, at bigserial, what text, old text, new text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO noted (tab, what, old, new) VALUES (TG_TABLE_NAME, TG_NAME || ' ' || TG_OP, OLD::text, NEW::text);
	-- sometimes the trigger itself goes on
	IF TG_OP = 'UPDATE' AND NEW.n % 11 = 0 AND pg_trigger_depth() < 3 THEN
		EXECUTE format('UPDATE %I SET n = n + 1 WHERE id = %s', TG_TABLE_NAME, NEW.id);
	END IF;
	RETURN NULL;
END $$;
DO $$
DECLARE
	t text;
BEGIN
	FOREACH t IN ARRAY ARRAY['h', 'z'] LOOP
		EXECUTE format('CREATE TRIGGER now AFTER INSERT OR UPDATE OR DELETE ON %I FOR EACH ROW EXECUTE FUNCTION note()', t);
		EXECUTE format('CREATE CONSTRAINT TRIGGER later AFTER INSERT OR UPDATE OR DELETE ON %I DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION note()', t);
		EXECUTE format('CREATE CONSTRAINT TRIGGER later_if AFTER UPDATE ON %I DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW WHEN (OLD.n IS DISTINCT FROM NEW.n AND OLD.x <> NEW.x) EXECUTE FUNCTION note()', t);
	END LOOP;
END $$;
CREATE FUNCTION pick(n int) RETURNS int LANGUAGE sql VOLATILE AS 'SELECT floor(random() * n)::int';
-- some statements, some of them in a subtransaction of their own
CREATE PROCEDURE changes(t text, count int, depth int) LANGUAGE plpgsql AS $$
DECLARE
	id int;
	q text;
BEGIN
	FOR i IN 1 .. count LOOP
		id := pick(4) + 1;
		q := CASE pick(16)
			-- (an upsert's lock on a row that subtransactions update fails an assertion of heap's own, 17.11)
			WHEN 0 THEN format('INSERT INTO %I SELECT %s, 7, ''new'', 0, 0 WHERE NOT EXISTS (SELECT FROM %I o WHERE o.id = %s)', t, id, t, id)
			WHEN 1 THEN format('INSERT INTO %I VALUES (%s, 0, ''new'', 0, 0) ON CONFLICT DO NOTHING', t, id)
			WHEN 2 THEN format('DELETE FROM %I WHERE id = %s', t, id)
			WHEN 3 THEN format('UPDATE %I SET k = %s WHERE id = %s', t, pick(3), id)
			WHEN 4 THEN format('UPDATE %I SET id = id + 4 WHERE id = %s AND NOT EXISTS (SELECT FROM %I o WHERE o.id = %s + 4)', t, id, t, id)
			WHEN 5 THEN format('UPDATE %I SET b = %s WHERE id = %s', t, pick(1000), id)
			WHEN 6 THEN format('SET CONSTRAINTS ALL %s', CASE pick(6) WHEN 0 THEN 'IMMEDIATE' ELSE 'DEFERRED' END)
			WHEN 7 THEN format('UPDATE %I SET x = repeat(''text'', %s), n = n + 1 WHERE id = %s', t, pick(20) * pick(20), id)
			WHEN 8 THEN format('UPDATE %I SET n = n + 1', t)
			ELSE format('UPDATE %I SET n = n + %s, x = %L WHERE id = %s', t, pick(3), 'x' || pick(1000), id)
		END;
		IF depth < 4 AND pick(5) = 0 THEN
			BEGIN
				EXECUTE q;
				CALL changes(t, pick(6), depth + 1);
				IF pick(2) = 0 THEN RAISE EXCEPTION USING ERRCODE = 'P0099'; END IF;
			EXCEPTION WHEN SQLSTATE 'P0099' THEN
				NULL;
			END;
		ELSE
			EXECUTE q;
		END IF;
	END LOOP;
END $$;
CREATE PROCEDURE rounds(first int, last int) LANGUAGE plpgsql AS $$
DECLARE
	t text;
BEGIN
	FOR seed IN first .. last LOOP
		FOREACH t IN ARRAY ARRAY['h', 'z'] LOOP
			PERFORM setseed(seed / 100000.0);
			CALL changes(t, CASE WHEN seed % 10 = 0 THEN 300 ELSE 30 END, 0);
			COMMIT;
			IF pick(10) = 0 THEN EXECUTE format('DELETE FROM %I', t); COMMIT; END IF;
		END LOOP;
	END LOOP;
END $$;
\getenv first ZUNDO_TRIGGER_SEED
\if :{?first}
\else
\set first 1
\endif
CALL rounds(:first, :first + 60);
SELECT count(*) > 4000 AS many, count(*) FILTER (WHERE what ~ 'later') > 2000 AS many_later FROM noted;
-- the order within one statement is that of the rows on disk
(SELECT what, old, new, count(*) FROM noted WHERE tab = 'h' GROUP BY 1, 2, 3)
	EXCEPT (SELECT what, old, new, count(*) FROM noted WHERE tab = 'z' GROUP BY 1, 2, 3) LIMIT 5;
(SELECT what, old, new, count(*) FROM noted WHERE tab = 'z' GROUP BY 1, 2, 3)
	EXCEPT (SELECT what, old, new, count(*) FROM noted WHERE tab = 'h' GROUP BY 1, 2, 3) LIMIT 5;
(TABLE h EXCEPT ALL TABLE z) UNION ALL (TABLE z EXCEPT ALL TABLE h);
SELECT * FROM zundo.check('z');
DROP TABLE h, z, noted;
