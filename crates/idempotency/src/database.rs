//! Connections to PostgreSQL: one small pool for each runtime, with every limit set.
//!
//! Knows how statements are sent (prepared once per connection, or unnamed behind a transaction pooler) and which
//! generation of the database answers. Knows nothing of records or commands. Invariant: a connection goes back to the
//! pool only from a state that is known to be clean; whoever is in doubt discards it with [`Object::take`].

mod connection;
mod held;
mod param;
mod watch;

use std::str::FromStr as _;
use std::time::Duration;

use deadpool::managed::{self, Manager as _};
use deadpool_postgres::{Manager, ManagerConfig, RecyclingMethod, Runtime, Timeouts};
use tokio_postgres::{NoTls, Row};

use connection::{DURABLE, GENERATION_SQL, Opener};
pub(crate) use connection::{Object, generation_behind, generation_columns, generation_of};
pub(crate) use held::{Held, discard};
pub use param::Param;
pub use watch::{PoolUsage, PoolWatch};

use crate::generation::CurrentGeneration;
use crate::sqlstate::{self, Trouble};

/// How long opening a connection may take, in all, before the request that wanted it is told so.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// How to reach PostgreSQL, and the limits that travel with every statement.
#[derive(Debug, Clone)]
pub struct DatabaseConfig {
    /// libpq URL; several hosts and `target_session_attrs` are allowed.
    pub url: String,
    /// How long a request waits for a connection.
    pub pool_wait: Duration,
    /// The longest that one statement may run; COMMIT is awaited for as long.
    pub statement_timeout: Duration,
    /// The longest that a statement waits for a lock.
    pub lock_timeout: Duration,
    /// How long a transaction may sit idle before the server ends it: the lease, so that a stopped owner does not hold
    /// key and stock for longer.
    pub idle_timeout: Duration,
    /// Whether a pooler in transaction mode stands in between.
    pub pooler: Pooler,
    /// How prepared statements are planned.
    pub plans: Plans,
}

/// How often a prepared statement is planned on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plans {
    /// As the server decides, which for arrays is nearly always: with every execution.
    AsTheServerDecides,
    /// Once, and again when statistics change. For short statements that meet their rows by an index. A `plan_cache_mode` in the
    /// URL's `options` has precedence.
    Once,
}

/// What stands between this process and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooler {
    /// Nothing: statements are prepared once per connection, limits are set when it opens.
    None,
    /// A transaction pooler: statements are sent unnamed, limits travel with BEGIN.
    Transaction,
}

/// One statement with its values. The text is static: prepared statements are kept by it.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    /// One SQL statement.
    pub sql: &'static str,
    /// `$1`, `$2`, …
    pub params: &'a [&'a dyn Param],
}

/// No connection could be had.
#[derive(Debug, thiserror::Error)]
pub enum NoConnection {
    /// The pool has none, or could not open one.
    #[error("no connection to PostgreSQL: {0}")]
    Pool(#[from] managed::PoolError<tokio_postgres::Error>),
    /// A fresh one could not be opened.
    #[error("no connection to PostgreSQL: {0}")]
    Connect(#[from] tokio_postgres::Error),
    /// All steps together took too long.
    #[error("no connection to PostgreSQL in time")]
    TimedOut,
}

/// A pool of connections that lives on the runtime that first uses it.
#[derive(Debug, Clone)]
pub struct Database {
    pool: managed::Pool<Opener>,
    pooler: Pooler,
    begin: String,
    pool_wait: Duration,
    /// COMMIT is awaited for this long.
    pub(crate) statement_timeout: Duration,
    pub(crate) generation: CurrentGeneration,
}

impl Database {
    /// A pool of at most `size` connections; none is opened yet.
    ///
    /// # Errors
    /// One line, if the URL cannot be read.
    pub fn new(config: &DatabaseConfig, size: usize, generation: CurrentGeneration) -> Result<Self, String> {
        let mut target = tokio_postgres::Config::from_str(&config.url)
            .map_err(|fault| format!("DATABASE_URL: {fault}"))?;
        let limits = [
            ("statement_timeout", config.statement_timeout),
            ("lock_timeout", config.lock_timeout),
            ("idle_in_transaction_session_timeout", config.idle_timeout),
        ];
        // READ COMMITTED, whatever the role's default: the look-up must see what was committed before the lock was had.
        let mut begin = "BEGIN ISOLATION LEVEL READ COMMITTED".to_owned();
        match config.pooler {
            Pooler::None => {
                let mut options = target.get_options().unwrap_or_default().to_owned();
                for (name, limit) in limits {
                    options.push_str(&format!(" -c {name}={}", limit.as_millis()));
                }
                if config.plans == Plans::Once && !options.contains("plan_cache_mode") {
                    options.push_str(" -c plan_cache_mode=force_generic_plan");
                }
                target.options(options.trim_start().to_owned());
            }
            Pooler::Transaction => {
                for (name, limit) in limits {
                    begin.push_str(&format!("; SET LOCAL {name} = {}", limit.as_millis()));
                }
                begin.push_str(&format!("; SELECT {DURABLE} true)"));
            }
        }
        if target.get_application_name().is_none() {
            target.application_name("order-service");
        }
        if target.get_connect_timeout().is_none() {
            target.connect_timeout(CONNECT_MAX);
        }
        target.tcp_user_timeout(config.statement_timeout + Duration::from_secs(5));
        let manager =
            Manager::from_config(target, NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
        let opener = Opener { manager, pooler: config.pooler, seen: generation.clone() };
        let pool = managed::Pool::builder(opener)
            .max_size(size)
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts {
                wait: Some(config.pool_wait),
                create: Some(CONNECT_MAX),
                recycle: Some(CONNECT_MAX),
            })
            .build()
            .map_err(|fault| fault.to_string())?;
        Ok(Self {
            pool,
            pooler: config.pooler,
            begin,
            pool_wait: config.pool_wait,
            statement_timeout: config.statement_timeout,
            generation,
        })
    }

    /// A connection, after a bounded wait. `fresh` asks for one that nobody used before.
    pub(crate) async fn connection(&self, fresh: bool) -> Result<Object, NoConnection> {
        // Waiting, opening, and opening once more for a fresh one.
        let bound = self.pool_wait + CONNECT_MAX * 3;
        tokio::time::timeout(bound, self.connect(fresh)).await.unwrap_or(Err(NoConnection::TimedOut))
    }

    async fn connect(&self, fresh: bool) -> Result<Object, NoConnection> {
        let mut connection = self.pool.get().await?;
        // Whatever made the last run fail may live in the connection. It is replaced in its place: giving the place back
        // would hand it to the next in the queue, and under load a fresh one would never come.
        if fresh && Object::metrics(&connection).recycle_count > 0 {
            let opened = self.pool.manager().create();
            *connection =
                tokio::time::timeout(CONNECT_MAX, opened).await.map_err(|_| NoConnection::TimedOut)??;
        }
        Ok(connection)
    }

    /// Whether a connection speaks with one server for all its life.
    pub(crate) fn connections_are_direct(&self) -> bool {
        self.pooler == Pooler::None
    }

    /// The text that opens a transaction, with its limits where the connection does not carry them.
    pub(crate) fn begin(&self) -> &str {
        &self.begin
    }

    /// Runs one statement by itself (autocommit), for reads outside commands, and for writes that may run twice. What may have been bad luck (a connection that
    /// died, a plan that no longer fits) is tried once more, on a fresh connection.
    ///
    /// # Errors
    /// [`ReadError`]; also when no answer comes within the statement time-out.
    pub async fn read(&self, sql: &'static str, params: &[&dyn Param]) -> Result<Vec<Row>, ReadError> {
        match self.run_once(sql, params, false).await {
            Err(ReadError::Database(error)) if sqlstate::classify(&error) == Trouble::Again => {
                self.run_once(sql, params, true).await
            }
            answer => answer,
        }
    }

    /// Runs one statement by itself, once.
    pub(crate) async fn run_once(
        &self,
        sql: &'static str,
        params: &[&dyn Param],
        fresh: bool,
    ) -> Result<Vec<Row>, ReadError> {
        let held = Held::new(self.connection(fresh).await?);
        let statement = self.run(&held, Query { sql, params });
        match tokio::time::timeout(self.statement_timeout, statement).await {
            Ok(Ok(rows)) => {
                held.give_back();
                Ok(rows)
            }
            // An error that the server sent leaves the connection idle; one that it is too stale for does not mend it.
            Ok(Err(error)) => {
                if sqlstate::classify(&error) == Trouble::Broken {
                    held.give_back();
                }
                Err(ReadError::Database(error))
            }
            Err(_) => Err(ReadError::TimedOut),
        }
    }

    /// Runs one statement on a connection that is already held.
    pub(crate) async fn run(
        &self,
        connection: &Object,
        query: Query<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.ready(connection, query).await?;
        self.send(connection, query).await
    }

    /// Runs statements in one flight: all are prepared first, then sent in order without waiting in between.
    pub(crate) async fn run_all(
        &self,
        connection: &Object,
        queries: &[Query<'_>],
    ) -> Result<Vec<Vec<Row>>, tokio_postgres::Error> {
        for query in queries {
            self.ready(connection, *query).await?;
        }
        // join_all polls in order, and a prepared or unnamed statement is sent by its first poll.
        let answers =
            futures_util::future::join_all(queries.iter().map(|query| self.send(connection, *query))).await;
        answers.into_iter().collect()
    }

    /// Prepares a statement unless this connection has it already, or nothing may be prepared.
    pub(crate) async fn ready(
        &self,
        connection: &Object,
        query: Query<'_>,
    ) -> Result<(), tokio_postgres::Error> {
        if self.pooler == Pooler::None {
            connection.prepared(query).await?;
        }
        Ok(())
    }

    /// Sends a statement that is prepared (or needs no preparation) with the first poll.
    pub(crate) async fn send(
        &self,
        connection: &Object,
        query: Query<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        match self.pooler {
            Pooler::None => {
                let statement = connection.prepared(query).await?;
                let values: Vec<_> = query.params.iter().map(|param| param.as_sql()).collect();
                connection.query(&statement, &values).await
            }
            Pooler::Transaction => {
                let values: Vec<_> =
                    query.params.iter().map(|param| (param.as_sql(), param.sql_type())).collect();
                connection.query_typed(query.sql, &values).await
            }
        }
    }

    /// Asks which generation answers, and takes note of it.
    ///
    /// # Errors
    /// [`ReadError`], when the database cannot be asked.
    pub async fn refresh_generation(&self) -> Result<(), ReadError> {
        let rows = self.read(GENERATION_SQL, &[]).await?;
        if let Some(row) = rows.first() {
            self.generation.set(generation_of(row, 0));
        }
        Ok(())
    }
}

/// A read that failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No connection could be had.
    #[error(transparent)]
    NoConnection(#[from] NoConnection),
    /// PostgreSQL refused the statement.
    #[error("PostgreSQL: {0}")]
    Database(tokio_postgres::Error),
    /// No answer in time; the connection was discarded.
    #[error("no answer from PostgreSQL in time")]
    TimedOut,
}

impl ReadError {
    /// Whether repeating it later can help, as opposed to a fault in the statement.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::NoConnection(_) | Self::TimedOut => true,
            Self::Database(error) => sqlstate::classify(error) != Trouble::Broken,
        }
    }
}
