//! The work of one request, on a session.
//!
//! Knows in how many flights the work can be sent when something rides with the first or the last of them. Knows no keys.
//! Invariant: the charge is made before the first write of the work.

use idempotency::{Param, Query};
use tokio_postgres::Row;
use uuid::Uuid;

use super::answer::{Answer, Failure};
use super::request::Job;
use super::session::{BEGIN, COMMIT, Flight, Session};
use crate::work::gateway;
use crate::work::minimal::Columns;
use crate::work::order::{EVENT_SQL, NewOrder, PRICES_SQL, Priced, as_service};

/// Work whose writes were sent, and that waits for its event and its COMMIT.
pub struct Performed {
    pub answer: Answer,
    event: Option<Event>,
}

struct Event {
    account: i64,
    id: Vec<Uuid>,
    kind: Vec<&'static str>,
    data: Vec<String>,
}

impl Event {
    /// `order.created`, with the order that is answered.
    fn created(account: i64, answer: &Answer) -> Result<Self, Failure> {
        let data = String::from_utf8(answer.body.clone()).map_err(|_| Failure::Internal("JSON is UTF-8"))?;
        Ok(Self { account, id: vec![Uuid::now_v7()], kind: vec!["order.created"], data: vec![data] })
    }

    fn params(&self) -> [&dyn Param; 4] {
        [&self.account, &self.id, &self.kind, &self.data]
    }
}

/// `orders.idem_key` is unique and not null, and is the service's last layer of defence, which baselines do not have: they
/// write a random text, shaped like the service's, so that the index costs them the same and refuses nothing.
fn no_idem_key(account: i64) -> String {
    format!("{account}:{}", Uuid::new_v4())
}

impl Job {
    /// The whole work in a transaction of its own, in as few flights as can be (one for a minimal order, two for a real one,
    /// as the service has them), or each statement in turn.
    pub async fn alone(
        &self,
        account: i64,
        pool: &deadpool_postgres::Pool,
        flight: Flight,
    ) -> Result<Answer, Failure> {
        match self {
            Self::Minimal(order) => {
                let mut session = Session::take(pool, flight).await?;
                let columns = order.columns(account, no_idem_key(account));
                let insert = columns.params();
                let rows = session.fly(&[BEGIN, Columns::insert(&insert), COMMIT]).await?;
                Ok(Answer::created(&columns.view(&rows[1][0]))?)
            }
            Self::Order(order) | Self::Charged(order) => {
                if matches!(self, Self::Charged(_)) {
                    // Nobody needs a connection while the gateway is asked.
                    gateway::charge(account).await?;
                }
                let mut session = Session::take(pool, flight).await?;
                if flight == Flight::Together {
                    return in_two_flights(order, account, &mut session).await;
                }
                let rows = session.fly(&[BEGIN, prices(&[&order.skus()])]).await?;
                let performed = place(order, account, &rows[1], &[], &mut session).await?;
                performed.commit(&mut session, &[]).await
            }
        }
    }

    /// The products whose prices may ride with the protocol's first flight; none for work that reads none then.
    pub fn early_skus(&self) -> Option<Vec<&str>> {
        match self {
            Self::Order(order) => Some(order.skus()),
            Self::Minimal(_) | Self::Charged(_) => None,
        }
    }

    /// The work in a transaction that is open. `ahead` are the protocol's writes before it: they fly with the work's first
    /// ones, but before the charge. `products` are the rows of the prices, if they were read already.
    pub async fn within(
        &self,
        account: i64,
        session: &mut Session,
        ahead: &[Query<'_>],
        products: Option<Vec<Row>>,
    ) -> Result<Performed, Failure> {
        match self {
            Self::Minimal(order) => {
                let columns = order.columns(account, no_idem_key(account));
                let insert = columns.params();
                let flight: Vec<Query<'_>> =
                    ahead.iter().copied().chain([Columns::insert(&insert)]).collect();
                let rows = session.fly(&flight).await?.pop().unwrap_or_default();
                let row = rows.first().ok_or(Failure::Internal("no row came back"))?;
                Ok(Performed { answer: Answer::created(&columns.view(row))?, event: None })
            }
            Self::Order(order) => place(order, account, &products.unwrap_or_default(), ahead, session).await,
            Self::Charged(order) => {
                session.fly(ahead).await?;
                gateway::charge(account).await?;
                let products = session.fly(&[prices(&[&order.skus()])]).await?.pop().unwrap_or_default();
                place(order, account, &products, &[], session).await
            }
        }
    }
}

/// The order as the service makes it, without the key: everything that is written flies with COMMIT.
async fn in_two_flights(order: &NewOrder, account: i64, session: &mut Session) -> Result<Answer, Failure> {
    let read = Query { sql: as_service::PRICES_SQL, params: &[&order.skus()] };
    let rows = session.fly(&[BEGIN, read]).await?;
    let mut priced = order.price(account, no_idem_key(account), &rows[1])?;
    let created_at = rows[1].first().map(|row| row.get(5)).ok_or(Failure::Internal("no row came back"))?;
    let answer = Answer::created(&priced.foreseen(created_at))?;
    let event = Event::created(account, &answer)?;
    let (place, stock, event) = (priced.place_params(), priced.stock_params(), event.params());
    let [place, stock] = Priced::service_writes(&place, &stock);
    session.fly(&[place, stock, Query { sql: EVENT_SQL, params: &event }, COMMIT]).await?;
    Ok(answer)
}

/// The statement that reads prices.
pub fn prices<'a>(skus: &'a [&'a dyn Param; 1]) -> Query<'a> {
    Query { sql: PRICES_SQL, params: skus }
}

async fn place(
    order: &NewOrder,
    account: i64,
    products: &[Row],
    ahead: &[Query<'_>],
    session: &mut Session,
) -> Result<Performed, Failure> {
    let priced = order.price(account, no_idem_key(account), products)?;
    let (place, stock) = (priced.place_params(), priced.stock_params());
    let flight: Vec<Query<'_>> = ahead.iter().copied().chain(Priced::writes(&place, &stock)).collect();
    let mut rows = session.fly(&flight).await?;
    let (taken, placed) = (rows.pop().unwrap_or_default(), rows.pop().unwrap_or_default());
    let view = priced.view(&placed, &taken)?;
    let answer = Answer::created(&view)?;
    let event = Event::created(account, &answer)?;
    Ok(Performed { answer, event: Some(event) })
}

impl Performed {
    /// The event, what else belongs to it, and COMMIT, in one flight.
    pub async fn commit(self, session: &mut Session, riding: &[Query<'_>]) -> Result<Answer, Failure> {
        let event = self.event.as_ref().map(Event::params);
        let mut flight = Vec::with_capacity(riding.len() + 2);
        if let Some(params) = &event {
            flight.push(Query { sql: EVENT_SQL, params });
        }
        flight.extend_from_slice(riding);
        flight.push(COMMIT);
        session.fly(&flight).await?;
        Ok(self.answer)
    }
}
