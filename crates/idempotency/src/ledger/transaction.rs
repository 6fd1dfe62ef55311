//! The end of a transaction: undone, or completed with its record, or not known.
//!
//! Knows what each answer of the server means for what was written. Crash contract: once [`Transaction::complete`] says
//! [`Ended::Committed`], record, business rows and events are durable; at [`Ended::RolledBack`] none of them is; at
//! [`Ended::Unknown`] only [`Ledger::resolve`] can tell. Invariant: a connection that may still be in a transaction
//! never goes back to the pool.

use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::future::{MaybeDone, join_all, maybe_done};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_postgres::{NoTls, Row};

use super::{
    INSERT_SAYING_WHERE_SQL, INSERT_SQL, INSERT_WITH_EVENTS_SQL, LOOKUP_WHERE_AT, Ledger, LedgerError, ms,
    read_record, status_word,
};
use crate::attempt::Attempt;
use crate::command::{Done, Effects, LastWrite};
use crate::database::{Database, Object, Param, Query, discard, generation_behind};
use crate::generation::Generation;
use crate::outbox::Event;
use crate::record::{Record, Status};
use crate::sqlstate;

/// How long ROLLBACK and the cancelling of a statement may take before the connection is given up.
const ROLLBACK_MAX: Duration = Duration::from_secs(1);

/// How a transaction ended.
pub enum Ended<T> {
    /// BEGIN, every statement and COMMIT succeeded.
    Committed(T),
    /// Definitely not committed, and why.
    RolledBack(tokio_postgres::Error),
    /// COMMIT was sent and its answer never came.
    Unknown,
}

/// What is known of an answer once it is committed.
#[derive(Debug, Clone, Copy)]
pub struct Durable {
    /// Until when it is replayed, ms since 1970.
    pub expires_ms: i64,
    /// The server that committed.
    pub generation: Generation,
}

/// How a transaction with an answer ended.
pub type Completed = Ended<Durable>;

/// What flies ahead of the statement that is the check.
#[derive(Clone, Copy, Default)]
pub(super) struct Ahead<'a> {
    events: &'a [Event],
    last: &'a [LastWrite],
}

impl<'a> Ahead<'a> {
    pub(super) fn of(effects: &'a Effects) -> Self {
        Self { events: &effects.events, last: &effects.last }
    }
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
        self,
        ledger: &Ledger,
        attempt: &Attempt,
        status: Status,
        work: &Done,
        deadline: Instant,
    ) -> Completed {
        let Done { reply, effects, .. } = work;
        let headers: Vec<&str> =
            reply.headers.iter().flat_map(|(name, value)| [name.as_ref(), value.as_ref()]).collect();
        let (account, key, path) = (attempt.account.0, attempt.key.as_str(), attempt.path.as_str());
        let (hash, version) =
            (attempt.asked.current.digest.to_vec(), i16::from(attempt.asked.current.version));
        let (word, code) = (status_word(status), i16::try_from(reply.status).unwrap_or(500));
        let body = work.kept.then_some(reply.body.as_slice());
        let outbox = crate::outbox::Columns::of(attempt.account, &effects.events);
        let [_, ids, kinds, data] = outbox.params();
        let params: [&dyn Param; 15] = [
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
            ids,
            kinds,
            data,
        ];
        let without_events = &params[..12];
        let (sql, params, ahead) = if !self.database.connections_are_direct() {
            (INSERT_SAYING_WHERE_SQL, without_events, Ahead::of(effects))
        } else if effects.events.is_empty() {
            (INSERT_SQL, without_events, Ahead::of(effects))
        } else {
            (INSERT_WITH_EVENTS_SQL, &params[..], Ahead { events: &[], last: &effects.last })
        };
        self.commit_answer(attempt, ahead, Query { sql, params }, deadline).await
    }

    /// Last writes, events, a statement that writes the record and says until when its answer is replayed, and COMMIT.
    pub(super) async fn commit_answer(
        self,
        attempt: &Attempt,
        ahead: Ahead<'_>,
        record: Query<'_>,
        deadline: Instant,
    ) -> Completed {
        let database = self.database.clone();
        let ended = self
            .commit(attempt, ahead, record, deadline, |connection, rows| {
                let row = rows.first()?;
                let generation = generation_behind(connection, row, 1);
                Some(Durable { expires_ms: ms(row.get(0)), generation })
            })
            .await;
        if let Ended::Committed(durable) = &ended {
            database.generation.set(durable.generation);
        }
        ended
    }

    /// Last writes, events, one statement that is the check, and COMMIT, in one flight. `read` says what its rows mean;
    /// nothing: not known.
    pub(super) async fn commit<T>(
        mut self,
        attempt: &Attempt,
        ahead: Ahead<'_>,
        check: Query<'_>,
        deadline: Instant,
        read: impl FnOnce(&Object, Vec<Row>) -> Option<T> + Send,
    ) -> Ended<T> {
        let Some(connection) = self.connection.take() else { return Ended::Unknown };
        let ended = send_all(&self.database, &connection, attempt, ahead, check, deadline, read).await;
        match &ended {
            Ended::Committed(_) => {}
            // The server tells the error before it lets the locks go: one more answer, so that a retry finds the key free.
            Ended::RolledBack(error) if !error.is_closed() => {
                self.connection = Some(connection);
                self.rollback().await;
            }
            Ended::RolledBack(_) | Ended::Unknown => drop(Object::take(connection)),
        }
        ended
    }
}

async fn send_all<T>(
    database: &Database,
    connection: &Object,
    attempt: &Attempt,
    ahead: Ahead<'_>,
    check: Query<'_>,
    deadline: Instant,
    read: impl FnOnce(&Object, Vec<Row>) -> Option<T>,
) -> Ended<T> {
    let Ahead { events, last } = ahead;
    let outbox = crate::outbox::Columns::of(attempt.account, events);
    let outbox_params = outbox.params();
    let last_params: Vec<_> = last.iter().map(LastWrite::params).collect();
    let mut queries: Vec<_> =
        last.iter().zip(&last_params).map(|(write, params)| write.query(params)).collect();
    if !events.is_empty() {
        queries.push(Query { sql: crate::outbox::INSERT_SQL, params: &outbox_params });
    }
    queries.push(check);
    for query in &queries {
        if let Err(refused) = database.ready(connection, *query).await {
            return Ended::RolledBack(refused);
        }
    }
    // The first poll sends. A statement that could not even be sent must not be followed by COMMIT.
    let mut sent: Vec<_> =
        queries.iter().map(|query| Box::pin(maybe_done(database.send(connection, *query)))).collect();
    for statement in &mut sent {
        if let Some(refused) = poll_once(statement.as_mut()) {
            return Ended::RolledBack(refused);
        }
    }
    let over = Notify::new();
    let statements = async {
        let mut answered = pin!(join_all(sent.iter_mut().map(Pin::as_mut)));
        if tokio::time::timeout_at(deadline, answered.as_mut()).await.is_err() {
            let cancel = connection.cancel_token();
            let _ = tokio::time::timeout(ROLLBACK_MAX, cancel.cancel_query(NoTls)).await;
            let _ = tokio::time::timeout(ROLLBACK_MAX, answered).await;
        }
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
    let Some(committed) = committed else { return Ended::Unknown };
    let answers = sent.iter_mut().map(|statement| statement.as_mut().take_output());
    let Some(answers) = answers.collect::<Option<Vec<_>>>() else { return Ended::Unknown };
    // A definite refusal before COMMIT means that COMMIT rolled back; a dead connection says nothing.
    if answers.iter().any(|answer| answer.as_ref().is_err_and(|error| error.as_db_error().is_none())) {
        return Ended::Unknown;
    }
    let checked = match answers.into_iter().collect::<Result<Vec<_>, _>>() {
        // The first of them; those behind it only say that the transaction is aborted.
        Err(refused) => return Ended::RolledBack(refused),
        Ok(answers) => answers.into_iter().next_back().unwrap_or_default(),
    };
    match committed {
        Err(error) if sqlstate::leaves_commit_open(&error) => Ended::Unknown,
        Err(refused) => Ended::RolledBack(refused),
        Ok(()) => read(connection, checked).map_or(Ended::Unknown, Ended::Committed),
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
