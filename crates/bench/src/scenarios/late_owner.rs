//! A lock that is released by a late owner: A stands still for longer than its lock lives and has lost its database session
//! by the time it goes on; B has taken the lock meanwhile; A fails, and cleans up; C comes while B works.

use std::time::Duration;

use testkit::Signal;

use super::trial::{BOUND, GATEWAY_ORDERS, Trial, order, said, wait_for};
use super::{Outcome, Play, Run, Scenario, way};
use crate::systems::System::{self, NaiveHybrid, NoKey, RedisOnly};

/// How long a lock (or the service's lease) lives: longer than the gateway takes, so that B's does not run out by itself.
const LOCK: Duration = Duration::from_millis(2500);
const GATEWAY: Duration = Duration::from_millis(1500);

pub const SCENARIO: Scenario = Scenario {
    name: "late-owner",
    title: "A stands still past its lock, B takes it, A fails and releases it, C comes while B works",
    columns: &["A", "B", "C", "B's lock after A", "last retry"],
    fails: &[NoKey, RedisOnly, NaiveHybrid],
    notes: &[
        "two processes; A's is stopped (SIGSTOP) while the gateway is asked, and its way to PostgreSQL is cut",
        "two charges are A's and B's own, in every system; a third one is C's, which the lock should have kept out",
    ],
    own_redis: false,
    play: Play::AtOnce(|run, system| Box::pin(rows(run, system))),
};

async fn rows(run: &Run, system: System) -> anyhow::Result<Vec<Outcome>> {
    let trial = Trial::start(run, system, async |setup| {
        (setup.gateway, setup.lock, setup.lease) = (GATEWAY, LOCK, LOCK);
        Ok(())
    })
    .await?;
    let (postgres, database_url) = way::to_postgres(&trial.setup.database_url).await?;
    let mut setup = trial.setup.clone();
    setup.database_url = database_url;
    let late = trial.system.start(&setup).await?;
    let redis_url = run.stack.redis_url();
    let key = run.stack.new_key();
    let request = trial.request(GATEWAY_ORDERS, &key, &order(1));
    let send = |api| {
        let request = request.clone();
        tokio::spawn(async move { testkit::send(api, &request).await })
    };

    let a = send(late.api);
    wait_for("A's charge", BOUND, async || Ok(trial.charges().await? == 1)).await?;
    late.process.signal(Signal::Stop).await?;
    postgres.down().await;
    wait_for("A's lock to run out", BOUND, async || {
        Ok(trial.redis_holds(redis_url, &key).await? != Some(true))
    })
    .await?;
    let b = send(trial.running().api);
    wait_for("B's charge", BOUND, async || Ok(trial.charges().await? == 2)).await?;
    late.process.signal(Signal::Cont).await?;
    let a = said(&a.await?);
    let lock = trial.redis_holds(redis_url, &key).await?;
    let c = said(&trial.send(&request).await);
    let b = said(&b.await?);
    late.kill().await?;
    let (last, _) = trial.send_until_free(&request).await?;

    let lock_cell = lock.map_or("-", |held| if held { "held" } else { "GONE" });
    let kept_out = ["409", "201 replay"].contains(&c.as_str());
    let cells = vec![a, b, c, lock_cell.to_owned(), said(&Ok(last))];
    let effects = trial.effects().await?;
    // A's and B's own: A's work was undone, and what it did outside cannot be.
    let too_many = effects.charges > 2;
    let outcome = Outcome { charges_repeat: true, ..Outcome::charged(effects, cells) }
        .fault_if(too_many, "C WAS CHARGED")
        .fault_if(lock == Some(false), "C WAS LET IN")
        .fault_if(!kept_out, "C WAS NOT KEPT OUT");
    trial.end().await?;
    Ok(vec![outcome])
}
