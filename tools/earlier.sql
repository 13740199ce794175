-- What ./zundo release-check makes in an earlier build, dumps, and restores into this one:
-- tables of each kind, and what users may have hung on the extension's objects.
CREATE EXTENSION zundo;
CREATE ROLE watcher;
CREATE SCHEMA shop;
SET search_path = shop;
SET default_table_access_method = zheap;
CREATE TABLE customer (id int PRIMARY KEY, name text NOT NULL, note text);
INSERT INTO customer SELECT g, 'customer ' || g, repeat(md5(g::text), 200) FROM generate_series(1, 100) g;
CREATE TABLE orders (id int, customer int REFERENCES customer, state text, price numeric, version bigint) PARTITION BY RANGE (id);
CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM (0) TO (500);
CREATE TABLE orders_2 PARTITION OF orders FOR VALUES FROM (500) TO (2000) USING heap;
CREATE TRIGGER version BEFORE INSERT OR UPDATE ON orders_1 FOR EACH ROW EXECUTE FUNCTION zundo.row_version('version');
CREATE INDEX by_state ON orders_1 USING zbtree (state) WHERE price > 10;
CREATE INDEX by_price ON orders_1 (price);
INSERT INTO orders SELECT g, 1 + g % 100, 'new', g % 50 FROM generate_series(1, 1000) g;
UPDATE orders SET state = 'paid' WHERE id % 3 = 0;
DELETE FROM orders WHERE id % 7 = 0;
CREATE MATERIALIZED VIEW totals AS SELECT customer, count(*), sum(price) FROM orders GROUP BY 1;
CREATE VIEW sizes AS SELECT name, am FROM zundo.table_sizes WHERE name::text LIKE '%orders%';
GRANT EXECUTE ON FUNCTION zundo.undo_bytes_in_use() TO watcher;
GRANT SELECT ON zundo.stat_undo TO watcher;
