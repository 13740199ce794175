\set w random(1, :warehouses)
\set d random(1, 10)
\set c 1 + (random(0, 1023) | random(1, 3000)) % 3000
\set n (random(0, 255) | random(0, 999)) % 1000
\set kind random(1, 100)
\set part random(1, 100)
\if :kind <= 45
BEGIN;
SELECT new_order(:w, :d, :c);
\if :part = 1
ROLLBACK;
\else
END;
\endif
\elif :kind <= 88
\if :part <= 60
SELECT payment(:w, :d, NULL, :n, :kind);
\else
SELECT payment(:w, :d, :c, NULL, :kind);
\endif
\elif :kind <= 92
\if :part <= 60
SELECT order_status(:w, :d, NULL, :n);
\else
SELECT order_status(:w, :d, :c, NULL);
\endif
\elif :kind <= 96
SELECT delivery(:w, 1 + :part % 10);
\else
SELECT stock_level(:w, :d, 10 + :part % 11);
\endif
