/* test/zundo_test--1.0.sql: each function returns the number of cases it tried, or fails. */
\echo Use "CREATE EXTENSION zundo_test" to load this file. \quit

CREATE FUNCTION zundo_test_pages(seed int, rounds int) RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_tuples(seed int, rounds int) RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_deltas(seed int, rounds int) RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_undo_records(seed int, rounds int) RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

-- What extensions and tools do to tables that they take for heap's (heap_tools.c).

CREATE FUNCTION zundo_test_catalog_insert(regclass, int) RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_heap_insert(regclass, int) RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_heap_multi_insert(regclass, int) RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_heap_scan(regclass) RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_swap_files(regclass, regclass) RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

-- A row, as SnapshotAny finds it by its address, or by its index (any_fetch.c).

CREATE FUNCTION zundo_test_fetch_any(regclass, tid) RETURNS text
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_scan_any(regclass, regclass) RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

-- Calls of the table AM interface (heap_tools.c).

CREATE FUNCTION zundo_test_table_insert(regclass, int, options int) RETURNS tid
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_table_delete(regclass, tid, wait boolean) RETURNS int
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_hold_extension(regclass) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
CREATE FUNCTION zundo_test_table_lock(regclass, tid, mode int, policy int, flags int) RETURNS int
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_index_delete(regclass, index regclass, tid) RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_add_entry(regclass, index regclass, source tid, target tid) RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_drop_entry(index regclass, block bigint, item int) RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE TABLE zundo_test_own (id int PRIMARY KEY, note text);
