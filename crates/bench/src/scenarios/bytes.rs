//! Whether a replay is the first answer byte for byte, from Redis and from PostgreSQL.

use sha2::{Digest as _, Sha256};

use super::trial::{GATEWAY_ORDERS, Trial, is_replay, order};
use super::{Outcome, Play, Run, Scenario};
use crate::stack::redis_command;
use crate::systems::System::{self, NaiveHybrid, NoKey, PostgresOnly};

pub const SCENARIO: Scenario = Scenario {
    name: "bytes",
    title: "a replay byte for byte (SHA-256 of the body), at once and after Redis has forgotten",
    columns: &["first", "retry", "retry, forgotten by Redis"],
    fails: &[NoKey, PostgresOnly, NaiveHybrid],
    notes: &[
        "jsonb formats anew: members are sorted, blanks added. A client that checks a signature over the body refuses it",
        "redis-only has nothing behind Redis; what it does then is in `evicted`",
    ],
    own_redis: false,
    play: Play::AtOnce(|run, system| Box::pin(rows(run, system))),
};

async fn rows(run: &Run, system: System) -> anyhow::Result<Vec<Outcome>> {
    let trial = Trial::start(run, system, async |_| Ok(())).await?;
    let key = run.stack.new_key();
    let request = trial.request(GATEWAY_ORDERS, &key, &order(3));
    let (first, retry) = (trial.send(&request).await?, trial.send(&request).await?);
    let mut cells = vec![digest(&first.body), digest(&retry.body)];
    let mut differs = first.body != retry.body;
    let mut replayed = is_replay(&retry);
    let name = trial.redis_name(&key).await?;
    match name {
        Some(name) if system != System::RedisOnly => {
            let _: i64 = redis_command(run.stack.redis_url(), &["DEL", &name]).await?;
            let later = trial.send(&request).await?;
            cells.push(digest(&later.body));
            differs |= later.body != first.body;
            replayed &= is_replay(&later);
        }
        _ => cells.push("-".to_owned()),
    }
    let outcome = Outcome::charged(trial.effects().await?, cells)
        .fault_if(!replayed, "NO REPLAY")
        .fault_if(differs, "OTHER BYTES");
    trial.end().await?;
    Ok(vec![outcome])
}

/// The first digits, which is enough to see a difference.
fn digest(body: &[u8]) -> String {
    Sha256::digest(body).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}
