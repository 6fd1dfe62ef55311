//! Retries made harmless and cheap.
//!
//! A client names its intent with an `Idempotency-Key` and may send it as often as it likes. Redis turns duplicates away
//! and replays stored answers in one round trip; PostgreSQL alone decides what happened: the record of the key, the
//! business rows, the events and the stored answer are one transaction.
//!
//! The map: a user writes a [`Command`] against [`Tx`], or for work that calls other services a [`Workflow`] against [`Flow`];
//! [`http::command`] and [`http::workflow`] make it a route; [`Engine`] walks an
//! [`Attempt`] through [`gate`] (Redis, the fast path) and `ledger` (PostgreSQL, the truth); `record` is the
//! truth table. Redis may refuse or replay; only PostgreSQL admits.
//!
//! ```
//! use idempotency::{Abort, Command, Reply, Tx};
//!
//! #[derive(serde::Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Rename { id: idempotency::Id, name: String }     // `id` from the path, `name` from the body
//!
//! impl Command for Rename {
//!     const NAME: &'static str = "things.rename";
//!     type State = ();
//!     type Output = serde_json::Value;
//!
//!     async fn execute(&self, tx: &mut Tx<'_>, _: &()) -> Result<Reply<Self::Output>, Abort> {
//!         tx.query("UPDATE things SET name = $2 WHERE id = $1 RETURNING 1", &[&self.id.0, &self.name]).await?;
//!         tx.emit("thing.renamed", &serde_json::json!({ "id": self.id }))?;
//!         Ok(Reply::ok(serde_json::json!({ "id": self.id, "name": self.name })))
//!     }
//! }
//!
//! fn routes(config: &mut actix_web::web::ServiceConfig) {
//!     config.service(idempotency::http::command::<Rename>("/v1/things/{id}/rename"));
//! }
//! ```
#![warn(missing_docs)]

mod answer;
mod attempt;
mod breaker;
mod canonical;
mod command;
mod completer;
mod database;
mod engine;
mod fingerprint;
pub mod gate;
mod generation;
pub mod http;
mod id;
mod inquiry;
mod key;
mod ledger;
mod objects;
mod operator;
mod outbox;
mod policy;
mod prefer;
mod problem;
pub mod problems;
mod reaper;
mod record;
pub mod relay;
mod reply;
mod running;
mod shutdown;
mod sqlstate;
pub mod telemetry;
pub mod value;
mod waiting;
mod workflow;

pub use attempt::Attempt;
pub use canonical::{JsonError, canonicalize};
pub use command::{
    Abort, Command, Invalid, LastWrite, OpeningRead, Replay, StatementError, TransactionControl, Tx,
};
pub use completer::Completer;
pub use database::{
    Database, DatabaseConfig, NoConnection, Param, Plans, PoolUsage, PoolWatch, Pooler, Query, ReadError,
};
pub use engine::Engine;
pub use fingerprint::{Asked, Fingerprint};
pub use generation::{CurrentGeneration, Generation};
pub use id::{Id, NotAnId, new_id};
pub use key::{AccountId, IdempotencyKey, KEY_LEN_MAX, KeyError};
pub use ledger::Ledger;
pub use operator::{Comparison, Decision, Operator, OperatorError};
pub use policy::{LEASE_MIN, OnDuplicate, Policy, parse_duration, parse_size};
pub use prefer::Preferences;
pub use problem::{Problem, ProblemKind, SameKey};
pub use reaper::{REAPER_LOCK, Reaper};
pub use reply::{Finished, Reply, StoredReply};
pub use shutdown::Shutdown;
pub use sqlstate::explain;
pub use waiting::Waiting;
pub use workflow::{Flow, Journal, Recovered, Unanswered, Workflow, Workflows};
