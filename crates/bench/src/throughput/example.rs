//! Results that nobody measured, for tests of the pages.

use super::measure::{self, Measure};
use super::series::{Phase, tests::series};
use super::storm::{Kind, QUIET, STORMY, Storm};
use super::swarm::Sent;
use super::watch::Connections;

/// A phase whose rounds had these throughputs.
pub fn phase(id: &str, title: &str, rates: &[(&str, &[f64])]) -> Phase {
    let series = rates.iter().map(|(label, rates)| series(label, rates)).collect();
    Phase { id: id.to_owned(), title: title.to_owned(), series }
}

/// What the table of measures makes of them.
pub fn measures(phases: &[Phase]) -> Vec<Measure> {
    measure::of_systems(phases)
}

/// A storm that was felt.
pub fn storm() -> Storm {
    let phase = phase("storm_reject", "A storm", &[(QUIET, &[50.0, 50.0]), (STORMY, &[40.0, 45.0])]);
    let sent = Sent { keys: 4, requests: 50_000, refused: 46_000 };
    Storm { kind: Kind::Reject, phase, sent, connections: Connections { open: 20, busy: 9 } }
}
