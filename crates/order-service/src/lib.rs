//! The order service: an order API on the `idempotency` framework, and the template to copy.
//!
//! The map: `cli` is the command line, `config` what it says; `app` builds and runs the two listeners; `routes` has every
//! route in one table; `orders`, `catalogue` hold one command or read per file; `admin` is what operators see; `dev`
//! starts everything on a fresh machine. Retries are the framework's business: nothing here looks at a key.

mod accounts;
mod admin;
mod app;
mod auth;
mod catalogue;
mod cli;
mod config;
mod dev;
mod events;
mod gateway_events;
mod logging;
mod migrations;
mod openapi;
mod orders;
mod page;
mod payments;
mod problem_pages;
mod reading;
mod routes;
mod seed;
mod webhooks;

use std::process::ExitCode;
use std::sync::Arc;

use actix_web::web::ServiceConfig;
use idempotency::Workflows;

pub use app::Shop;
pub use reading::Caller;
pub use routes::read_only;

/// What is added to the service: its own handlers beside the shop's.
#[derive(Debug, Clone, Copy)]
pub struct Extra {
    /// Registers routes.
    pub routes: fn(&mut ServiceConfig),
    /// Names workflows, so that the completer can go on with them.
    pub workflows: fn(Workflows, &Arc<Shop>) -> Workflows,
}

impl Extra {
    /// Nothing.
    pub const NONE: Self = Self { routes: |_| (), workflows: |workflows, _| workflows };
}

/// The binary's `main`.
pub fn main() -> ExitCode {
    main_with(Extra::NONE)
}

/// The binary's `main`, with more handlers: how a test, or a service that only adds some, extends it.
pub fn main_with(extra: Extra) -> ExitCode {
    cli::main(extra)
}
