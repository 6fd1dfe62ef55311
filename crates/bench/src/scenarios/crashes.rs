//! The process is killed at a named point, and started again; a client retries until it is told something else than 409.
//!
//! Times are a tenth of the defaults: the articles' lock lives 6 s instead of 60, the service's lease 1 s instead of 10.

use std::time::Duration;

use testkit::{Action, CommandMatch, PgProxy, RedisProxy, Rule, SqlMatch};

use super::trial::{BOUND, GATEWAY_ORDERS, Trial, order, said, wait_for};
use super::{Outcome, Play, Run, Scenario, way};
use crate::systems::System::{self, NoKey, RedisOnly};

const LOCK: Duration = Duration::from_secs(6);
const LEASE: Duration = Duration::from_secs(1);
/// Long enough to be killed in.
const SLOW_GATEWAY: Duration = Duration::from_millis(300);
const COLUMNS: &[&str] = &["retry at once", "409 for", "then"];

pub const BEFORE_REFILL: Scenario = Scenario {
    name: "crash-before-refill",
    title: "killed when the order is committed and Redis has not got the answer yet",
    columns: COLUMNS,
    fails: &[NoKey, RedisOnly],
    notes: &[
        "who writes nothing to Redis is killed after COMMIT and before the answer",
        "times are a tenth of the defaults: a lock of 6 s (60), a lease of 1 s (10)",
    ],
    own_redis: false,
    play: Play::AtOnce(|run, system| Box::pin(before_refill(run, system))),
};

pub const WHILE_RUNNING: Scenario = Scenario {
    name: "crash-while-running",
    title: "killed while the payment gateway is being asked",
    columns: COLUMNS,
    fails: &[],
    notes: &[
        "the charge was made and nobody could write that down: all of them charge again. A call to the outside needs a key \
         derived from the record and a journal, which is what workflows are for; a command, like a plain handler, has neither",
        "times are a tenth of the defaults: a lock of 6 s (60), a lease of 1 s (10)",
    ],
    own_redis: false,
    play: Play::AtOnce(|run, system| Box::pin(while_running(run, system))),
};

async fn before_refill(run: &Run, system: System) -> anyhow::Result<Vec<Outcome>> {
    let (redis, redis_url) = way::to_redis(run.stack.redis_url()).await?;
    let mut postgres = None;
    let mut trial = Trial::start(run, system, async |setup| {
        let (proxy, database_url) = way::to_postgres(&setup.database_url).await?;
        postgres = Some(proxy);
        (setup.redis_url, setup.database_url, setup.lock, setup.lease) =
            (redis_url, database_url, LOCK, LEASE);
        Ok(())
    })
    .await?;
    let key = run.stack.new_key();
    let point = refill(system, &key, &redis, postgres.as_ref());
    let request = trial.request(GATEWAY_ORDERS, &key, &order(1));
    let unanswered = tokio::spawn({
        let (api, request) = (trial.running().api, request.clone());
        async move { testkit::send(api, &request).await }
    });
    point.reached().await;
    trial.kill().await?;
    redis.clear_rules();
    postgres.iter().for_each(PgProxy::clear_rules);
    unanswered.abort();
    trial.start_again().await?;
    settled(trial, &request, false).await
}

/// The point between COMMIT and the answer in Redis.
fn refill(system: System, key: &str, redis: &RedisProxy, postgres: Option<&PgProxy>) -> Rule {
    let write = |nth| CommandMatch::name("SET").and(CommandMatch::key_contains(key)).nth(nth);
    match (system, postgres) {
        // The first SET takes the place.
        (System::RedisOnly, _) => redis.once(write(2), Action::HoldBefore),
        (System::NaiveHybrid, _) => redis.once(write(1), Action::HoldBefore),
        (System::OrderService, _) => {
            let settle = idempotency::gate::script_shas().into_iter().find(|(name, _)| *name == "settle");
            redis.once(CommandMatch::script(settle.map(|(_, sha)| sha)), Action::HoldBefore)
        }
        (_, Some(postgres)) => postgres.once(SqlMatch::executes("COMMIT"), Action::HoldReply),
        (_, None) => unreachable!("every trial has a way to PostgreSQL"),
    }
}

async fn while_running(run: &Run, system: System) -> anyhow::Result<Vec<Outcome>> {
    let mut trial = Trial::start(run, system, async |setup| {
        (setup.gateway, setup.lock, setup.lease) = (SLOW_GATEWAY, LOCK, LEASE);
        Ok(())
    })
    .await?;
    let request = trial.request(GATEWAY_ORDERS, &run.stack.new_key(), &order(1));
    let unanswered = tokio::spawn({
        let (api, request) = (trial.running().api, request.clone());
        async move { testkit::send(api, &request).await }
    });
    wait_for("the charge", BOUND, async || Ok(trial.charges().await? == 1)).await?;
    trial.kill().await?;
    unanswered.abort();
    trial.start_again().await?;
    settled(trial, &request, true).await
}

/// Retries until the key is free, and counts.
async fn settled(
    trial: Trial<'_>,
    request: &testkit::Request,
    charges_repeat: bool,
) -> anyhow::Result<Vec<Outcome>> {
    let first = trial.send(request).await?;
    let cells = if first.status == 409 {
        let (answer, taken) = trial.send_until_free(request).await?;
        vec!["409".to_owned(), format!("{:.1} s", taken.as_secs_f64()), said(&Ok(answer))]
    } else {
        vec![said(&Ok(first)), "-".to_owned(), "-".to_owned()]
    };
    let cells_end_well = cells.iter().any(|cell| cell.starts_with("201"));
    let outcome = Outcome { charges_repeat, ..Outcome::charged(trial.effects().await?, cells) }
        .fault_if(!cells_end_well, "THE RETRY GOT NO ORDER");
    trial.end().await?;
    Ok(vec![outcome])
}
