//! Nothing waits without a limit, and nothing that was given up goes on in somebody else's place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use testkit::{Action, Connection, Request, SqlMatch, until};

use crate::harness::database::{self, Effects, before_insert, remove_triggers};
use crate::harness::{App, World, order};

const BOUND: Duration = Duration::from_secs(20);

/// The server accepts connections and then says nothing: requests are answered, and once it speaks again so is everything
/// else, housekeeping (which ends revoked keys) included.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_falls_silent_after_the_greeting_is_given_up() {
    let app = App::builder(World::Absent)
        .pg_proxy()
        .env("DATABASE_POOL", "3")
        .env("DATABASE_POOL_WAIT", "500ms")
        .start()
        .await;
    assert_eq!(app.order("before", 1).await.status, 201);
    let proxy = app.pg_proxy.as_ref().expect("a proxy");
    let silent = proxy.always(SqlMatch::executes("pg_postmaster_start_time"), Action::HoldReply);
    app.terminate_sessions().await;
    let orders: Vec<_> = (0..4).map(|index| app.order_in_background(&format!("K{index}"), 1)).collect();
    for order in orders {
        let answer = order.await.expect("an answer, in bounded time");
        assert_eq!(answer.status, 503, "{}", answer.text());
    }
    silent.release();
    for index in 0..4 {
        app.settle(&format!("K{index}"), 1).await;
        assert_eq!(app.effects(&format!("K{index}")).await, Effects::ONCE);
    }
    app.db.batch_execute("UPDATE api_keys SET revoked_at = now()").await.expect("revoked");
    until("the revoked key is refused", BOUND, || async { app.order("K0", 1).await.status == 401 }).await;
}

/// A run that wants a fresh connection gets one, however many stand in the queue for the used ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_fresh_connection_comes_under_load_too() {
    let app = App::builder(World::Up).env("DATABASE_POOL", "2").start().await;
    before_insert(
        &app.db,
        "IF NEW.note = 'conflict' THEN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END IF;",
    )
    .await;
    let stop = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = (0..8)
        .map(|client| {
            let (api, stop) = (app.replica().api, Arc::clone(&stop));
            let requests: Vec<Request> = (0..400)
                .map(|number| app.request("/v1/orders", &format!("load-{client}-{number}"), &order(1)))
                .collect();
            tokio::spawn(async move {
                for request in requests {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    testkit::send(api, &request).await.expect("an answer");
                }
            })
        })
        .collect();
    let mut conflicting = order(1);
    conflicting["note"] = "conflict".into();
    let answer = app.send(&app.request("/v1/orders", "K", &conflicting).bound(BOUND)).await;
    stop.store(true, Ordering::Relaxed);
    assert_eq!((answer.status, answer.json()["code"].as_str()), (503, Some("temporarily-unavailable")));
    for client in load {
        client.await.expect("a client");
    }
    remove_triggers(&app.db).await;
    assert_eq!(app.post("/v1/orders", "K", &conflicting).await.status, 201);
}

/// What is acknowledged is durable, also where the database's default says otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn commits_are_durable_whatever_the_default() {
    for pooler in ["none", "transaction"] {
        let app = App::builder(World::Up).env("DATABASE_POOLER", pooler).start().await;
        let row = app.db.query_one("SELECT current_database()", &[]).await.expect("the database");
        let name: String = row.get(0);
        app.db
            .batch_execute(&format!("ALTER DATABASE {name} SET synchronous_commit = off"))
            .await
            .expect("set");
        let check =
            "IF current_setting('synchronous_commit') <> 'on' THEN RAISE EXCEPTION 'not durable'; END IF;";
        before_insert(&app.db, check).await;
        app.terminate_sessions().await;
        assert_eq!(app.order("K", 1).await.status, 201, "{pooler}");
        remove_triggers(&app.db).await;
    }
}

/// A client that leaves a read takes its statement with it: the connection is not handed on with the statement running.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_abandoned_read_is_cancelled() {
    let app =
        App::builder(World::Up).env("DATABASE_POOL", "2").env("DATABASE_LOCK_TIMEOUT", "20s").start().await;
    let locked = database::connect(&app.database_url).await;
    locked.batch_execute("BEGIN; LOCK TABLE products IN ACCESS EXCLUSIVE MODE").await.expect("locked");
    for _ in 0..5 {
        let mut reader = Connection::open(app.replica().api).await.expect("a connection");
        let read = Request::get("/v1/products").header("Authorization", format!("Bearer {}", app.api_key));
        reader.send(&read).await.expect("sent");
        app.waiting_for_lock(1).await;
        reader.reset();
        until("the statement is gone", BOUND, || async { database::waiting_for_lock(&app.db).await == 0 })
            .await;
    }
    locked.batch_execute("ROLLBACK").await.expect("unlocked");
    assert_eq!(app.get("/v1/products").await.status, 200);
}

/// A migration changed the type of a column that is read: reads go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_read_whose_plan_no_longer_fits_is_run_again() {
    let app = App::builder(World::Up).start().await;
    for length in [200, 300] {
        for _ in 0..4 {
            assert_eq!(app.get("/v1/products").await.status, 200);
        }
        let alter = format!("ALTER TABLE products ALTER COLUMN name TYPE varchar({length})");
        app.db.batch_execute(&alter).await.expect("altered");
        for _ in 0..4 {
            assert_eq!(app.get("/v1/products").await.status, 200);
        }
    }
}

/// What a caller sends is quoted in part.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_refusal_is_short_however_long_the_request() {
    let app = App::builder(World::Up).start().await;
    let mut body = order(1);
    body["x".repeat(500_000)] = json!(1);
    let refused = app.post("/v1/orders", "K", &body).await;
    assert_eq!((refused.status, refused.json()["code"].as_str()), (400, Some("invalid-request")));
    assert!(refused.body.len() < 2000, "{} bytes", refused.body.len());
    assert_eq!(app.order("K", 1).await.status, 201);
}

/// An id has one spelling, so that one thing has one path.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_id_has_one_spelling() {
    let app = App::builder(World::Up).start().await;
    let made = app.order("K", 1).await.json();
    let id = made["id"].as_str().expect("an id");
    let escaped = format!("%{:02x}{}", id.as_bytes()[0], &id[1..]);
    for other in
        [id.to_uppercase(), id.replace('-', ""), format!("%7B{id}%7D"), format!("urn:uuid:{id}"), escaped]
    {
        assert_eq!(app.get(&format!("/v1/orders/{other}")).await.status, 404, "{other}");
        let cancel = app.post(&format!("/v1/orders/{other}/cancel"), "C", &json!({})).await;
        assert_eq!(cancel.status, 404, "{other}: {}", cancel.text());
    }
    assert_eq!(app.get(&format!("/v1/orders/{id}")).await.json()["status"], "pending_payment");
    assert_eq!(app.post(&format!("/v1/orders/{id}/cancel"), "C", &json!({})).await.status, 200);
}

/// Fifty keys, each with a mark in its order, a third of the requests reset: whoever gets a body gets that of its own key.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_answer_is_that_of_its_own_key() {
    let app = App::builder(World::Up).start().await;
    let marked = |key: usize| {
        let mut body = order(1);
        body["note"] = format!("mark-{key}").into();
        app.request("/v1/orders", &format!("K{key}"), &body)
    };
    for round in 0..4_usize {
        let clients: Vec<_> = (0..50_usize)
            .map(|key| {
                let (api, request, leaves) = (app.replica().api, marked(key), (key + round) % 3 == 0);
                tokio::spawn(async move {
                    let mut connection = Connection::open(api).await.expect("a connection");
                    connection.send(&request).await.expect("sent");
                    if leaves {
                        connection.reset();
                        return;
                    }
                    let answer = connection.read().await.expect("an answer");
                    match answer.status {
                        201 => assert_eq!(answer.json()["note"], format!("mark-{key}")),
                        other => assert_eq!(other, 409, "{}", answer.text()),
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.expect("a client");
        }
    }
    for key in 0..50 {
        let request = marked(key);
        let settled = until("the key is settled", BOUND, || async {
            let answer = app.send(&request).await;
            (answer.status == 201).then_some(answer)
        })
        .await;
        assert_eq!(settled.json()["note"], format!("mark-{key}"));
        assert_eq!(app.effects(&format!("K{key}")).await, Effects::ONCE);
    }
}

/// The handler fails after its lease would have run out: the key is free at once, with Redis and without.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_failure_longer_than_the_lease_frees_the_key_at_once() {
    for world in [World::Up, World::Absent] {
        let app = App::builder(world).env("IDEMPOTENCY_LEASE", "1s").start().await;
        let fail =
            "IF currval('attempts') = 1 THEN PERFORM pg_sleep(2); RAISE EXCEPTION 'asked for'; END IF;";
        before_insert(&app.db, fail).await;
        assert_eq!(app.order("K", 1).await.status, 500);
        assert_eq!(app.order("K", 1).await.status, 201);
        assert_eq!(app.effects("K").await, Effects::ONCE);
        remove_triggers(&app.db).await;
    }
}

/// The server ends a session that idles in its transaction for as long as the lease. That is no conflict, and is not called one.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_that_stands_still_in_its_transaction_is_told_so() {
    let app = App::builder(World::Up).env("IDEMPOTENCY_LEASE", "1s").start().await;
    let answer = app.post("/v1/probes", "K", &json!({ "then": "idle" })).await;
    let problem = answer.json();
    assert_eq!((answer.status, problem["code"].as_str()), (503, Some("temporarily-unavailable")));
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("stood still")), "{problem}");
    app.replica().process.line_containing("idled in its transaction for longer than IDEMPOTENCY_LEASE").await;
    assert_eq!(app.events("probe.ran").await, 0);
}

/// Without Redis the process does not begin to remember keys itself: its memory stays as it is, however many were sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn fresh_keys_without_redis_leave_nothing_in_memory() {
    /// Each key takes this at least, wherever it is kept.
    const KEY_LEN: usize = 250;
    const WARM: usize = 3_000;
    const KEYS: usize = 8_000;
    let app = Arc::new(App::builder(World::Absent).start().await);
    let send = async |from: usize, to: usize| {
        let clients: Vec<_> = (0..16)
            .map(|client| {
                let app = Arc::clone(&app);
                tokio::spawn(async move {
                    let opened = Connection::open(app.replica().api).await;
                    let mut connection = opened.expect("a connection").bound(BOUND);
                    for number in (from..to).skip(client).step_by(16) {
                        let request = app.request("/v1/orders", &format!("{number:0>KEY_LEN$}"), &order(1));
                        assert_eq!(connection.exchange(&request).await.expect("an answer").status, 201);
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.expect("a task");
        }
    };
    let pid = app.replica().process.pid();
    send(0, WARM).await;
    let before = resident_bytes(pid);
    send(WARM, WARM + KEYS).await;
    let grown = resident_bytes(pid).saturating_sub(before);
    assert!(grown < KEYS * KEY_LEN / 2, "{grown} bytes more after {KEYS} keys");
}

/// What a process has in memory.
fn resident_bytes(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}
