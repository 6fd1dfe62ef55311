//! PostgreSQL in trouble: nothing is half done, what can be run again is, and the same connection pool serves afterwards.

use std::time::Duration;

use testkit::pg_proxy::{Statement, Step};
use testkit::{Action, SqlMatch, until};

use crate::harness::database::{self, Effects, attempts, before_insert, remove_triggers};
use crate::harness::{App, World, in_every_world, order};

const BOUND: Duration = Duration::from_secs(20);

in_every_world!(connections_that_died_while_idle_are_replaced, |app| async move {
    for round in 0..4 {
        assert_eq!(app.order(&format!("warm-{round}"), 1).await.status, 201);
    }
    app.terminate_sessions().await;
    app.strike();
    let answer = app.order("K", 2).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(app.order("K", 2).await.body, answer.body);
    assert_eq!(app.effects("K").await, Effects::ONCE);
});

in_every_world!(
    a_session_that_is_ended_during_the_work_is_run_again,
    |builder| builder.env("DATABASE_LOCK_TIMEOUT", "10s"),
    |app| async move {
        let frozen = app.freeze().await;
        let first = app.order_in_background("K", 2);
        app.waiting_for_lock(1).await;
        app.terminate_sessions().await;
        frozen.thaw().await;
        let first = first.await.expect("an answer");
        assert_eq!(first.status, 201, "{}", first.text());
        app.heal();
        assert_eq!(app.settle("K", 2).await.body, first.body);
        assert_eq!(app.effects("K").await, Effects::ONCE);
    }
);

/// A migration changed the type of a column: prepared statements no longer fit, on every connection at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_plan_that_no_longer_fits_is_run_again() {
    let app = App::builder(World::Up).start().await;
    for round in 0..8 {
        assert_eq!(app.order(&format!("warm-{round}"), 1).await.status, 201);
    }
    app.db.batch_execute("ALTER TABLE products ALTER COLUMN name TYPE varchar(200)").await.expect("altered");
    let answer = app.order("K", 2).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(app.effects("K").await, Effects::ONCE);
}

in_every_world!(
    a_request_that_finds_no_connection_in_time_is_told_to_come_back,
    // One connection for requests, one for housekeeping.
    |builder| builder
        .env("DATABASE_POOL", "2")
        .env("DATABASE_POOL_WAIT", "300ms")
        .env("DATABASE_LOCK_TIMEOUT", "10s"),
    |app| async move {
        let frozen = app.freeze().await;
        let first = app.order_in_background("K", 2);
        app.waiting_for_lock(1).await;
        app.strike();
        let second = app.order("K2", 2).await;
        assert_eq!((second.status, second.json()["code"].as_str()), (503, Some("temporarily-unavailable")));
        assert!(second.header("retry-after").is_some());
        frozen.thaw().await;
        assert_eq!(first.await.expect("an answer").status, 201);
        app.settle("K2", 2).await;
        assert_eq!(app.effects("K2").await, Effects::ONCE);
    }
);

in_every_world!(
    a_lock_that_is_not_had_in_time_rolls_back_and_frees_the_key,
    |builder| builder.env("DATABASE_LOCK_TIMEOUT", "300ms"),
    |app| async move {
        let frozen = app.freeze().await;
        let first = app.order("K", 2).await;
        assert_eq!((first.status, first.json()["code"].as_str()), (503, Some("temporarily-unavailable")));
        assert_eq!(app.effects("K").await, Effects::NONE);
        frozen.thaw().await;
        app.settle("K", 2).await;
        assert_eq!(app.effects("K").await, Effects::ONCE);
    }
);

in_every_world!(
    a_statement_that_outlasts_the_execution_is_cancelled,
    |builder| builder.env("IDEMPOTENCY_EXECUTE_MAX", "1s"),
    |app| async move {
        before_insert(&app.db, "IF currval('attempts') = 1 THEN PERFORM pg_sleep(60); END IF;").await;
        let first = app.order("K", 2).await;
        assert_eq!((first.status, first.json()["code"].as_str()), (503, Some("temporarily-unavailable")));
        assert_eq!(app.effects("K").await, Effects::NONE);
        // At once: the server has rolled back, no lock and no place is left.
        let second = app.order("K", 2).await;
        assert_eq!(second.status, 201, "{}", second.text());
        assert_eq!(app.effects("K").await, Effects::ONCE);
        remove_triggers(&app.db).await;
    }
);

/// Read-only for everybody: new keys are told to come back, old ones are replayed; it ends without a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_read_only_database_replays_and_admits_nothing() {
    let app = App::builder(World::Up).own_postgres().start().await;
    let first = app.order("old", 2).await;
    assert_eq!(first.status, 201);
    app.db.batch_execute("ALTER SYSTEM SET default_transaction_read_only = on").await.expect("set");
    app.db.batch_execute("SELECT pg_reload_conf()").await.expect("reloaded");
    until("a refusal", BOUND, || async { app.order("new", 2).await.status == 503 }).await;
    let refused = app.effects("new").await;
    let again = app.order("old", 2).await;
    assert_eq!((again.status, &again.body), (201, &first.body));
    let _: () = app.redis(&["FLUSHALL"]).await;
    assert_eq!(app.order("old", 2).await.header("x-cache-lookup"), Some("MISS"));
    for sql in [
        "SET default_transaction_read_only = off",
        "ALTER SYSTEM RESET default_transaction_read_only",
        "SELECT pg_reload_conf()",
    ] {
        app.db.batch_execute(sql).await.expect("reset");
    }
    let settled = app.settle("new", 2).await;
    assert_eq!(settled.header("idempotent-replayed").is_some(), refused == Effects::ONCE);
    assert_eq!(app.effects("new").await, Effects::ONCE);
}

/// A role that may not connect any more: 503 without a word about roles, and back by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn too_many_connections_is_503_and_says_nothing_of_it() {
    let app = App::builder(World::Up).start().await;
    let role = format!("limited_{}", uuid::Uuid::new_v4().simple());
    let grant = format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'limited' CONNECTION LIMIT 0;
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role};"
    );
    app.db.batch_execute(&grant).await.expect("a role");
    let (_, rest) = app.database_url.split_once('@').expect("a URL with credentials");
    let url = format!("postgres://{role}:limited@{rest}");
    let limited = app.new_replica_with(&[("DATABASE_URL", &url)]).await;
    let request = app.request("/v1/orders", "K", &order(2));
    let refused = testkit::send(limited.api, &request).await.expect("an answer");
    assert_eq!(refused.status, 503);
    assert!(!refused.text().contains(&role) && !refused.text().contains("127.0.0.1"), "{}", refused.text());
    app.db.batch_execute(&format!("ALTER ROLE {role} CONNECTION LIMIT -1")).await.expect("no limit");
    until("served again", BOUND, || async {
        testkit::send(limited.api, &request).await.expect("an answer").status == 201
    })
    .await;
    assert_eq!(app.effects("K").await, Effects::ONCE);
}

in_every_world!(
    behind_a_transaction_pooler_statements_are_sent_unnamed,
    |builder| builder.pg_proxy().env("DATABASE_POOLER", "transaction"),
    |app| async move {
        app.strike();
        let first = app.order("K", 2).await;
        assert_eq!(first.status, 201, "{}", first.text());
        assert_eq!(app.order("K", 2).await.body, first.body);
        assert_eq!(app.order("K", 3).await.status, 422);
        let order = first.json()["id"].as_str().expect("an id").to_owned();
        let cancelled = app.post(&format!("/v1/orders/{order}/cancel"), "C", &serde_json::json!({})).await;
        assert_eq!(cancelled.status, 200, "{}", cancelled.text());
        assert_eq!(app.get("/v1/orders").await.status, 200);
        assert_eq!(app.effects("K").await, Effects::ONCE);
        let flights = app.pg_proxy.as_ref().expect("a proxy").flights();
        assert!(flights.iter().all(|flight| !flight.is_prepare()), "nothing is prepared ahead");
        let begin = flights.iter().flat_map(|flight| &flight.statements).find(|sql| sql.starts_with("BEGIN"));
        assert!(
            begin.expect("a transaction").contains("SET LOCAL statement_timeout"),
            "limits travel with BEGIN"
        );
    }
);

/// A record says that the key was done; Redis says that another payload is running. The record wins: the runner is an
/// impostor that will lose.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_record_outweighs_a_running_impostor() {
    let app = App::builder(World::Up).pg_proxy().start().await;
    let first = app.order("K", 2).await;
    assert_eq!(first.status, 201);
    let _: () = app.redis(&["FLUSHALL"]).await;
    let proxy = app.pg_proxy.as_ref().expect("a proxy");
    let begin = SqlMatch::new("BEGIN", |statement: &Statement| {
        statement.step == Step::Execute && statement.sql.starts_with("BEGIN")
    });
    let held = proxy.once(begin, Action::HoldBefore);
    let impostor = app.order_in_background("K", 3);
    held.reached().await;
    let again = app.order("K", 2).await;
    assert_eq!((again.status, &again.body, again.header("x-cache-lookup")), (201, &first.body, Some("MISS")));
    assert_eq!(app.order("K", 2).await.header("x-cache-lookup"), Some("HIT"), "done replaces running");
    held.release();
    assert_eq!(impostor.await.expect("an answer").status, 422);
    assert_eq!(app.effects("K").await, Effects::ONCE);
}

/// The work takes about as long as the lease. Heartbeats keep the place, so nobody takes it over.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn work_as_long_as_the_lease_is_done_once() {
    let app = App::builder(World::Up).env("IDEMPOTENCY_LEASE", "1s").start().await;
    let after = app.after();
    before_insert(&app.db, "PERFORM pg_sleep(0.95 + random() / 10);").await;
    for round in 0..4 {
        let key = format!("K{round}");
        let clients: Vec<_> = (0..10).map(|_| app.order_in_background(&key, 2)).collect();
        for client in clients {
            let answer = client.await.expect("an answer");
            assert!(matches!(answer.status, 201 | 409), "{}", answer.text());
        }
        app.settle(&key, 2).await;
        assert_eq!(app.effects(&key).await, Effects::ONCE);
    }
    assert_eq!(attempts(&app.db).await, 4);
    remove_triggers(&app.db).await;
    after.check().await;
}

/// Two orders of the same products in opposite order, again and again: rows are locked in one order, so none is a deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn orders_of_the_same_products_do_not_deadlock() {
    let app = App::builder(World::Up).start().await;
    let item = |sku: &str| serde_json::json!({ "sku": sku, "quantity": 1 });
    let (forth, back) = (
        serde_json::json!({ "items": [item("TEA-001"), item("TEA-002"), item("TEA-003")] }),
        serde_json::json!({ "items": [item("TEA-003"), item("TEA-002"), item("TEA-001")] }),
    );
    let clients: Vec<_> = (0..60)
        .map(|number| {
            let body = if number % 2 == 0 { &forth } else { &back };
            let (api, request) = (app.replica().api, app.request("/v1/orders", &format!("K{number}"), body));
            tokio::spawn(async move { testkit::send(api, &request).await.expect("an answer").status })
        })
        .collect();
    for client in clients {
        assert_eq!(client.await.expect("a client"), 201);
    }
    let row = app
        .db
        .query_one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()", &[])
        .await;
    assert_eq!(row.expect("statistics").get::<_, i64>(0), 0);
    let stock = "SELECT count(*) FROM products WHERE sku LIKE 'TEA-%' AND initial_stock - stock = 60";
    assert_eq!(app.db.query_one(stock, &[]).await.expect("stock").get::<_, i64>(0), 3);
    assert_eq!(database::idle_in_transaction(&app.db).await, 0);
}
