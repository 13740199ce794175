-- Temporary tables do the same on heap and on zheap.
\getenv srcdir PG_ABS_SRCDIR
\cd :srcdir
\set am heap
\i sql/include/temp.sql
\set am zheap
\i sql/include/temp.sql
