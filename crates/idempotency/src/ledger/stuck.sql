-- What waits for an operator, the longest first; also while the completer asks about it once more. $1 how long without progress is too long, in ms; $2 rows.
SELECT json_build_object('account', name, 'key', key, 'workflow', command, 'operation', request_id, 'attempts', attempts,
                         'created_at', record.created_at, 'updated_at', updated_at, 'unknown_since', unknown_since,
                         'trouble', trouble, 'is_being_worked_on', lease_expires_at > clock_timestamp())::text
  FROM idempotency_records AS record JOIN accounts ON accounts.id = account_id
 WHERE status = 'IN_PROGRESS'
   AND (unknown_since IS NOT NULL OR trouble IS NOT NULL
        OR lease_expires_at <= clock_timestamp() AND updated_at <= clock_timestamp() - $1 * interval '1 millisecond')
 ORDER BY record.created_at LIMIT $2
