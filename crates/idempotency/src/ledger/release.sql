-- Deletes the record of a workflow that nobody runs and that has done nothing; says why not. No row: there is no record.
WITH found AS MATERIALIZED (
    SELECT account_id, key, CASE
               WHEN status <> 'IN_PROGRESS' THEN 'it is finished; its key is used'
               WHEN lease_expires_at > clock_timestamp() THEN 'somebody is working on it now'
               WHEN EXISTS (SELECT FROM workflow_steps AS step
                             WHERE step.account_id = record.account_id AND step.key = record.key)
                   THEN 'steps of it are done; it will be gone on with'
               ELSE 'released' END AS outcome
      FROM idempotency_records AS record
     WHERE account_id = $1 AND key = $2
       FOR UPDATE
), deleted AS (
    DELETE FROM idempotency_records AS record USING found
     WHERE record.account_id = found.account_id AND record.key = found.key AND found.outcome = 'released'
)
SELECT outcome FROM found
