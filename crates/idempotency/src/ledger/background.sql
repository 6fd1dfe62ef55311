-- A 202 is about to be given for a record that is still running.
UPDATE idempotency_records SET background = true
 WHERE request_id = $1 AND account_id = $2 AND command IS NOT NULL AND status = 'IN_PROGRESS'
RETURNING 1
