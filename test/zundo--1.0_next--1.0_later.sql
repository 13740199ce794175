/*
 * test/zundo--1.0_next--1.0_later.sql: an update for which the library is too old, for t/098_versions.pl only.
 */
\echo Use "ALTER EXTENSION zundo UPDATE TO '1.0_later'" to load this file. \quit

CREATE VIEW zundo.later AS SELECT 1 AS one;

CREATE FUNCTION zundo.not_there() RETURNS bigint
    AS 'MODULE_PATHNAME', 'zundo_not_there_1_1' LANGUAGE C STRICT;
