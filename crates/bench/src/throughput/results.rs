//! Everything that a run found out: what the reports are made of.

use super::counts::Counted;
use super::growth::StoredKeys;
use super::machine::Machine;
use super::measure::Measure;
use super::series::Phase;
use super::storm::Storm;

/// One run.
#[derive(Debug, Clone)]
pub struct Results {
    pub machine: Machine,
    pub quick: bool,
    /// How it was measured, for people.
    pub method: Vec<String>,
    pub measures: Vec<Measure>,
    /// About the systems, in the order in which they were asked.
    pub phases: Vec<Phase>,
    pub counts: Vec<Counted>,
    pub bodies: Vec<Phase>,
    pub replicas: Phase,
    pub stored_keys: StoredKeys,
    /// None if it is invalid.
    pub storm: Option<Storm>,
    /// What could not be measured, and the answer that says why.
    pub invalid: Vec<String>,
}

impl Results {
    /// A phase about the systems.
    pub fn phase(&self, id: &str) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.id == id)
    }
}
