//! `POST /v1/orders/{id}/refunds`: gives back a part of a payment, or all of it, once.
//!
//! One at a time for each caller; the payment's row is locked besides, so that all refunds together never exceed it. What is pending
//! counts as given back until the gateway has said that it is not.

use idempotency::{Abort, Flow, Id, Invalid, Journal, Query, Recovered, Reply, Tx, Workflow};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::gateway::Refunded;
use super::rejections::{ORDER_NOT_REFUNDABLE, REFUND_REFUSED, REFUND_TOO_LARGE};
use super::view::{Money, RefundView};
use super::{ACCOUNT, gateway_of, recovered, unanswered};
use crate::Shop;
use crate::orders::rejections::ORDER_NOT_FOUND;

const LOCK_SQL: &str = "SELECT 1 FROM orders WHERE id = $1 AND account_id = $2 FOR UPDATE";
const PAYMENT_SQL: &str = "
SELECT id, amount, currency, gateway_id FROM payments WHERE order_id = $1 AND status = 'succeeded' FOR UPDATE";
const GIVEN_BACK_SQL: &str = "
SELECT COALESCE(sum(amount), 0)::int8 FROM refunds WHERE payment_id = $1 AND status IN ('pending', 'succeeded')";
const INSERT_SQL: &str =
    "INSERT INTO refunds (id, account_id, payment_id, status, amount) VALUES ($1, $2, $3, 'pending', $4)";
const ENDED_SQL: &str =
    "UPDATE refunds SET status = $2, gateway_id = $3 WHERE id = $1 AND status = 'pending'";
const REFUNDED_SQL: &str = "
UPDATE orders SET status = 'refunded'
 WHERE id = $1 AND total_amount = (SELECT sum(amount) FROM refunds WHERE payment_id = $2 AND status = 'succeeded')";

/// The request: the path names the order, the body how much, in minor units.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RefundOrder {
    id: Id,
    amount: i64,
}

/// What is to be given back, and the charge that it was.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Reserved {
    refund: RefundView,
    charge: String,
}

/// What the gateway answered, as it is journaled.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
enum Outcome {
    Succeeded { id: String },
    Refused { message: String },
}

impl From<Refunded> for Outcome {
    fn from(refunded: Refunded) -> Self {
        match refunded {
            Refunded::Succeeded { id } => Self::Succeeded { id },
            Refunded::Refused { message, .. } => Self::Refused { message },
        }
    }
}

/// The gateway has given the money back, so the work is not to be given up.
#[derive(Debug, thiserror::Error)]
#[error("the gateway has made the refund {0}")]
struct GivenBack(String);

impl Workflow for RefundOrder {
    const NAME: &'static str = "orders.refund";
    const SERIALIZE: bool = true;
    type State = Shop;
    type Output = RefundView;

    fn validate(&self) -> Result<(), Invalid> {
        if self.amount > 0 { Ok(()) } else { Err(Invalid::new("amount", "must be above zero")) }
    }

    async fn run<'f>(&'f self, flow: &mut Flow<'f>, shop: &'f Shop) -> Result<Reply<RefundView>, Abort> {
        let gateway = gateway_of(shop)?;
        let Reserved { refund, charge } = flow.atomic("reserve", |tx| Box::pin(self.reserve(tx))).await?;
        let (charge, order, account) = (&charge, &self.id.to_string(), &flow.account().0.to_string());
        let outcome = flow
            .foreign(
                "refund",
                |key| async move {
                    let metadata = [("order", order.as_str()), (ACCOUNT, account.as_str())];
                    let refunded = gateway.refund(&key, charge, self.amount, &metadata).await;
                    refunded.map(Outcome::from).map_err(|error| unanswered(&error))
                },
                |key| async move {
                    match recovered(gateway.find_refund(&key, charge).await) {
                        Recovered::Done(refunded) => Recovered::Done(Outcome::from(refunded)),
                        Recovered::Absent => Recovered::Absent,
                        Recovered::Unknown => Recovered::Unknown,
                    }
                },
            )
            .await?;
        match outcome {
            Outcome::Succeeded { id } => {
                let made = flow.atomic("settle", move |tx| Box::pin(settle(tx, refund, id))).await?;
                Ok(Reply::created(format!("/v1/orders/{}", self.id), made))
            }
            Outcome::Refused { message } => {
                flow.atomic("refuse", move |tx| Box::pin(end(tx, refund, "refused"))).await?;
                Err(Abort::reject(REFUND_REFUSED, message))
            }
        }
    }

    async fn abandon(&self, tx: &mut Tx<'_>, journal: &Journal<'_>, _: &Shop) -> Result<(), Abort> {
        if let Some(Outcome::Succeeded { id }) = journal.result("refund")? {
            return Err(GivenBack(id).into());
        }
        match journal.result::<Reserved>("reserve")? {
            Some(Reserved { refund, .. }) => end(tx, refund, "abandoned").await,
            None => Ok(()),
        }
    }
}

impl RefundOrder {
    /// Counts the amount as given back.
    async fn reserve(&self, tx: &mut Tx<'_>) -> Result<Reserved, Abort> {
        let account = tx.account().0;
        if tx.query(LOCK_SQL, &[&self.id.0, &account]).await?.is_empty() {
            return Err(Abort::reject(ORDER_NOT_FOUND, "there is no order with this id"));
        }
        let payments = tx.query(PAYMENT_SQL, &[&self.id.0]).await?;
        let Some(payment) = payments.first() else {
            return Err(Abort::reject(ORDER_NOT_REFUNDABLE, "the order is not paid"));
        };
        let (payment_id, paid): (Uuid, i64) = (payment.get(0), payment.get(1));
        let rows = tx.query(GIVEN_BACK_SQL, &[&payment_id]).await?;
        let left = paid - rows.first().map_or(0, |row| row.get::<_, i64>(0));
        if self.amount > left {
            return Err(Abort::reject(REFUND_TOO_LARGE, format!("{left} is left of the payment")));
        }
        let id = Id(Uuid::now_v7());
        tx.query(INSERT_SQL, &[&id.0, &account, &payment_id, &self.amount]).await?;
        let refund = RefundView {
            id,
            order_id: self.id,
            payment_id: Id(payment_id),
            status: "pending".to_owned(),
            total: Money { amount: self.amount, currency: payment.get(2) },
        };
        Ok(Reserved { refund, charge: payment.get(3) })
    }
}

/// The money is given back; an order of which all is given back is refunded.
async fn settle(tx: &mut Tx<'_>, mut refund: RefundView, gateway_id: String) -> Result<RefundView, Abort> {
    tx.query(LOCK_SQL, &[&refund.order_id.0, &tx.account().0]).await?;
    let done = Query { sql: ENDED_SQL, params: &[&refund.id.0, &"succeeded", &gateway_id] };
    let order = Query { sql: REFUNDED_SQL, params: &[&refund.order_id.0, &refund.payment_id.0] };
    tx.query_all(&[done, order]).await?;
    refund.status = "succeeded".to_owned();
    tx.emit("refund.succeeded", &refund)?;
    Ok(refund)
}

/// Nothing is given back.
async fn end(tx: &mut Tx<'_>, refund: RefundView, status: &'static str) -> Result<(), Abort> {
    let none: Option<&str> = None;
    tx.query(ENDED_SQL, &[&refund.id.0, &status, &none]).await?;
    Ok(())
}
