//! What happens to Redis while a case runs.

use std::net::SocketAddr;

use deadpool_redis::redis;
use testkit::{Action, CommandMatch, RedisProxy, Rule};

/// The worlds of every case. In the dying ones every connection is cut at the named point until one attempt has been
/// answered, and Redis works again afterwards: that is the hard part, since a Redis that stays away contradicts nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum World {
    /// Redis works.
    Up,
    /// Nobody listens at its address.
    Absent,
    /// The connection is cut before the acquire arrives.
    AcquireNotSent,
    /// The acquire is executed, its reply is lost.
    AcquireReplyLost,
    /// The connection is cut after the acquire, before the settle arrives.
    GoneBeforeSettle,
    /// The settle is executed, its reply is lost.
    SettleLost,
    /// FLUSHALL after the acquire was executed, before its reply is read.
    FlushedWhileRunning,
}

impl World {
    /// Whether Redis remembers a running first between the acquire and the end of the work.
    pub fn remembers_running(self) -> bool {
        matches!(self, Self::Up | Self::AcquireReplyLost | Self::GoneBeforeSettle | Self::SettleLost)
    }

    /// Whether a proxy stands before Redis.
    pub fn is_dying(self) -> bool {
        !matches!(self, Self::Up | Self::Absent)
    }
}

/// The SHA-1 of one of the framework's scripts.
pub fn script(name: &str) -> String {
    let shas = idempotency::gate::script_shas();
    shas.into_iter().find(|(known, _)| *known == name).map(|(_, sha)| sha).expect("a script of the framework")
}

/// Arms the world's cut, until the rule is released.
pub fn strike(world: World, proxy: &RedisProxy, redis: SocketAddr) -> Option<Rule> {
    let always = |name: &str, action| Some(proxy.always(CommandMatch::script([script(name)]), action));
    match world {
        World::Up | World::Absent => None,
        World::AcquireNotSent => always("acquire", Action::CutBefore),
        World::AcquireReplyLost => always("acquire", Action::DropReplyAndCut),
        World::GoneBeforeSettle => always("settle", Action::CutBefore),
        World::SettleLost => always("settle", Action::DropReplyAndCut),
        World::FlushedWhileRunning => {
            let rule = proxy.once(CommandMatch::script([script("acquire")]), Action::HoldReply);
            let held = rule.clone();
            tokio::spawn(async move {
                held.reached().await;
                let client = redis::Client::open(format!("redis://{redis}")).expect("a Redis address");
                let mut connection = client.get_multiplexed_async_connection().await.expect("Redis");
                let _: () = redis::cmd("FLUSHALL").query_async(&mut connection).await.expect("FLUSHALL");
                held.release();
            });
            Some(rule)
        }
    }
}
