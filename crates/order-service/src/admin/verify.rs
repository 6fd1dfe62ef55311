//! `order-service verify`: proves the invariants on the live database.
//!
//! Reads one snapshot of PostgreSQL, so that nothing that is under way looks broken, and some of what Redis holds. Changes nothing, and
//! knows nothing of how what is broken would be mended. Invariant: an invariant that could not be looked at is not said to hold.

use std::time::Duration;

use clap::Args;
use idempotency::{CurrentGeneration, Operator, OperatorError, explain, parse_duration};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, IsolationLevel, Transaction};

use super::asking::{self, ASK_MAX};
use super::report::{self, Check, EXAMPLES_MAX};
use crate::config::DatabaseUrl;
use crate::migrations;

/// How long one statement may read: it reads whole tables.
const STATEMENT_MAX: Duration = Duration::from_secs(600);
/// Most answers in Redis that are compared.
const SAMPLE_MAX: usize = 1000;
/// What is that much younger than the end of its retention counts: the rest may be forgotten just now.
const MARGIN: Duration = Duration::from_secs(60);

const WITHOUT_INDEXES: &str = "SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_bitmapscan = off";
const WITH_INDEXES: &str =
    "SET LOCAL enable_indexscan = on; SET LOCAL enable_indexonlyscan = on; SET LOCAL enable_bitmapscan = on";

/// Where to look, and the limits that say what must still be there: they must be those that the service ran with.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    database: DatabaseUrl,
    /// Redis, as redis://host:port/db; without it only PostgreSQL is looked at
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    redis_url: Option<String>,
    /// How long a used key stays refused
    #[arg(long, env = "IDEMPOTENCY_KEY_RETENTION", default_value = "30d", value_parser = parse_duration)]
    idempotency_key_retention: Duration,
    /// How long events are kept
    #[arg(long, env = "EVENTS_RETENTION", default_value = "90d", value_parser = parse_duration)]
    events_retention: Duration,
    /// How long without progress is too long
    #[arg(long, env = "IDEMPOTENCY_STUCK_AFTER", default_value = "15m", value_parser = parse_duration)]
    idempotency_stuck_after: Duration,
    /// Print one JSON object instead of lines
    #[arg(long, env = "REPORT_JSON", value_parser = clap::builder::BoolishValueParser::new(), num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    json: bool,
}

/// An invariant: the statement finds what breaks it.
struct Invariant {
    name: &'static str,
    promise: &'static str,
    sql: &'static str,
    /// The statement's second value, if it takes one.
    span: Option<Duration>,
}

pub(crate) async fn run(arguments: VerifyArgs) -> anyhow::Result<()> {
    let mut checks = match migrations::connect(&arguments.database.database_url).await {
        Ok(mut client) => in_postgres(&mut client, &invariants(&arguments)).await,
        Err(error) => vec![Check::failed("postgresql", format!("{error:#}"))],
    };
    checks.push(in_redis(&arguments).await);
    report::print(&checks, arguments.json)
}

fn invariants(arguments: &VerifyArgs) -> [Invariant; 10] {
    let invariant = |name, promise, sql, span| Invariant { name, promise, sql, span };
    let young = |retention: Duration| Some(retention.saturating_sub(MARGIN));
    [
        invariant(
            "one-order-per-key",
            "no two orders have one account and key",
            include_str!("verify/one_order_per_key.sql"),
            None,
        ),
        invariant(
            "record-has-order",
            "every completed order record has its order",
            include_str!("verify/record_has_order.sql"),
            None,
        ),
        invariant(
            "order-has-record",
            "every order younger than the key retention has its record",
            include_str!("verify/order_has_record.sql"),
            young(arguments.idempotency_key_retention),
        ),
        invariant(
            "stock",
            "the stock that was taken is that of live orders",
            include_str!("verify/stock.sql"),
            None,
        ),
        invariant(
            "order-total",
            "an order costs what its items cost",
            include_str!("verify/order_total.sql"),
            None,
        ),
        invariant(
            "paid-means-payment",
            "an order is paid if and only if a payment of its total succeeded",
            include_str!("verify/paid_means_payment.sql"),
            None,
        ),
        invariant(
            "one-payment-per-order",
            "no order was paid twice",
            include_str!("verify/one_payment.sql"),
            None,
        ),
        invariant(
            "refunds-within-payments",
            "no more was given back than was paid",
            include_str!("verify/refunds.sql"),
            None,
        ),
        invariant(
            "order-has-event",
            "every order has its order.created",
            include_str!("verify/order_has_event.sql"),
            young(arguments.events_retention),
        ),
        invariant(
            "nothing-stuck",
            "no running record is without a lease and without progress for too long",
            include_str!("verify/nothing_stuck.sql"),
            Some(arguments.idempotency_stuck_after),
        ),
    ]
}

async fn in_postgres(client: &mut Client, invariants: &[Invariant]) -> Vec<Check> {
    let mut checks = Vec::new();
    let looked = async {
        let begin =
            client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
        let snapshot = begin.start().await?;
        let limit = format!("SET LOCAL statement_timeout = {}", STATEMENT_MAX.as_millis());
        snapshot.batch_execute(&limit).await?;
        for (number, invariant) in invariants.iter().enumerate() {
            // The first one does not believe the index that would have to refuse what it looks for.
            snapshot.batch_execute(if number == 0 { WITHOUT_INDEXES } else { WITH_INDEXES }).await?;
            let broken = broken(&snapshot, invariant).await?;
            checks.push(Check::without(invariant.name, invariant.promise, &broken));
        }
        Ok::<_, tokio_postgres::Error>(())
    };
    if let Err(error) = looked.await {
        // Of the rest nothing is known: a transaction in which something failed answers nothing more.
        let rest = &invariants[checks.len().min(invariants.len())..];
        for (number, invariant) in rest.iter().enumerate() {
            checks.push(if number == 0 {
                let why = explain(&error);
                Check::failed(
                    invariant.name,
                    format!("cannot be looked at (is the database migrated?): {why}"),
                )
            } else {
                Check::skipped(invariant.name, "not looked at")
            });
        }
    }
    checks
}

/// Examples of what breaks an invariant, one more than is shown.
async fn broken(
    snapshot: &Transaction<'_>,
    invariant: &Invariant,
) -> Result<Vec<String>, tokio_postgres::Error> {
    let examples = i64::try_from(EXAMPLES_MAX + 1).unwrap_or(i64::MAX);
    let span = invariant.span.map(|span| i64::try_from(span.as_millis()).unwrap_or(i64::MAX));
    let mut values: Vec<&(dyn ToSql + Sync)> = vec![&examples];
    values.extend(span.as_ref().map(|span| span as &(dyn ToSql + Sync)));
    let rows = snapshot.query(invariant.sql, &values).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

async fn in_redis(arguments: &VerifyArgs) -> Check {
    const NAME: &str = "redis-agrees";
    let Some(url) = &arguments.redis_url else { return Check::skipped(NAME, "REDIS_URL is not given") };
    let generation = CurrentGeneration::default();
    let database = asking::database(&arguments.database, generation.clone());
    let (database, gate) = match (database, asking::gate(url, generation.clone())) {
        (Ok(database), Ok(gate)) => (database, gate),
        (Err(error), _) | (_, Err(error)) => return Check::failed(NAME, error.to_string()),
    };
    match Operator::new(database).compare(&gate, &generation, SAMPLE_MAX).await {
        Ok(comparison) => {
            let compared = comparison.compared;
            let promise =
                format!("Redis says nothing that PostgreSQL contradicts ({compared} answers compared)");
            Check::without(NAME, &promise, &comparison.contradictions)
        }
        // A Redis that is away says nothing at all.
        Err(OperatorError::Refused(why)) => {
            Check::skipped(NAME, format!("Redis cannot be asked within {ASK_MAX:?}: {why}"))
        }
        Err(error) => Check::failed(NAME, error.to_string()),
    }
}
