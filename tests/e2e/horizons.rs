//! Three horizons: the lease (seconds), the stored answer, the used key. And what is kept of an answer at all.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Response, until};

use crate::harness::database::Effects;
use crate::harness::{App, World, in_every_world};

const BOUND: Duration = Duration::from_secs(20);

async fn probe(app: &App, key: &str, then: &str) -> Response {
    app.post("/v1/probes", key, &json!({ "then": then })).await
}

async fn ran(app: &App) -> i64 {
    app.db
        .query_one("SELECT count(*) FROM events WHERE type = 'probe.ran'", &[])
        .await
        .expect("events")
        .get(0)
}

fn is_spent(answer: &Response) -> bool {
    answer.status == 409 && answer.json()["code"] == "already-completed"
}

in_every_world!(
    a_spent_answer_is_refused_and_a_forgotten_key_is_new,
    |builder| builder
        .env("IDEMPOTENCY_LEASE", "1s")
        .env("IDEMPOTENCY_RESULT_RETENTION", "2s")
        .env("IDEMPOTENCY_KEY_RETENTION", "5s"),
    |app| async move {
        let order = app.order("order", 2).await;
        assert_eq!(order.status, 201);
        let location = order.header("location").expect("a location").to_owned();
        app.strike();
        assert_eq!(probe(&app, "probe", "empty_object").await.status, 200);
        assert_eq!(ran(&app).await, 1);
        // Replayed, then refused with the location, and nothing is executed for it.
        until("the order's answer is spent", BOUND, || async {
            let again = app.order("order", 2).await;
            assert!(is_spent(&again) || again.body == order.body, "{}", again.text());
            is_spent(&again)
        })
        .await;
        let spent = app.order("order", 2).await;
        assert_eq!(
            (spent.header("location"), &spent.json()["new_key_safe"]),
            (Some(location.as_str()), &json!(false))
        );
        assert_eq!(app.order("order", 3).await.status, 422, "the fingerprint is kept as long as the key");
        // Past the key's retention it is new: what has no natural key is executed again, an order is still refused.
        until("the probe's key is forgotten", BOUND, || async {
            let again = probe(&app, "probe", "empty_object").await;
            assert!(is_spent(&again) || again.status == 200, "{}", again.text());
            ran(&app).await == 2
        })
        .await;
        for quantity in [2, 3] {
            let refused = app.order("order", quantity).await;
            assert!(is_spent(&refused), "{}", refused.text());
            assert_eq!(refused.header("location"), Some(location.as_str()), "the unique index answers");
        }
        let unknown = json!({ "items": [{ "sku": "NOPE", "quantity": 1 }] });
        assert!(
            is_spent(&app.post("/v1/orders", "order", &unknown).await),
            "also when it would now be refused"
        );
        let orders: i64 = app.db.query_one("SELECT count(*) FROM orders", &[]).await.expect("orders").get(0);
        assert_eq!(orders, 1);
    }
);

in_every_world!(an_answer_says_until_when_it_is_replayed_and_whose_it_was, |app| async move {
    let first = app.order("K", 2).await;
    let (expires, id) = (first.header("idempotency-expires"), first.header("x-request-id"));
    assert!(expires.is_some_and(|date| date.ends_with(" GMT")), "{expires:?}");
    assert_eq!(first.header("original-request-id"), None);
    for _ in 0..3 {
        let again = app.order("K", 2).await;
        assert_eq!(again.header("idempotency-expires"), expires);
        assert_eq!(again.header("original-request-id"), id);
        assert_ne!(again.header("x-request-id"), id);
    }
});

/// A refill has the rest of the record's life, and a replay prolongs nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_refill_prolongs_nothing() {
    let app = App::builder(World::Up).start().await;
    assert_eq!(app.order("K", 2).await.status, 201);
    let name = app.redis_name("K").await;
    let expiry: i64 = app.redis(&["PEXPIRETIME", &name]).await;
    for _ in 0..3 {
        let _: () = app.redis(&["FLUSHALL"]).await;
        assert_eq!(app.order("K", 2).await.header("x-cache-lookup"), Some("MISS"));
        assert_eq!(app.order("K", 2).await.header("x-cache-lookup"), Some("HIT"));
        assert_eq!(app.redis::<i64>(&["PEXPIRETIME", &name]).await, expiry);
    }
    let record = "SELECT floor(extract(epoch FROM result_expires_at) * 1000)::int8 FROM idempotency_records";
    assert_eq!(app.db.query_one(record, &[]).await.expect("the record").get::<_, i64>(0), expiry);
}

in_every_world!(a_secret_is_shown_once_and_stored_nowhere, |app| async move {
    let first = probe(&app, "K", "secret").await;
    assert_eq!((first.status, &first.json()["secret"]), (201, &json!("shown-once")));
    for _ in 0..3 {
        let again = probe(&app, "K", "secret").await;
        assert!(is_spent(&again), "{}", again.text());
        assert_eq!(again.header("location"), Some("/v1/probes/p1"));
    }
    assert_eq!(ran(&app).await, 1);
    assert_eq!(probe(&app, "K", "empty_object").await.status, 422);
    let kept = "SELECT count(*) FROM idempotency_records WHERE response_body IS NOT NULL OR response_headers::text LIKE '%shown-once%'";
    assert_eq!(app.db.query_one(kept, &[]).await.expect("records").get::<_, i64>(0), 0);
    if app.redis.is_some() {
        for name in app.redis::<Vec<String>>(&["KEYS", "*"]).await {
            let value: Vec<u8> = app.redis(&["GET", &name]).await;
            assert!(!String::from_utf8_lossy(&value).contains("shown-once"), "{name}");
        }
    }
});

in_every_world!(a_big_answer_stays_in_postgresql, |app| async move {
    let first = probe(&app, "K", "large").await;
    assert_eq!((first.status, first.body.len() > 70_000), (200, true));
    for _ in 0..3 {
        let again = probe(&app, "K", "large").await;
        assert_eq!((again.status, again.body == first.body), (200, true));
        assert_eq!(again.header("x-cache-lookup"), Some("MISS"));
    }
    assert_eq!(ran(&app).await, 1);
    if app.world == World::Up {
        let name = app.redis_name("K").await;
        assert!(app.redis::<i64>(&["STRLEN", &name]).await < 100, "only the marker");
    }
});

in_every_world!(an_answer_that_is_too_big_to_store_is_recorded_as_done, |app| async move {
    let first = probe(&app, "K", "huge").await;
    assert_eq!((first.status, first.body.len() > 2_000_000), (201, true));
    for _ in 0..2 {
        let again = probe(&app, "K", "huge").await;
        assert!(is_spent(&again), "{}", again.text());
        assert_eq!(again.header("location"), Some("/v1/probes/huge"));
    }
    assert_eq!(ran(&app).await, 1);
});

/// What one key takes in Redis, beside the value that the usual way (a JSON text with hash, status and body) would store.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_key_takes_no_more_memory_than_the_usual_value() {
    let app = App::builder(World::Up).start().await;
    assert_eq!(probe(&app, "8e03978e-40d5-43e8-bc93-6894a57f9324", "empty_object").await.status, 200);
    let name = app.redis_name("8e03978e-40d5-43e8-bc93-6894a57f9324").await;
    let ours: i64 = app.redis(&["MEMORY", "USAGE", &name]).await;
    let usual: Value =
        json!({ "state": "done", "hash": "a".repeat(64), "user": 1, "status": 200, "body": "{}" });
    let _: () = app
        .redis(&["SET", "usual:8e03978e-40d5-43e8-bc93-6894a57f9324", &usual.to_string(), "EX", "86400"])
        .await;
    let theirs: i64 = app.redis(&["MEMORY", "USAGE", "usual:8e03978e-40d5-43e8-bc93-6894a57f9324"]).await;
    println!("ours {ours}, usual {theirs}");
    assert!(ours <= theirs, "{ours} against {theirs} bytes");
    assert_eq!(app.effects("none").await, Effects::NONE);
}
