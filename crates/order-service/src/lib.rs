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
mod logging;
mod migrations;
mod orders;
mod page;
#[cfg_attr(not(test), expect(dead_code, reason = "the workflows that pay and refund come next"))]
mod payments;
mod problem_pages;
mod reading;
mod routes;
mod seed;
mod webhooks;

use std::process::ExitCode;

use actix_web::web::ServiceConfig;

pub use app::Shop;
pub use reading::Caller;
pub use routes::read_only;

/// Routes that are added to the service's own.
pub type ExtraRoutes = fn(&mut ServiceConfig);

/// The binary's `main`.
pub fn main() -> ExitCode {
    main_with(|_| ())
}

/// The binary's `main`, with more routes: how a test, or a service that only adds handlers, extends it.
pub fn main_with(extra: ExtraRoutes) -> ExitCode {
    cli::main(extra)
}
