/* test/zundo_test--1.0.sql - the functions of the module zundo_test. */
\echo Use "CREATE EXTENSION zundo_test" to load this file. \quit

-- Unit tests: each returns the number of cases that it has tried, or raises an error.

CREATE FUNCTION zundo_test_pages(seed int, rounds int) RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_tuples(seed int, rounds int) RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_deltas(seed int, rounds int) RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_undo_records(seed int, rounds int) RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_undo_resolved(seed int, rounds int) RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_own(seed int, rounds int) RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

-- Gives damaged WAL and undo records to their decoders (fuzz.c).

CREATE FUNCTION zundo_test_fuzz(target text, since pg_lsn, seed int, seconds float8) RETURNS text
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

-- Functions that do what extensions and tools do that expect a heap table (heap_tools.c).

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

-- Functions that read rows with SnapshotAny (any_fetch.c).

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

CREATE FUNCTION zundo_test_table_lock(regclass, tid, mode int, policy int, flags int, earlier int DEFAULT 0)
RETURNS int
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_table_fetch(regclass, tid) RETURNS text
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_index_delete(regclass, index regclass, tid) RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

-- Functions that make wrong index entries (index_entry.c).

CREATE FUNCTION zundo_test_add_entry(regclass, index regclass, source tid, target tid) RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION zundo_test_drop_entry(index regclass, block bigint, item int) RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE TABLE zundo_test_own (id int PRIMARY KEY, note text);
