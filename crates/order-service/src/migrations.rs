//! The schema: applies `migrations/`, one replica at a time.
//!
//! refinery takes no lock between replicas, so an advisory lock on a session of its own stands around it; that needs a
//! direct connection, not a transaction pooler. Invariant: whoever returns `Ok` has seen the newest migration applied.

use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio_postgres::{Client, NoTls};

mod embedded {
    refinery::embed_migrations!("../../migrations");
}

/// Our advisory lock: "migrate" in ASCII.
const LOCK: i64 = 0x006d_6967_7261_7465;
/// How long a replica waits for another one's migrations.
const LOCK_WAIT: Duration = Duration::from_secs(120);
/// How long connecting may take, for each host that the URL names.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Applies what is missing and names it.
pub(crate) async fn apply(url: &str) -> anyhow::Result<Vec<String>> {
    let lock = connect(url).await?;
    lock.batch_execute(&format!("SET statement_timeout = 0; SET lock_timeout = {}", LOCK_WAIT.as_millis()))
        .await?;
    lock.execute("SELECT pg_advisory_lock($1)", &[&LOCK])
        .await
        .context("another replica is still migrating")?;
    let mut client = connect(url).await?;
    // A newer build may have been here: rolling back must work on its schema (expand, then contract).
    let runner = embedded::migrations::runner().set_abort_missing(false);
    let report = runner.run_async(&mut client).await.context("a migration failed")?;
    // The lock goes with its session.
    Ok(report.applied_migrations().iter().map(ToString::to_string).collect())
}

/// The version that this build needs.
pub(crate) fn newest() -> i32 {
    embedded::migrations::runner()
        .get_migrations()
        .iter()
        .map(refinery::Migration::version)
        .max()
        .unwrap_or(0)
}

/// A session for one command.
pub(crate) async fn connect(url: &str) -> anyhow::Result<Client> {
    let mut target: tokio_postgres::Config = url.parse().context("DATABASE_URL cannot be read")?;
    target.connect_timeout(CONNECT_MAX);
    // A server that takes the connection and then says nothing is not covered by connect_timeout.
    let hosts = u32::try_from(target.get_hosts().len()).unwrap_or(1).max(1);
    let Ok(connected) = tokio::time::timeout(CONNECT_MAX * hosts, target.connect(NoTls)).await else {
        bail!("PostgreSQL cannot be reached: it does not answer");
    };
    let (client, connection) = connected.map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        anyhow::anyhow!("PostgreSQL cannot be reached: {error}{cause}")
    })?;
    tokio::spawn(connection);
    Ok(client)
}
