//! The measures: what is claimed about speed, each as one ratio with a floor and a goal.
//!
//! Pure; this is the table of `docs/performance.md`. Invariant: a measure is a ratio within one interleaved phase, never
//! of numbers from two runs or two machines.

use super::series::{Phase, Point, Spread};
use crate::systems::System;

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    AtLeast,
    AtMost,
}

/// One claim and what came of it.
#[derive(Debug, Clone)]
pub struct Measure {
    pub name: String,
    pub value: f64,
    pub wanted: Wanted,
    /// What must hold.
    pub floor: f64,
    /// What we aim at.
    pub goal: f64,
    /// Least and greatest of a round.
    pub spread: (f64, f64),
}

impl Measure {
    /// Whether the floor is met.
    pub fn holds(&self) -> bool {
        self.reaches(self.floor)
    }

    /// Whether the goal is met too.
    pub fn excels(&self) -> bool {
        self.reaches(self.goal)
    }

    fn reaches(&self, bound: f64) -> bool {
        match self.wanted {
            Wanted::AtLeast => self.value >= bound,
            Wanted::AtMost => self.value <= bound,
        }
    }
}

/// A measure that is waiting for its ratio.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    wanted: Wanted,
    floor: f64,
    goal: f64,
}

impl Claim {
    pub const fn at_least(floor: f64, goal: f64) -> Self {
        Self { wanted: Wanted::AtLeast, floor, goal }
    }

    pub const fn at_most(floor: f64, goal: f64) -> Self {
        Self { wanted: Wanted::AtMost, floor, goal }
    }

    pub fn met_by(self, name: impl Into<String>, ratio: Spread) -> Measure {
        let Self { wanted, floor, goal } = self;
        let Spread { median, least, greatest } = ratio;
        Measure { name: name.into(), value: median, wanted, floor, goal, spread: (least, greatest) }
    }
}

/// Ours against one other system in one phase.
struct Row {
    name: &'static str,
    phase: &'static str,
    against: System,
    figure: fn(&Point) -> f64,
    claim: Claim,
}

const fn rate(point: &Point) -> f64 {
    point.per_second
}

const fn p50(point: &Point) -> f64 {
    point.p50_ms
}

const ROWS: [Row; 7] = [
    Row {
        name: "replays/s against bare-evalsha (16 connections)",
        phase: "replays_real_16",
        against: System::BareEvalsha,
        figure: rate,
        claim: Claim::at_least(0.85, 0.95),
    },
    Row {
        name: "new real orders/s against no-key-pipelined (16 connections)",
        phase: "fresh_real_16",
        against: System::NoKeyPipelined,
        figure: rate,
        claim: Claim::at_least(0.60, 0.75),
    },
    Row {
        name: "new real orders/s against no-key",
        phase: "fresh_real_16",
        against: System::NoKey,
        figure: rate,
        claim: Claim::at_least(0.75, 1.0),
    },
    Row {
        name: "new real orders/s against naive-hybrid",
        phase: "fresh_real_16",
        against: System::NaiveHybrid,
        figure: rate,
        claim: Claim::at_least(1.1, 1.4),
    },
    Row {
        name: "new real orders/s against postgres-only",
        phase: "fresh_real_16",
        against: System::PostgresOnly,
        figure: rate,
        claim: Claim::at_least(0.9, 1.1),
    },
    Row {
        name: "p50 of a new real order at 1 connection against no-key-pipelined",
        phase: "fresh_real_1",
        against: System::NoKeyPipelined,
        figure: p50,
        claim: Claim::at_most(1.5, 1.25),
    },
    Row {
        name: "p50 with the articles' 30 ms gateway (1 connection) against no-key-pipelined with the same gateway",
        phase: "fresh_gateway_1",
        against: System::NoKeyPipelined,
        figure: p50,
        claim: Claim::at_most(1.02, 1.01),
    },
];

pub const STORM_NAME: &str = "p99 of fresh orders during a 1 000-duplicate storm against without";
/// Fresh orders while duplicates storm in, against fresh orders alone.
pub const STORM: Claim = Claim::at_most(1.5, 1.2);
/// Many stored keys against few.
pub const STORED_KEYS: Claim = Claim::at_least(0.9, 0.95);

/// The measures about the systems; what was not measured does not hold.
pub fn of_systems(phases: &[Phase]) -> Vec<Measure> {
    let measured = ROWS.iter().map(|row| {
        let phase = phases.iter().find(|phase| phase.id == row.phase);
        let ratio =
            phase.and_then(|phase| phase.ratio(System::OrderService.name(), row.against.name(), row.figure));
        row.claim.met_by(row.name, ratio.unwrap_or(Spread::UNKNOWN))
    });
    measured.collect()
}

#[cfg(test)]
mod tests {
    use super::super::series::tests::series;
    use super::*;

    fn measure(claim: Claim, value: f64) -> Measure {
        claim.met_by("m", Spread { median: value, least: value, greatest: value })
    }

    #[test]
    fn the_floor_itself_holds_in_both_directions() {
        let (least, most) = (Claim::at_least(0.85, 0.95), Claim::at_most(1.5, 1.2));
        assert!(measure(least, 0.85).holds() && !measure(least, 0.849).holds());
        assert!(measure(most, 1.5).holds() && !measure(most, 1.501).holds());
        assert!(!measure(least, 0.94).excels() && measure(least, 0.95).excels());
        assert!(!measure(most, 1.21).excels() && measure(most, 1.2).excels());
        assert!(!measure(least, f64::NAN).holds() && !measure(most, f64::NAN).holds());
    }

    #[test]
    fn a_goal_is_never_easier_than_its_floor() {
        for claim in ROWS.iter().map(|row| row.claim).chain([STORM, STORED_KEYS]) {
            assert!(measure(claim, claim.goal).holds(), "{claim:?}");
        }
    }

    #[test]
    fn ours_is_above_the_line() {
        let phase = Phase {
            id: "fresh_real_16".to_owned(),
            title: String::new(),
            series: vec![series("no-key", &[200.0, 210.0]), series("order-service", &[180.0, 230.0])],
        };
        let measures = of_systems(&[phase]);
        assert_eq!(measures.len(), ROWS.len());
        let told =
            measures.iter().find(|measure| measure.name == "new real orders/s against no-key").unwrap();
        assert!((told.value - 1.0).abs() < 1e-9 && told.excels());
        assert!((told.spread.0 - 0.9).abs() < 1e-9);
        assert_eq!(measures.iter().filter(|measure| measure.holds()).count(), 1, "what was not measured");
    }
}
