-- $2: for how long a key is kept, in ms.
SELECT idem_key FROM orders
 WHERE created_at > now() - $2::bigint * interval '1 millisecond'
   AND NOT EXISTS (SELECT FROM idempotency_records AS record
                    WHERE record.account_id = orders.account_id
                      AND record.key = substr(orders.idem_key, length(orders.account_id::text) + 2))
LIMIT $1
