\set id random(1, :rows)
\set key random(1, 38)
\set value random(1, 1000000000)
UPDATE document SET changes = changes + 1, body = jsonb_set(body, ARRAY['key' || CAST(:key AS text)],
    to_jsonb((SELECT string_agg(md5(CAST(:value AS text) || n), '') FROM generate_series(1, 8) n))) WHERE id = :id;
