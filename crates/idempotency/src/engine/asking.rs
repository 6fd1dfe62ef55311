//! An attempt that has asked Redis for its place and has not heard yet.
//!
//! It asks in the request, without a task, and the client may hang up meanwhile. Knows nothing of what Redis says. Invariant: an
//! attempt that has asked is carried out whether or not anybody still waits for it: who leaves before the answer came leaves it
//! to a task, which goes on as after any answer that was lost.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::Engine;
use crate::attempt::Attempt;
use crate::command::Work;
use crate::gate::Claim;

/// Stands from the question to the answer.
pub(super) struct Asking<'a> {
    engine: &'a Arc<Engine>,
    attempt: &'a Arc<Attempt>,
    work: &'a Arc<dyn Work>,
    /// Under which the place is asked for.
    pub(super) claim: Claim,
    heard: bool,
}

impl<'a> Asking<'a> {
    pub(super) fn new(engine: &'a Arc<Engine>, attempt: &'a Arc<Attempt>, work: &'a Arc<dyn Work>) -> Self {
        Self { engine, attempt, work, claim: Claim::asked(), heard: false }
    }

    /// The answer is there: nothing is left to anybody.
    pub(super) fn heard(mut self) {
        self.heard = true;
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        // A runtime that is being torn down takes no task; its process ends, and the lease with it.
        if !self.heard && Handle::try_current().is_ok() {
            drop(self.engine.carry_out_claimed(self.attempt, self.work, self.claim));
        }
    }
}
