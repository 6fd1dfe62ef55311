UPDATE workflow_steps SET state = 'done', result = $4, done_at = clock_timestamp()
 WHERE account_id = $1 AND key = $2 AND position = $3
