-- Tables, rows and transactions of workload T (tpcc.py), after the specification of
-- TPC-C. :warehouses is the number of warehouses. Transactions visit the items of an
-- order in ascending order, so that they do not deadlock.

CREATE TABLE warehouse (w_id int PRIMARY KEY, w_name text, w_address text, w_tax numeric, w_ytd numeric);
CREATE TABLE district (d_w_id int, d_id int, d_name text, d_address text, d_tax numeric, d_ytd numeric,
	d_next_o_id int, PRIMARY KEY (d_w_id, d_id));
CREATE TABLE customer (c_w_id int, c_d_id int, c_id int, c_first text, c_last text, c_address text,
	c_since timestamptz, c_credit char(2), c_discount numeric, c_balance numeric, c_ytd_payment numeric,
	c_payment_cnt int, c_delivery_cnt int, c_data text, PRIMARY KEY (c_w_id, c_d_id, c_id));
CREATE INDEX ON customer (c_w_id, c_d_id, c_last, c_first);
CREATE TABLE history (h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int, h_date timestamptz,
	h_amount numeric, h_data text);
CREATE TABLE orders (o_w_id int, o_d_id int, o_id int, o_c_id int, o_entry_d timestamptz, o_carrier_id int,
	o_ol_cnt int, PRIMARY KEY (o_w_id, o_d_id, o_id));
CREATE INDEX ON orders (o_w_id, o_d_id, o_c_id, o_id);
CREATE TABLE new_order (no_w_id int, no_d_id int, no_o_id int, PRIMARY KEY (no_w_id, no_d_id, no_o_id));
CREATE TABLE order_line (ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int,
	ol_delivery_d timestamptz, ol_quantity int, ol_amount numeric, ol_dist_info text,
	PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number));
CREATE TABLE item (i_id int PRIMARY KEY, i_name text, i_price numeric, i_data text);
CREATE TABLE stock (s_w_id int, s_i_id int, s_quantity int, s_dist text, s_ytd int, s_order_cnt int, s_data text,
	PRIMARY KEY (s_w_id, s_i_id));

-- The last name with the number n.
CREATE FUNCTION last_name(n int) RETURNS text IMMUTABLE LANGUAGE sql AS $$
	SELECT string_agg((ARRAY['BAR', 'OUGHT', 'ABLE', 'PRI', 'PRES', 'ESE', 'ANTI', 'CALLY', 'ATION', 'EING'])
		[1 + digit::int], '' ORDER BY place)
	FROM regexp_split_to_table(lpad(n::text, 3, '0'), '') WITH ORDINALITY AS digits (digit, place)
$$;

SELECT setseed(0.5);
CREATE TEMP TABLE names AS SELECT n, last_name(n) AS name FROM generate_series(0, 999) n;
INSERT INTO item SELECT i, md5(i::text), 1 + i % 100, repeat('i', 26 + i % 25) FROM generate_series(1, 100000) i;
INSERT INTO warehouse SELECT w, 'W' || w, repeat('a', 70), 0.1, 300000 FROM generate_series(1, :warehouses) w;
INSERT INTO district SELECT w, d, 'D' || d, repeat('a', 70), 0.1, 30000, 3001
	FROM generate_series(1, :warehouses) w, generate_series(1, 10) d;
INSERT INTO customer SELECT d_w_id, d_id, c, md5(c::text), name, repeat('a', 90), now(), 'GC', 0.1, -10, 10, 1, 0,
		repeat('c', 300 + c % 200)
	FROM district, generate_series(1, 3000) c JOIN names ON n = CASE WHEN c <= 1000 THEN c - 1 ELSE (c * 7919) % 1000 END;
INSERT INTO history SELECT c_id, c_d_id, c_w_id, c_d_id, c_w_id, now(), 10, repeat('h', 18) FROM customer;
INSERT INTO stock SELECT d_w_id, i, 10 + i % 91, repeat('s', 240), 0, 0, repeat('d', 26 + i % 25)
	FROM district, generate_series(1, 100000) i WHERE d_id = 1;
INSERT INTO orders SELECT d_w_id, d_id, o, 1 + (o * 7919) % 3000, now(), CASE WHEN o <= 2100 THEN 1 + o % 10 END, 5 + o % 11
	FROM district, generate_series(1, 3000) o;
INSERT INTO new_order SELECT o_w_id, o_d_id, o_id FROM orders WHERE o_carrier_id IS NULL;
INSERT INTO order_line SELECT o_w_id, o_d_id, o_id, l, 1 + (random() * 99999)::int, CASE WHEN o_carrier_id > 0 THEN now() END,
		5, CASE WHEN o_carrier_id > 0 THEN 0 ELSE (random() * 9999)::numeric(6, 2) END, repeat('d', 24)
	FROM orders, generate_series(1, o_ol_cnt) l;
DROP TABLE names;
VACUUM ANALYZE;
CHECKPOINT;

CREATE FUNCTION new_order(w int, d int, c int) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
	chosen int[] := ARRAY(SELECT DISTINCT 1 + ((random() * 8191)::int | (random() * 99999)::int) % 100000
						  FROM generate_series(1, 5 + (random() * 10)::int) ORDER BY 1);
	o int; line int := 0; i int; quantity int; price numeric; total numeric := 0; tax numeric; discount numeric;
BEGIN
	SELECT w_tax INTO tax FROM warehouse WHERE w_id = w;
	SELECT c_discount INTO discount FROM customer WHERE c_w_id = w AND c_d_id = d AND c_id = c;
	SELECT d_next_o_id, tax + d_tax INTO o, tax FROM district WHERE d_w_id = w AND d_id = d FOR UPDATE;
	UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = w AND d_id = d;
	INSERT INTO orders VALUES (w, d, o, c, now(), NULL, cardinality(chosen));
	INSERT INTO new_order VALUES (w, d, o);
	FOREACH i IN ARRAY chosen LOOP
		SELECT i_price INTO price FROM item WHERE i_id = i;
		SELECT s_quantity INTO quantity FROM stock WHERE s_w_id = w AND s_i_id = i FOR UPDATE;
		UPDATE stock SET s_quantity = CASE WHEN quantity > 14 THEN quantity - 5 ELSE quantity + 86 END,
			s_ytd = s_ytd + 5, s_order_cnt = s_order_cnt + 1 WHERE s_w_id = w AND s_i_id = i;
		line := line + 1;
		INSERT INTO order_line VALUES (w, d, o, line, i, NULL, 5, 5 * price, repeat('d', 24));
		total := total + 5 * price;
	END LOOP;
	RETURN total * (1 - discount) * (1 + tax);
END $$;

-- The customer has the id c or, if that is null, is in the middle of those with the last name.
CREATE FUNCTION payment(w int, d int, c int, n int, amount numeric) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
	balance numeric;
BEGIN
	UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = w;
	UPDATE district SET d_ytd = d_ytd + amount WHERE d_w_id = w AND d_id = d;
	c := coalesce(c, customer_named(w, d, n));
	SELECT c_balance INTO balance FROM customer WHERE c_w_id = w AND c_d_id = d AND c_id = c FOR UPDATE;
	UPDATE customer SET c_balance = balance - amount, c_ytd_payment = c_ytd_payment + amount,
		c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = w AND c_d_id = d AND c_id = c;
	INSERT INTO history VALUES (c, d, w, d, w, now(), amount, repeat('h', 18));
	RETURN balance - amount;
END $$;

CREATE FUNCTION customer_named(w int, d int, n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	found int[] := ARRAY(SELECT c_id FROM customer WHERE c_w_id = w AND c_d_id = d AND c_last = last_name(n)
						 ORDER BY c_first);
BEGIN
	RETURN found[(cardinality(found) + 1) / 2];
END $$;

CREATE FUNCTION order_status(w int, d int, c int, n int) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
	o int; balance numeric; total numeric;
BEGIN
	c := coalesce(c, customer_named(w, d, n));
	SELECT c_balance INTO balance FROM customer WHERE c_w_id = w AND c_d_id = d AND c_id = c;
	SELECT o_id INTO o FROM orders WHERE o_w_id = w AND o_d_id = d AND o_c_id = c ORDER BY o_id DESC LIMIT 1;
	SELECT sum(ol_amount) INTO total FROM order_line WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
	RETURN balance + total;
END $$;

-- Delivers the oldest new order of each district.
CREATE FUNCTION delivery(w int, carrier int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	oldest int[]; o int; c int; total numeric;
BEGIN
	FOR d IN 1..10 LOOP
		SELECT no_o_id INTO o FROM new_order WHERE no_w_id = w AND no_d_id = d ORDER BY no_o_id LIMIT 1 FOR UPDATE;
		oldest[d] := o;
	END LOOP;
	DELETE FROM new_order WHERE (no_w_id, no_d_id, no_o_id) IN ((w, 1, oldest[1]), (w, 2, oldest[2]), (w, 3, oldest[3]),
		(w, 4, oldest[4]), (w, 5, oldest[5]), (w, 6, oldest[6]), (w, 7, oldest[7]), (w, 8, oldest[8]), (w, 9, oldest[9]),
		(w, 10, oldest[10]));
	FOR d IN 1..10 LOOP
		CONTINUE WHEN oldest[d] IS NULL;
		UPDATE orders SET o_carrier_id = carrier WHERE o_w_id = w AND o_d_id = d AND o_id = oldest[d] RETURNING o_c_id INTO c;
		UPDATE order_line SET ol_delivery_d = now() WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = oldest[d];
		SELECT sum(ol_amount) INTO total FROM order_line WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = oldest[d];
		UPDATE customer SET c_balance = c_balance + total, c_delivery_cnt = c_delivery_cnt + 1
			WHERE c_w_id = w AND c_d_id = d AND c_id = c;
	END LOOP;
	RETURN cardinality(oldest);
END $$;

CREATE FUNCTION stock_level(w int, d int, threshold int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	o int; low bigint;
BEGIN
	SELECT d_next_o_id INTO o FROM district WHERE d_w_id = w AND d_id = d;
	SELECT count(DISTINCT s_i_id) INTO low FROM order_line JOIN stock ON s_w_id = w AND s_i_id = ol_i_id
		WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id BETWEEN o - 20 AND o - 1 AND s_quantity < threshold;
	RETURN low;
END $$;

-- The numbers of the specification's consistency conditions (3.3.2) that do not hold; none
-- for condition 11, which is about loading.
CREATE FUNCTION violated() RETURNS SETOF int STABLE LANGUAGE sql AS $$
	WITH by_district AS MATERIALIZED (
		SELECT d_w_id AS w, d_id AS d, d_ytd, d_next_o_id,
			(SELECT sum(h_amount) FROM history WHERE h_w_id = d_w_id AND h_d_id = d_id) AS paid,
			(SELECT max(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) AS last_order,
			(SELECT sum(o_ol_cnt) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) AS lines_named,
			(SELECT count(*) FROM order_line WHERE ol_w_id = d_w_id AND ol_d_id = d_id) AS lines
		FROM district),
	by_order AS MATERIALIZED (
		SELECT o_w_id, o_d_id, o_id, o_c_id, o_ol_cnt, o_carrier_id IS NULL AS is_new, count(ol_number) AS lines,
			count(ol_delivery_d) AS delivered, sum(ol_amount) AS amount
		FROM orders LEFT JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
		GROUP BY o_w_id, o_d_id, o_id),
	by_customer AS MATERIALIZED (
		SELECT c_balance, c_ytd_payment, coalesce(due, 0) AS due, coalesce(paid, 0) AS paid FROM customer
			LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(amount) AS due FROM by_order WHERE NOT is_new GROUP BY 1, 2, 3) o
				ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
			LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history GROUP BY 1, 2, 3) h
				ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id),
	waiting AS (
		SELECT no_w_id AS w, no_d_id AS d, max(no_o_id) AS last, max(no_o_id) - min(no_o_id) + 1 - count(*) AS gaps
		FROM new_order GROUP BY 1, 2)
	SELECT 1 FROM warehouse WHERE w_ytd <> (SELECT sum(d_ytd) FROM by_district WHERE w = w_id)
	UNION SELECT 2 FROM by_district LEFT JOIN waiting USING (w, d)
		WHERE d_next_o_id - 1 <> last_order OR last_order <> last
	UNION SELECT 3 FROM waiting WHERE gaps <> 0
	UNION SELECT 4 FROM by_district WHERE lines <> lines_named
	UNION SELECT 5 FROM by_order FULL JOIN new_order ON o_w_id = no_w_id AND o_d_id = no_d_id AND o_id = no_o_id
		WHERE is_new IS DISTINCT FROM (no_o_id IS NOT NULL)
	UNION SELECT 6 FROM by_order WHERE lines <> o_ol_cnt
	UNION SELECT 7 FROM by_order WHERE delivered <> CASE WHEN is_new THEN 0 ELSE lines END
	UNION SELECT 8 FROM warehouse WHERE w_ytd <> (SELECT sum(h_amount) FROM history WHERE h_w_id = w_id)
	UNION SELECT 9 FROM by_district WHERE d_ytd <> paid
	UNION SELECT 10 FROM by_customer WHERE c_balance <> due - paid
	UNION SELECT 12 FROM by_customer WHERE c_balance + c_ytd_payment <> due
$$;
