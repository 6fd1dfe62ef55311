//! Steps: the round trips that a request makes, found in the proxy's log and found again by a rule.
//!
//! A step is known by the text of its first and of its last statement and by how many statements of the same text were executed
//! before: other traffic in between does not shift it. Knows no meaning of any statement.
//!
//! Invariant: [`Step::rule`] set before a request meets the same round trip that the log of an undisturbed request showed.

use std::collections::HashMap;
use std::fmt;

use crate::pg_proxy::{self, Flight, PgProxy, SqlMatch, Statement};
use crate::proxy::{Action, Rule};

/// Longest part of a statement in a message, in characters.
const SHOWN: usize = 100;

/// On which side of the server's work the disturbance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// The server never gets it.
    Before,
    /// The server has done it, and nobody was told.
    After,
}

impl Point {
    pub(super) const BOTH: [Point; 2] = [Point::Before, Point::After];
}

impl fmt::Display for Point {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Point::Before => "before",
            Point::After => "after",
        })
    }
}

/// The `nth` execution of a text since the request was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    sql: String,
    nth: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Counts the request's steps, from 1 on.
    pub(super) number: usize,
    first: Mark,
    last: Mark,
    statements: Vec<String>,
}

impl Step {
    /// Sets the rule that meets this step.
    pub(super) fn rule(&self, proxy: &PgProxy, point: Point, cut: bool) -> Rule {
        let (mark, action) = match (point, cut) {
            (Point::Before, true) => (&self.first, Action::CutBefore),
            (Point::Before, false) => (&self.first, Action::HoldBefore),
            (Point::After, true) => (&self.last, Action::DropReplyAndCut),
            (Point::After, false) => (&self.last, Action::HoldReply),
        };
        let sql = mark.sql.clone();
        let is_it =
            move |statement: &Statement| statement.step == pg_proxy::Step::Execute && statement.sql == sql;
        proxy.once(SqlMatch::new(self.to_string(), is_it).nth(mark.nth), action)
    }

    fn is_like(&self, other: &Step) -> bool {
        self.first == other.first && self.last == other.last
    }
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "step {} [", self.number)?;
        for (index, statement) in self.statements.iter().enumerate() {
            // Comments and line breaks are for those who read the statement where it stands.
            let lines = statement.lines().filter(|line| !line.trim_start().starts_with("--"));
            let words = lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
            let shown: String = words.chars().take(SHOWN).collect();
            let dots = if shown.len() < words.len() { " …" } else { "" };
            write!(out, "{}{shown}{dots}", if index > 0 { " ; " } else { "" })?;
        }
        out.write_str("]")
    }
}

/// The steps among these flights.
pub(super) fn steps(flights: &[Flight], is_step: fn(&Flight) -> bool) -> Vec<Step> {
    let mut executed: HashMap<&str, u64> = HashMap::new();
    let mut steps = Vec::new();
    for flight in flights {
        let marks: Vec<Mark> = flight
            .statements
            .iter()
            .map(|sql| {
                let nth = executed.entry(sql).or_default();
                *nth += 1;
                Mark { sql: sql.clone(), nth: *nth }
            })
            .collect();
        if let (Some(first), Some(last), true) = (marks.first(), marks.last(), is_step(flight)) {
            let (first, last) = (first.clone(), last.clone());
            steps.push(Step { number: steps.len() + 1, first, last, statements: flight.statements.clone() });
        }
    }
    steps
}

/// The steps that both runs made: what came in between by chance is none.
pub(super) fn common(one: &[Step], other: Vec<Step>) -> Vec<Step> {
    other.into_iter().filter(|step| one.iter().any(|known| known.is_like(step))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(statements: &[&str]) -> Flight {
        Flight { statements: statements.iter().map(|&sql| sql.to_owned()).collect(), ..Flight::default() }
    }

    #[test]
    fn a_step_is_known_by_text_and_occurrence() {
        let is_step = |flight: &Flight| flight.statements != ["look"];
        let flights =
            [flight(&["BEGIN", "read"]), flight(&["look"]), flight(&[]), flight(&["BEGIN", "COMMIT"])];
        let steps = steps(&flights, is_step);
        let marks: Vec<_> =
            steps.iter().map(|step| (step.number, step.first.nth, step.last.sql.as_str())).collect();
        assert_eq!(marks, [(1, 1, "read"), (2, 2, "COMMIT")]);
    }

    #[test]
    fn what_only_one_run_did_is_no_step() {
        let run =
            |texts: &[&str]| steps(&texts.iter().map(|text| flight(&[*text])).collect::<Vec<_>>(), |_| true);
        let both = common(&run(&["a", "noise", "b"]), run(&["a", "a", "b"]));
        assert_eq!(both.iter().map(|step| step.first.sql.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_message_shows_statements_without_comments() {
        let shown = steps(&[flight(&["-- why\nSELECT\n 1", "COMMIT"])], |_| true)[0].to_string();
        assert_eq!(shown, "step 1 [SELECT 1 ; COMMIT]");
    }
}
