-- Sends the event $1 again, to every subscriber that its account has now. Says whether there is such an event, and to how many.
WITH again AS (
    UPDATE event_deliveries
       SET state = 'pending', attempts = 0, waiting_since = now(), due_at = now(), last_error = NULL, settled_at = NULL
      FROM events JOIN event_subscribers USING (account_id)
     WHERE events.id = $1 AND event_id = events.id AND subscriber_id = event_subscribers.id
    RETURNING 1
), added AS (
    INSERT INTO event_deliveries (subscriber_id, event_id)
    SELECT event_subscribers.id, events.id FROM events JOIN event_subscribers USING (account_id)
     WHERE events.id = $1
       AND NOT EXISTS (SELECT FROM event_deliveries
                        WHERE subscriber_id = event_subscribers.id AND event_id = events.id)
    RETURNING 1
)
SELECT EXISTS (SELECT FROM events WHERE id = $1), (SELECT count(*) FROM again) + (SELECT count(*) FROM added)
