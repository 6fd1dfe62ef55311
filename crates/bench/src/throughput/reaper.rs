//! Half a million keys are forgotten while orders come in: are they felt?
//!
//! Two cycles of filling, reaping and vacuuming, because the second one meets the space that the first one left. Fresh orders
//! come at a fixed rate; before and while rows go. Invariant: a cycle ends with no expired row left, within a bound.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::contestant::Contestant;
use super::fill;
use super::orders::Shape;
use super::series::Point;
use crate::driver::OpenLoad;
use crate::stack::{Database, Stack};
use crate::systems::{Setup, System};

/// Fresh orders a second.
const RATE: u32 = 50;
/// How long orders come in, before and while.
const PHASE: Duration = Duration::from_secs(8);
const WARM_UP: Duration = Duration::from_secs(2);
/// The longest that forgetting all of them may take.
const REAPED_MAX: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(500);
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
    /// From the fill until none was left.
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
        report(&format!("cycle {cycle} of {cycles}: orders alone"));
        let quiet = fresh(&shop, PHASE).await?;
        report(&format!("cycle {cycle} of {cycles}: {expired} expired keys, and orders"));
        fill::expired_records(&database, NOBODY, expired).await?;
        let began = Instant::now();
        let reaping = fresh(&shop, PHASE).await?;
        let left = fill::stored(&database, NOBODY).await?;
        report(&format!("cycle {cycle} of {cycles}: {left} keys are left"));
        all_gone(&database, began).await?;
        let all_gone = began.elapsed();
        all.push(Cycle {
            quiet,
            reaping,
            expired,
            forgotten_meanwhile: expired.saturating_sub(left),
            all_gone,
        });
        fill::vacuum(&database).await?;
    }
    Ok(all)
}

async fn fresh(shop: &Contestant, lasting: Duration) -> anyhow::Result<Point> {
    let load = OpenLoad { target: shop.target(Shape::Real), rate: RATE, lasting };
    let tally = tokio::task::spawn_blocking(move || load.run("order-service, fresh orders")).await??;
    Ok(Point::of_tally(&tally))
}

async fn all_gone(database: &Database, since: Instant) -> anyhow::Result<()> {
    while fill::stored(database, NOBODY).await? > 0 {
        anyhow::ensure!(since.elapsed() < REAPED_MAX, "the reaper does not come to an end");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}
