//! The record of a key, and what an attempt may do about it: the truth table.
//!
//! Pure: no store, no clock (the database's time comes with the row). Invariant: [`decide`] is total, and only an
//! absent record, or one past its key retention, lets an attempt execute.

use crate::fingerprint::{Asked, Fingerprint};
use crate::generation::Generation;
use crate::reply::Finished;
use uuid::Uuid;

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
    /// The request that the record was made by; of a workflow, the id of its operation.
    pub request_id: Uuid,
    /// What else is known of a workflow.
    pub workflow: Option<Workflow>,
    /// Until when the key counts as used, ms since 1970.
    pub key_expires_ms: i64,
    /// The database's time when the row was read, ms since 1970.
    pub now_ms: i64,
    /// The server that the row was read from.
    pub generation: Generation,
}

impl Record {
    /// Whether nothing will happen to it by itself: it is finished, or waits for an operator.
    pub fn is_settled(&self) -> bool {
        self.status != Status::InProgress || self.workflow.is_some_and(|workflow| workflow.unknown)
    }

    /// Whether it is past its key retention, and so counts as absent.
    pub fn is_forgotten(&self) -> bool {
        self.status != Status::InProgress && self.key_expires_ms <= self.now_ms
    }
}

/// The columns that only workflows have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workflow {
    /// Who runs it: compared by every statement that changes the record. `None` once finished.
    pub token: Option<Uuid>,
    /// Whether nobody has renewed the lease in time, by the database's clock.
    pub lease_is_over: bool,
    /// How often somebody began or went on with it.
    pub attempts: i32,
    /// Whether a caller was told 202.
    pub background: bool,
    /// Whether the outcome of a foreign call is not known.
    pub unknown: bool,
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
    /// A workflow that nobody runs any more: the attempt may go on with it, if it takes the lease with this token.
    Resume {
        /// The token that the lease was last held with.
        token: Uuid,
        /// Whether a caller was told 202, and so are the next ones.
        background: bool,
    },
    /// A workflow that runs in the background.
    Background,
    /// A workflow that waits for an operator: nobody knows what became of a foreign call.
    Unknown,
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
        (Status::InProgress, _) | (_, None) => match record.workflow {
            Some(Workflow { unknown: true, .. }) => Verdict::Unknown,
            Some(Workflow { lease_is_over: true, token: Some(token), background, .. }) => {
                Verdict::Resume { token, background }
            }
            Some(Workflow { background: true, .. }) => Verdict::Background,
            _ => Verdict::InProgress,
        },
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
                                request_id: Uuid::nil(),
                                workflow: None,
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

    /// A running workflow: unknown wins over everything, then a lease that is over, then whether a 202 was given.
    #[test]
    fn of_a_running_workflow_the_lease_decides() {
        let asked = Asked::compute("POST", "/", "c", b"{}");
        let other = Asked::compute("POST", "/", "c", b"{1}");
        let token = Uuid::from_u128(7);
        for case in 0..16_u8 {
            let [same, unknown, lease_is_over, background] = [1, 2, 4, 8].map(|bit| case & bit != 0);
            let record = Record {
                request_id: Uuid::nil(),
                workflow: Some(Workflow {
                    token: Some(token),
                    lease_is_over,
                    attempts: 1,
                    background,
                    unknown,
                }),
                fingerprint: if same { asked.current } else { other.current },
                status: Status::InProgress,
                finished: None,
                key_expires_ms: 0,
                now_ms: NOW,
                generation: Generation(1),
            };
            let expected = match (same, unknown, lease_is_over, background) {
                (false, ..) => Verdict::Reused,
                (_, true, ..) => Verdict::Unknown,
                (_, _, true, background) => Verdict::Resume { token, background },
                (.., true) => Verdict::Background,
                (.., false) => Verdict::InProgress,
            };
            assert_eq!(decide(Some(&record), &asked), expected, "{record:?}");
        }
    }
}
