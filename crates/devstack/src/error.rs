//! Every way in which this crate can fail, each text one line that says what to do next.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("ORDER_SERVICE_SERVERS={0:?} is not known: use `found` or `embedded`")]
    UnknownChoice(String),

    /// Neither found nor obtained; `command` installs it on this system.
    #[error("{what} is missing: {reason}; to install it: {command}")]
    Missing { what: String, reason: String, command: String },

    /// The embedded server was asked for and could not be had.
    #[error("no embedded {what}: {reason}")]
    Embedded { what: String, reason: String },

    #[error("{doing}: {source}")]
    Io { doing: String, source: io::Error },

    #[error("{0} is in use by another running process (another `dev`?): stop it, or use another folder")]
    InUse(PathBuf),

    #[error(
        "{folder} belongs to user {owner}, not to us: start as that user, chown it, or use another folder"
    )]
    ForeignFolder { folder: PathBuf, owner: u32 },

    #[error(
        "{folder} holds data of PostgreSQL {data}, the server found is {server}: use that version, or another folder"
    )]
    OtherVersion { folder: PathBuf, data: String, server: String },

    #[error("{server} did not start: {reason}; the end of {log}: {tail}")]
    NotStarted { server: &'static str, reason: String, log: PathBuf, tail: String },

    #[error("{doing} failed: {output}")]
    Command { doing: String, output: String },

    #[error("{server} (process {pid}) did not end within {seconds} s")]
    NotEnded { server: &'static str, pid: u32, seconds: u64 },
}

/// Adds to an I/O error what was being done, and to which path.
pub(crate) trait Doing<T> {
    fn doing(self, what: &str, path: &Path) -> Result<T, Error>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: &str, path: &Path) -> Result<T, Error> {
        self.map_err(|source| Error::Io { doing: format!("{what} {}", path.display()), source })
    }
}
