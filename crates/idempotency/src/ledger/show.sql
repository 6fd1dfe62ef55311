-- All that an operator may see of a key.
SELECT json_build_object(
           'operation', CASE WHEN command IS NOT NULL THEN request_id END, 'request_id', request_id, 'workflow', command,
           'path', request_path, 'status', status, 'response_code', response_code, 'attempts', attempts,
           'created_at', created_at, 'updated_at', updated_at, 'result_expires_at', result_expires_at,
           'key_expires_at', key_expires_at, 'lease_expires_at', lease_expires_at, 'background', background,
           'unknown_since', unknown_since, 'trouble', trouble,
           'location', response_headers[array_position(response_headers, 'location') + 1],
           'steps', (SELECT json_agg(json_build_object('position', position, 'name', name, 'kind', kind, 'state', state,
                                                       'derived_key', derived_key, 'begun_at', begun_at, 'done_at', done_at,
                                                       'result', convert_from(result, 'UTF8')) ORDER BY position)
                       FROM workflow_steps AS step WHERE step.account_id = record.account_id AND step.key = record.key),
           'decisions', (SELECT json_agg(json_build_object('step', step, 'decision', decision, 'reason', reason,
                                                           'decided_by', decided_by, 'decided_at', decided_at) ORDER BY id)
                           FROM key_resolutions AS made
                          WHERE made.account_id = record.account_id AND made.key = record.key))::text
  FROM idempotency_records AS record
 WHERE account_id = $1 AND key = $2
