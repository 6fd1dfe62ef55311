-- The record can be gone on with, by nobody who held it before: a decision is progress, and a new token.
UPDATE idempotency_records
   SET unknown_since = NULL, trouble = NULL, updated_at = clock_timestamp(), lease_token = gen_random_uuid(),
       lease_expires_at = clock_timestamp()
 WHERE account_id = $1 AND key = $2 AND status = 'IN_PROGRESS'
