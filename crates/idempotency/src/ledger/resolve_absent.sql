DELETE FROM workflow_steps WHERE account_id = $1 AND key = $2 AND position = $3
