//! `POST /v1/orders/{id}/cancel`: puts the stock back.
//!
//! Locks the order, then its products in the order of their sku: the same order as everywhere else.

use idempotency::{Abort, Command, Id, Query, Reply, Tx};
use serde::Deserialize;

use super::rejections::{ORDER_NOT_CANCELLABLE, ORDER_NOT_FOUND};
use super::view::{ItemView, OrderView};
use crate::Shop;

const LOCK_SQL: &str = "
SELECT id, status, total_amount, currency, note, created_at FROM orders WHERE id = $1 AND account_id = $2 FOR UPDATE";
const ITEMS_SQL: &str =
    "SELECT sku, name, quantity, unit_price FROM order_items WHERE order_id = $1 ORDER BY position";
const CANCEL_SQL: &str = "UPDATE orders SET status = 'cancelled' WHERE id = $1";
const PUT_BACK_SQL: &str = "
WITH returned AS (
    SELECT sku, sum(quantity) AS quantity FROM order_items WHERE order_id = $1 GROUP BY sku
), locked AS MATERIALIZED (
    SELECT sku, quantity FROM products JOIN returned USING (sku) ORDER BY sku FOR NO KEY UPDATE OF products
)
UPDATE products SET stock = stock + locked.quantity FROM locked WHERE products.sku = locked.sku";

/// The request: the path names the order, the body is empty.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CancelOrder {
    id: Id,
}

impl Command for CancelOrder {
    const NAME: &'static str = "orders.cancel";
    type State = Shop;
    type Output = OrderView;

    async fn execute(&self, tx: &mut Tx<'_>, _shop: &Shop) -> Result<Reply<OrderView>, Abort> {
        let account = tx.account().0;
        let lock = Query { sql: LOCK_SQL, params: &[&self.id.0, &account] };
        let items = Query { sql: ITEMS_SQL, params: &[&self.id.0] };
        let answers = tx.query_all(&[lock, items]).await?;
        let Some(row) = answers[0].first() else {
            return Err(Abort::reject(ORDER_NOT_FOUND, "there is no order with this id"));
        };
        let mut order = OrderView::of(row);
        if order.status != "pending_payment" {
            return Err(Abort::reject(ORDER_NOT_CANCELLABLE, format!("the order is {}", order.status)));
        }
        let cancel = Query { sql: CANCEL_SQL, params: &[&self.id.0] };
        let put_back = Query { sql: PUT_BACK_SQL, params: &[&self.id.0] };
        tx.query_all(&[cancel, put_back]).await?;
        order.status = "cancelled".to_owned();
        order.items = answers[1].iter().map(|row| ItemView::of(row, 0)).collect();
        tx.emit("order.cancelled", &order)?;
        Ok(Reply::ok(order))
    }
}
