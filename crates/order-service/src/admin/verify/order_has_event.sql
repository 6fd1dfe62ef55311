-- $2: for how long events are kept, in ms.
SELECT orders.id::text FROM orders
 WHERE created_at > now() - $2::bigint * interval '1 millisecond'
   AND NOT EXISTS (SELECT FROM events
                    WHERE events.account_id = orders.account_id AND type = 'order.created'
                      AND data ->> 'id' = orders.id::text)
LIMIT $1
