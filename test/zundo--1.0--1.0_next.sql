/*
 * test/zundo--1.0--1.0_next.sql: an update of the extension, for t/098_versions.pl only.
 *
 * Makes changes of the kinds that a later version may need: replaces a view and a function, adds a function, changes rights.
 */
\echo Use "ALTER EXTENSION zundo UPDATE TO '1.0_next'" to load this file. \quit

CREATE OR REPLACE VIEW zundo.stat_undo AS
    SELECT log, pid, attached, bytes, extents, discard_ptr, insert_ptr, oldest_xid, false AS is_new
    FROM zundo.stat_get_undo();

CREATE OR REPLACE FUNCTION zundo.undo_bytes_in_use() RETURNS bigint
    AS 'MODULE_PATHNAME', 'zundo_undo_bytes_in_use' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION zundo.next_version() RETURNS pg_catalog.text
    LANGUAGE sql IMMUTABLE RETURN 'next'::pg_catalog.text;
REVOKE ALL ON FUNCTION zundo.next_version() FROM PUBLIC;
