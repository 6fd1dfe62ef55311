//! The service under test: order-service's own `main`, with commands that misbehave on request.
//!
//! Each field of [`Probe`] is one way in which a handler goes wrong. They are commands like any other, so what happens to
//! them happens to a user's.

mod voyage;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::ServiceConfig;
use idempotency::http::{command, workflow};
use idempotency::{Abort, Command, ProblemKind, Reply, Tx, Workflows};
use order_service::{Extra, Shop};
use serde::Deserialize;
use voyage::{OneVoyage, Voyage};

fn main() -> ExitCode {
    order_service::main_with(Extra { routes, workflows })
}

fn routes(config: &mut ServiceConfig) {
    config
        .service(command::<Probe>("/v1/probes"))
        .service(command::<OneAtATime>("/v1/serialised"))
        .service(workflow::<Voyage>("/v1/voyages"))
        .service(workflow::<OneVoyage>("/v1/serialised-voyages"));
}

fn workflows(known: Workflows, shop: &Arc<Shop>) -> Workflows {
    known.with::<Voyage>(Arc::clone(shop)).with::<OneVoyage>(Arc::clone(shop))
}

const TEAPOT: &ProblemKind = &ProblemKind::rejection(
    "teapot",
    418,
    "I am a teapot",
    "A refusal that only tests can ask for. Nothing was done, and this is the answer of its key for good.",
);

/// Writes an event `probe.ran` and then behaves as asked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Probe {
    then: Then,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Then {
    /// 204, without a body.
    NoContent,
    /// 200 with an empty object.
    EmptyObject,
    /// A refusal.
    Reject,
    Fail,
    Panic,
    /// Never ends by itself.
    Hang,
    /// Does nothing in its transaction for a little longer than the shortest lease of the tests.
    Idle,
    /// Tries to end its own transaction.
    Commit,
    /// Ignores that a statement failed.
    IgnoreError,
    /// An answer of 70 KiB.
    Large,
    /// An answer of 2 MiB, with a location.
    Huge,
    /// An answer with a secret that is shown once.
    Secret,
}

#[derive(Debug)]
struct Failure;

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("secret internals")
    }
}

impl std::error::Error for Failure {}

impl Command for Probe {
    const NAME: &'static str = "probes.run";
    type State = Shop;
    type Output = serde_json::Value;

    async fn execute(&self, tx: &mut Tx<'_>, _shop: &Shop) -> Result<Reply<Self::Output>, Abort> {
        tx.emit("probe.ran", &serde_json::json!({}))?;
        tx.query("SELECT 1", &[]).await?;
        match self.then {
            Then::NoContent => Ok(Reply::no_content()),
            Then::EmptyObject => Ok(Reply::ok(serde_json::json!({}))),
            Then::Reject => Err(Abort::reject(TEAPOT, "short and stout")),
            Then::Fail => Err(Abort::from(Failure)),
            Then::Panic => panic!("asked for"),
            Then::Hang => {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                Ok(Reply::no_content())
            }
            Then::Idle => {
                tokio::time::sleep(Duration::from_millis(1100)).await;
                tx.query("SELECT 1", &[]).await?;
                Ok(Reply::no_content())
            }
            Then::Commit => {
                tx.query("COMMIT", &[]).await?;
                Ok(Reply::no_content())
            }
            Then::IgnoreError => {
                let _ = tx.query("SELECT 1 / 0", &[]).await;
                Ok(Reply::ok(serde_json::json!({ "said": "all is well" })))
            }
            Then::Large => Ok(Reply::ok(serde_json::json!({ "text": "x".repeat(70 * 1024) }))),
            Then::Huge => Ok(Reply::created(
                "/v1/probes/huge",
                serde_json::json!({ "text": "x".repeat(2 * 1024 * 1024) }),
            )),
            Then::Secret => {
                let body = serde_json::json!({ "id": "p1", "secret": "shown-once" });
                Ok(Reply::created("/v1/probes/p1", body).with_secrets(&["secret"]))
            }
        }
    }
}

/// Only one of these runs at a time for each caller. It waits for the advisory lock that a test may hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OneAtATime {}

impl Command for OneAtATime {
    const NAME: &'static str = "probes.serialised";
    const SERIALIZE: bool = true;
    type State = Shop;
    type Output = serde_json::Value;

    async fn execute(&self, tx: &mut Tx<'_>, _shop: &Shop) -> Result<Reply<Self::Output>, Abort> {
        tx.emit("probe.ran", &serde_json::json!({}))?;
        tx.query("SELECT 1 FROM pg_advisory_xact_lock_shared(1)", &[]).await?;
        Ok(Reply::ok(serde_json::json!({})))
    }
}
