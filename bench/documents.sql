\set id random(1, :rows)
\set key random(1, 37)
\set value random(1, 1000000000)
UPDATE document SET changes = changes + 1, body = jsonb_set(body, ARRAY['key' || CAST(:key AS text)], to_jsonb(repeat(md5(CAST(:value AS text)), 8))) WHERE id = :id;
