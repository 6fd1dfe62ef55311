-- One try is over, for whoever still owns the subscriber ($1) by the token $2: the event $3 is now in state $4, because of
-- $5; set aside for up to $6 ms, if so. The subscriber is left alone for $7 ms and up to $8 ms more: the lease, or a pause.
WITH owned AS (
    UPDATE event_subscribers SET not_before = now() + ($7 + random() * $8) * interval '1 millisecond'
     WHERE id = $1 AND claim = $2
    RETURNING id
)
UPDATE event_deliveries
   SET state = $4, last_error = $5, attempts = attempts + 1,
       due_at = CASE WHEN $6 IS NULL THEN due_at ELSE now() + random() * $6 * interval '1 millisecond' END,
       settled_at = CASE WHEN $4 = 'pending' THEN NULL ELSE now() END
  FROM owned
 WHERE subscriber_id = owned.id AND event_id = $3 AND state = 'pending'
RETURNING 1
