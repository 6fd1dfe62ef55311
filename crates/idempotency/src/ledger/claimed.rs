//! What the completer takes up: one statement that finds and takes it.
//!
//! Knows which records are due. Knows nothing of how they are gone on with. Invariant: a record is handed out once for each token.

use tokio_postgres::Row;

use super::{Lease, Ledger};
use crate::attempt::Attempt;
use crate::database::{Held, Param, Query, ReadError};
use crate::fingerprint::{Asked, Fingerprint};
use crate::key::{AccountId, IdempotencyKey};

const CLAIM_SQL: &str = include_str!("claim.sql");
/// Keeps the completer on the small index of what runs, whatever statistics say of the table.
const ON_THE_INDEX: &str = "SET LOCAL enable_seqscan = off";
/// The completer's pauses before it takes a record up: the first doubles with each attempt up to the last, in ms.
const RESUME_PAUSE_FIRST: f64 = 250.0;
const RESUME_PAUSE_LAST: f64 = 60_000.0;

/// A record that the completer has taken.
#[derive(Debug)]
pub struct Claimed {
    /// The request that it stands for.
    pub attempt: Attempt,
    /// The hold of it.
    pub lease: Lease,
    /// Which workflow.
    pub command: String,
    /// The request's members, as JSON.
    pub request: Vec<u8>,
    /// Whether its last progress is too long ago.
    pub stuck: bool,
}

impl Ledger {
    /// Takes up to `most` records whose lease has run out and whose workflow is known here.
    pub async fn claim(&self, most: usize, known: &[&'static str]) -> Result<Vec<Claimed>, ReadError> {
        let (most, known) = (i64::try_from(most).unwrap_or(i64::MAX), known.to_vec());
        let (first, last) = (RESUME_PAUSE_FIRST, RESUME_PAUSE_LAST);
        let params: [&dyn Param; 6] = [&most, &known, &self.lease_ms, &self.stuck_after_ms, &first, &last];
        let held = Held::new(self.database.connection(false).await?);
        let work = async {
            held.batch_execute(&format!("{}; {ON_THE_INDEX}", self.database.begin())).await?;
            let rows = self.database.run(&held, Query { sql: CLAIM_SQL, params: &params }).await?;
            held.batch_execute("COMMIT /* completer */").await?;
            rows.iter().map(read_claimed).collect::<Result<Vec<_>, _>>()
        };
        // What was claimed and not heard of is free again when its lease has run out.
        let claimed = match tokio::time::timeout(self.database.statement_timeout, work).await {
            Ok(claimed) => claimed.map_err(ReadError::Database)?,
            Err(_) => return Err(ReadError::TimedOut),
        };
        held.give_back();
        Ok(claimed)
    }
}

/// Reads a row of `claim.sql`.
fn read_claimed(row: &Row) -> Result<Claimed, tokio_postgres::Error> {
    let (hash, version): (&[u8], i16) = (row.try_get(3)?, row.try_get(4)?);
    let fingerprint = Fingerprint {
        version: u8::try_from(version).unwrap_or(u8::MAX),
        digest: hash.try_into().unwrap_or_default(),
    };
    let key = IdempotencyKey::stored(row.try_get(1)?);
    let operation = row.try_get(5)?;
    let (account, path) = (AccountId(row.try_get(0)?), row.try_get(2)?);
    Ok(Claimed {
        attempt: Attempt::new(account, key, Asked::stored(fingerprint), path, operation),
        lease: Lease { operation, token: row.try_get(8)? },
        command: row.try_get(6)?,
        request: row.try_get(7)?,
        stuck: row.try_get(9)?,
    })
}
