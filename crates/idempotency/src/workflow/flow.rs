//! One run of a workflow: what its code takes its steps with.
//!
//! Knows the journal and the lease. Crash contract: once [`Flow::atomic`] returns, the step's writes, its events and its line in the
//! journal are durable, and until then none of them is; once [`Flow::foreign`] returns, so is the answer, and from before the call
//! is made on the journal has it as begun. Invariant: after a step that did not end well no further step is taken.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::attempt::Attempt;
use crate::command::{Abort, Tx};
use crate::engine::jitter;
use crate::key::AccountId;
use crate::ledger::{Ended, Lease, Ledger, LedgerError, Step, StepKind};

/// How often a foreign call is made by one run, each time but the first after the other side has said that it knows nothing of it.
const CALLS_MAX: u32 = 3;
/// How often the other side is asked about one call before its outcome counts as unknown.
const ASKS_MAX: u32 = 3;
/// Longest pause before it is asked again; it doubles with each time.
const ASK_PAUSE: Duration = Duration::from_millis(100);

/// Why there is no answer to a foreign call. A definite no of the other side is an answer: make it part of the step's result.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// The call provably never reached anybody who could act on it (a refused connection, say): it is as if it had not been begun.
    #[error("not sent: {0}")]
    NotSent(String),
    /// It may have been done: timed out, cut off, an answer that says nothing.
    #[error("no answer: {0}")]
    Unknown(String),
}

/// What the other side says about a call whose answer is missing.
#[derive(Debug)]
pub enum Recovered<T> {
    /// It was done, and this came of it.
    Done(T),
    /// It knows nothing of it: the call may be repeated, with the same derived key.
    Absent,
    /// It does not say.
    Unknown,
}

/// Why a run takes no further step. Kept beside what the workflow's code makes of it, which could swallow it.
#[derive(Debug)]
pub(crate) enum FlowEnd {
    /// Another executor has the lease.
    Stale,
    /// Nobody knows what became of a foreign call.
    Unknown,
    /// The journal is not that of this code.
    Diverged(String),
    /// A store did not do it, or said nothing: the journal tells.
    Failed(LedgerError),
    /// COMMIT was sent and never answered: the journal tells.
    Lost,
    /// A step took longer than `EXECUTE_MAX`.
    TooLong,
    /// A foreign call that provably did not leave.
    NotSent(String),
    /// A step was refused or failed; what the run returns says how.
    Closed,
}

/// A step after one that did not end well.
#[derive(Debug, thiserror::Error)]
#[error("the workflow takes no further step: {0}")]
struct NoFurtherStep(&'static str);

/// What a step is, as the journal has it.
enum Known<T> {
    Done(T),
    /// A call that was begun by an earlier run, with its key.
    Begun(String),
    New,
}

/// What a workflow takes its steps with.
pub struct Flow<'f> {
    attempt: &'f Attempt,
    ledger: &'f Ledger,
    lease: Lease,
    step_max: Duration,
    call_max: Duration,
    fresh: bool,
    journal: Vec<Step>,
    position: usize,
    progress: bool,
    end: Option<FlowEnd>,
}

impl<'f> Flow<'f> {
    pub(crate) fn new(
        attempt: &'f Attempt,
        ledger: &'f Ledger,
        lease: Lease,
        (step_max, call_max): (Duration, Duration),
        journal: Vec<Step>,
    ) -> Self {
        Self {
            attempt,
            ledger,
            lease,
            step_max,
            call_max,
            fresh: false,
            journal,
            position: 0,
            progress: false,
            end: None,
        }
    }

    /// The same on connections that nobody used before.
    pub(crate) fn on_fresh_connections(self, fresh: bool) -> Self {
        Self { fresh, ..self }
    }

    /// Why it ended early, if it did; what a run that ended well has left of its journal; whether it added to it.
    pub(crate) fn into_outcome(self) -> (Option<FlowEnd>, Option<String>, bool) {
        let left = self.journal.get(self.position);
        let unmet = left.map(|step| format!("step {:?} is journaled and was not taken", step.name));
        (self.end, unmet, self.progress)
    }

    /// Whose request it is.
    pub fn account(&self) -> AccountId {
        self.attempt.account
    }

    /// A transaction. Its work, its events and its result are committed together, once; a run that finds it done gets the result
    /// that was journaled.
    ///
    /// # Errors
    /// What the work returns, which undoes this step alone; or a failure that is not for the workflow to handle: pass it on.
    pub async fn atomic<T, F>(&mut self, step: &'static str, work: F) -> Result<T, Abort>
    where
        T: Serialize + DeserializeOwned + Send,
        F: for<'t> FnOnce(&'t mut Tx<'f>) -> BoxFuture<'t, Result<T, Abort>> + Send,
    {
        if let Known::Done(result) = self.known(step, StepKind::Atomic)? {
            return Ok(result);
        }
        let transaction = match self.ledger.open_step(self.attempt, self.lease, self.fresh).await {
            Ok(Some(transaction)) => transaction,
            Ok(None) => return Err(self.ends(FlowEnd::Stale)),
            Err(error) => return Err(self.ends(FlowEnd::Failed(error))),
        };
        let mut tx = Tx::new(transaction, self.attempt);
        let worked = tokio::time::timeout(self.step_max, work(&mut tx)).await;
        let (transaction, effects) = tx.into_parts();
        let sealed = match worked {
            Ok(Ok(result)) => seal(&result),
            Ok(Err(abort)) => Err(abort),
            Err(_elapsed) => {
                transaction.abandon().await;
                return Err(self.ends(FlowEnd::TooLong));
            }
        };
        let (result, bytes) = match sealed {
            Ok(sealed) => sealed,
            Err(abort) => {
                transaction.rollback().await;
                self.ends(FlowEnd::Closed);
                return Err(abort);
            }
        };
        let line = (self.position, step);
        match self.ledger.close_step(transaction, self.attempt, &effects, line, &bytes).await {
            Ended::Committed(()) => {
                self.note(step, StepKind::Atomic, None, Some(bytes));
                Ok(result)
            }
            Ended::RolledBack(error) => match effects.refusal(&error) {
                Some(problem) => {
                    self.ends(FlowEnd::Closed);
                    Err(Abort::Reject(problem))
                }
                None => Err(self.ends(FlowEnd::Failed(LedgerError::Database(error)))),
            },
            Ended::Unknown => Err(self.ends(FlowEnd::Lost)),
        }
    }

    /// A call to another service, outside of any transaction, with a key that is derived from the record and the step: the same
    /// however often the workflow is run. A call whose answer is missing is asked about with `recover` before it is repeated.
    ///
    /// # Errors
    /// A failure that is not for the workflow to handle: pass it on.
    pub async fn foreign<T, C, Calling, R, Asking>(
        &mut self,
        step: &'static str,
        call: C,
        recover: R,
    ) -> Result<T, Abort>
    where
        T: Serialize + DeserializeOwned + Send,
        C: Fn(String) -> Calling + Send + Sync,
        Calling: Future<Output = Result<T, Unanswered>> + Send,
        R: Fn(String) -> Asking + Send + Sync,
        Asking: Future<Output = Recovered<T>> + Send,
    {
        let (derived_key, mut in_doubt) = match self.known(step, StepKind::Foreign)? {
            Known::Done(result) => return Ok(result),
            Known::Begun(derived_key) => (derived_key, true),
            Known::New => {
                let derived_key = format!("idem-{}-{}-{step}", self.lease.operation, self.position);
                let line = (self.position, step);
                match self.ledger.call_begun(self.attempt, self.lease, line, &derived_key).await {
                    Ok(true) => {}
                    Ok(false) => return Err(self.ends(FlowEnd::Stale)),
                    Err(error) => return Err(self.ends(FlowEnd::Failed(error))),
                }
                (derived_key, false)
            }
        };
        for _ in 0..CALLS_MAX {
            if in_doubt {
                match self.ask(&recover, &derived_key).await {
                    Recovered::Done(result) => return self.answered(step, derived_key, &result).await,
                    Recovered::Absent => {}
                    Recovered::Unknown => return Err(self.ends(FlowEnd::Unknown)),
                }
            }
            let why = match tokio::time::timeout(self.call_max, call(derived_key.clone())).await {
                Ok(Ok(result)) => return self.answered(step, derived_key, &result).await,
                Ok(Err(Unanswered::NotSent(why))) if !in_doubt => {
                    return match self.ledger.call_not_made(self.attempt, self.lease, self.position).await {
                        Ok(()) => Err(self.ends(FlowEnd::NotSent(why))),
                        Err(error) => Err(self.ends(FlowEnd::Failed(error))),
                    };
                }
                Ok(Err(unanswered)) => unanswered.to_string(),
                Err(_elapsed) => format!("none within {:?}", self.call_max),
            };
            tracing::warn!(operation = %self.lease.operation, step, why, "a foreign call was not answered; asking about it");
            in_doubt = true;
        }
        match self.ask(&recover, &derived_key).await {
            Recovered::Done(result) => self.answered(step, derived_key, &result).await,
            // Absent is no answer: a call that is still on its way may be done yet.
            Recovered::Absent | Recovered::Unknown => Err(self.ends(FlowEnd::Unknown)),
        }
    }

    /// Asks about a call, with pauses, until the other side says something.
    async fn ask<T, R, Asking>(&self, recover: &R, derived_key: &str) -> Recovered<T>
    where
        R: Fn(String) -> Asking,
        Asking: Future<Output = Recovered<T>>,
    {
        for ask in 0..ASKS_MAX {
            match tokio::time::timeout(self.call_max, recover(derived_key.to_owned())).await {
                Ok(said @ (Recovered::Done(_) | Recovered::Absent)) => return said,
                Ok(Recovered::Unknown) | Err(_) => {}
            }
            tokio::time::sleep(jitter(ASK_PAUSE * 2_u32.pow(ask))).await;
        }
        Recovered::Unknown
    }

    async fn answered<T: Serialize + DeserializeOwned>(
        &mut self,
        step: &'static str,
        derived_key: String,
        result: &T,
    ) -> Result<T, Abort> {
        let (result, bytes) = match seal(result) {
            Ok(sealed) => sealed,
            Err(abort) => {
                self.ends(FlowEnd::Closed);
                return Err(abort);
            }
        };
        match self.ledger.call_done(self.attempt, self.lease, self.position, &bytes).await {
            Ok(true) => {
                self.note(step, StepKind::Foreign, Some(derived_key), Some(bytes));
                Ok(result)
            }
            Ok(false) => Err(self.ends(FlowEnd::Stale)),
            Err(error) => Err(self.ends(FlowEnd::Failed(error))),
        }
    }

    /// What the journal has at this place.
    fn known<T: DeserializeOwned>(&mut self, step: &'static str, kind: StepKind) -> Result<Known<T>, Abort> {
        if self.end.is_some() {
            return Err(NoFurtherStep("an earlier one did not end well").into());
        }
        let Some(line) = self.journal.get(self.position) else { return Ok(Known::New) };
        if line.name != step || line.kind != kind {
            let why =
                format!("step {} is journaled as {:?}, and {step:?} is taken", self.position, line.name);
            return Err(self.ends(FlowEnd::Diverged(why)));
        }
        let known = match (&line.result, &line.derived_key) {
            (Some(bytes), _) => serde_json::from_slice(bytes).map(Known::Done),
            (None, Some(derived_key)) => Ok(Known::Begun(derived_key.clone())),
            (None, None) => Ok(Known::New),
        };
        match known {
            Ok(known) => {
                self.position += usize::from(matches!(known, Known::Done(_)));
                Ok(known)
            }
            Err(error) => {
                let why = format!("the result of step {step:?} cannot be read: {error}");
                Err(self.ends(FlowEnd::Diverged(why)))
            }
        }
    }

    fn note(&mut self, name: &str, kind: StepKind, derived_key: Option<String>, result: Option<Vec<u8>>) {
        self.journal.truncate(self.position);
        self.journal.push(Step { name: name.to_owned(), kind, derived_key, result });
        self.position += 1;
        self.progress = true;
    }

    /// Takes note of why no further step is taken, and says so to the workflow's code.
    fn ends(&mut self, end: FlowEnd) -> Abort {
        let why = match end {
            FlowEnd::Stale => "another executor has taken over",
            FlowEnd::Unknown => "nobody knows what became of a foreign call",
            FlowEnd::Diverged(_) => "the journal is not that of this code",
            FlowEnd::Failed(_) | FlowEnd::Lost => "the database did not do it",
            FlowEnd::TooLong => "a step took too long",
            FlowEnd::NotSent(_) => "a foreign call could not be made",
            FlowEnd::Closed => "a step did not end well",
        };
        self.end = Some(end);
        NoFurtherStep(why).into()
    }
}

/// A result as it is journaled, and as whoever reads the journal will see it: the first run goes on with the same.
fn seal<T: Serialize + DeserializeOwned>(result: &T) -> Result<(T, Vec<u8>), Abort> {
    let bytes = serde_json::to_vec(result)?;
    Ok((serde_json::from_slice(&bytes)?, bytes))
}
