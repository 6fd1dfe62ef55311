-- The journal of an atomic step, last in its transaction; the primary key is the check.
INSERT INTO workflow_steps (account_id, key, position, name, kind, state, result, begun_at, done_at)
VALUES ($1, $2, $3, $4, 'atomic', 'done', $5, now(), clock_timestamp())
RETURNING 1
