-- Forgets what was settled more than $1 ms ago, and what waits for a subscriber that is gone, in batches of $2 rows.
WITH RECURSIVE waiting AS (
    (SELECT subscriber_id FROM event_deliveries WHERE state = 'pending' ORDER BY subscriber_id LIMIT 1)
    UNION ALL
    SELECT (SELECT subscriber_id FROM event_deliveries
             WHERE state = 'pending' AND subscriber_id > waiting.subscriber_id ORDER BY subscriber_id LIMIT 1)
      FROM waiting WHERE subscriber_id IS NOT NULL
), settled AS (
    DELETE FROM event_deliveries
     WHERE ctid = ANY (ARRAY(
         SELECT ctid FROM event_deliveries
          WHERE state <> 'pending' AND settled_at <= now() - $1 * interval '1 millisecond'
          ORDER BY settled_at LIMIT $2
            FOR UPDATE SKIP LOCKED))
    RETURNING 1
), orphaned AS (
    DELETE FROM event_deliveries
     WHERE ctid = ANY (ARRAY(
         SELECT event_deliveries.ctid FROM waiting JOIN event_deliveries USING (subscriber_id)
          WHERE state = 'pending' AND NOT EXISTS (SELECT FROM event_subscribers WHERE id = waiting.subscriber_id)
          LIMIT $2
            FOR UPDATE OF event_deliveries SKIP LOCKED))
    RETURNING 1
)
SELECT (SELECT count(*) FROM settled) + (SELECT count(*) FROM orphaned)
