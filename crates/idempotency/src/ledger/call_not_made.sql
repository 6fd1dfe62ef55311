-- A foreign call that was begun by this run and provably never left: no doubt remains. $4 position.
WITH mine AS (
    SELECT account_id, key FROM idempotency_records
     WHERE account_id = $1 AND key = $2 AND lease_token = $3 AND status = 'IN_PROGRESS'
       FOR UPDATE
)
DELETE FROM workflow_steps AS step USING mine
 WHERE step.account_id = mine.account_id AND step.key = mine.key AND step.position = $4 AND step.state = 'begun'
RETURNING 1
