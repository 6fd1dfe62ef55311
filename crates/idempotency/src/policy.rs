//! The limits of the protocol, each with its unit, and the check that they do not contradict each other.
//!
//! Knows how durations and sizes are written; reads no environment. Invariant: a [`Policy`] that passed
//! [`Policy::check`] has no zero, and lease ≤ result retention ≤ key retention.

use std::time::Duration;

use crate::prefer::Preferences;

/// What bounds one process's use of the protocol. [`Policy::default`] has the documented defaults.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// How long Redis holds a place without a heartbeat.
    pub lease: Duration,
    /// The longest that a command may execute, re-runs included.
    pub execute_max: Duration,
    /// How long the stored response is replayed.
    pub result_retention: Duration,
    /// How long a used key stays refused after its response is gone.
    pub key_retention: Duration,
    /// Largest reply body that is kept in Redis, in bytes; a larger one stays in PostgreSQL only.
    pub cache_body_max: usize,
    /// Largest request body, in bytes.
    pub body_max: usize,
    /// Largest stored reply body, in bytes; of a larger one only the outcome is stored.
    pub stored_body_max: usize,
    /// What a duplicate of a running request gets when the request says nothing.
    pub on_duplicate: OnDuplicate,
    /// The longest that a duplicate may wait.
    pub wait_max: Duration,
    /// Most waiters of a process.
    pub waiters_max: usize,
    /// How long a caller waits for a workflow before it is told 202.
    pub inline_max: Duration,
    /// How long after its last progress a workflow that nobody could finish is given up.
    pub stuck_after: Duration,
}

/// What a duplicate of a running request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDuplicate {
    /// 409 at once.
    Reject,
    /// The first one's answer, if it comes within [`Policy::wait_max`].
    Wait,
}

/// Shortest lease: below it, heartbeats would miss their beat on a busy machine.
pub const LEASE_MIN: Duration = Duration::from_secs(1);

impl Default for Policy {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            execute_max: Duration::from_secs(30),
            result_retention: Duration::from_secs(24 * 3600),
            key_retention: Duration::from_secs(30 * 24 * 3600),
            cache_body_max: 16 * 1024,
            body_max: 1024 * 1024,
            stored_body_max: 1024 * 1024,
            on_duplicate: OnDuplicate::Reject,
            wait_max: Duration::from_secs(10),
            waiters_max: 1000,
            inline_max: Duration::from_secs(30),
            stuck_after: Duration::from_secs(15 * 60),
        }
    }
}

impl Policy {
    /// How long a duplicate waits: what the caller prefers, within the limit, else what the policy says.
    pub fn patience(&self, preferences: &Preferences) -> Duration {
        match (preferences.wait, self.on_duplicate) {
            (Some(wait), _) => wait.min(self.wait_max),
            (None, OnDuplicate::Reject) => Duration::ZERO,
            (None, OnDuplicate::Wait) => self.wait_max,
        }
    }

    /// Every contradiction, one line each, named as in the environment.
    pub fn check(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut require = |holds: bool, fault: &str| {
            if !holds {
                faults.push(fault.to_owned());
            }
        };
        require(self.lease >= LEASE_MIN, "IDEMPOTENCY_LEASE must be at least 1s");
        require(!self.execute_max.is_zero(), "IDEMPOTENCY_EXECUTE_MAX must be above zero");
        require(!self.result_retention.is_zero(), "IDEMPOTENCY_RESULT_RETENTION must be above zero");
        require(!self.key_retention.is_zero(), "IDEMPOTENCY_KEY_RETENTION must be above zero");
        require(self.body_max > 0, "BODY_MAX must be above zero");
        require(self.stored_body_max > 0, "STORED_BODY_MAX must be above zero");
        require(!self.wait_max.is_zero(), "IDEMPOTENCY_WAIT_MAX must be above zero");
        require(self.waiters_max > 0, "IDEMPOTENCY_WAITERS_MAX must be above zero");
        require(!self.inline_max.is_zero(), "IDEMPOTENCY_INLINE_MAX must be above zero");
        require(!self.stuck_after.is_zero(), "IDEMPOTENCY_STUCK_AFTER must be above zero");
        require(
            self.lease <= self.stuck_after,
            "IDEMPOTENCY_LEASE must not be above IDEMPOTENCY_STUCK_AFTER",
        );
        require(
            self.lease <= self.execute_max.saturating_mul(10),
            "IDEMPOTENCY_LEASE must not be above 10 × IDEMPOTENCY_EXECUTE_MAX",
        );
        require(
            self.lease <= self.result_retention,
            "IDEMPOTENCY_LEASE must not be above IDEMPOTENCY_RESULT_RETENTION",
        );
        require(
            self.result_retention <= self.key_retention,
            "IDEMPOTENCY_RESULT_RETENTION must not be above IDEMPOTENCY_KEY_RETENTION",
        );
        faults
    }
}

/// Reads `250ms`, `10s`, `15m`, `24h`, `30d`.
///
/// # Errors
/// A line for the operator: what was read, and what would be right.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("{text:?} is not a duration; write a number with ms, s, m, h or d, like 250ms or 10s");
    let (number, unit) = split_unit(text).ok_or_else(wrong)?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    // A century: far enough for any retention, and safe in the database's arithmetic.
    let total = number
        .checked_mul(milliseconds)
        .filter(|total| *total <= 100 * 366 * 86_400_000)
        .ok_or_else(wrong)?;
    Ok(Duration::from_millis(total))
}

/// Reads `16KiB`, `1MiB`.
///
/// # Errors
/// A line for the operator: what was read, and what would be right.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let wrong = || format!("{text:?} is not a size; write a number with KiB or MiB, like 16KiB or 1MiB");
    let (number, unit) = split_unit(text).ok_or_else(wrong)?;
    let bytes = match unit {
        "KiB" => 1024,
        "MiB" => 1024 * 1024,
        _ => return Err(wrong()),
    };
    number.checked_mul(bytes).and_then(|total| usize::try_from(total).ok()).ok_or_else(wrong)
}

fn split_unit(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    Some((text[..digits].parse().ok()?, &text[digits..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(parse_size("16KiB"), Ok(16_384));
        for bad in ["", "10", "-1s", "1.5s", "s", "10 s", "10S", "99999999999999999999s", "999999d"] {
            assert!(parse_duration(bad).is_err(), "{bad:?} was accepted");
        }
        for bad in ["", "10", "1KB", "-1KiB", "99999999999999999999MiB"] {
            assert!(parse_size(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn contradictions_are_named() {
        assert_eq!(Policy::default().check(), Vec::<String>::new());
        let zero = Duration::ZERO;
        assert_eq!(Policy { lease: zero, ..Policy::default() }.check().len(), 1);
        assert!(!Policy { execute_max: zero, ..Policy::default() }.check().is_empty());
        let short = Duration::from_secs(5);
        let faults = Policy { result_retention: short, ..Policy::default() }.check();
        assert_eq!(faults, ["IDEMPOTENCY_LEASE must not be above IDEMPOTENCY_RESULT_RETENTION"]);
        assert!(!Policy { key_retention: Duration::from_secs(60), ..Policy::default() }.check().is_empty());
    }
}
