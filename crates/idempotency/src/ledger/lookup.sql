SELECT request_hash, fingerprint_version, request_id, status, response_code, response_headers, response_body,
       result_expires_at, key_expires_at, clock_timestamp() AS now
  FROM idempotency_records
 WHERE account_id = $1 AND key = $2
