//! A workflow that stops, fails or panics where a test wants it to, and the foreign service that it calls.
//!
//! Between steps and inside of them it passes **points**. At a point it does what a row of the test's table `probe_orders` says, and
//! waits for an advisory lock of the point's name, if the test holds it. The foreign service is a socket of the test: one line asks,
//! one line answers.

use std::time::Duration;

use idempotency::{Abort, Flow, Journal, ProblemKind, Recovered, Reply, Tx, Unanswered, Workflow};
use order_service::Shop;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

const DECLINED: &ProblemKind = &ProblemKind::rejection(
    "voyage-declined",
    402,
    "The voyage was declined",
    "A refusal that only tests can ask for: the foreign service said no, and what was reserved for it was given back.",
);

const ORDERS_SQL: &str =
    "UPDATE probe_orders SET times = times - 1 WHERE point = $1 AND times > 0 RETURNING what";
const PASS_SQL: &str =
    "SELECT pg_advisory_lock_shared(hashtext($1)), pg_advisory_unlock_shared(hashtext($1))";
const WAIT_SQL: &str = "SELECT 1 FROM pg_advisory_xact_lock_shared(hashtext($1))";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Voyage {
    /// Where the foreign service listens.
    foreign: String,
}

/// The same, one at a time for each caller.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneVoyage {
    foreign: String,
}

/// What the foreign service says, for good.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Charged {
    Done(String),
    Declined,
}

#[derive(Debug)]
struct AskedFor;

impl std::fmt::Display for AskedFor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("asked for")
    }
}

impl std::error::Error for AskedFor {}

impl Workflow for Voyage {
    const NAME: &'static str = "probes.voyage";
    const CALL_MAX: Duration = Duration::from_secs(1);
    type State = Shop;
    type Output = serde_json::Value;

    async fn run<'f>(&'f self, flow: &mut Flow<'f>, shop: &'f Shop) -> Result<Reply<Self::Output>, Abort> {
        sail(&self.foreign, flow, shop).await
    }

    async fn abandon(&self, tx: &mut Tx<'_>, journal: &Journal<'_>, _: &Shop) -> Result<(), Abort> {
        Ok(tx.emit("voyage.abandoned", &serde_json::json!({ "charged": journal.has("charge") }))?)
    }
}

impl Workflow for OneVoyage {
    const NAME: &'static str = "probes.one-voyage";
    const SERIALIZE: bool = true;
    const CALL_MAX: Duration = Duration::from_secs(1);
    type State = Shop;
    type Output = serde_json::Value;

    async fn run<'f>(&'f self, flow: &mut Flow<'f>, shop: &'f Shop) -> Result<Reply<Self::Output>, Abort> {
        sail(&self.foreign, flow, shop).await
    }
}

async fn sail<'f>(
    foreign: &'f str,
    flow: &mut Flow<'f>,
    shop: &'f Shop,
) -> Result<Reply<serde_json::Value>, Abort> {
    pass(shop, "before-reserve").await?;
    flow.atomic("reserve", |tx| {
        Box::pin(async move {
            tx.emit("voyage.reserved", &())?;
            tx.query(WAIT_SQL, &[&"in-reserve"]).await?;
            Ok(())
        })
    })
    .await?;
    pass(shop, "before-charge").await?;
    let charged = flow.foreign("charge", |key| charge(foreign, key), |key| find_charge(foreign, key)).await?;
    pass(shop, "after-charge").await?;
    let Charged::Done(id) = charged else {
        flow.atomic("release", |tx| Box::pin(async move { Ok(tx.emit("voyage.released", &())?) })).await?;
        return Err(Abort::reject(DECLINED, "the foreign service said no"));
    };
    let told = id.clone();
    flow.atomic("settle", |tx| {
        Box::pin(async move {
            tx.emit("voyage.settled", &told)?;
            tx.query(WAIT_SQL, &[&"in-settle"]).await?;
            Ok(())
        })
    })
    .await?;
    pass(shop, "after-settle").await?;
    Ok(Reply::created(format!("/v1/voyages/{id}"), serde_json::json!({ "charge": id })))
}

/// A point between steps. Without the test's table nothing is asked for. A replica may have points of its own.
async fn pass(shop: &Shop, point: &str) -> Result<(), Abort> {
    let point = std::env::var("VOYAGE_POINTS").unwrap_or_default() + point;
    let point = point.as_str();
    let rows = shop.database.read(ORDERS_SQL, &[&point]).await.unwrap_or_default();
    match rows.first().map(|row| row.get::<_, &str>(0)) {
        Some("panic") => panic!("asked for"),
        Some("fail") => return Err(AskedFor.into()),
        Some("reject") => return Err(Abort::reject(DECLINED, "asked for")),
        _ => {}
    }
    shop.database.read(PASS_SQL, &[&point]).await?;
    Ok(())
}

async fn charge(foreign: &str, key: String) -> Result<Charged, Unanswered> {
    let stream = TcpStream::connect(foreign).await.map_err(|error| Unanswered::NotSent(error.to_string()))?;
    match converse(stream, &format!("charge {key}\n")).await {
        Ok(line) => match line.trim().split_once(' ') {
            Some(("done", id)) => Ok(Charged::Done(id.to_owned())),
            _ if line.trim() == "declined" => Ok(Charged::Declined),
            _ => Err(Unanswered::Unknown(format!("it said {line:?}"))),
        },
        Err(error) => Err(Unanswered::Unknown(error.to_string())),
    }
}

async fn find_charge(foreign: &str, key: String) -> Recovered<Charged> {
    let Ok(stream) = TcpStream::connect(foreign).await else { return Recovered::Unknown };
    match converse(stream, &format!("find {key}\n")).await {
        Ok(line) => match line.trim().split_once(' ') {
            Some(("done", id)) => Recovered::Done(Charged::Done(id.to_owned())),
            _ if line.trim() == "declined" => Recovered::Done(Charged::Declined),
            _ if line.trim() == "absent" => Recovered::Absent,
            _ => Recovered::Unknown,
        },
        Err(_) => Recovered::Unknown,
    }
}

async fn converse(mut stream: TcpStream, line: &str) -> std::io::Result<String> {
    stream.write_all(line.as_bytes()).await?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).await?;
    Ok(answer)
}
