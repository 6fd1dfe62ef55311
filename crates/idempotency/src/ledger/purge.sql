-- Takes the bodies out of answers that are no longer replayed, behind the mark, in one batch. $1 how long a key outlives its
-- answer in ms, $2 rows of a batch. What is to be forgotten anyway is left to that. Rows are met by their place (ctid): a join
-- on the key would become a scan of the whole table as soon as statistics are old. Says how many bodies went, and how many
-- rows were looked at.
WITH due AS MATERIALIZED (
    SELECT idempotency_records.ctid AS place, key_expires_at FROM idempotency_records
     WHERE key_expires_at > GREATEST(now(), (SELECT purged_until FROM reaper_state))
       AND key_expires_at <= now() + $1 * interval '1 millisecond'
     ORDER BY key_expires_at LIMIT $2
       FOR UPDATE SKIP LOCKED
), purged AS (
    UPDATE idempotency_records SET response_body = NULL, updated_at = now()
     WHERE ctid = ANY (ARRAY(SELECT place FROM due))
       AND status <> 'IN_PROGRESS' AND response_body IS NOT NULL AND result_expires_at <= now()
    RETURNING 1
), moved AS (
    UPDATE reaper_state SET purged_until = (SELECT max(key_expires_at) FROM due) WHERE EXISTS (SELECT FROM due)
)
SELECT (SELECT count(*) FROM purged), (SELECT count(*) FROM due)
