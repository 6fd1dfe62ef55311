//! The truth: records in PostgreSQL. The only SQL on `idempotency_records` is in `ledger/*.sql`.
//!
//! Knows transactions, the key's lock and the record. Knows nothing of Redis or HTTP, and decides nothing (`record.rs`
//! does). How a transaction ends is in `ledger/transaction.rs`. Invariant: whoever runs holds the key's advisory lock, for
//! exactly as long as its transaction lives.

mod claimed;
mod transaction;
mod workflows;

use std::fmt::Write as _;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use tokio::time::Instant;
use tokio_postgres::{Row, SimpleQueryMessage};
use uuid::Uuid;

use crate::attempt::Attempt;
use crate::command::OpeningRead;
use crate::database::{Database, NoConnection, Query, ReadError, generation_columns, generation_of};
use crate::fingerprint::Fingerprint;
use crate::generation::Generation;
use crate::policy::Policy;
use crate::record::{Record, Status, Workflow};
use crate::reply::{Finished, StoredReply};
use crate::sqlstate::{self, Trouble};

pub(crate) use claimed::Claimed;
pub(crate) use transaction::{Completed, Durable, Ended, Transaction};
pub(crate) use workflows::{Lease, SERIAL_KEY, Step, StepKind};

/// The constraint that refuses a second record of a key.
pub(crate) const RECORD_KEY: &str = "idempotency_records_pkey";

/// The proof of who runs: held exactly as long as the transaction, and never waited for. In a text with BEGIN, so not prepared.
const TRY_LOCK: &str = "SELECT pg_try_advisory_xact_lock";
const WAIT_LOCK_SQL: &str = include_str!("ledger/wait_lock.sql");
const LOOKUP_SQL: &str = include_str!("ledger/lookup.sql");
/// The look-up where the connection does not tell which database answers.
const LOOKUP_SAYING_WHERE_SQL: &str = concat!(
    "SELECT found.*, ",
    generation_columns!(),
    " FROM (",
    include_str!("ledger/lookup.sql"),
    ") AS found"
);
/// The column of [`LOOKUP_SAYING_WHERE_SQL`] with the generation.
const LOOKUP_WHERE_AT: usize = 16;
const FORGET_SQL: &str = include_str!("ledger/forget.sql");
const INSERT_SQL: &str = include_str!("ledger/insert.sql");
const INSERT_WITH_EVENTS_SQL: &str = include_str!("ledger/insert_with_events.sql");
const INSERT_SAYING_WHERE_SQL: &str = concat!(
    "WITH inserted AS (",
    include_str!("ledger/insert.sql"),
    ") SELECT inserted.*, ",
    generation_columns!(),
    " FROM inserted"
);

/// How long the look-up of a lost COMMIT waits for the key's lock.
const RESOLVE_MAX: Duration = Duration::from_secs(2);
/// Pause before the look-up is tried again.
const RESOLVE_PAUSE: Duration = Duration::from_millis(100);

/// Records, through one pool.
#[derive(Debug, Clone)]
pub struct Ledger {
    database: Database,
    result_retention_ms: i64,
    key_retention_ms: i64,
    lease_ms: i64,
    stuck_after_ms: i64,
}

/// What came of an opening read, if it flew.
pub type Flown = Option<Result<Vec<Row>, tokio_postgres::Error>>;

/// What `enter` found, with a transaction open.
pub struct Entered {
    /// Whether this transaction holds the key's lock.
    pub locked: bool,
    /// Whether it also holds the caller's lock, if the command is serialised.
    pub alone: bool,
    /// The record of the key, if one is committed.
    pub record: Option<Record>,
    /// What came of the opening read, if it flew.
    pub flown: Flown,
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

/// What became of a transaction whose COMMIT was not answered.
pub enum Resolved {
    /// A record is there: it is the answer.
    Found(Record),
    /// The key's lock was granted and there is no record: that transaction is gone.
    Gone,
}

impl Ledger {
    /// Records that are kept, and held while a workflow runs, as the policy says.
    pub fn new(database: Database, policy: &Policy) -> Self {
        Self {
            database,
            result_retention_ms: span_ms(policy.result_retention),
            key_retention_ms: span_ms(policy.key_retention),
            lease_ms: span_ms(policy.lease),
            stuck_after_ms: span_ms(policy.stuck_after),
        }
    }

    /// BEGIN, the key's lock and the look-up, in one flight. BEGIN flies only with statements that cannot write, and its
    /// result is checked before anything else: had it failed, the next write would be in autocommit. The opening read flies
    /// last, so that its failure hides nothing.
    pub async fn enter(
        &self,
        attempt: &Attempt,
        opening: Option<&OpeningRead>,
        fresh: bool,
    ) -> Result<Entered, LedgerError> {
        let transaction = self.begin_with(fresh).await?;
        let (account, key) = (attempt.account.0, attempt.key.as_str());
        let begin_locked = self.begin_locked(attempt);
        let lookup = Query { sql: self.lookup_sql(), params: &[&account, &key] };
        let opening = opening.filter(|read| read.may_fly()).map(|read| (read.sql, read.params()));
        let opening = opening.as_ref().map(|(sql, params)| Query { sql, params });
        let flight = async {
            let connection = transaction.connection();
            self.database.ready(connection, lookup).await?;
            // A read that cannot be prepared is left to the command, which is told why.
            let opening = match opening {
                Some(read) if self.database.ready(connection, read).await.is_ok() => Some(read),
                _ => None,
            };
            // Lock and look-up are two statements: one snapshot would be older than the lock.
            let (begun, found, flown) = tokio::join!(
                biased;
                connection.simple_query(&begin_locked),
                self.database.send(connection, lookup),
                async {
                    match opening {
                        Some(read) => Some(self.database.send(connection, read).await),
                        None => None,
                    }
                },
            );
            Ok::<_, LedgerError>((begun?, found?, flown))
        };
        let (begun, found, flown) = self.bounded(flight).await?;
        // The last rows are those of the locks; what a pooler's BEGIN sets comes before.
        let mut locks = begun.iter().rev().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0) == Some("t")),
            _ => None,
        });
        let alone = attempt.serial.is_none() || locks.next().unwrap_or_default();
        let locked = locks.next().unwrap_or_default();
        let record = transaction.read_record(&found)?;
        if let Some(record) = &record {
            self.database.generation.set(record.generation);
        }
        Ok(Entered { locked, alone, record, flown, transaction })
    }

    /// BEGIN and the locks (the key's; then, of a serialised command, the caller's) in one text, which the server answers at
    /// once: each further message is one more turn of both sides. The locks are numbers of our own making, nothing of a caller.
    fn begin_locked(&self, attempt: &Attempt) -> String {
        let mut text = format!("{}; {TRY_LOCK}({})", self.database.begin(), lock_key(attempt));
        if let Some(command) = attempt.serial {
            let _ = write!(text, "; {TRY_LOCK}({})", hash_lock(attempt, "caller", command));
        }
        text
    }

    /// The record of a key, in one round trip and without a lock.
    pub async fn look(&self, attempt: &Attempt) -> Result<Option<Record>, ReadError> {
        let (account, key) = (attempt.account.0, attempt.key.as_str());
        let found = self.database.read(LOOKUP_SAYING_WHERE_SQL, &[&account, &key]).await?;
        let read = |row| read_record(row, generation_of(row, LOOKUP_WHERE_AT));
        found.first().map(read).transpose().map_err(ReadError::Database)
    }

    /// Deletes a record that is past its key retention, inside the transaction that takes its place.
    pub async fn forget(&self, transaction: &Transaction, attempt: &Attempt) -> Result<(), LedgerError> {
        let (account, key) = (attempt.account.0, attempt.key.as_str());
        let query = Query { sql: FORGET_SQL, params: &[&account, &key] };
        self.bounded(async { Ok(transaction.run(query).await?) }).await.map(|_| ())
    }

    /// Decides a lost COMMIT: on a fresh connection, wait (bounded) for the key's lock, then look. A server that is just
    /// starting again is asked until the time is over.
    pub async fn resolve(&self, attempt: &Attempt) -> Result<Resolved, LedgerError> {
        let asked = async {
            loop {
                match self.resolve_once(attempt).await {
                    Err(LedgerError::NoConnection(error)) => {
                        tracing::debug!(%error, "nobody can be asked about a lost COMMIT yet");
                        tokio::time::sleep(RESOLVE_PAUSE).await;
                    }
                    Err(LedgerError::Database(error)) if sqlstate::classify(&error) == Trouble::Again => {
                        tokio::time::sleep(RESOLVE_PAUSE).await;
                    }
                    answer => return answer,
                }
            }
        };
        tokio::time::timeout(RESOLVE_MAX * 2, asked).await.unwrap_or(Err(LedgerError::TimedOut))
    }

    async fn resolve_once(&self, attempt: &Attempt) -> Result<Resolved, LedgerError> {
        let transaction = self.begin_with(true).await?;
        let (account, key, lock_key) = (attempt.account.0, attempt.key.as_str(), lock_key(attempt));
        let connection = transaction.connection();
        connection.batch_execute(self.database.begin()).await?;
        let limit = format!("SET LOCAL lock_timeout = {}", RESOLVE_MAX.as_millis());
        connection.batch_execute(&limit).await?;
        transaction.run(Query { sql: WAIT_LOCK_SQL, params: &[&lock_key] }).await?;
        let found = transaction.run(Query { sql: self.lookup_sql(), params: &[&account, &key] }).await?;
        let record = transaction.read_record(&found)?;
        transaction.rollback().await;
        match record {
            Some(record) => Ok(Resolved::Found(record)),
            None => Ok(Resolved::Gone),
        }
    }

    /// The latest that a short statement of the protocol's own may take.
    fn soon(&self) -> Instant {
        Instant::now() + self.database.statement_timeout
    }

    fn lookup_sql(&self) -> &'static str {
        if self.database.connections_are_direct() { LOOKUP_SQL } else { LOOKUP_SAYING_WHERE_SQL }
    }

    async fn begin_with(&self, fresh: bool) -> Result<Transaction, LedgerError> {
        let connection = self.database.connection(fresh).await?;
        Ok(Transaction::on(connection, self.database.clone()))
    }

    async fn bounded<T>(&self, step: impl Future<Output = Result<T, LedgerError>>) -> Result<T, LedgerError> {
        tokio::time::timeout(self.database.statement_timeout, step)
            .await
            .unwrap_or(Err(LedgerError::TimedOut))
    }
}

/// The advisory lock of a key. A collision only costs a 409.
pub(crate) fn lock_key(attempt: &Attempt) -> i64 {
    hash_lock(attempt, "key", attempt.key.as_str())
}

/// 64 bits of a hash over account, kind and name.
fn hash_lock(attempt: &Attempt, kind: &str, name: &str) -> i64 {
    let mut hash = Sha256::new();
    hash.update(attempt.account.0.to_be_bytes());
    hash.update([u8::try_from(kind.len()).unwrap_or(0)]);
    hash.update(kind);
    hash.update(name);
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

fn span_ms(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// Milliseconds since 1970, as PostgreSQL's clock has them.
fn ms(moment: OffsetDateTime) -> i64 {
    i64::try_from(moment.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

/// Reads a row of `lookup.sql`.
fn read_record(row: &Row, generation: Generation) -> Result<Record, tokio_postgres::Error> {
    let moment = |at: usize| Ok::<_, tokio_postgres::Error>(row.try_get::<_, Option<_>>(at)?.map_or(0, ms));
    let digest: &[u8] = row.try_get(0)?;
    let version: i16 = row.try_get(1)?;
    let status = match row.try_get::<_, &str>(3)? {
        "COMPLETED" => Status::Completed,
        "FAILED" => Status::Failed,
        _ => Status::InProgress,
    };
    let code: Option<i16> = row.try_get(4)?;
    let request_id: Uuid = row.try_get(2)?;
    let workflow = if row.try_get(15)? {
        Some(Workflow {
            token: row.try_get(10)?,
            lease_is_over: row.try_get::<_, Option<_>>(11)?.unwrap_or_default(),
            attempts: row.try_get::<_, Option<_>>(12)?.unwrap_or_default(),
            background: row.try_get::<_, Option<_>>(13)?.unwrap_or_default(),
            unknown: row.try_get(14)?,
        })
    } else {
        None
    };
    let finished = match code {
        None => None,
        Some(code) => {
            let flat: Vec<String> = row.try_get::<_, Option<_>>(5)?.unwrap_or_default();
            let body: Option<Vec<u8>> = row.try_get(6)?;
            let kept = body.is_some();
            let reply = StoredReply {
                status: u16::try_from(code).unwrap_or(500),
                headers: flat
                    .chunks_exact(2)
                    .map(|pair| (pair[0].clone().into(), pair[1].clone().into()))
                    .collect(),
                body: body.unwrap_or_default(),
            };
            Some(Finished { reply, kept, request_id, expires_ms: moment(7)? })
        }
    };
    Ok(Record {
        // The table's CHECKs hold the length; a version above 255 is one that this build cannot compare.
        fingerprint: Fingerprint {
            version: u8::try_from(version).unwrap_or(u8::MAX),
            digest: digest.try_into().unwrap_or_default(),
        },
        status,
        finished,
        request_id,
        workflow,
        key_expires_ms: moment(8)?,
        now_ms: moment(9)?,
        generation,
    })
}
