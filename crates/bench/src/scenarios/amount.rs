//! Same key, changed amount: the $10 that became $1000.

use super::trial::{MINIMAL_ORDERS, Trial, minimal, said};
use super::{Outcome, Play, Run, Scenario};
use crate::systems::System::{self, NaiveHybrid, NoKey};

pub const SCENARIO: Scenario = Scenario {
    name: "amount",
    title: "same key, changed amount: 10.00, then 1000.00",
    columns: &["10.00", "1000.00", "ordered in all"],
    fails: &[NoKey, NaiveHybrid],
    notes: &[
        "the article: not detected without a key, 422 with Redis or PostgreSQL",
        "the naive hybrid stores the hash and does not compare it: the caller believes that 1000.00 was ordered",
    ],
    own_redis: false,
    play: Play::AtOnce(|run, system| Box::pin(rows(run, system))),
};

async fn rows(run: &Run, system: System) -> anyhow::Result<Vec<Outcome>> {
    let trial = Trial::start(run, system, async |_| Ok(())).await?;
    let (key, before) = (run.stack.new_key(), ordered(&trial).await?);
    let first = trial.send(&trial.request(MINIMAL_ORDERS, &key, &minimal(1000))).await;
    let second = trial.send(&trial.request(MINIMAL_ORDERS, &key, &minimal(100_000))).await;
    let cents = ordered(&trial).await? - before;
    let cells = vec![said(&first), said(&second), format!("{}.{:02}", cents / 100, cents % 100)];
    let accepted = second.is_ok_and(|answer| answer.status == 201);
    let outcome =
        Outcome::uncharged(trial.effects().await?, cells).fault_if(accepted, "THE CHANGE IS NOT DETECTED");
    trial.end().await?;
    Ok(vec![outcome])
}

async fn ordered(trial: &Trial<'_>) -> anyhow::Result<i64> {
    let sql = "SELECT coalesce(sum(total_amount), 0)::int8 FROM orders";
    Ok(trial.database.client.query_one(sql, &[]).await?.get(0))
}
