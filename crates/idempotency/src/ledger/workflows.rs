//! Records of workflows and their journals: started, taken over, prolonged, journaled, finished.
//!
//! Knows which statement each of these is. Knows nothing of what a step does, and decides nothing. Invariant: every statement
//! here that changes a record or its journal compares the lease token, in that statement or in the one that locked the row
//! before it; what an executor without the lease sends changes nothing.

use tokio_postgres::Row;
use uuid::Uuid;

use super::transaction::Ahead;
use super::{Completed, Ended, Ledger, LedgerError, Transaction, read_record, status_word};
use crate::attempt::Attempt;
use crate::command::{Done, Effects};
use crate::database::{Param, Query, ReadError, generation_columns, generation_of};
use crate::key::{AccountId, IdempotencyKey};
use crate::record::{Record, Status};

/// The index that refuses a second running record of a serialised workflow.
pub(crate) const SERIAL_KEY: &str = "idempotency_records_serial";

const START_SQL: &str = include_str!("start.sql");
const TAKE_OVER_SQL: &str = include_str!("take_over.sql");
const STEP_SQL: &str = include_str!("step.sql");
const STEPS_SQL: &str = include_str!("steps.sql");
const STEP_DONE_SQL: &str = include_str!("step_done.sql");
const CALL_BEGUN_SQL: &str = include_str!("call_begun.sql");
const CALL_DONE_SQL: &str = include_str!("call_done.sql");
const CALL_NOT_MADE_SQL: &str = include_str!("call_not_made.sql");
const RENEW_SQL: &str = include_str!("renew.sql");
const GIVE_BACK_SQL: &str = include_str!("give_back.sql");
const BACKGROUND_SQL: &str = include_str!("background.sql");
const FINISH_SQL: &str = concat!(
    "WITH finished AS (",
    include_str!("finish.sql"),
    ") SELECT finished.*, ",
    generation_columns!(),
    " FROM finished"
);
const OPERATION_SQL: &str = concat!(
    "SELECT found.*, ",
    generation_columns!(),
    " FROM (",
    include_str!("operation.sql"),
    ") AS found"
);
/// The columns of [`OPERATION_SQL`] behind those of a record.
const OPERATION_KEY_AT: usize = 16;
const OPERATION_WHERE_AT: usize = 17;

/// An executor's hold of a record. The token is random and given once: whoever takes over has another one, and nothing that
/// carries the old one changes anything any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The operation: the id of the request that made the record.
    pub operation: Uuid,
    /// Compared by every statement.
    pub token: Uuid,
}

/// What kind of step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// A transaction.
    Atomic,
    /// A call outside of any.
    Foreign,
}

/// A line of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What the step was called by the code that did it.
    pub name: String,
    /// What it was.
    pub kind: StepKind,
    /// The key that a foreign call carries.
    pub derived_key: Option<String>,
    /// What came of it, as JSON; `None` for a call that is begun and not known to be answered.
    pub result: Option<Vec<u8>>,
}

impl Ledger {
    /// Commits the record of a workflow, in the transaction that entered its key.
    pub async fn start(
        &self,
        transaction: Transaction,
        attempt: &Attempt,
        (command, request): (&str, &[u8]),
        lease: Lease,
        background: bool,
    ) -> Ended<()> {
        let (account, key, path) = (attempt.account.0, attempt.key.as_str(), attempt.path.as_str());
        let (hash, version) =
            (attempt.asked.current.digest.to_vec(), i16::from(attempt.asked.current.version));
        let serial = attempt.serial;
        let insert = Query {
            sql: START_SQL,
            params: &[
                &account,
                &key,
                &path,
                &hash,
                &version,
                &lease.operation,
                &command,
                &request,
                &lease.token,
                &self.lease_ms,
                &serial,
                &background,
            ],
        };
        transaction
            .commit(attempt, Ahead::default(), insert, self.soon(), |_, rows| rows.first().map(|_| ()))
            .await
    }

    /// Takes a lease that has run out, in the transaction that entered its key, and says whether the work is stuck. `None`: somebody
    /// else has it.
    pub async fn take_over(
        &self,
        transaction: Transaction,
        attempt: &Attempt,
        last: Uuid,
        lease: Lease,
    ) -> Ended<Option<bool>> {
        let (account, key) = (attempt.account.0, attempt.key.as_str());
        let params: [&dyn Param; 6] =
            [&account, &key, &last, &lease.token, &self.lease_ms, &self.stuck_after_ms];
        let swap = Query { sql: TAKE_OVER_SQL, params: &params };
        let stuck = |rows: Vec<Row>| Some(rows.first().map(|row| row.get(0)));
        transaction.commit(attempt, Ahead::default(), swap, self.soon(), |_, rows| stuck(rows)).await
    }

    /// Opens a step's transaction: BEGIN and the compare on the token, one flight. `None`: another executor has the lease. BEGIN
    /// may fly with this one write: had it failed, the lease would only be prolonged, and the step not be begun.
    pub async fn open_step(
        &self,
        attempt: &Attempt,
        lease: Lease,
        fresh: bool,
    ) -> Result<Option<Transaction>, LedgerError> {
        let transaction = self.begin_with(fresh).await?;
        let (account, key) = (attempt.account.0, attempt.key.as_str());
        let params: [&dyn Param; 4] = [&account, &key, &lease.token, &self.lease_ms];
        let mine = Query { sql: STEP_SQL, params: &params };
        let opened = self
            .bounded(async {
                let connection = transaction.connection();
                self.database.ready(connection, mine).await?;
                let (begun, mine) = tokio::join!(
                    biased;
                    connection.batch_execute(self.database.begin()),
                    self.database.send(connection, mine),
                );
                begun?;
                Ok::<_, LedgerError>(!mine?.is_empty())
            })
            .await?;
        if opened {
            return Ok(Some(transaction));
        }
        transaction.rollback().await;
        Ok(None)
    }

    /// The journal, read under the record's lock: a step whose COMMIT was never answered is in it or never will be. `None`: another
    /// executor has the lease.
    pub async fn steps(
        &self,
        attempt: &Attempt,
        lease: Lease,
        fresh: bool,
    ) -> Result<Option<Vec<Step>>, LedgerError> {
        let Some(transaction) = self.open_step(attempt, lease, fresh).await? else { return Ok(None) };
        let (account, key) = (attempt.account.0, attempt.key.as_str());
        let query = Query { sql: STEPS_SQL, params: &[&account, &key] };
        let rows = self.bounded(async { Ok(transaction.run(query).await?) }).await?;
        transaction.rollback().await;
        Ok(Some(rows.iter().map(read_step).collect::<Result<_, _>>()?))
    }

    /// Events, the journal's line and COMMIT.
    pub async fn close_step(
        &self,
        transaction: Transaction,
        attempt: &Attempt,
        effects: &Effects,
        (position, name): (usize, &str),
        result: &[u8],
    ) -> Ended<()> {
        let (account, key, position) = (attempt.account.0, attempt.key.as_str(), place(position));
        let params: [&dyn Param; 5] = [&account, &key, &position, &name, &result];
        let line = Query { sql: STEP_DONE_SQL, params: &params };
        transaction
            .commit(attempt, Ahead::of(effects), line, self.soon(), |_, rows| rows.first().map(|_| ()))
            .await
    }

    /// Journals a foreign call before it is made. `false`: another executor has the lease.
    pub async fn call_begun(
        &self,
        attempt: &Attempt,
        lease: Lease,
        (position, name): (usize, &str),
        derived_key: &str,
    ) -> Result<bool, LedgerError> {
        let position = place(position);
        let more: [&dyn Param; 4] = [&self.lease_ms, &position, &name, &derived_key];
        self.write(attempt, lease, CALL_BEGUN_SQL, &more).await.map(|rows| !rows.is_empty())
    }

    /// Journals what came of a foreign call. `false`: another executor has the lease.
    pub async fn call_done(
        &self,
        attempt: &Attempt,
        lease: Lease,
        position: usize,
        result: &[u8],
    ) -> Result<bool, LedgerError> {
        let position = place(position);
        let more: [&dyn Param; 3] = [&self.lease_ms, &position, &result];
        self.write(attempt, lease, CALL_DONE_SQL, &more).await.map(|rows| !rows.is_empty())
    }

    /// Takes a begun call out of the journal again: it provably never left.
    pub async fn call_not_made(
        &self,
        attempt: &Attempt,
        lease: Lease,
        position: usize,
    ) -> Result<(), LedgerError> {
        let position = place(position);
        self.write(attempt, lease, CALL_NOT_MADE_SQL, &[&position]).await.map(|_| ())
    }

    /// The heartbeat.
    pub async fn renew(&self, attempt: &Attempt, lease: Lease) {
        if let Err(error) = self.write(attempt, lease, RENEW_SQL, &[&self.lease_ms]).await {
            tracing::debug!(%error, "a lease could not be renewed");
        }
    }

    /// Ends a lease so that anybody may go on. Says whether it is news that the outcome is unknown.
    pub async fn give_back(
        &self,
        attempt: &Attempt,
        lease: Lease,
        trouble: Option<&str>,
        unknown: bool,
    ) -> Result<bool, LedgerError> {
        let rows = self.write(attempt, lease, GIVE_BACK_SQL, &[&trouble, &unknown]).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    /// Notes that a caller is told 202. `false`: it is finished already.
    pub async fn in_background(&self, attempt: &Attempt, operation: Uuid) -> Result<bool, ReadError> {
        let account = attempt.account.0;
        self.database.read(BACKGROUND_SQL, &[&operation, &account]).await.map(|rows| !rows.is_empty())
    }

    /// The answer, the events of giving up if there are any, and COMMIT, in a transaction of [`open_step`](Self::open_step).
    pub async fn finish(
        &self,
        transaction: Transaction,
        attempt: &Attempt,
        lease: Lease,
        status: Status,
        work: &Done,
    ) -> Completed {
        let Done { reply, effects, .. } = work;
        let headers: Vec<&str> =
            reply.headers.iter().flat_map(|(name, value)| [name.as_ref(), value.as_ref()]).collect();
        let (account, key) = (attempt.account.0, attempt.key.as_str());
        let (word, code) = (status_word(status), i16::try_from(reply.status).unwrap_or(500));
        let body = work.kept.then_some(reply.body.as_slice());
        let record = Query {
            sql: FINISH_SQL,
            params: &[
                &account,
                &key,
                &lease.token,
                &word,
                &code,
                &headers,
                &body,
                &self.result_retention_ms,
                &self.key_retention_ms,
            ],
        };
        transaction.commit_answer(attempt, Ahead::of(effects), record, self.soon()).await
    }

    /// An operation of this account, with its key.
    pub async fn operation(
        &self,
        account: AccountId,
        operation: Uuid,
    ) -> Result<Option<(IdempotencyKey, Record)>, ReadError> {
        let rows = self.database.read(OPERATION_SQL, &[&operation, &account.0]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let record = read_record(row, generation_of(row, OPERATION_WHERE_AT)).map_err(ReadError::Database)?;
        Ok(Some((IdempotencyKey::stored(row.get(OPERATION_KEY_AT)), record)))
    }

    /// One statement on a record that is held. Behind a pooler it needs a transaction, which carries the limits and the
    /// durability; on a connection of our own it is one by itself.
    async fn write(
        &self,
        attempt: &Attempt,
        lease: Lease,
        sql: &'static str,
        more: &[&dyn Param],
    ) -> Result<Vec<Row>, LedgerError> {
        let (account, key) = (attempt.account.0, attempt.key.as_str());
        let mut params: Vec<&dyn Param> = vec![&account, &key, &lease.token];
        params.extend_from_slice(more);
        if self.database.connections_are_direct() {
            return self.database.run_once(sql, &params, false).await.map_err(|error| match error {
                ReadError::NoConnection(error) => LedgerError::NoConnection(error),
                ReadError::Database(error) => LedgerError::Database(error),
                ReadError::TimedOut => LedgerError::TimedOut,
            });
        }
        let transaction = self.begin_with(false).await?;
        let begun = async { Ok(transaction.connection().batch_execute(self.database.begin()).await?) };
        self.bounded(begun).await?;
        let query = Query { sql, params: &params };
        match transaction.commit(attempt, Ahead::default(), query, self.soon(), |_, rows| Some(rows)).await {
            Ended::Committed(rows) => Ok(rows),
            Ended::RolledBack(error) => Err(LedgerError::Database(error)),
            Ended::Unknown => Err(LedgerError::TimedOut),
        }
    }
}

fn place(position: usize) -> i32 {
    i32::try_from(position).unwrap_or(i32::MAX)
}

/// Reads a row of `steps.sql`.
fn read_step(row: &Row) -> Result<Step, tokio_postgres::Error> {
    let kind = if row.try_get::<_, &str>(2)? == "foreign" { StepKind::Foreign } else { StepKind::Atomic };
    Ok(Step { name: row.try_get(1)?, kind, derived_key: row.try_get(4)?, result: row.try_get(5)? })
}
