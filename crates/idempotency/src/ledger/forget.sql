-- A record past its key retention counts as absent, whether or not the reaper was there first.
DELETE FROM idempotency_records
 WHERE account_id = $1 AND key = $2 AND key_expires_at <= clock_timestamp() AND status <> 'IN_PROGRESS'
