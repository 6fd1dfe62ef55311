//! One kept connection to Redis for each worker, as the service has it: taken from the pool once, shared by all requests.
//!
//! Knows how a broken connection is replaced. Knows nothing of keys. Invariant: a command whose connection broke is sent
//! once more on a new one, as the common clients do; an error that Redis sent is the caller's.

use std::time::Duration;

use deadpool_redis::redis::{self, AsyncConnectionConfig, Cmd, FromRedisValue, RedisError, Script};
use deadpool_redis::{Connection, Manager, Pool, PoolError, Runtime};
use tokio::sync::Mutex;

/// One call, connecting included; the service's default.
const TIMEOUT: Duration = Duration::from_millis(250);

/// Redis did not do it.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("Redis: {0}")]
    Redis(#[from] RedisError),
    #[error("no connection to Redis: {0}")]
    Pool(#[from] PoolError),
}

pub struct Line {
    pool: Pool,
    kept: Mutex<Option<Connection>>,
}

impl Line {
    pub fn new(url: &str) -> anyhow::Result<Self> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(TIMEOUT))
            .set_response_timeout(Some(TIMEOUT));
        let pool = Pool::builder(Manager::new_with_config(url, config)?)
            .max_size(2)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(TIMEOUT))
            .create_timeout(Some(TIMEOUT))
            .recycle_timeout(Some(TIMEOUT))
            .build()?;
        Ok(Self { pool, kept: Mutex::default() })
    }

    /// Runs a command.
    pub async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, LineError> {
        let mut connection = self.connection().await?;
        match command.query_async(&mut connection).await {
            Err(error) if error.code().is_none() => {
                self.forget().await;
                let mut fresh = self.connection().await?;
                Ok(command.query_async(&mut fresh).await?)
            }
            answer => Ok(answer?),
        }
    }

    /// Runs a script by its hash, and loads it where Redis does not know it.
    pub async fn evaluate<T: FromRedisValue>(
        &self,
        script: &Script,
        source: &str,
        name: &str,
        arguments: &[&[u8]],
    ) -> Result<T, LineError> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(script.get_hash()).arg(1).arg(name);
        for argument in arguments {
            command.arg(*argument);
        }
        match self.run(&command).await {
            Err(LineError::Redis(error)) if error.code() == Some("NOSCRIPT") => {
                let mut load = redis::cmd("SCRIPT");
                self.run::<()>(load.arg("LOAD").arg(source)).await?;
                self.run(&command).await
            }
            answer => answer,
        }
    }

    /// Whoever comes while it is being opened waits for it.
    async fn connection(&self) -> Result<redis::aio::MultiplexedConnection, LineError> {
        let mut kept = self.kept.lock().await;
        if let Some(kept) = &*kept {
            return Ok((**kept).clone());
        }
        let opened = self.pool.get().await?;
        let shared = (*opened).clone();
        *kept = Some(opened);
        Ok(shared)
    }

    /// Stops using the kept connection: it is discarded, not recycled.
    async fn forget(&self) {
        if let Some(broken) = self.kept.lock().await.take() {
            drop(Connection::take(broken));
        }
    }
}
