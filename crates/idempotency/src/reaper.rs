//! Forgets: takes stored answers away when they are spent, and keys when their retention is over.
//!
//! Knows records and time, nothing of requests. Invariants: one replica at a time; a batch is bounded and skips locked rows, so
//! no order waits for it; live and running records are never touched; what an attempt is told is the same whether or not the
//! reaper was there first.

use std::time::Duration;

use tokio::time::Instant;

use crate::database::{Database, Held, Query, ReadError};
use crate::policy::Policy;
use crate::telemetry;

const PURGE_SQL: &str = include_str!("ledger/purge.sql");
const FORGET_SQL: &str = include_str!("ledger/forget_batch.sql");
/// Holds for the batch's transaction, so that only one replica reaps.
const ALONE_SQL: &str = "SELECT pg_try_advisory_xact_lock($1)";
/// The advisory lock of whoever reaps; "reaper" in ASCII.
pub const REAPER_LOCK: i64 = 0x7265_6170_6572;

/// Keeps batches on the index. Right after a vacuum, statistics say that the table is nearly empty; to collect everything
/// that is due and sort it would then look cheap, and would be done anew for each batch.
const IN_ORDER: &str = "SET LOCAL enable_sort = off";

/// Rows of a batch.
const BATCH: i64 = 200;
/// Of its time the reaper works at most one part in so many, so that orders have the disk.
const DUTY: u32 = 20;
/// Pause when there is nothing to do.
const IDLE: Duration = Duration::from_secs(5);

/// What one batch did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Answers whose body was taken away.
    pub purged: i64,
    /// Rows looked at for that.
    pub looked_at: i64,
    /// Keys forgotten.
    pub forgotten: i64,
}

impl Counts {
    /// Whether a batch was full, so that another one is due.
    fn is_full(&self) -> bool {
        self.looked_at >= BATCH || self.forgotten >= BATCH
    }
}

/// Runs batches, one after the other.
#[derive(Debug)]
pub struct Reaper {
    database: Database,
    /// How long a key outlives its answer, ms.
    outlives_ms: i64,
}

impl Reaper {
    /// For records that are kept by this policy.
    pub fn new(database: Database, policy: &Policy) -> Self {
        let outlives = policy.key_retention.saturating_sub(policy.result_retention);
        Self { database, outlives_ms: i64::try_from(outlives.as_millis()).unwrap_or(i64::MAX) }
    }

    /// One batch of each kind, or nothing while another replica reaps.
    ///
    /// # Errors
    /// [`ReadError`]; the batch is then undone.
    pub async fn run_once(&self) -> Result<Counts, ReadError> {
        let held = Held::new(self.database.connection(false).await?);
        let work = async {
            held.batch_execute(&format!("{}; {IN_ORDER}", self.database.begin())).await?;
            let alone = self.database.run(&held, Query { sql: ALONE_SQL, params: &[&REAPER_LOCK] }).await?;
            let mut counts = Counts::default();
            if alone.first().is_some_and(|row| row.get(0)) {
                let purge = Query { sql: PURGE_SQL, params: &[&self.outlives_ms, &BATCH] };
                if let Some(row) = self.database.run(&held, purge).await?.first() {
                    (counts.purged, counts.looked_at) = (row.get(0), row.get(1));
                }
                let forget = Query { sql: FORGET_SQL, params: &[&BATCH] };
                counts.forgotten =
                    self.database.run(&held, forget).await?.first().map_or(0, |row| row.get(0));
            }
            held.batch_execute("COMMIT /* reaper */").await?;
            Ok::<_, tokio_postgres::Error>(counts)
        };
        let counts = match tokio::time::timeout(self.database.statement_timeout, work).await {
            Ok(counts) => counts.map_err(ReadError::Database)?,
            Err(_) => return Err(ReadError::TimedOut),
        };
        held.give_back();
        telemetry::reaped(counts);
        Ok(counts)
    }

    /// Reaps for as long as the process lives.
    pub async fn run(self) {
        loop {
            let began = Instant::now();
            let pause = match self.run_once().await {
                Ok(counts) if counts.is_full() => began.elapsed() * (DUTY - 1),
                Ok(_) => IDLE,
                Err(error) => {
                    tracing::debug!(%error, "nothing could be reaped");
                    IDLE
                }
            };
            tokio::time::sleep(pause).await;
        }
    }
}
