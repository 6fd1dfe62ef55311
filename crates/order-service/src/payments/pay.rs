//! `POST /v1/orders/{id}/payments`: charges the gateway for an order, once.
//!
//! reserve: the order is `paying`, so that nobody else pays or cancels it. charge: the gateway. settle or decline: what that means.
//! Locks the order first, like everything that changes one.

use idempotency::{
    Abort, AccountId, Flow, Id, Invalid, Journal, Param, Query, Recovered, Reply, Tx, Unanswered, Workflow,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::gateway::{CallError, Charged, Found, Gateway};
use super::rejections::{ORDER_NOT_PAYABLE, PAYMENT_DECLINED};
use super::view::{Money, PaymentView};
use super::{ACCOUNT, gateway_of, recovered, unanswered};
use crate::Shop;
use crate::orders::rejections::ORDER_NOT_FOUND;

/// Longest source, in characters.
pub(crate) const SOURCE_MAX: usize = 200;

const LOCK_SQL: &str =
    "SELECT status, total_amount, currency FROM orders WHERE id = $1 AND account_id = $2 FOR UPDATE";
const PAYING_SQL: &str = "UPDATE orders SET status = 'paying' WHERE id = $1";
const INSERT_SQL: &str = "
INSERT INTO payments (id, account_id, order_id, status, amount, currency) VALUES ($1, $2, $3, 'pending', $4, $5)";
const PAID_SQL: &str = "UPDATE orders SET status = 'paid' WHERE id = $1 AND status = 'paying'";
const SUCCEEDED_SQL: &str =
    "UPDATE payments SET status = 'succeeded', gateway_id = $2 WHERE id = $1 AND status = 'pending'";
const PAYABLE_SQL: &str = "UPDATE orders SET status = 'pending_payment' WHERE id = $1 AND status = 'paying'";
const ENDED_SQL: &str =
    "UPDATE payments SET status = $2, decline_code = $3 WHERE id = $1 AND status = 'pending'";

/// The request: the path names the order, the body what pays for it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PayOrder {
    id: Id,
    source: String,
}

/// What the gateway answered, as it is journaled.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
enum Charge {
    Succeeded { id: String },
    Declined { code: String, message: String },
}

impl From<Charged> for Charge {
    fn from(charged: Charged) -> Self {
        match charged {
            Charged::Succeeded { id } => Self::Succeeded { id },
            Charged::Declined { code, message } => Self::Declined { code, message },
        }
    }
}

/// What a call of this step that was found says.
fn charge_found(found: Result<Found<Charged>, CallError>) -> Recovered<Charge> {
    match recovered(found) {
        Recovered::Done(charged) => Recovered::Done(charged.into()),
        Recovered::Absent => Recovered::Absent,
        Recovered::Unknown => Recovered::Unknown,
    }
}

impl Workflow for PayOrder {
    const NAME: &'static str = "orders.pay";
    type State = Shop;
    type Output = PaymentView;

    fn validate(&self) -> Result<(), Invalid> {
        if (1..=SOURCE_MAX).contains(&self.source.chars().count()) {
            return Ok(());
        }
        Err(Invalid::new("source", format!("must have 1 to {SOURCE_MAX} characters")))
    }

    async fn run<'f>(&'f self, flow: &mut Flow<'f>, shop: &'f Shop) -> Result<Reply<PaymentView>, Abort> {
        let gateway = gateway_of(shop)?;
        let payment = flow.atomic("reserve", |tx| Box::pin(self.reserve(tx))).await?;
        let account = flow.account();
        let charge = flow
            .foreign(
                "charge",
                |key| self.charge(gateway, key, account, &payment),
                |key| async move { charge_found(gateway.find_charge(&key).await) },
            )
            .await?;
        match charge {
            Charge::Succeeded { id } => {
                let paid = flow.atomic("settle", move |tx| Box::pin(settle(tx, payment, id))).await?;
                Ok(Reply::created(format!("/v1/orders/{}", self.id), paid))
            }
            Charge::Declined { code, message } => {
                flow.atomic("decline", move |tx| Box::pin(decline(tx, payment, code))).await?;
                Err(Abort::reject(PAYMENT_DECLINED, message))
            }
        }
    }

    /// An order that is being paid becomes payable again, unless the gateway has the money: then somebody has to look.
    async fn abandon(&self, tx: &mut Tx<'_>, journal: &Journal<'_>, _: &Shop) -> Result<(), Abort> {
        if let Some(Charge::Succeeded { id }) = journal.result("charge")? {
            return Err(HasCharged(id).into());
        }
        let Some(payment) = journal.result::<PaymentView>("reserve")? else { return Ok(()) };
        lock(tx, &payment).await?;
        let (order, ended) = (payment.order_id.0, payment.id.0);
        let none: Option<&str> = None;
        let payable = Query { sql: PAYABLE_SQL, params: &[&order] };
        tx.query_all(&[payable, Query { sql: ENDED_SQL, params: &[&ended, &"abandoned", &none] }]).await?;
        Ok(())
    }
}

/// The order was charged, so the work is not to be given up.
#[derive(Debug, thiserror::Error)]
#[error("the gateway has charged {0}")]
struct HasCharged(String);

impl PayOrder {
    /// Takes the order, so that nobody else pays or cancels it.
    async fn reserve(&self, tx: &mut Tx<'_>) -> Result<PaymentView, Abort> {
        let account = tx.account().0;
        let rows = tx.query(LOCK_SQL, &[&self.id.0, &account]).await?;
        let Some(row) = rows.first() else {
            return Err(Abort::reject(ORDER_NOT_FOUND, "there is no order with this id"));
        };
        let (status, amount, currency): (&str, i64, String) = (row.get(0), row.get(1), row.get(2));
        if status != "pending_payment" {
            return Err(Abort::reject(ORDER_NOT_PAYABLE, format!("the order is {status}")));
        }
        let id = Id(Uuid::now_v7());
        let insert = [&id.0 as &dyn Param, &account, &self.id.0, &amount, &currency];
        let paying = Query { sql: PAYING_SQL, params: &[&self.id.0] };
        tx.query_all(&[paying, Query { sql: INSERT_SQL, params: &insert }]).await?;
        let total = Money { amount, currency };
        Ok(PaymentView { id, order_id: self.id, status: "pending".to_owned(), total })
    }

    fn charge(
        &self,
        gateway: &Gateway,
        key: String,
        account: AccountId,
        payment: &PaymentView,
    ) -> impl Future<Output = Result<Charge, Unanswered>> + Send {
        let (total, order, account) = (&payment.total, payment.order_id.to_string(), account.0.to_string());
        async move {
            let metadata = [("order", order.as_str()), (ACCOUNT, account.as_str())];
            let charged = gateway.charge(&key, total.amount, &total.currency, &self.source, &metadata).await;
            charged.map(Charge::from).map_err(|error| unanswered(&error))
        }
    }
}

/// The order is paid.
async fn settle(tx: &mut Tx<'_>, mut payment: PaymentView, charge: String) -> Result<PaymentView, Abort> {
    lock(tx, &payment).await?;
    let paid = Query { sql: PAID_SQL, params: &[&payment.order_id.0] };
    let succeeded = Query { sql: SUCCEEDED_SQL, params: &[&payment.id.0, &charge] };
    tx.query_all(&[paid, succeeded]).await?;
    payment.status = "succeeded".to_owned();
    tx.emit("payment.succeeded", &payment)?;
    Ok(payment)
}

/// The order can be paid again.
async fn decline(tx: &mut Tx<'_>, mut payment: PaymentView, code: String) -> Result<(), Abort> {
    lock(tx, &payment).await?;
    let payable = Query { sql: PAYABLE_SQL, params: &[&payment.order_id.0] };
    let declined = Query { sql: ENDED_SQL, params: &[&payment.id.0, &"declined", &code] };
    tx.query_all(&[payable, declined]).await?;
    payment.status = "declined".to_owned();
    tx.emit("payment.declined", &payment)?;
    Ok(())
}

async fn lock(tx: &Tx<'_>, payment: &PaymentView) -> Result<(), Abort> {
    tx.query(LOCK_SQL, &[&payment.order_id.0, &tx.account().0]).await?;
    Ok(())
}
