//! PostgreSQL: version, schema, durability, role, pooler, connections, clock.
//!
//! Knows nothing of Redis. Invariant: asks on sessions of its own, two at most.

use tokio_postgres::Client;

use super::{DoctorArgs, SKEW_MAX, clock_ms, skew};
use crate::admin::report::Check;
use crate::config::PoolerChoice;
use crate::migrations;

/// Oldest server that is tested with, as `server_version_num` has it.
const VERSION_MIN: i32 = 150_000;

const SETTINGS_SQL: &str = "
SELECT current_setting('server_version'), current_setting('server_version_num')::int,
       current_setting('fsync'), current_setting('synchronous_commit'),
       pg_is_in_recovery(), current_setting('transaction_read_only'),
       (extract(epoch FROM clock_timestamp()) * 1000)::bigint, pg_backend_pid()";
const SCHEMA_SQL: &str = "SELECT COALESCE(max(version), 0) FROM refinery_schema_history";
const INDEX_SQL: &str = "
SELECT indisunique AND indisvalid AND indisready AND indimmediate AND indpred IS NULL AND indnkeyatts = 1
       AND indkey[0] = (SELECT attnum FROM pg_attribute WHERE attrelid = indrelid AND attname = 'idem_key')
  FROM pg_index
 WHERE indexrelid = to_regclass('orders_idem_key') AND indrelid = to_regclass('orders')";
/// Connections that there may be, and those that others have: other databases, other roles.
const CONNECTIONS_SQL: &str = "
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
       (SELECT count(*)::int FROM pg_stat_activity
         WHERE backend_type = 'client backend' AND (datname, usename) IS DISTINCT FROM (current_database(), current_user))";

pub(super) async fn checks(arguments: &DoctorArgs) -> Vec<Check> {
    let url = &arguments.stores.database.database_url;
    let (first, second) = match (migrations::connect(url).await, migrations::connect(url).await) {
        (Ok(first), Ok(second)) => (first, second),
        (Err(error), _) | (_, Err(error)) => return vec![Check::failed("postgresql", format!("{error:#}"))],
    };
    let mut checks = match settings(&first, &second, arguments).await {
        Ok(checks) => checks,
        Err(error) => vec![Check::failed("postgresql", error.to_string())],
    };
    checks.push(schema(&first).await);
    checks.push(index(&first).await);
    checks.push(connections(&first, arguments).await);
    checks
}

async fn settings(
    client: &Client,
    other: &Client,
    arguments: &DoctorArgs,
) -> Result<Vec<Check>, tokio_postgres::Error> {
    let asked = clock_ms();
    let row = client.query_one(SETTINGS_SQL, &[]).await?;
    let heard = clock_ms();
    let (version, number): (&str, i32) = (row.get(0), row.get(1));
    let (fsync, commit): (&str, &str) = (row.get(2), row.get(3));
    let (recovers, read_only): (bool, &str) = (row.get(4), row.get(5));
    let off = skew(asked, row.get(6), heard);
    // Of a session of one's own, another session is never the same server process.
    let pid: i32 = other.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
    Ok(vec![
        Check::that("postgresql-version", number >= VERSION_MIN, format!("{version}; 15 or newer is wanted")),
        Check::that("postgresql-fsync", fsync == "on", format!("fsync is {fsync}")),
        Check::that(
            "postgresql-commit",
            commit != "off",
            format!("synchronous_commit is {commit}; transactions of the service ask for at least local"),
        ),
        Check::that(
            "postgresql-primary",
            !recovers && read_only == "off",
            if recovers {
                "a replica: it takes no writes"
            } else if read_only == "on" {
                "read-only"
            } else {
                "takes writes"
            },
        ),
        pooler(row.get::<_, i32>(7) == pid, arguments.database_pooler),
        Check::that("postgresql-clock", off < SKEW_MAX, format!("{} ms from this host's", off.as_millis())),
    ])
}

fn pooler(shared: bool, told: PoolerChoice) -> Check {
    const NAME: &str = "postgresql-pooler";
    match (shared, told) {
        (true, PoolerChoice::None) => Check::failed(
            NAME,
            "two sessions share a server process: set DATABASE_POOLER=transaction, or connect directly",
        ),
        (true, PoolerChoice::Transaction) => Check::ok(NAME, "a transaction pooler, as DATABASE_POOLER says"),
        (false, PoolerChoice::None) => Check::ok(NAME, "sessions are direct, as far as can be seen"),
        (false, PoolerChoice::Transaction) => {
            Check::ok(NAME, "none was seen; DATABASE_POOLER=transaction also works without one")
        }
    }
}

async fn schema(client: &Client) -> Check {
    const NAME: &str = "postgresql-migrations";
    let needed = migrations::newest();
    match client.query_one(SCHEMA_SQL, &[]).await {
        Ok(row) => {
            let found: i32 = row.get(0);
            Check::that(NAME, found >= needed, format!("version {found}; this build needs {needed}"))
        }
        Err(_) => Check::failed(NAME, "none is applied; run `order-service migrate`"),
    }
}

async fn index(client: &Client) -> Check {
    const NAME: &str = "postgresql-orders-idem-key";
    match client.query_opt(INDEX_SQL, &[]).await {
        Ok(Some(row)) => {
            let whole = row.get::<_, Option<bool>>(0) == Some(true);
            Check::that(
                NAME,
                whole,
                if whole { "unique and valid" } else { "not unique, not valid, or not over idem_key" },
            )
        }
        Ok(None) => {
            Check::failed(NAME, "there is no index orders_idem_key on orders: the last layer is missing")
        }
        Err(error) => Check::failed(NAME, error.to_string()),
    }
}

async fn connections(client: &Client, arguments: &DoctorArgs) -> Check {
    const NAME: &str = "postgresql-connections";
    let row = match client.query_one(CONNECTIONS_SQL, &[]).await {
        Ok(row) => row,
        Err(error) => return Check::failed(NAME, error.to_string()),
    };
    let (all, others): (i32, i32) = (row.get(0), row.get(1));
    let (pool, replicas) = (arguments.database_pool.get(), arguments.replicas.get());
    let (needed, left) = (pool.saturating_mul(replicas), usize::try_from(all - others).unwrap_or(0));
    Check::that(
        NAME,
        left >= needed,
        format!(
            "{needed} are needed ({pool} for each of {replicas} processes), {left} can be had; others use {others} of {all}"
        ),
    )
}
