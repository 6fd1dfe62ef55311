//! The order service with two more commands, so that it does all the work that the baselines do.
//!
//! Nothing here looks at a key: retries are the framework's business. Known limit, shown in the scenarios on purpose: a
//! charge is a call to the outside inside one atomic piece of work, so a crash after the charge repeats it. Such a call
//! belongs into a workflow, with a key derived from the record.

use actix_web::web::ServiceConfig;
use idempotency::http::command;
use idempotency::{Abort, Command, Invalid, OpeningRead, ProblemKind, Reply, Tx};
use order_service::Shop;
use uuid::Uuid;

use crate::work::Refusal;
use crate::work::gateway;
use crate::work::minimal::{MinimalOrder, MinimalView};
use crate::work::order::{NewOrder, OrderView, as_service};

const NATURAL_KEY: Option<&str> = Some("orders_idem_key");
const EXISTING_SQL: &str = "SELECT id FROM orders WHERE idem_key = $1";

const REFUSED: &ProblemKind = &ProblemKind::rejection(
    "order-refused",
    422,
    "The order cannot be made",
    "The catalogue or the stock refuses this order; the detail says why. Nothing was ordered, and this refusal is the answer of \
     its key for good.",
);

/// Adds the commands to the service's routes.
pub fn routes(config: &mut ServiceConfig) {
    config
        .service(command::<MinimalOrder>("/v1/minimal-orders"))
        .service(command::<NewOrder>("/v1/gateway-orders"));
}

impl From<Refusal> for Abort {
    fn from(refusal: Refusal) -> Self {
        Self::reject(REFUSED, format!("{}: {}", refusal.code, refusal.detail))
    }
}

impl Command for MinimalOrder {
    const NAME: &'static str = "bench.minimal-orders.create";
    const NATURAL_KEY: Option<&'static str> = NATURAL_KEY;
    type State = Shop;
    type Output = MinimalView;

    fn validate(&self) -> Result<(), Invalid> {
        if self.is_valid() { Ok(()) } else { Err(Invalid::new("amount", "must not be negative")) }
    }

    fn opening_read(&self) -> Option<OpeningRead> {
        Some(OpeningRead::new("SELECT CURRENT_TIMESTAMP", vec![]))
    }

    async fn execute(&self, tx: &mut Tx<'_>, _shop: &Shop) -> Result<Reply<MinimalView>, Abort> {
        let columns = self.columns(tx.account().0, tx.natural_key());
        let times = tx.opening_rows().await?;
        let view = columns.view(times.first().ok_or(std::fmt::Error)?);
        tx.write_last(columns.last_write())?;
        Ok(Reply::created(format!("/v1/orders/{}", view.id), view))
    }

    async fn existing(tx: &mut Tx<'_>, _shop: &Shop) -> Result<Option<String>, Abort> {
        existing(tx).await
    }
}

/// A charge, and then the order.
impl Command for NewOrder {
    const NAME: &'static str = "bench.gateway-orders.create";
    const NATURAL_KEY: Option<&'static str> = NATURAL_KEY;
    type State = Shop;
    type Output = OrderView;

    fn validate(&self) -> Result<(), Invalid> {
        if self.is_valid() { Ok(()) } else { Err(Invalid::new("items", "outside the limits")) }
    }

    fn opening_read(&self) -> Option<OpeningRead> {
        let skus: Vec<String> = self.skus().into_iter().map(str::to_owned).collect();
        Some(OpeningRead::new(as_service::PRICES_SQL, vec![Box::new(skus)]))
    }

    async fn execute(&self, tx: &mut Tx<'_>, _shop: &Shop) -> Result<Reply<OrderView>, Abort> {
        let products = tx.opening_rows().await?;
        gateway::charge(tx.account().0).await?;
        let mut priced = self.price(tx.account().0, tx.natural_key(), &products)?;
        for write in priced.last_writes() {
            tx.write_last(write)?;
        }
        let order = priced.foreseen(products.first().ok_or(std::fmt::Error)?.get(5));
        tx.emit("order.created", &order)?;
        Ok(Reply::created(format!("/v1/orders/{}", order.id), order))
    }

    async fn existing(tx: &mut Tx<'_>, _shop: &Shop) -> Result<Option<String>, Abort> {
        existing(tx).await
    }
}

async fn existing(tx: &Tx<'_>) -> Result<Option<String>, Abort> {
    let rows = tx.query(EXISTING_SQL, &[&tx.natural_key()]).await?;
    Ok(rows.first().map(|row| format!("/v1/orders/{}", row.get::<_, Uuid>(0))))
}
