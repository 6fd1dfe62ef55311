//! Resumes: takes up workflows whose executor is gone, and gives up those that nobody can finish.
//!
//! Knows leases and the registry; how a workflow is carried out is the engine's business, and the same as for a retry. Invariants: a
//! record is claimed by one replica at a time (its lease, taken with SKIP LOCKED); the number of runs of a process is bounded;
//! nothing here is repeated without a pause that grows.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Semaphore;

use crate::answer::Answer;
use crate::database::ReadError;
use crate::engine::{Engine, Held, jitter};
use crate::ledger::{Claimed, Ledger};
use crate::problems;
use crate::shutdown::Shutdown;
use crate::sqlstate::explain;
use crate::telemetry;
use crate::workflow::Workflows;

/// Most workflows that one process resumes at a time.
const RUNS_MAX: usize = 4;
/// Longest pause between two looks; half of it is drawn at random, so that replicas do not look together.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What was resumed, by what came of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Finished, with whatever answer.
    pub finished: u64,
    /// Not finished; the next try comes after a pause.
    pub put_off: u64,
    /// Waiting for an operator: the outcome of a foreign call is unknown.
    pub unknown: u64,
    /// Given up.
    pub abandoned: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.finished += other.finished;
        self.put_off += other.put_off;
        self.unknown += other.unknown;
        self.abandoned += other.abandoned;
    }
}

/// Resumes what its own process and others have left.
pub struct Completer {
    engine: Arc<Engine>,
    ledger: Ledger,
    workflows: Arc<Workflows>,
    shutdown: Shutdown,
}

impl Completer {
    /// `engine` needs connections of its own: a run uses up to two at a time.
    pub fn new(engine: Arc<Engine>, ledger: Ledger, workflows: Workflows, shutdown: Shutdown) -> Self {
        Self { engine, ledger, workflows: Arc::new(workflows), shutdown }
    }

    /// Claims one batch and carries it out.
    ///
    /// # Errors
    /// [`ReadError`], when nothing could be claimed.
    pub async fn run_once(&self) -> Result<Counts, ReadError> {
        let claimed = self.claim(RUNS_MAX).await?;
        let mut counts = Counts::default();
        for outcome in join_all(claimed.into_iter().map(|claimed| self.resume(claimed))).await {
            counts += outcome;
        }
        Ok(counts)
    }

    /// Resumes for as long as the process takes work.
    pub async fn run(self) {
        let (completer, room) = (Arc::new(self), Arc::new(Semaphore::new(RUNS_MAX)));
        while !completer.shutdown.has_begun() {
            match completer.claim(room.available_permits()).await {
                Ok(claimed) => {
                    for claimed in claimed {
                        let (completer, room) = (Arc::clone(&completer), Arc::clone(&room));
                        // Taken before the next look, by the task that gives it back.
                        let Ok(permit) = room.try_acquire_owned() else { break };
                        let tasks = completer.shutdown.tasks();
                        tasks.spawn(async move {
                            completer.resume(claimed).await;
                            drop(permit);
                        });
                    }
                }
                Err(error) => tracing::debug!(error = explain(&error), "nothing could be resumed"),
            }
            tokio::time::sleep(LOOK_EVERY / 2 + jitter(LOOK_EVERY / 2)).await;
        }
    }

    async fn claim(&self, most: usize) -> Result<Vec<Claimed>, ReadError> {
        let known = self.workflows.names();
        if most == 0 || known.is_empty() {
            return Ok(Vec::new());
        }
        self.ledger.claim(most, &known).await
    }

    async fn resume(&self, claimed: Claimed) -> Counts {
        let Claimed { attempt, lease, command, request, stuck } = claimed;
        let job = match self.workflows.read(&command, request) {
            Some(Ok(job)) => job,
            Some(Err(error)) => {
                let why = format!("its request cannot be read by this build: {error}");
                tracing::error!(workflow = command, operation = %lease.operation, why, "a workflow was put off");
                let _ = self.ledger.give_back(&attempt, lease, Some(&why), false).await;
                return Counts { put_off: 1, ..Counts::default() };
            }
            // Only known names are claimed.
            None => return Counts::default(),
        };
        let attempt = if job.is_serialised() { attempt.serialised(job.name()) } else { attempt };
        tracing::info!(workflow = job.name(), operation = %lease.operation, "resumed");
        let held = Held { lease, journal: None, background: false, stuck };
        let answer = self.engine.resume(&attempt, job.as_ref(), held).await;
        let counts = match answer {
            Answer::First { finished } if finished.reply.status == problems::ABANDONED.status => {
                Counts { abandoned: 1, ..Counts::default() }
            }
            Answer::First { .. } | Answer::Replay { .. } => Counts { finished: 1, ..Counts::default() },
            Answer::OutcomeUnknown { .. } => Counts { unknown: 1, ..Counts::default() },
            _ => Counts { put_off: 1, ..Counts::default() },
        };
        telemetry::completed(counts);
        counts
    }
}
