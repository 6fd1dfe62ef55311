//! What a request costs that can be counted: round trips and statements, on the wire.
//!
//! In a phase of its own, through proxies that would falsify any time. Deliberately unknown: what the statements do.
//! Invariant: only connections that made orders are counted, so that housekeeping is not, whoever does it.

use std::collections::HashSet;
use std::sync::Arc;

use testkit::{Flight, PgProxy, RedisProxy};

use super::contestant::Contestant;
use super::orders::Shape;
use super::plan::COUNTED;
use crate::scenarios::way;
use crate::stack::Stack;
use crate::systems::{Setup, System};

/// Connections, one after the other, before anything is counted, so that each worker of the service has had its share; and
/// orders on each, so that everything is connected and prepared.
const WARM_CONNECTIONS: usize = 8;
const WARM_ORDERS: usize = 2;
/// What every system sends for an order, and nothing else does.
const ORDER_SQL: &str = "INSERT INTO orders";

/// For each request, on average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counts {
    pub postgresql_round_trips: f64,
    pub statements: f64,
    pub redis_round_trips: f64,
}

/// One system, new orders and replays; none for what it does not do.
#[derive(Debug, Clone)]
pub struct Counted {
    pub system: System,
    pub fresh: Option<Counts>,
    pub replays: Option<Counts>,
}

/// Starts the system behind proxies and counts.
pub async fn run(stack: &Stack, system: System) -> anyhow::Result<Counted> {
    let database = stack.database("counts").await?;
    let (postgres, database_url) = way::to_postgres(&database.url).await?;
    let (redis, redis_url) = way::to_redis(stack.redis_url()).await?;
    let mut setup = Setup::new(&database_url, &redis_url);
    setup.charges_url.clone_from(&database.url);
    let running = Arc::new(system.start(&setup).await?);
    let shop = Contestant::of(stack, system.name(), database, vec![running])?;
    let target = shop.target(Shape::Real);
    for _ in 0..WARM_CONNECTIONS {
        target.order(WARM_ORDERS).await?;
    }

    let wire = Wire { postgres, redis };
    let before = wire.mark();
    let known = target.order(COUNTED).await?;
    let fresh = wire.since(before);
    let replays = if system.looks_at_keys() || system == System::BareEvalsha {
        let before = wire.mark();
        target.replay(&known).await?;
        Some(wire.since(before))
    } else {
        None
    };
    Ok(Counted { system, fresh: (system != System::BareEvalsha).then_some(fresh), replays })
}

/// Both proxies.
struct Wire {
    postgres: PgProxy,
    redis: RedisProxy,
}

impl Wire {
    /// How many flights and commands there were until now.
    fn mark(&self) -> (usize, usize) {
        (self.postgres.flights().len(), self.redis.commands().len())
    }

    fn since(&self, (flights, commands): (usize, usize)) -> Counts {
        let all = self.postgres.flights();
        let makes_orders = |flight: &&Flight| flight.statements.iter().any(|sql| sql.contains(ORDER_SQL));
        let working: HashSet<u64> = all.iter().filter(makes_orders).map(|flight| flight.connection).collect();
        let counted = all[flights..].iter().filter(|flight| working.contains(&flight.connection));
        let (mut round_trips, mut statements) = (0, 0);
        // Nobody waits for the answer to a Close.
        for flight in counted.filter(|flight| !flight.is_close()) {
            round_trips += 1;
            statements += flight.statements.len();
        }
        // A pool's check of a connection is two commands in one flight.
        let sent = self.redis.commands();
        let redis = sent[commands..].iter().filter(|command| command.name != "UNWATCH").count();
        let each = |count: usize| count as f64 / COUNTED as f64;
        Counts {
            postgresql_round_trips: each(round_trips),
            statements: each(statements),
            redis_round_trips: each(redis),
        }
    }
}
