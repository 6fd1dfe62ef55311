//! What a scenario found: rows, and a verdict for each, computed from what the database holds afterwards.
//!
//! Knows counts and words. Deliberately knows no server. Invariant: a verdict that says "holds" has as many orders as
//! intents and no more charges than these.

use serde::Serialize;

/// What one scenario found, over all systems.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// As `--only` takes it.
    pub name: &'static str,
    pub title: &'static str,
    /// Without the first, which is the system; the last is the number of orders in the database.
    pub columns: Vec<&'static str>,
    pub rows: Vec<Row>,
    pub notes: &'static [&'static str],
    /// Why it was not run.
    pub skipped: Option<String>,
}

/// One system in one scenario.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The system, and how it was asked where there are several ways.
    pub label: String,
    pub cells: Vec<String>,
    pub verdict: Verdict,
}

/// Whether it held, in one line.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    pub holds: bool,
    /// Whether that is what the articles (and we) say of this system.
    pub as_claimed: bool,
    pub text: String,
}

impl Report {
    /// Whether every system did what is said of it.
    pub fn is_as_claimed(&self) -> bool {
        self.rows.iter().all(|row| row.verdict.as_claimed)
    }
}

/// What there is in the database, and at the gateway, since the scenario began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effects {
    pub orders: i64,
    pub charges: i64,
}

/// What a system did in a scenario, before it is known what is said of it.
#[derive(Debug)]
pub struct Outcome {
    /// The system's name, if `None`.
    pub label: Option<String>,
    /// Without charges and orders, which are the last columns of every table.
    pub cells: Vec<String>,
    pub effects: Effects,
    /// How many orders the client wanted.
    pub intents: i64,
    /// What is wrong although the counts are right.
    pub fault: Option<String>,
    /// Charges are not judged: the scenario is one in which they are repeated whatever the protocol.
    pub charges_repeat: bool,
    /// Whether the gateway was asked at all.
    pub charged: bool,
}

impl Outcome {
    /// One intent that was charged.
    pub fn charged(effects: Effects, cells: Vec<String>) -> Self {
        Self { label: None, cells, effects, intents: 1, fault: None, charges_repeat: false, charged: true }
    }

    /// One intent without a payment.
    pub fn uncharged(effects: Effects, cells: Vec<String>) -> Self {
        Self { charged: false, ..Self::charged(effects, cells) }
    }

    /// Adds a fault, if it is one.
    #[must_use]
    pub fn fault_if(mut self, wrong: bool, text: &str) -> Self {
        if wrong && self.fault.is_none() {
            self.fault = Some(text.to_owned());
        }
        self
    }

    /// The verdict, against what is said of the system.
    pub fn verdict(&self, should_hold: bool) -> Verdict {
        let Effects { orders, charges } = self.effects;
        let mut counts = vec![counted(self.intents, "intent"), counted(orders, "order")];
        if self.charged {
            counts.push(counted(charges, "charge"));
        }
        let mut faults = Vec::new();
        if orders > self.intents {
            faults.push("DUPLICATE".to_owned());
        }
        if orders < self.intents {
            faults.push("NO ORDER".to_owned());
        }
        if charges > self.intents && !self.charges_repeat {
            faults.push("CHARGED TOO OFTEN".to_owned());
        }
        faults.extend(self.fault.clone());
        let holds = faults.is_empty();
        let judged = match (holds, charges > self.intents) {
            (true, true) => "one order; the charge is repeated".to_owned(),
            (true, false) => "holds".to_owned(),
            (false, _) => faults.join(", "),
        };
        Verdict { holds, as_claimed: holds == should_hold, text: format!("{}: {judged}", counts.join(", ")) }
    }
}

fn counted(count: i64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(orders: i64, charges: i64) -> Outcome {
        Outcome::charged(Effects { orders, charges }, Vec::new())
    }

    #[test]
    fn the_counts_decide() {
        let said = |outcome: &Outcome| outcome.verdict(true).text;
        assert_eq!(said(&outcome(1, 1)), "1 intent, 1 order, 1 charge: holds");
        assert_eq!(said(&outcome(2, 1)), "1 intent, 2 orders, 1 charge: DUPLICATE");
        assert_eq!(said(&outcome(0, 1)), "1 intent, 0 orders, 1 charge: NO ORDER");
        assert_eq!(said(&outcome(1, 6)), "1 intent, 1 order, 6 charges: CHARGED TOO OFTEN");
        let repeated = Outcome { charges_repeat: true, ..outcome(1, 2) };
        assert_eq!(said(&repeated), "1 intent, 1 order, 2 charges: one order; the charge is repeated");
    }

    #[test]
    fn a_fault_fails_also_with_the_right_counts() {
        let verdict = outcome(1, 1).fault_if(true, "LEAK").verdict(false);
        assert!(!verdict.holds && verdict.as_claimed);
        assert!(outcome(1, 1).fault_if(false, "LEAK").verdict(true).holds);
    }
}
