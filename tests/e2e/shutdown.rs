//! What a supervisor sees: health while the stores come and go, and an orderly end.
//!
//! Invariant: /livez speaks of the process only, /readyz of what it can do, and no end of a process loses or doubles work.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use testkit::{Connection, Request, Signal, until};

use crate::harness::database::Effects;
use crate::harness::{App, World, in_every_world, order, redis_command};

const BOUND: Duration = Duration::from_secs(20);

in_every_world!(
    work_under_way_is_finished_and_new_work_is_refused,
    |builder| builder.env("DATABASE_LOCK_TIMEOUT", "10s"),
    |app| async move {
        let mut app = app;
        let mut idle = Connection::open(app.replica().api).await.expect("a connection");
        let listing = Request::get("/v1/orders").header("Authorization", format!("Bearer {}", app.api_key));
        assert_eq!(idle.exchange(&listing).await.expect("an answer").status, 200);

        let frozen = app.freeze().await;
        let first = app.order_in_background("K", 2);
        app.waiting_for_lock(1).await;
        stop(&app).await;
        let refused = idle.exchange(&app.request("/v1/orders", "K2", &order(1))).await.expect("an answer");
        assert_eq!((refused.status, refused.header("connection")), (503, Some("close")));
        assert_eq!(refused.json()["code"], "temporarily-unavailable");
        idle.closed().await.expect("a connection that is closed as announced");
        let duplicate = app.request("/v1/orders", "K", &order(2));
        let duplicate = testkit::send(app.replica().api, &duplicate).await.expect("an answer");
        assert_eq!(duplicate.status, 503, "a replica that is stopping takes no work at all");
        assert_eq!(health(app.replica().admin).await, (503, "stopping".to_owned()));

        frozen.thaw().await;
        let first = first.await.expect("the first answer");
        assert_eq!(first.status, 201, "{}", first.text());
        app.heal();
        assert!(app.replica_mut().process.wait_exit(BOUND).await.success());
        assert_eq!((app.effects("K").await, app.effects("K2").await), (Effects::ONCE, Effects::NONE));

        app.restart().await;
        let again = app.order("K", 2).await;
        assert_eq!((again.status, &again.body), (201, &first.body));
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(app.settle("K2", 1).await.header("idempotent-replayed"), None);
    }
);

in_every_world!(
    work_whose_client_has_left_is_waited_for,
    |builder| builder.env("DATABASE_LOCK_TIMEOUT", "10s"),
    |app| async move {
        let mut app = app;
        let frozen = app.freeze().await;
        let client = app.begin_order("K", 2).await;
        app.waiting_for_lock(1).await;
        client.reset();
        stop(&app).await;
        frozen.thaw().await;
        assert!(app.replica_mut().process.wait_exit(BOUND).await.success());
        app.heal();
        assert_eq!(app.effects("K").await, Effects::ONCE, "once begun, it is finished");
        app.restart().await;
        assert_eq!(app.order("K", 2).await.header("idempotent-replayed"), Some("true"));
        assert_eq!(app.effects("K").await, Effects::ONCE);
    }
);

in_every_world!(
    work_that_outlives_the_grace_time_is_undone,
    |builder| builder
        .env("DATABASE_LOCK_TIMEOUT", "30s")
        .env("SHUTDOWN_GRACE", "1s")
        .env("IDEMPOTENCY_LEASE", "2s"),
    |app| async move {
        let mut app = app;
        let frozen = app.freeze().await;
        let _client = app.begin_order("K", 2).await;
        app.waiting_for_lock(1).await;
        let begun = Instant::now();
        stop(&app).await;
        assert!(app.replica_mut().process.wait_exit(BOUND).await.success());
        let took = begun.elapsed();
        assert!((1..5).contains(&took.as_secs()), "the grace time and a moment to close, not {took:?}");
        frozen.thaw().await;
        app.heal();
        app.after().check().await;
        assert_eq!(app.effects("K").await, Effects::NONE);
        app.restart().await;
        assert_eq!(app.settle("K", 2).await.header("idempotent-replayed"), None);
        assert_eq!(app.effects("K").await, Effects::ONCE);
    }
);

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_second_signal_ends_it_at_once() {
    let mut app = App::builder(World::Up).env("DATABASE_LOCK_TIMEOUT", "30s").start().await;
    let frozen = app.freeze().await;
    let _client = app.begin_order("K", 2).await;
    app.waiting_for_lock(1).await;
    stop(&app).await;
    let begun = Instant::now();
    app.replica().process.signal(Signal::Term).await.expect("SIGTERM");
    app.replica_mut().process.wait_exit(BOUND).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "of a grace time of 30 s: {:?}", begun.elapsed());
    frozen.thaw().await;
    app.after().check().await;
    assert_eq!(app.effects("K").await, Effects::NONE);
}

/// SIGTERM, until the process says that it is stopping.
async fn stop(app: &App) {
    app.replica().process.signal(Signal::Term).await.expect("SIGTERM");
    app.replica().process.line_containing("stopping").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn health_follows_the_stores_without_a_restart() {
    let mut app = App::builder(World::Up).own_postgres().start().await;
    let admin = app.replica().admin;
    becomes(admin, 200, "ready").await;

    let redis = app.redis_address;
    let _: () = app.redis(&["REPLICAOF", "127.0.0.1", "1"]).await;
    becomes(admin, 200, "redis").await;
    let _: () = app.redis(&["REPLICAOF", "NO", "ONE"]).await;
    becomes(admin, 200, "ready").await;
    tokio::task::block_in_place(|| app.redis.as_mut().expect("Redis").stop().expect("stopped"));
    becomes(admin, 200, "redis").await;

    // Both at once: PostgreSQL decides.
    let read_only = "ALTER SYSTEM SET default_transaction_read_only = on";
    app.db.batch_execute(read_only).await.expect("read-only");
    app.db.batch_execute("SELECT pg_reload_conf()").await.expect("read-only");
    becomes(admin, 503, "database is read-only").await;
    app.db.batch_execute("SET default_transaction_read_only = off").await.expect("writable");
    app.db.batch_execute("ALTER SYSTEM RESET default_transaction_read_only").await.expect("writable");
    app.db.batch_execute("SELECT pg_reload_conf()").await.expect("writable");
    becomes(admin, 200, "redis").await;
    tokio::task::block_in_place(|| app.redis.as_mut().expect("Redis").restart().expect("started"));
    becomes(admin, 200, "ready").await;
    assert!(redis_command::<String>(redis, &["PING"]).await.is_ok());

    let postgres = app.postgres.as_mut().expect("its own PostgreSQL");
    postgres.pause();
    becomes(admin, 503, "database does not answer").await;
    postgres.resume();
    becomes(admin, 200, "ready").await;
    tokio::task::block_in_place(|| postgres.stop().expect("stopped"));
    becomes(admin, 503, "database is away").await;
    tokio::task::block_in_place(|| postgres.restart().expect("started"));
    becomes(admin, 200, "ready").await;
    assert_eq!(app.order("K", 1).await.status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn it_starts_before_postgresql_and_serves_once_that_is_there() {
    let app = App::builder(World::Up).pg_proxy().start().await;
    let postgres = app.pg_proxy.as_ref().expect("a proxy");
    postgres.down().await;
    let replica = app.new_replica().await;
    becomes(replica.admin, 503, "database is away").await;
    let request = app.request("/v1/orders", "K", &order(1));
    let refused = testkit::send(replica.api, &request).await.expect("an answer");
    assert_eq!(refused.status, 503, "{}", refused.text());
    postgres.up().await;
    becomes(replica.admin, 200, "ready").await;
    assert_eq!(testkit::send(replica.api, &request).await.expect("an answer").status, 201);
    assert_eq!(app.effects("K").await, Effects::ONCE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn metrics_are_for_the_operator_and_name_nobody() {
    let app = App::builder(World::Up).env("ADMIN_TOKEN", "sesame").start().await;
    app.db
        .batch_execute("UPDATE accounts SET name = 'shy-account' WHERE name = 'demo'")
        .await
        .expect("renamed");
    for _ in 0..2 {
        assert_eq!(app.order("shy-key", 1).await.status, 201);
    }
    let scrape =
        async |request: Request| testkit::send(app.replica().admin, &request).await.expect("an answer");
    let plain = || Request::get("/metrics");
    for request in
        [plain(), plain().header("Authorization", "Bearer wrong"), plain().header("Authorization", "sesame")]
    {
        let refused = scrape(request).await;
        assert_eq!(refused.status, 401);
        assert!(!refused.text().contains("idempotency_"), "{}", refused.text());
    }
    becomes(app.replica().admin, 200, "ready").await;
    let scraped = scrape(plain().header("Authorization", "Bearer sesame")).await;
    let text = scraped.text();
    assert_eq!(scraped.status, 200);
    assert!(text.contains("idempotency_requests_total{"), "{text}");
    let key_id = app.api_key.split('_').nth(1).expect("osk_…");
    for name in ["shy-key", "shy-account", key_id] {
        assert!(!text.contains(name), "{name} is in the metrics");
    }
}

/// Waits until /readyz says so (its reason, or its status where there is none). Every probe on the way must be answered
/// in bounded time, and every /livez with 200.
async fn becomes(admin: SocketAddr, status: u16, word: &str) {
    let what = format!("/readyz says {status} {word}");
    until(&what, BOUND, || async {
        let livez = Request::get("/livez").bound(Duration::from_secs(1));
        assert_eq!(testkit::send(admin, &livez).await.expect("/livez in 1 s").status, 200);
        health(admin).await == (status, word.to_owned())
    })
    .await;
}

async fn health(admin: SocketAddr) -> (u16, String) {
    let readyz = Request::get("/readyz").bound(Duration::from_secs(4));
    let answer = testkit::send(admin, &readyz).await.expect("/readyz in 4 s");
    let said = answer.json();
    let word = said.get("reason").unwrap_or(&said["status"]).as_str().expect("a word").to_owned();
    (answer.status, word)
}
