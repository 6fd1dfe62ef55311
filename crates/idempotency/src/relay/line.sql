-- What is due for the subscribers $1, at most $2 for each, in order. A statement of its own, behind the claim: the claim's
-- snapshot may be older than what the last owner settled.
SELECT line.subscriber_id, line.event_id, line.attempts, events.type, events.data::text, events.created_at
  FROM unnest($1::uuid[]) AS claimed (id)
 CROSS JOIN LATERAL (
     SELECT subscriber_id, event_id, attempts, due_at FROM event_deliveries
      WHERE subscriber_id = claimed.id AND state = 'pending' AND due_at <= now()
      ORDER BY due_at, event_id LIMIT $2) AS line
  JOIN events ON events.id = line.event_id
 ORDER BY line.subscriber_id, line.due_at, line.event_id
