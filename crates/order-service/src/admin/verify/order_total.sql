SELECT orders.id::text
  FROM orders LEFT JOIN (SELECT order_id, sum(quantity * unit_price) AS amount FROM order_items GROUP BY order_id) AS items
       ON items.order_id = orders.id
 WHERE orders.total_amount <> coalesce(items.amount, 0)
LIMIT $1
