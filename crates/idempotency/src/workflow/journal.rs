//! What a workflow has done so far, for whoever gives it up. Pure.

use serde::de::DeserializeOwned;

use crate::ledger::Step;

/// The finished steps of a workflow.
#[derive(Debug)]
pub struct Journal<'a>(pub(crate) &'a [Step]);

impl Journal<'_> {
    /// Whether a step of this name is done.
    pub fn has(&self, step: &str) -> bool {
        self.find(step).is_some()
    }

    /// What came of a step, if it is done.
    ///
    /// # Errors
    /// If its result is not one of these.
    pub fn result<T: DeserializeOwned>(&self, step: &str) -> Result<Option<T>, serde_json::Error> {
        self.find(step).map(serde_json::from_slice).transpose()
    }

    fn find(&self, step: &str) -> Option<&[u8]> {
        self.0.iter().find(|line| line.name == step).and_then(|line| line.result.as_deref())
    }
}
