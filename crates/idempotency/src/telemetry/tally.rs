//! What every request counts, kept by each thread for itself until somebody reads it.
//!
//! Cores that move one counter with every request wait for each other, for longer than a replay takes to be looked up. Knows
//! handles and how to find them, no names. Invariants: nothing is lost and nothing is told twice; what a thread keeps is bounded.

use std::cell::LazyCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{Counter, Histogram};

/// Durations of a phase that a thread keeps at most.
const PENDING_MAX: usize = 256;

/// What tells counters apart; of static texts, since they are compared by their place.
pub(super) type Labels = (&'static str, &'static str);

/// One thread's.
#[derive(Default)]
struct Tally {
    counters: Vec<(Labels, Counter, u64)>,
    phases: Vec<(&'static str, Histogram, Vec<f64>)>,
}

static TALLIES: Mutex<Vec<Arc<Mutex<Tally>>>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: LazyCell<Arc<Mutex<Tally>>> = LazyCell::new(|| {
        let own = Arc::<Mutex<Tally>>::default();
        lock(&TALLIES).push(Arc::clone(&own));
        own
    });
}

/// Counts one. The same text at another place is a second way to the same counter.
pub(super) fn count(labels: Labels, register: impl FnOnce() -> Counter) {
    let same = |known: &Labels| std::ptr::eq(known.0, labels.0) && std::ptr::eq(known.1, labels.1);
    OWN.with(|own| {
        let mut tally = lock(own);
        match tally.counters.iter_mut().find(|(known, ..)| same(known)) {
            Some((.., pending)) => *pending += 1,
            None => tally.counters.push((labels, register(), 1)),
        }
    });
}

/// Takes note of a duration.
pub(super) fn note(phase: &'static str, seconds: f64, register: impl FnOnce() -> Histogram) {
    OWN.with(|own| {
        let mut tally = lock(own);
        match tally.phases.iter_mut().find(|(known, ..)| std::ptr::eq(*known, phase)) {
            Some((_, histogram, pending)) => {
                pending.push(seconds);
                if pending.len() >= PENDING_MAX {
                    tell(histogram, pending);
                }
            }
            None => tally.phases.push((phase, register(), vec![seconds])),
        }
    });
}

/// Tells the recorder what all threads have kept.
pub(super) fn publish() {
    lock(&TALLIES).retain(|tally| {
        let mut kept = lock(tally);
        for (_, counter, pending) in &mut kept.counters {
            counter.increment(std::mem::take(pending));
        }
        for (_, histogram, pending) in &mut kept.phases {
            tell(histogram, pending);
        }
        // Nobody else has those of a thread that is gone.
        Arc::strong_count(tally) > 1
    });
}

fn tell(histogram: &Histogram, pending: &mut Vec<f64>) {
    for seconds in pending.drain(..) {
        histogram.record(seconds);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn what_threads_have_counted_is_told_once() {
        let told = Arc::new(AtomicU64::new(0));
        let count_three = || {
            let register = || Counter::from_arc(Arc::clone(&told));
            (0..3).for_each(|_| count(("a", "b"), register));
        };
        std::thread::scope(|scope| {
            scope.spawn(count_three);
            scope.spawn(count_three);
        });
        count_three();
        assert_eq!(told.load(Ordering::Relaxed), 0);
        publish();
        publish();
        assert_eq!(told.load(Ordering::Relaxed), 9);
    }
}
