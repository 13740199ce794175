-- The setting zundo.fault, which only builds for tests have: which values and users it refuses.
SET zundo.fault = 'nonsense';
SET zundo.fault = 'nonsense:error';
SET zundo.fault = 'undo-alloc:explode';
SHOW zundo.fault;
CREATE ROLE regress_zundo_nobody;
SET ROLE regress_zundo_nobody;
SET zundo.fault = 'undo-alloc:error';
RESET ROLE;
DROP ROLE regress_zundo_nobody;
-- SHOW ALL and the like leave out settings for tests.
SELECT name FROM pg_settings WHERE name IN ('zundo.fault', 'zundo.move_updates', 'zundo.swap_btree', 'zundo.undo_full');
