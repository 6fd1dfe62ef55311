-- The record of a workflow, before its first step. A plain INSERT that raises: it is the check, and COMMIT is behind it.
INSERT INTO idempotency_records (account_id, key, request_path, request_hash, fingerprint_version, request_id, status,
                                 command, request_body, lease_token, lease_expires_at, attempts, serial, background)
VALUES ($1, $2, $3, $4, $5, $6, 'IN_PROGRESS', $7, $8, $9, clock_timestamp() + $10 * interval '1 millisecond', 1, $11, $12)
RETURNING 1
