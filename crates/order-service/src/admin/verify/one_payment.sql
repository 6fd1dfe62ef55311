SELECT order_id::text FROM payments WHERE status = 'succeeded' GROUP BY order_id HAVING count(*) > 1
LIMIT $1
