-- Forgets events that are older than $1 ms and have no delivery left, open or settled, in one batch of $2 rows, the oldest first.
-- Their ids are UUIDv7, whose first 48 bits are the milliseconds: the walk over the primary key ends at the mark. Deliveries are
-- probed by subscriber, as they are kept; those of a subscriber that is gone hold nothing up. Says how many went.
WITH forgotten AS (
    DELETE FROM events
     WHERE ctid = ANY (ARRAY(
         SELECT events.ctid FROM events
          WHERE id < (lpad(to_hex((extract(epoch FROM now()) * 1000)::int8 - $1), 12, '0') || repeat('0', 20))::uuid
            AND created_at <= now() - $1 * interval '1 millisecond'
            AND NOT EXISTS (SELECT FROM event_subscribers JOIN event_deliveries ON subscriber_id = event_subscribers.id
                             WHERE event_subscribers.account_id = events.account_id AND event_id = events.id)
          ORDER BY id LIMIT $2
            FOR UPDATE SKIP LOCKED))
    RETURNING 1
)
SELECT count(*) FROM forgotten
