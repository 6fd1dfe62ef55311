SELECT products.sku || ': ' || initial_stock - stock || ' taken, ' || coalesce(quantity, 0) || ' in live orders'
  FROM products LEFT JOIN (
       SELECT sku, sum(quantity) AS quantity
         FROM order_items JOIN orders ON orders.id = order_id
        WHERE orders.status <> 'cancelled'
        GROUP BY sku) AS taken USING (sku)
 WHERE initial_stock - stock <> coalesce(quantity, 0)
LIMIT $1
