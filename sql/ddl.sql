-- Wide tables, COPY FREEZE, and commands that rewrite tables do the same on heap and on zheap.
\getenv srcdir PG_ABS_SRCDIR
\cd :srcdir
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE regress_place LOCATION '';
\set am heap
\i sql/include/ddl.sql
\set am zheap
\i sql/include/ddl.sql
DROP TABLESPACE regress_place;
