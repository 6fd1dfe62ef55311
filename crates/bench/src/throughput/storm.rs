//! A thousand duplicates of one slow order, beside fresh orders: what does everybody else feel of it?
//!
//! Two replicas. Fresh orders come at a fixed rate and are timed from when they were due; quiet and stormy halves take
//! turns. In a stormy half a thousand clients send one key, whose order takes two seconds, again and again until they have
//! its answer, and then the next. Invariant: every client ends with the first answer, byte for byte, and there is one order
//! for each key; otherwise there is no number.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;

use super::contestant::{Contestant, keys};
use super::orders::{Shape, marked};
use super::progress::Progress;
use super::series::{Phase, Point, Series};
use super::swarm::{Sent, Swarm};
use super::watch::{Connections, Watch};
use crate::driver::{OpenLoad, Template};
use crate::stack::Stack;
use crate::systems::{Setup, System};

/// Fresh orders a second.
const RATE: u32 = 50;
/// Duplicates of the slow order.
const CLIENTS: usize = 1000;
const REPLICAS: usize = 2;
/// How long clients that would rather wait say that they wait, in seconds.
const WAIT_SECONDS: u32 = 10;
/// Fresh orders before anything is counted.
const WARM_UP: Duration = Duration::from_secs(1);
/// In the note of an order that is to take long.
const SLOW: &str = "slow";
/// Sleeps before anything of the order is locked.
const SLOW_SQL: &str = "
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.note = 'slow' THEN PERFORM pg_sleep(2); END IF; RETURN NEW; END $$;
CREATE TRIGGER slow BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION slow()";
const SLOW_ORDERS_SQL: &str = "SELECT count(*) FROM orders WHERE note = 'slow'";
/// A port at which nobody listens: the discard service of another time.
const NO_REDIS: &str = "redis://127.0.0.1:9/0";

/// What the duplicates do, or have to do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A duplicate is told 409 at once
    Reject,
    /// A duplicate waits for the first one's answer
    Wait,
    /// As reject, and there is no Redis
    RedisAway,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Wait => "wait",
            Self::RedisAway => "redis-away",
        }
    }
}

/// What one storm did.
#[derive(Debug, Clone)]
pub struct Storm {
    pub kind: Kind,
    /// Series `quiet` and `storm`, of fresh orders.
    pub phase: Phase,
    /// Duplicates.
    pub sent: Sent,
    /// Of both replicas, at most.
    pub connections: Connections,
}

/// The names of both series.
pub const QUIET: &str = "quiet";
pub const STORMY: &str = "storm";

/// Starts two replicas on a database of their own and takes turns.
///
/// # Errors
/// When a fresh order is not made, or duplicates do not all get the same answer.
pub async fn run(
    stack: &Stack,
    kind: Kind,
    (rounds, half): (usize, Duration),
    progress: &mut Progress,
) -> anyhow::Result<Storm> {
    let title = format!("Fresh orders beside {CLIENTS} duplicates of a slow one ({})", kind.name());
    let shop = start(stack, kind).await?;
    let mut quiet = Series { label: QUIET.to_owned(), points: Vec::new() };
    let mut stormy = Series { label: STORMY.to_owned(), points: Vec::new() };
    fresh(&shop, WARM_UP).await?;
    let swarm = swarm(stack, &shop, kind)?;
    let watch = Watch::start(&shop.database.url, "order-service").await?;
    for round in 1..=rounds {
        progress.show(&title, &format!("quiet, round {round} of {rounds}"));
        quiet.points.push(fresh(&shop, half).await?);
        progress.show(&title, &format!("storm, round {round} of {rounds}"));
        swarm.begin();
        let point = fresh(&shop, half).await;
        swarm.pause().await?;
        stormy.points.push(point?);
        progress.advance(half * 2);
    }
    let (sent, connections) = (swarm.end().await?, watch.end().await?);
    let orders: i64 = shop.database.client.query_one(SLOW_ORDERS_SQL, &[]).await?.get(0);
    anyhow::ensure!(
        u64::try_from(orders)? == sent.keys,
        "{orders} orders were made for {} keys of the storm",
        sent.keys
    );
    let phase = Phase { id: format!("storm_{}", kind.name()), title, series: vec![quiet, stormy] };
    Ok(Storm { kind, phase, sent, connections })
}

async fn start(stack: &Stack, kind: Kind) -> anyhow::Result<Contestant> {
    let database = stack.database("storm").await?;
    database.client.batch_execute(SLOW_SQL).await?;
    let redis = if kind == Kind::RedisAway { NO_REDIS } else { stack.redis_url() };
    let setup = Setup::new(&database.url, redis);
    let mut running = Vec::new();
    for _ in 0..REPLICAS {
        running.push(Arc::new(System::OrderService.start(&setup).await?));
    }
    Contestant::of(stack, System::OrderService.name(), database, running)
}

async fn fresh(shop: &Contestant, lasting: Duration) -> anyhow::Result<Point> {
    let load = OpenLoad { target: shop.target(Shape::Real), rate: RATE, lasting };
    let tally = tokio::task::spawn_blocking(move || load.run("order-service, fresh orders")).await??;
    Ok(Point::of_tally(&tally))
}

fn swarm(stack: &Stack, shop: &Contestant, kind: Kind) -> anyhow::Result<Swarm> {
    let (path, api_key, body) = ("/v1/orders", stack.api_keys()[0].as_str(), marked(SLOW));
    let template = match kind {
        Kind::Wait => Template::post_and_wait(path, api_key, WAIT_SECONDS, &body),
        Kind::Reject | Kind::RedisAway => Template::post(path, api_key, &body),
    };
    let addresses = shop.target(Shape::Real).addresses;
    Swarm::start(&addresses, CLIENTS, template, keys(stack)?).context("starting the duplicates' clients")
}
