-- What was given up, the latest first, at most $1.
SELECT event_id, type, account_id, subscriber_id, attempts, last_error, settled_at
  FROM event_deliveries JOIN events ON events.id = event_id
 WHERE state = 'dead' ORDER BY settled_at DESC LIMIT $1
