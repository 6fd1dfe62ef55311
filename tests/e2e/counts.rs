//! What a request costs, counted on the wire: exact, where time is not.

use std::time::Duration;

use testkit::until;

use crate::harness::{App, World, order};

const BOUND: Duration = Duration::from_secs(20);

/// Calls of EVALSHA that Redis has executed.
pub async fn evalsha_calls(app: &App) -> u64 {
    let info: String = app.redis(&["INFO", "commandstats"]).await;
    let line = info.lines().find(|line| line.starts_with("cmdstat_evalsha:"));
    let calls = line.and_then(|line| line.split("calls=").nth(1)).and_then(|rest| rest.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

/// Every connection of the service opened, every statement of an order prepared, the API key known.
async fn warm(app: &App) {
    for worker in 0..8 {
        let answer = app.order(&format!("warm-{worker}"), 1).await;
        assert_eq!(answer.status, 201);
    }
}

/// What the service sent to PostgreSQL for requests: housekeeping and the test's own look-ups are not among it.
fn flights_of_requests(app: &App) -> Vec<Vec<String>> {
    let proxy = app.pg_proxy.as_ref().expect("a proxy");
    let statements = proxy.round_trips().into_iter().map(|flight| flight.statements);
    statements.filter(|flight| !flight.iter().all(|sql| is_housekeeping(sql))).collect()
}

fn is_housekeeping(sql: &str) -> bool {
    (sql.contains("pg_postmaster_start_time") && !sql.contains("idempotency_records"))
        || sql.contains("FROM api_keys WHERE id = ANY")
        || sql.contains("What the completer resumes")
        || (sql.contains("event_deliveries") && !sql.contains("INSERT INTO events"))
        || sql.contains("enable_seqscan = off")
        || sql.contains("/* completer */")
}

/// A new order: two calls to Redis; in PostgreSQL two round trips, since its read flies with the opening and its writes with the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_new_order_makes_two_script_calls_and_two_round_trips() {
    let app = App::builder(World::Up).pg_proxy().start().await;
    warm(&app).await;
    app.pg_proxy.as_ref().expect("a proxy").clear_log();
    let before = evalsha_calls(&app).await;

    assert_eq!(app.order("K", 2).await.status, 201);

    assert_eq!(evalsha_calls(&app).await - before, 2, "acquire and settle");
    let flights = flights_of_requests(&app);
    let statements: Vec<usize> = flights.iter().map(Vec::len).collect();
    assert_eq!(statements, [3, 4], "{flights:#?}");
    assert!(
        flights[0][0].starts_with("BEGIN") && flights[0][0].contains("; SELECT pg_try_advisory_xact_lock(")
    );
    assert!(flights[0][1].contains("FROM idempotency_records"));
    assert!(flights[0][2].contains("FROM products"), "the command's opening read flies along");
    for (statement, part) in
        flights[1].iter().zip(["INSERT INTO orders", "UPDATE products", "INSERT INTO events"])
    {
        assert!(statement.contains(part), "{part} in {statement}");
    }
    assert!(flights[1][2].contains("INSERT INTO idempotency_records"), "the record with its events");
    assert_eq!(flights[1][3], "COMMIT");
}

/// A replay: one call to Redis, nothing in PostgreSQL, authentication included.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_replay_makes_one_script_call_and_no_query() {
    let app = App::builder(World::Up).pg_proxy().start().await;
    warm(&app).await;
    assert_eq!(app.order("K", 2).await.status, 201);
    app.pg_proxy.as_ref().expect("a proxy").clear_log();
    let before = evalsha_calls(&app).await;

    for _ in 0..5 {
        assert_eq!(app.order("K", 2).await.header("x-cache-lookup"), Some("HIT"));
    }
    assert_eq!(app.order("K", 3).await.status, 422, "another payload is told so by Redis alone");

    assert_eq!(evalsha_calls(&app).await - before, 6);
    assert_eq!(flights_of_requests(&app), Vec::<Vec<String>>::new());
}

/// Forgotten by Redis: one look-up in PostgreSQL (and its rollback), and a refill, so that the next is a HIT.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_miss_is_one_look_up_and_one_refill() {
    let app = App::builder(World::Up).pg_proxy().start().await;
    warm(&app).await;
    assert_eq!(app.order("K", 2).await.status, 201);
    let _: () = app.redis(&["FLUSHALL"]).await;
    app.pg_proxy.as_ref().expect("a proxy").clear_log();
    let before = evalsha_calls(&app).await;

    assert_eq!(app.order("K", 2).await.header("x-cache-lookup"), Some("MISS"));
    assert_eq!(evalsha_calls(&app).await - before, 2, "acquire and refill");
    let statements: Vec<usize> = flights_of_requests(&app).iter().map(Vec::len).collect();
    assert_eq!(statements, [3, 1], "enter, ROLLBACK");
    assert_eq!(app.order("K", 2).await.header("x-cache-lookup"), Some("HIT"));
}

/// A duplicate of a running first, in the process that executes it, asks no store; in another one it asks Redis alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_duplicate_of_a_running_first_makes_no_query() {
    // So long that neither its heartbeat nor its age comes into the count.
    let builder = App::builder(World::Up).pg_proxy().env("IDEMPOTENCY_LEASE", "60s");
    let app = builder.env("DATABASE_LOCK_TIMEOUT", "10s").start().await;
    warm(&app).await;
    let other = app.new_replica().await;
    let to_other = |key: &str| {
        let request = app.request("/v1/orders", key, &order(2));
        async move { testkit::send(other.api, &request).await.expect("an answer").status }
    };
    assert_eq!(to_other("warm").await, 201);
    let frozen = app.freeze().await;
    let first = app.order_in_background("K", 2);
    app.waiting_for_lock(1).await;
    app.pg_proxy.as_ref().expect("a proxy").clear_log();
    let before = evalsha_calls(&app).await;

    for _ in 0..20 {
        assert_eq!(app.order("K", 2).await.status, 409);
    }
    assert_eq!(evalsha_calls(&app).await - before, 0);
    for _ in 0..20 {
        assert_eq!(to_other("K").await, 409);
    }
    assert_eq!(evalsha_calls(&app).await - before, 20);
    assert_eq!(flights_of_requests(&app), Vec::<Vec<String>>::new());
    frozen.thaw().await;
    assert_eq!(first.await.expect("the first").status, 201);
}

/// What this process executes may have lost its session unnoticed, and be done elsewhere: after a third of the lease it asks again.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_duplicate_of_an_old_first_asks_redis_again() {
    let builder = App::builder(World::Up).env("IDEMPOTENCY_LEASE", "3s").env("DATABASE_LOCK_TIMEOUT", "20s");
    let app = builder.start().await;
    warm(&app).await;
    let frozen = app.freeze().await;
    let first = app.order_in_background("K", 2);
    app.waiting_for_lock(1).await;
    // Its heartbeat is a call too, one a second: more than it could make within the bound.
    let before = evalsha_calls(&app).await;
    until("Redis is asked about duplicates again", BOUND, || async {
        assert_eq!(app.order("K", 2).await.status, 409);
        evalsha_calls(&app).await - before > 2 * BOUND.as_secs()
    })
    .await;
    frozen.thaw().await;
    assert_eq!(first.await.expect("the first").status, 201);
}

/// Redis is asked over one kept connection: no PING, no checkout, and scripts are loaded once.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn redis_sees_nothing_but_the_scripts() {
    let app = App::builder(World::Up).redis_proxy().start().await;
    warm(&app).await;
    let proxy = app.redis_proxy.as_ref().expect("a proxy");
    proxy.clear_log();
    for key in 0..4 {
        assert_eq!(app.order(&format!("K{key}"), 1).await.status, 201);
        assert_eq!(app.order(&format!("K{key}"), 1).await.status, 201);
    }
    let names: Vec<String> = proxy.commands().into_iter().map(|command| command.name).collect();
    assert_eq!(names, vec!["EVALSHA"; 12]);
}
