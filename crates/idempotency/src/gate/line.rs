//! One kept connection to Redis, and the scripts that run over it.
//!
//! Taken from the pool once and shared by all requests of a worker (it is multiplexed): a checkout per request would send
//! a PING each time. Knows nothing of keys' meaning. Invariant: a connection that failed is never used again, and an error
//! after the command may have been sent is reported as [`Fault::Lost`].

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_redis::redis::{self, AsyncConnectionConfig, RedisError, Value};
use deadpool_redis::{Connection, Manager, Pool, PoolError, Runtime};
use futures_util::future::try_join_all;
use tokio::sync::Mutex;

use super::Fault;

/// The steps of the protocol, one script each.
#[derive(Debug, Clone, Copy)]
pub(super) enum Script {
    Acquire,
    Settle,
    Release,
    Renew,
    Probe,
    Look,
    Background,
    Free,
}

/// What is asked of Redis.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ask<'a> {
    /// Run a script on its names (all in one slot).
    Run(Script, &'a [String], &'a [&'a [u8]]),
    /// A command of Redis's own, word by word.
    Plain(&'a [&'a str]),
}

static SCRIPTS: LazyLock<[(&str, redis::Script); 8]> = LazyLock::new(|| {
    [
        ("acquire", redis::Script::new(include_str!("acquire.lua"))),
        ("settle", redis::Script::new(include_str!("settle.lua"))),
        ("release", redis::Script::new(include_str!("release.lua"))),
        ("renew", redis::Script::new(include_str!("renew.lua"))),
        ("probe", redis::Script::new(include_str!("probe.lua"))),
        ("look", redis::Script::new(include_str!("look.lua"))),
        ("background", redis::Script::new(include_str!("background.lua"))),
        ("free", redis::Script::new(include_str!("free.lua"))),
    ]
});
const SOURCES: [&str; 8] = [
    include_str!("acquire.lua"),
    include_str!("settle.lua"),
    include_str!("release.lua"),
    include_str!("renew.lua"),
    include_str!("probe.lua"),
    include_str!("look.lua"),
    include_str!("background.lua"),
    include_str!("free.lua"),
];

static SERIAL: AtomicU64 = AtomicU64::new(1);

/// Name and SHA-1 of each script, for whoever watches the wire.
pub fn script_shas() -> [(&'static str, String); 8] {
    std::array::from_fn(|index| (SCRIPTS[index].0, SCRIPTS[index].1.get_hash().to_owned()))
}

#[derive(Debug)]
pub(super) struct Line {
    pool: Pool,
    timeout: Duration,
    kept: Mutex<Option<Kept>>,
}

struct Kept {
    serial: u64,
    connection: Connection,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("serial", &self.serial).finish_non_exhaustive()
    }
}

impl Line {
    pub(super) fn new(url: &str, timeout: Duration) -> Result<Self, String> {
        // Our own bound covers connecting, waiting for it and the call; redis-rs's own would only add a second clock.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(timeout)).set_response_timeout(None);
        let manager = Manager::new_with_config(url, config).map_err(|fault| format!("REDIS_URL: {fault}"))?;
        let pool = Pool::builder(manager)
            // One in use, and room to open the next while a failed one is still being dropped.
            .max_size(2)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(timeout))
            .create_timeout(Some(timeout))
            .recycle_timeout(Some(timeout))
            .build()
            .map_err(|fault| fault.to_string())?;
        Ok(Self { pool, timeout, kept: Mutex::new(None) })
    }

    /// Asks within the bound. A connection that breaks (Redis restarted, an idle one was cut) is replaced and it is asked once more: every
    /// script may run twice, since each compares the token.
    pub(super) async fn ask(&self, asked: Ask<'_>) -> Result<Value, Fault> {
        // The serial of the connection that the command went to last; 0 while it has not been sent.
        let sent = AtomicU64::new(0);
        let calls = async {
            let mut again = false;
            loop {
                match self.call(&sent, asked).await {
                    Err(Fault::Lost(_)) if !again => again = true,
                    // The first one may have been executed, whatever became of the second.
                    Err(Fault::NotSent(why)) if again => return Err(Fault::Lost(why)),
                    answer => return answer,
                }
            }
        };
        match tokio::time::timeout(self.timeout, calls).await {
            Ok(answer) => answer,
            Err(_) => match sent.load(Ordering::Relaxed) {
                0 => Err(Fault::NotSent(format!("no connection within {:?}", self.timeout))),
                serial => {
                    Box::pin(self.forget(serial)).await;
                    Err(Fault::Lost(format!("none within {:?}", self.timeout)))
                }
            },
        }
    }

    async fn call(&self, sent: &AtomicU64, asked: Ask<'_>) -> Result<Value, Fault> {
        let (serial, mut connection) = self.connection().await?;
        sent.store(serial, Ordering::Relaxed);
        match ask_on(&mut connection, asked).await {
            Ok(value) => Ok(value),
            // Boxed, as all that seldom happens: every call would carry its state.
            Err(error) => Err(Box::pin(self.judge(serial, error)).await),
        }
    }

    async fn connection(&self) -> Result<(u64, redis::aio::MultiplexedConnection), Fault> {
        let mut kept = self.kept.lock().await;
        if let Some(kept) = &*kept {
            return Ok((kept.serial, (*kept.connection).clone()));
        }
        // Boxed: opening takes seven kilobytes of state, which every call would carry, and copy, otherwise.
        Box::pin(self.open(&mut kept)).await
    }

    async fn open(&self, kept: &mut Option<Kept>) -> Result<(u64, redis::aio::MultiplexedConnection), Fault> {
        let connection = self.pool.get().await.map_err(|error| match error {
            // An authentication error comes here too: Redis answered that it will not.
            PoolError::Backend(error) if error.code().is_some() => Fault::Refused(error),
            other => Fault::NotSent(other.to_string()),
        })?;
        load_scripts(&connection).await.map_err(|error| match error.code() {
            Some(_) => Fault::Refused(error),
            None => Fault::NotSent(error.to_string()),
        })?;
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let shared = (*connection).clone();
        *kept = Some(Kept { serial, connection });
        Ok((serial, shared))
    }

    /// An error that Redis sent leaves the connection in order; any other means that it is broken. A refused login or a
    /// server that became a replica may be the old address of a moved service: those connections are left as well.
    async fn judge(&self, serial: u64, error: RedisError) -> Fault {
        match error.code() {
            Some("NOAUTH" | "READONLY" | "MASTERDOWN" | "LOADING") => {
                self.forget(serial).await;
                Fault::Refused(error)
            }
            Some(_) => Fault::Refused(error),
            None => {
                self.forget(serial).await;
                Fault::Lost(error.to_string())
            }
        }
    }

    /// Stops using the kept connection (if it is still the one with this serial): it is discarded, not recycled.
    async fn forget(&self, serial: u64) {
        let mut kept = self.kept.lock().await;
        if let Some(failed) = kept.take_if(|kept| kept.serial == serial) {
            drop(Connection::take(failed.connection));
        }
    }
}

async fn ask_on(
    connection: &mut redis::aio::MultiplexedConnection,
    asked: Ask<'_>,
) -> Result<Value, RedisError> {
    let mut command;
    match asked {
        Ask::Plain(words) => {
            command = redis::Cmd::new();
            command.arg(words);
        }
        Ask::Run(script, names, arguments) => {
            command = redis::cmd("EVALSHA");
            command.arg(SCRIPTS[script as usize].1.get_hash()).arg(names.len());
            for name in names {
                command.arg(name);
            }
            for argument in arguments {
                command.arg(*argument);
            }
        }
    }
    let mut loaded = false;
    loop {
        match command.query_async(connection).await {
            Err(error) if error.code() == Some("NOSCRIPT") && !loaded => {
                Box::pin(load_scripts(connection)).await?;
                loaded = true;
            }
            answer => return answer,
        }
    }
}

/// Loads every script in one flight, so that a fail-over or SCRIPT FLUSH costs one round trip, once. Not a pipeline: its
/// error would hide the code of the reply.
async fn load_scripts(connection: &redis::aio::MultiplexedConnection) -> Result<(), RedisError> {
    let loads = SOURCES.map(|source| {
        let mut connection = connection.clone();
        async move { redis::cmd("SCRIPT").arg("LOAD").arg(source).query_async::<()>(&mut connection).await }
    });
    try_join_all(loads).await.map(|_| ())
}
