-- Forgets keys past their retention, in one batch of $1 rows, met by their place (see purge.sql). Running records have no
-- expiry and are never touched.
WITH forgotten AS (
    DELETE FROM idempotency_records
     WHERE ctid = ANY (ARRAY(
         SELECT ctid FROM idempotency_records
          WHERE key_expires_at <= now() AND status <> 'IN_PROGRESS'
          ORDER BY key_expires_at LIMIT $1
            FOR UPDATE SKIP LOCKED))
    RETURNING 1
)
SELECT count(*) FROM forgotten
