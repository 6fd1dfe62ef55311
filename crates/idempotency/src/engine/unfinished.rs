//! The ends of a run that does not finish its workflow: overtaken, put off, unknown, given up.
//!
//! Knows what is written and told in each case. Invariant: whoever stops gives the lease back with another token, so that the next
//! one can go on at once and nothing of this run can be committed any more; and only what is provably not under way is given up.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;

use super::workflow::Case;
use super::{After, Engine, Run, unavailable};
use crate::answer::Answer;
use crate::command::{Done, Tx};
use crate::ledger::{Ended, LedgerError, Transaction};
use crate::problems;
use crate::record::{Status, decide};
use crate::sqlstate::{self, Trouble};
use crate::telemetry;
use crate::workflow::Journal;

impl Engine {
    /// Another executor has the lease, or the record is finished: whatever it is, the record tells. Nothing of this run is written.
    pub(super) async fn overtaken(&self, case: Case<'_>) -> Run {
        let found = match self.ledger.look(case.attempt).await {
            Ok(found) => found,
            Err(error) => return Run::Answered(unavailable(&error), After::Release),
        };
        let Some(record) = found else {
            return Run::Answered(Answer::Unavailable("the record is gone"), After::Release);
        };
        telemetry::stale_executor();
        tracing::info!(
            workflow = case.job.name(), operation = %case.lease.operation,
            "the record is no longer held by this run, which stops"
        );
        let verdict = decide(Some(&record), &case.attempt.asked);
        let (answer, after) = self.decided(case.attempt, case.claim, Some(&record), verdict).await;
        match answer {
            // This attempt's own record: it is the first answer, not a replay.
            Answer::Replay { finished, .. } if finished.request_id == case.attempt.request_id => {
                Run::Answered(Answer::First { finished }, after)
            }
            other => Run::Answered(other, after),
        }
    }

    /// Stops, and lets the next one go on at once.
    pub(super) async fn put_off(&self, case: Case<'_>, why: String, answer: Answer) -> Run {
        let (workflow, operation) = (case.job.name(), case.lease.operation);
        if matches!(answer, Answer::Unavailable(_)) {
            tracing::warn!(workflow, %operation, why, "a workflow was put off");
        } else {
            tracing::error!(workflow, %operation, why, "a workflow was put off");
        }
        if let Err(error) = self.ledger.give_back(case.attempt, case.lease, Some(&why), false).await {
            tracing::warn!(workflow, %operation, error = sqlstate::explain(&error), "its lease is left to run out");
        }
        Run::Answered(answer, After::Release)
    }

    /// Nobody knows what became of a foreign call.
    pub(super) async fn unknown(&self, case: Case<'_>, why: &str) -> Run {
        let (workflow, operation) = (case.job.name(), case.lease.operation);
        match self.ledger.give_back(case.attempt, case.lease, Some(why), true).await {
            Ok(true) => {
                telemetry::unknown_outcome(workflow);
                tracing::warn!(
                    workflow, %operation,
                    "the outcome of a foreign call is unknown: `order-service keys stuck` shows it"
                );
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(workflow, %operation, error = sqlstate::explain(&error), "its lease is left to run out");
            }
        }
        Run::Answered(Answer::OutcomeUnknown { operation }, After::Release)
    }

    /// A store did not do it.
    pub(super) async fn undone(&self, case: Case<'_>, error: &LedgerError) -> Run {
        match self.undone_by(error) {
            Ok(again) => again,
            Err((why, answer)) => self.put_off(case, why, answer).await,
        }
    }

    /// Whether a run may simply go on from the journal, or what it is put off with.
    pub(super) fn undone_by(&self, error: &LedgerError) -> Result<Run, (String, Answer)> {
        match error {
            LedgerError::Database(error) if sqlstate::classify(error) == Trouble::Again => {
                Ok(Run::Again(error.to_string()))
            }
            LedgerError::Database(broken) if sqlstate::classify(broken) == Trouble::Broken => {
                Err((sqlstate::explain(error), Answer::Interrupted))
            }
            error => Err((
                sqlstate::explain(error),
                Answer::Unavailable(
                    "the database could not do a step now; the same request goes on from there",
                ),
            )),
        }
    }

    /// Nobody could finish it for too long. Without a foreign call in doubt it is FAILED, and what it held is given back in the same
    /// transaction; else an operator has to look, whatever the other side says: a paused executor may still call.
    pub(super) async fn give_up(&self, case: Case<'_>, why: String) -> Run {
        let (workflow, operation) = (case.job.name(), case.lease.operation);
        let steps = match self.ledger.steps(case.attempt, case.lease, true).await {
            Ok(Some(steps)) => steps,
            Ok(None) => return self.overtaken(case).await,
            Err(error) => return self.undone(case, &error).await,
        };
        if steps.iter().any(|step| step.result.is_none()) {
            return self.unknown(case, &why).await;
        }
        let transaction = match self.ledger.open_step(case.attempt, case.lease, true).await {
            Ok(Some(transaction)) => transaction,
            Ok(None) => return self.overtaken(case).await,
            Err(error) => return self.undone(case, &error).await,
        };
        let mut tx = Tx::new(transaction, case.attempt);
        let journal = Journal(&steps);
        let giving_back = AssertUnwindSafe(case.job.abandon(&mut tx, &journal)).catch_unwind();
        let given_back = tokio::time::timeout(self.policy.execute_max, giving_back).await;
        let (transaction, effects) = tx.into_parts();
        if !matches!(given_back, Ok(Ok(Ok(())))) {
            transaction.abandon().await;
            let why = format!("it cannot be given up: {why}");
            return self.put_off(case, why, Answer::Interrupted).await;
        }
        tracing::error!(workflow, %operation, why, "a workflow was given up");
        let problem = problems::ABANDONED.because("the work could not be finished and was given up");
        let done = Done { reply: problem.seal(operation), kept: true, effects };
        self.conclude_workflow(case, transaction, Status::Failed, done).await
    }

    /// The answer, and COMMIT.
    pub(super) async fn conclude_workflow(
        &self,
        case: Case<'_>,
        transaction: Transaction,
        status: Status,
        done: Done,
    ) -> Run {
        match self.ledger.finish(transaction, case.attempt, case.lease, status, &done).await {
            Ended::Committed(durable) => {
                let operation = case.lease.operation;
                let answer = self.publish(case.attempt, case.claim, operation, done, durable).await;
                Run::Answered(answer, After::Settled)
            }
            Ended::RolledBack(error) => self.undone(case, &LedgerError::Database(error)).await,
            Ended::Unknown => Run::Again("no answer to the answer's COMMIT".to_owned()),
        }
    }
}
