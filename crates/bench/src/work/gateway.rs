//! The payment gateway of the articles: it takes its time, and what it has charged stays charged.
//!
//! A charge is a row that is written by a session of its own in autocommit, at the beginning of the call: like a request
//! that has left, it takes place whatever becomes of whoever sent it. Deliberately unknown here: keys (the articles'
//! gateway is given none). Invariant: every call is counted exactly once.

use std::str::FromStr as _;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::OnceCell;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Statement};

const CHARGE_SQL: &str = "INSERT INTO bench.charges (account_id) VALUES ($1)";
/// How the gateway's session is named, so that it is not counted among a system's.
pub const APPLICATION_NAME: &str = "bench-gateway";

/// One for the process: requests on one session fly together, so that charges never queue for connections.
static GATEWAY: OnceCell<Gateway> = OnceCell::const_new();

struct Gateway {
    client: Client,
    charge: Statement,
    takes: Duration,
}

/// Why a charge failed.
#[derive(Debug, thiserror::Error)]
#[error("the payment gateway: {0}")]
pub struct ChargeError(String);

/// Charges, and returns when the gateway has answered.
pub async fn charge(account: i64) -> Result<(), ChargeError> {
    let gateway =
        GATEWAY.get_or_try_init(connect).await.map_err(|error| ChargeError(format!("{error:#}")))?;
    // The row is sent at once; the rest of the time is the gateway's own.
    let values: [&(dyn ToSql + Sync); 1] = [&account];
    let charged = gateway.client.execute(&gateway.charge, &values);
    let (charged, ()) = tokio::join!(biased; charged, tokio::time::sleep(gateway.takes));
    charged.map(drop).map_err(|error| ChargeError(error.to_string()))
}

async fn connect() -> anyhow::Result<Gateway> {
    let takes: u64 = std::env::var("BENCH_GATEWAY_MS").context("BENCH_GATEWAY_MS")?.parse()?;
    let url = std::env::var("BENCH_CHARGES_URL").context("BENCH_CHARGES_URL")?;
    let mut target = Config::from_str(&url)?;
    // Somebody else's machine: its commits are not to be seen in the times of ours.
    target.application_name(APPLICATION_NAME).options("-c synchronous_commit=off");
    let (client, connection) = target.connect(NoTls).await?;
    tokio::spawn(connection);
    let charge = client.prepare(CHARGE_SQL).await?;
    Ok(Gateway { client, charge, takes: Duration::from_millis(takes) })
}
