-- A foreign call, before it is made.
WITH mine AS (
    UPDATE idempotency_records
       SET updated_at = clock_timestamp(), lease_expires_at = clock_timestamp() + $4 * interval '1 millisecond'
     WHERE account_id = $1 AND key = $2 AND lease_token = $3 AND status = 'IN_PROGRESS'
    RETURNING account_id, key
)
INSERT INTO workflow_steps (account_id, key, position, name, kind, state, derived_key)
SELECT account_id, key, $5, $6, 'foreign', 'begun', $7 FROM mine
RETURNING 1
