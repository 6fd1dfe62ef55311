-- Takes the bodies out of answers that are no longer replayed, behind the mark, in one batch. $1 how long a key outlives its
-- answer in ms, $2 rows of a batch. Says how many bodies went, and how many rows were looked at.
WITH due AS (
    SELECT account_id, key, key_expires_at FROM idempotency_records, reaper_state
     WHERE key_expires_at > purged_until AND key_expires_at <= now() + $1 * interval '1 millisecond'
     ORDER BY key_expires_at LIMIT $2
       FOR UPDATE OF idempotency_records SKIP LOCKED
), purged AS (
    UPDATE idempotency_records AS record SET response_body = NULL, updated_at = now()
      FROM due
     WHERE record.account_id = due.account_id AND record.key = due.key
       AND record.status <> 'IN_PROGRESS' AND record.response_body IS NOT NULL AND record.result_expires_at <= now()
    RETURNING 1
), moved AS (
    UPDATE reaper_state SET purged_until = (SELECT max(key_expires_at) FROM due) WHERE EXISTS (SELECT FROM due)
)
SELECT (SELECT count(*) FROM purged), (SELECT count(*) FROM due)
