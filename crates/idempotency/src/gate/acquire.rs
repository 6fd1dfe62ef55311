//! Taking the place of a key, or hearing what holds it.
//!
//! Knows what `acquire.lua` says. Invariant: what is not certainly the answer to this request, or certainly another's, goes on to
//! PostgreSQL.

use std::time::Instant;

use deadpool_redis::redis::Value;
use uuid::Uuid;

use super::line::{Ask, Script};
use super::{Claim, Fault, Gate, Hold, identity};
use crate::attempt::Attempt;
use crate::reply::Finished;
use crate::telemetry;
use crate::value;

/// What Redis says about a key.
#[derive(Debug)]
pub enum Acquired {
    /// Go on to PostgreSQL: the place was free, or Redis cannot say.
    Proceed(Claim),
    /// The first one is running, with the same request.
    Running,
    /// It runs in the background, with the same request, as this operation.
    Background(Uuid),
    /// The first one is running with another request, if it is not an impostor.
    OtherRunning,
    /// The first one was done with another request.
    OtherDone,
    /// Another operation of this caller is running.
    CallerBusy,
    /// The first answer, or where its result is.
    Done(Finished),
}

impl Gate {
    /// Takes the place of the attempt's key under the token of `asked`, or says what holds it. One round trip; two if the key was stormed
    /// and is no longer what it was.
    pub async fn acquire(&self, attempt: &Attempt, asked: Claim) -> Acquired {
        let token = asked.token;
        let proceed = |hold| Acquired::Proceed(Claim { token, hold });
        // Without a generation no value can be believed, and taking the place would destroy a good one.
        let Some(generation) = self.generation.get() else { return proceed(Hold::Nothing) };
        let mut wanted = value::wanted(&identity(attempt, generation));
        wanted.extend_from_slice(&token.0);
        wanted.extend_from_slice(self.lease_ms.as_bytes());
        let slot = self.stormed.slot(&attempt.redis_names()[0]);
        if self.stormed.has(slot) {
            match self.read(attempt, &wanted[..value::WANTED_LEN]).await {
                Ok(Some(finished)) => return Acquired::Done(finished),
                Ok(None) => self.stormed.forget(slot),
                // It is not asked a second time; nothing was taken.
                Err(_) => return proceed(Hold::Nothing),
            }
        }
        let began = Instant::now();
        let answer = self.call(Script::Acquire, attempt, &[&wanted]).await;
        telemetry::took("acquire", began);
        match answer {
            Ok(Value::BulkString(said)) => match said.as_slice() {
                b"F" => proceed(Hold::Place),
                b"R" => Acquired::Running,
                b"MR" => Acquired::OtherRunning,
                b"L" => Acquired::CallerBusy,
                b"B" | b"U" => proceed(Hold::Nothing),
                value => match (value::operation(value), judge(attempt, value)) {
                    (Some(operation), _) => Acquired::Background(operation),
                    (None, Some(judged)) => {
                        if let Acquired::Done(_) = judged {
                            self.stormed.replayed(slot);
                        }
                        judged
                    }
                    (None, None) => proceed(Hold::Nothing),
                },
            },
            Ok(_) => proceed(Hold::Nothing),
            Err(Fault::Lost(_)) => proceed(Hold::Perhaps),
            Err(Fault::NotSent(_) | Fault::Refused(_)) => proceed(Hold::Nothing),
        }
    }

    /// The answer to this request, if that is what Redis holds.
    async fn read(&self, attempt: &Attempt, wanted: &[u8]) -> Result<Option<Finished>, Fault> {
        let began = Instant::now();
        let held = self.ask(Ask::Plain(&["GET", &attempt.redis_names()[0]])).await;
        telemetry::took("acquire", began);
        Ok(match held? {
            Value::BulkString(held) if held.starts_with(wanted) => {
                value::finished(&held, attempt.account, &attempt.key)
            }
            _ => None,
        })
    }
}

/// What a value says that the script handed out: a done one, or a running one of another fingerprint version. Nothing, if it is not whole:
/// then it was done by somebody else than this service.
fn judge(attempt: &Attempt, value: &[u8]) -> Option<Acquired> {
    let contradicts = attempt.asked.contradicts(&value::fingerprint(value)?);
    if value.get(1) == Some(&b'R') {
        return Some(if contradicts { Acquired::OtherRunning } else { Acquired::Running });
    }
    if contradicts && value::is_marker(value, &attempt.key) {
        return Some(Acquired::OtherDone);
    }
    let finished = value::finished(value, attempt.account, &attempt.key)?;
    Some(if contradicts { Acquired::OtherDone } else { Acquired::Done(finished) })
}
