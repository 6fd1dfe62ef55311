-- Takes subscribers that have something due and nobody who works for them, the one that waited longest first: token $1, lease
-- $2 ms, at most $3 of them. The walk over the index makes one step for each subscriber, however long its line is.
WITH RECURSIVE waiting AS (
    (SELECT subscriber_id FROM event_deliveries WHERE state = 'pending' ORDER BY subscriber_id LIMIT 1)
    UNION ALL
    SELECT (SELECT subscriber_id FROM event_deliveries
             WHERE state = 'pending' AND subscriber_id > waiting.subscriber_id ORDER BY subscriber_id LIMIT 1)
      FROM waiting WHERE subscriber_id IS NOT NULL
), due AS (
    SELECT event_subscribers.id
      FROM waiting JOIN event_subscribers ON event_subscribers.id = subscriber_id
     -- One probe for each; an EXISTS might be planned as a join with everything that is pending.
     CROSS JOIN LATERAL (SELECT FROM event_deliveries
                          WHERE subscriber_id = event_subscribers.id AND state = 'pending' AND due_at <= now()
                          LIMIT 1) AS something
     WHERE not_before <= now()
     ORDER BY not_before LIMIT $3
       FOR NO KEY UPDATE OF event_subscribers SKIP LOCKED
)
UPDATE event_subscribers SET claim = $1, not_before = now() + $2 * interval '1 millisecond'
  FROM due WHERE event_subscribers.id = due.id
RETURNING event_subscribers.id
