//! The duplicate that waits for a running first.
//!
//! Knows who leads and what is shared (`waiting.rs` keeps the queues). Invariants: a waiter holds no connection and no task;
//! one that gives up or hangs up leaves the first alone; of a failing first at most one waiter makes a second.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::{Engine, Task};
use crate::answer::Answer;
use crate::attempt::Attempt;
use crate::database::ReadError;
use crate::inquiry::Inquired;
use crate::key::AccountId;
use crate::record::Record;

/// Failures that a waiter sees before it is answered with one: the first's, and that of the one that took over.
const FAILURES_SHARED: u32 = 2;
/// Pause of the waiter that leads between two questions to the stores; it doubles from the first to the last.
const POLL_FIRST: Duration = Duration::from_millis(20);
const POLL_LAST: Duration = Duration::from_millis(500);

impl Engine {
    /// Waits for a running first. Runs in the request, not in a task: a client that hangs up stops waiting, and leaves the
    /// first alone. The waiter that leads asks the stores, and takes over when it finds the place free; the others are told.
    /// Of a first that failed, one waiter makes a second; if that fails too, its answer is everybody's, so that a thousand
    /// waiters on a failing handler do not run it a thousand times.
    pub(super) async fn wait(
        self: &Arc<Self>,
        attempt: &Arc<Attempt>,
        task: &Task,
        patience: Duration,
    ) -> Answer {
        let Some((place, mut outcomes)) = self.waiting.join(attempt) else { return Answer::Overloaded };
        let deadline = Instant::now() + patience;
        // At once, since the first may have ended between its answer to us and our joining.
        let (mut pause, mut failures) = (Duration::ZERO, 0);
        loop {
            tokio::select! {
                biased;
                outcome = outcomes.next() => {
                    if outcome.answer.is_failure() {
                        failures += 1;
                        if failures == FAILURES_SHARED {
                            return outcome.answer.shared();
                        }
                        pause = Duration::ZERO;
                    } else if attempt.asked.contradicts(&outcome.fingerprint) {
                        return Answer::Reused;
                    } else {
                        return outcome.answer.shared();
                    }
                }
                () = self.shutdown.begun() => return Answer::InProgress,
                () = tokio::time::sleep_until(deadline) => return Answer::InProgress,
                () = async { place.lead().await; tokio::time::sleep(pause).await } => {
                    let answer = self.begin(attempt, task).await;
                    if answer != Answer::InProgress {
                        return answer;
                    }
                    pause = (pause * 2).clamp(POLL_FIRST, POLL_LAST);
                }
            }
        }
    }

    /// What has become of a key, without doing anything about it; waits for up to `patience` until its work is finished.
    pub(crate) async fn inquire(
        &self,
        attempt: &Attempt,
        patience: Duration,
    ) -> Result<Option<Inquired>, ReadError> {
        let deadline = Instant::now() + patience;
        // Without room for a waiter it is answered with what is known now.
        let mut place = if patience.is_zero() { None } else { self.waiting.join(attempt) };
        let mut pause = POLL_FIRST;
        loop {
            let record = self.ledger.look(attempt).await?;
            let record = record.filter(|record| !record.is_forgotten());
            if let Some(record) = record.clone().filter(Record::is_settled) {
                return Ok(Some(Inquired::Record(record)));
            }
            let running = record.is_none() && self.gate.is_running(attempt).await;
            let left = deadline.saturating_duration_since(Instant::now());
            let Some((_, outcomes)) =
                place.as_mut().filter(|_| !left.is_zero() && !self.shutdown.has_begun())
            else {
                let known = record.map(Inquired::Record);
                return Ok(known.or(running.then_some(Inquired::Running)));
            };
            let _ = tokio::time::timeout(pause.min(left), outcomes.next()).await;
            pause = (pause * 2).min(POLL_LAST);
        }
    }

    /// An operation of this account; waits for up to `patience` until it is finished.
    pub(crate) async fn operation(
        &self,
        account: AccountId,
        id: Uuid,
        patience: Duration,
    ) -> Result<Option<Record>, ReadError> {
        let found = self.ledger.operation(account, id).await?;
        let Some((key, record)) = found else { return Ok(None) };
        if record.is_settled() || patience.is_zero() {
            return Ok(Some(record));
        }
        self.inquire(&Attempt::inquiry(account, key), patience).await?;
        Ok(self.ledger.operation(account, id).await?.map(|(_, record)| record))
    }
}
