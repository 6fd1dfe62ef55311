-- Locks a running record: whether nobody holds its lease, and the foreign call that has no answer; or, where something stands in the
-- way, the last step, if an operator gave its answer: a result that cannot be read may be corrected.
SELECT lease_expires_at <= clock_timestamp(), COALESCE(
       (SELECT position FROM workflow_steps AS step
         WHERE step.account_id = record.account_id AND step.key = record.key AND state = 'begun'),
       (SELECT position FROM workflow_steps AS step
         WHERE step.account_id = record.account_id AND step.key = record.key AND record.trouble IS NOT NULL
           AND position = (SELECT max(position) FROM workflow_steps AS last
                            WHERE last.account_id = record.account_id AND last.key = record.key)
           AND EXISTS (SELECT FROM key_resolutions AS made
                        WHERE made.operation = record.request_id AND made.derived_key = step.derived_key)))
  FROM idempotency_records AS record
 WHERE account_id = $1 AND key = $2 AND status = 'IN_PROGRESS'
   FOR UPDATE
