//! How much of a pool is in use, for whoever watches it.
//!
//! Knows numbers only. Invariant: to watch a pool does not keep it, or its connections, alive.

use deadpool::managed::WeakPool;

use super::Database;
use super::connection::Opener;

/// A pool that somebody watches.
#[derive(Debug)]
pub struct PoolWatch(WeakPool<Opener>);

/// Connections of one pool, or of several together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// The most that may be open.
    pub max: usize,
    /// Open and in use.
    pub busy: usize,
    /// Open and not in use.
    pub idle: usize,
    /// Requests that wait for one.
    pub waiting: usize,
}

impl std::ops::AddAssign for PoolUsage {
    fn add_assign(&mut self, other: Self) {
        self.max += other.max;
        self.busy += other.busy;
        self.idle += other.idle;
        self.waiting += other.waiting;
    }
}

impl Database {
    /// For watching this pool.
    pub fn watch(&self) -> PoolWatch {
        PoolWatch(self.pool.weak())
    }
}

impl PoolWatch {
    /// What is in use now; nothing of a pool that is gone.
    pub fn usage(&self) -> PoolUsage {
        let Some(pool) = self.0.upgrade() else { return PoolUsage::default() };
        let status = pool.status();
        PoolUsage {
            max: status.max_size,
            busy: status.size.saturating_sub(status.available),
            idle: status.available,
            waiting: status.waiting,
        }
    }
}
