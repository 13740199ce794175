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
