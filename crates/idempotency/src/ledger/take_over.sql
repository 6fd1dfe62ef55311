-- Takes a run-out lease, by compare-and-set on its token. A row that is locked has an executor in the middle of a step (the
-- step's transaction holds the lock): it is left to it, never waited for. $6 stuck after, in ms; says whether it is.
WITH free AS MATERIALIZED (
    SELECT account_id, key FROM idempotency_records
     WHERE account_id = $1 AND key = $2 AND status = 'IN_PROGRESS' AND lease_token = $3
       AND lease_expires_at <= clock_timestamp()
       FOR UPDATE SKIP LOCKED
)
UPDATE idempotency_records AS record
   SET lease_token = $4, lease_expires_at = clock_timestamp() + $5 * interval '1 millisecond', attempts = attempts + 1
  FROM free
 WHERE record.account_id = free.account_id AND record.key = free.key
RETURNING record.updated_at <= clock_timestamp() - $6 * interval '1 millisecond'
