//! Another user's key: two accounts happen to use the same key. Each wants an order of its own, and must not see the other's.

use super::trial::{MINIMAL_ORDERS, Trial, minimal, said};
use super::{Outcome, Play, Run, Scenario};
use crate::systems::System::{self, NaiveHybrid};

pub const SCENARIO: Scenario = Scenario {
    name: "other-user",
    title: "two users use the same key",
    columns: &["one user", "the other", "who sees"],
    fails: &[NaiveHybrid],
    notes: &["the naive hybrid's primary key is the client's key alone"],
    own_redis: false,
    play: Play::AtOnce(|run, system| Box::pin(rows(run, system))),
};

async fn rows(run: &Run, system: System) -> anyhow::Result<Vec<Outcome>> {
    let trial = Trial::start(run, system, async |_| Ok(())).await?;
    let key = run.stack.new_key();
    let one = trial.send(&trial.request_of(0, MINIMAL_ORDERS, &key, &minimal(1000))).await;
    let other = trial.send(&trial.request_of(1, MINIMAL_ORDERS, &key, &minimal(77_700))).await;
    let leaked = match (&one, &other) {
        (Ok(one), Ok(other)) if other.status == 201 => one.json()["id"] == other.json()["id"],
        _ => false,
    };
    let sees = if leaked { "the first one's order" } else { "each its own" };
    let cells = vec![said(&one), said(&other), sees.to_owned()];
    let outcome = Outcome { intents: 2, ..Outcome::uncharged(trial.effects().await?, cells) }
        .fault_if(leaked, "ANOTHER USER'S ANSWER");
    trial.end().await?;
    Ok(vec![outcome])
}
