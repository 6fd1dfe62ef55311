//! A private PostgreSQL and a private Redis (or Valkey) as child processes of this process.
//!
//! For `order-service dev` and for tests: find the programs or get them, start them on free ports of
//! 127.0.0.1 with their own data folders, and end them with us, however we end.
//!
//! Deliberately unknown here: schemas, migrations, the service, async. Everything blocks; call it
//! through `spawn_blocking` from async code. Nothing is printed: progress goes to a [`Report`].
//!
//! Invariant: no server outlives the process that started it, also after SIGKILL. Each server is the
//! child of a small shell (`watchdog.sh`) that reads a pipe whose only writing end is ours.
//!
//! ```no_run
//! use devstack::{Environment, Ending, Postgres, PostgresOptions, Redis, RedisOptions, Servers};
//! let report = |line: &str| eprintln!("{line}");
//! let servers = Servers::resolve(&Environment::of_this_process()?, &report)?;
//! let mut postgres = Postgres::start(&servers.postgres, "data/postgres", PostgresOptions::default(), &report)?;
//! let mut redis = Redis::start(&servers.redis, "data/redis", RedisOptions::default(), &report)?;
//! println!("{} {}", postgres.url(), redis.url());
//! redis.stop()?;
//! postgres.stop()?;
//! # Ok::<(), devstack::Error>(())
//! ```

mod account;
mod command;
mod embedded;
mod environment;
mod error;
mod fetch;
mod home;
mod install;
mod locate;
mod poll;
mod port;
mod postgres;
mod processes;
mod random;
mod redis;
mod resolve;
mod script;
mod server;
mod start;
mod temp;

pub use crate::embedded::Platform;
pub use crate::environment::Environment;
pub use crate::error::Error;
pub use crate::locate::{PostgresProgram, RedisProgram};
pub use crate::poll::wait_until;
pub use crate::postgres::{Postgres, PostgresOptions};
pub use crate::processes::is_alive;
pub use crate::redis::{Redis, RedisOptions};
pub use crate::resolve::Servers;
pub use crate::script::write_script;
pub use crate::server::Ending;
pub use crate::temp::TempDir;

/// Told in one line what is being done when that takes time or may surprise.
pub type Report<'a> = &'a dyn Fn(&str);

pub type Result<T> = std::result::Result<T, Error>;
