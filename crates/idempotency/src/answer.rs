//! What an attempt is told. Pure; `http` turns it into a response. Invariant: a success is only ever a committed reply.

use uuid::Uuid;

use crate::reply::Finished;

/// Which store a replay came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Redis.
    Hit,
    /// PostgreSQL.
    Miss,
    /// The first one's own process, which had a waiter.
    Memory,
}

impl Tier {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Hit => "redis",
            Self::Miss => "postgres",
            Self::Memory => "memory",
        }
    }
}

/// The outcome of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// This attempt did the work (or stored the refusal).
    First {
        /// What was committed; with its body, also if that is not kept.
        finished: Finished,
    },
    /// The first one's answer, again.
    Replay {
        /// What was committed then.
        finished: Finished,
        /// Who remembered.
        tier: Tier,
    },
    /// The first one is still running.
    InProgress,
    /// It runs in the background, as this operation.
    Accepted {
        /// Its id.
        operation: Uuid,
    },
    /// Nobody knows what became of a foreign call of this operation.
    OutcomeUnknown {
        /// Its id.
        operation: Uuid,
    },
    /// The code of this build does not fit what an earlier one has journaled.
    Diverged,
    /// Another operation of this caller is running.
    CallerBusy,
    /// The key belongs to another request.
    Reused,
    /// Done before, and the answer is not kept.
    AlreadyCompleted {
        /// Where the result is.
        location: Option<String>,
    },
    /// Not now; why, for the caller.
    Unavailable(&'static str),
    /// The command failed; nothing is stored.
    Internal,
    /// A workflow's step failed; what was done before it is kept.
    Interrupted,
    /// There is no room for another waiter.
    Overloaded,
}

impl Answer {
    /// A word for metrics.
    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            Self::First { finished } if finished.reply.status >= 400 => "rejected",
            Self::First { .. } => "executed",
            Self::Replay { .. } => "replayed",
            Self::InProgress => "in_progress",
            Self::Accepted { .. } => "accepted",
            Self::OutcomeUnknown { .. } => "outcome_unknown",
            Self::Diverged => "diverged",
            Self::CallerBusy => "caller_busy",
            Self::Reused => "key_reused",
            Self::AlreadyCompleted { .. } => "already_completed",
            Self::Unavailable(_) => "unavailable",
            Self::Internal | Self::Interrupted => "failed",
            Self::Overloaded => "overloaded",
        }
    }

    /// Whether nothing is decided under the key: a retry may run.
    pub(crate) fn is_failure(&self) -> bool {
        matches!(
            self,
            Self::Unavailable(_) | Self::Internal | Self::Interrupted | Self::Diverged | Self::Overloaded
        )
    }

    /// The same answer for somebody who waited for it.
    pub(crate) fn shared(&self) -> Self {
        match self {
            Self::First { finished } if !finished.kept => {
                Self::AlreadyCompleted { location: finished.location() }
            }
            Self::First { finished } | Self::Replay { finished, .. } => {
                Self::Replay { finished: finished.clone(), tier: Tier::Memory }
            }
            other => other.clone(),
        }
    }
}
