//! The contract's answer table, row by row: what a caller is told, and that it is true.
//!
//! Every case starts with Redis dying at the world's point; `strike` lets it die again for a later step. What makes
//! PostgreSQL fail is a trigger or a constraint on `orders`. Stops and restarts of the stores are not here.

use serde_json::{Value, json};
use testkit::Response;
use uuid::Uuid;

use crate::harness::database::{self, Effects};
use crate::harness::{App, in_every_world};

/// What every problem says, whatever its kind; returns its body.
#[track_caller]
fn assert_described(answer: &Response, status: u16, code: &str) -> Value {
    let context = format!("{} {:?} {}", answer.status, answer.headers, answer.text());
    assert_eq!(answer.status, status, "{context}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{context}");
    let body = answer.json();
    assert_eq!(body["code"], code, "{context}");
    assert_eq!(body["status"], status, "{context}");
    assert_eq!(body["type"], format!("/problems/{code}"), "{context}");
    let link = format!("</problems/{code}>; rel=\"describedby\"");
    assert_eq!(answer.header("link"), Some(link.as_str()), "{context}");
    for member in ["title", "detail"] {
        assert!(body[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {context}");
    }
    let id = answer.header("x-request-id").expect("every answer has a request id");
    let instance = body["instance"].as_str().expect("an instance");
    // A stored refusal names the request that it was decided for.
    let replayed = answer.header("idempotent-replayed").is_some();
    assert_eq!(instance.ends_with(id), !replayed, "{context}");
    body
}

/// A problem of the framework: nothing was stored, and the caller is told what to do with the key.
#[track_caller]
pub fn assert_problem(answer: &Response, status: u16, code: &str) -> Value {
    let body = assert_described(answer, status, code);
    let (retryable, same_key) = match code {
        "idempotency-key-missing" | "idempotency-key-invalid" => (true, "corrected"),
        "invalid-request" | "unsupported-media-type" | "body-too-large" => (false, "corrected"),
        "not-found" | "method-not-allowed" => (false, "corrected"),
        "unauthenticated" => (false, "yes"),
        "request-in-progress" | "temporarily-unavailable" | "internal" => (true, "yes"),
        "idempotency-key-reused" => (false, "first-payload"),
        "already-completed" => (false, "no"),
        unknown => panic!("{unknown} is not a code of the framework"),
    };
    assert_eq!(body["retryable"], retryable, "{body}");
    assert_eq!(body["same_key"], same_key, "{body}");
    assert_eq!(body["new_key_safe"], false, "{body}");
    assert_eq!(answer.header("idempotent-replayed"), None);
    let seconds = answer.header("retry-after").map(|text| text.parse::<u64>().expect("whole seconds"));
    let milliseconds = body["retry_after_ms"].as_u64();
    if matches!(code, "request-in-progress" | "temporarily-unavailable") {
        assert!(seconds.is_some_and(|seconds| seconds >= 1), "Retry-After {seconds:?}");
        assert!(milliseconds.is_some_and(|span| span >= 1), "retry_after_ms {milliseconds:?}");
    } else {
        assert_eq!((seconds, milliseconds), (None, None), "{code} does not say when to retry");
    }
    assert_eq!(answer.header("location").is_some(), code == "already-completed", "{:?}", answer.headers);
    body
}

/// A business rule's refusal, as first answer or replay: final, and a new key is safe.
#[track_caller]
pub fn assert_rejection(answer: &Response, status: u16, code: &str) -> Value {
    let body = assert_described(answer, status, code);
    assert_eq!(body["retryable"], false, "{body}");
    assert_eq!(body["same_key"], Value::Null, "{body}");
    assert_eq!(body["new_key_safe"], true, "{body}");
    assert_eq!(answer.header("retry-after"), None);
    body
}

/// The first answer of a key: no mark of a replay.
#[track_caller]
pub fn assert_first(answer: &Response, status: u16) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.header("idempotent-replayed"), None);
    assert_eq!(answer.header("x-cache-lookup"), None);
    assert!(answer.header("x-request-id").is_some());
}

/// The first answer again, marked as such, under a request id of its own.
#[track_caller]
pub fn assert_replay(first: &Response, again: &Response) {
    assert_eq!((again.status, again.text()), (first.status, first.text()));
    assert_eq!(again.body, first.body);
    for name in ["location", "content-type", "link", "content-length"] {
        assert_eq!(again.header(name), first.header(name), "{name}");
    }
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert!(matches!(again.header("x-cache-lookup"), Some("HIT" | "MISS")), "{:?}", again.headers);
    assert_ne!(again.header("x-request-id"), first.header("x-request-id"));
}

/// No word of the database, of the machine or of an error that was not written for callers.
#[track_caller]
fn assert_discreet(answer: &Response) {
    let text = answer.text();
    for internal in ["secret", "INSERT", "SELECT", "COMMIT", "interfere", "SQLSTATE", "127.0.0.1", "panicked"]
    {
        assert!(!text.contains(internal), "{internal:?} is told to the caller: {text}");
    }
}

/// Everything that a command could change: orders, items, events, stock.
async fn shop(app: &App) -> (i64, i64, i64, String) {
    let sql = "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM order_items), (SELECT count(*) FROM events),
                      (SELECT string_agg(sku || '=' || stock, ' ' ORDER BY sku) FROM products)";
    let row = app.db.query_one(sql, &[]).await.expect("the shop");
    (row.get(0), row.get(1), row.get(2), row.get(3))
}

async fn probes_ran(app: &App) -> i64 {
    let sql = "SELECT count(*) FROM events WHERE type = 'probe.ran'";
    app.db.query_one(sql, &[]).await.expect("events").get(0)
}

async fn probe(app: &App, key: &str, then: &str) -> Response {
    app.post("/v1/probes", key, &json!({ "then": then })).await
}

async fn flush(app: &App) {
    if app.redis.is_some() {
        let _: () = app.redis(&["FLUSHALL"]).await;
    }
}

async fn sql(app: &App, statements: &str) {
    app.db.batch_execute(statements).await.expect("SQL");
}

in_every_world!(
    a_replay_is_the_same_from_redis_and_from_postgres,
    |builder| builder.env("REDIS_TIMEOUT", "5s"),
    |app| async move {
        let body = json!({
            "items": [{ "sku": "TEA-001", "quantity": 3 }, { "sku": "TEAPOT-001", "quantity": 1 }],
            "note": "1.10 / 100 / 9007199254740993 – \"é\" \\/ 茶 [] \u{1f375} 1234567890123456789",
        });
        let first = app.post("/v1/orders", "K", &body).await;
        assert_first(&first, 201);
        assert_eq!(first.header("content-type"), Some("application/json"));
        assert_eq!(first.json()["note"], body["note"]);
        assert_eq!(first.json()["total"], json!({ "amount": 3 * 1290 + 3900, "currency": "EUR" }));
        let location = first.header("location").expect("a Location").to_owned();
        assert_eq!(app.get(&location).await.body, first.body);

        let mut tiers = Vec::new();
        for flushed in [false, true, false] {
            if flushed {
                flush(&app).await;
            }
            let again = app.post("/v1/orders", "K", &body).await;
            assert_replay(&first, &again);
            tiers.push(again.header("x-cache-lookup").unwrap_or_default().to_owned());
        }
        match app.world {
            World::Up => assert_eq!(tiers, ["HIT", "MISS", "HIT"]),
            World::Absent => assert_eq!(tiers, ["MISS", "MISS", "MISS"]),
            _ => assert_eq!(tiers[1..], ["MISS", "HIT"], "PostgreSQL's replay refills Redis"),
        }
        assert_eq!(app.effects("K").await, Effects::ONCE);
    }
);

in_every_world!(an_empty_and_a_large_answer_are_replayed_as_they_were, |app| async move {
    let large = format!("{{\"text\":\"{}\"}}", "x".repeat(70 * 1024));
    for (then, status, body) in [("no_content", 204, ""), ("empty_object", 200, "{}"), ("large", 200, &large)]
    {
        app.heal();
        app.strike();
        let first = probe(&app, then, then).await;
        assert_first(&first, status);
        assert!(first.body == body.as_bytes(), "{then}: {} bytes", first.body.len());
        for flushed in [false, true, false] {
            if flushed {
                flush(&app).await;
            }
            let again = probe(&app, then, then).await;
            assert_replay(&first, &again);
            assert!(then != "large" || again.header("x-cache-lookup") == Some("MISS"), "too large for Redis");
        }
        assert_problem(&probe(&app, then, "reject").await, 422, "idempotency-key-reused");
    }
    assert_eq!(probes_ran(&app).await, 3);
});

in_every_world!(
    a_duplicate_of_a_running_request_is_told_to_come_back,
    |builder| builder.env("DATABASE_LOCK_TIMEOUT", "10s"),
    |app| async move {
        let frozen = app.freeze().await;
        let first = app.order_in_background("K", 2);
        app.waiting_for_lock(1).await;
        // The world has struck the first; the duplicates are to meet what that left behind.
        app.heal();
        for _ in 0..2 {
            assert_problem(&app.order("K", 2).await, 409, "request-in-progress");
        }
        let other = app.order("K", 3).await;
        if app.world.remembers_running() {
            assert_problem(&other, 422, "idempotency-key-reused");
        } else {
            assert_problem(&other, 409, "request-in-progress");
        }
        assert_problem(&app.order("K", 2).await, 409, "request-in-progress");
        app.strike();
        frozen.thaw().await;
        let first = first.await.expect("the first is answered");
        assert_first(&first, 201);
        assert_replay(&first, &app.order("K", 2).await);
        assert_problem(&app.order("K", 3).await, 422, "idempotency-key-reused");
        assert_eq!(app.effects("K").await, Effects::ONCE);
    }
);

in_every_world!(a_business_rejection_is_stored_and_changes_nothing, |app| async move {
    sql(
        &app,
        "UPDATE products SET stock = 5 WHERE sku = 'TEA-002';
         INSERT INTO products VALUES ('USD-001', 'Cup', 100, 'USD', 10, 10)",
    )
    .await;
    let made = app.order("made", 1).await;
    let cancel = format!("{}/cancel", made.header("location").expect("a Location"));
    assert_first(&app.post(&cancel, "cancelled", &json!({})).await, 200);
    let nowhere = format!("/v1/orders/{}/cancel", Uuid::now_v7());
    let items = |items: Value| json!({ "items": items });
    let too_many = items(json!([{ "sku": "TEA-002", "quantity": 6 }]));
    let cases = [
        ("/v1/orders", items(json!([{ "sku": "NOPE", "quantity": 1 }])), 422, "unknown-sku"),
        ("/v1/orders", too_many.clone(), 422, "insufficient-stock"),
        (
            "/v1/orders",
            items(json!([{ "sku": "TEA-001", "quantity": 1 }, { "sku": "TEA-002", "quantity": 6 }])),
            422,
            "insufficient-stock",
        ),
        (
            "/v1/orders",
            items(json!([{ "sku": "TEA-001", "quantity": 1 }, { "sku": "USD-001", "quantity": 1 }])),
            422,
            "mixed-currencies",
        ),
        (nowhere.as_str(), json!({}), 404, "not-found"),
        (cancel.as_str(), json!({}), 409, "order-not-cancellable"),
        ("/v1/probes", json!({ "then": "reject" }), 418, "teapot"),
    ];
    let before = shop(&app).await;
    for (index, (path, body, status, code)) in cases.iter().enumerate() {
        let key = format!("rejected-{index}");
        app.strike();
        let refused = app.post(path, &key, body).await;
        assert_rejection(&refused, *status, code);
        assert_eq!(refused.header("idempotent-replayed"), None);
        for _ in 0..2 {
            let again = app.post(path, &key, body).await;
            assert_rejection(&again, *status, code);
            assert_replay(&refused, &again);
        }
        assert_problem(&app.order(&key, 1).await, 422, "idempotency-key-reused");
        assert_eq!(app.effects(&key).await, Effects { orders: 0, events: 0, records: 1 }, "{code}");
    }
    assert_eq!(shop(&app).await, before);
    sql(&app, "UPDATE products SET stock = 6 WHERE sku = 'TEA-002'").await;
    assert_rejection(&app.post("/v1/orders", "rejected-1", &too_many).await, 422, "insufficient-stock");
    assert_first(&app.post("/v1/orders", "decided-afresh", &too_many).await, 201);
});

in_every_world!(a_failed_handler_leaves_nothing_and_frees_its_key, |app| async move {
    for (done, then) in ["fail", "panic", "commit", "ignore_error"].into_iter().enumerate() {
        app.heal();
        app.strike();
        for _ in 0..2 {
            let failed = probe(&app, then, then).await;
            assert_problem(&failed, 500, "internal");
            assert_discreet(&failed);
        }
        assert_eq!(app.effects(then).await, Effects::NONE);
        assert_eq!(
            probes_ran(&app).await,
            i64::try_from(done).expect("a few"),
            "{then} left its event behind"
        );
        // Nothing was stored, so even another payload is the key's first.
        assert_first(&probe(&app, then, "empty_object").await, 200);
    }
});

in_every_world!(
    a_handler_that_never_ends_is_rolled_back_and_frees_its_key,
    |builder| builder.env("IDEMPOTENCY_EXECUTE_MAX", "1s"),
    |app| async move {
        let hung = probe(&app, "K", "hang").await;
        assert_problem(&hung, 503, "temporarily-unavailable");
        assert_eq!((probes_ran(&app).await, app.effects("K").await), (0, Effects::NONE));
        assert_first(&probe(&app, "K", "empty_object").await, 200);
        assert_eq!(probes_ran(&app).await, 1);
    }
);

in_every_world!(conflicts_in_the_database_are_run_again_a_bounded_number_of_times, |app| async move {
    for code in ["40001", "40P01"] {
        app.heal();
        app.strike();
        let raise = format!("RAISE EXCEPTION 'secret conflict' USING ERRCODE = '{code}';");
        let twice = format!("IF currval('attempts') <= 2 THEN {raise} END IF;");
        database::before_insert(&app.db, &twice).await;
        let again = format!("settled-{code}");
        assert_first(&app.order(&again, 2).await, 201);
        assert_eq!(app.effects(&again).await, Effects::ONCE);
        assert_eq!(database::attempts(&app.db).await, 3);

        database::before_insert(&app.db, &raise).await;
        sql(&app, "ALTER SEQUENCE attempts RESTART").await;
        let always = format!("given-up-{code}");
        app.strike();
        let given_up = app.order(&always, 2).await;
        assert_problem(&given_up, 503, "temporarily-unavailable");
        assert_discreet(&given_up);
        assert!((2..=10).contains(&database::attempts(&app.db).await), "attempts are bounded");
        assert_eq!(app.effects(&always).await, Effects::NONE);
        database::remove_triggers(&app.db).await;
        assert_first(&app.order(&always, 2).await, 201);
        sql(&app, "ALTER SEQUENCE attempts RESTART").await;
    }
});

in_every_world!(
    what_the_database_refuses_leaves_nothing_and_tells_no_internals,
    |builder| builder.env("DATABASE_STATEMENT_TIMEOUT", "1s"),
    |app| async move {
        let full = "RAISE EXCEPTION 'secret disk is full: INSERT' USING ERRCODE = '53100';";
        let cases = [("slow", 503), ("full", 503), ("check", 500)];
        for (key, status) in cases {
            app.heal();
            app.strike();
            match key {
                "slow" => database::before_insert(&app.db, "PERFORM pg_sleep(3);").await,
                "full" => database::before_insert(&app.db, full).await,
                _ => sql(&app, "ALTER TABLE orders ADD CONSTRAINT secret CHECK (false) NOT VALID").await,
            }
            let before = shop(&app).await;
            for _ in 0..2 {
                let refused = app.order(key, 2).await;
                let code = if status == 503 { "temporarily-unavailable" } else { "internal" };
                assert_problem(&refused, status, code);
                assert_discreet(&refused);
            }
            assert_eq!((app.effects(key).await, shop(&app).await), (Effects::NONE, before));
            database::remove_triggers(&app.db).await;
            sql(&app, "ALTER TABLE orders DROP CONSTRAINT IF EXISTS secret").await;
            assert_first(&app.order(key, 2).await, 201);
            assert_eq!(app.effects(key).await, Effects::ONCE);
        }
    }
);

in_every_world!(a_commit_that_fails_has_freed_its_key_when_it_is_answered, |app| async move {
    database::at_commit(&app.db, "RAISE EXCEPTION 'secret rule';").await;
    let before = shop(&app).await;
    // PostgreSQL tells the error before it lets the transaction's locks go: an answer in between turns a retry away.
    for attempt in 1..=100 {
        let failed = app.order("K", 2).await;
        assert_eq!(failed.status, 500, "attempt {attempt}: {}", failed.text());
        assert_problem(&failed, 500, "internal");
        assert_discreet(&failed);
    }
    assert_eq!((app.effects("K").await, shop(&app).await), (Effects::NONE, before));
    database::remove_triggers(&app.db).await;
    assert_first(&app.order("K", 2).await, 201);
    assert_eq!(app.effects("K").await, Effects::ONCE);
});

in_every_world!(a_conflict_at_commit_is_run_again, |app| async move {
    sql(&app, "CREATE SEQUENCE commits").await;
    let twice =
        "IF nextval('commits') % 3 <> 0 THEN RAISE EXCEPTION 'secret' USING ERRCODE = '40001'; END IF;";
    database::at_commit(&app.db, twice).await;
    for index in 0..20 {
        let key = format!("K{index}");
        let first = app.order(&key, 2).await;
        assert_eq!(first.status, 201, "order {index}, the first with its key: {}", first.text());
        assert_first(&first, 201);
        assert_eq!(app.effects(&key).await, Effects::ONCE);
    }
});
