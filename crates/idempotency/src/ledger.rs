//! The truth: records in PostgreSQL. The only SQL on `idempotency_records` is in `ledger/*.sql`.
//!
//! Knows transactions, the key's lock and the record. Knows nothing of Redis or HTTP, and decides nothing (`record.rs`
//! does). Crash contract: once [`Transaction::complete`] says [`Completed::Committed`], record, business rows and events
//! are durable; at [`Completed::RolledBack`] none of them is; at [`Completed::Unknown`] only [`Ledger::resolve`] can tell.

use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object};
use futures_util::future::{MaybeDone, maybe_done};
use sha2::{Digest as _, Sha256};
use tokio_postgres::types::Type;
use tokio_postgres::{NoTls, Row};

use crate::attempt::Attempt;
use crate::database::{Database, NoConnection, Query, generation_of};
use crate::fingerprint::Fingerprint;
use crate::generation::Generation;
use crate::outbox::Event;
use crate::record::{Record, Status};
use crate::reply::StoredReply;
use crate::sqlstate;

pub(crate) const GENERATION_SQL: &str = include_str!("ledger/generation.sql");
const LOCK_SQL: &str = include_str!("ledger/lock.sql");
const WAIT_LOCK_SQL: &str = include_str!("ledger/wait_lock.sql");
const LOOKUP_SQL: &str = include_str!("ledger/lookup.sql");
const FORGET_SQL: &str = include_str!("ledger/forget.sql");
const INSERT_SQL: &str = include_str!("ledger/insert.sql");

/// How long the look-up of a lost COMMIT waits for the key's lock.
const RESOLVE_MAX: Duration = Duration::from_secs(2);
/// How long ROLLBACK and the cancelling of a statement may take before the connection is given up.
const ROLLBACK_MAX: Duration = Duration::from_secs(1);

/// Records, through one pool.
#[derive(Debug, Clone)]
pub struct Ledger {
    database: Database,
    result_retention_ms: i64,
    key_retention_ms: i64,
}

/// What `enter` found, with a transaction open.
pub struct Entered {
    /// Whether this transaction holds the key's lock.
    pub locked: bool,
    /// The record of the key, if one is committed.
    pub record: Option<Record>,
    /// The open transaction.
    pub transaction: Transaction,
}

/// A step that could not be done; nothing is committed by it.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// No connection could be had.
    #[error(transparent)]
    NoConnection(#[from] NoConnection),
    /// PostgreSQL refused a statement.
    #[error("PostgreSQL: {0}")]
    Database(#[from] tokio_postgres::Error),
    /// No answer within the statement time-out.
    #[error("no answer from PostgreSQL in time")]
    TimedOut,
}

/// How a transaction ended.
pub enum Completed {
    /// BEGIN, the record's INSERT and COMMIT all succeeded.
    Committed {
        /// Until when the answer is replayed, ms since 1970.
        result_expires_ms: i64,
        /// The server that committed.
        generation: Generation,
    },
    /// Definitely not committed, and why.
    RolledBack(tokio_postgres::Error),
    /// COMMIT was sent and its answer never came.
    Unknown,
}

/// What became of a transaction whose COMMIT was not answered.
pub enum Resolved {
    /// A record is there: it is the answer.
    Found(Record),
    /// The key's lock was granted and there is no record: that transaction is gone.
    Gone,
}

impl Ledger {
    /// Records whose answers and keys are kept for the given times.
    pub fn new(database: Database, result_retention: Duration, key_retention: Duration) -> Self {
        let ms = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Self { database, result_retention_ms: ms(result_retention), key_retention_ms: ms(key_retention) }
    }

    /// BEGIN, the key's lock and the look-up, in one flight. BEGIN flies only with statements that cannot write, and its
    /// result is checked before anything else: had it failed, the next write would be in autocommit.
    pub async fn enter(&self, attempt: &Attempt, fresh: bool) -> Result<Entered, LedgerError> {
        let transaction = self.begin_with(fresh).await?;
        let (account, key, lock_key) = (attempt.account.0, attempt.key.as_str(), lock_key(attempt));
        let lock = Query { sql: LOCK_SQL, params: &[&lock_key] };
        let lookup = Query { sql: LOOKUP_SQL, params: &[&account, &key] };
        let flight = async {
            let connection = transaction.connection();
            self.database.ready(connection, lock).await?;
            self.database.ready(connection, lookup).await?;
            // Lock and look-up are two statements: one snapshot would be older than the lock.
            let (begun, lock, found) = tokio::join!(
                biased;
                connection.batch_execute(self.database.begin()),
                self.database.send(connection, lock),
                self.database.send(connection, lookup),
            );
            begun?;
            Ok::<_, LedgerError>((lock?, found?))
        };
        let (lock, found) = self.bounded(flight).await?;
        let locked = lock.first().is_some_and(|row| row.get(0));
        let record = found.first().map(read_record).transpose()?;
        if let Some(record) = &record {
            self.database.generation.set(record.generation);
        }
        Ok(Entered { locked, record, transaction })
    }

    /// The record of a key, in one round trip and without a lock.
    pub async fn look(&self, attempt: &Attempt) -> Result<Option<Record>, LedgerError> {
        let connection = self.database.connection(false).await?;
        let (account, key) = (attempt.account.0, attempt.key.as_str());
        let answer = self
            .bounded(async {
                let query = Query { sql: LOOKUP_SQL, params: &[&account, &key] };
                Ok(self.database.run(&connection, query).await?)
            })
            .await;
        if matches!(answer, Err(LedgerError::TimedOut)) {
            drop(Object::take(connection));
            return Err(LedgerError::TimedOut);
        }
        answer?.first().map(read_record).transpose()
    }

    /// Deletes a record that is past its key retention, inside the transaction that takes its place.
    pub async fn forget(&self, transaction: &Transaction, attempt: &Attempt) -> Result<(), LedgerError> {
        let (account, key) = (attempt.account.0, attempt.key.as_str());
        let query = Query { sql: FORGET_SQL, params: &[&account, &key] };
        self.bounded(async { Ok(transaction.run(query).await?) }).await.map(|_| ())
    }

    /// Decides a lost COMMIT: on a fresh connection, wait (bounded) for the key's lock, then look.
    pub async fn resolve(&self, attempt: &Attempt) -> Result<Resolved, LedgerError> {
        let asked = async {
            let transaction = self.begin_with(true).await?;
            let (account, key, lock_key) = (attempt.account.0, attempt.key.as_str(), lock_key(attempt));
            let connection = transaction.connection();
            connection.batch_execute(self.database.begin()).await?;
            let limit = format!("SET LOCAL lock_timeout = {}", RESOLVE_MAX.as_millis());
            connection.batch_execute(&limit).await?;
            transaction.run(Query { sql: WAIT_LOCK_SQL, params: &[&lock_key] }).await?;
            let found = transaction.run(Query { sql: LOOKUP_SQL, params: &[&account, &key] }).await?;
            transaction.rollback().await;
            match found.first().map(read_record).transpose()? {
                Some(record) => Ok(Resolved::Found(record)),
                None => Ok(Resolved::Gone),
            }
        };
        tokio::time::timeout(RESOLVE_MAX * 2, asked).await.unwrap_or(Err(LedgerError::TimedOut))
    }

    async fn begin_with(&self, fresh: bool) -> Result<Transaction, LedgerError> {
        let connection = self.database.connection(fresh).await?;
        Ok(Transaction { connection: Some(connection), database: self.database.clone() })
    }

    async fn bounded<T>(&self, step: impl Future<Output = Result<T, LedgerError>>) -> Result<T, LedgerError> {
        tokio::time::timeout(self.database.statement_timeout, step)
            .await
            .unwrap_or(Err(LedgerError::TimedOut))
    }
}

/// A transaction that was begun by hand. Dropped unfinished (an early return, a cancelled future, a panic), its
/// connection is discarded: no recycling method would notice the open transaction.
pub struct Transaction {
    connection: Option<Object>,
    database: Database,
}

impl Transaction {
    fn connection(&self) -> &Object {
        self.connection.as_ref().expect("the connection leaves only together with the transaction")
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

    /// Events, record and COMMIT in one flight. The INSERT is the check: if it fails, COMMIT only reports the rollback.
    pub async fn complete(
        mut self,
        ledger: &Ledger,
        attempt: &Attempt,
        status: Status,
        reply: &StoredReply,
        events: &[Event],
    ) -> Completed {
        let Some(connection) = self.connection.take() else { return Completed::Unknown };
        let flight = send_completion(&self, &connection, ledger, attempt, status, reply, events);
        let outcome = match tokio::time::timeout(self.database.statement_timeout, flight).await {
            Ok(outcome) => outcome,
            Err(_) => Completed::Unknown,
        };
        match &outcome {
            // Both leave the connection outside any transaction: COMMIT was answered.
            Completed::Committed { generation, .. } => self.database.generation.set(*generation),
            Completed::RolledBack(error) if !error.is_closed() => {}
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
    reply: &StoredReply,
    events: &[Event],
) -> Completed {
    let database = &transaction.database;
    let outbox = crate::outbox::Columns::of(attempt.account, events);
    let headers: Vec<&str> =
        reply.headers.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]).collect();
    let (account, key, path) = (attempt.account.0, attempt.key.as_str(), attempt.path.as_str());
    let (hash, version) = (attempt.fingerprint.digest.to_vec(), i16::from(attempt.fingerprint.version));
    let (word, code) = (status_word(status), i16::try_from(reply.status).unwrap_or(500));
    let body = reply.body.as_slice();
    let record = Query {
        sql: INSERT_SQL,
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
    for query in [events_query, record] {
        if let Err(refused) = database.ready(connection, query).await {
            return Completed::RolledBack(refused);
        }
    }
    let emitted = async {
        if events.is_empty() { Ok(Vec::new()) } else { database.send(connection, events_query).await }
    };
    // The first poll sends. A statement that could not even be sent must not be followed by COMMIT.
    let mut emitted = pin!(maybe_done(emitted));
    let mut inserted = pin!(maybe_done(database.send(connection, record)));
    let unsent = poll_once(emitted.as_mut()).or(poll_once(inserted.as_mut()));
    if let Some(refused) = unsent {
        return Completed::RolledBack(refused);
    }
    let ((), (), committed) =
        tokio::join!(biased; emitted.as_mut(), inserted.as_mut(), connection.batch_execute("COMMIT"));
    let emitted = emitted.take_output().unwrap_or(Ok(Vec::new()));
    let Some(inserted) = inserted.take_output() else { return Completed::Unknown };
    // A definite refusal before COMMIT means that COMMIT rolled back; a dead connection says nothing.
    let silent = |answer: &Result<Vec<Row>, tokio_postgres::Error>| {
        answer.as_ref().is_err_and(|error| error.as_db_error().is_none())
    };
    if silent(&emitted) || silent(&inserted) {
        return Completed::Unknown;
    }
    match (emitted, inserted, committed) {
        (Err(refused), _, _) | (_, Err(refused), _) => Completed::RolledBack(refused),
        (Ok(_), Ok(_), Err(error)) if sqlstate::leaves_commit_open(&error) => Completed::Unknown,
        (Ok(_), Ok(_), Err(refused)) => Completed::RolledBack(refused),
        (Ok(_), Ok(rows), Ok(())) => match rows.first() {
            Some(row) => {
                Completed::Committed { result_expires_ms: row.get(0), generation: generation_of(row, 1) }
            }
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

/// Ends a connection in an unknown state: its statement is cancelled, so that locks go before the time-out, and the
/// session ends with the socket.
fn discard(connection: Object) {
    let cancel = connection.cancel_token();
    drop(Object::take(connection));
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            let _ = tokio::time::timeout(ROLLBACK_MAX, cancel.cancel_query(NoTls)).await;
        });
    }
}

/// Prepares the statements of the hot path on a new connection, in one flight. A failure shows when one is used.
pub(crate) async fn prepare(connection: &ClientWrapper) {
    let lookup = [Type::INT8, Type::TEXT];
    let insert = [
        Type::INT8,
        Type::TEXT,
        Type::TEXT,
        Type::BYTEA,
        Type::INT2,
        Type::UUID,
        Type::TEXT,
        Type::INT2,
        Type::TEXT_ARRAY,
        Type::BYTEA,
        Type::INT8,
        Type::INT8,
    ];
    let _ = tokio::join!(
        connection.prepare_typed_cached(LOCK_SQL, &[Type::INT8]),
        connection.prepare_typed_cached(LOOKUP_SQL, &lookup),
        connection.prepare_typed_cached(INSERT_SQL, &insert),
        connection.prepare_typed_cached(crate::outbox::INSERT_SQL, &crate::outbox::TYPES),
    );
}

/// The advisory lock of a key: 64 bits of a hash over account and key. A collision only costs a 409.
fn lock_key(attempt: &Attempt) -> i64 {
    let mut hash = Sha256::new();
    hash.update(attempt.account.0.to_be_bytes());
    hash.update(attempt.key.as_str());
    let digest: [u8; 32] = hash.finalize().into();
    i64::from_be_bytes([
        digest[0], digest[1], digest[2], digest[3], digest[4], digest[5], digest[6], digest[7],
    ])
}

fn status_word(status: Status) -> &'static str {
    match status {
        Status::InProgress => "IN_PROGRESS",
        Status::Completed => "COMPLETED",
        Status::Failed => "FAILED",
    }
}

/// Reads a row of `lookup.sql`.
fn read_record(row: &Row) -> Result<Record, LedgerError> {
    let digest: &[u8] = row.try_get(0)?;
    let version: i16 = row.try_get(1)?;
    let status = match row.try_get::<_, &str>(3)? {
        "COMPLETED" => Status::Completed,
        "FAILED" => Status::Failed,
        _ => Status::InProgress,
    };
    let code: Option<i16> = row.try_get(4)?;
    let reply = match code {
        None => None,
        Some(code) => {
            let flat: Vec<String> = row.try_get::<_, Option<_>>(5)?.unwrap_or_default();
            Some(StoredReply {
                status: u16::try_from(code).unwrap_or(500),
                headers: flat.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect(),
                body: row.try_get::<_, Option<_>>(6)?.unwrap_or_default(),
            })
        }
    };
    Ok(Record {
        // The table's CHECKs hold the length; a version above 255 is one that this build cannot compare.
        fingerprint: Fingerprint {
            version: u8::try_from(version).unwrap_or(u8::MAX),
            digest: digest.try_into().unwrap_or_default(),
        },
        request_id: row.try_get(2)?,
        status,
        reply,
        result_expires_ms: row.try_get(7)?,
        key_expires_ms: row.try_get(8)?,
        now_ms: row.try_get(9)?,
        generation: generation_of(row, 10),
    })
}
