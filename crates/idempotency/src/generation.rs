//! Which database a value in Redis speaks of.
//!
//! Database oid and `pg_postmaster_start_time()` change with fail-over, restore and restart, and any role may read both. They
//! do not change when the server recovers from a crash of one of its processes; nothing acknowledged is lost then, since
//! commits are made durable (`database.rs`). Knows nothing of how they are read. Invariant: zero means "not known yet" and never stands in a value.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest as _, Sha256};

/// A digest of database oid and start time of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(pub u64);

impl Generation {
    /// From what PostgreSQL says: `started` is microseconds since 1970.
    pub fn of(database_oid: i64, started: i64) -> Self {
        let mut hash = Sha256::new();
        hash.update(database_oid.to_be_bytes());
        hash.update(started.to_be_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        let head = u64::from_be_bytes([
            digest[0], digest[1], digest[2], digest[3], digest[4], digest[5], digest[6], digest[7],
        ]);
        Self(head.max(1))
    }
}

/// The generation that this process saw last, shared by everything that reads or writes it.
#[derive(Debug, Clone, Default)]
pub struct CurrentGeneration(Arc<AtomicU64>);

impl CurrentGeneration {
    /// `None` until PostgreSQL has been reached once: until then no value in Redis can be believed.
    pub fn get(&self) -> Option<Generation> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            known => Some(Generation(known)),
        }
    }

    /// Takes note of what a server just said.
    pub fn set(&self, seen: Generation) {
        let before = self.0.swap(seen.0, Ordering::Relaxed);
        // The first one that a process sees is news to nobody.
        if before != 0 && before != seen.0 {
            tracing::info!(
                generation = seen.0,
                "the database is of another generation: older values in Redis are misses"
            );
        }
    }
}
