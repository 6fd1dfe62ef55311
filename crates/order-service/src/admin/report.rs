//! What was checked and what came of it, for people and for machines.
//!
//! Knows nothing of what is checked. Invariant: what failed ends the command with an error, and what was not checked is not said to hold.

use std::fmt;

use anyhow::bail;
use serde_json::json;

/// Most examples of one fault that are printed.
pub(super) const EXAMPLES_MAX: usize = 5;

/// What came of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ok,
    Failed,
    /// It could not be made, and nothing follows from that.
    Skipped,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// One line.
#[derive(Debug)]
pub(super) struct Check {
    name: &'static str,
    state: State,
    detail: String,
}

impl Check {
    pub(super) fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, state: State::Ok, detail: detail.into() }
    }

    pub(super) fn failed(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, state: State::Failed, detail: detail.into() }
    }

    pub(super) fn skipped(name: &'static str, why: impl Into<String>) -> Self {
        Self { name, state: State::Skipped, detail: why.into() }
    }

    /// Ok if it holds; the same words say what is and what is not.
    pub(super) fn that(name: &'static str, holds: bool, detail: impl Into<String>) -> Self {
        Self { name, state: if holds { State::Ok } else { State::Failed }, detail: detail.into() }
    }

    /// Ok without examples of the contrary, of which there may be more than are given.
    pub(super) fn without(name: &'static str, promise: &str, examples: &[String]) -> Self {
        if examples.is_empty() {
            return Self::ok(name, promise);
        }
        let shown = examples.iter().take(EXAMPLES_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if examples.len() > EXAMPLES_MAX { ", and more" } else { "" };
        Self::failed(name, format!("not so: {promise}; see {shown}{more}"))
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line a check, whatever a server has said.
        let detail = self.detail.replace(['\n', '\r'], " ");
        write!(f, "{:<8}{:<28}{detail}", self.state.word(), self.name)
    }
}

/// Prints them, as lines or as one JSON object.
///
/// # Errors
/// When one has failed: how many.
pub(super) fn print(checks: &[Check], as_json: bool) -> anyhow::Result<()> {
    let count = |state| checks.iter().filter(|check| check.state == state).count();
    let (failed, skipped) = (count(State::Failed), count(State::Skipped));
    if as_json {
        let list: Vec<_> = checks
            .iter()
            .map(|check| json!({ "name": check.name, "state": check.state.word(), "detail": check.detail }))
            .collect();
        println!("{:#}", json!({ "ok": failed == 0, "failed": failed, "skipped": skipped, "checks": list }));
    } else {
        checks.iter().for_each(|check| println!("{check}"));
    }
    if failed > 0 {
        bail!("{failed} of {} checks failed", checks.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_skipped_fails_nothing_and_what_failed_does() {
        let mut checks = vec![Check::ok("a", "fine"), Check::skipped("b", "nobody\nthere")];
        assert!(print(&checks, false).is_ok() && print(&checks, true).is_ok());
        assert_eq!(checks[1].to_string(), format!("skipped {:<28}nobody there", "b"));
        let six: Vec<String> = (0..6).map(|n| n.to_string()).collect();
        checks.push(Check::without("c", "all is well", &six));
        assert!(checks[2].to_string().ends_with("not so: all is well; see 0, 1, 2, 3, 4, and more"));
        assert_eq!(print(&checks, true).unwrap_err().to_string(), "1 of 3 checks failed");
    }
}
