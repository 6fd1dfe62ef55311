//! A payment gateway for development and tests: Stripe's PaymentIntents and Refunds, with faults on demand.
//!
//! Its own process (`order-service sandbox`), so that a service under test meets a real socket, a real restart and a
//! gateway that remembers what the service has forgotten.
//!
//! | module | for |
//! | --- | --- |
//! | `settings` | what it is told at the start |
//! | `http` | routes; `http/create` is the one path of every charge and refund |
//! | `till` | the decisions: what a card does, how much may be refunded, what an idempotency key means |
//! | `books` | charges, refunds and keys in memory, rebuilt from the log |
//! | `log` | the append-only file |
//! | `fault` | how to misbehave |
//! | `webhook` | signed events to one URL |
//!
//! Deliberately unknown here: orders, accounts, the service that calls. Deliberately absent: cards, customers, captures,
//! currencies that differ from their charge, expiry of idempotency keys.
//!
//! Where it differs from Stripe: the amount is taken at `POST /v1/payment_intents` only (`confirm=true`); searches are
//! consistent at once; `GET /v1/refunds/search` does not exist there; an answer of 500 is not replayed.
//!
//! Invariant: what was answered is in the log, synced, before the first byte of the answer; a charge and the answer to
//! its key are one line of it, so no crash leaves one without the other.

mod books;
mod fault;
mod form;
mod http;
mod log;
mod objects;
mod refusal;
mod settings;
mod till;
mod webhook;

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpServer, web};
use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

pub use settings::Settings;
pub use webhook::sign;

/// How long open connections (some hang on purpose) are waited for at the end, in whole seconds.
const CLOSE_MAX: u64 = 1;
/// What stands before the address on standard output, once it answers.
pub const READY: &str = "payment sandbox answers at ";

/// A running sandbox; it lives until it is stopped or the runtime ends.
pub struct Sandbox {
    address: SocketAddr,
    server: ServerHandle,
}

/// Starts it on the current tokio runtime; it answers once this returns.
pub fn start(settings: &Settings) -> anyhow::Result<Sandbox> {
    let till = Arc::new(till::Till::open(&settings.store)?);
    let webhooks = webhook::Webhooks::new(settings)?;
    let desk = web::Data::new(http::Desk::new(till, webhooks, settings.api_key.clone()));
    let server = HttpServer::new(move || App::new().app_data(desk.clone()).configure(http::routes))
        .workers(1)
        .disable_signals()
        .shutdown_timeout(CLOSE_MAX)
        // A client that leaves ends a request that hangs on purpose.
        .h1_allow_half_closed(false)
        .bind(settings.bind)
        .with_context(|| format!("cannot listen on {}", settings.bind))?;
    let address = server.addrs()[0];
    let server = server.run();
    let handle = server.handle();
    tokio::spawn(server);
    Ok(Sandbox { address, server: handle })
}

impl Sandbox {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it without a last word to whoever is connected; its store stays.
    pub async fn stop(&self) {
        self.server.stop(false).await;
    }
}

/// Serves until SIGTERM, Ctrl-C, or the end of standard input if that was asked for; prints the address once ready.
pub async fn run(settings: &Settings) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let sandbox = start(settings)?;
    let mut out = std::io::stdout();
    writeln!(out, "{READY}http://{}", sandbox.address()).and_then(|()| out.flush())?;
    tracing::info!(address = %sandbox.address(), store = %settings.store.display(), "the payment sandbox is serving");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = settings::parent_has_gone(), if settings.until_stdin_ends => {}
    }
    sandbox.stop().await;
    Ok(())
}
