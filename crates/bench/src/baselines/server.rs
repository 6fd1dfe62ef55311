//! The server that all baselines share: settings, workers with their own way to each store, routes.
//!
//! As the service is built: a pool and a kept Redis connection for each actix worker, as many workers as cores, known API
//! keys in memory. Deliberately does not know any protocol. Invariant: the address is printed once requests are answered.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use anyhow::Context as _;
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime, Timeouts};
use tokio_postgres::NoTls;

use super::line::Line;
use super::request::{GATEWAY_ORDERS, Incoming, MINIMAL_ORDERS, ORDERS};
use super::session::Flight;
use super::{bare_evalsha, naive_hybrid, no_key, postgres_only, redis_only};
use crate::stack::connect;
use crate::systems::System;

/// How long the articles hold a running key.
pub const LOCK_TTL: Duration = Duration::from_secs(60);
/// How long a request waits for a connection, and how long opening one may take; the service's defaults.
const POOL_WAIT: Duration = Duration::from_secs(2);
/// The longest that a statement may run; the service's default.
const STATEMENT_MAX_MS: u32 = 10_000;

/// What a baseline is told by its environment, under the service's names where it has the same.
#[derive(Debug, Clone)]
pub struct Settings {
    bind: SocketAddr,
    database_url: String,
    redis_url: String,
    pool: usize,
    lock_ms: u64,
}

impl Settings {
    pub fn of_environment() -> anyhow::Result<Self> {
        let read = |name: &'static str| std::env::var(name).context(name);
        Ok(Self {
            bind: read("BIND")?.parse().context("BIND")?,
            database_url: read("DATABASE_URL")?,
            redis_url: read("REDIS_URL")?,
            pool: read("DATABASE_POOL")?.parse().context("DATABASE_POOL")?,
            lock_ms: read("BENCH_LOCK_TTL_MS")?.parse().context("BENCH_LOCK_TTL_MS")?,
        })
    }
}

/// The accounts by their API keys. The secret is not compared: that costs the service a hash of 64 bytes, and baselines
/// nothing.
#[derive(Debug, Clone, Default)]
pub struct Accounts(Arc<HashMap<String, i64>>);

impl Accounts {
    async fn load(database_url: &str) -> anyhow::Result<Self> {
        let client = connect(database_url).await?;
        let rows = client.query("SELECT id, account_id FROM api_keys WHERE revoked_at IS NULL", &[]).await?;
        Ok(Self(Arc::new(rows.iter().map(|row| (row.get(0), row.get(1))).collect())))
    }

    /// Whose key this is (`osk_{id}_{secret}`).
    pub fn of(&self, key: &str) -> Option<i64> {
        let (id, _secret) = key.strip_prefix("osk_")?.split_once('_')?;
        self.0.get(id).copied()
    }
}

/// What the requests of one worker share.
pub struct Worker {
    pub pool: Pool,
    pub line: Line,
    pub lock_ms: u64,
    system: System,
    accounts: Accounts,
}

impl Worker {
    fn new(system: System, settings: &Settings, share: usize, accounts: Accounts) -> anyhow::Result<Self> {
        let mut target = tokio_postgres::Config::from_str(&settings.database_url)?;
        target.application_name(system.name()).options(format!("-c statement_timeout={STATEMENT_MAX_MS}"));
        let manager =
            Manager::from_config(target, NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
        let bound = Some(POOL_WAIT);
        let pool = Pool::builder(manager)
            .max_size(share)
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts { wait: bound, create: bound, recycle: bound })
            .build()?;
        Ok(Self { pool, line: Line::new(&settings.redis_url)?, lock_ms: settings.lock_ms, system, accounts })
    }
}

/// Serves one baseline until it is told to end.
pub async fn serve(system: System, settings: Settings) -> anyhow::Result<()> {
    let accounts = Accounts::load(&settings.database_url).await?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = cores.min(settings.pool.max(1));
    // Whole connections; the first workers get what does not divide.
    let shares = move |worker: usize| settings.pool / workers + usize::from(worker < settings.pool % workers);
    // Fails here, not in a worker, if a URL cannot be read.
    let probe = Worker::new(system, &settings, 1, accounts.clone())?;
    if system == System::BareEvalsha {
        bare_evalsha::prepare(&probe).await?;
    }
    let bind = settings.bind;
    let started = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let server = HttpServer::new(move || {
        let number = started.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % workers;
        let worker = Worker::new(system, &settings, shares(number), accounts.clone()).expect("read before");
        App::new()
            .app_data(web::Data::new(worker))
            .route(MINIMAL_ORDERS, web::post().to(handle))
            .route(ORDERS, web::post().to(handle))
            .route(GATEWAY_ORDERS, web::post().to(handle))
    })
    .workers(workers)
    .shutdown_timeout(1)
    .bind(bind)?;
    let address = server.addrs()[0];
    let running = server.run();
    // The form of the service's own line.
    eprintln!("{}", serde_json::json!({ "message": "serving", "api": address.to_string() }));
    Ok(running.await?)
}

async fn handle(request: HttpRequest, body: web::Bytes, worker: web::Data<Worker>) -> HttpResponse {
    let answered = async {
        if worker.system == System::BareEvalsha {
            return bare_evalsha::handle(&worker).await;
        }
        let incoming = Incoming::read(&request, &body, &worker.accounts)?;
        match worker.system {
            System::NoKey => no_key::handle(&worker, incoming, Flight::InTurn).await,
            System::NoKeyPipelined => no_key::handle(&worker, incoming, Flight::Together).await,
            System::RedisOnly => redis_only::handle(&worker, incoming).await,
            System::PostgresOnly => postgres_only::handle(&worker, incoming).await,
            System::NaiveHybrid => naive_hybrid::handle(&worker, incoming).await,
            System::OrderService | System::BareEvalsha => {
                unreachable!("they do not read requests here")
            }
        }
    };
    answered.await.unwrap_or_else(|failure| failure.response())
}
