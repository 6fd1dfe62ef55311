-- The first statement of a step's transaction: the compare on the token, and a row lock until the step ends. No row: another
-- executor has taken over, and nothing of this one may be committed any more.
UPDATE idempotency_records
   SET updated_at = clock_timestamp(), lease_expires_at = clock_timestamp() + $4 * interval '1 millisecond'
 WHERE account_id = $1 AND key = $2 AND lease_token = $3 AND status = 'IN_PROGRESS'
RETURNING 1
