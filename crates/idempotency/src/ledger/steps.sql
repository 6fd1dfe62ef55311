SELECT position, name, kind, state, derived_key, result
  FROM workflow_steps
 WHERE account_id = $1 AND key = $2
 ORDER BY position
