//! A connection to PostgreSQL, and statements that fly together.
//!
//! Knows how statements are prepared and sent, in one flight or in turn. Knows no table. Invariant: a connection whose
//! transaction was left open (an early return, a handler that was dropped) is rolled back before anybody else's statement
//! reaches the server.

use deadpool_postgres::{Object, Pool, PoolError};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use idempotency::Query;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

pub const BEGIN: Query<'static> = Query { sql: "BEGIN", params: &[] };
pub const COMMIT: Query<'static> = Query { sql: "COMMIT", params: &[] };

/// How several statements are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flight {
    /// All at once; the answers are awaited afterwards.
    Together,
    /// Each after the answer to the one before, as ordinary handlers do.
    InTurn,
}

/// A connection that is held for one request.
pub struct Session {
    connection: Object,
    flight: Flight,
    in_transaction: bool,
}

impl Session {
    pub async fn take(pool: &Pool, flight: Flight) -> Result<Self, PoolError> {
        Ok(Self { connection: pool.get().await?, flight, in_transaction: false })
    }

    /// Runs the statements in order and returns the rows of each, or the error of the first that failed.
    pub async fn fly(&mut self, queries: &[Query<'_>]) -> Result<Vec<Vec<Row>>, tokio_postgres::Error> {
        // Prepared before the first one leaves: an unprepared one would be overtaken by those behind it.
        let mut statements = Vec::with_capacity(queries.len());
        for query in queries {
            let types: Vec<Type> = query.params.iter().map(|param| param.sql_type()).collect();
            statements.push(self.connection.prepare_typed_cached(query.sql, &types).await?);
        }
        self.in_transaction |= queries.iter().any(|query| query.sql == BEGIN.sql);
        let sent = queries.iter().zip(&statements).map(|(query, statement)| async {
            let values: Vec<_> = query.params.iter().map(|param| param.as_sql()).collect();
            self.connection.query(statement, &values).await
        });
        let answers = match self.flight {
            // Polled, and so sent, in order. COMMIT says ok for an aborted transaction, but then another one failed.
            Flight::Together => join_all(sent).await.into_iter().collect::<Result<Vec<_>, _>>()?,
            Flight::InTurn => {
                let mut answers = Vec::with_capacity(queries.len());
                for statement in sent {
                    answers.push(statement.await?);
                }
                answers
            }
        };
        if queries.last().is_some_and(|query| query.sql == COMMIT.sql) {
            self.in_transaction = false;
        }
        Ok(answers)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.in_transaction {
            // The first poll sends it, ahead of whatever the next one sends: what tokio-postgres's own Transaction does.
            let _ = self.connection.batch_execute("ROLLBACK").now_or_never();
        }
    }
}
