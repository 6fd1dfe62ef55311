//! The load generator: requests as fast as they are answered (`closed`), or at a fixed rate (`open`).
//!
//! It shares the machine with what it measures, so it does little for each request: bytes that were built before, one
//! write, one read, two looks at the clock. Deliberately unknown here: which systems there are, what is compared with what.
//! Invariant: a load either gives a number in which every answer was the expected one, or says which was not.
//!
//! It is not pinned to cores of its own: that needs a system call for which the workspace has no safe wrapper. On two
//! cores there would be nothing to pin it to; all systems bear the same generator.

mod client;
mod closed;
mod cpu;
mod histogram;
mod open;
mod request;
#[cfg(test)]
pub mod stub;
mod tally;

pub use client::Connection;
pub use closed::{Kind, Known, Load, Slice, Target};
pub use cpu::{Cpu, Processes};
pub use open::OpenLoad;
pub use request::{Keys, Template};
pub use tally::Tally;
