//! `order-service doctor`: whether both stores are set up so that the promises hold.
//!
//! Asks PostgreSQL, Redis and, for how long handlers take, the service's own metrics; changes nothing but a probe key that is gone within a
//! second. Invariant: a store that cannot be asked is a failure, and what could not be looked at because of it is not said to be in order.

mod handlers;
mod postgres;
mod redis;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args;
use idempotency::parse_duration;

use super::report;
use crate::config::{PoolerChoice, Stores};

/// How far the clocks of both stores may be from this host's.
const SKEW_MAX: Duration = Duration::from_secs(1);

/// Where to look, and the settings of the service that must fit the stores.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    stores: Stores,
    /// PostgreSQL connections of each process
    #[arg(long, env = "DATABASE_POOL", default_value = "16")]
    database_pool: NonZeroUsize,
    /// How many processes serve
    #[arg(long, env = "REPLICAS", default_value = "1")]
    replicas: NonZeroUsize,
    /// Whether a transaction pooler stands before PostgreSQL
    #[arg(long, env = "DATABASE_POOLER", default_value = "none")]
    database_pooler: PoolerChoice,
    /// How long Redis holds a place without a heartbeat
    #[arg(long, env = "IDEMPOTENCY_LEASE", default_value = "10s", value_parser = parse_duration)]
    idempotency_lease: Duration,
    /// Health and metrics of a running service: how long handlers take is asked there
    #[arg(long, env = "ADMIN_BIND", default_value = "127.0.0.1:9090")]
    admin_bind: SocketAddr,
    /// Bearer token of the admin listener
    #[arg(long, env = "ADMIN_TOKEN", hide_env_values = true)]
    admin_token: Option<String>,
    /// Print one JSON object instead of lines
    #[arg(long, env = "REPORT_JSON", value_parser = clap::builder::BoolishValueParser::new(), num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    json: bool,
}

pub(crate) async fn run(arguments: &DoctorArgs) -> anyhow::Result<()> {
    let mut checks = postgres::checks(arguments).await;
    checks.extend(redis::checks(arguments).await);
    checks.push(handlers::check(arguments).await);
    report::print(&checks, arguments.json)
}

/// This host's clock, in ms since 1970. Compared with those of the stores, and nothing else is made of it.
fn clock_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.ok().and_then(|since| i64::try_from(since.as_millis()).ok()).unwrap_or(0)
}

/// By how much a store's clock is off, if by more than the question took.
fn skew(asked: i64, theirs: i64, heard: i64) -> Duration {
    let off = (asked - theirs).max(theirs - heard).max(0);
    Duration::from_millis(off.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_off_by_what_the_question_does_not_explain() {
        for (theirs, off) in [(100, 0), (150, 0), (90, 10), (230, 30)] {
            assert_eq!(skew(100, theirs, 200), Duration::from_millis(off));
        }
    }
}
