-- The columns of lookup.sql, found by the operation's id, then the key.
SELECT request_hash, fingerprint_version, request_id, status, response_code, response_headers, response_body,
       result_expires_at, key_expires_at, clock_timestamp() AS now,
       lease_token, lease_expires_at <= clock_timestamp() AS lease_is_over, attempts, background,
       unknown_since IS NOT NULL AS is_unknown, command IS NOT NULL AS is_workflow, key
  FROM idempotency_records
 WHERE request_id = $1 AND account_id = $2 AND command IS NOT NULL
