//! What an operator does about deliveries: `webhooks dead` and `webhooks redeliver`.
//!
//! Knows a session and what to print; the statements are the framework's.

use anyhow::bail;
use idempotency::relay::{DEAD_SQL, REDELIVER_SQL};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

/// Most lines of a list.
const LINES_MAX: i64 = 1000;

/// Sends an event again, to every endpoint of its account; says to how many.
pub(crate) async fn redeliver(client: &Client, event: Uuid) -> anyhow::Result<i64> {
    let row = client.query_one(REDELIVER_SQL, &[&event]).await?;
    match (row.get(0), row.get(1)) {
        (false, _) => bail!("there is no event with the id {event}"),
        (true, 0) => bail!("the account of this event has no endpoint"),
        (true, endpoints) => Ok(endpoints),
    }
}

/// One line a delivery that was given up, the latest first.
pub(crate) async fn dead(client: &Client) -> anyhow::Result<Vec<String>> {
    client.query(DEAD_SQL, &[&LINES_MAX]).await?.iter().map(given_up).collect()
}

/// A row of [`DEAD_SQL`] as a line.
pub(crate) fn given_up(row: &Row) -> anyhow::Result<String> {
    let (event, kind, account): (Uuid, &str, i64) = (row.get(0), row.get(1), row.get(2));
    let (endpoint, tries, why): (Uuid, i16, Option<&str>) = (row.get(3), row.get(4), row.get(5));
    let at = row.get::<_, OffsetDateTime>(6).format(&Rfc3339)?;
    let why = why.unwrap_or("-");
    Ok(format!("{event}\t{kind}\taccount {account}\tendpoint {endpoint}\t{tries} tries\t{at}\t{why}"))
}
