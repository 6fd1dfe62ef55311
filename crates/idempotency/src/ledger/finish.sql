-- The answer of a workflow. Only the executor that holds the lease can write it.
UPDATE idempotency_records
   SET status = $4, response_code = $5, response_headers = $6, response_body = $7,
       result_expires_at = clock_timestamp() + $8 * interval '1 millisecond',
       key_expires_at = clock_timestamp() + $9 * interval '1 millisecond',
       updated_at = clock_timestamp(), request_body = NULL, lease_token = NULL, lease_expires_at = NULL, serial = NULL,
       unknown_since = NULL, trouble = NULL
 WHERE account_id = $1 AND key = $2 AND lease_token = $3 AND status = 'IN_PROGRESS'
RETURNING result_expires_at
