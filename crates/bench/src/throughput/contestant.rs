//! Whoever is measured: a system that runs, or the same system in another situation.
//!
//! Knows how a contestant becomes the target of a load. Deliberately does not know phases. Invariant: a contestant has a
//! database of its own unless the comparison is about sharing one (replicas), so tables grow by its own orders only.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use super::orders::Shape;
use super::plan::REPLAYED;
use crate::driver::{Keys, Known, Processes, Target};
use crate::stack::{Database, Stack};
use crate::systems::{Running, Setup, System};

/// Digits of the run's mark at the end of each key.
const MARK_DIGITS: usize = 12;

/// One contestant. Its processes live as long as it does.
pub struct Contestant {
    pub label: String,
    pub processes: Processes,
    pub database: Database,
    addresses: Vec<SocketAddr>,
    api_key: String,
    keys: Keys,
    /// Orders that were made to be replayed.
    known: HashMap<Shape, Arc<[Known]>>,
    _running: Vec<Arc<Running>>,
}

impl Contestant {
    /// One process of a system, on a database of its own.
    pub async fn start(stack: &Stack, system: System) -> anyhow::Result<Self> {
        let database = stack.database(system.name()).await?;
        let running = system.start(&Setup::new(&database.url, stack.redis_url())).await?;
        Self::of(stack, system.name(), database, vec![Arc::new(running)])
    }

    /// Processes that run already, under one name.
    pub fn of(
        stack: &Stack,
        label: &str,
        database: Database,
        running: Vec<Arc<Running>>,
    ) -> anyhow::Result<Self> {
        let (postgresql, redis) = stack.server_pids();
        let services = running.iter().map(|one| one.pid()).collect();
        Ok(Self {
            label: label.to_owned(),
            processes: Processes { services, postgresql, redis },
            database,
            addresses: running.iter().map(|one| one.api).collect(),
            api_key: stack.api_keys()[0].clone(),
            keys: keys(stack)?,
            known: HashMap::new(),
            _running: running,
        })
    }

    /// What a load sends to it.
    pub fn target(&self, shape: Shape) -> Target {
        Target {
            addresses: self.addresses.clone(),
            templates: shape.templates(&self.api_key),
            keys: self.keys.reseeded(),
            expected: 201,
        }
    }

    /// Orders that can be replayed; made when they are wanted first.
    pub async fn known(&mut self, shape: Shape) -> anyhow::Result<Arc<[Known]>> {
        if let Some(known) = self.known.get(&shape) {
            return Ok(Arc::clone(known));
        }
        let known = self.target(shape).order(REPLAYED).await?;
        self.known.insert(shape, Arc::clone(&known));
        Ok(known)
    }
}

/// Keys that end in the run's mark, by which [`Stack::close`] finds them on servers that go on living.
pub fn keys(stack: &Stack) -> anyhow::Result<Keys> {
    let key = stack.new_key();
    let mark = key.get(..MARK_DIGITS).unwrap_or(&key);
    Ok(Keys::marked(u64::from_str_radix(mark, 16)?))
}
