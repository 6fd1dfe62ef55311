//! The end of a process: whether it has begun, and the work that it waits for.
//!
//! Knows nothing of signals or servers. Invariant: once begun, no new work is taken, and work that was taken is waited
//! for, whoever asked for it.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Shared by every worker of a process.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    begun: CancellationToken,
    tasks: TaskTracker,
}

impl Shutdown {
    /// Where work that must be finished is tracked.
    pub fn tasks(&self) -> TaskTracker {
        self.tasks.clone()
    }

    /// Whether new work is refused.
    pub fn has_begun(&self) -> bool {
        self.begun.is_cancelled()
    }

    /// Lets new work in, unless the end has begun. The token is taken before the flag is read: whoever sets the flag then
    /// waits for this work, or this work sees the flag. Keep it until the answer is there.
    pub fn admit(&self) -> Option<TaskTrackerToken> {
        let token = self.tasks.token();
        (!self.has_begun()).then_some(token)
    }

    /// Refuses new work from now on.
    pub fn begin(&self) {
        self.begun.cancel();
        self.tasks.close();
    }

    /// Returns once the end has begun: whoever only waits need not be waited for.
    pub async fn begun(&self) {
        self.begun.cancelled().await;
    }

    /// Waits until all tracked work is finished; [`begin`](Self::begin) first.
    pub async fn drained(&self) {
        self.tasks.wait().await;
    }
}
