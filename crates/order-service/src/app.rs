//! The service as one thing: two listeners, workers with their own way to each store, housekeeping, an orderly end.
//!
//! Connections live on the runtime that opened them, so each HTTP worker builds its own pool and gate. Invariant: work
//! that was taken is finished before the runtime that it runs on stops, or the grace time is over.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_cors::Cors;
use actix_web::dev::ServerHandle;
use actix_web::middleware::Condition;
use actix_web::{App as ActixApp, HttpServer, web};
use anyhow::{Context as _, bail};
use idempotency::gate::Gate;
use idempotency::http::{Authenticator, Services};
use idempotency::relay::Relay;
use idempotency::{
    Completer, CurrentGeneration, Database, DatabaseConfig, Engine, Ledger, Plans, Reaper, Shutdown, Waiting,
};

use crate::auth::{ApiKeys, KnownKeys};
use crate::config::ServeArgs;
use crate::payments::gateway::Gateway;
use crate::webhooks::{Sender, SigningKey};
use crate::{Extra, admin, auth, gateway_events, routes};

/// How often the generation of the database is asked for.
const GENERATION_EVERY: Duration = Duration::from_secs(1);
/// How long a browser may remember a preflight, in seconds.
const CORS_MAX_AGE: usize = 3600;
/// The completer's own connections, if the process has at least so many in all; else it uses housekeeping's.
const COMPLETER_CONNECTIONS: usize = 2;
const POOL_WITH_COMPLETER: usize = 8;
/// How long connections may take to close once all work is done, in whole seconds.
const CLOSE_MAX: u64 = 1;

/// What the shop's commands and reads share: one per worker.
pub struct Shop {
    /// For reads outside commands.
    pub database: Database,
    /// Whether webhooks may go to private addresses.
    pub webhooks_may_be_private: bool,
    /// The payment gateway, if one is set up.
    pub(crate) gateway: Option<Gateway>,
    /// What the gateway's own messages are checked with, if any are expected.
    pub(crate) gateway_signs_with: Option<SigningKey>,
}

impl Shop {
    fn new(database: Database, arguments: &ServeArgs) -> Self {
        Self {
            database,
            webhooks_may_be_private: arguments.limits.webhook_allow_private,
            // Their settings were read before anything started.
            gateway: arguments.gateway.gateway().ok().flatten(),
            gateway_signs_with: arguments.gateway.signing_key().ok().flatten(),
        }
    }
}

/// A running service.
pub(crate) struct App {
    pub(crate) api: SocketAddr,
    pub(crate) admin: SocketAddr,
    servers: [ServerHandle; 2],
    shutdown: Shutdown,
    operator: admin::Operator,
    grace: Duration,
}

/// Builds and starts the service; it answers once this returns.
pub(crate) fn start(arguments: &ServeArgs, extra: Extra) -> anyhow::Result<App> {
    let faults = arguments.check();
    if !faults.is_empty() {
        bail!(faults.join("\nerror: "));
    }
    let (generation, shutdown, known) =
        (CurrentGeneration::default(), Shutdown::default(), KnownKeys::default());
    let metrics = admin::metrics_recorder();
    let pools = admin::Pools::default();

    // One connection is housekeeping's, a second one if there are some to share, and of many the completer has its own; the
    // workers have the rest. More workers than connections would only wait.
    let pool = arguments.limits.database_pool;
    let for_housekeeping = (pool / 4).clamp(1, 2);
    let for_completer = if pool >= POOL_WITH_COMPLETER { COMPLETER_CONNECTIONS } else { 0 };
    let for_requests = pool.saturating_sub(for_housekeeping + for_completer).max(1);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = cores.min(for_requests);
    let shares = Shares::new(for_requests, workers);

    let housekeeping = Database::new(&arguments.database(), for_housekeeping, generation.clone())
        .map_err(anyhow::Error::msg)?;
    pools.add(&housekeeping);
    let sender = Sender::new(housekeeping.clone(), arguments.limits.webhook_allow_private);
    let sender = sender.map_err(anyhow::Error::msg)?;

    // Fails here, not in a worker, if the URL cannot be read.
    let probe = Gate::new(&arguments.gate(), generation.clone()).map_err(anyhow::Error::msg)?;

    let waiting = Waiting::new(arguments.limits.idempotency_waiters_max);
    let of_completer = if for_completer == 0 {
        housekeeping.clone()
    } else {
        let database = Database::new(&arguments.database(), for_completer, generation.clone());
        let database = database.map_err(anyhow::Error::msg)?;
        pools.add(&database);
        database
    };
    let completer = {
        let gate = Gate::new(&arguments.gate(), generation.clone()).map_err(anyhow::Error::msg)?;
        let engine = engine(arguments, of_completer.clone(), gate, waiting.clone(), shutdown.clone());
        let ledger = Ledger::new(of_completer.clone(), engine.policy());
        let shop = Arc::new(Shop::new(of_completer, arguments));
        let workflows = (extra.workflows)(routes::workflows(&shop), &shop);
        Completer::new(engine, ledger, workflows, shutdown.clone())
    };
    let per_worker = {
        let (arguments, shutdown, known) = (arguments.clone(), shutdown.clone(), known.clone());
        let (generation, pools) = (generation.clone(), pools.clone());
        move || {
            // Orders and their keys are met by an index: to plan each statement anew is a tenth of an order's cost.
            let config = DatabaseConfig { plans: Plans::Once, ..arguments.database() };
            let database = Database::new(&config, shares.next(), generation.clone());
            let gate = Gate::new(&arguments.gate(), generation.clone());
            let shutdown = shutdown.of_worker();
            let (database, gate) = (database.expect("read before"), gate.expect("read before"));
            pools.add(&database);
            let engine = engine(&arguments, database.clone(), gate, waiting.clone(), shutdown.clone());
            let keys = ApiKeys::new(known.clone(), database.clone());
            let services = Services::new(engine, Authenticator::new(keys), shutdown);
            let shop = Shop::new(database, &arguments);
            let (payments, shop) = (shop.gateway.is_some(), web::Data::new(shop));
            ActixApp::new()
                .wrap(Condition::new(
                    !arguments.listen.cors_origins.is_empty(),
                    cors(&arguments.listen.cors_origins),
                ))
                .app_data(shop)
                .configure(|config| services.register(config))
                .configure(extra.routes)
                .configure(|config| routes::table(config, payments))
                .default_service(web::route().to(idempotency::http::fallback_not_found))
        }
    };
    let listen = &arguments.listen;
    let api = HttpServer::new(per_worker)
        .workers(workers)
        .disable_signals()
        .shutdown_timeout(CLOSE_MAX)
        .bind(listen.bind)
        .with_context(|| format!("cannot listen on {} (BIND)", listen.bind))?;
    let operator = admin::Operator::new(
        housekeeping.clone(),
        probe,
        pools,
        metrics,
        shutdown.clone(),
        listen.admin_token.clone(),
    );
    let for_admin = operator.clone();
    let admin = HttpServer::new(move || ActixApp::new().configure(|config| for_admin.routes(config)))
        .workers(1)
        .disable_signals()
        .shutdown_timeout(CLOSE_MAX)
        .bind(listen.admin_bind)
        .with_context(|| format!("cannot listen on {} (ADMIN_BIND)", listen.admin_bind))?;
    let (api_address, admin_address) = (api.addrs()[0], admin.addrs()[0]);
    let (api, admin) = (api.run(), admin.run());
    let servers = [api.handle(), admin.handle()];
    tokio::spawn(api);
    tokio::spawn(admin);
    tokio::spawn(Reaper::new(housekeeping.clone(), &arguments.policy()).run());
    tokio::spawn(completer.run());
    let (retry_base, kept) = (arguments.limits.webhook_retry_base, arguments.limits.events_retention);
    tokio::spawn(Relay::new(housekeeping.clone(), sender, retry_base, kept, shutdown.clone()).run());
    tokio::spawn(gateway_events::forget(housekeeping.clone(), kept));
    tokio::spawn(keep_house(housekeeping, known));
    Ok(App {
        api: api_address,
        admin: admin_address,
        servers,
        shutdown,
        operator,
        grace: listen.shutdown_grace,
    })
}

/// The protocol over one database and one gate.
fn engine(
    arguments: &ServeArgs,
    database: Database,
    gate: Arc<Gate>,
    waiting: Waiting,
    shutdown: Shutdown,
) -> Arc<Engine> {
    let policy = arguments.policy();
    let ledger = Ledger::new(database, &policy);
    Arc::new(Engine::new(gate, ledger, policy, waiting, shutdown))
}

/// What browsers of other origins may send and see.
fn cors(origins: &[String]) -> Cors {
    let mut cors = Cors::default()
        .allowed_methods(["GET", "HEAD", "POST", "DELETE"])
        .allowed_headers(["authorization", "content-type", "idempotency-key", "prefer"])
        .expose_headers(idempotency::http::EXPOSED_HEADERS)
        .max_age(CORS_MAX_AGE);
    for origin in origins {
        cors = cors.allowed_origin(origin);
    }
    cors
}

/// `order-service serve`.
pub(crate) async fn serve(arguments: &ServeArgs, extra: Extra) -> anyhow::Result<()> {
    let signals = Signals::new()?;
    let app = start(arguments, extra)?;
    tracing::info!(api = %app.api, admin = %app.admin, "serving");
    if let Err(why) = app.operator.database_state().await {
        tracing::warn!("{why}: requests are answered 503 until that is mended (/readyz says when)");
    }
    app.run_until_stopped(signals).await
}

impl App {
    /// Waits for SIGTERM or Ctrl-C, then for the work; a second signal ends it at once.
    pub(crate) async fn run_until_stopped(self, mut signals: Signals) -> anyhow::Result<()> {
        signals.next().await;
        self.shutdown.begin();
        tracing::info!("stopping: new work is refused, running work is finished");
        tokio::select! {
            () = self.shutdown.drained() => tracing::info!("all work is finished"),
            () = tokio::time::sleep(self.grace) => tracing::warn!("SHUTDOWN_GRACE is over; unfinished work is rolled back"),
            () = signals.next() => tracing::warn!("stopped at once; unfinished work is rolled back"),
        }
        for server in &self.servers {
            server.stop(true).await;
        }
        Ok(())
    }
}

/// The signals that end the process.
pub(crate) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    pub(crate) fn new() -> anyhow::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Splits the connections of the process among its workers, in whole ones.
#[derive(Clone)]
struct Shares {
    total: usize,
    workers: usize,
    taken: Arc<std::sync::atomic::AtomicUsize>,
}

impl Shares {
    fn new(total: usize, workers: usize) -> Self {
        Self { total, workers, taken: Arc::default() }
    }

    fn next(&self) -> usize {
        let worker = self.taken.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % self.workers;
        self.total / self.workers + usize::from(worker < self.total % self.workers)
    }
}

/// Asks for the generation every second and compares the known keys every two, for as long as the process lives.
async fn keep_house(database: Database, known: KnownKeys) {
    let mut ticks = tokio::time::interval(GENERATION_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut refreshed = tokio::time::Instant::now();
    loop {
        ticks.tick().await;
        let asked = async {
            database.refresh_generation().await?;
            if refreshed.elapsed() >= auth::REFRESH {
                known.refresh(&database).await?;
                refreshed = tokio::time::Instant::now();
            }
            Ok::<_, idempotency::ReadError>(())
        };
        if let Err(error) = asked.await {
            tracing::debug!(%error, "PostgreSQL could not be asked; what is known stays in force");
        }
    }
}
