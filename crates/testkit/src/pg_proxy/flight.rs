//! What the PostgreSQL proxy logs, and what its rules judge.
//!
//! It deliberately does not know the wire. Invariant: `statements` counts what was sent to be executed, whether or
//! not a rule let it through and whether or not it succeeded.

/// One round trip of one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flight {
    /// Counts flights over all connections of the proxy, in the order in which they began.
    pub number: u64,
    /// Counts connections of the proxy.
    pub connection: u64,
    /// The SQL text of every Execute and simple Query, in order. Its length is the number of statements.
    pub statements: Vec<String>,
    /// The SQL text of every Parse.
    pub prepared: Vec<String>,
    /// Prepared statements closed, as drivers do when a statement is dropped.
    pub closed: usize,
    /// Syncs and simple Queries: the answers that the client expects.
    pub syncs: usize,
    /// The server has answered everything. Says nothing about whether the client has got it.
    pub answered: bool,
    pub(crate) startup: bool,
}

impl Flight {
    /// The connection's beginning, authentication included.
    pub fn is_startup(&self) -> bool {
        self.startup
    }

    /// Executes nothing: only prepares or closes statements.
    pub fn is_prepare(&self) -> bool {
        self.statements.is_empty() && (!self.prepared.is_empty() || self.closed > 0)
    }

    /// Only closes statements; nobody waits for its answer.
    pub fn is_close(&self) -> bool {
        self.is_prepare() && self.prepared.is_empty()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A Parse.
    Prepare,
    /// A Bind, which an Execute follows, or a simple Query.
    Execute,
}

/// What a rule sees of a message that carries or names SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    pub connection: u64,
    pub step: Step,
    pub sql: String,
}
