//! What an operator sees of a key, and may decide about it.
//!
//! Knows records, journals and locks; asks no other service. Invariants: nothing is taken from whoever may still be running; a decision
//! about an unknown outcome is kept with its reason, in the transaction that it changes the journal in.

mod comparison;

use serde_json::Value;
use tokio_postgres::Row;

use crate::attempt::Attempt;
use crate::database::{Database, Held, Param, Query, ReadError};
use crate::key::{AccountId, IdempotencyKey};
use crate::ledger::lock_key;

const SHOW_SQL: &str = include_str!("ledger/show.sql");
const STUCK_SQL: &str = include_str!("ledger/stuck.sql");
const DECIDE_SQL: &str = include_str!("ledger/decide.sql");
const RESOLVE_DONE_SQL: &str = include_str!("ledger/resolve_done.sql");
const RESOLVE_ABSENT_SQL: &str = include_str!("ledger/resolve_absent.sql");
const RELEASE_SQL: &str = include_str!("ledger/release.sql");
const AUDIT_SQL: &str = include_str!("ledger/audit.sql");
const SETTLED_SQL: &str = include_str!("ledger/settled.sql");
const LOCK_SQL: &str = include_str!("ledger/lock.sql");

pub use comparison::Comparison;

/// Most records that are listed.
const STUCK_MAX: i64 = 1000;

/// What an operator decides about a foreign call whose outcome nobody knows.
#[derive(Debug, Clone)]
pub enum Decision {
    /// It was done, and this came of it: what the call would have returned, as JSON.
    Done(Value),
    /// It was not done, and will not be: it may be called again, with the same derived key.
    Absent,
}

impl Decision {
    fn word(&self) -> &'static str {
        match self {
            Self::Done(_) => "done",
            Self::Absent => "absent",
        }
    }
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The database could not be asked.
    #[error(transparent)]
    Database(#[from] ReadError),
    /// It would not be right; why.
    #[error("{0}")]
    Refused(String),
}

/// The operator's side of the ledger.
#[derive(Debug)]
pub struct Operator {
    database: Database,
}

impl Operator {
    /// Over a database.
    pub fn new(database: Database) -> Self {
        Self { database }
    }

    /// The record of a key, with its journal and the decisions about it, as JSON; without the request and the answer's body.
    ///
    /// # Errors
    /// [`OperatorError::Database`].
    pub async fn show(
        &self,
        account: AccountId,
        key: &IdempotencyKey,
    ) -> Result<Option<Value>, OperatorError> {
        let rows = self.database.read(SHOW_SQL, &[&account.0, &key.as_str()]).await?;
        Ok(rows.first().and_then(json))
    }

    /// Records that wait for an operator: an unknown outcome, something that stands in the way, no progress for `stuck_ms`.
    ///
    /// # Errors
    /// [`OperatorError::Database`].
    pub async fn stuck(&self, stuck_ms: i64) -> Result<Vec<Value>, OperatorError> {
        let rows = self.database.read(STUCK_SQL, &[&stuck_ms, &STUCK_MAX]).await?;
        Ok(rows.iter().filter_map(json).collect())
    }

    /// Settles the foreign call that a record waits for. Done: its result is journaled. Absent: it is taken out of the journal. Either
    /// way somebody goes on with the record at once.
    ///
    /// # Errors
    /// [`OperatorError::Refused`] unless the record is running, has such a call, and nobody holds its lease.
    pub async fn resolve(
        &self,
        account: AccountId,
        key: &IdempotencyKey,
        decision: &Decision,
        reason: &str,
    ) -> Result<(), OperatorError> {
        if reason.trim().is_empty() {
            return Err(OperatorError::Refused("a reason is needed".to_owned()));
        }
        let key = key.as_str();
        self.in_transaction(async |held| {
            let decide = Query { sql: DECIDE_SQL, params: &[&account.0, &key] };
            let rows = self.database.run(held, decide).await?;
            let Some(row) = rows.first() else {
                return Ok(Err("no workflow is running under this key".to_owned()));
            };
            let (is_free, position): (bool, Option<i32>) = (row.get(0), row.get(1));
            let Some(position) = position else {
                return Ok(Err("no foreign call of it is without an answer".to_owned()));
            };
            if !is_free {
                return Ok(Err("somebody is working on it now; look again in a moment".to_owned()));
            }
            let result = match decision {
                Decision::Done(result) => Some(result.to_string().into_bytes()),
                Decision::Absent => None,
            };
            let (word, place): (&str, &dyn Param) = (decision.word(), &position);
            let audit = Query { sql: AUDIT_SQL, params: &[&account.0, &key, place, &word, &reason, &result] };
            let params: [&dyn Param; 4] = [&account.0, &key, place, &result];
            let change = match decision {
                Decision::Done(_) => Query { sql: RESOLVE_DONE_SQL, params: &params },
                Decision::Absent => Query { sql: RESOLVE_ABSENT_SQL, params: &params[..3] },
            };
            let settled = Query { sql: SETTLED_SQL, params: &[&account.0, &key] };
            for query in [audit, change, settled] {
                self.database.run(held, query).await?;
            }
            Ok(Ok(()))
        })
        .await
    }

    /// Frees a key under which nothing was done: deletes the record of a workflow that nobody runs and that has no step. A key without a
    /// record is left as it is, if nobody is at work under it.
    ///
    /// # Errors
    /// [`OperatorError::Refused`] if somebody runs, or something was done.
    pub async fn release(&self, account: AccountId, key: &IdempotencyKey) -> Result<(), OperatorError> {
        let lock = lock_key(&Attempt::inquiry(account, key.clone()));
        let key = key.as_str();
        self.in_transaction(async |held| {
            let locked = self.database.run(held, Query { sql: LOCK_SQL, params: &[&lock] }).await?;
            if !locked.first().is_some_and(|row| row.get(0)) {
                return Ok(Err("a transaction is running under this key".to_owned()));
            }
            let rows =
                self.database.run(held, Query { sql: RELEASE_SQL, params: &[&account.0, &key] }).await?;
            Ok(match rows.first().map(|row| row.get::<_, &str>(0)) {
                None | Some("released") => Ok(()),
                Some(why) => Err(why.to_owned()),
            })
        })
        .await
    }

    /// Commits what the work has written, unless it says why not.
    async fn in_transaction(
        &self,
        work: impl AsyncFnOnce(&Held) -> Result<Result<(), String>, tokio_postgres::Error>,
    ) -> Result<(), OperatorError> {
        let connection = self.database.connection(false).await.map_err(ReadError::NoConnection)?;
        let held = Held::new(connection);
        let all = async {
            held.batch_execute(self.database.begin()).await?;
            let outcome = work(&held).await?;
            held.batch_execute(if outcome.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
            Ok(outcome)
        };
        match tokio::time::timeout(self.database.statement_timeout, all).await {
            Ok(Ok(outcome)) => {
                held.give_back();
                outcome.map_err(OperatorError::Refused)
            }
            Ok(Err(error)) => Err(ReadError::Database(error).into()),
            Err(_) => Err(ReadError::TimedOut.into()),
        }
    }
}

fn json(row: &Row) -> Option<Value> {
    serde_json::from_str(row.get(0)).ok()
}
