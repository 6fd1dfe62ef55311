INSERT INTO events (id, account_id, type, data)
SELECT id, $1, type, data::jsonb FROM unnest($2::uuid[], $3::text[], $4::text[]) AS emitted (id, type, data)
