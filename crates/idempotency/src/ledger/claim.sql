-- What the completer resumes, in one batch of $1 rows: leases that have run out, each after a pause that doubles with its
-- attempts and is drawn at random in its second half. Known by name ($2) to this build; an unknown outcome is asked about again
-- only while it is not stuck ($4). $3 lease, $4 stuck after, $5 first and $6 longest pause, all in ms.
WITH due AS MATERIALIZED (
    SELECT account_id, key FROM idempotency_records
     WHERE status = 'IN_PROGRESS' AND command = ANY ($2)
       AND lease_expires_at + LEAST($6, $5 * 2::float8 ^ LEAST(attempts, 20)) * (0.5 + random() / 2) * interval '1 millisecond'
           <= clock_timestamp()
       AND (unknown_since IS NULL OR updated_at > clock_timestamp() - $4 * interval '1 millisecond')
     ORDER BY created_at LIMIT $1
       FOR UPDATE SKIP LOCKED
)
UPDATE idempotency_records AS record
   SET lease_token = gen_random_uuid(), lease_expires_at = clock_timestamp() + $3 * interval '1 millisecond',
       attempts = attempts + 1
  FROM due
 WHERE record.account_id = due.account_id AND record.key = due.key
RETURNING record.account_id, record.key, request_path, request_hash, fingerprint_version, request_id, command, request_body,
          lease_token, updated_at <= clock_timestamp() - $4 * interval '1 millisecond'
