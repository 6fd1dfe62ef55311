//! WRONGTYPE: the name in Redis is taken by another structure, as an older release or another program may have left it.

use super::trial::{GATEWAY_ORDERS, Trial, order, said};
use super::{Outcome, Play, Run, Scenario};
use crate::stack::redis_command;
use crate::systems::System::{self, NaiveHybrid, NoKey, RedisOnly};

pub const SCENARIO: Scenario = Scenario {
    name: "wrongtype",
    title: "the name in Redis is taken by a hash",
    columns: &["first", "retry"],
    fails: &[NoKey, RedisOnly, NaiveHybrid],
    notes: &["the article: every request with that key is answered 5xx"],
    own_redis: false,
    play: Play::AtOnce(|run, system| Box::pin(rows(run, system))),
};

async fn rows(run: &Run, system: System) -> anyhow::Result<Vec<Outcome>> {
    let trial = Trial::start(run, system, async |_| Ok(())).await?;
    let key = run.stack.new_key();
    let name = trial.redis_name(&key).await?;
    if let Some(name) = &name {
        let _: i64 = redis_command(run.stack.redis_url(), &["HSET", name, "field", "value"]).await?;
    }
    let request = trial.request(GATEWAY_ORDERS, &key, &order(1));
    let cells = vec![said(&trial.send(&request).await), said(&trial.send(&request).await)];
    let outcome = Outcome::charged(trial.effects().await?, cells);
    if let Some(name) = &name {
        let _: i64 = redis_command(run.stack.redis_url(), &["DEL", name]).await?;
    }
    trial.end().await?;
    Ok(vec![outcome])
}
