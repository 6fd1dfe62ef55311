SELECT request_hash, fingerprint_version, request_id, status, response_code, response_headers, response_body,
       COALESCE((extract(epoch FROM result_expires_at) * 1000)::int8, 0),
       COALESCE((extract(epoch FROM key_expires_at) * 1000)::int8, 0),
       (extract(epoch FROM clock_timestamp()) * 1000)::int8,
       (SELECT oid FROM pg_database WHERE datname = current_database())::int8,
       (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::int8
  FROM idempotency_records
 WHERE account_id = $1 AND key = $2
