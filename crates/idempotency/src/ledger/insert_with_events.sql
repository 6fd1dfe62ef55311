-- The finished record (see insert.sql) and the work's events with their deliveries (see events.sql), in one statement: each
-- further one is another turn of both sides.
WITH emitted AS (
    INSERT INTO events (id, account_id, type, data)
    SELECT id, $1, type, data::jsonb FROM unnest($13::uuid[], $14::text[], $15::text[]) AS emitted (id, type, data)
    RETURNING id
), delivered AS (
    INSERT INTO event_deliveries (subscriber_id, event_id)
    SELECT event_subscribers.id, emitted.id FROM event_subscribers CROSS JOIN emitted WHERE account_id = $1
)
INSERT INTO idempotency_records (account_id, key, request_path, request_hash, fingerprint_version, request_id, status,
                                 response_code, response_headers, response_body, result_expires_at, key_expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
        clock_timestamp() + $11 * interval '1 millisecond', clock_timestamp() + $12 * interval '1 millisecond')
RETURNING result_expires_at
