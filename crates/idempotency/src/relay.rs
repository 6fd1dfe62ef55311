//! Hands events to their subscribers, after the commit that made them true.
//!
//! Knows deliveries (`event_deliveries`), who subscribes (the view `event_subscribers`, which the service defines) and time;
//! how a delivery is made is the service's [`Sink`]. Invariants: every delivery of a committed event is made at least once,
//! or given up visibly; one subscriber is worked for by one relay at a time, oldest first; a subscriber that is slow or
//! broken costs one of many slots and delays nobody else.
//!
//! Crash contract: a delivery is marked after it was made, by whoever still owns the subscriber. A relay that dies in between
//! leaves a lease, and after that the same event is delivered again, under the same id.

mod schedule;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::database::{Database, ReadError};
use crate::shutdown::Shutdown;
use crate::sqlstate::explain;
use crate::telemetry;
use schedule::Next;

pub use schedule::{TRIES_IN_ORDER, TRIES_MAX};

const CLAIM_SQL: &str = include_str!("relay/claim.sql");
const LINE_SQL: &str = include_str!("relay/line.sql");
const SETTLE_SQL: &str = include_str!("relay/settle.sql");
const RELEASE_SQL: &str = include_str!("relay/release.sql");
const FORGET_SQL: &str = include_str!("relay/forget.sql");
const FORGET_EVENTS_SQL: &str = include_str!("relay/forget_events.sql");
/// For an operator's page: how many deliveries wait, since when (in seconds) and how many are dead; counted up to `$1`.
pub const BACKLOG_SQL: &str = include_str!("relay/backlog.sql");
/// For an operator's session: sends the event `$1` again; one row, whether there is such an event and to how many it goes.
pub const REDELIVER_SQL: &str = include_str!("relay/redeliver.sql");
/// For an operator's session: what was given up, the latest first, at most `$1`; event, type, account, subscriber, tries, why
/// and when.
pub const DEAD_SQL: &str = include_str!("relay/dead.sql");

/// Subscribers that one process works for at a time.
const SLOTS: usize = 32;
/// Deliveries for one subscriber before the others have their turn.
const LINE_MAX: i64 = 20;
/// The longest that one delivery may take, whatever the sink's own limits are.
const DELIVER_MAX: Duration = Duration::from_secs(15);
/// How long a subscriber belongs to its relay without a word; longer than a delivery with its bookkeeping.
const LEASE: Duration = Duration::from_secs(30);
/// Pause when nothing is due, and when the database could not be asked.
const IDLE: Duration = Duration::from_millis(250);
const AWAY: Duration = Duration::from_secs(2);
/// How often the backlog is counted and what is over is forgotten.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);
/// How long a settled delivery is kept.
const SETTLED_KEPT: Duration = Duration::from_hours(30 * 24);
/// Rows that are forgotten at a time.
const FORGET_BATCH: i64 = 500;
/// The backlog is counted up to here.
const COUNTED_MAX: i64 = 10_000;
/// Longest reason that is kept, in characters.
const REASON_MAX: usize = 300;

/// One event on its way to one subscriber.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The event's id, the same for every try and every subscriber.
    pub event: Uuid,
    /// Whom it is for.
    pub subscriber: Uuid,
    /// Its type, such as `order.created`.
    pub kind: String,
    /// Its data as JSON text, the same for every try.
    pub data: String,
    /// When it happened.
    pub created_at: OffsetDateTime,
    /// The number of this try, from 1 on.
    pub attempt: u16,
}

/// What came of a try.
#[derive(Debug)]
pub enum Outcome {
    /// The subscriber has it.
    Delivered,
    /// Not this time, and why: tried again later.
    Failed(String),
    /// The subscriber will never take it, and why: given up.
    Refused(String),
}

/// How deliveries are made.
pub trait Sink: Send + Sync + 'static {
    /// Makes one delivery. It may come more than once, with the same [`Delivery::event`].
    fn deliver(&self, delivery: &Delivery) -> impl Future<Output = Outcome> + Send;
}

/// Works off what is due, for as long as the process takes work.
#[derive(Debug)]
pub struct Relay<S> {
    database: Database,
    sink: S,
    retry_base: Duration,
    events_kept: Duration,
    shutdown: Shutdown,
    slots: Arc<Semaphore>,
    /// Told whenever a slot has become free.
    freed: Notify,
}

impl<S: Sink> Relay<S> {
    /// `retry_base` is the longest pause after the first failed try; `events_kept`, how long an event is kept at least.
    pub fn new(
        database: Database,
        sink: S,
        retry_base: Duration,
        events_kept: Duration,
        shutdown: Shutdown,
    ) -> Arc<Self> {
        let slots = Arc::new(Semaphore::new(SLOTS));
        Arc::new(Self { database, sink, retry_base, events_kept, shutdown, slots, freed: Notify::new() })
    }

    /// Takes as many subscribers as there are free slots, and works for each in a task of its own, which a shutdown waits
    /// for. Says how many it took.
    ///
    /// # Errors
    /// [`ReadError`]; what was taken then waits for the end of its lease.
    pub async fn run_once(self: &Arc<Self>) -> Result<usize, ReadError> {
        let free = self.slots.available_permits();
        let (token, lease) = (Uuid::new_v4(), ms(LEASE));
        if free == 0 {
            return Ok(0);
        }
        let most = i64::try_from(free).unwrap_or(i64::MAX);
        let claimed = self.database.read(CLAIM_SQL, &[&token, &lease, &most]).await?;
        if claimed.is_empty() {
            return Ok(0);
        }
        let subscribers: Vec<Uuid> = claimed.iter().map(|row| row.get(0)).collect();
        let rows = self.database.read(LINE_SQL, &[&subscribers, &LINE_MAX]).await?;
        let mut lines: BTreeMap<Uuid, Vec<Delivery>> =
            subscribers.iter().map(|subscriber| (*subscriber, Vec::new())).collect();
        for delivery in rows.iter().map(delivery) {
            lines.entry(delivery.subscriber).or_default().push(delivery);
        }
        for (subscriber, line) in lines {
            let slot = Arc::clone(&self.slots).try_acquire_owned().ok();
            let relay = Arc::clone(self);
            self.shutdown.tasks().spawn(async move {
                let _busy = Busy { slot, freed: &relay.freed };
                let owned = Owned { subscriber, token };
                if let Err(error) = relay.work_for(owned, line).await {
                    tracing::warn!(
                        error = explain(&error),
                        "a delivery could not be marked; it may be made again"
                    );
                }
            });
        }
        Ok(claimed.len())
    }

    /// Delivers in order, until a delivery is not taken or the line is at its end.
    async fn work_for(&self, owned: Owned, line: Vec<Delivery>) -> Result<(), ReadError> {
        let mut left = line.len();
        for delivery in line {
            if self.shutdown.has_begun() {
                break;
            }
            left -= 1;
            let outcome = tokio::time::timeout(DELIVER_MAX, self.sink.deliver(&delivery)).await;
            let outcome = outcome.unwrap_or_else(|_| Outcome::Failed("it took too long".to_owned()));
            let next = schedule::after(&outcome, delivery.attempt, self.retry_base);
            tell(&delivery, &outcome, &next);
            let goes_on = left > 0 && next == Next::Delivered;
            if !self.settle(owned, &delivery, outcome, next, goes_on).await? {
                tracing::info!(subscriber = %owned.subscriber, "somebody else works for this subscriber now");
                return Ok(());
            }
            if !goes_on {
                return Ok(());
            }
        }
        self.database.read(RELEASE_SQL, &[&owned.subscriber, &owned.token]).await.map(|_| ())
    }

    /// Marks what came of a try; false if the subscriber is no longer ours.
    async fn settle(
        &self,
        owned: Owned,
        delivery: &Delivery,
        outcome: Outcome,
        next: Next,
        goes_on: bool,
    ) -> Result<bool, ReadError> {
        let reason = match outcome {
            Outcome::Delivered => None,
            Outcome::Failed(why) | Outcome::Refused(why) => {
                Some(why.chars().take(REASON_MAX).collect::<String>())
            }
        };
        let (state, aside, pause) = match next {
            Next::Delivered => ("delivered", None, 0),
            Next::Dead => ("dead", None, 0),
            Next::InOrder(longest) => ("pending", None, ms(longest)),
            Next::Aside(longest) => ("pending", Some(ms(longest)), 0),
        };
        let held = if goes_on { ms(LEASE) } else { 0 };
        let Owned { subscriber, token } = owned;
        let settled = self
            .database
            .read(SETTLE_SQL, &[&subscriber, &token, &delivery.event, &state, &reason, &aside, &held, &pause])
            .await?;
        Ok(!settled.is_empty())
    }

    /// Forgets what is over and tells how much waits.
    async fn keep_house(&self) -> Result<(), ReadError> {
        self.database.read(FORGET_SQL, &[&ms(SETTLED_KEPT), &FORGET_BATCH]).await?;
        self.database.read(FORGET_EVENTS_SQL, &[&ms(self.events_kept), &FORGET_BATCH]).await?;
        if let Some(row) = self.database.read(BACKLOG_SQL, &[&COUNTED_MAX]).await?.first() {
            telemetry::backlog(row.get(0), row.get(1), row.get(2));
        }
        Ok(())
    }

    /// Relays until the process takes no more work.
    pub async fn run(self: Arc<Self>) {
        let mut kept = None;
        while !self.shutdown.has_begun() {
            let worked = async {
                if kept.is_none_or(|at: Instant| at.elapsed() >= UPKEEP_EVERY) {
                    kept = Some(Instant::now());
                    self.keep_house().await?;
                }
                self.run_once().await
            };
            let pause = match worked.await {
                Ok(_) => IDLE,
                Err(error) => {
                    tracing::debug!(%error, "nothing could be relayed");
                    AWAY
                }
            };
            tokio::select! {
                () = self.shutdown.begun() => {}
                () = self.freed.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

/// A subscriber that a relay works for, and the proof.
#[derive(Debug, Clone, Copy)]
struct Owned {
    subscriber: Uuid,
    token: Uuid,
}

/// A slot in use; free again however the work ends.
struct Busy<'a> {
    slot: Option<OwnedSemaphorePermit>,
    freed: &'a Notify,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.slot.take();
        self.freed.notify_one();
    }
}

/// A row of `line.sql`.
fn delivery(row: &Row) -> Delivery {
    let tried: i16 = row.get(2);
    Delivery {
        subscriber: row.get(0),
        event: row.get(1),
        attempt: u16::try_from(tried).unwrap_or(0).saturating_add(1),
        kind: row.get(3),
        data: row.get(4),
        created_at: row.get(5),
    }
}

fn tell(delivery: &Delivery, outcome: &Outcome, next: &Next) {
    let Delivery { event, subscriber, attempt, .. } = delivery;
    match (next, outcome) {
        (Next::Dead, Outcome::Failed(why) | Outcome::Refused(why)) => {
            tracing::warn!(%event, %subscriber, attempt, why, "a delivery is given up");
            telemetry::delivery("dead");
        }
        (_, Outcome::Failed(why) | Outcome::Refused(why)) => {
            tracing::debug!(%event, %subscriber, attempt, why, "a delivery was not taken");
            telemetry::delivery("failed");
        }
        (_, Outcome::Delivered) => telemetry::delivery("delivered"),
    }
}

fn ms(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
