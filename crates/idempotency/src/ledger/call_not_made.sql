-- A foreign call that was begun by this run and provably never left: no doubt remains, and no progress was made, so that what is
-- tried in vain becomes stuck all the same. $4 position.
WITH mine AS (
    UPDATE idempotency_records
       SET updated_at = COALESCE((SELECT max(done_at) FROM workflow_steps
                                   WHERE account_id = $1 AND key = $2 AND state = 'done'), created_at)
     WHERE account_id = $1 AND key = $2 AND lease_token = $3 AND status = 'IN_PROGRESS'
    RETURNING account_id, key
)
DELETE FROM workflow_steps AS step USING mine
 WHERE step.account_id = mine.account_id AND step.key = mine.key AND step.position = $4 AND step.state = 'begun'
RETURNING 1
