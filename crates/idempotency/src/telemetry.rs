//! Every metric of the framework, in one place.
//!
//! Knows names and labels only. Invariant: no label carries a key, an account or anything else without a bound.

mod tally;

use std::time::Instant;

use metrics::{counter, gauge, histogram};

use crate::reaper::Counts;

/// Requests by command and outcome.
pub const REQUESTS: &str = "idempotency_requests_total";
/// Replays by the store that served them.
pub const REPLAYS: &str = "idempotency_replays_total";
/// How long each part of a request takes, in seconds: acquire, enter, execute, complete, settle.
pub const DURATION: &str = "idempotency_duration_seconds";
/// 1 while Redis counts as away.
pub const DEGRADED: &str = "idempotency_degraded";
/// Calls that Redis did not do, by class of error.
pub const GATE_FAULTS: &str = "idempotency_gate_faults_total";
/// Leases that were gone when their owner gave them back.
pub const LEASES_LOST: &str = "idempotency_leases_lost_total";
/// Requests that wait for a running first.
pub const WAITERS: &str = "idempotency_waiters";
/// What the reaper took away, by kind.
pub const REAPED: &str = "idempotency_reaped_total";
/// Workflows that the completer took up, by what came of it.
pub const COMPLETED: &str = "idempotency_completer_total";
/// Foreign calls whose outcome nobody knows, counted when that is found out.
pub const UNKNOWN: &str = "idempotency_unknown_outcomes_total";
/// Executors that found that another one had taken over.
pub const STALE: &str = "idempotency_stale_executors_total";
/// Tries of deliveries, by what came of them.
pub const DELIVERIES: &str = "outbox_deliveries_total";
/// Deliveries that wait.
pub const BACKLOG: &str = "outbox_backlog";
/// For how long the oldest of them has waited, in seconds.
pub const BACKLOG_AGE: &str = "outbox_age_seconds";
/// Deliveries that were given up.
pub const DEAD: &str = "outbox_dead";
/// Runs of a command beyond the first.
pub const RERUNS: &str = "idempotency_reruns_total";

/// Tells the metrics recorder what the threads of this process have counted and kept for themselves. Whoever hands out metrics
/// calls it first; until then the recorder knows less.
pub fn publish() {
    tally::publish();
}

/// A phase that began then has just ended.
pub(crate) fn took(phase: &'static str, began: Instant) {
    tally::note(phase, began.elapsed().as_secs_f64(), || histogram!(DURATION, "phase" => phase));
}

pub(crate) fn request(command: &'static str, outcome: &'static str) {
    tally::count((command, outcome), || counter!(REQUESTS, "route" => command, "outcome" => outcome));
}

pub(crate) fn replay(tier: &'static str) {
    tally::count((REPLAYS, tier), || counter!(REPLAYS, "tier" => tier));
}

pub(crate) fn degraded(away: bool) {
    gauge!(DEGRADED).set(if away { 1.0 } else { 0.0 });
}

pub(crate) fn gate_fault(class: &'static str) {
    counter!(GATE_FAULTS, "class" => class).increment(1);
}

pub(crate) fn lease_lost() {
    counter!(LEASES_LOST).increment(1);
}

pub(crate) fn waiters(count: usize) {
    gauge!(WAITERS).set(u32::try_from(count).unwrap_or(u32::MAX));
}

pub(crate) fn reaped(counts: Counts) {
    for (kind, count) in [("answers", counts.purged), ("keys", counts.forgotten)] {
        counter!(REAPED, "kind" => kind).increment(u64::try_from(count).unwrap_or(0));
    }
}

pub(crate) fn rerun() {
    counter!(RERUNS).increment(1);
}

pub(crate) fn completed(counts: crate::completer::Counts) {
    for (kind, count) in [
        ("finished", counts.finished),
        ("put_off", counts.put_off),
        ("unknown", counts.unknown),
        ("abandoned", counts.abandoned),
    ] {
        counter!(COMPLETED, "kind" => kind).increment(count);
    }
}

pub(crate) fn unknown_outcome(workflow: &'static str) {
    counter!(UNKNOWN, "route" => workflow).increment(1);
}

pub(crate) fn stale_executor() {
    counter!(STALE).increment(1);
}

pub(crate) fn delivery(outcome: &'static str) {
    counter!(DELIVERIES, "outcome" => outcome).increment(1);
}

pub(crate) fn backlog(waiting: i64, age_seconds: f64, dead: i64) {
    let bounded = |count: i64| u32::try_from(count).unwrap_or(u32::MAX);
    gauge!(BACKLOG).set(bounded(waiting));
    gauge!(BACKLOG_AGE).set(age_seconds);
    gauge!(DEAD).set(bounded(dead));
}
