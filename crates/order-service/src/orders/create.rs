//! `POST /v1/orders`: prices from the catalogue, stock taken in the same transaction.
//!
//! Two flights in all: prices and stock are read with the opening of the transaction; order, items and stock are written with
//! its end. Stock is taken last, so that the rows that every order of a product wants are held for as short as can be; they
//! are locked in the order of their sku, so that two orders cannot deadlock.

use std::collections::BTreeMap;

use idempotency::{Abort, Command, Invalid, LastWrite, OpeningRead, Reply, Tx, new_id};
use serde::Deserialize;
use tokio_postgres::Row;
use uuid::Uuid;

use super::rejections::{INSUFFICIENT_STOCK, MIXED_CURRENCIES, UNKNOWN_SKU};
use super::view::{ItemView, Money, OrderView};
use crate::Shop;

/// Most items of an order.
pub(crate) const ITEMS_MAX: usize = 100;
/// Most pieces of one item.
pub(crate) const QUANTITY_MAX: i64 = 10_000;
/// Longest note, in characters.
pub(crate) const NOTE_MAX: usize = 1000;
/// Longest sku, in characters.
pub(crate) const SKU_MAX: usize = 100;

const PRICES_SQL: &str =
    "SELECT sku, name, unit_price, currency, stock, CURRENT_TIMESTAMP FROM products WHERE sku = ANY($1)";

const PLACE_SQL: &str = "
WITH placed AS (
    INSERT INTO orders (id, account_id, idem_key, status, total_amount, currency, note)
    VALUES ($1, $2, $3, 'pending_payment', $4, $5, $6)
)
INSERT INTO order_items (order_id, position, sku, name, quantity, unit_price)
SELECT $1, item.* FROM unnest($7::int2[], $8::text[], $9::text[], $10::int4[], $11::int8[])
    AS item (position, sku, name, quantity, unit_price)";

// Nobody sees what it returns, so it raises: the CHECK when there is not enough, the division when a product is gone.
const TAKE_STOCK_SQL: &str = "
WITH locked AS MATERIALIZED (
    SELECT sku, quantity FROM products JOIN unnest($1::text[], $2::int8[]) AS wanted (sku, quantity) USING (sku)
     ORDER BY sku FOR NO KEY UPDATE OF products
), taken AS (
    UPDATE products SET stock = stock - locked.quantity FROM locked WHERE products.sku = locked.sku RETURNING 1
)
SELECT 1 / (count(*) = cardinality($1))::int FROM taken";
const STOCK_NOT_NEGATIVE: &str = "products_stock_not_negative";

const EXISTING_SQL: &str = "SELECT id FROM orders WHERE idem_key = $1";

/// The request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateOrder {
    items: Vec<Item>,
    note: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    sku: String,
    quantity: i64,
}

impl Command for CreateOrder {
    const NAME: &'static str = "orders.create";
    const NATURAL_KEY: Option<&'static str> = Some("orders_idem_key");
    type State = Shop;
    type Output = OrderView;

    fn validate(&self) -> Result<(), Invalid> {
        if !(1..=ITEMS_MAX).contains(&self.items.len()) {
            return Err(Invalid::new("items", format!("must have 1 to {ITEMS_MAX} entries")));
        }
        for (index, item) in self.items.iter().enumerate() {
            if !(1..=SKU_MAX).contains(&item.sku.chars().count()) {
                return Err(Invalid::new(
                    format!("items[{index}].sku"),
                    format!("must have 1 to {SKU_MAX} characters"),
                ));
            }
            if !(1..=QUANTITY_MAX).contains(&item.quantity) {
                return Err(Invalid::new(
                    format!("items[{index}].quantity"),
                    format!("must be 1 to {QUANTITY_MAX}"),
                ));
            }
        }
        if self.note.as_ref().is_some_and(|note| note.chars().count() > NOTE_MAX) {
            return Err(Invalid::new("note", format!("must have at most {NOTE_MAX} characters")));
        }
        Ok(())
    }

    fn opening_read(&self) -> Option<OpeningRead> {
        let skus: Vec<String> = self.wanted().into_keys().map(str::to_owned).collect();
        Some(OpeningRead::new(PRICES_SQL, vec![Box::new(skus)]))
    }

    async fn execute(&self, tx: &mut Tx<'_>, _shop: &Shop) -> Result<Reply<OrderView>, Abort> {
        let products = tx.opening_rows().await?;
        let wanted = self.wanted();
        let (items, total) = self.price(&products)?;
        if let Some(product) =
            products.iter().find(|product| product.get::<_, i64>(4) < wanted[product.get::<_, &str>(0)])
        {
            let sku: &str = product.get(0);
            return Err(Abort::reject(INSUFFICIENT_STOCK, format!("there is not enough of {sku} in stock")));
        }
        // The transaction's own time, which is what the order's row will say.
        let created_at = products.first().map(|product| product.get(5)).ok_or(PriceOverflow)?;

        let (id, account, idem_key) = (new_id(), tx.account().0, tx.natural_key());
        let column = |of: fn(&ItemView) -> String| items.iter().map(of).collect::<Vec<_>>();
        // At most ITEMS_MAX positions and QUANTITY_MAX pieces: both fit.
        let positions: Vec<i16> = (0..).take(items.len()).collect();
        let quantities: Vec<i32> =
            items.iter().map(|item| i32::try_from(item.quantity).unwrap_or(0)).collect();
        let prices: Vec<i64> = items.iter().map(|item| item.unit_price).collect();
        tx.write_last(LastWrite::new(
            PLACE_SQL,
            vec![
                Box::new(id),
                Box::new(account),
                Box::new(idem_key),
                Box::new(total.amount),
                Box::new(total.currency.clone()),
                Box::new(self.note.clone()),
                Box::new(positions),
                Box::new(column(|item| item.sku.clone())),
                Box::new(column(|item| item.name.clone())),
                Box::new(quantities),
                Box::new(prices),
            ],
        ))?;
        let (skus, amounts): (Vec<String>, Vec<i64>) =
            wanted.iter().map(|(sku, amount)| ((*sku).to_owned(), *amount)).unzip();
        tx.write_last(LastWrite::new(TAKE_STOCK_SQL, vec![Box::new(skus), Box::new(amounts)]).refused_by(
            STOCK_NOT_NEGATIVE,
            INSUFFICIENT_STOCK,
            "another order took the last of it",
        ))?;
        let (status, note) = ("pending_payment".to_owned(), self.note.clone());
        let order = OrderView { id, status, items, total, note, created_at };
        tx.emit("order.created", &order)?;
        Ok(Reply::created(format!("/v1/orders/{id}"), order))
    }

    async fn existing(tx: &mut Tx<'_>, _shop: &Shop) -> Result<Option<String>, Abort> {
        let rows = tx.query(EXISTING_SQL, &[&tx.natural_key()]).await?;
        Ok(rows.first().map(|row| format!("/v1/orders/{}", row.get::<_, Uuid>(0))))
    }
}

impl CreateOrder {
    /// Pieces per sku, sorted: an item may stand there twice, stock is taken once.
    fn wanted(&self) -> BTreeMap<&str, i64> {
        let mut wanted = BTreeMap::new();
        for item in &self.items {
            *wanted.entry(item.sku.as_str()).or_insert(0) += item.quantity;
        }
        wanted
    }

    /// The lines with name and price from the catalogue, and their sum.
    fn price(&self, products: &[Row]) -> Result<(Vec<ItemView>, Money), Abort> {
        let catalogue: BTreeMap<&str, &Row> = products.iter().map(|row| (row.get(0), row)).collect();
        let mut items = Vec::with_capacity(self.items.len());
        let mut total: Option<Money> = None;
        for item in &self.items {
            let Some(product) = catalogue.get(item.sku.as_str()) else {
                return Err(Abort::reject(UNKNOWN_SKU, format!("{:?} is not in the catalogue", item.sku)));
            };
            let (name, unit_price, currency): (String, i64, &str) =
                (product.get(1), product.get(2), product.get(3));
            let amount = unit_price.checked_mul(item.quantity).ok_or(PriceOverflow)?;
            let sum = total.get_or_insert_with(|| Money { amount: 0, currency: currency.to_owned() });
            if sum.currency != currency {
                return Err(Abort::reject(MIXED_CURRENCIES, format!("{} and {currency}", sum.currency)));
            }
            sum.amount = sum.amount.checked_add(amount).ok_or(PriceOverflow)?;
            items.push(ItemView { sku: item.sku.clone(), name, quantity: item.quantity, unit_price, amount });
        }
        let total = total.ok_or(PriceOverflow)?;
        Ok((items, total))
    }
}

/// A catalogue whose prices cannot be added up is broken; the order fails and nothing is stored.
#[derive(Debug, thiserror::Error)]
#[error("the total of the order does not fit in 64 bits")]
struct PriceOverflow;

#[cfg(test)]
mod tests {
    use super::*;

    fn order(items: &serde_json::Value, note: Option<&str>) -> Result<(), Invalid> {
        let body = serde_json::json!({ "items": items, "note": note });
        serde_json::from_value::<CreateOrder>(body).unwrap().validate()
    }

    #[test]
    fn limits_name_the_field() {
        let item = |quantity: i64| serde_json::json!({ "sku": "TEA-001", "quantity": quantity });
        let fault = |result: Result<(), Invalid>| result.unwrap_err().field;
        assert!(order(&serde_json::json!([item(1), item(10_000)]), Some(&"é".repeat(1000))).is_ok());
        assert_eq!(fault(order(&serde_json::json!([]), None)), "items");
        assert_eq!(fault(order(&serde_json::Value::Array(vec![item(1); 101]), None)), "items");
        assert_eq!(fault(order(&serde_json::json!([item(1), item(0)]), None)), "items[1].quantity");
        assert_eq!(fault(order(&serde_json::json!([item(10_001)]), None)), "items[0].quantity");
        assert_eq!(fault(order(&serde_json::json!([{ "sku": "", "quantity": 1 }]), None)), "items[0].sku");
        assert_eq!(fault(order(&serde_json::json!([item(1)]), Some(&"x".repeat(1001)))), "note");
    }

    #[test]
    fn stock_is_wanted_once_per_sku_in_a_fixed_order() {
        let body = serde_json::json!({ "items": [
            { "sku": "b", "quantity": 1 }, { "sku": "a", "quantity": 2 }, { "sku": "b", "quantity": 3 },
        ] });
        let order: CreateOrder = serde_json::from_value(body).unwrap();
        assert_eq!(order.wanted().into_iter().collect::<Vec<_>>(), [("a", 2), ("b", 4)]);
    }
}
