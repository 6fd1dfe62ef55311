//! Stops asking a dead Redis on every request.
//!
//! Counts failures in a row; knows nothing of what is asked. Invariant: while it is open, at most one caller in
//! [`OPEN_FOR`] gets through to try, so that the fast path is used again soon after the store is back.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Failures in a row after which nobody asks for a while.
const FAILURES_MAX: u32 = 3;
/// How long nobody asks before one caller tries again.
const OPEN_FOR: Duration = Duration::from_secs(1);

/// Closed until [`FAILURES_MAX`] failures in a row, then open.
#[derive(Debug)]
pub struct Breaker {
    born: Instant,
    failures: AtomicU32,
    /// When the next caller may try, in ms since `born`.
    retry_at: AtomicU64,
}

impl Breaker {
    /// A closed breaker.
    pub fn new() -> Self {
        Self { born: Instant::now(), failures: AtomicU32::new(0), retry_at: AtomicU64::new(0) }
    }

    /// Whether this caller may ask.
    pub fn admits(&self) -> bool {
        self.admits_at(self.born.elapsed())
    }

    fn admits_at(&self, now: Duration) -> bool {
        if self.failures.load(Ordering::Relaxed) < FAILURES_MAX {
            return true;
        }
        let (now, open_for) = (millis(now), millis(OPEN_FOR));
        let due = self.retry_at.load(Ordering::Relaxed);
        // Several callers see the time come; the one whose exchange succeeds is the probe.
        now >= due
            && self
                .retry_at
                .compare_exchange(due, now + open_for, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// The store answered.
    pub fn succeeded(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// The store did not answer, or refused everything.
    pub fn failed(&self) {
        self.failed_at(self.born.elapsed());
    }

    fn failed_at(&self, now: Duration) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 == FAILURES_MAX {
            self.retry_at.store(millis(now + OPEN_FOR), Ordering::Relaxed);
        }
    }

    /// Whether the store counts as away.
    pub fn is_open(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= FAILURES_MAX
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_after_failures_in_a_row_and_lets_one_probe_through() {
        let (breaker, second) = (Breaker::new(), Duration::from_secs(1));
        breaker.failed_at(Duration::ZERO);
        breaker.failed_at(Duration::ZERO);
        breaker.succeeded();
        breaker.failed_at(Duration::ZERO);
        breaker.failed_at(Duration::ZERO);
        assert!(breaker.admits_at(Duration::ZERO) && !breaker.is_open());
        breaker.failed_at(Duration::ZERO);
        assert!(breaker.is_open() && !breaker.admits_at(second / 2));
        assert!(breaker.admits_at(second), "the probe");
        assert!(!breaker.admits_at(second), "one probe, not two");
        breaker.failed_at(second);
        assert!(!breaker.admits_at(second * 3 / 2));
        assert!(breaker.admits_at(second * 2));
        breaker.succeeded();
        assert!(breaker.admits_at(second * 2) && breaker.admits_at(second * 2));
    }
}
