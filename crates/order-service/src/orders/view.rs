//! An order as callers see it. Money is integer minor units; times are RFC 3339 in UTC.

use serde::Serialize;
use time::OffsetDateTime;
use tokio_postgres::Row;
use uuid::Uuid;

/// An order.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct OrderView {
    pub(crate) id: Uuid,
    pub(crate) status: String,
    pub(crate) items: Vec<ItemView>,
    pub(crate) total: Money,
    pub(crate) note: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) created_at: OffsetDateTime,
}

/// One line of an order.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ItemView {
    pub(crate) sku: String,
    pub(crate) name: String,
    pub(crate) quantity: i64,
    pub(crate) unit_price: i64,
    pub(crate) amount: i64,
}

/// An amount in minor units of an ISO 4217 currency.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Money {
    pub(crate) amount: i64,
    pub(crate) currency: String,
}

impl OrderView {
    /// From a row of id, status, total, currency, note, creation; items are added after.
    pub(crate) fn of(row: &Row) -> Self {
        Self {
            id: row.get(0),
            status: row.get(1),
            items: Vec::new(),
            total: Money { amount: row.get(2), currency: row.get(3) },
            note: row.get(4),
            created_at: row.get(5),
        }
    }
}

impl ItemView {
    /// From a row of sku, name, quantity, unit price, starting at column `at`.
    pub(crate) fn of(row: &Row, at: usize) -> Self {
        let (quantity, unit_price) = (i64::from(row.get::<_, i32>(at + 2)), row.get::<_, i64>(at + 3));
        Self { sku: row.get(at), name: row.get(at + 1), quantity, unit_price, amount: quantity * unit_price }
    }
}
