//! The end of a process: whether it has begun, and the work that it waits for.
//!
//! Knows nothing of signals or servers. Invariant: once begun, no new work is taken, and work that was taken is waited
//! for, whoever asked for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::task::TaskTracker;

/// Shared by every worker of a process.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    begun: Arc<AtomicBool>,
    tasks: TaskTracker,
}

impl Shutdown {
    /// Where work that must be finished is tracked.
    pub fn tasks(&self) -> TaskTracker {
        self.tasks.clone()
    }

    /// Whether new work is refused.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Refuses new work from now on.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Release);
        self.tasks.close();
    }

    /// Waits until all tracked work is finished; [`begin`](Self::begin) first.
    pub async fn drained(&self) {
        self.tasks.wait().await;
    }
}
