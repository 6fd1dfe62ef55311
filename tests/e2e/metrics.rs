//! What operators read: every name of the contract is there, moves with what it names, and carries neither key nor account.

use std::time::Duration;

use testkit::until;

use crate::harness::{App, World};

const BOUND: Duration = Duration::from_secs(20);

/// The value behind a name with its labels; nothing if it is not told.
fn value(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_phase_is_timed_and_every_pool_is_counted() {
    let app = App::builder(World::Up).env("DATABASE_POOL", "9").start().await;
    assert_eq!(app.order("a-key-of-mine", 1).await.status, 201);
    assert_eq!(app.order("a-key-of-mine", 1).await.header("x-cache-lookup"), Some("HIT"));
    let text = app.get_admin("/metrics").await.text();
    for (phase, times) in
        [("acquire", 2.0), ("enter", 1.0), ("execute", 1.0), ("complete", 1.0), ("settle", 1.0)]
    {
        let name = format!("idempotency_duration_seconds_count{{phase=\"{phase}\"}}");
        assert_eq!(value(&text, &name), Some(times), "{name} in {text}");
        let slowest = format!("idempotency_duration_seconds_bucket{{phase=\"{phase}\",le=\"30\"}}");
        assert_eq!(value(&text, &slowest), Some(times), "{slowest}");
    }
    assert_eq!(value(&text, "database_pool_connections_max"), Some(9.0));
    let open = ["busy", "idle"].map(|state| format!("database_pool_connections{{state=\"{state}\"}}"));
    let open: f64 = open.iter().map(|name| value(&text, name).expect("told")).sum();
    assert!((1.0..=9.0).contains(&open), "{open} connections");
    // Housekeeping may just wait for its turn.
    assert!(value(&text, "database_pool_waiting").is_some(), "{text}");
    assert!(!text.contains("a-key-of-mine") && !text.contains("demo"), "{text}");
}

/// A Redis that throws keys away is seen, and a connection that is held is busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn evicted_keys_and_held_connections_are_told() {
    let app = App::builder(World::Up).env("DATABASE_LOCK_TIMEOUT", "20s").start().await;
    let evicted = async || value(&app.get_admin("/metrics").await.text(), "redis_evicted_keys");
    // A slow Redis is not waited for: then it is told the next time.
    until("that nothing is evicted is told", BOUND, || async { evicted().await == Some(0.0) }).await;
    let frozen = app.freeze().await;
    let held = app.order_in_background("K", 1);
    app.waiting_for_lock(1).await;
    let busy = |text: &str| value(text, "database_pool_connections{state=\"busy\"}").unwrap_or(0.0);
    assert!(busy(&app.get_admin("/metrics").await.text()) >= 1.0);
    frozen.thaw().await;
    assert_eq!(held.await.expect("an answer").status, 201);

    let _: () = app.redis(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    let _: () = app.redis(&["CONFIG", "SET", "maxmemory", "1"]).await;
    until("evicted keys are told", BOUND, || async { evicted().await.is_some_and(|count| count >= 1.0) })
        .await;
}
