//! Ways to the stores for commands that ask a question and end.
//!
//! Invariant: no question waits for longer than [`ASK_MAX`].

use std::sync::Arc;
use std::time::Duration;

use idempotency::gate::{Gate, GateConfig};
use idempotency::{CurrentGeneration, Database, DatabaseConfig, Plans, Policy, Pooler};

use crate::config::DatabaseUrl;

/// How long one question to either store may take.
pub(crate) const ASK_MAX: Duration = Duration::from_secs(5);

/// One connection to PostgreSQL, opened when it is first used.
pub(crate) fn database(database: &DatabaseUrl, generation: CurrentGeneration) -> anyhow::Result<Database> {
    let config = DatabaseConfig {
        url: database.database_url.clone(),
        pool_wait: ASK_MAX,
        statement_timeout: ASK_MAX,
        lock_timeout: ASK_MAX,
        idle_timeout: ASK_MAX,
        pooler: Pooler::None,
        plans: Plans::AsTheServerDecides,
    };
    Database::new(&config, 1, generation).map_err(anyhow::Error::msg)
}

/// One to Redis.
pub(crate) fn gate(url: &str, generation: CurrentGeneration) -> anyhow::Result<Arc<Gate>> {
    let policy = Policy::default();
    let config = GateConfig {
        url: url.to_owned(),
        timeout: ASK_MAX,
        lease: policy.lease,
        cache_body_max: policy.cache_body_max,
    };
    Gate::new(&config, generation).map_err(anyhow::Error::msg)
}
