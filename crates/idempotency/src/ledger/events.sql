-- Events, and a delivery of each to each of the account's subscribers: one statement, so that no event is without them.
WITH emitted AS (
    INSERT INTO events (id, account_id, type, data)
    SELECT id, $1, type, data::jsonb FROM unnest($2::uuid[], $3::text[], $4::text[]) AS emitted (id, type, data)
    RETURNING id
)
INSERT INTO event_deliveries (subscriber_id, event_id)
SELECT event_subscribers.id, emitted.id FROM event_subscribers CROSS JOIN emitted WHERE account_id = $1
