INSERT INTO key_resolutions (account_id, key, operation, step, derived_key, decision, reason, result)
SELECT record.account_id, record.key, request_id, name, derived_key, $4, $5, $6
  FROM idempotency_records AS record JOIN workflow_steps AS step USING (account_id, key)
 WHERE account_id = $1 AND key = $2 AND position = $3
