//! One connection, and how it is opened: limits set, commits durable, and known which database is at its other end.
//!
//! Knows deadpool's manager and the first words on a connection. Invariant: a connection that was handed out has been
//! greeted; without a pooler in between, it speaks with that one server until it ends.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use deadpool::managed::{self, Metrics, RecycleResult};
use deadpool_postgres::{ClientWrapper, Manager};
use tokio_postgres::{Row, Statement};

use super::{Pooler, Query};
use crate::generation::{CurrentGeneration, Generation};

/// Which database answers: its oid and the start of its server, in microseconds since 1970.
macro_rules! generation_columns {
    () => {
        "(SELECT oid FROM pg_database WHERE datname = current_database())::int8,
         (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::int8"
    };
}
pub(crate) use generation_columns;

pub(super) const GENERATION_SQL: &str = concat!("SELECT ", generation_columns!());

/// A commit that is acknowledged must be durable, whatever the default of database or role: `off` and `local` are raised to
/// `on`, stronger settings are left. `true` in place of the last argument makes it end with the transaction.
pub(super) const DURABLE: &str = "set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') \
                                  THEN 'on' ELSE current_setting('synchronous_commit') END, ";

/// A connection from the pool.
pub(crate) type Object = managed::Object<Opener>;

/// An open connection and what it greeted.
pub(crate) struct Connection {
    client: ClientWrapper,
    /// The database at the other end; behind a transaction pooler, the one that happened to answer first.
    pub(crate) generation: Generation,
    /// Prepared statements by the place and length of their text, which is static: to hash the text itself, hundreds of bytes,
    /// with every execution was felt.
    statements: Mutex<HashMap<(usize, usize), Statement>>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("generation", &self.generation).finish_non_exhaustive()
    }
}

impl Connection {
    /// The statement of a query, prepared when this connection meets it first.
    pub(super) async fn prepared(&self, query: Query<'_>) -> Result<Statement, tokio_postgres::Error> {
        let place = (query.sql.as_ptr() as usize, query.sql.len());
        // One text may be met with other types; then the slower way tells them apart.
        let fits = |known: &&Statement| {
            let types = known.params();
            types.len() == query.params.len()
                && types.iter().zip(query.params).all(|(known, param)| *known == param.sql_type())
        };
        if let Some(known) = self.statements().get(&place).filter(fits) {
            return Ok(known.clone());
        }
        let types: Vec<_> = query.params.iter().map(|param| param.sql_type()).collect();
        let statement = self.client.prepare_typed_cached(query.sql, &types).await?;
        self.statements().insert(place, statement.clone());
        Ok(statement)
    }

    fn statements(&self) -> std::sync::MutexGuard<'_, HashMap<(usize, usize), Statement>> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Connection {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        &self.client
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut ClientWrapper {
        &mut self.client
    }
}

/// Opens connections for the pool, which bounds the time of all that is done here.
#[derive(Debug)]
pub(crate) struct Opener {
    pub(super) manager: Manager,
    pub(super) pooler: Pooler,
    pub(super) seen: CurrentGeneration,
}

impl managed::Manager for Opener {
    type Type = Connection;
    type Error = tokio_postgres::Error;

    async fn create(&self) -> Result<Connection, tokio_postgres::Error> {
        let client = self.manager.create().await?;
        if self.pooler == Pooler::None {
            client.batch_execute(&format!("SELECT {DURABLE} false)")).await?;
        }
        let generation = generation_of(&client.query_typed_one(GENERATION_SQL, &[]).await?, 0);
        self.seen.set(generation);
        Ok(Connection { client, generation, statements: Mutex::default() })
    }

    async fn recycle(
        &self,
        connection: &mut Connection,
        metrics: &Metrics,
    ) -> RecycleResult<tokio_postgres::Error> {
        self.manager.recycle(&mut connection.client, metrics).await
    }

    fn detach(&self, connection: &mut Connection) {
        self.manager.detach(&mut connection.client);
    }
}

/// Reads the two columns of a generation, from column `at` on.
pub(crate) fn generation_of(row: &Row, at: usize) -> Generation {
    Generation::of(row.get(at), row.get(at + 1))
}

/// The generation that a row speaks of: its own word, from column `at` on, where the statement asked for it, else the
/// connection's.
pub(crate) fn generation_behind(connection: &Connection, row: &Row, at: usize) -> Generation {
    if row.len() > at { generation_of(row, at) } else { connection.generation }
}
