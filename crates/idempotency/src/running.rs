//! What this process itself executes right now, so that it need not ask a store who is at work.
//!
//! Shared by all workers of a process. Knows keys and what was asked under them; no store, no outcome. Invariants: an entry
//! stands from when PostgreSQL has admitted its attempt until its answer is known to the stores, or known to have failed;
//! it turns duplicates of the same request away, and admits nobody; an entry that is old says nothing, since its attempt may have lost
//! its session without noticing, and the work may be done elsewhere.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::attempt::Attempt;
use crate::fingerprint::Fingerprint;
use crate::key::{AccountId, IdempotencyKey};

type Key = (AccountId, IdempotencyKey);

/// Every attempt that this process executes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Running {
    entries: Arc<Mutex<HashMap<Key, Asked>>>,
    /// Beside the map, so that a replay while nothing is executed takes no lock.
    count: Arc<AtomicUsize>,
}

/// What is executed, and since when.
#[derive(Debug)]
struct Asked {
    fingerprint: Fingerprint,
    since: Instant,
}

/// One of them. Dropping it ends its entry.
#[derive(Debug)]
pub(crate) struct Entry {
    running: Running,
    key: Key,
}

impl Running {
    /// Enters an attempt that PostgreSQL has admitted: nobody else is at work under its key.
    pub(crate) fn enter(&self, attempt: &Attempt) -> Entry {
        let key = (attempt.account, attempt.key.clone());
        let asked = Asked { fingerprint: attempt.asked.current, since: Instant::now() };
        let mut entries = self.lock();
        entries.insert(key.clone(), asked);
        self.count.store(entries.len(), Ordering::Release);
        drop(entries);
        Entry { running: self.clone(), key }
    }

    /// Whether the same request is being executed under the same key, and has been for less than `lately`. Another request, and an
    /// older attempt, is for the stores to judge.
    pub(crate) fn executes(&self, attempt: &Attempt, lately: Duration) -> bool {
        // Seldom more than a few, and most arrivals are of none of them: no key is copied for nothing.
        self.count.load(Ordering::Acquire) != 0
            && self.lock().get(&(attempt.account, attempt.key.clone())).is_some_and(|asked| {
                asked.fingerprint == attempt.asked.current && asked.since.elapsed() < lately
            })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Asked>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut entries = self.running.lock();
        entries.remove(&self.key);
        self.running.count.store(entries.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::Asked;

    fn attempt(account: i64, body: &[u8]) -> Attempt {
        let key = IdempotencyKey::from_text("k").unwrap();
        let asked = Asked::compute("POST", "/", "c", body);
        Attempt::new(AccountId(account), key, asked, String::new(), uuid::Uuid::now_v7())
    }

    #[test]
    fn only_the_same_request_of_the_same_account_is_being_executed_and_only_for_a_while() {
        let (running, lately) = (Running::default(), Duration::from_secs(60));
        let entry = running.enter(&attempt(1, b"{}"));
        assert!(running.executes(&attempt(1, b"{}"), lately));
        assert!(!running.executes(&attempt(1, b"{1}"), lately), "another request");
        assert!(!running.executes(&attempt(2, b"{}"), lately), "another account");
        assert!(!running.executes(&attempt(1, b"{}"), Duration::ZERO), "too long ago");
        drop(entry);
        assert!(!running.executes(&attempt(1, b"{}"), lately));
    }
}
