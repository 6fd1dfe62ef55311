//! Redis has forgotten: the retry of a finished order comes after an eviction, a restart without AOF, or a failover to a
//! replica that had not received the key.

use anyhow::Context as _;
use deadpool_redis::redis;
use devstack::Redis;

use super::trial::{BOUND, GATEWAY_ORDERS, Trial, order, said, wait_for};
use super::{Outcome, Play, Run, Scenario};
use crate::stack::redis_command;
use crate::systems::System::{self, NoKey, RedisOnly};

const COLUMNS: &[&str] = &["first", "what happened", "retry"];
/// What a cache would put beside the keys: entries of 10 KB, until the key is gone.
const CACHE_ENTRY_BYTES: usize = 10_000;
const CACHE_ENTRIES_MAX: usize = 20_000;
/// How many entries are written between two looks.
const CACHE_BATCH: usize = 200;

pub const EVICTED: Scenario = Scenario {
    name: "evicted",
    title: "Redis with 3 MB and allkeys-lru is shared with a cache, which drives the key out",
    columns: COLUMNS,
    fails: &[NoKey, RedisOnly],
    notes: &[],
    own_redis: true,
    play: Play::AtOnce(|run, system| Box::pin(evicted(run, system))),
};

pub const RESTARTED: Scenario = Scenario {
    name: "restarted",
    title: "Redis without AOF is restarted",
    columns: COLUMNS,
    fails: &[NoKey, RedisOnly],
    notes: &[],
    own_redis: true,
    play: Play::AtOnce(|run, system| Box::pin(restarted(run, system))),
};

pub const FAILED_OVER: Scenario = Scenario {
    name: "failover",
    title: "Redis fails over to a replica that had not the key",
    columns: COLUMNS,
    fails: &[NoKey, RedisOnly],
    notes: &[
        "the replica's link is cut just before the order; then the primary is killed, and the replica takes over its port",
    ],
    own_redis: true,
    play: Play::AtOnce(|run, system| Box::pin(failed_over(run, system))),
};

/// The order before it happens and its retry after it.
struct Case<'a> {
    trial: Trial<'a>,
    key: String,
    first: String,
}

impl<'a> Case<'a> {
    async fn begin(trial: Trial<'a>) -> anyhow::Result<Self> {
        let key = trial.stack.new_key();
        let first = said(&trial.send(&trial.request(GATEWAY_ORDERS, &key, &order(1))).await);
        Ok(Self { trial, key, first })
    }

    async fn end(self, happened: String) -> anyhow::Result<Vec<Outcome>> {
        let retry = self.trial.send(&self.trial.request(GATEWAY_ORDERS, &self.key, &order(1))).await;
        let cells = vec![self.first, happened, said(&retry)];
        let outcome = Outcome::charged(self.trial.effects().await?, cells)
            .fault_if(!retry.is_ok_and(|answer| answer.status == 201), "THE RETRY GOT NO ORDER");
        self.trial.end().await?;
        Ok(vec![outcome])
    }
}

async fn trial_on<'a>(run: &'a Run, system: System, redis_url: String) -> anyhow::Result<Trial<'a>> {
    Trial::start(run, system, async |setup| {
        setup.redis_url = redis_url;
        Ok(())
    })
    .await
}

async fn evicted(run: &Run, system: System) -> anyhow::Result<Vec<Outcome>> {
    let settings = &[("maxmemory", "3mb"), ("maxmemory-policy", "allkeys-lru")];
    let server = run.stack.new_redis(settings).await?;
    let url = server.url();
    let case = Case::begin(trial_on(run, system, url.clone()).await?).await?;
    let mut cache = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
    let entry = vec![b'x'; CACHE_ENTRY_BYTES];
    for number in 0..CACHE_ENTRIES_MAX {
        let _: () =
            redis::cmd("SET").arg(format!("cache:{number}")).arg(&entry).query_async(&mut cache).await?;
        if number % CACHE_BATCH == CACHE_BATCH - 1
            && case.trial.redis_holds(&url, &case.key).await? != Some(true)
        {
            break;
        }
    }
    let stats: String = redis_command(&url, &["INFO", "stats"]).await?;
    let evicted = stats.lines().find_map(|line| line.strip_prefix("evicted_keys:")).unwrap_or("?").trim();
    let happened = match case.trial.redis_holds(&url, &case.key).await? {
        Some(false) => format!("it is evicted (of {evicted} in all)"),
        Some(true) => anyhow::bail!("{evicted} keys were evicted, and ours was not among them"),
        None => "nothing of it was in Redis".to_owned(),
    };
    case.end(happened).await
}

async fn restarted(run: &Run, system: System) -> anyhow::Result<Vec<Outcome>> {
    let mut server = run.stack.new_redis(&[("appendonly", "no")]).await?;
    let url = server.url();
    let case = Case::begin(trial_on(run, system, url.clone()).await?).await?;
    let before = case.trial.redis_holds(&url, &case.key).await?;
    let _server = tokio::task::spawn_blocking(move || server.restart().map(|()| server)).await??;
    let happened = gone(before, case.trial.redis_holds(&url, &case.key).await?, "restarted")?;
    case.end(happened).await
}

async fn failed_over(run: &Run, system: System) -> anyhow::Result<Vec<Outcome>> {
    // A primary waits 5 s for further replicas before it sends its data, if nobody says otherwise.
    let mut primary = run.stack.new_redis(&[("repl-diskless-sync-delay", "0")]).await?;
    let replica = run.stack.new_redis(&[]).await?;
    let (url, port) = (primary.url(), primary.port().to_string());
    let trial = trial_on(run, system, url.clone()).await?;
    // A replica like any other: it has what the primary had.
    let _: () = redis_command(&url, &["SET", "mark", "1"]).await?;
    let _: () = redis_command(&replica.url(), &["REPLICAOF", "127.0.0.1", &port]).await?;
    wait_for("the replica to have caught up", BOUND, async || {
        Ok(redis_command::<Option<String>>(&replica.url(), &["GET", "mark"])
            .await
            .is_ok_and(|mark| mark.is_some()))
    })
    .await?;
    // Its link breaks, and it keeps what it has.
    let _: () = redis_command(&replica.url(), &["REPLICAOF", "127.0.0.1", "1"]).await?;
    let case = Case::begin(trial).await?;
    let before = case.trial.redis_holds(&url, &case.key).await?;
    tokio::task::spawn_blocking(move || primary.kill()).await??;
    let _promoted = take_over(replica, &port).await?;
    let happened = gone(before, case.trial.redis_holds(&url, &case.key).await?, "failed over")?;
    case.end(happened).await
}

/// The replica becomes the primary, at the address where everybody looks for that.
async fn take_over(replica: Redis, port: &str) -> anyhow::Result<Redis> {
    let _: () = redis_command(&replica.url(), &["REPLICAOF", "NO", "ONE"]).await?;
    let _: () = redis_command(&replica.url(), &["CONFIG", "SET", "port", port])
        .await
        .context("taking over a port needs Redis 7")?;
    Ok(replica)
}

fn gone(before: Option<bool>, after: Option<bool>, what: &str) -> anyhow::Result<String> {
    match (before, after) {
        (Some(true), Some(false)) => Ok(format!("{what}: the key is gone")),
        (None, _) => Ok(format!("{what}: nothing of it was there")),
        other => anyhow::bail!("Redis was to forget the key: {other:?}"),
    }
}
