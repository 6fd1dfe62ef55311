//! A write that flies with the end of the transaction, and so costs no round trip of its own and holds its rows for less.
//!
//! It is sent together with the events, the record and COMMIT, so nobody sees what it returns: what is wrong must be an error.
//! That error undoes everything; a named constraint can make a refusal of it. Knows SQL text, nothing of connections.
//! Invariant: what is answered was decided before it was sent, or is undone by it.

use tokio_postgres::error::SqlState;

use super::control::{TransactionControl, refuse_control};
use crate::database::{Param, Query};
use crate::problem::{Problem, ProblemKind};

/// A command's last write: one statement with its values, and what its errors mean.
pub struct LastWrite {
    sql: &'static str,
    params: Vec<Box<dyn Param + Send>>,
    refusals: Vec<(&'static str, Problem)>,
}

impl LastWrite {
    /// A statement that raises if it cannot do all that it is there for.
    pub fn new(sql: &'static str, params: Vec<Box<dyn Param + Send>>) -> Self {
        Self { sql, params, refusals: Vec::new() }
    }

    /// What the caller is told when this constraint refuses a row: a definite no, stored, like [`Abort::reject`](super::Abort::reject).
    #[must_use]
    pub fn refused_by(
        mut self,
        constraint: &'static str,
        kind: &'static ProblemKind,
        detail: impl Into<String>,
    ) -> Self {
        self.refusals.push((constraint, kind.because(detail)));
        self
    }

    pub(crate) fn checked(self) -> Result<Self, TransactionControl> {
        refuse_control(self.sql)?;
        Ok(self)
    }

    pub(crate) fn params(&self) -> Vec<&dyn Param> {
        self.params.iter().map(|param| &**param as &dyn Param).collect()
    }

    pub(crate) fn query<'a>(&self, params: &'a [&'a dyn Param]) -> Query<'a> {
        Query { sql: self.sql, params }
    }

    /// The refusal that this error stands for, if it is the violation of a constraint that was named.
    pub(crate) fn refusal(&self, error: &tokio_postgres::Error) -> Option<Problem> {
        let violated = error.as_db_error().filter(|db| is_violation(db.code()))?.constraint()?;
        self.refusals
            .iter()
            .find(|(constraint, _)| *constraint == violated)
            .map(|(_, problem)| problem.clone())
    }
}

/// Class 23: integrity constraint violations.
fn is_violation(state: &SqlState) -> bool {
    state.code().starts_with("23")
}
