-- on: heap zheap
-- xmin as a concurrency token: it is read, and later the row is changed on condition that it is the same (TOKEN-1 to TOKEN-3).
SET client_min_messages = warning;
CREATE TABLE t (id int PRIMARY KEY, n int, b text, total int GENERATED ALWAYS AS (n * 2) STORED);
CREATE TABLE tokens (id int, x xid);
-- keep: notes the token of a row; changed: whether it is another one now
CREATE FUNCTION keep(k int, token xid) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN DELETE FROM tokens WHERE id = k; INSERT INTO tokens VALUES (k, token); RETURN true; END $$;
CREATE VIEW state AS SELECT t.id, n, length(b) AS b, t.xmin = x AS same FROM t JOIN tokens USING (id);
-- what INSERT returns is what SELECT shows, as long as the row is not changed
WITH i AS (INSERT INTO t SELECT i, i * 10, 'b' || i FROM generate_series(1, 4) i RETURNING id, xmin AS x)
INSERT INTO tokens SELECT id, x FROM i;
SELECT * FROM state ORDER BY id;
SELECT count(*) FROM t WHERE xmin = (SELECT x FROM tokens WHERE id = t.id);
VACUUM t;
CHECKPOINT;
SELECT * FROM state ORDER BY id;
-- the protocol: read, then write if it is the same; the second writer with the same token finds nothing
PREPARE guarded(int, xid) AS UPDATE t SET n = n + 1 WHERE id = $1 AND xmin = $2 RETURNING id, n, xmin <> $2 AS another, keep(id, xmin);
SELECT xmin AS token FROM t WHERE id = 1 \gset
EXECUTE guarded(1, :'token');
EXECUTE guarded(1, :'token');
SELECT xmin AS token FROM t WHERE id = 1 \gset
EXECUTE guarded(1, :'token');
SELECT * FROM state ORDER BY id;
UPDATE t SET n = 0 WHERE id = 2 AND xmin <> :'token' AND xmin IS NOT NULL RETURNING n;
DELETE FROM t WHERE id = 4 AND xmin = :'token';
SELECT xmin AS token FROM t WHERE id = 4 \gset
DELETE FROM t WHERE id = 4 AND xmin = :'token' RETURNING id, xmin = :'token' AS same;
-- a batch, as text, as a number, in a join, in a function
UPDATE t SET n = t.n + 1 FROM unnest(ARRAY(SELECT id FROM tokens ORDER BY id), ARRAY(SELECT x FROM tokens ORDER BY id)) v(id, x)
WHERE t.id = v.id AND t.xmin = v.x RETURNING t.id, t.n;
SELECT count(*) FROM t WHERE xmin::text = (SELECT xmin::text FROM t WHERE id = 1) AND id = 1;
SELECT count(*) FROM t a JOIN t b ON a.xmin::text::bigint IN (b.xmin::text::bigint, 1) WHERE a.id = b.id;
SELECT count(*) FROM t WHERE (id, xmin::text) IN (SELECT id, xmin::text FROM t);
SELECT count(*) > 0 AS grouped FROM (SELECT xmin, count(*) FROM t GROUP BY xmin ORDER BY xmin::text) s;
SELECT count(DISTINCT xmin::text) > 0 AS different FROM t;
SELECT 'W/' || id || '-' || xmin::text = 'W/1-' || (SELECT xmin FROM t WHERE id = 1) AS etag FROM t ORDER BY id;
-- values out of line, and compressed ones
UPDATE t SET b = repeat('long ', 1000) WHERE id = 1 RETURNING keep(id, xmin);
UPDATE t SET b = (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 400) i) WHERE id = 2 RETURNING keep(id, xmin);
INSERT INTO t SELECT 5, 50, string_agg(md5(i::text), '') FROM generate_series(1, 400) i RETURNING keep(id, xmin);
SELECT * FROM state WHERE b > 100 ORDER BY id;
UPDATE t SET n = n + 1 WHERE b LIKE '%5%' AND id IN (2, 5) RETURNING keep(id, xmin);
INSERT INTO t VALUES (5, 0, 'excluded') ON CONFLICT (id) DO UPDATE SET n = t.n + 1 RETURNING id, n, keep(id, xmin);
SELECT * FROM state WHERE b > 100 ORDER BY id;
UPDATE t SET b = b || '.' WHERE id = 5;
SELECT * FROM state WHERE id = 5;
-- rows from before a column was added: old ones, and new ones made of them
ALTER TABLE t ADD COLUMN c int;
ALTER TABLE t ADD COLUMN d text DEFAULT 'd';
SELECT same FROM state WHERE id = 2;
UPDATE t SET n = n + 1 WHERE id IN (2, 3) RETURNING keep(id, xmin);
INSERT INTO t (id, n) SELECT id + 10, n FROM t WHERE id < 3 RETURNING keep(id, xmin);
SELECT * FROM state ORDER BY id;
-- a rollback, a savepoint, several changes in one transaction
BEGIN;
UPDATE t SET n = -1 WHERE id = 3 RETURNING xmin AS token \gset
ROLLBACK;
SELECT * FROM state WHERE id = 3;
SELECT count(*) FROM t WHERE id = 3 AND xmin = :'token';
BEGIN;
UPDATE t SET n = 70 WHERE id = 3 RETURNING keep(id, xmin);
SAVEPOINT s;
UPDATE t SET n = 71 WHERE id = 3;
SELECT * FROM state WHERE id = 3;
ROLLBACK TO s;
SELECT * FROM state WHERE id = 3;
UPDATE t SET n = n + 1 FROM tokens WHERE t.id = 3 AND tokens.id = 3 AND t.xmin = tokens.x RETURNING n, keep(t.id, t.xmin);
COMMIT;
SELECT * FROM state WHERE id = 3;
-- a cursor that was opened before an update shows the token of the version that it returns
SELECT xmin AS token FROM t WHERE id = 3 \gset
BEGIN;
DECLARE c CURSOR FOR SELECT xmin = :'token' AS same, n FROM t WHERE id = 3;
UPDATE t SET n = n + 1 WHERE id = 3;
FETCH c;
SELECT xmin = :'token' AS same FROM t WHERE id = 3;
COMMIT;
-- BEFORE triggers that change NEW, return OLD, and change the row themselves
CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.n = 100 THEN RETURN OLD; END IF;
	NEW.b := 'by the trigger ' || repeat('x', NEW.n);
	RETURN NEW;
END $$;
CREATE TRIGGER change BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION change();
UPDATE t SET n = 5 WHERE id = 3 RETURNING keep(id, xmin), n, b;
UPDATE t SET n = 100 WHERE id = 1 RETURNING keep(id, xmin), n;
INSERT INTO t VALUES (6, 3000) RETURNING keep(id, xmin), length(b);
SELECT * FROM state WHERE id IN (1, 3, 6) ORDER BY id;
DROP TRIGGER change ON t;
-- COPY, many rows at once, parallel scans
CREATE TABLE bulk (id int, n int);
COPY bulk FROM stdin;
1	1
2	2
\.
INSERT INTO bulk SELECT i, i FROM generate_series(3, 2000) i;
CREATE TABLE seen AS SELECT id, xmin AS x FROM bulk;
ANALYZE bulk;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT count(*), count(*) FILTER (WHERE bulk.xmin = seen.x) AS same FROM bulk JOIN seen USING (id);
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
-- partitions with the columns in another order; the row goes to another one
CREATE TABLE p (id int, n int, b text) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE TABLE p2 (b text, dropped int, n int, id int NOT NULL);
ALTER TABLE p2 DROP COLUMN dropped;
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
DELETE FROM tokens;
-- the server itself has no system columns for a row that is not converted for its partition
INSERT INTO p VALUES (1, 1, 'one') RETURNING xmin;
INSERT INTO p VALUES (1, 1, 'one');
WITH i AS (INSERT INTO p VALUES (11, 11, 'eleven') RETURNING id, xmin AS x) INSERT INTO tokens SELECT * FROM i;
SELECT id, p.xmin = x AS same FROM p JOIN tokens USING (id) ORDER BY id;
DELETE FROM tokens;
WITH u AS (UPDATE p SET n = n + 1 RETURNING id, xmin AS x) INSERT INTO tokens SELECT * FROM u;
SELECT id, p.xmin = x AS same FROM p JOIN tokens USING (id) ORDER BY id;
DELETE FROM tokens;
WITH u AS (UPDATE p SET id = id + 10 WHERE id = 1 RETURNING id, b, xmin AS x) INSERT INTO tokens SELECT id, x FROM u;
WITH u AS (UPDATE p SET id = 2 WHERE b = 'one' AND xmin = (SELECT x FROM tokens) RETURNING id, b, xmin AS x)
SELECT id, b FROM u;
-- MERGE ... RETURNING from 17 on, RETURNING of OLD and NEW from 18 on
DO $$
DECLARE
	before xid := (SELECT xmin FROM t WHERE id = 3);
	shown xid;
	old_shown xid;
BEGIN
	IF current_setting('server_version_num')::int >= 170000 THEN
		EXECUTE 'MERGE INTO t USING (VALUES (3)) s(id) ON t.id = s.id AND t.xmin = $1
			WHEN MATCHED THEN UPDATE SET n = CASE WHEN t.xmin = $1 THEN 77 END RETURNING t.xmin' INTO shown USING before;
		ASSERT (SELECT xmin = shown AND n = 77 FROM t WHERE id = 3);
	END IF;
	before := (SELECT xmin FROM t WHERE id = 3);
	IF current_setting('server_version_num')::int >= 180000 THEN
		EXECUTE 'UPDATE t SET n = 78 WHERE id = 3 RETURNING old.xmin, new.xmin' INTO old_shown, shown;
		ASSERT old_shown = before AND shown = (SELECT xmin FROM t WHERE id = 3);
		EXECUTE 'DELETE FROM t WHERE id = 3 RETURNING old.xmin' INTO old_shown;
		ASSERT old_shown = shown;
	ELSE
		DELETE FROM t WHERE id = 3 RETURNING xmin INTO old_shown;
		ASSERT old_shown = before;
	END IF;
END $$;
-- whether a row is our own transaction's: the server asks, trigger functions ask, queries ask
CREATE TABLE mine (id int PRIMARY KEY, n int);
CREATE TABLE history (id int, n int);
CREATE FUNCTION own() RETURNS xid LANGUAGE sql AS 'SELECT pg_current_xact_id()::xid';
CREATE FUNCTION keep_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF OLD.xmin::text = (txid_current() % (2^32)::bigint)::text THEN RETURN NEW; END IF;
	INSERT INTO history VALUES (OLD.id, OLD.n);
	RETURN NEW;
END $$;
CREATE TRIGGER version BEFORE UPDATE ON mine FOR EACH ROW EXECUTE FUNCTION keep_history();
INSERT INTO mine VALUES (1, 0), (2, 0);
BEGIN;
UPDATE mine SET n = 1 WHERE id = 1;
UPDATE mine SET n = 2 WHERE id = 1;
UPDATE mine SET n = 3;
SELECT * FROM history ORDER BY id, n;
COMMIT;
CREATE FUNCTION say() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO history VALUES
		(CASE WHEN TG_OP <> 'INSERT' AND OLD.xmin = pg_current_xact_id()::xid THEN 1 ELSE 0 END,
		 CASE WHEN TG_OP <> 'DELETE' AND NEW.xmin = own() THEN 1 ELSE 0 END);
	RETURN NULL;
END $$;
CREATE TRIGGER say AFTER INSERT OR UPDATE OR DELETE ON mine FOR EACH ROW EXECUTE FUNCTION say();
CREATE TRIGGER conditional AFTER UPDATE ON mine FOR EACH ROW WHEN (OLD.xmin = pg_current_xact_id()::xid) EXECUTE FUNCTION say();
TRUNCATE history;
BEGIN;
INSERT INTO mine VALUES (3, 0);
UPDATE mine SET n = n + 1 WHERE id IN (2, 3);
UPDATE mine SET n = n + 1 WHERE id = 2;
DELETE FROM mine WHERE id IN (1, 3);
SELECT id AS old_is_own, n AS new_is_own, count(*) FROM history GROUP BY 1, 2 ORDER BY 1, 2;
COMMIT;
DROP TRIGGER say ON mine;
DROP TRIGGER conditional ON mine;
INSERT INTO mine VALUES (1, 1);
BEGIN;
UPDATE mine SET n = 5 WHERE id = 2;
SELECT id FROM mine WHERE xmin = pg_current_xact_id()::xid;
SELECT id FROM mine WHERE xmin::text::bigint <> txid_current() % 4294967296;
SELECT id FROM mine WHERE (txid_current_if_assigned() & 4294967295)::text = xmin::text;
SELECT id FROM mine WHERE CASE WHEN xmin::text <> txid_current()::text THEN 0 ELSE id END > 0;
SELECT id, xmin = pg_current_xact_id()::xid AS mine, xmin IS NOT DISTINCT FROM pg_current_xact_id_if_assigned()::xid AS again,
	CASE xmin WHEN pg_current_xact_id()::xid THEN 'mine' END AS whose, nullif(xmin, pg_current_xact_id()::xid) IS NULL AS nothing,
	xmin = ANY (ARRAY[pg_current_xact_id()::xid]) AS one, xmin <> ALL (ARRAY[pg_current_xact_id()::xid, pg_current_xact_id()::xid]) AS none
FROM mine ORDER BY id;
SELECT bool_or(xmin = pg_current_xact_id()::xid), count(*) FILTER (WHERE xmin = pg_current_xact_id()::xid) FROM mine;
SELECT m.id, m.xmin = pg_current_xact_id()::xid AS mine, o.xmin = pg_current_xact_id()::xid AS other
FROM mine m LEFT JOIN mine o ON o.id = m.id + 1 AND o.xmin = pg_current_xact_id()::xid ORDER BY 1;
SELECT id, g FROM mine, generate_series(1, CASE WHEN xmin = pg_current_xact_id()::xid THEN 2 ELSE 1 END) g ORDER BY 1, 2;
CREATE VIEW authors AS SELECT id, xmin AS author FROM mine;
SELECT id FROM authors WHERE author = pg_current_xact_id()::xid;
SELECT * FROM (SELECT 1 AS k, xmin = pg_current_xact_id()::xid FROM mine WHERE id = 2 UNION ALL
	SELECT 2, xmin = pg_current_xact_id()::xid FROM mine WHERE id = 1) s ORDER BY k;
INSERT INTO mine VALUES (1, 1), (4, 4) ON CONFLICT (id) DO UPDATE SET n = mine.n + 1 WHERE mine.xmin <> pg_current_xact_id()::xid
	RETURNING id, xmin = pg_current_xact_id()::xid AS mine, xmax = 0 AS inserted;
INSERT INTO mine VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = mine.n + 1 WHERE mine.xmin <> pg_current_xact_id()::xid RETURNING n;
TRUNCATE history;
INSERT INTO history VALUES (1, 1);
UPDATE history h SET n = 0 FROM mine WHERE mine.id = h.id RETURNING mine.xmin = pg_current_xact_id()::xid AS other, h.xmin = pg_current_xact_id()::xid AS own;
MERGE INTO history h USING mine m ON m.id = h.id WHEN MATCHED THEN
	UPDATE SET n = CASE WHEN m.xmin = pg_current_xact_id()::xid AND h.xmin = pg_current_xact_id()::xid THEN 11 END;
SELECT * FROM history WHERE n = 11;
ROLLBACK;
SELECT id FROM mine WHERE xmin = pg_current_xact_id()::xid;
-- ON CONFLICT that comes to a row a second time, and to one that it does not see
BEGIN;
INSERT INTO mine VALUES (1, 1), (1, 2) ON CONFLICT (id) DO UPDATE SET n = mine.n + 1;
ROLLBACK;
INSERT INTO mine VALUES (7, 1), (7, 2) ON CONFLICT (id) DO UPDATE SET n = mine.n + 1;
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO mine VALUES (8, 1), (8, 2) ON CONFLICT (id) DO NOTHING;
INSERT INTO mine VALUES (8, 3) ON CONFLICT (id) DO UPDATE SET n = mine.n + 1 RETURNING n;
UPDATE mine SET n = 6 WHERE id = 2;
INSERT INTO mine VALUES (2, 3) ON CONFLICT (id) DO NOTHING;
INSERT INTO mine VALUES (1, 1), (1, 2) ON CONFLICT (id) DO UPDATE SET n = mine.n + 1;
ROLLBACK;
-- foreign keys: a row that the transaction has inserted is checked although a later update leaves the key alone
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED, n int);
BEGIN;
INSERT INTO child VALUES (1, 1, 0);
UPDATE child SET n = 1;
UPDATE child SET n = 2;
COMMIT;
BEGIN;
INSERT INTO child VALUES (1, 1, 0);
SAVEPOINT s;
UPDATE child SET n = 1;
RELEASE s;
UPDATE child SET n = 2;
INSERT INTO parent VALUES (1);
COMMIT;
BEGIN;
UPDATE child SET parent = 2;
UPDATE child SET n = 3;
UPDATE child SET n = 4;
COMMIT;
SELECT * FROM child;
