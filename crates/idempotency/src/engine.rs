//! The whole protocol: one function walks an attempt from Redis through PostgreSQL and back.
//!
//! The only place with the protocol's decisions in order; each store's mechanics are in `gate` and `ledger`, the truth
//! table in `record`. Knows nothing of HTTP. Invariants: an answer is sent if and only if it is true (no success before
//! the commit is known); a lease is released only when nothing can be committed under it any more.

mod asking;
mod entry;
mod undone;
mod unfinished;
mod wait;
mod workflow;

pub(crate) use workflow::Held;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use asking::Asking;
use undone::again;

use crate::answer::Answer;
use crate::attempt::Attempt;
use crate::command::{Abort, Bound, Command, Done, Tx, Work, database_error};
use crate::gate::{Claim, Gate};
use crate::ledger::{Completed, Durable, Ledger, RECORD_KEY};
use crate::policy::Policy;
use crate::record::Status;
use crate::reply::Finished;
use crate::shutdown::Shutdown;
use crate::sqlstate::{self, Trouble};
use crate::telemetry;
use crate::waiting::Waiting;
use crate::workflow::Job;

/// Runs of one attempt before it is given up, the first included; the last two are on a fresh connection.
const RUNS_MAX: u32 = 5;
/// Longest pause before the second run; it doubles with every further one, and is drawn at random below that.
const RERUN_PAUSE: Duration = Duration::from_millis(20);

/// The protocol, for one runtime: its own way to each store.
#[derive(Debug)]
pub struct Engine {
    gate: Arc<Gate>,
    ledger: Ledger,
    policy: Policy,
    waiting: Waiting,
    shutdown: Shutdown,
}

/// Why a run is made again whose connection died under it.
const LOST: &str = "the connection was lost";
const CONFLICTS: Answer = Answer::Unavailable("the work met conflicts too often and was rolled back");
const STOOD_STILL: Answer =
    Answer::Unavailable("the work stood still in its transaction for too long, and the database ended it");

/// A task that cannot be joined.
const OUTCOME_OPEN: Answer = Answer::Unavailable("the outcome is not known");

/// What an attempt runs.
enum Task {
    Command(Arc<dyn Work>),
    Workflow {
        job: Arc<dyn Job>,
        /// Whether the caller prefers to be told 202 at once.
        asynchronous: bool,
    },
}

impl Task {
    fn name(&self) -> &'static str {
        match self {
            Self::Command(work) => work.name(),
            Self::Workflow { job, .. } => job.name(),
        }
    }
}

/// What a run leaves to be done with the place in Redis.
enum After {
    /// Nothing can be committed any more: give it back.
    Release,
    /// The outcome is open: only time may end the lease.
    Leave,
    /// Already published.
    Settled,
}

/// What became of one run.
enum Run {
    Answered(Answer, After),
    Again(String),
}

impl Engine {
    /// `waiting` and `shutdown` are shared by all workers of a process; work that has begun is tracked by the latter.
    pub fn new(
        gate: Arc<Gate>,
        ledger: Ledger,
        policy: Policy,
        waiting: Waiting,
        shutdown: Shutdown,
    ) -> Self {
        Self { gate, ledger, policy, waiting, shutdown }
    }

    /// The limits in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Executes an attempt. A duplicate of a running first waits for up to `patience` and gets its answer.
    pub async fn execute<C: Command>(
        self: Arc<Self>,
        attempt: Arc<Attempt>,
        command: C,
        state: Arc<C::State>,
        patience: Duration,
    ) -> Answer {
        self.perform(attempt, Task::Command(Arc::new(Bound { command, state })), patience).await
    }

    /// Begins a workflow, or goes on with it; answers [`Answer::Accepted`] at once if `asynchronous`, else once it takes too long.
    pub(crate) async fn execute_workflow(
        self: Arc<Self>,
        attempt: Arc<Attempt>,
        job: Arc<dyn Job>,
        asynchronous: bool,
        patience: Duration,
    ) -> Answer {
        self.perform(attempt, Task::Workflow { job, asynchronous }, patience).await
    }

    async fn perform(self: Arc<Self>, attempt: Arc<Attempt>, task: Task, patience: Duration) -> Answer {
        let mut answer = self.begin(&attempt, &task).await;
        if answer == Answer::InProgress && !patience.is_zero() {
            answer = Box::pin(self.wait(&attempt, &task, patience)).await;
        }
        telemetry::request(task.name(), answer.outcome());
        if let Answer::Replay { tier, .. } = &answer {
            telemetry::replay(tier.word());
        }
        answer
    }

    /// Walks the attempt: Redis first, then in a task.
    async fn begin(self: &Arc<Self>, attempt: &Arc<Attempt>, task: &Task) -> Answer {
        let work = match task {
            Task::Command(work) => Arc::clone(work),
            Task::Workflow { job, asynchronous } => {
                return Box::pin(self.begin_workflow(attempt, job, *asynchronous)).await;
            }
        };
        // A duplicate of what this very process began to execute within a heartbeat needs no store, nor a task.
        if self.waiting.running().executes(attempt, self.policy.lease / 3) {
            return Answer::InProgress;
        }
        // Asked in the request itself: a retry that Redis answers costs no task.
        let asking = Asking::new(self, attempt, &work);
        // In a box of its own: the allocator is quick up to a kilobyte, and everything around is copied on its way.
        let said = Box::pin(self.gate.acquire(attempt, asking.claim)).await;
        asking.heard();
        match self.heard(attempt, said).await {
            Ok(claim) => {
                let task = self.carry_out_claimed(attempt, &work, claim);
                // A task that cannot be joined panicked outside the command; nothing is known of its outcome.
                task.await.unwrap_or(OUTCOME_OPEN)
            }
            Err(answer) => {
                self.waiting.publish(attempt, &answer);
                answer
            }
        }
    }

    /// Walks the rest of the way in a task of its own: once begun, it is finished whether or not anybody still waits for it.
    fn carry_out_claimed(
        self: &Arc<Self>,
        attempt: &Arc<Attempt>,
        work: &Arc<dyn Work>,
        claim: Claim,
    ) -> JoinHandle<Answer> {
        let (engine, attempt, work) = (Arc::clone(self), Arc::clone(attempt), Arc::clone(work));
        self.shutdown.tasks().spawn(async move {
            // Boxed, as everything behind Redis is: a task is copied several times on its way.
            let answer = Box::pin(engine.answer(&attempt, work.as_ref(), claim)).await;
            engine.waiting.publish(&attempt, &answer);
            answer
        })
    }

    async fn answer(&self, attempt: &Attempt, work: &dyn Work, claim: Claim) -> Answer {
        let run = self.run_until_answered(attempt, work, claim);
        let (answer, after) = self.with_place(attempt, claim, run).await;
        if let After::Release = after {
            self.gate.release(attempt, claim).await;
        }
        answer
    }

    /// Renews the place in Redis while the work is being done.
    async fn with_place<T>(&self, attempt: &Attempt, claim: Claim, work: impl Future<Output = T>) -> T {
        self.with_heartbeat(work, || {
            // In a task of its own: a slow Redis must not hold up the work.
            let (gate, attempt) = (Arc::clone(&self.gate), attempt.clone());
            tokio::spawn(async move { gate.renew(&attempt, claim).await });
        })
        .await
    }

    /// Beats while the work is being done.
    async fn with_heartbeat<T>(&self, work: impl Future<Output = T>, beat: impl Fn()) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = tokio::time::sleep(self.policy.lease / 3) => beat(),
            }
        }
    }

    /// Runs until there is an answer, bounded in number and time.
    async fn run_until_answered(&self, attempt: &Attempt, work: &dyn Work, claim: Claim) -> (Answer, After) {
        let deadline = Instant::now() + self.policy.execute_max;
        let mut stood_still = false;
        for run in 1..=RUNS_MAX {
            let began = Instant::now();
            match self.run(attempt, work, claim, deadline, run + 2 > RUNS_MAX).await {
                Run::Answered(answer, after) => return (answer, after),
                Run::Again(cause) => {
                    // The server ends a session that idles in its transaction for as long as the lease; of that, nothing
                    // is seen but a dead connection.
                    stood_still = cause == LOST && began.elapsed() >= self.policy.lease;
                    tracing::info!(command = work.name(), run, %cause, "rolled back; run again");
                }
            }
            telemetry::rerun();
            let pause = jitter(RERUN_PAUSE * 2_u32.pow(run - 1));
            if Instant::now() + pause >= deadline {
                break;
            }
            tokio::time::sleep(pause).await;
        }
        if stood_still {
            tracing::warn!(
                command = work.name(),
                "its session ended after it had idled in its transaction for longer than IDEMPOTENCY_LEASE, or the link was lost for as long"
            );
            return (STOOD_STILL, After::Release);
        }
        (CONFLICTS, After::Release)
    }

    /// One transaction: enter, execute, complete.
    async fn run(
        &self,
        attempt: &Attempt,
        work: &dyn Work,
        claim: Claim,
        deadline: Instant,
        fresh: bool,
    ) -> Run {
        let opening = work.opening_read();
        let began = std::time::Instant::now();
        let entered = self.enter(attempt, claim, opening.as_ref(), fresh).await;
        telemetry::took("enter", began);
        let (transaction, flown) = match entered {
            Ok(entered) => entered,
            Err(run) => return run,
        };
        let _entry = self.waiting.running().enter(attempt);
        let mut tx = Tx::new(transaction, attempt).opened_with(opening, flown);
        let execution = AssertUnwindSafe(work.execute(&mut tx)).catch_unwind();
        let began = std::time::Instant::now();
        let executed = tokio::time::timeout_at(deadline, execution).await;
        telemetry::took("execute", began);
        let (transaction, effects) = tx.into_parts();
        match executed {
            Ok(Ok(Ok((reply, kept)))) => {
                let kept = kept && reply.body.len() <= self.policy.stored_body_max;
                let done = Done { reply, kept, effects };
                let began = std::time::Instant::now();
                let completed =
                    transaction.complete(&self.ledger, attempt, Status::Completed, &done, deadline).await;
                telemetry::took("complete", began);
                match completed {
                    Completed::RolledBack(error) if !done.effects.last.is_empty() => {
                        Box::pin(self.last_write_failed(attempt, work, claim, &done, error)).await
                    }
                    completed => self.conclude(attempt, claim, done, completed).await,
                }
            }
            Ok(Ok(Err(Abort::Reject(problem)))) => {
                transaction.rollback().await;
                Box::pin(self.reject(attempt, work, claim, Some(problem))).await
            }
            Ok(Ok(Err(Abort::Fail(failure)))) => {
                let natural = database_error(failure.as_ref()).and_then(sqlstate::violated_unique);
                let done_before = natural.is_some() && natural == work.natural_key();
                transaction.rollback().await;
                if done_before {
                    return Box::pin(self.reject(attempt, work, claim, None)).await;
                }
                match database_error(failure.as_ref()) {
                    Some(error) => self.failed(work, error),
                    None => {
                        tracing::error!(
                            command = work.name(),
                            error = sqlstate::explain(failure.as_ref()),
                            "the command failed"
                        );
                        Run::Answered(Answer::Internal, After::Release)
                    }
                }
            }
            Ok(Err(_panic)) => {
                transaction.rollback().await;
                tracing::error!(command = work.name(), "the command panicked");
                Run::Answered(Answer::Internal, After::Release)
            }
            Err(_elapsed) => {
                transaction.abandon().await;
                tracing::warn!(command = work.name(), "the command took longer than IDEMPOTENCY_EXECUTE_MAX");
                Run::Answered(
                    Answer::Unavailable("the work took too long and was rolled back"),
                    After::Release,
                )
            }
        }
    }

    /// What a finished transaction means for the caller and for Redis.
    async fn conclude(&self, attempt: &Attempt, claim: Claim, done: Done, completed: Completed) -> Run {
        match completed {
            Completed::Committed(durable) => {
                let answer = self.publish(attempt, claim, attempt.request_id, done, durable).await;
                Run::Answered(answer, After::Settled)
            }
            Completed::RolledBack(error) => match sqlstate::classify(&error) {
                Trouble::Again => again(&error),
                // Another attempt's record: it is found by the next look-up.
                _ if sqlstate::violated_unique(&error) == Some(RECORD_KEY) => Run::Again(error.to_string()),
                Trouble::Unavailable => Run::Answered(
                    Answer::Unavailable("the database could not commit this now"),
                    After::Release,
                ),
                Trouble::Broken => {
                    tracing::error!(error = sqlstate::explain(&error), "PostgreSQL refused the commit");
                    Run::Answered(Answer::Internal, After::Release)
                }
            },
            Completed::Unknown => Box::pin(self.resolve(attempt, claim)).await,
        }
    }

    /// Tells Redis of a committed answer, best effort, before it is sent.
    async fn publish(
        &self,
        attempt: &Attempt,
        claim: Claim,
        request_id: Uuid,
        done: Done,
        durable: Durable,
    ) -> Answer {
        let (Done { reply, kept, .. }, Durable { expires_ms, generation }) = (done, durable);
        let finished = Finished { reply, kept, request_id, expires_ms };
        if kept {
            self.gate.settle(attempt, claim, generation, &finished).await;
        } else {
            let reference = Finished { reply: finished.reply.reference(), ..finished.clone() };
            self.gate.settle(attempt, claim, generation, &reference).await;
        }
        Answer::First { finished }
    }
}

fn unavailable(error: &(dyn std::error::Error + 'static)) -> Answer {
    tracing::warn!(error = sqlstate::explain(error), "PostgreSQL could not be asked");
    Answer::Unavailable("the database could not be asked in time")
}

/// A random pause up to `longest`.
pub(crate) fn jitter(longest: Duration) -> Duration {
    let [random, ..] = uuid::Uuid::new_v4().into_bytes();
    longest * u32::from(random) / 255
}
