//! Bounded waits for tests.
//!
//! [`until`] polls a condition that has no signal (a row, a page, a file of `/proc`); [`within`] bounds a future
//! that has one. It deliberately does not know what is awaited beyond its name.
//!
//! Invariant: a wait ends at its bound with a panic that names what was awaited and the line that awaited it.

use std::future::Future;
use std::panic::Location;
use std::time::Duration;

use tokio::time::{sleep, timeout};

/// The bound of a wait whose caller names none: far above anything healthy, far below a CI job's patience.
pub const BOUND: Duration = Duration::from_secs(10);

/// Short enough not to be felt, long enough not to starve what is being waited for on two cores.
const TICK: Duration = Duration::from_millis(5);

/// What a probe of [`until`] may return: `bool`, or an `Option` whose value the waiting test wants.
pub trait Probe {
    type Value;

    fn into_value(self) -> Option<Self::Value>;
}

impl Probe for bool {
    type Value = ();

    fn into_value(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Probe for Option<T> {
    type Value = T;

    fn into_value(self) -> Option<T> {
        self
    }
}

/// Probes until the answer is `true` or `Some`, and returns the value.
///
/// The bound also covers a probe that hangs. At the bound it panics with `what` and the caller's line. (The probe
/// is not an `AsyncFnMut`, although `async ||` fits: a wait in a spawned task could then not be proven `Send`.)
#[track_caller]
pub fn until<P, F>(
    what: &str,
    bound: Duration,
    mut probe: impl FnMut() -> F,
) -> impl Future<Output = P::Value>
where
    P: Probe,
    F: Future<Output = P>,
{
    within(what, bound, async move {
        loop {
            if let Some(value) = probe().await.into_value() {
                return value;
            }
            sleep(TICK).await;
        }
    })
}

/// Awaits a future for at most `bound`; at the bound it panics with `what` and the caller's line.
#[track_caller]
pub fn within<F: Future>(what: &str, bound: Duration, future: F) -> impl Future<Output = F::Output> {
    let caller = Location::caller();
    async move {
        match timeout(bound, future).await {
            Ok(value) => value,
            Err(_) => panic!("not within {bound:?}: {what} (awaited at {caller})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[tokio::test]
    async fn returns_the_value_once_it_is_there() {
        let probes = AtomicU64::new(0);
        let third = async || (probes.fetch_add(1, Relaxed) == 2).then_some("third");
        assert_eq!(until("the third probe", BOUND, third).await, "third");
        assert_eq!(probes.into_inner(), 3);
        until("a plain condition", BOUND, async || true).await;
    }

    #[tokio::test]
    #[should_panic(expected = "not within 1ms: the impossible (awaited at ")]
    async fn names_what_did_not_come() {
        until("the impossible", Duration::from_millis(1), async || false).await;
    }

    #[tokio::test]
    #[should_panic(expected = "not within 1ms: a probe that hangs (awaited at ")]
    async fn bounds_the_probe_itself() {
        until("a probe that hangs", Duration::from_millis(1), async || std::future::pending::<bool>().await)
            .await;
    }
}
