/*
 * zundo--1.0.sql: the objects of extension zundo.
 *
 * The script creates the schema zundo, which makes it a member of the extension: the schema belongs to the superuser who
 * creates the extension, is dropped with the extension, and is in no dump. The script fails if a schema of this name
 * exists, since it may belong to anybody.
 *
 * Every type, function, operator and relation has its schema in its name (tools/check_source.py proves it). So the script
 * means the same objects whatever the search path is.
 */

\echo Use "CREATE EXTENSION zundo" to load this file. \quit

CREATE SCHEMA zundo;
COMMENT ON SCHEMA zundo IS
    'undo log of the zheap tables of this database, and functions and views to monitor it';
GRANT USAGE ON SCHEMA zundo TO PUBLIC;

-- Access methods -------------------------------------------------------------

CREATE FUNCTION zundo.zheap_handler(pg_catalog.internal) RETURNS pg_catalog.table_am_handler
    AS 'MODULE_PATHNAME', 'zheap_handler' LANGUAGE C STRICT;
COMMENT ON FUNCTION zundo.zheap_handler(pg_catalog.internal) IS
    'table access method zheap';

CREATE FUNCTION zundo.undo_handler(pg_catalog.internal) RETURNS pg_catalog.table_am_handler
    AS 'MODULE_PATHNAME', 'zundo_undo_handler' LANGUAGE C STRICT;
COMMENT ON FUNCTION zundo.undo_handler(pg_catalog.internal) IS
    'access method of zundo.undo_log only';

CREATE ACCESS METHOD zheap TYPE TABLE HANDLER zundo.zheap_handler;
COMMENT ON ACCESS METHOD zheap IS
    'rows updated in place, old versions in the undo log';

CREATE ACCESS METHOD zundo_undo TYPE TABLE HANDLER zundo.undo_handler;
COMMENT ON ACCESS METHOD zundo_undo IS
    'undo log of zheap tables; not for tables of users';

CREATE FUNCTION zundo.zbtree_handler(pg_catalog.internal) RETURNS pg_catalog.index_am_handler
    AS 'MODULE_PATHNAME', 'zbtree_handler' LANGUAGE C STRICT;
COMMENT ON FUNCTION zundo.zbtree_handler(pg_catalog.internal) IS
    'index access method zbtree';

CREATE ACCESS METHOD zbtree TYPE INDEX HANDLER zundo.zbtree_handler;
COMMENT ON ACCESS METHOD zbtree IS
    'B-trees for zheap tables';

CREATE FUNCTION zundo.mirror_opclass(opclass pg_catalog.text) RETURNS int
    AS 'MODULE_PATHNAME', 'zbtree_mirror_opclass' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION zundo.mirror_opclass(pg_catalog.text) IS
    'makes the family of a btree operator class available to zbtree; for superusers';

-- The server's own families, whatever the version has. Their classes are in pg_catalog, where CREATE INDEX finds them.
SELECT pg_catalog.count(zundo.mirror_opclass(pg_catalog.format('pg_catalog.%I', c.opcname)))
    FROM (SELECT pg_catalog.min(c.opcname::pg_catalog.text) AS opcname
        FROM pg_catalog.pg_opclass c JOIN pg_catalog.pg_am a ON a.oid OPERATOR(pg_catalog.=) c.opcmethod
        WHERE a.amname OPERATOR(pg_catalog.=) 'btree'
            AND c.oid::pg_catalog.int8 OPERATOR(pg_catalog.<) 16384
        GROUP BY c.opcfamily ORDER BY c.opcfamily) c;

CREATE PROCEDURE zundo.set_index_method(index pg_catalog.regclass, method pg_catalog.name)
    AS 'MODULE_PATHNAME', 'zundo_set_index_method' LANGUAGE C;
COMMENT ON PROCEDURE zundo.set_index_method(pg_catalog.regclass, pg_catalog.name) IS
    'gives an index access method btree or zbtree while its table is in use; for the owner';

-- The undo log ---------------------------------------------------------------

-- A materialized view, because the server neither changes rows of materialized views nor publishes them, not even FOR ALL
-- TABLES. It is marked as populated: otherwise the server would answer a query with the hint to refresh it.
CREATE MATERIALIZED VIEW zundo.undo_log USING zundo_undo AS SELECT WITH NO DATA;
UPDATE pg_catalog.pg_class SET relispopulated = true
    WHERE oid OPERATOR(pg_catalog.=) 'zundo.undo_log'::pg_catalog.regclass;
COMMENT ON MATERIALIZED VIEW zundo.undo_log IS
    'old row versions of the zheap tables of this database; cannot be queried';

-- Functions ------------------------------------------------------------------

CREATE FUNCTION zundo.undo_bytes_in_use() RETURNS bigint
    AS 'MODULE_PATHNAME', 'zundo_undo_bytes_in_use' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zundo.undo_bytes_in_use() IS
    'bytes of undo in this database that are still kept';

CREATE FUNCTION zundo.stat_get_undo(
        OUT log int, OUT pid int, OUT attached boolean, OUT bytes bigint, OUT extents int,
        OUT discard_ptr pg_catalog.text, OUT insert_ptr pg_catalog.text, OUT oldest_xid pg_catalog.xid8)
    RETURNS SETOF pg_catalog.record
    AS 'MODULE_PATHNAME', 'zundo_stat_undo' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zundo.stat_get_undo() IS
    'undo logs, for view zundo.stat_undo';

CREATE FUNCTION zundo.stat_get_rollback(
        OUT database pg_catalog.oid, OUT pid int, OUT xid pg_catalog.xid8, OUT state pg_catalog.text, OUT bytes bigint,
        OUT records_done bigint, OUT records_total bigint)
    RETURNS SETOF pg_catalog.record
    AS 'MODULE_PATHNAME', 'zundo_stat_rollback' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zundo.stat_get_rollback() IS
    'aborted transactions, for view zundo.stat_rollback';

CREATE FUNCTION zundo.stat_get_holds(
        OUT kind pg_catalog.text, OUT log int, OUT xid pg_catalog.xid8, OUT relation pg_catalog.oid, OUT failed boolean,
        OUT pid int)
    RETURNS SETOF pg_catalog.record
    AS 'MODULE_PATHNAME', 'zundo_stat_holds' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zundo.stat_get_holds() IS
    'what, besides snapshots, prevents undo of this database from being discarded';

CREATE FUNCTION zundo.stat_get_kept(xid pg_catalog.xid) RETURNS bigint
    AS 'MODULE_PATHNAME', 'zundo_stat_kept' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zundo.stat_get_kept(pg_catalog.xid) IS
    'bytes of undo that are kept as long as this transaction is needed, for view zundo.stat_horizon';

CREATE FUNCTION zundo.stat_get_database(
        OUT datid pg_catalog.oid, OUT stats_reset pg_catalog.timestamptz, OUT undo_peak bigint,
        OUT undo_written bigint, OUT pages_rolled_back bigint, OUT updated_in_place bigint, OUT moved bigint,
        OUT moved_for_space bigint, OUT records_read bigint, OUT versions_rebuilt bigint, OUT images_made bigint,
        OUT images_used bigint, OUT pages_marked bigint, OUT keys_purged bigint, OUT undo_discarded bigint,
        OUT rollbacks bigint, OUT waits bigint, OUT refusals bigint, OUT cancellations bigint, OUT worker_cycles bigint, OUT worker_time bigint, OUT unclear_answered bigint,
        OUT unclear_refused bigint, OUT tables_evicted bigint)
    RETURNS SETOF pg_catalog.record
    AS 'MODULE_PATHNAME', 'zundo_stat_database' LANGUAGE C STRICT VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION zundo.stat_get_database() IS
    'counters, for view zundo.stat_database';

CREATE FUNCTION zundo.stat_get_tables(
        OUT relid pg_catalog.oid, OUT undo_written bigint, OUT pages_rolled_back bigint, OUT updated_in_place bigint,
        OUT moved bigint, OUT moved_for_space bigint, OUT records_read bigint, OUT versions_rebuilt bigint,
        OUT images_made bigint, OUT images_used bigint, OUT pages_marked bigint, OUT keys_purged bigint,
        OUT idx_records_read bigint, OUT idx_versions_rebuilt bigint)
    RETURNS SETOF pg_catalog.record
    AS 'MODULE_PATHNAME', 'zundo_stat_tables' LANGUAGE C STRICT VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION zundo.stat_get_tables() IS
    'counters of this database''s tables and indexes, for views zundo.stat_tables and zundo.stat_indexes';

CREATE FUNCTION zundo.stat_get_history(
        OUT sampled_at pg_catalog.timestamptz, OUT undo_kept bigint, OUT undo_written bigint,
        OUT kind pg_catalog.text, OUT pid int, OUT usesysid pg_catalog.oid, OUT application_name pg_catalog.text,
        OUT since pg_catalog.timestamptz, OUT query_id bigint)
    RETURNS SETOF pg_catalog.record
    AS 'MODULE_PATHNAME', 'zundo_stat_history' LANGUAGE C STRICT VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION zundo.stat_get_history() IS
    'samples, for view zundo.undo_history';

CREATE FUNCTION zundo.last_statement(
        OUT undo_written bigint, OUT updated_in_place bigint, OUT moved bigint, OUT records_read bigint,
        OUT versions_rebuilt bigint, OUT images_made bigint, OUT images_used bigint)
    RETURNS SETOF pg_catalog.record
    AS 'MODULE_PATHNAME', 'zundo_last_statement' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 1;
COMMENT ON FUNCTION zundo.last_statement() IS
    'what zundo.stat_database counts, of the last statement of this session that did not call it';

CREATE FUNCTION zundo.stat_reset() RETURNS pg_catalog.void
    AS 'MODULE_PATHNAME', 'zundo_stat_reset' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zundo.stat_reset() IS
    'sets the counters of this database in zundo.stat_database, zundo.stat_tables and zundo.stat_indexes to 0';

CREATE FUNCTION zundo.page_items(rel pg_catalog.regclass, block bigint,
        OUT lp int, OUT lp_state pg_catalog.text, OUT lp_off int, OUT room int, OUT len int, OUT natts int,
        OUT slot int, OUT row_state pg_catalog.text, OUT flags pg_catalog.text[], OUT lock pg_catalog.text,
        OUT repeated bigint, OUT data pg_catalog.bytea)
    RETURNS SETOF pg_catalog.record
    AS 'MODULE_PATHNAME', 'zundo_page_items' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zundo.page_items(pg_catalog.regclass, bigint) IS
    'line pointers and rows of one page of a zheap table; for superusers';

CREATE FUNCTION zundo.page_slots(rel pg_catalog.regclass, block bigint,
        OUT slot int, OUT xid pg_catalog.xid8, OUT status pg_catalog.text, OUT undo_ptr pg_catalog.text, OUT flags int,
        OUT overflow boolean)
    RETURNS SETOF pg_catalog.record
    AS 'MODULE_PATHNAME', 'zundo_page_slots' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zundo.page_slots(pg_catalog.regclass, bigint) IS
    'transaction slots of one page of a zheap table; for superusers';

CREATE FUNCTION zundo.row_locks(rel pg_catalog.regclass,
        OUT locked_row pg_catalog.tid, OUT locker pg_catalog.xid8, OUT mode pg_catalog.text, OUT pid int)
    RETURNS SETOF pg_catalog.record
    AS 'MODULE_PATHNAME', 'zundo_row_locks' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zundo.row_locks(pg_catalog.regclass) IS
    'rows of a zheap table that transactions in progress have locked or changed; needs SELECT or pg_stat_scan_tables';

CREATE FUNCTION zundo.xmin_or_own(xmin pg_catalog.xid, cmax pg_catalog.cid, tableoid pg_catalog.oid)
    RETURNS pg_catalog.xid
    AS 'MODULE_PATHNAME', 'zundo_xmin_or_own' LANGUAGE C STRICT STABLE PARALLEL SAFE;
COMMENT ON FUNCTION zundo.xmin_or_own(pg_catalog.xid, pg_catalog.cid, pg_catalog.oid) IS
    'xmin of a row, whose system columns the arguments are, for a comparison with the ID of the own transaction';

CREATE FUNCTION zundo.row_version() RETURNS pg_catalog.trigger
    AS 'MODULE_PATHNAME', 'zundo_row_version' LANGUAGE C VOLATILE;
COMMENT ON FUNCTION zundo.row_version() IS
    'trigger function, BEFORE INSERT OR UPDATE FOR EACH ROW: stores the transaction ID in the column named by its argument';

CREATE FUNCTION zundo.undo_records(log int DEFAULT NULL, max_records int DEFAULT 1000,
        OUT logno int, OUT ptr pg_catalog.text, OUT type pg_catalog.text, OUT xid pg_catalog.xid8, OUT top_xid pg_catalog.xid8,
        OUT status pg_catalog.text, OUT relation pg_catalog.oid, OUT block bigint, OUT item int, OUT nrows int,
        OUT cid bigint, OUT prev pg_catalog.text, OUT length int, OUT flags pg_catalog.text[])
    RETURNS SETOF pg_catalog.record
    AS 'MODULE_PATHNAME', 'zundo_undo_records' LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zundo.undo_records(int, int) IS
    'oldest undo records of one log, or of each log; for superusers';

CREATE FUNCTION zundo.discard() RETURNS bigint
    AS 'MODULE_PATHNAME', 'zundo_discard' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION zundo.discard() IS
    'do once what the undo worker does; returns the number of bytes discarded';

CREATE FUNCTION zundo.purge() RETURNS bigint
    AS 'MODULE_PATHNAME', 'zundo_purge' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION zundo.purge() IS
    'overwrite old values in free space of the undo log; returns the number of bytes overwritten; for superusers';

CREATE FUNCTION zundo.check(rel pg_catalog.regclass,
        OUT block bigint, OUT item int, OUT invariant pg_catalog.text, OUT detail pg_catalog.text)
    RETURNS SETOF pg_catalog.record
    AS 'MODULE_PATHNAME', 'zundo_check' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION zundo.check(pg_catalog.regclass) IS
    'check a zheap table and its undo, or zundo.undo_log itself; one row per fault; for the owner and pg_stat_scan_tables';

CREATE FUNCTION zundo.check_index(index pg_catalog.regclass,
        OUT block bigint, OUT item int, OUT invariant pg_catalog.text, OUT detail pg_catalog.text)
    RETURNS SETOF pg_catalog.record
    AS 'MODULE_PATHNAME', 'zundo_check_index' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION zundo.check_index(pg_catalog.regclass) IS
    'check a zbtree index against its table; one row per fault; for the owner and pg_stat_scan_tables';

CREATE FUNCTION zundo.index_entries(index pg_catalog.regclass,
        OUT leaf_pages bigint, OUT entries bigint, OUT stale bigint, OUT dead bigint)
    RETURNS SETOF pg_catalog.record
    AS 'MODULE_PATHNAME', 'zundo_index_entries' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION zundo.index_entries(pg_catalog.regclass) IS
    'number of entries of a zbtree index, and of those that no version of their row has the key of; for the owner and pg_stat_scan_tables';

CREATE FUNCTION zundo.index_items(index pg_catalog.regclass, block bigint,
        OUT item int, OUT kind pg_catalog.text, OUT child bigint, OUT target pg_catalog.tid, OUT dead boolean,
        OUT state pg_catalog.text, OUT len int, OUT key pg_catalog.text[])
    RETURNS SETOF pg_catalog.record
    AS 'MODULE_PATHNAME', 'zundo_index_items' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION zundo.index_items(pg_catalog.regclass, bigint) IS
    'items of one page of a zbtree index, and what each entry of a leaf page is worth; for superusers';

CREATE FUNCTION zundo.repair_undo(dry_run boolean DEFAULT true,
        OUT block bigint, OUT step pg_catalog.text)
    RETURNS SETOF pg_catalog.record
    AS 'MODULE_PATHNAME', 'zundo_repair_undo' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION zundo.repair_undo(boolean) IS
    'repair zundo.undo_log as far as no row becomes wrong, or show what would be done; for superusers';

-- Views ----------------------------------------------------------------------

CREATE VIEW zundo.stat_undo AS
    SELECT log, pid, attached, bytes, extents, discard_ptr, insert_ptr, oldest_xid
    FROM zundo.stat_get_undo();
COMMENT ON VIEW zundo.stat_undo IS
    'undo logs of this database: the process that writes to each, and how much each keeps';
COMMENT ON COLUMN zundo.stat_undo.log IS 'number of the undo log';
COMMENT ON COLUMN zundo.stat_undo.pid IS 'process that writes to the log; null if there is none';
COMMENT ON COLUMN zundo.stat_undo.attached IS 'whether there is such a process';
COMMENT ON COLUMN zundo.stat_undo.bytes IS 'bytes that the log keeps';
COMMENT ON COLUMN zundo.stat_undo.extents IS 'extents of 512 kB that the log occupies';
COMMENT ON COLUMN zundo.stat_undo.discard_ptr IS 'where the undo of the log begins';
COMMENT ON COLUMN zundo.stat_undo.insert_ptr IS 'where the next record goes';
COMMENT ON COLUMN zundo.stat_undo.oldest_xid IS 'changes of all older transactions are visible to everybody or undone; the same in each row';

CREATE VIEW zundo.stat_rollback AS
    SELECT r.database, d.datname, r.pid, r.xid, r.state, r.bytes, r.records_done, r.records_total,
           h.relation::pg_catalog.regclass AS waits_for,
           CASE WHEN h.relation IS NOT NULL THEN ARRAY(
               SELECT DISTINCT COALESCE(l.pid, 0) FROM pg_catalog.pg_locks l
               WHERE l.locktype OPERATOR(pg_catalog.=) 'relation'
                 AND l.database OPERATOR(pg_catalog.=) r.database
                 AND l.relation OPERATOR(pg_catalog.=) h.relation
                 AND l.mode OPERATOR(pg_catalog.=) 'AccessExclusiveLock')
           END AS blocked_by
    FROM zundo.stat_get_rollback() r
         LEFT JOIN pg_catalog.pg_database d ON d.oid OPERATOR(pg_catalog.=) r.database
         LEFT JOIN LATERAL (
             SELECT o.relation FROM zundo.stat_get_holds() o
             WHERE o.kind OPERATOR(pg_catalog.=) 'rollback' AND o.xid OPERATOR(pg_catalog.=) r.xid
               AND d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
             LIMIT 1
         ) h ON r.xid IS NOT NULL;
COMMENT ON VIEW zundo.stat_rollback IS
    'aborted transactions that undo workers roll back, and those of this database that wait';
COMMENT ON COLUMN zundo.stat_rollback.database IS 'OID of the database';
COMMENT ON COLUMN zundo.stat_rollback.datname IS 'name of the database';
COMMENT ON COLUMN zundo.stat_rollback.pid IS 'worker that rolls back; null if there is none';
COMMENT ON COLUMN zundo.stat_rollback.xid IS 'aborted top-level transaction';
COMMENT ON COLUMN zundo.stat_rollback.state IS 'rolling back, waiting, waiting for lock, or failed';
COMMENT ON COLUMN zundo.stat_rollback.bytes IS 'bytes of its undo';
COMMENT ON COLUMN zundo.stat_rollback.records_done IS 'undo records that have been undone';
COMMENT ON COLUMN zundo.stat_rollback.records_total IS 'undo records of the transaction';
COMMENT ON COLUMN zundo.stat_rollback.waits_for IS 'table whose lock the rollback waits for, or in which it has failed; one of them if there are several';
COMMENT ON COLUMN zundo.stat_rollback.blocked_by IS 'processes that hold or await ACCESS EXCLUSIVE on it; 0 is a prepared transaction';

CREATE VIEW zundo.stat_database AS
    SELECT s.datid, d.datname, s.undo_peak, s.undo_written, s.undo_discarded, s.rollbacks, s.pages_rolled_back,
           s.waits, s.refusals, s.cancellations, s.updated_in_place, s.moved, s.moved_for_space, s.records_read,
           s.versions_rebuilt, s.images_made, s.images_used, s.pages_marked, s.keys_purged, s.worker_cycles,
           s.worker_time OPERATOR(pg_catalog./) 1000.0::double precision AS worker_time,
           s.unclear_answered, s.unclear_refused, s.tables_evicted, s.stats_reset
    FROM zundo.stat_get_database() s
         LEFT JOIN pg_catalog.pg_database d ON d.oid OPERATOR(pg_catalog.=) s.datid;
COMMENT ON VIEW zundo.stat_database IS
    'what was counted in each database; kept over a shutdown, lost in a crash';
COMMENT ON COLUMN zundo.stat_database.datid IS 'OID of the database; null: those that came when zundo.max_databases others were counted';
COMMENT ON COLUMN zundo.stat_database.datname IS 'name of the database';
COMMENT ON COLUMN zundo.stat_database.undo_peak IS 'most bytes of undo that a discard pass has found';
COMMENT ON COLUMN zundo.stat_database.undo_written IS 'bytes of undo that were written';
COMMENT ON COLUMN zundo.stat_database.undo_discarded IS 'bytes of undo that were discarded';
COMMENT ON COLUMN zundo.stat_database.rollbacks IS 'transactions of which all that had aborted was undone, or a part, if they had savepoints; counted when their undo is discarded';
COMMENT ON COLUMN zundo.stat_database.pages_rolled_back IS 'pages of which changes of aborted transactions were undone';
COMMENT ON COLUMN zundo.stat_database.waits IS 'waits for space below zundo.undo_limit; a statement may wait for each 512 kB';
COMMENT ON COLUMN zundo.stat_database.refusals IS 'errors for lack of space (53400), also those that a function has caught';
COMMENT ON COLUMN zundo.stat_database.cancellations IS 'statements and sessions that were ended because they kept undo (72000)';
COMMENT ON COLUMN zundo.stat_database.updated_in_place IS 'rows that updates have changed in place';
COMMENT ON COLUMN zundo.stat_database.moved IS 'rows that updates have moved';
COMMENT ON COLUMN zundo.stat_database.moved_for_space IS 'those of them that no index made move, mostly as the page was full';
COMMENT ON COLUMN zundo.stat_database.records_read IS 'undo records that readers of old versions and rollbacks have read';
COMMENT ON COLUMN zundo.stat_database.versions_rebuilt IS 'old versions of rows that were rebuilt from these';
COMMENT ON COLUMN zundo.stat_database.images_made IS 'images of pages that were saved in undo';
COMMENT ON COLUMN zundo.stat_database.images_used IS 'images from which readers have begun';
COMMENT ON COLUMN zundo.stat_database.pages_marked IS 'pages that readers have marked as visible to all in the visibility map, each with a WAL record of some 50 bytes';
COMMENT ON COLUMN zundo.stat_database.keys_purged IS 'old keys of zbtree indexes that the worker has removed';
COMMENT ON COLUMN zundo.stat_database.worker_cycles IS 'cycles of the undo worker';
COMMENT ON COLUMN zundo.stat_database.worker_time IS 'time that they took, in milliseconds';
COMMENT ON COLUMN zundo.stat_database.unclear_answered IS 'fetches of a row by its address that got the newest version because none could be determined';
COMMENT ON COLUMN zundo.stat_database.unclear_refused IS 'such fetches that failed';
COMMENT ON COLUMN zundo.stat_database.tables_evicted IS 'tables and indexes whose counters gave way to those of tables of this database, when zundo.max_stat_tables were counted';
COMMENT ON COLUMN zundo.stat_database.stats_reset IS 'since when all this is counted';

CREATE VIEW zundo.stat_tables AS
    SELECT s.relid, n.nspname AS schemaname, c.relname, s.undo_written, s.pages_rolled_back, s.updated_in_place, s.moved,
           s.moved_for_space, s.records_read, s.idx_records_read, s.versions_rebuilt, s.idx_versions_rebuilt, s.images_made,
           s.images_used, s.pages_marked, s.keys_purged
    FROM zundo.stat_get_tables() s
         JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) s.relid
         JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
    WHERE c.relkind OPERATOR(pg_catalog.<>) 'i'::pg_catalog."char";
COMMENT ON VIEW zundo.stat_tables IS
    'what was counted of each zheap table of this database, as in zundo.stat_database';
COMMENT ON COLUMN zundo.stat_tables.relid IS 'OID of the table';
COMMENT ON COLUMN zundo.stat_tables.schemaname IS 'its schema';
COMMENT ON COLUMN zundo.stat_tables.relname IS 'its name; a TOAST table is counted for itself';
COMMENT ON COLUMN zundo.stat_tables.undo_written IS 'bytes of undo that were written';
COMMENT ON COLUMN zundo.stat_tables.pages_rolled_back IS 'pages of which changes of aborted transactions were undone';
COMMENT ON COLUMN zundo.stat_tables.updated_in_place IS 'rows that updates have changed in place';
COMMENT ON COLUMN zundo.stat_tables.moved IS 'rows that updates have moved';
COMMENT ON COLUMN zundo.stat_tables.moved_for_space IS 'those of them that no index made move, mostly as the page was full';
COMMENT ON COLUMN zundo.stat_tables.records_read IS 'undo records that readers of old versions and rollbacks have read';
COMMENT ON COLUMN zundo.stat_tables.idx_records_read IS 'those of them that index scans have read';
COMMENT ON COLUMN zundo.stat_tables.versions_rebuilt IS 'old versions of rows that were rebuilt from these';
COMMENT ON COLUMN zundo.stat_tables.idx_versions_rebuilt IS 'those of them that index scans have rebuilt';
COMMENT ON COLUMN zundo.stat_tables.images_made IS 'images of pages that were saved in undo';
COMMENT ON COLUMN zundo.stat_tables.images_used IS 'images from which readers have begun';
COMMENT ON COLUMN zundo.stat_tables.pages_marked IS 'pages that readers have marked as visible to all';
COMMENT ON COLUMN zundo.stat_tables.keys_purged IS 'old keys of its zbtree indexes that the worker has removed';

CREATE VIEW zundo.stat_indexes AS
    SELECT x.indrelid AS relid, x.indexrelid, n.nspname AS schemaname, c.relname, i.relname AS indexrelname, s.moved
    FROM zundo.stat_get_tables() s
         JOIN pg_catalog.pg_index x ON x.indexrelid OPERATOR(pg_catalog.=) s.relid
         JOIN pg_catalog.pg_class i ON i.oid OPERATOR(pg_catalog.=) x.indexrelid
         JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) x.indrelid
         JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace;
COMMENT ON VIEW zundo.stat_indexes IS
    'indexes of this database that have made rows of zheap tables move';
COMMENT ON COLUMN zundo.stat_indexes.relid IS 'OID of the table';
COMMENT ON COLUMN zundo.stat_indexes.indexrelid IS 'OID of the index';
COMMENT ON COLUMN zundo.stat_indexes.schemaname IS 'schema of the table';
COMMENT ON COLUMN zundo.stat_indexes.relname IS 'name of the table';
COMMENT ON COLUMN zundo.stat_indexes.indexrelname IS 'name of the index';
COMMENT ON COLUMN zundo.stat_indexes.moved IS 'rows that moved because an update had changed columns of this index; several may count for one row';

CREATE VIEW zundo.undo_history AS
    SELECT h.sampled_at, h.undo_kept, h.undo_written, h.kind, h.pid,
           COALESCE(r.rolname::pg_catalog.text, h.usesysid::pg_catalog.text) AS usename, h.application_name,
           h.sampled_at OPERATOR(pg_catalog.-) h.since AS age, h.query_id
    FROM zundo.stat_get_history() h
         LEFT JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) h.usesysid;
COMMENT ON VIEW zundo.undo_history IS
    'undo of this database over time; at times that are missing none was kept, or no worker took samples';
COMMENT ON COLUMN zundo.undo_history.sampled_at IS 'time of the sample';
COMMENT ON COLUMN zundo.undo_history.undo_kept IS 'most bytes of undo that were kept since the sample before';
COMMENT ON COLUMN zundo.undo_history.undo_written IS 'bytes of undo that were written since the sample before';
COMMENT ON COLUMN zundo.undo_history.kind IS 'kind of what kept the most undo at that time: backend, prepared transaction, replication slot, rollback (failed), row locks or damaged undo log';
COMMENT ON COLUMN zundo.undo_history.pid IS 'its process';
COMMENT ON COLUMN zundo.undo_history.usename IS 'role of the process';
COMMENT ON COLUMN zundo.undo_history.application_name IS 'application of the process; this and the following need pg_read_all_stats, or the rights of the role';
COMMENT ON COLUMN zundo.undo_history.age IS 'how long its transaction had been open';
COMMENT ON COLUMN zundo.undo_history.query_id IS 'id of the query that it executed, or had executed last';

CREATE VIEW zundo.stat_horizon AS
    WITH h AS (SELECT kind, name, pid, xid, since, relation, mode, holder, zundo.stat_get_kept(xid) AS kept FROM (
        SELECT CASE WHEN a.backend_type OPERATOR(pg_catalog.=) 'walsender' AND a.datname IS NULL THEN 'standby' ELSE 'backend' END AS kind,
               pg_catalog.concat_ws(' ', a.usename, a.application_name) AS name,
               a.pid,
               CASE WHEN a.backend_xmin IS NULL
                      OR pg_catalog.age(a.backend_xid) OPERATOR(pg_catalog.>) pg_catalog.age(a.backend_xmin)
                    THEN a.backend_xid ELSE a.backend_xmin END AS xid,
               a.xact_start AS since, NULL::pg_catalog.oid AS relation, NULL::pg_catalog.text AS mode,
               -- rows with the same holder end together
               COALESCE(a.leader_pid, a.pid)::pg_catalog.text AS holder
        FROM pg_catalog.pg_stat_activity a
        WHERE (a.datname OPERATOR(pg_catalog.=) pg_catalog.current_database() OR a.datid IS NULL
               OR a.datid OPERATOR(pg_catalog.=) 0::pg_catalog.oid)
          AND a.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()
          -- the snapshot of VACUUM holds nothing back
          AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_progress_vacuum v WHERE v.pid OPERATOR(pg_catalog.=) a.pid)
        UNION ALL
        SELECT 'prepared transaction', p.gid, NULL, p.transaction, p.prepared, NULL, NULL, p.gid
        FROM pg_catalog.pg_prepared_xacts p
        WHERE p.database OPERATOR(pg_catalog.=) pg_catalog.current_database()
        UNION ALL
        SELECT 'replication slot', s.slot_name, s.active_pid, s.xmin, NULL, NULL, NULL, s.slot_name
        FROM pg_catalog.pg_replication_slots s
        UNION ALL
        -- a setting of 15
        SELECT 'setting', 'vacuum_defer_cleanup_age', NULL,
               pg_catalog.xid(GREATEST(3, pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())
                   ::pg_catalog.text::pg_catalog.int8 OPERATOR(pg_catalog.-) d.age)::pg_catalog.text::pg_catalog.xid8),
               NULL, NULL, NULL, 'setting'
        FROM (SELECT pg_catalog.current_setting('vacuum_defer_cleanup_age', true)::pg_catalog.int8 AS age) d
        WHERE d.age OPERATOR(pg_catalog.>) 0::pg_catalog.int8
        UNION ALL
        SELECT o.kind,
               CASE WHEN o.pid IS NULL THEN
                   pg_catalog.concat_ws(' ', 'log', o.log,
                       CASE WHEN o.failed THEN 'failed in' WHEN o.relation IS NOT NULL THEN 'waits for a lock on' END,
                       o.relation::pg_catalog.regclass)
               ELSE pg_catalog.concat_ws(' ', a.usename, a.application_name) END,
               o.pid, pg_catalog.xid(o.xid), a.xact_start, o.relation, NULL,
               COALESCE(o.pid::pg_catalog.text, pg_catalog.concat(o.kind, o.xid))
        FROM zundo.stat_get_holds() o
             LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) o.pid
        UNION ALL
        -- who holds the lock that a rollback waits for, or waits for it in front of the rollback
        SELECT 'lock', COALESCE(p.gid, pg_catalog.concat_ws(' ', a.usename, a.application_name)),
               l.pid, pg_catalog.xid(o.xid), COALESCE(p.prepared, a.xact_start), o.relation,
               pg_catalog.concat_ws(' ', l.mode, CASE WHEN NOT l.granted THEN '(waiting)' END),
               COALESCE(l.pid::pg_catalog.text, p.gid)
        FROM zundo.stat_get_holds() o
             JOIN pg_catalog.pg_locks l ON l.relation OPERATOR(pg_catalog.=) o.relation
             JOIN pg_catalog.pg_database d ON d.oid OPERATOR(pg_catalog.=) l.database
             LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) l.pid
             LEFT JOIN (pg_catalog.pg_locks t JOIN pg_catalog.pg_prepared_xacts p
                           ON p.transaction OPERATOR(pg_catalog.=) t.transactionid AND t.pid IS NULL)
                ON l.pid IS NULL AND t.virtualtransaction OPERATOR(pg_catalog.=) l.virtualtransaction
        WHERE NOT o.failed
          AND l.locktype OPERATOR(pg_catalog.=) 'relation'
          AND l.mode OPERATOR(pg_catalog.=) 'AccessExclusiveLock'
          AND d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
    ) i WHERE xid IS NOT NULL),
    most AS (SELECT o.holder, o.kept FROM h o ORDER BY o.kept DESC LIMIT 1)
    SELECT kind, name, pid, xid, pg_catalog.age(xid) AS age, since,
           relation::pg_catalog.regclass AS relation, mode,
           -- without what is kept by another holder, other than the rollback that only waits for this one's lock
           GREATEST(kept OPERATOR(pg_catalog.-) COALESCE(
               CASE WHEN kind OPERATOR(pg_catalog.<>) ALL (ARRAY['rollback', 'lock']) THEN
                   CASE WHEN holder OPERATOR(pg_catalog.<>) (SELECT o.holder FROM most o) THEN (SELECT o.kept FROM most o)
                   ELSE (SELECT pg_catalog.max(o.kept) FROM h o
                         WHERE o.holder OPERATOR(pg_catalog.<>) (SELECT o.holder FROM most o)) END
               ELSE (
               SELECT pg_catalog.max(o.kept) FROM h o
               WHERE o.holder OPERATOR(pg_catalog.<>) h.holder
                 AND NOT (o.xid OPERATOR(pg_catalog.=) h.xid
                          AND (o.kind OPERATOR(pg_catalog.=) 'rollback' AND h.kind OPERATOR(pg_catalog.=) 'lock'
                               OR o.kind OPERATOR(pg_catalog.=) 'lock' AND h.kind OPERATOR(pg_catalog.=) 'rollback')))
               END, 0), 0) AS bytes,
           kept AS bytes_kept
    FROM h
    ORDER BY pg_catalog.age(xid) DESC, kind;
COMMENT ON VIEW zundo.stat_horizon IS
    'what prevents undo from being discarded; the first row holds back the most';
COMMENT ON COLUMN zundo.stat_horizon.kind IS
    'backend; standby; prepared transaction; replication slot; setting: vacuum_defer_cleanup_age of 15; '
    'rollback: changes that cannot be undone yet, a row for each table that is locked or damaged; '
    'lock: holds or awaits ACCESS EXCLUSIVE on such a table; '
    'row locks: of transactions in progress, stored in undo of older ones; damaged undo log: cannot be read; '
    'reader of old versions: builds or checks an index, or rewrites a table, and keeps what others kept when it began';
COMMENT ON COLUMN zundo.stat_horizon.name IS 'its name: role and application, global identifier, slot, log, or table';
COMMENT ON COLUMN zundo.stat_horizon.pid IS 'process; null if there is none';
COMMENT ON COLUMN zundo.stat_horizon.xid IS 'oldest transaction that is needed';
COMMENT ON COLUMN zundo.stat_horizon.age IS 'age of that transaction, in transactions';
COMMENT ON COLUMN zundo.stat_horizon.since IS 'start of the transaction, if known';
COMMENT ON COLUMN zundo.stat_horizon.relation IS 'table of a rollback or lock';
COMMENT ON COLUMN zundo.stat_horizon.mode IS 'mode of a lock, and whether it is waited for';
COMMENT ON COLUMN zundo.stat_horizon.bytes IS 'bytes of undo that would be discarded if only this one ended';
COMMENT ON COLUMN zundo.stat_horizon.bytes_kept IS 'bytes of undo that this one and all younger ones keep';

CREATE VIEW zundo.table_sizes AS
    SELECT n.nspname AS schema, c.relname AS name, am.amname AS am,
           pg_catalog.pg_relation_size(c.oid) AS table_bytes,
           pg_catalog.pg_indexes_size(c.oid) AS index_bytes,
           CASE WHEN c.reltoastrelid OPERATOR(pg_catalog.=) 0::pg_catalog.oid THEN 0
                ELSE pg_catalog.pg_total_relation_size(c.reltoastrelid) END AS toast_bytes,
           pg_catalog.pg_total_relation_size(c.oid) AS total_bytes
    FROM pg_catalog.pg_class c
         JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
         JOIN pg_catalog.pg_am am ON am.oid OPERATOR(pg_catalog.=) c.relam
    WHERE c.relkind OPERATOR(pg_catalog.=) ANY (ARRAY['r', 'm']::pg_catalog."char"[])
      AND n.nspname OPERATOR(pg_catalog.<>) ALL (ARRAY['pg_catalog', 'information_schema', 'pg_toast']::pg_catalog.name[])
    ORDER BY pg_catalog.pg_total_relation_size(c.oid) DESC;
COMMENT ON VIEW zundo.table_sizes IS
    'sizes of all tables, heap, zheap and the undo log side by side';
COMMENT ON COLUMN zundo.table_sizes.schema IS 'schema of the table';
COMMENT ON COLUMN zundo.table_sizes.name IS 'name of the table';
COMMENT ON COLUMN zundo.table_sizes.am IS 'access method of the table';
COMMENT ON COLUMN zundo.table_sizes.table_bytes IS 'bytes of the table itself';
COMMENT ON COLUMN zundo.table_sizes.index_bytes IS 'bytes of its indexes';
COMMENT ON COLUMN zundo.table_sizes.toast_bytes IS 'bytes of its TOAST table, with the index of that';
COMMENT ON COLUMN zundo.table_sizes.total_bytes IS 'all of these bytes, and those of the maps';

-- Its body has a search path of its own, so it names what it uses without a schema.
CREATE FUNCTION zundo.advise(
        OUT relation pg_catalog.regclass, OUT finding pg_catalog.text, OUT reason pg_catalog.text,
        OUT statement pg_catalog.text)
    RETURNS SETOF pg_catalog.record
    LANGUAGE sql STABLE PARALLEL RESTRICTED SET search_path TO pg_catalog, pg_temp
    AS $$
    WITH t AS (
        SELECT c.oid, a.amname AS am, format('%I.%I', n.nspname, c.relname) AS name,
               s.n_tup_upd AS heap_updates, s.n_tup_upd - s.n_tup_hot_upd AS not_hot,
               -- null on 15
               (to_jsonb(s) ->> 'n_tup_newpage_upd')::bigint AS newpage,
               s.n_live_tup AS live, s.n_dead_tup AS dead,
               z.updated_in_place + z.moved AS updates, z.moved, z.moved_for_space,
               COALESCE((SELECT o.option_value::int FROM pg_options_to_table(c.reloptions) o
                         WHERE o.option_name = 'fillfactor'), 100) AS fillfactor
        FROM pg_class c
             JOIN pg_namespace n ON n.oid = c.relnamespace
             JOIN pg_am a ON a.oid = c.relam
             JOIN pg_stat_user_tables s ON s.relid = c.oid
             LEFT JOIN zundo.stat_tables z ON z.relid = c.oid
        WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND n.nspname <> 'zundo'
          AND (pg_has_role(c.relowner, 'USAGE') OR has_table_privilege(c.oid, 'SELECT'))
          AND NOT EXISTS (SELECT FROM pg_depend d
                          WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
    ), i AS (
        SELECT x.*, GREATEST(t.updates, s.moved) AS updates, COALESCE(s.moved, 0) AS moved, m.amname AS method, c.relispartition,
               format('%s.%I', c.relnamespace::regnamespace, c.relname) AS index
        FROM t
             JOIN pg_index x ON x.indrelid = t.oid
             JOIN pg_class c ON c.oid = x.indexrelid
             JOIN pg_am m ON m.oid = c.relam
             LEFT JOIN zundo.stat_indexes s ON s.indexrelid = x.indexrelid
        WHERE t.am = 'zheap' AND x.indislive AND (s.moved > 0 OR NOT x.indisvalid)
    )
    SELECT t.oid::regclass, 'convert',
           format('%s of %s updates were not HOT, and %s rows are dead beside %s',
                  t.not_hot, t.heap_updates, t.dead, t.live)
           || COALESCE((SELECT format('; the oldest snapshot is from %s', date_trunc('second', min(a.xact_start)))
                        FROM pg_stat_activity a
                        WHERE a.datname = current_database() AND a.backend_xmin IS NOT NULL
                          AND a.pid <> pg_backend_pid()
                        HAVING count(a.xact_start) > 0), ''),
           format(CASE WHEN EXISTS (SELECT FROM pg_index x WHERE x.indrelid = t.oid AND x.indisprimary)
                       THEN 'CALL zundo.convert(%L, ''zheap'')' ELSE 'ALTER TABLE %s SET ACCESS METHOD zheap' END, t.name)
    FROM t
    WHERE t.am = 'heap' AND t.heap_updates >= 1000
      -- not for updates that change an indexed column, which are within the page where there is room
      AND (COALESCE(t.newpage, t.not_hot) > t.heap_updates / 2 OR t.dead > GREATEST(t.live / 5, 1000))
    UNION ALL
    SELECT i.indrelid::regclass, 'invalid index',
           format('%s is not valid, so it serves no query, but each change of its columns moves the row: it has moved %s',
                  i.index, i.moved),
           format('%s INDEX CONCURRENTLY %s', CASE WHEN i.relispartition THEN 'REINDEX' ELSE 'DROP' END, i.index)
    FROM i
    WHERE NOT i.indisvalid
      -- what a command still builds or drops is not left over
      AND NOT EXISTS (SELECT FROM pg_locks l
                      WHERE l.locktype = 'relation' AND l.relation = i.indrelid AND l.mode = 'ShareUpdateExclusiveLock'
                        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
    UNION ALL
    SELECT t.oid::regclass, 'leftover', 'an attempt to convert the table has ended, and what it has made is still there',
           format('CALL zundo.convert_cleanup(%L)', t.name)
    FROM t JOIN zundo.conversions v ON v.relation = t.oid AND v.pid IS NULL
    UNION ALL
    SELECT c.oid::regclass, 'leftover', 'a dump that was made while a table was converted had this copy or log',
           format('DROP TABLE %s', c.oid::regclass)
    FROM pg_class c
    WHERE c.relnamespace = 'zundo'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^(copy|log)_[0-9]+$' AND pg_has_role(c.relowner, 'USAGE')
      AND NOT EXISTS (SELECT FROM pg_class o WHERE o.relkind = 'r' AND c.relname IN (concat('copy_', o.oid), concat('log_', o.oid)))
    UNION ALL
    SELECT i.indrelid::regclass, 'zbtree',
           format('%s of %s updates moved the row because they changed columns of %s', i.moved, i.updates, i.index),
           format('CALL zundo.set_index_method(%L, ''zbtree'')', i.index)
    FROM i
    WHERE i.method = 'btree' AND i.indisvalid
      -- those that zbtree can replace, and keeps in place then
      AND (NOT i.indisunique OR current_setting('server_version_num')::int >= 180000)
      AND i.indexprs IS NULL AND i.indpred IS NULL AND i.indimmediate AND NOT i.indisexclusion AND NOT i.relispartition
      AND NOT EXISTS (SELECT FROM unnest(i.indclass::oid[]) k(oid) JOIN pg_opclass b ON b.oid = k.oid
                      WHERE NOT EXISTS (SELECT FROM pg_opclass o JOIN pg_am m ON m.oid = o.opcmethod
                                        WHERE m.amname = 'zbtree' AND o.opcname = b.opcname
                                          AND o.opcnamespace = b.opcnamespace AND o.opcintype = b.opcintype))
    UNION ALL
    SELECT t.oid::regclass, 'fillfactor',
           format('%s of %s updates moved the row because its page was full, with fillfactor %s',
                  t.moved_for_space, t.updates, t.fillfactor),
           format('ALTER TABLE %s SET (fillfactor = %s)', t.name, GREATEST(t.fillfactor - 10, 70))
    FROM t
    WHERE t.am = 'zheap' AND t.updates >= 1000 AND t.moved_for_space > t.updates / 10 AND t.fillfactor > 70
    ORDER BY 1, 2, 4
$$;
COMMENT ON FUNCTION zundo.advise() IS
    'tables that would gain from another access method, index or fillfactor, each with the statement to run';

-- Converting a table online ---------------------------------------------------

-- The tables that have been converted; a materialized view for the same reasons as zundo.undo_log. zundo.convert writes it.
CREATE MATERIALIZED VIEW zundo.converted USING heap AS SELECT 0::pg_catalog.oid AS relation WITH NO DATA;
UPDATE pg_catalog.pg_class SET relispopulated = true
    WHERE oid OPERATOR(pg_catalog.=) 'zundo.converted'::pg_catalog.regclass;
COMMENT ON MATERIALIZED VIEW zundo.converted IS
    'tables that have been converted, for snapshots that are older';
COMMENT ON COLUMN zundo.converted.relation IS 'OID of the table; the transaction is the row''s xmin';

CREATE FUNCTION zundo.convert_note() RETURNS pg_catalog.trigger
    AS 'MODULE_PATHNAME', 'zundo_convert_note' LANGUAGE C VOLATILE;
COMMENT ON FUNCTION zundo.convert_note() IS
    'trigger function of zundo.convert';

CREATE PROCEDURE zundo.convert(rel pg_catalog.regclass, am pg_catalog.name, lock_wait int DEFAULT 50,
        step int DEFAULT 1024, pause int DEFAULT 0)
    AS 'MODULE_PATHNAME', 'zundo_convert' LANGUAGE C;
COMMENT ON PROCEDURE zundo.convert(pg_catalog.regclass, pg_catalog.name, int, int, int) IS
    'convert a table to access method zheap or heap online, or make it compact; for the owner';

CREATE PROCEDURE zundo.convert_cleanup(rel pg_catalog.regclass, lock_wait int DEFAULT 50)
    AS 'MODULE_PATHNAME', 'zundo_convert_cleanup' LANGUAGE C;
COMMENT ON PROCEDURE zundo.convert_cleanup(pg_catalog.regclass, int) IS
    'drop what an attempt to convert the table has left; for the owner';

CREATE FUNCTION zundo.size_unless_locked(rel pg_catalog.oid) RETURNS bigint
    AS 'MODULE_PATHNAME', 'zundo_size_unless_locked' LANGUAGE C VOLATILE STRICT;
COMMENT ON FUNCTION zundo.size_unless_locked(pg_catalog.oid) IS
    'pg_table_size, or null rather than waiting for a lock; for zundo.conversions';

CREATE VIEW zundo.conversions AS
    SELECT t.oid::pg_catalog.regclass AS relation, am.amname AS am, l.pid, p.phase,
           zundo.size_unless_locked(t.oid) AS table_bytes, zundo.size_unless_locked(c.oid) AS copy_bytes,
           zundo.size_unless_locked(lg.oid) AS log_bytes, x.n AS indexes,
           CASE WHEN l.pid IS NOT NULL
               THEN ARRAY(SELECT pg_catalog.unnest(pg_catalog.pg_blocking_pids(l.pid))
                   -- locks of the table are tried again and again, and hardly ever waited for
                   UNION SELECT COALESCE(k.pid, 0) FROM pg_catalog.pg_locks k
                   WHERE k.locktype OPERATOR(pg_catalog.=) 'relation' AND k.relation OPERATOR(pg_catalog.=) t.oid AND k.granted
                     AND k.database OPERATOR(pg_catalog.=) l.database AND COALESCE(k.pid, 0) OPERATOR(pg_catalog.<>) l.pid
                     AND CASE WHEN p.phase OPERATOR(pg_catalog.=) 'starting' THEN t.relkind OPERATOR(pg_catalog.=) 'p'::pg_catalog."char"
                                 OR k.mode OPERATOR(pg_catalog.<>) ALL (ARRAY['AccessShareLock', 'RowShareLock'])
                             WHEN p.phase OPERATOR(pg_catalog.=) 'exchanging' THEN true
                             WHEN p.phase OPERATOR(pg_catalog.=) 'dropping' THEN false
                             ELSE k.mode OPERATOR(pg_catalog.=) 'AccessExclusiveLock' END) END AS blocked_by
    FROM (SELECT m.oid AS copy, o.oid AS converted FROM pg_catalog.pg_class m
              JOIN pg_catalog.pg_class o ON m.relname OPERATOR(pg_catalog.=) pg_catalog.concat('copy_', o.oid)::pg_catalog.name
          WHERE m.relnamespace OPERATOR(pg_catalog.=) 'zundo'::pg_catalog.regnamespace) y
         FULL JOIN (SELECT k.objid, k.pid, k.database FROM pg_catalog.pg_locks k
             WHERE k.locktype OPERATOR(pg_catalog.=) 'object' AND k.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass
               AND k.objsubid OPERATOR(pg_catalog.=) 1::smallint AND k.granted
               AND k.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d
                   WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())) l
             ON l.objid OPERATOR(pg_catalog.=) y.converted
         JOIN pg_catalog.pg_class t ON t.oid OPERATOR(pg_catalog.=) COALESCE(y.converted, l.objid)
         LEFT JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) y.copy
         LEFT JOIN pg_catalog.pg_am am ON am.oid OPERATOR(pg_catalog.=) c.relam
         LEFT JOIN pg_catalog.pg_class lg ON lg.relname OPERATOR(pg_catalog.=) pg_catalog.concat('log_', t.oid)::pg_catalog.name
             AND lg.relnamespace OPERATOR(pg_catalog.=) c.relnamespace
         LEFT JOIN pg_catalog.pg_trigger g ON g.tgrelid OPERATOR(pg_catalog.=) t.oid
             AND g.tgfoid OPERATOR(pg_catalog.=) 'zundo.convert_note'::pg_catalog.regproc
         CROSS JOIN LATERAL (SELECT pg_catalog.count(*) FILTER (WHERE i.indrelid OPERATOR(pg_catalog.=) c.oid) AS n,
                 pg_catalog.count(*) FILTER (WHERE i.indrelid OPERATOR(pg_catalog.=) t.oid)
                     OPERATOR(pg_catalog.-) pg_catalog.count(*) FILTER (WHERE i.indrelid OPERATOR(pg_catalog.=) c.oid) AS rest
             FROM pg_catalog.pg_index i
             WHERE i.indrelid OPERATOR(pg_catalog.=) ANY (ARRAY[c.oid, t.oid]) AND i.indislive) x
         CROSS JOIN LATERAL (SELECT CASE WHEN c.oid IS NULL THEN 'starting' WHEN g.oid IS NULL THEN 'dropping'
                 WHEN x.n OPERATOR(pg_catalog.=) 0::bigint THEN 'copying'
                 WHEN x.rest OPERATOR(pg_catalog.>) 0::bigint THEN 'indexing' ELSE 'exchanging' END AS phase) p
    WHERE NOT pg_catalog.pg_is_in_recovery()
      AND (pg_catalog.pg_has_role(COALESCE(c.relowner, t.relowner), 'USAGE') OR pg_catalog.pg_has_role('pg_monitor', 'USAGE'));
COMMENT ON VIEW zundo.conversions IS
    'tables that are being converted, or of which an attempt has been left';
COMMENT ON COLUMN zundo.conversions.relation IS 'table';
COMMENT ON COLUMN zundo.conversions.am IS 'access method of the copy; null while there is none';
COMMENT ON COLUMN zundo.conversions.pid IS 'process that converts the table; null: call zundo.convert_cleanup';
COMMENT ON COLUMN zundo.conversions.phase IS 'starting: waits for its first lock; copying, indexing, exchanging the files, dropping the old one';
COMMENT ON COLUMN zundo.conversions.table_bytes IS 'bytes of the table, without indexes; null while somebody holds it exclusively, or waits for that';
COMMENT ON COLUMN zundo.conversions.copy_bytes IS 'bytes of the copy, without indexes: how far it is';
COMMENT ON COLUMN zundo.conversions.log_bytes IS 'bytes of the keys that have been noted, also of those that have been dealt with';
COMMENT ON COLUMN zundo.conversions.indexes IS 'indexes of the copy';
COMMENT ON COLUMN zundo.conversions.blocked_by IS 'processes whose locks are waited for; 0: a prepared transaction';
GRANT SELECT ON zundo.conversions TO PUBLIC;

CREATE FUNCTION zundo.bytes_free(tablespace pg_catalog.oid) RETURNS bigint
    AS 'MODULE_PATHNAME', 'zundo_bytes_free' LANGUAGE C VOLATILE STRICT;
COMMENT ON FUNCTION zundo.bytes_free(pg_catalog.oid) IS
    'free space on the disk of the tablespace; for zundo.convert_plan';

CREATE FUNCTION zundo.convert_refused(rel pg_catalog.regclass, am pg_catalog.name) RETURNS pg_catalog.text
    AS 'MODULE_PATHNAME', 'zundo_convert_refused' LANGUAGE C STABLE STRICT;
COMMENT ON FUNCTION zundo.convert_refused(pg_catalog.regclass, pg_catalog.name) IS
    'why the table cannot be converted; for zundo.convert_plan';

-- In the order of execution: partitions, the partitioned tables above them, last the table itself. Each table is looked up by its
-- OID or name, so that a plan of many tables takes time in proportion to them.
CREATE FUNCTION zundo.convert_plan(rel pg_catalog.regclass, am pg_catalog.name, zbtree boolean DEFAULT false,
        repack boolean DEFAULT false)
    RETURNS TABLE (relation pg_catalog.regclass, command pg_catalog.text, bytes bigint, bytes_free bigint,
                   publications pg_catalog.text, refused pg_catalog.text)
    LANGUAGE sql STABLE STRICT
BEGIN ATOMIC
    SELECT c.oid, s.command, s.bytes,
           CASE WHEN s.bytes IS NOT NULL
               THEN (SELECT CASE WHEN pg_catalog.bool_and(f.n IS NOT NULL) THEN pg_catalog.min(f.n) END
                   FROM (SELECT k.reltablespace FROM pg_catalog.pg_class k WHERE k.oid OPERATOR(pg_catalog.=) c.oid
                         UNION SELECT k.reltablespace FROM pg_catalog.pg_index x
                             JOIN pg_catalog.pg_class k ON k.oid OPERATOR(pg_catalog.=) x.indexrelid
                         WHERE x.indrelid OPERATOR(pg_catalog.=) c.oid) AS d
                       CROSS JOIN LATERAL (SELECT zundo.bytes_free(d.reltablespace) AS n OFFSET 0) AS f) END,
           p.names, s.refused
    FROM (SELECT o.oid, o.relam, o.relkind, o.relnamespace, pg_catalog.format('%I.%I', n.nspname, o.relname) AS name, t.isleaf, t.level,
                 -- 0 if an attempt has left something
                 CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_class k
                     WHERE k.relnamespace OPERATOR(pg_catalog.=) 'zundo'::pg_catalog.regnamespace
                       AND k.relname OPERATOR(pg_catalog.=) pg_catalog.concat('copy_', o.oid)::pg_catalog.name)
                 THEN (SELECT COALESCE(pg_catalog.max(v.pid), 0) FROM zundo.conversions v
                     WHERE v.relation OPERATOR(pg_catalog.=) o.oid HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 0::bigint) END AS pid
          FROM (SELECT d.relid, d.isleaf, d.level FROM pg_catalog.pg_partition_tree($1) d
                UNION ALL
                SELECT $1, true, 0 WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_partition_tree($1))) t
               JOIN pg_catalog.pg_class o ON o.oid OPERATOR(pg_catalog.=) t.relid
               JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) o.relnamespace
          WHERE o.relkind OPERATOR(pg_catalog.<>) 'f'::pg_catalog."char"
            AND (o.relkind OPERATOR(pg_catalog.<>) 'p'::pg_catalog."char"
                 OR pg_catalog.current_setting('server_version_num')::int OPERATOR(pg_catalog.>=) 170000)
          OFFSET 0) c
         -- what zundo.set_index_method has left, or still builds or drops
         CROSS JOIN LATERAL (
             SELECT pg_catalog.array_agg(pg_catalog.format('DROP INDEX CONCURRENTLY IF EXISTS %I.%I', n.nspname, i.relname)) AS commands,
                    pg_catalog.bool_or(EXISTS (SELECT FROM pg_catalog.pg_locks l
                        WHERE l.locktype OPERATOR(pg_catalog.=) 'relation' AND l.relation OPERATOR(pg_catalog.=) i.oid
                          AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
                          AND l.mode OPERATOR(pg_catalog.=) 'ShareUpdateExclusiveLock')) AS busy
             FROM pg_catalog.pg_index x
                  JOIN pg_catalog.pg_class i ON i.oid OPERATOR(pg_catalog.=) x.indexrelid
                  JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) i.relnamespace
             WHERE x.indrelid OPERATOR(pg_catalog.=) c.oid AND NOT x.indisvalid
               AND i.relname OPERATOR(pg_catalog.~) '^zundo_[0-9]+_twin'
             OFFSET 0) w
         CROSS JOIN LATERAL (
             SELECT CASE WHEN c.pid OPERATOR(pg_catalog.>) 0 THEN 'Another session converts it.'
                         WHEN w.busy THEN 'Another session changes one of its indexes.'
                         WHEN pg_catalog.pg_is_in_recovery() THEN 'The server is a standby.'
                         ELSE zundo.convert_refused(c.oid, $2) END AS refused,
                    EXISTS (SELECT FROM pg_catalog.pg_am a
                        WHERE a.oid OPERATOR(pg_catalog.=) c.relam AND a.amname OPERATOR(pg_catalog.=) $2) AS done
             OFFSET 0) r
         CROSS JOIN LATERAL (
             SELECT 1 AS step, pg_catalog.format('CALL zundo.convert_cleanup(%L)', c.name) AS command, NULL::bigint AS bytes,
                    NULL::pg_catalog.text AS refused
             WHERE c.pid OPERATOR(pg_catalog.=) 0
             UNION ALL
             SELECT 1, pg_catalog.unnest(w.commands), NULL, NULL WHERE r.refused IS NULL
             UNION ALL
             SELECT 3, CASE WHEN r.refused IS NULL THEN pg_catalog.format('CALL zundo.convert(%L, %L)', c.name, $2) END,
                    pg_catalog.pg_total_relation_size(c.oid), r.refused
             WHERE c.pid OPERATOR(pg_catalog.>) 0 OR NOT r.done OR ($4 AND c.relkind OPERATOR(pg_catalog.=) 'r'::pg_catalog."char")
             UNION ALL
             -- heap has no zbtree indexes: they are made btree before, and btree indexes zbtree after
             SELECT CASE WHEN m.amname OPERATOR(pg_catalog.=) 'zbtree' THEN 2 ELSE 4 END,
                    pg_catalog.format('CALL zundo.set_index_method(%L, %L)', pg_catalog.format('%I.%I', n.nspname, i.relname),
                        CASE WHEN m.amname OPERATOR(pg_catalog.=) 'zbtree' THEN 'btree' ELSE 'zbtree' END),
                    pg_catalog.pg_relation_size(i.oid), NULL
             FROM pg_catalog.pg_index x
                  JOIN pg_catalog.pg_class i ON i.oid OPERATOR(pg_catalog.=) x.indexrelid
                  JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) i.relnamespace
                  JOIN pg_catalog.pg_am m ON m.oid OPERATOR(pg_catalog.=) i.relam
             WHERE x.indrelid OPERATOR(pg_catalog.=) c.oid AND i.relkind OPERATOR(pg_catalog.=) 'i'::pg_catalog."char"
               AND r.refused IS NULL AND NOT i.relispartition AND x.indisvalid
               AND CASE WHEN $2 OPERATOR(pg_catalog.=) 'heap' THEN m.amname OPERATOR(pg_catalog.=) 'zbtree'
                   ELSE $3 AND m.amname OPERATOR(pg_catalog.=) 'btree' AND x.indimmediate AND NOT x.indisexclusion
                       AND (NOT x.indisunique OR pg_catalog.current_setting('server_version_num')::int OPERATOR(pg_catalog.>=) 180000)
                       AND NOT EXISTS (SELECT FROM pg_catalog.unnest(x.indclass::pg_catalog.oid[]) AS k
                               JOIN pg_catalog.pg_opclass b ON b.oid OPERATOR(pg_catalog.=) k
                           WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_opclass o
                                   JOIN pg_catalog.pg_am z ON z.oid OPERATOR(pg_catalog.=) o.opcmethod
                               WHERE z.amname OPERATOR(pg_catalog.=) 'zbtree' AND o.opcname OPERATOR(pg_catalog.=) b.opcname
                                 AND o.opcnamespace OPERATOR(pg_catalog.=) b.opcnamespace
                                 AND o.opcintype OPERATOR(pg_catalog.=) b.opcintype)) END) s
         CROSS JOIN LATERAL (
             SELECT pg_catalog.string_agg(pg_catalog.concat(b.pubname, CASE WHEN b.puballtables THEN ' (FOR ALL TABLES)' END), ', '
                        ORDER BY b.pubname) AS names
             FROM pg_catalog.pg_publication b
             WHERE b.puballtables
                OR EXISTS (SELECT FROM pg_catalog.pg_publication_namespace f
                     WHERE f.pnpubid OPERATOR(pg_catalog.=) b.oid AND f.pnnspid OPERATOR(pg_catalog.=) c.relnamespace)
                OR EXISTS (SELECT FROM pg_catalog.pg_publication_rel f WHERE f.prpubid OPERATOR(pg_catalog.=) b.oid
                     AND f.prrelid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT c.oid UNION ALL
                         SELECT a.relid FROM pg_catalog.pg_partition_ancestors(c.oid) a)))) p
    ORDER BY c.isleaf DESC, c.level DESC, c.oid, s.step, s.command COLLATE pg_catalog."C";
END;
COMMENT ON FUNCTION zundo.convert_plan(pg_catalog.regclass, pg_catalog.name, boolean, boolean) IS
    'what has to be done to convert the table or its partitions, or why they are refused';

-- Rights: what shows the work of other roles, or costs much, is for monitoring roles. Bytes of pages and of undo bypass row
-- security and column privileges and include deleted rows, so they are for superusers, whatever is granted. zundo.check and
-- zundo.row_locks check rights themselves. The superuser's default privileges may give nothing to PUBLIC.

GRANT SELECT ON zundo.stat_undo, zundo.stat_horizon, zundo.stat_database, zundo.stat_tables, zundo.stat_indexes, zundo.undo_history,
    zundo.table_sizes TO PUBLIC;

GRANT EXECUTE ON ALL ROUTINES IN SCHEMA zundo TO PUBLIC;
REVOKE ALL ON FUNCTION zundo.page_items(pg_catalog.regclass, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION zundo.page_slots(pg_catalog.regclass, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION zundo.index_items(pg_catalog.regclass, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION zundo.undo_records(int, int) FROM PUBLIC;
REVOKE ALL ON FUNCTION zundo.discard() FROM PUBLIC;
REVOKE ALL ON FUNCTION zundo.purge() FROM PUBLIC;
REVOKE ALL ON FUNCTION zundo.repair_undo(boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION zundo.stat_reset() FROM PUBLIC;
REVOKE ALL ON FUNCTION zundo.stat_get_rollback() FROM PUBLIC;
REVOKE ALL ON FUNCTION zundo.convert_note() FROM PUBLIC;

GRANT EXECUTE ON FUNCTION zundo.stat_get_rollback() TO pg_monitor;
GRANT SELECT ON zundo.stat_rollback TO pg_monitor;
