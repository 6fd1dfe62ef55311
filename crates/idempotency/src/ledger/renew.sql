-- The heartbeat. A row that is locked is in the middle of a step, which prolongs the lease itself.
WITH mine AS MATERIALIZED (
    SELECT account_id, key FROM idempotency_records
     WHERE account_id = $1 AND key = $2 AND lease_token = $3 AND status = 'IN_PROGRESS'
       FOR UPDATE SKIP LOCKED
)
UPDATE idempotency_records AS record SET lease_expires_at = clock_timestamp() + $4 * interval '1 millisecond'
  FROM mine
 WHERE record.account_id = mine.account_id AND record.key = mine.key
RETURNING 1
