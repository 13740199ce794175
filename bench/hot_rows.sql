\set id random(1, 4)
UPDATE hot SET n = n + 1 WHERE id = :id;
