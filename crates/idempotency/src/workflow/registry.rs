//! Which workflow a stored name means.
//!
//! Knows types by their names, so that a record can be gone on with by whoever finds it. Invariant: a request that this build cannot
//! read is never run.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Bound, Job, Workflow};
use crate::objects::Objects;

type Read = Box<dyn Fn(Vec<u8>) -> Result<Arc<dyn Job>, serde_json::Error> + Send + Sync>;

/// Every workflow that a process can go on with. A workflow that is not here is left to the retries of its callers.
#[derive(Default)]
pub struct Workflows {
    known: HashMap<&'static str, Read>,
}

impl Workflows {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more.
    #[must_use]
    pub fn with<W: Workflow>(mut self, state: Arc<W::State>) -> Self {
        let read = move |request: Vec<u8>| {
            let workflow = W::deserialize(Objects(&mut serde_json::Deserializer::from_slice(&request)))?;
            Ok(Arc::new(Bound { workflow, request, state: Arc::clone(&state) }) as Arc<dyn Job>)
        };
        self.known.insert(W::NAME, Box::new(read));
        self
    }

    /// Their names.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.known.keys().copied().collect()
    }

    /// A workflow as its record has it; `None` for a name that is not known here.
    pub(crate) fn read(
        &self,
        name: &str,
        request: Vec<u8>,
    ) -> Option<Result<Arc<dyn Job>, serde_json::Error>> {
        self.known.get(name).map(|read| read(request))
    }
}
