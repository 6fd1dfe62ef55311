//! `order-service verify`: on a sound database everything holds; whatever is broken by hand is named.

use serde_json::Value;
use testkit::Request;

use crate::cli::{Ended, program, run};
use crate::harness::{App, Stack, World};

async fn verify(app: &App, arguments: &[&str]) -> Ended {
    let mut command = program(&[&["verify"], arguments].concat());
    command
        .env("DATABASE_URL", &app.database_url)
        .env("REDIS_URL", format!("redis://{}/0", app.redis_address));
    run(command).await
}

/// What it says of one invariant.
async fn state(app: &App, name: &str) -> (String, String) {
    let ended = verify(app, &["--json"]).await;
    let said: Value = serde_json::from_str(&ended.out).expect("JSON");
    let checks = said["checks"].as_array().expect("a list");
    let all_hold = checks.iter().all(|check| check["state"] != "failed");
    assert_eq!(
        (said["ok"].as_bool(), ended.code),
        (Some(all_hold), Some(i32::from(!all_hold))),
        "{}",
        ended.err
    );
    let check = checks.iter().find(|check| check["name"] == name).expect("the check");
    let text = |field: &str| check[field].as_str().expect("a text").to_owned();
    (text("state"), text("detail"))
}

/// Breaks something; the invariant held before, and does not after it.
async fn broken(app: &App, name: &str, sql: &str, example: &str) {
    let (before, detail) = state(app, name).await;
    assert_eq!(before, "ok", "{name}: {detail}");
    app.db.batch_execute(sql).await.expect("SQL");
    let (after, detail) = state(app, name).await;
    assert_eq!(after, "failed", "{name}: {detail}");
    assert!(detail.contains(example), "{name}: {detail}");
}

/// Three orders, one of them cancelled, one asked for again; a refusal.
async fn shop() -> App {
    let app = App::builder(World::Up).start().await;
    for key in ["a", "b", "c"] {
        assert_eq!(app.order(key, 2).await.status, 201);
    }
    assert_eq!(app.order("a", 2).await.header("x-cache-lookup"), Some("HIT"));
    assert_eq!(app.order("too-many", 9999).await.status, 201);
    let location = app.order("c", 2).await.header("location").expect("a location").to_owned();
    let cancel = app.post(&format!("{location}/cancel"), "d", &serde_json::json!({})).await;
    assert_eq!(cancel.status, 200, "{}", cancel.text());
    app
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn everything_holds_on_a_sound_database() {
    let app = shop().await;
    let said = verify(&app, &[]).await.succeeded();
    assert_eq!(said.lines().count(), 11, "{said}");
    assert!(said.lines().all(|line| line.starts_with("ok      ")), "{said}");
    assert!(said.contains("(5 answers compared)"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_broken_is_named() {
    let app = shop().await;
    let account = app.account().await;
    let duplicate = "DROP INDEX orders_idem_key; INSERT INTO orders (id, account_id, idem_key, status, total_amount, currency) \
        SELECT gen_random_uuid(), account_id, idem_key, 'cancelled', total_amount, currency FROM orders WHERE idem_key LIKE '%:a'";
    broken(&app, "one-order-per-key", duplicate, &format!("{account}:a")).await;
    broken(&app, "stock", "UPDATE products SET stock = stock - 1 WHERE sku = 'TEA-001'", "TEA-001: ").await;
    let record = "DELETE FROM idempotency_records WHERE key = 'b'";
    broken(&app, "order-has-record", record, &format!("{account}:b")).await;
    let order = "DELETE FROM order_items USING orders WHERE order_id = id AND idem_key LIKE '%:a'; \
        DELETE FROM orders WHERE idem_key LIKE '%:a'";
    broken(&app, "record-has-order", order, &format!("{account}:a")).await;
    broken(
        &app,
        "order-total",
        "UPDATE orders SET total_amount = total_amount + 1 WHERE idem_key LIKE '%:b'",
        "-",
    )
    .await;
    broken(&app, "paid-means-payment", "UPDATE orders SET status = 'paid' WHERE idem_key LIKE '%:c'", "-")
        .await;
    let payments = "DROP INDEX payments_one_per_order; INSERT INTO payments (id, account_id, order_id, status, amount, currency, gateway_id) \
        SELECT gen_random_uuid(), account_id, id, 'succeeded', 10, 'EUR', 'ch_' || n FROM orders, generate_series(1, 2) AS n \
         WHERE idem_key LIKE '%:b'";
    broken(&app, "one-payment-per-order", payments, "-").await;
    let refunds = "INSERT INTO refunds (id, account_id, payment_id, status, amount, gateway_id) \
        SELECT gen_random_uuid(), account_id, id, 'succeeded', 11, 're_1' FROM payments WHERE gateway_id = 'ch_1'";
    broken(&app, "refunds-within-payments", refunds, "-").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_order_without_its_event_is_named() {
    let app = shop().await;
    let event = "DELETE FROM events WHERE type = 'order.created' AND data ->> 'id' = (SELECT id::text FROM orders WHERE idem_key LIKE '%:b')";
    broken(&app, "order-has-event", event, "-").await;
}

/// Redis says what PostgreSQL does not: another body, and an answer of which there is no record. What the service would not believe is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_redis_says_is_compared() {
    const NAME: &str = "redis-agrees";
    let app = shop().await;
    let name = app.redis_name("a").await;
    let other_body = "UPDATE idempotency_records SET response_body = response_body || ' ' WHERE key = 'a'";
    app.db.batch_execute(other_body).await.expect("SQL");
    let told = format!(
        "not so: Redis says nothing that PostgreSQL contradicts (5 answers compared); see {name}: the record has another answer"
    );
    assert_eq!(state(&app, NAME).await, ("failed".to_owned(), told));
    let _: i64 = app.redis(&["SETRANGE", &name, "2", "another "]).await;
    assert_eq!(state(&app, NAME).await.0, "ok", "of another generation");
    app.db.batch_execute("DELETE FROM idempotency_records WHERE key = 'b'").await.expect("SQL");
    let (said, why) = state(&app, NAME).await;
    assert!(
        said == "failed" && why.contains(&format!("{}: there is no record", app.redis_name("b").await)),
        "{why}"
    );
}

/// Nobody holds the lease of what was left behind, and no completer is there to go on with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_stuck_is_named() {
    let mut app = shop().await;
    app.kill().await;
    let left = "INSERT INTO idempotency_records (account_id, key, request_path, request_hash, fingerprint_version, request_id, status, \
            updated_at, command, request_body, lease_token, lease_expires_at, attempts) \
        SELECT account_id, 'left', '/', request_hash, 1, gen_random_uuid(), 'IN_PROGRESS', now() - interval '16 minutes', 'c', '', \
            gen_random_uuid(), now() - interval '1 minute', 1 FROM idempotency_records WHERE key = 'a'";
    broken(&app, "nothing-stuck", left, ":left").await;
}

/// Without Redis its check is skipped, not passed; without PostgreSQL nothing is said to hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_cannot_be_looked_at_is_not_said_to_hold() {
    let app = App::builder(World::Absent).start().await;
    assert_eq!(app.order("a", 2).await.status, 201);
    let (said, why) = state(&app, "redis-agrees").await;
    assert!(said == "skipped" && why.contains("Redis cannot be asked"), "{why}");
    let nobody = "postgres://somebody:sesame@127.0.0.1:1/shop".to_owned();
    let empty = tokio::task::spawn_blocking(|| Stack::get().empty_database()).await.expect("a database");
    for (url, named) in [(nobody, "PostgreSQL cannot be reached"), (empty, "is the database migrated?")] {
        let mut command = program(&["verify", "--json"]);
        command.env("DATABASE_URL", url);
        let ended = run(command).await;
        let said: Value = serde_json::from_str(&ended.out).expect("JSON");
        assert_eq!(
            (ended.code, &said["ok"], &said["failed"]),
            (Some(1), &false.into(), &1.into()),
            "{}",
            ended.out
        );
        assert!(ended.out.contains(named) && !ended.out.contains("sesame"), "{}", ended.out);
    }
    let answer = testkit::send(app.replica().admin, &Request::get("/livez")).await.expect("an answer");
    assert_eq!(answer.status, 200, "the service runs on");
}
