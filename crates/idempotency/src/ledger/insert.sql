-- The finished record, last in its transaction. A plain INSERT that raises, never ON CONFLICT: COMMIT is already queued
-- behind it and would commit the business rows a second time.
INSERT INTO idempotency_records (account_id, key, request_path, request_hash, fingerprint_version, request_id, status,
                                 response_code, response_headers, response_body, result_expires_at, key_expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
        clock_timestamp() + $11 * interval '1 millisecond', clock_timestamp() + $12 * interval '1 millisecond')
RETURNING result_expires_at
