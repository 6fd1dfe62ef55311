//! Half a million keys are forgotten while orders come in: are they felt?
//!
//! Two cycles of filling, reaping and vacuuming, because the second one meets the space that the first one left. Fresh orders
//! come at a fixed rate, in turns with the reaper held back and with the reaper at work, beside the same table: the disk's own
//! bad moments meet both alike. Invariant: a cycle ends with no expired row left, within a bound.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotency::REAPER_LOCK;

use super::contestant::Contestant;
use super::fill;
use super::orders::Shape;
use super::series::Point;
use crate::driver::{OpenLoad, Tally};
use crate::stack::{Database, Stack};
use crate::systems::{Setup, System};

/// Fresh orders a second.
const RATE: u32 = 50;
/// How long orders come in without the reaper, or with it, before it is the other one's turn.
const TURN: Duration = Duration::from_secs(5);
/// Turns of each kind in a cycle, so that most of the reaping is beside timed orders.
const TURNS: usize = 20;
const WARM_UP: Duration = Duration::from_secs(2);
/// The longest that forgetting all of them may take.
const REAPED_MAX: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// An account that orders nothing: its rows are only there to go.
const NOBODY: i64 = 1_000_000;

/// One fill, its reaping and its vacuum.
#[derive(Debug, Clone)]
pub struct Cycle {
    pub quiet: Point,
    pub reaping: Point,
    /// Rows that were expired at first, and how many of them went while orders were timed.
    pub expired: u64,
    pub forgotten_meanwhile: u64,
    /// How long the reaper was at work until none was left.
    pub all_gone: Duration,
}

/// Starts a service on a database of its own.
pub async fn run(
    stack: &Stack,
    cycles: usize,
    expired: u64,
    report: &dyn Fn(&str),
) -> anyhow::Result<Vec<Cycle>> {
    let database = stack.database("reaper").await?;
    let running = System::OrderService.start(&Setup::new(&database.url, stack.redis_url())).await?;
    let shop = Contestant::of(stack, System::OrderService.name(), database.clone(), vec![Arc::new(running)])?;
    fresh(&shop, WARM_UP).await?;
    let mut all = Vec::new();
    for cycle in 1..=cycles {
        let held_back = HeldBack::new(&database).await?;
        let forgotten_before = fill::forgotten(&database).await?;
        fill::expired_records(&database, NOBODY, expired).await?;
        let (mut quiet, mut reaping) = (Tally::default(), Tally::default());
        let mut worked = Duration::ZERO;
        for turn in 1..=TURNS {
            report(&format!(
                "cycle {cycle} of {cycles}, turn {turn} of {TURNS}: orders, and {expired} expired keys"
            ));
            quiet.merge(&fresh(&shop, TURN).await?);
            held_back.release().await?;
            at_work(&database).await?;
            let began = Instant::now();
            reaping.merge(&fresh(&shop, TURN).await?);
            worked += began.elapsed();
            if turn < TURNS {
                held_back.again().await?;
            }
        }
        let began = Instant::now();
        let forgotten_meanwhile = fill::forgotten(&database).await?.saturating_sub(forgotten_before);
        let (quiet, reaping) = (Point::of_tally(&quiet), Point::of_tally(&reaping));
        // At once: all the rest takes minutes, and may be cut off.
        report(&format!(
            "cycle {cycle} of {cycles}: p99 {:.1} ms alone, {:.1} ms beside the reaper; {forgotten_meanwhile} keys are forgotten",
            quiet.p99_ms, reaping.p99_ms
        ));
        all_gone(&database, forgotten_before + expired, began).await?;
        let all_gone = worked + began.elapsed();
        all.push(Cycle { quiet, reaping, expired, forgotten_meanwhile, all_gone });
        fill::vacuum(&database).await?;
    }
    Ok(all)
}

/// No reaper works while the bench holds the lock by which one replica keeps the others out.
struct HeldBack<'database>(&'database Database);

impl<'database> HeldBack<'database> {
    async fn new(database: &'database Database) -> anyhow::Result<Self> {
        let held_back = Self(database);
        held_back.again().await?;
        Ok(held_back)
    }

    async fn again(&self) -> anyhow::Result<()> {
        self.0.client.query("SELECT pg_advisory_lock($1)", &[&REAPER_LOCK]).await?;
        Ok(())
    }

    async fn release(&self) -> anyhow::Result<()> {
        self.0.client.query("SELECT pg_advisory_unlock($1)", &[&REAPER_LOCK]).await?;
        Ok(())
    }
}

async fn fresh(shop: &Contestant, lasting: Duration) -> anyhow::Result<Tally> {
    let load = OpenLoad { target: shop.target(Shape::Real), rate: RATE, lasting };
    tokio::task::spawn_blocking(move || load.run("order-service, fresh orders")).await?
}

/// Returns once the reaper has noticed that it is its turn.
async fn at_work(database: &Database) -> anyhow::Result<()> {
    let (since, at_first) = (Instant::now(), fill::forgotten(database).await?);
    while fill::forgotten(database).await? == at_first {
        anyhow::ensure!(since.elapsed() < REAPED_MAX, "the reaper does not begin");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Returns once so many keys were forgotten in all, and none of them is there.
async fn all_gone(database: &Database, in_all: u64, since: Instant) -> anyhow::Result<()> {
    while fill::forgotten(database).await? < in_all {
        anyhow::ensure!(since.elapsed() < REAPED_MAX, "the reaper does not come to an end");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    anyhow::ensure!(fill::stored(database, NOBODY).await? == 0, "the reaper left expired keys");
    Ok(())
}
