//! Work that was undone: refused, failed, never begun, or of unknown outcome.
//!
//! Knows what each way of not committing means for the caller. Invariant: what could not be stored is never answered as a
//! refusal, and nothing here leaves a lease behind.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::{After, Engine, LOST, Run, unavailable};
use crate::answer::Answer;
use crate::attempt::Attempt;
use crate::command::{Done, Tx, Work};
use crate::gate::Claim;
use crate::ledger::{LedgerError, RECORD_KEY, Resolved};
use crate::problem::Problem;
use crate::record::{Status, decide};
use crate::sqlstate::{self, Trouble};

const NOT_STORED: Answer =
    Answer::Unavailable("the refusal could not be stored; send the same request again");

impl Engine {
    /// The work was undone for a reason that is an answer: a refusal, or (without one) a row with this natural key. The key
    /// is entered again, since the rollback gave the lock away: a record found then decides, then a natural row.
    pub(super) async fn reject(
        &self,
        attempt: &Attempt,
        work: &dyn Work,
        claim: Claim,
        refusal: Option<Problem>,
    ) -> Run {
        let transaction = match self.enter(attempt, claim, None, false).await {
            Ok((transaction, _)) => transaction,
            Err(Run::Again(_)) => return Run::Answered(NOT_STORED, After::Release),
            Err(answered) => return answered,
        };
        let mut tx = Tx::new(transaction, attempt);
        let look = AssertUnwindSafe(work.existing(&mut tx)).catch_unwind();
        let found = tokio::time::timeout(self.policy.execute_max, look).await;
        let (transaction, _) = tx.into_parts();
        match (found, refusal) {
            (Ok(Ok(Ok(Some(location)))), _) => {
                transaction.rollback().await;
                Run::Answered(Answer::AlreadyCompleted { location: Some(location) }, After::Release)
            }
            (Ok(Ok(Ok(None))), Some(problem)) => {
                let done = Done::refused(problem.seal(attempt.request_id));
                let deadline = Instant::now() + self.policy.execute_max;
                let completed =
                    transaction.complete(&self.ledger, attempt, Status::Failed, &done, deadline).await;
                match self.conclude(attempt, claim, done, completed).await {
                    Run::Again(_) | Run::Answered(Answer::Internal, After::Release) => {
                        Run::Answered(NOT_STORED, After::Release)
                    }
                    answered @ Run::Answered(..) => answered,
                }
            }
            (Ok(Ok(Ok(None))), None) => {
                transaction.rollback().await;
                Run::Again("the row with this natural key is gone".to_owned())
            }
            // Dropped, not rolled back: after a time-out a statement may be under way.
            (Ok(Ok(Err(_)) | Err(_)) | Err(_), _) => Run::Answered(NOT_STORED, After::Release),
        }
    }

    /// The transaction was undone although the command had succeeded: by one of its last writes, or at the record.
    pub(super) async fn last_write_failed(
        &self,
        attempt: &Attempt,
        work: &dyn Work,
        claim: Claim,
        done: &Done,
        error: tokio_postgres::Error,
    ) -> Run {
        let violated = sqlstate::violated_unique(&error);
        if violated.is_some() && violated == work.natural_key() {
            return self.reject(attempt, work, claim, None).await;
        }
        if violated == Some(RECORD_KEY) {
            // Another attempt's record: it is found by the next look-up.
            return Run::Again(error.to_string());
        }
        match done.effects.refusal(&error) {
            Some(problem) => self.reject(attempt, work, claim, Some(problem)).await,
            None => self.failed(work, &error),
        }
    }

    /// A database error in the command: rolled back, so nothing is lost by any of these.
    pub(super) fn failed(&self, work: &dyn Work, error: &tokio_postgres::Error) -> Run {
        match sqlstate::classify(error) {
            Trouble::Again => again(error),
            Trouble::Unavailable => {
                tracing::warn!(
                    command = work.name(),
                    error = sqlstate::explain(error),
                    "the database cannot serve this now"
                );
                Run::Answered(Answer::Unavailable("the database cannot serve this now"), After::Release)
            }
            Trouble::Broken => {
                tracing::error!(
                    command = work.name(),
                    error = sqlstate::explain(error),
                    "the command failed"
                );
                Run::Answered(Answer::Internal, After::Release)
            }
        }
    }

    /// The transaction did not begin.
    pub(super) fn not_begun(&self, error: &LedgerError) -> Run {
        match error {
            LedgerError::Database(error) if sqlstate::classify(error) == Trouble::Again => {
                Run::Again(error.to_string())
            }
            error => Run::Answered(unavailable(error), After::Release),
        }
    }

    /// COMMIT was sent and never answered: looked up, never guessed.
    pub(super) async fn resolve(&self, attempt: &Attempt, claim: Claim) -> Run {
        tracing::warn!("no answer to COMMIT; looking the outcome up");
        match self.ledger.resolve(attempt).await {
            Ok(Resolved::Gone) => Run::Again(LOST.to_owned()),
            Ok(Resolved::Found(record)) => {
                let verdict = decide(Some(&record), &attempt.asked);
                let (answer, after) = self.decided(attempt, claim, Some(&record), verdict).await;
                match answer {
                    // This attempt's own record: it is the first answer, not a replay.
                    Answer::Replay { finished, .. } if finished.request_id == attempt.request_id => {
                        Run::Answered(Answer::First { finished }, after)
                    }
                    other => Run::Answered(other, after),
                }
            }
            Err(error) => {
                tracing::warn!(
                    error = sqlstate::explain(&error),
                    "the outcome of COMMIT was not learned in time"
                );
                let open =
                    Answer::Unavailable("the outcome was not learned in time; send the same request again");
                Run::Answered(open, After::Leave)
            }
        }
    }
}

/// What may have been bad luck, and why it is tried again.
pub(super) fn again(error: &tokio_postgres::Error) -> Run {
    Run::Again(if error.is_closed() { LOST.to_owned() } else { error.to_string() })
}
