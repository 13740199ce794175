-- Measures what ten updates of every row leave behind, while an older snapshot is open and after its end. It
-- counts bytes only, so that any machine gives the same figures. Run it for each access method, in a database
-- that is used for nothing else, on a server that preloads zundo:
--   psql -v am=heap -f bench/growth.sql    and    psql -v am=zheap -f bench/growth.sql
\set ON_ERROR_STOP on
\set QUIET on
\pset footer off
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS zundo;
CREATE EXTENSION IF NOT EXISTS dblink;
DROP TABLE IF EXISTS growth;
CREATE TABLE growth (id int PRIMARY KEY, balance int NOT NULL, filler char(84)) USING :am;
INSERT INTO growth SELECT g, 0, '' FROM generate_series(1, 100000) g;
VACUUM ANALYZE growth;

CREATE OR REPLACE FUNCTION pg_temp.sizes(what text)
    RETURNS TABLE (state text, table_kb bigint, index_kb bigint, undo_kb bigint)
    LANGUAGE sql AS
$$ SELECT what, pg_relation_size('growth') / 1024, pg_relation_size('growth_pkey') / 1024, zundo.undo_bytes_in_use() / 1024 $$;

SELECT * FROM pg_temp.sizes('loaded');
SELECT dblink_connect('old', format('host=%s port=%s dbname=%s user=%s', split_part(current_setting('unix_socket_directories'), ',', 1),
    current_setting('port'), current_database(), current_user)) \g /dev/null
SELECT dblink_exec('old', 'BEGIN ISOLATION LEVEL REPEATABLE READ') \g /dev/null
SELECT * FROM dblink('old', 'SELECT count(*) FROM growth') AS t(n bigint) \g /dev/null
DO $$
BEGIN
    FOR i IN 1 .. 10 LOOP
        UPDATE growth SET balance = balance + 1;
        COMMIT;
    END LOOP;
END $$;
VACUUM growth;
SELECT * FROM pg_temp.sizes('ten updates of each row beside an old snapshot');
SELECT sum AS old_snapshot_sees FROM dblink('old', 'SELECT sum(balance) FROM growth') AS t(sum bigint);
SELECT dblink_exec('old', 'COMMIT') \g /dev/null
SELECT zundo.discard() \g /dev/null
SELECT zundo.discard() \g /dev/null
VACUUM growth;
SELECT * FROM pg_temp.sizes('after its end, and VACUUM');
DROP TABLE growth;
