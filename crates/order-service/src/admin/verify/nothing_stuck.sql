-- $2: how long is too long, in ms. What waits for an operator's decision is not stuck: it is known.
SELECT account_id || ':' || key FROM idempotency_records
 WHERE status = 'IN_PROGRESS' AND unknown_since IS NULL AND lease_expires_at <= now()
   AND updated_at <= now() - $2::bigint * interval '1 millisecond'
LIMIT $1
