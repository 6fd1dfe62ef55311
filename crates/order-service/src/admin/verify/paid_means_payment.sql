-- The partial unique index sees to it that an order has at most one payment that succeeded; here, that the order knows of it.
SELECT orders.id::text
  FROM orders LEFT JOIN payments ON payments.order_id = orders.id AND payments.status = 'succeeded'
 WHERE (orders.status IN ('paid', 'refunded')) <> (payments.id IS NOT NULL)
    OR payments.amount <> orders.total_amount OR payments.currency <> orders.currency
LIMIT $1
