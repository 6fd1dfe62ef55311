-- A foreign call whose outcome is known. $5 position, $6 result.
WITH mine AS (
    UPDATE idempotency_records
       SET updated_at = clock_timestamp(), lease_expires_at = clock_timestamp() + $4 * interval '1 millisecond',
           unknown_since = NULL
     WHERE account_id = $1 AND key = $2 AND lease_token = $3 AND status = 'IN_PROGRESS'
    RETURNING account_id, key
)
UPDATE workflow_steps AS step SET state = 'done', result = $6, done_at = clock_timestamp()
  FROM mine
 WHERE step.account_id = mine.account_id AND step.key = mine.key AND step.position = $5 AND step.state = 'begun'
RETURNING 1
