\set id random(1, :rows)
UPDATE account SET balance = balance + 1 WHERE id = :id;
