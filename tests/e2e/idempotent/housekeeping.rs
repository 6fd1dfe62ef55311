//! Which round trips are the service's own affair, and not a request's: what its loops and heartbeats do.
//!
//! Knows pieces of their SQL. Invariant: what stands here is never on a request's way, or a step would go undisturbed.

use testkit::Flight;

/// By whom, and what only they say.
const LOOPS: [(&str, &str); 16] = [
    ("a new connection, and the look for a failover", "SELECT (SELECT oid FROM pg_database"),
    ("a new connection", "set_config('synchronous_commit'"),
    ("known API keys", "FROM api_keys"),
    ("completer", "enable_seqscan"),
    ("completer", "COMMIT /* completer */"),
    ("completer", "RETURNING record.account_id, record.key, request_path"),
    ("heartbeat", "UPDATE idempotency_records AS record SET lease_expires_at ="),
    ("reaper", "enable_sort"),
    ("reaper", "reaper_state"),
    ("reaper", "WITH forgotten AS"),
    ("reaper", "COMMIT /* reaper */"),
    ("relay", "UPDATE event_subscribers"),
    ("relay", "DELETE FROM event_deliveries"),
    ("relay", "FROM event_deliveries"),
    ("relay", "DELETE FROM events"),
    ("gateway's events", "DELETE FROM gateway_events"),
];
/// The reaper's lock flies alone, a request's never does.
const LOCK: &str = "SELECT pg_try_advisory_xact_lock($1)";

pub fn is_step(flight: &Flight) -> bool {
    // The loops sign their COMMIT with a comment, a request does not.
    if flight.statements.iter().any(|sql| sql == "COMMIT") {
        return true;
    }
    let is_loop = |sql: &String| LOOPS.iter().any(|(_, part)| sql.contains(part));
    let is_lock_alone = flight.statements.len() == 1 && flight.statements[0].ends_with(LOCK);
    !is_lock_alone && !flight.statements.iter().any(is_loop)
}
