//! Waiting for a condition, with a bound: the only place of this crate that sleeps.

use std::thread;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(10);

/// Asks again until the answer is yes; false when `bound` has passed first.
#[must_use]
pub fn wait_until(bound: Duration, mut condition: impl FnMut() -> bool) -> bool {
    wait_for(bound, || condition().then_some(())).is_some()
}

/// Asks again until there is an answer; `None` when `bound` has passed first.
pub(crate) fn wait_for<T>(bound: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + bound;
    loop {
        // Asked once more after the bound: on a loaded machine the time may pass inside `sleep`.
        let last = Instant::now() >= end;
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if last {
            return None;
        }
        thread::sleep(INTERVAL);
    }
}
