-- Ends a lease at once, with another token, so that nothing of this executor can be committed after it. $4 what stands in the way,
-- for the operator; $5 whether the outcome of a foreign call is unknown. Says whether that is new.
WITH mine AS (
    SELECT account_id, key, unknown_since IS NULL AND $5 AS news FROM idempotency_records
     WHERE account_id = $1 AND key = $2 AND lease_token = $3 AND status = 'IN_PROGRESS'
       FOR UPDATE
)
UPDATE idempotency_records AS record
   SET lease_token = gen_random_uuid(), lease_expires_at = clock_timestamp(), trouble = $4,
       unknown_since = CASE WHEN $5 THEN COALESCE(unknown_since, clock_timestamp()) ELSE unknown_since END
  FROM mine
 WHERE record.account_id = mine.account_id AND record.key = mine.key
RETURNING mine.news
