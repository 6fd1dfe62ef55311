//! The end of a transaction: undone, or completed with its record, or not known.
//!
//! Knows what each answer of the server means for what was written. Crash contract: once [`Transaction::complete`] says
//! [`Completed::Committed`], record, business rows and events are durable; at [`Completed::RolledBack`] none of them is; at
//! [`Completed::Unknown`] only [`Ledger::resolve`] can tell. Invariant: a connection that may still be in a transaction
//! never goes back to the pool.

use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::future::{MaybeDone, join_all, maybe_done};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_postgres::{NoTls, Row};

use super::{
    INSERT_SAYING_WHERE_SQL, INSERT_SQL, LOOKUP_WHERE_AT, Ledger, LedgerError, ms, read_record, status_word,
};
use crate::attempt::Attempt;
use crate::command::{Done, LastWrite};
use crate::database::{Database, Object, Query, discard, generation_behind};
use crate::generation::Generation;
use crate::record::{Record, Status};
use crate::sqlstate;

/// How long ROLLBACK and the cancelling of a statement may take before the connection is given up.
const ROLLBACK_MAX: Duration = Duration::from_secs(1);

/// How a transaction ended.
pub enum Completed {
    /// BEGIN, the record's INSERT and COMMIT all succeeded.
    Committed {
        /// Until when the answer is replayed, ms since 1970.
        expires_ms: i64,
        /// The server that committed.
        generation: Generation,
    },
    /// Definitely not committed, and why.
    RolledBack(tokio_postgres::Error),
    /// COMMIT was sent and its answer never came.
    Unknown,
}

/// A transaction that was begun by hand. Dropped unfinished (an early return, a cancelled future, a panic), its
/// connection is discarded: no recycling method would notice the open transaction.
pub struct Transaction {
    connection: Option<Object>,
    database: Database,
}

impl Transaction {
    /// On a connection that will be, or just was, told to begin.
    pub(super) fn on(connection: Object, database: Database) -> Self {
        Self { connection: Some(connection), database }
    }

    pub(super) fn connection(&self) -> &Object {
        self.connection.as_ref().expect("the connection leaves only together with the transaction")
    }

    /// The record among the rows of the look-up.
    pub(super) fn read_record(&self, found: &[Row]) -> Result<Option<Record>, LedgerError> {
        let read = |row| read_record(row, generation_behind(self.connection(), row, LOOKUP_WHERE_AT));
        Ok(found.first().map(read).transpose()?)
    }

    /// Runs one statement.
    pub async fn run(&self, query: Query<'_>) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.database.run(self.connection(), query).await
    }

    /// Runs several statements in one flight.
    pub async fn run_all(&self, queries: &[Query<'_>]) -> Result<Vec<Vec<Row>>, tokio_postgres::Error> {
        self.database.run_all(self.connection(), queries).await
    }

    /// Undoes everything; the connection is kept if the server says so in time.
    pub async fn rollback(mut self) {
        let Some(connection) = self.connection.take() else { return };
        match tokio::time::timeout(ROLLBACK_MAX, connection.batch_execute("ROLLBACK")).await {
            Ok(Ok(())) => drop(connection),
            _ => discard(connection),
        }
    }

    /// Undoes everything although a statement may be under way: it is cancelled, and the rollback waited for, so that a retry
    /// finds the key free. The connection is never used again: a cancel that comes late would meet somebody else's BEGIN.
    pub async fn abandon(mut self) {
        let Some(connection) = self.connection.take() else { return };
        let cancel = connection.cancel_token();
        let _ = tokio::time::timeout(ROLLBACK_MAX, cancel.cancel_query(NoTls)).await;
        let _ = tokio::time::timeout(ROLLBACK_MAX, connection.batch_execute("ROLLBACK")).await;
        drop(Object::take(connection));
    }

    /// Last writes, events, record and COMMIT in one flight. The statements are the check: if one fails, COMMIT only reports
    /// the rollback. The statements may run until `deadline`; then they are cancelled. COMMIT is awaited for the statement
    /// time-out.
    pub async fn complete(
        mut self,
        ledger: &Ledger,
        attempt: &Attempt,
        status: Status,
        work: &Done,
        deadline: Instant,
    ) -> Completed {
        let Some(connection) = self.connection.take() else { return Completed::Unknown };
        let flight = send_completion(&self, &connection, ledger, attempt, status, work, deadline);
        let outcome = flight.await;
        match &outcome {
            Completed::Committed { generation, .. } => self.database.generation.set(*generation),
            // The server tells the error before it lets the locks go: one more answer, so that a retry finds the key free.
            Completed::RolledBack(error) if !error.is_closed() => {
                self.connection = Some(connection);
                self.rollback().await;
            }
            Completed::RolledBack(_) | Completed::Unknown => drop(Object::take(connection)),
        }
        outcome
    }
}

async fn send_completion(
    transaction: &Transaction,
    connection: &Object,
    ledger: &Ledger,
    attempt: &Attempt,
    status: Status,
    work: &Done,
    deadline: Instant,
) -> Completed {
    let database = &transaction.database;
    let Done { reply, events, last, .. } = work;
    let outbox = crate::outbox::Columns::of(attempt.account, events);
    let headers: Vec<&str> =
        reply.headers.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]).collect();
    let (account, key, path) = (attempt.account.0, attempt.key.as_str(), attempt.path.as_str());
    let (hash, version) = (attempt.asked.current.digest.to_vec(), i16::from(attempt.asked.current.version));
    let (word, code) = (status_word(status), i16::try_from(reply.status).unwrap_or(500));
    let body = work.kept.then_some(reply.body.as_slice());
    let record = Query {
        sql: if database.connections_are_direct() { INSERT_SQL } else { INSERT_SAYING_WHERE_SQL },
        params: &[
            &account,
            &key,
            &path,
            &hash,
            &version,
            &attempt.request_id,
            &word,
            &code,
            &headers,
            &body,
            &ledger.result_retention_ms,
            &ledger.key_retention_ms,
        ],
    };
    let outbox_params = outbox.params();
    let events_query = Query { sql: crate::outbox::INSERT_SQL, params: &outbox_params };
    let last_params: Vec<_> = last.iter().map(LastWrite::params).collect();
    let mut queries: Vec<_> =
        last.iter().zip(&last_params).map(|(write, params)| write.query(params)).collect();
    if !events.is_empty() {
        queries.push(events_query);
    }
    queries.push(record);
    for query in &queries {
        if let Err(refused) = database.ready(connection, *query).await {
            return Completed::RolledBack(refused);
        }
    }
    // The first poll sends. A statement that could not even be sent must not be followed by COMMIT.
    let mut sent: Vec<_> =
        queries.iter().map(|query| Box::pin(maybe_done(database.send(connection, *query)))).collect();
    for statement in &mut sent {
        if let Some(refused) = poll_once(statement.as_mut()) {
            return Completed::RolledBack(refused);
        }
    }
    let statements = async {
        let answered = join_all(sent.iter_mut().map(Pin::as_mut));
        let mut answered = pin!(answered);
        if tokio::time::timeout_at(deadline, answered.as_mut()).await.is_err() {
            let cancel = connection.cancel_token();
            let _ = tokio::time::timeout(ROLLBACK_MAX, cancel.cancel_query(NoTls)).await;
            let _ = tokio::time::timeout(ROLLBACK_MAX, answered).await;
        }
    };
    let over = Notify::new();
    let statements = async {
        statements.await;
        over.notify_one();
    };
    let committing = async {
        tokio::select! {
            biased;
            committed = connection.batch_execute("COMMIT") => Some(committed),
            // Only COMMIT's own time counts: what flies before it has limits of its own.
            () = async { over.notified().await; tokio::time::sleep(database.statement_timeout).await } => None,
        }
    };
    let ((), committed) = tokio::join!(biased; statements, committing);
    let Some(committed) = committed else { return Completed::Unknown };
    let Some(answers) =
        sent.iter_mut().map(|statement| statement.as_mut().take_output()).collect::<Option<Vec<_>>>()
    else {
        return Completed::Unknown;
    };
    // A definite refusal before COMMIT means that COMMIT rolled back; a dead connection says nothing.
    if answers.iter().any(|answer| answer.as_ref().is_err_and(|error| error.as_db_error().is_none())) {
        return Completed::Unknown;
    }
    let inserted = match answers.into_iter().collect::<Result<Vec<_>, _>>() {
        // The first of them; those behind it only say that the transaction is aborted.
        Err(refused) => return Completed::RolledBack(refused),
        Ok(answers) => answers.into_iter().next_back().unwrap_or_default(),
    };
    match committed {
        Err(error) if sqlstate::leaves_commit_open(&error) => Completed::Unknown,
        Err(refused) => Completed::RolledBack(refused),
        Ok(()) => match inserted.first() {
            Some(row) => Completed::Committed {
                expires_ms: ms(row.get(0)),
                generation: generation_behind(connection, row, 1),
            },
            None => Completed::Unknown,
        },
    }
}

/// Polls a statement for the first time, which sends it; an error already now means that nothing was sent.
fn poll_once<F>(mut statement: Pin<&mut MaybeDone<F>>) -> Option<tokio_postgres::Error>
where
    F: Future<Output = Result<Vec<Row>, tokio_postgres::Error>>,
{
    let polled = statement.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    if polled.is_pending() || statement.as_mut().output_mut().is_some_and(|answer| answer.is_ok()) {
        return None;
    }
    statement.take_output().and_then(Result::err)
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            discard(connection);
        }
    }
}
