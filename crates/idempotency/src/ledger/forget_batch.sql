-- Forgets keys past their retention, in one batch of $1 rows. Running records have no expiry and are never touched.
WITH due AS (
    SELECT account_id, key FROM idempotency_records
     WHERE key_expires_at <= now() AND status <> 'IN_PROGRESS'
     ORDER BY key_expires_at LIMIT $1
       FOR UPDATE SKIP LOCKED
), forgotten AS (
    DELETE FROM idempotency_records AS record USING due
     WHERE record.account_id = due.account_id AND record.key = due.key
    RETURNING 1
)
SELECT count(*) FROM forgotten
