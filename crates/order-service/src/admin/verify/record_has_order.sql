SELECT record.account_id || ':' || record.key
  FROM idempotency_records AS record
 WHERE record.status = 'COMPLETED' AND record.response_code = 201 AND split_part(record.request_path, '?', 1) = '/v1/orders'
   AND NOT EXISTS (SELECT FROM orders WHERE orders.idem_key = record.account_id || ':' || record.key)
LIMIT $1
