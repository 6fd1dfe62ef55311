//! Wait or be refused: the caller's choice. Whoever waits gets the first one's answer, and holds nothing meanwhile.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use testkit::{Connection, Request, Response, Signal, until};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::harness::database::{Effects, attempts, before_insert, connect, remove_triggers};
use crate::harness::{App, World, in_every_world, order};

const BOUND: Duration = Duration::from_secs(20);

fn waiting_order(app: &App, key: &str, quantity: u32, seconds: u32) -> Request {
    app.request("/v1/orders", key, &order(quantity)).header("Prefer", format!("wait={seconds}"))
}

fn in_background(app: &App, request: Request) -> JoinHandle<Response> {
    let api = app.replica().api;
    tokio::spawn(async move { testkit::send(api, &request).await.expect("an answer") })
}

/// How many wait in the process, by its own account.
async fn waiting_in(admin: SocketAddr) -> u64 {
    let text = testkit::send(admin, &Request::get("/metrics")).await.expect("metrics").text();
    let line = text
        .lines()
        .find(|line| line.starts_with("idempotency_waiters "))
        .unwrap_or("idempotency_waiters 0")
        .to_owned();
    line.rsplit(' ').next().and_then(|count| count.parse::<f64>().ok()).map_or(0, |count| count as u64)
}

async fn until_waiting(app: &App, count: u64) {
    until("as many waiters", BOUND, || async { waiting_in(app.replica().admin).await == count }).await;
}

/// A gate that every insert of an order passes: closed while the session that holds it lives.
async fn gate(app: &App, and_then: &str) -> Client {
    before_insert(&app.db, &format!("PERFORM pg_advisory_xact_lock_shared(1); {and_then}")).await;
    let holder = connect(&app.database_url).await;
    holder.batch_execute("SELECT pg_advisory_lock(1)").await.expect("the gate");
    holder
}

async fn open(gate: &Client) {
    gate.batch_execute("SELECT pg_advisory_unlock(1)").await.expect("open");
}

in_every_world!(
    who_waits_gets_the_first_answer,
    |builder| builder.env("DATABASE_LOCK_TIMEOUT", "10s"),
    |app| async move {
        let gate = gate(&app, "").await;
        let first = app.order_in_background("K", 2);
        app.waiting_for_lock(1).await;
        let waiters: Vec<_> = (0..5).map(|_| in_background(&app, waiting_order(&app, "K", 2, 10))).collect();
        until_waiting(&app, 5).await;
        open(&gate).await;
        let first = first.await.expect("an answer");
        assert_eq!(first.status, 201, "{}", first.text());
        for waiter in waiters {
            let answer = waiter.await.expect("an answer");
            assert_eq!((answer.status, &answer.body), (201, &first.body), "{}", answer.text());
            assert_eq!(answer.header("idempotent-replayed"), Some("true"));
            assert_eq!(answer.header("preference-applied"), Some("wait=10"));
            assert_eq!(answer.header("location"), first.header("location"));
        }
        assert_eq!(attempts(&app.db).await, 1);
        assert_eq!(app.effects("K").await, Effects::ONCE);
        until_waiting(&app, 0).await;
        remove_triggers(&app.db).await;
    }
);

in_every_world!(
    who_waits_with_another_payload_is_told_so,
    |builder| builder.env("DATABASE_LOCK_TIMEOUT", "10s"),
    |app| async move {
        let gate = gate(&app, "").await;
        let first = app.order_in_background("K", 2);
        app.waiting_for_lock(1).await;
        app.heal();
        let other = in_background(&app, waiting_order(&app, "K", 3, 10));
        if app.world.remembers_running() {
            assert_eq!(other.await.expect("an answer").status, 422, "at once");
            open(&gate).await;
        } else {
            until_waiting(&app, 1).await;
            open(&gate).await;
            assert_eq!(other.await.expect("an answer").status, 422, "once it is known");
        }
        assert_eq!(first.await.expect("an answer").status, 201);
        assert_eq!(app.effects("K").await, Effects::ONCE);
        remove_triggers(&app.db).await;
    }
);

in_every_world!(
    a_wait_has_an_end,
    |builder| builder
        .env("DATABASE_LOCK_TIMEOUT", "20s")
        .env("IDEMPOTENCY_WAIT_MAX", "1s")
        .env("IDEMPOTENCY_ON_DUPLICATE", "wait"),
    |app| async move {
        let gate = gate(&app, "").await;
        let first = app.order_in_background("K", 2);
        app.waiting_for_lock(1).await;
        // The preference is cut to what is allowed, and said; without one the setting rules; zero never waits.
        let limited = app.send(&waiting_order(&app, "K", 2, 60)).await;
        assert_eq!((limited.status, limited.header("preference-applied")), (409, Some("wait=1")));
        let silent = app.order("K", 2).await;
        assert_eq!((silent.status, silent.header("preference-applied")), (409, None));
        let never = app.send(&waiting_order(&app, "K", 2, 0)).await;
        assert_eq!((never.status, never.header("preference-applied")), (409, Some("wait=0")));
        assert_eq!(never.json()["code"], "request-in-progress");
        let willing = in_background(&app, app.request("/v1/orders", "K", &order(2)));
        until_waiting(&app, 1).await;
        open(&gate).await;
        let first = first.await.expect("an answer");
        assert_eq!(willing.await.expect("an answer").body, first.body);
        remove_triggers(&app.db).await;
    }
);

/// Fifty wait for a handler that fails. One of them tries again, fails too, and its answer is everybody's.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_failing_handler_is_not_run_once_per_waiter() {
    let app = App::builder(World::Up).env("DATABASE_LOCK_TIMEOUT", "10s").start().await;
    let after = app.after();
    let gate = gate(&app, "RAISE EXCEPTION 'asked for';").await;
    let first = app.order_in_background("K", 2);
    app.waiting_for_lock(1).await;
    let waiters: Vec<_> = (0..50).map(|_| in_background(&app, waiting_order(&app, "K", 2, 10))).collect();
    until_waiting(&app, 50).await;
    open(&gate).await;
    assert_eq!(first.await.expect("an answer").status, 500);
    for waiter in waiters {
        let answer = waiter.await.expect("an answer");
        assert_eq!((answer.status, answer.json()["code"].as_str()), (500, Some("internal")));
    }
    assert_eq!(attempts(&app.db).await, 2);
    assert_eq!(app.effects("K").await, Effects::NONE);
    remove_triggers(&app.db).await;
    app.settle("K", 2).await;
    after.check().await;
}

/// The first fails, and the one that takes over succeeds: all the others get its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_waiter_takes_over_from_a_first_that_failed() {
    let app = App::builder(World::Up).env("DATABASE_LOCK_TIMEOUT", "10s").start().await;
    let gate = gate(&app, "IF currval('attempts') = 1 THEN RAISE EXCEPTION 'asked for'; END IF;").await;
    let first = app.order_in_background("K", 2);
    app.waiting_for_lock(1).await;
    let waiters: Vec<_> = (0..20).map(|_| in_background(&app, waiting_order(&app, "K", 2, 10))).collect();
    until_waiting(&app, 20).await;
    open(&gate).await;
    assert_eq!(first.await.expect("an answer").status, 500);
    let (mut fresh, mut bodies) = (0, std::collections::BTreeSet::new());
    for waiter in waiters {
        let answer = waiter.await.expect("an answer");
        assert_eq!(answer.status, 201, "{}", answer.text());
        fresh += usize::from(answer.header("idempotent-replayed").is_none());
        bodies.insert(answer.body);
    }
    assert_eq!((fresh, bodies.len()), (1, 1));
    assert_eq!(attempts(&app.db).await, 2);
    assert_eq!(app.effects("K").await, Effects::ONCE);
    remove_triggers(&app.db).await;
}

/// Whoever waits in another process asks Redis, not PostgreSQL, one question at a time for all.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn waiters_of_another_process_share_one_poll() {
    let app =
        App::builder(World::Up).pg_proxy().redis_proxy().env("DATABASE_LOCK_TIMEOUT", "10s").start().await;
    let second = app.new_replica().await;
    let warm = app.request("/v1/orders", "warm", &order(1));
    assert_eq!(testkit::send(second.api, &warm).await.expect("an answer").status, 201);
    let gate = gate(&app, "").await;
    let first = app.order_in_background("K", 2);
    app.waiting_for_lock(1).await;
    let (postgres, redis) =
        (app.pg_proxy.as_ref().expect("a proxy"), app.redis_proxy.as_ref().expect("a proxy"));
    let request = waiting_order(&app, "K", 2, 10);
    let waiters: Vec<_> = (0..40)
        .map(|_| {
            let (api, request) = (second.api, request.clone());
            tokio::spawn(async move { testkit::send(api, &request).await.expect("an answer") })
        })
        .collect();
    until("forty waiters", BOUND, || async { waiting_in(second.admin).await == 40 }).await;
    postgres.clear_log();
    redis.clear_log();
    redis.log_until("three more polls", |log| log.len() >= 3).await;
    let asked: Vec<String> = postgres
        .queries()
        .into_iter()
        .filter(|sql| sql.starts_with("BEGIN") && !sql.contains("enable_seqscan"))
        .collect();
    assert_eq!(asked, Vec::<String>::new(), "no waiter asks PostgreSQL");
    assert!(redis.commands().len() < 10, "one poll for all, with pauses");
    open(&gate).await;
    let first = first.await.expect("an answer");
    for waiter in waiters {
        assert_eq!(waiter.await.expect("an answer").body, first.body);
    }
    assert_eq!(app.effects("K").await, Effects::ONCE);
    remove_triggers(&app.db).await;
}

/// A waiter that hangs up, be it the one that leads, leaves the first alone and the others waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_waiter_that_hangs_up_stops_waiting() {
    let app = App::builder(World::Up).env("DATABASE_LOCK_TIMEOUT", "10s").start().await;
    let gate = gate(&app, "").await;
    let first = app.order_in_background("K", 2);
    app.waiting_for_lock(1).await;
    let mut leaving = Vec::new();
    for count in 1..=3 {
        let mut connection = Connection::open(app.replica().api).await.expect("a connection");
        connection.send(&waiting_order(&app, "K", 2, 10)).await.expect("sent");
        leaving.push(connection);
        until_waiting(&app, count).await;
    }
    let staying = in_background(&app, waiting_order(&app, "K", 2, 10));
    until_waiting(&app, 4).await;
    leaving.into_iter().for_each(Connection::reset);
    until_waiting(&app, 1).await;
    open(&gate).await;
    let first = first.await.expect("an answer");
    assert_eq!(first.status, 201);
    assert_eq!(staying.await.expect("an answer").body, first.body);
    assert_eq!(attempts(&app.db).await, 1);
    remove_triggers(&app.db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn there_is_room_for_so_many_waiters() {
    let app = App::builder(World::Up)
        .env("DATABASE_LOCK_TIMEOUT", "10s")
        .env("IDEMPOTENCY_WAITERS_MAX", "2")
        .start()
        .await;
    let gate = gate(&app, "").await;
    let first = app.order_in_background("K", 2);
    app.waiting_for_lock(1).await;
    let waiters: Vec<_> = (0..2).map(|_| in_background(&app, waiting_order(&app, "K", 2, 10))).collect();
    until_waiting(&app, 2).await;
    let refused = app.send(&waiting_order(&app, "K", 2, 10)).await;
    assert_eq!((refused.status, refused.json()["code"].as_str()), (503, Some("overloaded")));
    assert_eq!(refused.json()["new_key_safe"], json!(false));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(app.order("K", 2).await.status, 409, "who does not wait needs no room");
    open(&gate).await;
    let first = first.await.expect("an answer");
    for waiter in waiters {
        assert_eq!(waiter.await.expect("an answer").body, first.body);
    }
    remove_triggers(&app.db).await;
}

/// A process that stops finishes its work and tells those who only wait to come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn waiters_do_not_hold_up_the_end() {
    let app = App::builder(World::Up).env("DATABASE_LOCK_TIMEOUT", "10s").start().await;
    let gate = gate(&app, "").await;
    let first = app.order_in_background("K", 2);
    app.waiting_for_lock(1).await;
    let waiter = in_background(&app, waiting_order(&app, "K", 2, 10));
    until_waiting(&app, 1).await;
    app.replica().process.signal(Signal::Term).await.expect("SIGTERM");
    assert_eq!(waiter.await.expect("an answer").status, 409);
    open(&gate).await;
    assert_eq!(first.await.expect("an answer").status, 201);
    remove_triggers(&app.db).await;
}
