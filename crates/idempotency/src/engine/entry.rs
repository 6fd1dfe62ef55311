//! What stands in an attempt's way: what Redis says, the key's lock, the record.
//!
//! Knows the order in which the two stores are asked. Invariant: Redis may refuse or replay; only PostgreSQL admits.

use super::{After, Engine, Run, unavailable};
use crate::answer::{Answer, Tier};
use crate::attempt::Attempt;
use crate::command::OpeningRead;
use crate::gate::{Acquired, Claim};
use crate::ledger::{Entered, Flown, Transaction};
use crate::record::{Record, Verdict, decide};

impl Engine {
    /// Redis first: it may refuse or replay. Whatever it does not know, PostgreSQL decides.
    pub(super) async fn acquire(&self, attempt: &Attempt) -> Result<Claim, Answer> {
        let said = self.gate.acquire(attempt, Claim::asked()).await;
        self.heard(attempt, said).await
    }

    /// What Redis said, as a claim to go on with or an answer.
    pub(super) async fn heard(&self, attempt: &Attempt, said: Acquired) -> Result<Claim, Answer> {
        Err(match said {
            Acquired::Proceed(claim) => return Ok(claim),
            Acquired::Done(finished) if finished.kept => Answer::Replay { finished, tier: Tier::Hit },
            Acquired::Done(finished) => Answer::AlreadyCompleted { location: finished.location() },
            Acquired::OtherDone => Answer::Reused,
            Acquired::Running => Answer::InProgress,
            Acquired::Background(operation) => Answer::Accepted { operation },
            Acquired::CallerBusy => Answer::CallerBusy,
            Acquired::OtherRunning => Box::pin(self.judge_impostor(attempt)).await,
        })
    }

    /// Redis says that another request is running under this key. If a record says that this request was done, the runner
    /// will lose; so the record is looked up (one round trip, no lock) before the caller is told 422.
    pub(super) async fn judge_impostor(&self, attempt: &Attempt) -> Answer {
        match self.ledger.look(attempt).await {
            Ok(None) => Answer::Reused,
            Ok(Some(record)) => match decide(Some(&record), &attempt.asked) {
                Verdict::Execute { .. } => Answer::Reused,
                verdict => self.decided(attempt, Claim::none(), Some(&record), verdict).await.0,
            },
            Err(error) => unavailable(&error),
        }
    }

    /// Takes the key's lock, or answers with what stands in the way. Only PostgreSQL admits.
    pub(super) async fn enter(
        &self,
        attempt: &Attempt,
        claim: Claim,
        opening: Option<&OpeningRead>,
        fresh: bool,
    ) -> Result<(Transaction, Flown), Run> {
        let entered =
            self.ledger.enter(attempt, opening, fresh).await.map_err(|error| self.not_begun(&error))?;
        self.admit(attempt, claim, entered).await
    }

    /// Lets an attempt execute, or answers with what stands in the way.
    pub(super) async fn admit(
        &self,
        attempt: &Attempt,
        claim: Claim,
        entered: Entered,
    ) -> Result<(Transaction, Flown), Run> {
        let Entered { locked, alone, record, flown, transaction } = entered;
        match decide(record.as_ref(), &attempt.asked) {
            Verdict::Execute { .. } if locked && !alone => {
                transaction.rollback().await;
                Err(Run::Answered(Answer::CallerBusy, After::Release))
            }
            Verdict::Execute { forget } if locked => {
                if forget && let Err(error) = self.ledger.forget(&transaction, attempt).await {
                    return Err(self.not_begun(&error));
                }
                Ok((transaction, flown))
            }
            verdict => {
                // A record decides whoever holds the lock: it is committed and does not change.
                let decided = self.decided(attempt, claim, record.as_ref(), verdict);
                let ((answer, after), ()) = tokio::join!(decided, transaction.rollback());
                Err(Run::Answered(answer, after))
            }
        }
    }

    /// The answer that a record gives; a replay refills Redis.
    pub(super) async fn decided(
        &self,
        attempt: &Attempt,
        claim: Claim,
        record: Option<&Record>,
        verdict: Verdict,
    ) -> (Answer, After) {
        match (verdict, record) {
            (Verdict::Replay(finished), Some(record)) => {
                self.gate.refill(attempt, claim, record, &finished).await;
                (Answer::Replay { finished, tier: Tier::Miss }, After::Settled)
            }
            (Verdict::Spent { location }, _) => (Answer::AlreadyCompleted { location }, After::Release),
            (Verdict::Reused, _) => (Answer::Reused, After::Release),
            (Verdict::Background, Some(record)) => {
                (Answer::Accepted { operation: record.request_id }, After::Release)
            }
            (Verdict::Unknown, Some(record)) => {
                (Answer::OutcomeUnknown { operation: record.request_id }, After::Release)
            }
            // Not ours to run: the lock is held (Redis had forgotten a running first), or somebody else is at it.
            _ => (Answer::InProgress, After::Release),
        }
    }
}
