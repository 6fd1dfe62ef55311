//! Every event of a committed transaction is delivered at least once, and none of another one, whatever dies in between.

use std::time::Duration;

use serde_json::json;
use testkit::{Request, until};

use crate::harness::database::{at_commit, connect, remove_triggers};
use crate::harness::deliveries::{all_delivered, app, count, in_state, ordered, time_passes};
use crate::harness::receiver::{Answer, Received, Receiver};
use crate::harness::{App, World};

const BOUND: Duration = Duration::from_secs(20);

/// Killed after the receiver has it and before that is marked: it comes again, under the same id.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_event_of_a_killed_relay_comes_again_under_its_id() {
    let mut app = app().await;
    let receiver = Receiver::start().await;
    receiver.register(&app).await;
    receiver.answer_next([Answer::Silence]);
    ordered(&app, "K").await;
    receiver.has_received(1).await;
    app.kill().await;
    let left = "SELECT count(*) FROM webhook_endpoints WHERE not_before BETWEEN now() AND now() + interval '30 seconds'";
    assert_eq!(count(&app, left, &[]).await, 1, "the dead relay's lease protects it, for a bounded time");
    assert_eq!(in_state(&app, "pending").await, 1);
    app.restart().await;
    time_passes(&app).await;
    let came = receiver.has_received(2).await;
    assert_eq!((came[0].id(), &came[0].body), (came[1].id(), &came[1].body));
    all_delivered(&app, 1).await;
    assert_eq!(count(&app, "SELECT count(*) FROM events", &[]).await, 1);
}

/// Killed right after COMMIT, before anybody delivered anything: it is delivered by the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_event_outlives_the_process_that_wrote_it() {
    let mut app = app().await;
    let receiver = Receiver::start().await;
    receiver.register(&app).await;
    // Nobody may take the endpoint, so nothing can be delivered before the kill.
    app.db.batch_execute("UPDATE webhook_endpoints SET not_before = 'infinity'").await.expect("held");
    ordered(&app, "K").await;
    app.kill().await;
    assert_eq!(receiver.received().len(), 0);
    app.restart().await;
    time_passes(&app).await;
    receiver.has_received(1).await;
    all_delivered(&app, 1).await;
}

/// A relay that stood still for longer than its lease marks nothing: another one owns the endpoint.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_relay_that_lost_its_lease_marks_nothing() {
    let app = app().await;
    let receiver = Receiver::start().await;
    receiver.register(&app).await;
    receiver.answer_next([Answer::Silence]);
    ordered(&app, "K").await;
    receiver.has_received(1).await;
    // Somebody else has taken over while the first try hangs.
    app.db
        .batch_execute("UPDATE webhook_endpoints SET claim = gen_random_uuid(), not_before = 'infinity'")
        .await
        .expect("taken over");
    receiver.speak();
    app.replica().process.line_containing("somebody else works for this subscriber").await;
    let untouched = "SELECT count(*) FROM event_deliveries WHERE state = 'pending' AND attempts = 0 AND last_error IS NULL";
    assert_eq!(count(&app, untouched, &[]).await, 1);
}

/// What is rolled back, refused or failed delivers nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nothing_is_delivered_for_what_was_rolled_back() {
    let app = app().await;
    let receiver = Receiver::start().await;
    receiver.register(&app).await;
    let probe = async |then: &str| app.post("/v1/probes", then, &json!({ "then": then })).await.status;
    assert_eq!([probe("reject").await, probe("fail").await, probe("panic").await], [418, 500, 500]);
    at_commit(&app.db, "RAISE EXCEPTION 'no';").await;
    assert_eq!(app.order("never", 1).await.status, 500);
    remove_triggers(&app.db).await;
    let order = ordered(&app, "K").await;
    let came = receiver.has_received(1).await;
    all_delivered(&app, 1).await;
    assert_eq!((came.len(), came[0].order()), (1, order));
}

/// The first order commits long after later ones: it is delivered all the same, and none is skipped.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_slow_commit_is_not_skipped() {
    let app = App::builder(World::Up)
        .env("WEBHOOK_ALLOW_PRIVATE", "1")
        .env("DATABASE_LOCK_TIMEOUT", "20s")
        .start()
        .await;
    let receiver = Receiver::start().await;
    receiver.register(&app).await;
    at_commit(&app.db, "IF NEW.note = 'slow' THEN PERFORM pg_advisory_xact_lock_shared(1); END IF;").await;
    let gate = connect(&app.database_url).await;
    gate.batch_execute("SELECT pg_advisory_lock(1)").await.expect("the gate");
    let others = "SELECT sku FROM products WHERE sku <> 'TEA-001' ORDER BY sku LIMIT 3";
    let others = app.db.query(others, &[]).await.expect("the catalogue");
    let slow: Vec<_> = others
        .iter()
        .map(|row| {
            let sku: &str = row.get(0);
            let body = json!({ "items": [{ "sku": sku, "quantity": 1 }], "note": "slow" });
            let (api, request) = (app.replica().api, app.request("/v1/orders", sku, &body));
            tokio::spawn(async move { testkit::send(api, &request).await.expect("an answer") })
        })
        .collect();
    assert_eq!(slow.len(), 3);
    app.waiting_for_lock(3).await;
    let mut expected = Vec::new();
    for number in 0..40 {
        expected.push(ordered(&app, &format!("fast-{number}")).await);
    }
    assert_eq!(receiver.has_received(40).await.len(), 40);
    gate.batch_execute("SELECT pg_advisory_unlock(1)").await.expect("open");
    for order in slow {
        expected.push(order.await.expect("an answer").json()["id"].as_str().expect("an id").to_owned());
    }
    let came = receiver.has_received(43).await;
    all_delivered(&app, 43).await;
    let mut delivered: Vec<String> = came.iter().map(Received::order).collect();
    delivered.sort();
    expected.sort();
    assert_eq!(delivered, expected);
}

/// Several replicas on one backlog: each event once, and each endpoint one at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn replicas_share_the_work_and_deliver_each_event_once() {
    let app = app().await;
    let _others = [app.new_replica().await, app.new_replica().await];
    let mut receivers = Vec::new();
    for _ in 0..4 {
        let receiver = Receiver::start().await;
        receiver.register(&app).await;
        receiver.answer_next([Answer::Silence]);
        receivers.push(receiver);
    }
    let mut orders = Vec::new();
    for number in 0..60 {
        orders.push(ordered(&app, &format!("K{number}")).await);
    }
    for receiver in &receivers {
        assert_eq!(receiver.has_received(1).await.len(), 1, "the others wait for the first");
        receiver.speak();
    }
    all_delivered(&app, 240).await;
    for receiver in receivers {
        let came: Vec<String> = receiver.received().iter().map(Received::order).collect();
        assert_eq!(came, orders, "once each, in order");
    }
}

/// What waits for an endpoint that is deleted is forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_waits_for_a_deleted_endpoint_is_forgotten() {
    let app = app().await;
    let receiver = Receiver::start().await;
    let (endpoint, _) = receiver.register(&app).await;
    app.db.batch_execute("UPDATE webhook_endpoints SET not_before = 'infinity'").await.expect("held");
    ordered(&app, "K").await;
    assert_eq!(in_state(&app, "pending").await, 1);
    let delete = Request::new("DELETE", &format!("/v1/webhook-endpoints/{endpoint}"))
        .header("Authorization", format!("Bearer {}", app.api_key));
    assert_eq!(app.send(&delete).await.status, 204);
    until("it is forgotten", BOUND, async || {
        count(&app, "SELECT count(*) FROM event_deliveries", &[]).await == 0
    })
    .await;
    assert_eq!(receiver.received().len(), 0);
}

/// What is older than its retention goes, ours and the gateway's; what waits for its delivery stays, and so does what is young.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn old_events_are_forgotten_unless_somebody_waits_for_them() {
    let app = app().await;
    let receiver = Receiver::start().await;
    receiver.register(&app).await;
    // Nobody may take the endpoint, so what is for it waits.
    app.db.batch_execute("UPDATE webhook_endpoints SET not_before = 'infinity'").await.expect("held");
    let young = ordered(&app, "K").await;
    app.db
        .batch_execute(
            "INSERT INTO events (id, account_id, type, data, created_at)
             SELECT (lpad(to_hex((extract(epoch FROM now() - age) * 1000)::int8), 12, '0') || lpad(to_hex(n), 20, '0'))::uuid,
                    1, kind, '{}', now() - age
               FROM generate_series(1, 700) AS n, (VALUES ('old', interval '91 days'), ('kept', interval '89 days')) AS kinds (kind, age);
             UPDATE events SET type = 'awaited'
              WHERE id IN (SELECT id FROM events WHERE type = 'old' ORDER BY id LIMIT 3);
             INSERT INTO event_deliveries (subscriber_id, event_id)
             SELECT webhook_endpoints.id, events.id FROM events, webhook_endpoints WHERE type = 'awaited';
             INSERT INTO gateway_events (id, account_id, type, data, received_at)
             SELECT kind || n, 1, kind, '{}', now() - age
               FROM generate_series(1, 700) AS n, (VALUES ('old', interval '91 days'), ('kept', interval '89 days')) AS kinds (kind, age)",
        )
        .await
        .expect("planted");
    let of = async |table: &str, kind: &str| {
        count(&app, &format!("SELECT count(*) FROM {table} WHERE type = $1"), &[&kind]).await
    };
    until("old events are forgotten", BOUND, async || {
        of("events", "old").await + of("gateway_events", "old").await == 0
    })
    .await;
    assert_eq!((of("events", "awaited").await, of("events", "kept").await), (3, 700));
    assert_eq!(of("gateway_events", "kept").await, 700);
    app.db.batch_execute("UPDATE webhook_endpoints SET not_before = now()").await.expect("let go");
    assert!(receiver.has_received(4).await.iter().any(|came| came.json()["data"]["id"] == young.as_str()));
}

/// Own events only, newest first, in pages.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn events_are_listed_newest_first_and_only_to_their_account() {
    let app = App::builder(World::Up).start().await;
    let mut orders = Vec::new();
    for number in 0..5 {
        orders.push(ordered(&app, &format!("K{number}")).await);
    }
    orders.reverse();
    let (mut listed, mut path) = (Vec::new(), "/v1/events?limit=2".to_owned());
    loop {
        let page = app.get(&path).await;
        assert_eq!(page.status, 200, "{}", page.text());
        let page = page.json();
        for event in page["data"].as_array().expect("data") {
            let mut members: Vec<&str> =
                event.as_object().expect("an object").keys().map(String::as_str).collect();
            members.sort_unstable();
            assert_eq!(members, ["created_at", "data", "id", "type"]);
            assert_eq!(event["type"], "order.created");
            listed.push(event["data"]["id"].as_str().expect("an id").to_owned());
        }
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/events?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(listed, orders);
    let strangers =
        Request::get("/v1/events").header("Authorization", format!("Bearer {}", app.other_api_key));
    assert_eq!(app.send(&strangers).await.json(), json!({ "data": [], "next_cursor": null }));
    assert_eq!(app.send(&Request::get("/v1/events")).await.status, 401);
    assert_eq!(app.get("/v1/events?cursor=x").await.status, 400);
}

/// Another account's endpoints get nothing of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_account_gets_its_own_events_only() {
    let app = app().await;
    let (mine, theirs) = (Receiver::start().await, Receiver::start().await);
    mine.register(&app).await;
    let register = Request::post("/v1/webhook-endpoints")
        .header("Authorization", format!("Bearer {}", app.other_api_key))
        .header("Idempotency-Key", "K")
        .json(&json!({ "url": theirs.url() }));
    assert_eq!(app.send(&register).await.status, 201);
    ordered(&app, "K").await;
    mine.has_received(1).await;
    all_delivered(&app, 1).await;
    assert_eq!(theirs.received().len(), 0);
}
