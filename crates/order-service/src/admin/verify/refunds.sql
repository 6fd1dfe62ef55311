SELECT payments.id::text
  FROM payments JOIN refunds ON refunds.payment_id = payments.id
 WHERE refunds.status = 'succeeded'
 GROUP BY payments.id, payments.amount, payments.status
HAVING sum(refunds.amount) > payments.amount OR payments.status <> 'succeeded'
LIMIT $1
