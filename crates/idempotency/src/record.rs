//! The record of a key, and what an attempt may do about it: the truth table.
//!
//! Pure: no store, no clock (the database's time comes with the row). Invariant: [`decide`] is total, and only an
//! absent record, or one past its key retention, lets an attempt execute.

use crate::fingerprint::{Asked, Fingerprint};
use crate::generation::Generation;
use crate::reply::Finished;

/// How far the work under a key has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Work that spans transactions has begun. Never expires.
    InProgress,
    /// Committed with its effect.
    Completed,
    /// A definite no, stored.
    Failed,
}

/// A row of `idempotency_records`, with the database's clock at the time of reading.
#[derive(Debug, Clone)]
pub struct Record {
    /// What the first attempt asked for.
    pub fingerprint: Fingerprint,
    /// How far it has come.
    pub status: Status,
    /// The stored answer; `None` while in progress.
    pub finished: Option<Finished>,
    /// Until when the key counts as used, ms since 1970.
    pub key_expires_ms: i64,
    /// The database's time when the row was read, ms since 1970.
    pub now_ms: i64,
    /// The server that the row was read from.
    pub generation: Generation,
}

impl Record {
    /// Whether it is past its key retention, and so counts as absent.
    pub fn is_forgotten(&self) -> bool {
        self.status != Status::InProgress && self.key_expires_ms <= self.now_ms
    }
}

/// What follows from a record for one attempt.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No record, or one that is past its key retention (`forget` it first): the attempt may execute.
    Execute {
        /// Whether an expired row is in the way.
        forget: bool,
    },
    /// Another request used this key.
    Reused,
    /// The first one is still running.
    InProgress,
    /// The first answer, again.
    Replay(Finished),
    /// Done, but the answer is not kept, or no longer.
    Spent {
        /// Where the result is, if the first answer said so.
        location: Option<String>,
    },
}

/// The truth table, in the order of the contract: expiry of the key, fingerprint, running, replay.
pub fn decide(record: Option<&Record>, asked: &Asked) -> Verdict {
    let Some(record) = record else { return Verdict::Execute { forget: false } };
    if record.is_forgotten() {
        return Verdict::Execute { forget: true };
    }
    if asked.contradicts(&record.fingerprint) {
        return Verdict::Reused;
    }
    match (&record.status, &record.finished) {
        (Status::InProgress, _) | (_, None) => Verdict::InProgress,
        (Status::Completed | Status::Failed, Some(finished)) => {
            if finished.kept && record.now_ms < finished.expires_ms {
                Verdict::Replay(finished.clone())
            } else {
                Verdict::Spent { location: finished.location() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::StoredReply;

    const NOW: i64 = 1_000_000;

    fn answered(kept: bool, left: i64) -> Finished {
        let reply = StoredReply {
            status: 201,
            headers: vec![("location".into(), "/v1/x".into())],
            body: b"{}".to_vec(),
        };
        Finished { reply, kept, request_id: uuid::Uuid::nil(), expires_ms: NOW + left }
    }

    /// Every combination of status, fingerprint, result horizon, key horizon and presence of the body.
    #[test]
    fn the_table_is_total_and_in_the_order_of_the_contract() {
        let asked = Asked::compute("POST", "/", "c", b"{}");
        let other = Asked::compute("POST", "/", "c", b"{1}");
        assert_eq!(decide(None, &asked), Verdict::Execute { forget: false });
        for status in [Status::InProgress, Status::Completed, Status::Failed] {
            for same in [true, false] {
                for result_left in [-1, 0, 1] {
                    for key_left in [-1, 0, 1] {
                        for kept in [true, false] {
                            let record = Record {
                                fingerprint: if same { asked.current } else { other.current },
                                status,
                                finished: (status != Status::InProgress).then(|| answered(kept, result_left)),
                                key_expires_ms: NOW + key_left,
                                now_ms: NOW,
                                generation: Generation(1),
                            };
                            let finished = status != Status::InProgress;
                            let expected = if finished && key_left <= 0 {
                                Verdict::Execute { forget: true }
                            } else if !same {
                                Verdict::Reused
                            } else if !finished {
                                Verdict::InProgress
                            } else if kept && result_left > 0 {
                                Verdict::Replay(answered(kept, result_left))
                            } else {
                                Verdict::Spent { location: Some("/v1/x".to_owned()) }
                            };
                            assert_eq!(decide(Some(&record), &asked), expected, "{record:?}");
                        }
                    }
                }
            }
        }
    }
}
