//! The work that every system under test does, so that what they cost and do differs by their protocol alone.
//!
//! Three pieces: the order service's own order (catalogue, items, stock, event), a minimal order (one INSERT), and a
//! charge at a payment gateway. Pure parts and SQL texts live here; who sends them, and in which transaction, is the
//! system's business. Invariant: the SQL of the order is the service's, word for word (a test compares them).

pub mod gateway;
pub mod minimal;
pub mod order;

/// A definite no by a business rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// As in the service's problem.
    pub code: &'static str,
    /// For the caller.
    pub detail: String,
}

impl Refusal {
    pub fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }
}
