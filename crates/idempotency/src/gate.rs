//! The fast path: one script a step, each on one key in Redis (and its caller's lock, in the same slot).
//!
//! Knows scripts, leases and the ways in which Redis fails. Knows nothing of PostgreSQL beyond a generation, and never
//! admits anything: what it says may turn a duplicate away or replay an answer, and its absence only means that
//! PostgreSQL is asked. Invariant: every value has an expiry, and a lease is renewed, settled or released only with its
//! own token, compared inside the script.

mod acquire;
mod line;
mod operator;
mod stormed;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use deadpool_redis::redis::{self, Value};
use uuid::Uuid;

use crate::attempt::Attempt;
use crate::breaker::Breaker;
use crate::generation::{CurrentGeneration, Generation};
use crate::record::Record;
use crate::reply::Finished;
use crate::telemetry;
use crate::value::{self, Identity, Token};
use line::{Ask, Line, Script};
use stormed::Stormed;

pub use acquire::Acquired;
pub use line::script_shas;

/// How often a lease that could not be given back is tried again.
const UNDO_EVERY: Duration = Duration::from_millis(500);
/// How long giving it back is tried, also while Redis does not answer: what it has read it executes when it goes on.
const UNDO_FOR: Duration = Duration::from_secs(60);
/// Most leases that are being given back in the background; beyond it they run out by themselves.
const UNDO_MAX: usize = 1000;

/// What the health check writes; gone within a second.
const PROBE_NAME: &str = "idem:probe";

/// How to reach Redis, and the limits of its use.
#[derive(Debug, Clone)]
pub struct GateConfig {
    /// `redis://host:port/db`.
    pub url: String,
    /// The longest that one call may take, connecting included.
    pub timeout: Duration,
    /// How long a place is held without a heartbeat.
    pub lease: Duration,
    /// Largest reply body that is kept, in bytes.
    pub cache_body_max: usize,
}

/// One worker's way to Redis: a kept multiplexed connection behind a breaker.
#[derive(Debug)]
pub struct Gate {
    line: Line,
    breaker: Breaker,
    stormed: Stormed,
    generation: CurrentGeneration,
    timeout: Duration,
    lease: Duration,
    /// In ms, as scripts are told.
    lease_ms: String,
    cache_body_max: usize,
    undoing: AtomicUsize,
}

/// What an attempt may hold in Redis.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    token: Token,
    hold: Hold,
}

impl Claim {
    /// Holds nothing.
    pub fn none() -> Self {
        Self { token: Token::random(), hold: Hold::Nothing }
    }

    /// What an attempt holds from when it asks for a place until it hears: perhaps the place.
    pub fn asked() -> Self {
        Self { token: Token::random(), hold: Hold::Perhaps }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// Redis was not asked, or refused: nothing is held.
    Nothing,
    /// The acquire was sent and its answer never came: the place may be ours, now or later.
    Perhaps,
    /// The place is ours.
    Place,
}

/// Why Redis did not do it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The breaker is open, or no connection could be made: nothing was sent.
    #[error("not sent: {0}")]
    NotSent(String),
    /// Sent, and no answer came: it may be executed all the same.
    #[error("no answer: {0}")]
    Lost(String),
    /// Redis answered that it will not.
    #[error("refused: {0}")]
    Refused(redis::RedisError),
}

impl Fault {
    /// A short word for metrics.
    fn class(&self) -> &'static str {
        match self {
            Self::NotSent(_) => "unreachable",
            Self::Lost(_) => "no_answer",
            Self::Refused(error) => match error.code() {
                Some("OOM") => "oom",
                Some("READONLY") => "readonly",
                Some("NOAUTH" | "WRONGPASS" | "NOPERM") => "noauth",
                Some("WRONGTYPE") => "wrongtype",
                Some("LOADING" | "BUSY" | "MASTERDOWN" | "MISCONF" | "CLUSTERDOWN") => "not_ready",
                _ => "other",
            },
        }
    }
}

impl Gate {
    /// A gate that connects when it is first used, on the runtime that uses it.
    ///
    /// # Errors
    /// One line, if the URL cannot be read.
    pub fn new(config: &GateConfig, generation: CurrentGeneration) -> Result<Arc<Self>, String> {
        Ok(Arc::new(Self {
            line: Line::new(&config.url, config.timeout)?,
            breaker: Breaker::new(),
            stormed: Stormed::new(),
            generation,
            timeout: config.timeout,
            lease: config.lease,
            lease_ms: config.lease.as_millis().to_string(),
            cache_body_max: config.cache_body_max,
            undoing: AtomicUsize::new(0),
        }))
    }

    /// Publishes a committed answer, best effort; what this attempt held is gone afterwards, now or soon.
    pub async fn settle(
        self: &Arc<Self>,
        attempt: &Attempt,
        claim: Claim,
        generation: Generation,
        finished: &Finished,
    ) {
        let began = Instant::now();
        self.publish(attempt, claim, &identity(attempt, generation), finished).await;
        telemetry::took("settle", began);
    }

    /// Publishes what a record says, with the rest of its life.
    pub async fn refill(
        self: &Arc<Self>,
        attempt: &Attempt,
        claim: Claim,
        record: &Record,
        finished: &Finished,
    ) {
        let of_record = Identity {
            generation: record.generation,
            fingerprint: record.fingerprint,
            account: attempt.account,
        };
        self.publish(attempt, claim, &of_record, finished).await;
    }

    async fn publish(
        self: &Arc<Self>,
        attempt: &Attempt,
        claim: Claim,
        identity: &Identity,
        finished: &Finished,
    ) {
        let done = value::done(identity, &attempt.key, finished, self.cache_body_max);
        let expiry = finished.expires_ms.to_string();
        let arguments: &[&[u8]] = &[&done, expiry.as_bytes(), &claim.token.0];
        // One bound for both, since the answer waits for it.
        let published = tokio::time::timeout(self.timeout, async {
            let Err(fault) = self.call(Script::Settle, attempt, arguments).await else { return true };
            tracing::debug!(%fault, "the answer is not in Redis; the next retry is answered by PostgreSQL");
            // A lease that nobody will settle would only turn retries away.
            claim.hold == Hold::Nothing
                || matches!(self.call(Script::Release, attempt, &[&claim.token.0]).await, Ok(Value::Int(1)))
        })
        .await;
        if published != Ok(true) {
            self.undo_later(attempt, claim);
        }
    }

    /// Gives the place back, so that a retry may run at once.
    pub async fn release(self: &Arc<Self>, attempt: &Attempt, claim: Claim) {
        if claim.hold == Hold::Nothing {
            return;
        }
        match self.call(Script::Release, attempt, &[&claim.token.0]).await {
            Ok(Value::Int(1)) => {}
            // Our acquire may still be on its way.
            Ok(_) if claim.hold == Hold::Perhaps => self.undo_later(attempt, claim),
            // Somebody flushed it, or it ran out under a stopped owner.
            Ok(_) => telemetry::lease_lost(),
            Err(_) => self.undo_later(attempt, claim),
        }
    }

    /// The heartbeat. Only a living task sends it, so a lease outlives its owner by no more than its length.
    pub async fn renew(&self, attempt: &Attempt, claim: Claim) {
        if claim.hold == Hold::Place {
            let arguments: &[&[u8]] = &[&claim.token.0, self.lease_ms.as_bytes()];
            let _ = self.call(Script::Renew, attempt, arguments).await;
        }
    }

    /// Tells retries of what runs in the background which operation it is, best effort.
    pub async fn in_background(&self, attempt: &Attempt, claim: Claim, operation: Uuid) {
        if claim.hold != Hold::Nothing {
            let _ = self.call(Script::Background, attempt, &[&claim.token.0, operation.as_bytes()]).await;
        }
    }

    /// Whether somebody is at work under this key, as far as Redis knows.
    pub async fn is_running(&self, attempt: &Attempt) -> bool {
        let account = attempt.account.0.to_be_bytes();
        for asked in [attempt, &attempt.as_if_serialised()] {
            if let Ok(Value::Int(1)) = self.call(Script::Look, asked, &[&account]).await {
                return true;
            }
        }
        false
    }

    /// Whether Redis takes writes, asked without a breaker: for health checks. PING would pass on a read-only replica.
    pub async fn is_writable(&self) -> bool {
        self.probe().await.is_ok()
    }

    /// Keeps trying to give a place back for as long as it could be held: an acquire whose reply was lost may be executed
    /// late, and a settle that never arrived leaves a lease that nobody will use.
    fn undo_later(self: &Arc<Self>, attempt: &Attempt, claim: Claim) {
        if claim.hold == Hold::Nothing {
            return;
        }
        if self.undoing.fetch_add(1, Ordering::Relaxed) >= UNDO_MAX {
            self.undoing.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let (gate, attempt) = (Arc::clone(self), attempt.clone());
        tokio::spawn(async move {
            let began = Instant::now();
            // A lease that is found late lives as long from the first answer on, not from now.
            let mut answering = None;
            while began.elapsed() < UNDO_FOR {
                match gate.call(Script::Release, &attempt, &[&claim.token.0]).await {
                    Ok(Value::Int(1)) => break,
                    Ok(_) if claim.hold == Hold::Place => break,
                    // An acquire that is executed late comes after a release that finds nothing.
                    Ok(_) => {
                        let since = *answering.get_or_insert_with(Instant::now);
                        if since.elapsed() > gate.lease {
                            break;
                        }
                    }
                    Err(_) => {}
                }
                tokio::time::sleep(UNDO_EVERY).await;
            }
            gate.undoing.fetch_sub(1, Ordering::Relaxed);
        });
    }

    async fn call(&self, script: Script, attempt: &Attempt, arguments: &[&[u8]]) -> Result<Value, Fault> {
        self.ask(Ask::Run(script, attempt.redis_names(), arguments)).await
    }

    async fn ask(&self, asked: Ask<'_>) -> Result<Value, Fault> {
        if !self.breaker.admits() {
            return Err(Fault::NotSent("the breaker is open".to_owned()));
        }
        let answer = self.line.ask(asked).await;
        let was_open = self.breaker.is_open();
        match &answer {
            Ok(_) => self.breaker.succeeded(),
            Err(fault) => {
                telemetry::gate_fault(fault.class());
                tracing::debug!(%fault, "Redis did not do it");
                // A name taken by another structure says nothing about Redis as a whole.
                if fault.class() == "wrongtype" { self.breaker.succeeded() } else { self.breaker.failed() }
            }
        }
        let is_open = self.breaker.is_open();
        if is_open != was_open {
            telemetry::degraded(is_open);
            match answer.as_ref().err() {
                Some(fault) => tracing::warn!(%fault, "Redis is away: PostgreSQL alone serves"),
                None => tracing::info!("Redis is back"),
            }
        }
        answer
    }
}

fn identity(attempt: &Attempt, generation: Generation) -> Identity {
    Identity { generation, fingerprint: attempt.asked.current, account: attempt.account }
}
