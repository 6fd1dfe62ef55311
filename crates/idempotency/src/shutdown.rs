//! The end of a process: whether it has begun, and the work that it waits for.
//!
//! Knows nothing of signals or servers. Invariant: once begun, no new work is taken, and work that was taken is waited
//! for, whoever asked for it.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Shared by every worker of a process; each counts its own work, see [`of_worker`](Self::of_worker).
#[derive(Debug, Clone)]
pub struct Shutdown {
    end: Arc<End>,
    tasks: TaskTracker,
}

#[derive(Debug, Default)]
struct End {
    /// Read with every request, where the token would take a lock.
    has_begun: AtomicBool,
    begun: CancellationToken,
    trackers: Mutex<Vec<TaskTracker>>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::counting(Arc::default())
    }
}

impl Shutdown {
    /// The same end with a count of its own: cores that move one counter with every request wait for each other.
    #[must_use]
    pub fn of_worker(&self) -> Self {
        Self::counting(Arc::clone(&self.end))
    }

    fn counting(end: Arc<End>) -> Self {
        let tasks = TaskTracker::new();
        let mut trackers = end.trackers();
        // Whoever begins the end sets the flag first, and closes what it finds here.
        if end.has_begun.load(Ordering::Relaxed) {
            tasks.close();
        }
        trackers.push(tasks.clone());
        drop(trackers);
        Self { end, tasks }
    }

    /// Where work that must be finished is tracked.
    pub fn tasks(&self) -> TaskTracker {
        self.tasks.clone()
    }

    /// Whether new work is refused.
    pub fn has_begun(&self) -> bool {
        self.end.has_begun.load(Ordering::Relaxed)
    }

    /// Lets new work in, unless the end has begun. The token is taken before the flag is read: whoever sets the flag then
    /// waits for this work, or this work sees the flag. Keep it until the answer is there.
    pub fn admit(&self) -> Option<TaskTrackerToken> {
        let token = self.tasks.token();
        // With the one in `begin`: of two who write and then read, one sees what the other wrote.
        fence(Ordering::SeqCst);
        (!self.has_begun()).then_some(token)
    }

    /// Refuses new work from now on.
    pub fn begin(&self) {
        self.end.has_begun.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.end.begun.cancel();
        for tasks in self.end.trackers().iter() {
            tasks.close();
        }
    }

    /// Returns once the end has begun: whoever only waits need not be waited for.
    pub async fn begun(&self) {
        self.end.begun.cancelled().await;
    }

    /// Waits until all tracked work is finished; [`begin`](Self::begin) first.
    pub async fn drained(&self) {
        let trackers = self.end.trackers().clone();
        for tasks in trackers {
            tasks.wait().await;
        }
    }
}

impl End {
    fn trackers(&self) -> MutexGuard<'_, Vec<TaskTracker>> {
        self.trackers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[test]
    fn the_end_waits_for_the_work_of_every_worker_and_admits_none() {
        let process = Shutdown::default();
        let workers = [process.of_worker(), process.of_worker()];
        let working = workers.each_ref().map(|worker| worker.admit().unwrap());
        process.begin();
        assert!(workers.iter().all(|worker| worker.has_begun() && worker.admit().is_none()));
        assert!(process.of_worker().admit().is_none(), "a worker that starts late");
        for work in working {
            assert!(process.drained().now_or_never().is_none());
            drop(work);
        }
        assert!(process.drained().now_or_never().is_some());
    }
}
