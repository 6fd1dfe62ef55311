//! How to misbehave: faults that a test asks for at `/sandbox/faults`, or a payment source for itself (`tok_…`).
//!
//! | name | what the caller sees |
//! | --- | --- |
//! | `slow`, `slow_2000` | the work takes so many ms (1 000), the key is in use meanwhile, and it is done even if the caller has left |
//! | `cut_before_charge`, `cut_after_charge` | the connection ends without an answer |
//! | `hang`, `hang_after_charge` | no answer; before the charge, the key is in use until the caller leaves |
//! | `429`, `in_use`, `500_before_charge`, `500_after_charge` (502, 503, 504) | that status; 429 and `in_use` (409) without a charge |
//!
//! A source's fault strikes the first time that its idempotency key is seen (`slow` and `hang` each time that it is not
//! answered yet). Invariant: an answer that is given replaces nothing: what was charged stays charged.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What `slow` without a number means.
const SLOW: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Slow(Duration),
    Cut(When),
    Hang(When),
    Status(u16, When),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Before,
    After,
}

impl Fault {
    /// Reads a name; `_charge`, `_refund` and `_once` are for the reader.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let name = ["_once", "_charge", "_refund"]
            .iter()
            .fold(name, |name, end| name.strip_suffix(end).unwrap_or(name));
        let (what, when) = match (name.strip_suffix("_before"), name.strip_suffix("_after")) {
            (Some(what), _) => (what, When::Before),
            (_, Some(what)) => (what, When::After),
            (None, None) => (name, When::Before),
        };
        Some(match what {
            "cut" => Self::Cut(when),
            "hang" => Self::Hang(when),
            "in_use" => Self::Status(409, When::Before),
            "429" => Self::Status(429, When::Before),
            "500" | "502" | "503" | "504" => Self::Status(what.parse().ok()?, when),
            "slow" => Self::Slow(SLOW),
            _ => Self::Slow(Duration::from_millis(what.strip_prefix("slow_")?.parse().ok()?)),
        })
    }

    pub(crate) fn when(self) -> When {
        match self {
            Self::Slow(_) => When::Before,
            Self::Cut(when) | Self::Hang(when) | Self::Status(_, when) => when,
        }
    }

    /// How much longer the work takes.
    pub(crate) fn delay(self) -> Option<Duration> {
        match self {
            Self::Slow(delay) => Some(delay),
            Self::Cut(_) | Self::Hang(_) | Self::Status(..) => None,
        }
    }

    /// Whether a source's fault strikes whenever its request is carried out.
    fn lasts(self) -> bool {
        matches!(self, Self::Slow(_) | Self::Hang(_))
    }
}

/// The fault that a payment source asks for.
pub(crate) fn of_source(source: &str) -> Option<Fault> {
    source.strip_prefix("tok_").and_then(Fault::parse)
}

/// What faults can strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    PaymentIntents,
    Refunds,
    /// Every GET of the API.
    Reads,
}

/// A fault that a test asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ordered {
    on: Target,
    then: String,
}

/// Body of `POST /sandbox/faults`: `next` strike once, in order; `always` until they are deleted.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Plan {
    next: VecDeque<Ordered>,
    always: Vec<Ordered>,
}

#[derive(Default)]
pub(crate) struct Faults {
    plan: Mutex<Plan>,
    /// Keys whose source has had its fault.
    struck: Mutex<HashSet<String>>,
}

impl Faults {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to the plan; the error is the name that is not known.
    pub(crate) fn add(&self, more: Plan) -> Result<Plan, String> {
        if let Some(bad) =
            more.next.iter().chain(&more.always).find(|ordered| Fault::parse(&ordered.then).is_none())
        {
            return Err(bad.then.clone());
        }
        let mut plan = self.plan();
        plan.next.extend(more.next);
        plan.always.extend(more.always);
        Ok(plan.clone())
    }

    pub(crate) fn shown(&self) -> Plan {
        self.plan().clone()
    }

    pub(crate) fn clear(&self) {
        *self.plan() = Plan::default();
    }

    /// The planned fault for an arrival.
    pub(crate) fn strike(&self, target: Target) -> Option<Fault> {
        let mut plan = self.plan();
        let next = plan.next.iter().position(|ordered| ordered.on == target);
        let ordered = match next {
            Some(place) => plan.next.remove(place),
            None => plan.always.iter().find(|ordered| ordered.on == target).cloned(),
        };
        ordered.and_then(|ordered| Fault::parse(&ordered.then))
    }

    /// The fault of a source, the first time that it comes with this key.
    pub(crate) fn of_source(&self, source: Option<&str>, key: Option<&str>) -> Option<Fault> {
        let fault = source.and_then(of_source)?;
        let first = key.is_none_or(|key| {
            self.struck.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned())
        });
        (first || fault.lasts()).then_some(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        for (name, fault) in [
            ("slow_2000", Fault::Slow(Duration::from_secs(2))),
            ("500_after_charge", Fault::Status(500, When::After)),
            ("cut_after_refund", Fault::Cut(When::After)),
            ("cut_before_charge", Fault::Cut(When::Before)),
            ("429_once", Fault::Status(429, When::Before)),
            ("in_use", Fault::Status(409, When::Before)),
            ("hang", Fault::Hang(When::Before)),
        ] {
            assert_eq!(Fault::parse(name), Some(fault), "{name}");
        }
        for unknown in ["", "visa", "slow_", "404", "slow_x", "cut_sometimes"] {
            assert_eq!(Fault::parse(unknown), None, "{unknown}");
        }
    }
}
