//! `POST /v1/minimal-orders`: one INSERT into the orders. The smallest work that a key can protect.

use idempotency::{LastWrite, Param, Query};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio_postgres::Row;
use uuid::Uuid;

const INSERT_SQL: &str = "
INSERT INTO orders (id, account_id, idem_key, status, total_amount, currency)
VALUES ($1, $2, $3, 'pending_payment', $4, 'EUR')
RETURNING created_at";

/// The request: an amount in minor units.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MinimalOrder {
    amount: i64,
}

/// The columns of the row.
pub struct Columns {
    id: Uuid,
    account: i64,
    idem_key: String,
    amount: i64,
}

/// The answer.
#[derive(Debug, Serialize)]
pub struct MinimalView {
    pub id: Uuid,
    amount: i64,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

impl MinimalOrder {
    /// Whether the amount can be ordered.
    pub fn is_valid(&self) -> bool {
        self.amount >= 0
    }

    /// A new row of this account. `idem_key` goes into the unique column.
    pub fn columns(&self, account: i64, idem_key: String) -> Columns {
        Columns { id: Uuid::now_v7(), account, idem_key, amount: self.amount }
    }
}

impl Columns {
    /// The values of [`Columns::insert`].
    pub fn params(&self) -> [&dyn Param; 4] {
        [&self.id, &self.account, &self.idem_key, &self.amount]
    }

    /// The one statement.
    pub fn insert<'a>(params: &'a [&'a dyn Param; 4]) -> Query<'a> {
        Query { sql: INSERT_SQL, params }
    }

    /// The same, for the service to send with its COMMIT.
    pub fn last_write(&self) -> LastWrite {
        LastWrite::new(
            INSERT_SQL,
            vec![
                Box::new(self.id),
                Box::new(self.account),
                Box::new(self.idem_key.clone()),
                Box::new(self.amount),
            ],
        )
    }

    /// The answer, from the row that [`Columns::insert`] returned, or any other whose first column is the transaction's time.
    pub fn view(&self, row: &Row) -> MinimalView {
        MinimalView { id: self.id, amount: self.amount, created_at: row.get(0) }
    }
}
