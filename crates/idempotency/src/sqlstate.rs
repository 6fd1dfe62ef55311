//! What an error of PostgreSQL means for the work that met it: the one classifier.
//!
//! Knows SQLSTATE classes; decides nothing else. Invariant: an error is [`Trouble::Again`] only if the transaction that
//! met it cannot have been committed, so that running it again is safe.

use std::error::Error as StdError;

use tokio_postgres::error::{Severity, SqlState};

/// What to make of a failed statement, before COMMIT was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Bad luck that a new run on a fresh connection may not have: serialization failure, deadlock, a connection that
    /// was already dead, a cached plan that no longer fits.
    Again,
    /// The database cannot serve this now: timed out, read-only, out of connections or disk.
    Unavailable,
    /// Anything else: the statement is wrong, or a constraint refuses it.
    Broken,
}

/// Classifies by SQLSTATE, and by the connection's state where the server said nothing.
pub fn classify(error: &tokio_postgres::Error) -> Trouble {
    let Some(db) = error.as_db_error() else {
        // No SQLSTATE: the connection failed, or a value could not be converted (our fault, then).
        let conversion =
            error.source().is_some_and(|cause| !cause.is::<std::io::Error>()) && !error.is_closed();
        return if conversion { Trouble::Broken } else { Trouble::Again };
    };
    let state = db.code();
    if *state == SqlState::T_R_SERIALIZATION_FAILURE
        || *state == SqlState::T_R_DEADLOCK_DETECTED
        || *state == SqlState::INVALID_SQL_STATEMENT_NAME
        || (*state == SqlState::FEATURE_NOT_SUPPORTED && db.message().contains("cached plan"))
    {
        return Trouble::Again;
    }
    match state.code().as_bytes() {
        // Connection exceptions, and the server ending this session: before COMMIT nothing is lost by a new run.
        [b'0', b'8', ..] | b"57P01" | b"57P02" | b"57P03" | b"57P05" => Trouble::Again,
        // Lock time-out, cancelled or statement time-out, idle time-out, read-only, resources, authorization.
        b"55P03" | b"57014" | b"25P03" | b"25P04" | b"25006" | [b'5', b'3', ..] | [b'2', b'8', ..] => {
            Trouble::Unavailable
        }
        _ => Trouble::Broken,
    }
}

/// Whether an answer to COMMIT leaves the outcome open: the session died, so the server may have committed before.
pub fn leaves_commit_open(error: &tokio_postgres::Error) -> bool {
    let Some(db) = error.as_db_error() else { return true };
    matches!(db.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
        || matches!(db.code().code().as_bytes(), [b'0', b'8', ..] | [b'5', b'7', b'P', ..])
}

/// The name of the unique constraint that refused a row, if that is what happened.
pub fn violated_unique(error: &tokio_postgres::Error) -> Option<&str> {
    let db = error.as_db_error()?;
    (*db.code() == SqlState::UNIQUE_VIOLATION).then(|| db.constraint()).flatten()
}

/// An error with its causes in one line: PostgreSQL's own words are often the innermost.
pub fn explain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}

/// The PostgreSQL error in a chain of causes, if there is one.
pub fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a tokio_postgres::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}
