//! `POST /v1/orders`, in two shapes. As an ordinary handler does it: prices from the catalogue; order, items and stock in one
//! flight, stock last, and what they return goes into the answer; an event. And as the service does it: nothing that is
//! returned is needed, so all writes can fly with COMMIT. The service keeps its statements to itself, so `as_service` is a
//! copy, and a test compares the texts.

use std::collections::BTreeMap;

use idempotency::{LastWrite, Param, Query};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio_postgres::Row;
use uuid::Uuid;

use super::Refusal;

/// Most items of an order.
const ITEMS_MAX: usize = 100;
/// Most pieces of one item.
const QUANTITY_MAX: i64 = 10_000;

/// The statements of the service: what is wrong is an error.
pub mod as_service {
    /// Reads the wanted products, and the transaction's time.
    pub const PRICES_SQL: &str =
        "SELECT sku, name, unit_price, currency, stock, CURRENT_TIMESTAMP FROM products WHERE sku = ANY($1)";

    /// Writes the order and its items.
    pub const PLACE_SQL: &str = "
WITH placed AS (
    INSERT INTO orders (id, account_id, idem_key, status, total_amount, currency, note)
    VALUES ($1, $2, $3, 'pending_payment', $4, $5, $6)
)
INSERT INTO order_items (order_id, position, sku, name, quantity, unit_price)
SELECT $1, item.* FROM unnest($7::int2[], $8::text[], $9::text[], $10::int4[], $11::int8[])
    AS item (position, sku, name, quantity, unit_price)";

    /// Takes the stock, in the order of the skus.
    pub const TAKE_STOCK_SQL: &str = "
WITH locked AS MATERIALIZED (
    SELECT sku, quantity FROM products JOIN unnest($1::text[], $2::int8[]) AS wanted (sku, quantity) USING (sku)
     ORDER BY sku FOR NO KEY UPDATE OF products
), taken AS (
    UPDATE products SET stock = stock - locked.quantity FROM locked WHERE products.sku = locked.sku RETURNING 1
)
SELECT 1 / (count(*) = cardinality($1))::int FROM taken";
}

/// Reads name, price and currency of the wanted products.
pub const PRICES_SQL: &str = "SELECT sku, name, unit_price, currency FROM products WHERE sku = ANY($1)";

/// Writes the order and its items.
pub const PLACE_SQL: &str = "
WITH placed AS (
    INSERT INTO orders (id, account_id, idem_key, status, total_amount, currency, note)
    VALUES ($1, $2, $3, 'pending_payment', $4, $5, $6)
    RETURNING id, status, total_amount, currency, note, created_at
), kept AS (
    INSERT INTO order_items (order_id, position, sku, name, quantity, unit_price)
    SELECT $1, item.* FROM unnest($7::int2[], $8::text[], $9::text[], $10::int4[], $11::int8[])
        AS item (position, sku, name, quantity, unit_price)
)
SELECT * FROM placed";

/// Takes the stock, in the order of the skus.
pub const TAKE_STOCK_SQL: &str = "
WITH locked AS MATERIALIZED (
    SELECT sku, quantity FROM products JOIN unnest($1::text[], $2::int8[]) AS wanted (sku, quantity) USING (sku)
     ORDER BY sku FOR NO KEY UPDATE OF products
)
UPDATE products SET stock = stock - locked.quantity FROM locked
 WHERE products.sku = locked.sku AND products.stock >= locked.quantity
RETURNING products.sku";

/// Writes the event: the framework's own text.
pub const EVENT_SQL: &str = include_str!("../../../idempotency/src/ledger/events.sql");

/// The request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewOrder {
    items: Vec<Item>,
    note: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    sku: String,
    quantity: i64,
}

/// The answer, as the service gives it.
#[derive(Debug, Serialize)]
pub struct OrderView {
    pub id: Uuid,
    status: String,
    items: Vec<ItemView>,
    total: Money,
    note: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

#[derive(Debug, Serialize)]
struct ItemView {
    sku: String,
    name: String,
    quantity: i64,
    unit_price: i64,
    amount: i64,
}

#[derive(Debug, Serialize)]
struct Money {
    amount: i64,
    currency: String,
}

/// An order with its prices, as the columns of its statements.
pub struct Priced<'a> {
    id: Uuid,
    account: i64,
    idem_key: String,
    total: Money,
    note: &'a Option<String>,
    positions: Vec<i16>,
    item_skus: Vec<&'a str>,
    names: Vec<String>,
    quantities: Vec<i32>,
    prices: Vec<i64>,
    skus: Vec<&'a str>,
    amounts: Vec<i64>,
    items: Vec<ItemView>,
}

impl NewOrder {
    /// Whether counts and quantities are within the service's limits.
    pub fn is_valid(&self) -> bool {
        (1..=ITEMS_MAX).contains(&self.items.len())
            && self.items.iter().all(|item| (1..=QUANTITY_MAX).contains(&item.quantity))
    }

    /// The products, sorted, each once: the value of [`PRICES_SQL`].
    pub fn skus(&self) -> Vec<&str> {
        self.wanted().into_keys().collect()
    }

    fn wanted(&self) -> BTreeMap<&str, i64> {
        let mut wanted = BTreeMap::new();
        for item in &self.items {
            *wanted.entry(item.sku.as_str()).or_insert(0) += item.quantity;
        }
        wanted
    }

    /// The order with the prices that were read. `idem_key` goes into the unique column.
    pub fn price(&self, account: i64, idem_key: String, products: &[Row]) -> Result<Priced<'_>, Refusal> {
        let catalogue: BTreeMap<&str, &Row> = products.iter().map(|row| (row.get(0), row)).collect();
        let mut items = Vec::with_capacity(self.items.len());
        let mut total: Option<Money> = None;
        for item in &self.items {
            let product = catalogue.get(item.sku.as_str());
            let product = product.ok_or_else(|| Refusal::new("unknown-sku", item.sku.clone()))?;
            let (name, unit_price, currency): (String, i64, &str) =
                (product.get(1), product.get(2), product.get(3));
            let sum = total.get_or_insert_with(|| Money { amount: 0, currency: currency.to_owned() });
            if sum.currency != currency {
                return Err(Refusal::new("mixed-currencies", currency));
            }
            let too_much = || Refusal::new("invalid-request", "the total does not fit in 64 bits");
            let amount = unit_price.checked_mul(item.quantity).ok_or_else(too_much)?;
            sum.amount = sum.amount.checked_add(amount).ok_or_else(too_much)?;
            items.push(ItemView { sku: item.sku.clone(), name, quantity: item.quantity, unit_price, amount });
        }
        let (skus, amounts) = self.wanted().into_iter().unzip();
        Ok(Priced {
            id: Uuid::now_v7(),
            account,
            idem_key,
            total: total.ok_or_else(|| Refusal::new("invalid-request", "no items"))?,
            note: &self.note,
            // At most ITEMS_MAX positions and QUANTITY_MAX pieces: both fit.
            positions: (0..).take(items.len()).collect(),
            item_skus: self.items.iter().map(|item| item.sku.as_str()).collect(),
            names: items.iter().map(|item| item.name.clone()).collect(),
            quantities: items.iter().map(|item| i32::try_from(item.quantity).unwrap_or(0)).collect(),
            prices: items.iter().map(|item| item.unit_price).collect(),
            skus,
            amounts,
            items,
        })
    }
}

impl Priced<'_> {
    /// The values of [`PLACE_SQL`].
    pub fn place_params(&self) -> [&dyn Param; 11] {
        [
            &self.id,
            &self.account,
            &self.idem_key,
            &self.total.amount,
            &self.total.currency,
            self.note,
            &self.positions,
            &self.item_skus,
            &self.names,
            &self.quantities,
            &self.prices,
        ]
    }

    /// The values of [`TAKE_STOCK_SQL`].
    pub fn stock_params(&self) -> [&dyn Param; 2] {
        [&self.skus, &self.amounts]
    }

    /// Both writes, in the order in which they fly.
    pub fn writes<'a>(place: &'a [&'a dyn Param; 11], stock: &'a [&'a dyn Param; 2]) -> [Query<'a>; 2] {
        [Query { sql: PLACE_SQL, params: place }, Query { sql: TAKE_STOCK_SQL, params: stock }]
    }

    /// The same, as the service sends them.
    pub fn service_writes<'a>(
        place: &'a [&'a dyn Param; 11],
        stock: &'a [&'a dyn Param; 2],
    ) -> [Query<'a>; 2] {
        [
            Query { sql: as_service::PLACE_SQL, params: place },
            Query { sql: as_service::TAKE_STOCK_SQL, params: stock },
        ]
    }

    /// The same, for the service to send with its COMMIT.
    pub fn last_writes(&self) -> [LastWrite; 2] {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let place = LastWrite::new(
            as_service::PLACE_SQL,
            vec![
                Box::new(self.id),
                Box::new(self.account),
                Box::new(self.idem_key.clone()),
                Box::new(self.total.amount),
                Box::new(self.total.currency.clone()),
                Box::new(self.note.clone()),
                Box::new(self.positions.clone()),
                Box::new(owned(&self.item_skus)),
                Box::new(self.names.clone()),
                Box::new(self.quantities.clone()),
                Box::new(self.prices.clone()),
            ],
        );
        let stock = vec![Box::new(owned(&self.skus)) as _, Box::new(self.amounts.clone()) as _];
        [place, LastWrite::new(as_service::TAKE_STOCK_SQL, stock)]
    }

    /// The answer before anything is written: the time is the transaction's, read with the prices.
    pub fn foreseen(&mut self, created_at: OffsetDateTime) -> OrderView {
        OrderView {
            id: self.id,
            status: "pending_payment".to_owned(),
            items: std::mem::take(&mut self.items),
            total: Money { amount: self.total.amount, currency: self.total.currency.clone() },
            note: self.note.clone(),
            created_at,
        }
    }

    /// The answer, from what both writes returned.
    pub fn view(self, placed: &[Row], taken: &[Row]) -> Result<OrderView, Refusal> {
        if taken.len() < self.skus.len() {
            return Err(Refusal::new("insufficient-stock", self.skus.join(" or ")));
        }
        let row = placed.first().ok_or_else(|| Refusal::new("internal", "no row came back"))?;
        Ok(OrderView {
            id: row.get(0),
            status: row.get(1),
            items: self.items,
            total: self.total,
            note: row.get(4),
            created_at: row.get(5),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statements_are_the_services_own() {
        let service = include_str!("../../../order-service/src/orders/create.rs");
        for sql in [as_service::PRICES_SQL, as_service::PLACE_SQL, as_service::TAKE_STOCK_SQL] {
            assert!(service.contains(sql), "the service's text has changed: {sql}");
        }
    }

    #[test]
    fn a_product_that_stands_there_twice_is_taken_once() {
        let body =
            r#"{"items":[{"sku":"b","quantity":1},{"sku":"a","quantity":2},{"sku":"b","quantity":3}]}"#;
        let order: NewOrder = serde_json::from_str(body).unwrap();
        assert_eq!(order.wanted().into_iter().collect::<Vec<_>>(), [("a", 2), ("b", 4)]);
        assert!(order.is_valid());
        let nothing: NewOrder = serde_json::from_str(r#"{"items":[]}"#).unwrap();
        assert!(!nothing.is_valid());
    }
}
