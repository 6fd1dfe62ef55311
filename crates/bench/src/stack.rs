//! The servers that everything runs on: private ones, or those that the caller names.
//!
//! Knows how a database with the shop's schema is made and how a Redis of its own is started. Deliberately does not know
//! any system. Invariant: whatever was made is gone afterwards: private servers with their folder when the stack is
//! dropped (or its process dies), databases and keys on given servers by [`Stack::close`].

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use deadpool_redis::redis::{self, FromRedisValue};
use devstack::{Ending, Environment, Postgres, PostgresOptions, Redis, RedisOptions, Servers, TempDir};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use crate::baselines::{BARE_EVALSHA_NAME, schema};
use crate::systems::order_service_command;

/// What every product has in stock: no run ever sells out.
const STOCK: i64 = 1_000_000_000_000;
/// How many names one SCAN looks at.
const SCAN_COUNT: usize = 1000;

/// Servers to use instead of private ones. Not read from the environment: a benchmark must not hit what a shell happens to
/// point at.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Given {
    /// Use this PostgreSQL; databases `bench_…` are made and dropped on it, so the role needs CREATEDB
    #[arg(long)]
    pub database_url: Option<String>,
    /// Use this Redis; scenarios that break Redis still start private ones
    #[arg(long)]
    pub redis_url: Option<String>,
}

/// Running servers, and a template of the shop's database.
pub struct Stack {
    // Dropped in this order: servers before their folder.
    postgres: Option<Postgres>,
    redis: Option<Redis>,
    servers: Option<Servers>,
    folder: TempDir,
    postgres_url: String,
    redis_url: String,
    api_keys: [String; 2],
    /// Part of every idempotency key and database name of this run.
    run: String,
    databases: Mutex<Vec<String>>,
}

impl Stack {
    /// Starts (or finds) the servers and makes the template.
    pub async fn start(given: Given) -> anyhow::Result<Self> {
        tokio::task::spawn_blocking(move || Self::start_servers(&given)).await??.with_template().await
    }

    fn start_servers(given: &Given) -> anyhow::Result<Self> {
        let folder = TempDir::new("order-service-bench")?;
        // Also with both servers given: scenarios that break Redis need one of their own.
        let servers = Servers::resolve(&Environment::of_this_process()?, &report);
        let servers = match (servers, given.database_url.is_some() && given.redis_url.is_some()) {
            (Ok(servers), _) => Some(servers),
            (Err(_), true) => None,
            (Err(error), false) => return Err(error.into()),
        };
        let (mut postgres, mut redis) = (None, None);
        if let Some(servers) = &servers {
            if given.database_url.is_none() {
                let options = PostgresOptions { on_death: Ending::AtOnce, ..PostgresOptions::default() };
                let place = folder.path().join("postgres");
                postgres = Some(Postgres::start(&servers.postgres, place, options, &report)?);
            }
            if given.redis_url.is_none() {
                redis = Some(start_redis(servers, folder.path().join("redis"), &[])?);
            }
        }
        let postgres_url = given.database_url.clone().or(postgres.as_ref().map(Postgres::url));
        let redis_url = given.redis_url.clone().or(redis.as_ref().map(Redis::url));
        Ok(Self {
            postgres_url: postgres_url.context("no PostgreSQL")?,
            redis_url: redis_url.context("no Redis")?,
            postgres,
            redis,
            servers,
            folder,
            api_keys: Default::default(),
            run: Uuid::new_v4().simple().to_string()[..12].to_owned(),
            databases: Mutex::default(),
        })
    }

    async fn with_template(mut self) -> anyhow::Result<Self> {
        let url = self.create_database("template", None).await?;
        let template = url.clone();
        self.api_keys = tokio::task::spawn_blocking(move || {
            order_service_command(&template, &["migrate"])?;
            order_service_command(&template, &["seed"])?;
            let account = |name| order_service_command(&template, &["accounts", "create", name]);
            anyhow::Ok([account("bench")?, account("bench-other")?])
        })
        .await??;
        let client = connect(&url).await?;
        client
            .batch_execute(&format!("UPDATE products SET initial_stock = {STOCK}, stock = {STOCK}"))
            .await?;
        client.batch_execute(schema::DDL).await?;
        Ok(self)
    }

    /// A database with the shop's schema, its catalogue, both accounts and the baselines' tables.
    pub async fn database(&self, label: &str) -> anyhow::Result<Database> {
        let template = self.database_name("template");
        let url = self.create_database(&format!("{label}_{}", random_name()), Some(&template)).await?;
        Ok(Database { client: Arc::new(connect(&url).await?), url })
    }

    async fn create_database(&self, label: &str, template: Option<&str>) -> anyhow::Result<String> {
        let name = self.database_name(label);
        let from = template.map(|template| format!(" TEMPLATE {template}")).unwrap_or_default();
        let client = connect(&self.postgres_url).await?;
        client.batch_execute(&format!("CREATE DATABASE {name}{from}")).await.context("CREATE DATABASE")?;
        self.databases.lock().unwrap_or_else(PoisonError::into_inner).push(name.clone());
        with_database(&self.postgres_url, &name)
    }

    fn database_name(&self, label: &str) -> String {
        format!("bench_{}_{}", self.run, label.replace('-', "_"))
    }

    /// The Redis that scenarios and loads share.
    pub fn redis_url(&self) -> &str {
        &self.redis_url
    }

    /// Whether [`Stack::new_redis`] can start one.
    pub fn has_redis_programs(&self) -> bool {
        self.servers.is_some()
    }

    /// A Redis of its own, for scenarios that break it.
    pub async fn new_redis(&self, settings: &'static [(&str, &str)]) -> anyhow::Result<Redis> {
        let servers = self.servers.clone().context("there is no redis-server on this machine")?;
        let folder: PathBuf = self.folder.path().join(format!("redis-{}", random_name()));
        tokio::task::spawn_blocking(move || start_redis(&servers, folder, settings)).await?
    }

    /// The API keys of the two accounts; [`Database::account`] says their numbers.
    pub fn api_keys(&self) -> &[String; 2] {
        &self.api_keys
    }

    /// A key that nobody used before, and that [`Stack::close`] finds again.
    pub fn new_key(&self) -> String {
        format!("{}-{}", self.run, Uuid::new_v4().simple())
    }

    /// What the servers are, for the head of a report.
    pub async fn versions(&self) -> anyhow::Result<(String, String)> {
        let client = connect(&self.postgres_url).await?;
        let postgres: String = client.query_one("SHOW server_version", &[]).await?.get(0);
        let info: String = redis_command(&self.redis_url, &["INFO", "server"]).await?;
        let redis = info.lines().find_map(|line| {
            line.strip_prefix("valkey_version:").or_else(|| line.strip_prefix("redis_version:"))
        });
        Ok((postgres, redis.unwrap_or("unknown").trim().to_owned()))
    }

    /// Processes of the private servers, whose CPU time can be read; `None` for given ones.
    pub fn server_pids(&self) -> (Option<u32>, Option<u32>) {
        (self.postgres.as_ref().and_then(Postgres::pid), self.redis.as_ref().and_then(Redis::pid))
    }

    /// Takes away what this run left on servers that go on living.
    pub async fn close(self) -> anyhow::Result<()> {
        if self.redis.is_none() {
            sweep(&self.redis_url, &self.run).await?;
            let _: i64 = redis_command(&self.redis_url, &["DEL", BARE_EVALSHA_NAME]).await?;
        }
        if self.postgres.is_none() {
            let client = connect(&self.postgres_url).await?;
            let names = std::mem::take(&mut *self.databases.lock().unwrap_or_else(PoisonError::into_inner));
            for name in names {
                client.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
            }
        }
        // Stopping servers and removing their folder blocks.
        Ok(tokio::task::spawn_blocking(move || drop(self)).await?)
    }
}

/// A database of one system, with a session of ours.
#[derive(Clone)]
pub struct Database {
    /// Not through a proxy.
    pub url: String,
    /// Our session.
    pub client: Arc<Client>,
}

impl Database {
    /// How many orders there are.
    pub async fn orders(&self) -> anyhow::Result<i64> {
        Ok(self.client.query_one("SELECT count(*) FROM orders", &[]).await?.get(0))
    }

    /// How often the payment gateway has charged.
    pub async fn charges(&self) -> anyhow::Result<i64> {
        Ok(self.client.query_one("SELECT count(*) FROM bench.charges", &[]).await?.get(0))
    }

    /// The number of the first or second account (of [`Stack::api_keys`]).
    pub async fn account(&self, index: usize) -> anyhow::Result<i64> {
        let name = ["bench", "bench-other"][index];
        Ok(self.client.query_one("SELECT id FROM accounts WHERE name = $1", &[&name]).await?.get(0))
    }
}

/// A session that lives as long as its client.
pub async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.context("PostgreSQL")?;
    tokio::spawn(connection);
    Ok(client)
}

/// Runs one command on a connection of its own.
pub async fn redis_command<T: FromRedisValue>(url: &str, words: &[&str]) -> anyhow::Result<T> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(*word);
    }
    Ok(command.query_async(&mut connection).await?)
}

/// Removes the names that contain this run's mark.
async fn sweep(url: &str, run: &str) -> anyhow::Result<()> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let (pattern, mut cursor) = (format!("*{run}*"), 0_u64);
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT);
        let (next, names): (u64, Vec<String>) = scan.query_async(&mut connection).await?;
        if !names.is_empty() {
            let _: i64 = redis::cmd("UNLINK").arg(names).query_async(&mut connection).await?;
        }
        cursor = next;
        if cursor == 0 {
            return Ok(());
        }
    }
}

fn start_redis(servers: &Servers, folder: PathBuf, settings: &[(&str, &str)]) -> anyhow::Result<Redis> {
    let options = RedisOptions { on_death: Ending::AtOnce, ..RedisOptions::default() }.settings(settings);
    Ok(Redis::start(&servers.redis, folder, options, &report)?)
}

/// The URL with another database; what follows the `?` stays.
fn with_database(url: &str, name: &str) -> anyhow::Result<String> {
    let (front, options) = url.split_once('?').map_or((url, None), |(front, options)| (front, Some(options)));
    let after_scheme = front.find("://").context("DATABASE_URL is not a URL")? + 3;
    let end = front[after_scheme..].find('/').map_or(front.len(), |slash| after_scheme + slash);
    let options = options.map(|options| format!("?{options}")).unwrap_or_default();
    Ok(format!("{}/{name}{options}", &front[..end]))
}

fn random_name() -> String {
    Uuid::new_v4().simple().to_string()[..12].to_owned()
}

fn report(line: &str) {
    eprintln!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_of_a_url_is_replaced() {
        for (url, expected) in [
            ("postgres://u:p@h:1/db", "postgres://u:p@h:1/x"),
            ("postgres://u:p@h:1", "postgres://u:p@h:1/x"),
            ("postgres://h/db?sslmode=disable", "postgres://h/x?sslmode=disable"),
        ] {
            assert_eq!(with_database(url, "x").unwrap(), expected);
        }
        assert!(with_database("host=localhost", "x").is_err());
    }
}
