//! Redis: version, memory policy, persistence, evictions, scripts, what lies under our names, replicas, clock.
//!
//! Knows nothing of PostgreSQL. Invariant: reads what Redis says of itself, and writes nothing but a probe.

use std::collections::HashMap;

use idempotency::CurrentGeneration;
use idempotency::gate::Gate;

use super::{DoctorArgs, SKEW_MAX, clock_ms, skew};
use crate::admin::asking;
use crate::admin::report::Check;

/// Oldest server whose commands suffice (SET with PXAT).
const VERSION_MIN: (u32, u32) = (6, 2);
/// Most values that are looked at.
const SAMPLE_MAX: usize = 200;
/// How far behind a replica may be, in seconds: what it has not got is asked of PostgreSQL after a fail-over.
const LAG_MAX: u64 = 10;

pub(super) async fn checks(arguments: &DoctorArgs) -> Vec<Check> {
    let asked = async {
        let gate = asking::gate(&arguments.stores.redis_url, CurrentGeneration::default());
        let gate = gate.map_err(|error| error.to_string())?;
        let info = gate.info().await?;
        Ok::<_, String>((gate, info))
    };
    let (gate, info) = match asked.await {
        Ok(answer) => answer,
        Err(why) => return vec![Check::failed("redis", why)],
    };
    let info: HashMap<&str, &str> = info.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
    let said = |name: &str| info.get(name).copied().unwrap_or("unknown");
    let (policy, evicted, aof) = (said("maxmemory_policy"), said("evicted_keys"), said("aof_enabled"));
    let version = info.get("valkey_version").copied().unwrap_or(said("redis_version"));
    vec![
        Check::that("redis-version", is_new_enough(version), format!("{version}; 6.2 or newer is wanted")),
        Check::that(
            "redis-memory-policy",
            policy == "noeviction",
            format!("maxmemory-policy is {policy}; noeviction is wanted"),
        ),
        Check::that("redis-evicted", evicted == "0", format!("evicted_keys is {evicted}")),
        Check::that(
            "redis-persistence",
            aof == "1",
            if aof == "1" {
                "appendonly is on"
            } else {
                "appendonly is off: after a restart PostgreSQL answers every first retry"
            },
        ),
        match gate.probe().await {
            Ok(()) => Check::ok("redis-scripts", "scripts run and write"),
            Err(why) => Check::failed("redis-scripts", why),
        },
        types(&gate).await,
        replicas(&info),
        clock(&gate).await,
    ]
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.split('.').map(str::parse::<u32>);
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= VERSION_MIN)
}

/// Under our names there are texts and nothing else.
async fn types(gate: &Gate) -> Check {
    const NAME: &str = "redis-key-types";
    let names = match gate.names(SAMPLE_MAX).await {
        Ok(names) => names,
        Err(why) => return Check::failed(NAME, why),
    };
    let mut foreign = Vec::new();
    for name in &names {
        if let Err(why) = gate.value(name).await {
            foreign.push(format!("{name} ({why})"));
        }
    }
    Check::without(NAME, &format!("what lies under our names is ours ({} looked at)", names.len()), &foreign)
}

fn replicas(info: &HashMap<&str, &str>) -> Check {
    const NAME: &str = "redis-replication";
    let said = |name: &str| info.get(name).copied().unwrap_or("unknown");
    if said("role") != "master" {
        return Check::failed(NAME, "this is a replica: it takes no writes");
    }
    let replicas = info
        .iter()
        .filter(|(name, _)| name.strip_prefix("slave").is_some_and(|rest| rest.parse::<u32>().is_ok()));
    let mut behind = Vec::new();
    let mut count = 0;
    for (_, line) in replicas {
        count += 1;
        let field = |name: &str| line.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        let lag = field("lag").and_then(|lag| lag.parse::<u64>().ok());
        if field("state") != Some("online") || lag.is_none_or(|lag| lag > LAG_MAX) {
            behind.push((*line).to_owned());
        }
    }
    Check::without(NAME, &format!("a master; its {count} replicas are at most {LAG_MAX} s behind"), &behind)
}

async fn clock(gate: &Gate) -> Check {
    const NAME: &str = "redis-clock";
    let asked = clock_ms();
    match gate.clock_ms().await {
        Ok(theirs) => {
            let off = skew(asked, theirs, clock_ms());
            Check::that(NAME, off < SKEW_MAX, format!("{} ms from this host's", off.as_millis()))
        }
        Err(why) => Check::failed(NAME, why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (version, new_enough) in [
            ("6.2.14", true),
            ("7.0.15", true),
            ("10.1", true),
            ("6.0.9", false),
            ("5.9", false),
            ("?", false),
        ] {
            assert_eq!(is_new_enough(version), new_enough, "{version}");
        }
    }

    #[test]
    fn a_replica_that_is_behind_is_told() {
        let of = |line| {
            replicas(&HashMap::from([("role", "master"), ("slave0", line), ("slave_repl_offset", "0")]))
                .to_string()
        };
        assert!(of("ip=127.0.0.1,port=1,state=online,offset=1,lag=0").starts_with("ok"));
        assert!(of("ip=127.0.0.1,port=1,state=online,offset=1,lag=60").starts_with("failed"));
        assert!(of("ip=127.0.0.1,port=1,state=wait_bgsave,offset=1,lag=0").starts_with("failed"));
        assert!(replicas(&HashMap::from([("role", "slave")])).to_string().starts_with("failed"));
    }
}
