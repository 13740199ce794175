-- xmin and cmin are those of the version, not of a change that was rolled back
CREATE TABLE versions (a int) USING zheap;
BEGIN;
INSERT INTO versions VALUES (1);
INSERT INTO versions VALUES (2);
SAVEPOINT s;
UPDATE versions SET a = a + 10;
SELECT cmin, a FROM versions;
ROLLBACK TO s;
SELECT cmin, xmin = pg_current_xact_id()::xid AS ours, a FROM versions;
COMMIT;
SELECT * FROM zundo.check('versions');
