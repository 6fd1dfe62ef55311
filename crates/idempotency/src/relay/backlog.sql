-- How much waits, since when (in seconds), and how much is dead; counted up to $1, along the indexes.
SELECT count(*), COALESCE(extract(epoch FROM now() - min(waiting_since)), 0)::float8,
       (SELECT count(*) FROM (SELECT FROM event_deliveries WHERE state = 'dead' ORDER BY settled_at LIMIT $1) AS dead)
  FROM (SELECT waiting_since FROM event_deliveries
         WHERE state = 'pending' ORDER BY subscriber_id, due_at, event_id LIMIT $1) AS pending
