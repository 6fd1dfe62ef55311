//! What this process routes, for whoever documents it: a handler that is added is documented without being told twice.
//!
//! Knows paths and names, no request. Invariant: each operation is there once, however many workers route it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Routed {
    /// With `{name}` for each parameter.
    pub path: String,
    /// In lower case.
    pub method: &'static str,
    /// The command's or workflow's name; of anything else, what it is called in documentation.
    pub name: &'static str,
    /// Whether it may go on in the background.
    pub is_workflow: bool,
}

static ROUTED: Mutex<BTreeSet<Routed>> = Mutex::new(BTreeSet::new());

/// Takes note of an operation. Commands and workflows are noted by being routed.
pub fn announce(operation: Routed) {
    ROUTED.lock().unwrap_or_else(PoisonError::into_inner).insert(operation);
}

/// Every operation that was noted, by path.
pub fn routed() -> Vec<Routed> {
    ROUTED.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
}
