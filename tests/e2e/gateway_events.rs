//! What the payment gateway tells us: believed when it is signed, kept once, however often it comes.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use testkit::{Request, Response, until};

use crate::harness::sandbox::Sandbox;
use crate::harness::voyage::BOUND;
use crate::harness::{App, World, in_every_world};

/// `whsec_` and the base64 of [`SECRET`].
pub const CONFIGURED: &str = "whsec_YSBzZWNyZXQgb2YgdGhlIHRlc3Rz";
pub const SECRET: &[u8] = b"a secret of the tests";

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

pub fn event(id: &str, account: Option<i64>) -> Value {
    let metadata = account.map_or_else(|| json!({}), |account| json!({ "account": account.to_string() }));
    let object = json!({ "id": "pi_1", "amount": 500, "metadata": metadata });
    json!({ "id": id, "object": "event", "type": "payment_intent.succeeded", "created": 1, "data": { "object": object } })
}

/// A message as the gateway sends it, signed by an implementation that is not the service's.
pub fn signed(secret: &[u8], id: &str, timestamp: u64, body: &str) -> Request {
    Request::post("/v1/gateway-events")
        .header("Content-Type", "application/json")
        .header("webhook-id", id)
        .header("webhook-timestamp", timestamp.to_string())
        .header("webhook-signature", sandbox_gateway::sign(secret, id, timestamp, body))
        .body(body)
}

async fn deliver(app: &App, event: &Value) -> Response {
    let id = event["id"].as_str().expect("an id");
    app.send(&signed(SECRET, id, now(), &event.to_string())).await
}

/// Events that are kept, and records of keys.
async fn kept(app: &App) -> (i64, i64) {
    let sql = "SELECT (SELECT count(*) FROM gateway_events), (SELECT count(*) FROM idempotency_records)";
    let row = app.db.query_one(sql, &[]).await.expect("counts");
    (row.get(0), row.get(1))
}

in_every_world!(
    an_event_is_kept_once_however_often_it_comes,
    |builder| builder.env("GATEWAY_WEBHOOK_SECRET", CONFIGURED),
    |app| async move {
        let account = app.account().await;
        let mut event = event("evt_1", Some(account));
        let first = deliver(&app, &event).await;
        assert_eq!((first.status, first.header("idempotent-replayed")), (204, None), "{}", first.text());
        for worded in [json!(1), json!({ "pending_webhooks": 2 })] {
            // The same event may be worded otherwise the next time, as gateways do.
            event["more"] = worded;
            let again = deliver(&app, &event).await;
            assert_eq!((again.status, again.header("idempotent-replayed")), (204, Some("true")));
        }
        assert_eq!(kept(&app).await, (1, 1));
        let row =
            app.db.query_one("SELECT account_id, type, data->'object'->>'id' FROM gateway_events", &[]).await;
        let row = row.expect("the event");
        let stored: (i64, &str, &str) = (row.get(0), row.get(1), row.get(2));
        assert_eq!(stored, (account, "payment_intent.succeeded", "pi_1"));
        // The record is forgotten one day; the event is still there once.
        app.db.batch_execute("DELETE FROM idempotency_records").await.expect("forgotten");
        if app.redis.is_some() {
            let _: () = app.redis(&["FLUSHALL"]).await;
        }
        assert_eq!(deliver(&app, &event).await.status, 204);
        assert_eq!(kept(&app).await, (1, 1));
    }
);

in_every_world!(
    what_is_not_signed_is_refused_and_takes_no_key,
    |builder| builder.env("GATEWAY_WEBHOOK_SECRET", CONFIGURED),
    |app| async move {
        let body = event("evt_1", Some(app.account().await)).to_string();
        let good = || signed(SECRET, "evt_1", now(), &body);
        let unsigned = Request::post("/v1/gateway-events")
            .header("Content-Type", "application/json")
            .body(body.as_str());
        let with_key = unsigned.clone().header("Authorization", format!("Bearer {}", app.api_key));
        for (what, bad) in [
            ("another secret", signed(b"another secret", "evt_1", now(), &body)),
            ("another id", good().header("webhook-id", "evt_2")),
            ("another body", good().body(body.replace("500", "501"))),
            ("too old", signed(SECRET, "evt_1", now() - 400, &body)),
            ("from the future", signed(SECRET, "evt_1", now() + 400, &body)),
            ("unsigned", unsigned),
            ("an API key instead", with_key),
        ] {
            let answer = app.send(&bad).await;
            assert_eq!(
                (answer.status, answer.json()["code"].as_str()),
                (401, Some("unauthenticated")),
                "{what}"
            );
        }
        for (what, body) in
            [("no JSON", "{"), ("no event", "{}"), ("no id", r#"{"id":"","type":"t","data":{}}"#)]
        {
            let answer = app.send(&signed(SECRET, "evt_1", now(), body)).await;
            assert_eq!(
                (answer.status, answer.json()["code"].as_str()),
                (400, Some("invalid-request")),
                "{what}"
            );
        }
        assert_eq!(kept(&app).await, (0, 0));
        assert_eq!(app.send(&good()).await.status, 204, "and the true one is taken");
    }
);

/// Each account has its own keys; an event that names none is nobody's.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_account_of_the_payment_is_the_scope() {
    let app = App::builder(World::Up).env("GATEWAY_WEBHOOK_SECRET", CONFIGURED).start().await;
    let account = app.account().await;
    // Another account may have used the same text for its own work.
    let strangers = Request::post("/v1/orders")
        .header("Authorization", format!("Bearer {}", app.other_api_key))
        .header("Idempotency-Key", "evt_1")
        .json(&crate::harness::order(1));
    assert_eq!(app.send(&strangers).await.status, 201);
    for (id, named) in [("evt_1", Some(account)), ("evt_2", None), ("evt_3", Some(-1))] {
        assert_eq!(deliver(&app, &event(id, named)).await.status, 204, "{id}");
    }
    let scopes = "SELECT events.account_id, records.account_id FROM gateway_events AS events
                    JOIN idempotency_records AS records ON key = id AND request_path = '/v1/gateway-events' ORDER BY id";
    let rows = app.db.query(scopes, &[]).await.expect("both");
    let scopes: Vec<(Option<i64>, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(scopes, [(Some(account), account), (None, 0), (None, 0)]);
    let seen = app.get("/v1/idempotency-keys/evt_1").await;
    assert_eq!((seen.status, seen.json()["state"].as_str()), (200, Some("completed")));
}

/// What the gateway tells of a charge, of a refund and of a decline is the account's whose order it is about.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_the_gateway_tells_of_an_order_is_its_accounts() {
    let mut sandbox = Sandbox::start().await;
    let builder = App::builder(World::Up).env("GATEWAY_WEBHOOK_SECRET", CONFIGURED);
    let builder = sandbox.env().iter().fold(builder, |builder, (name, value)| builder.env(name, value));
    let app = builder.start().await;
    sandbox.tell(app.replica().api, CONFIGURED).await;
    let order = app.order("order", 2).await.header("location").expect("a location").to_owned();
    for (key, path, body, status) in [
        ("declined", "payments", json!({ "source": "tok_chargeDeclined" }), 402),
        ("pay", "payments", json!({ "source": "tok_visa" }), 201),
        ("refund", "refunds", json!({ "amount": 1 }), 201),
    ] {
        let answer = app.post(&format!("{order}/{path}"), key, &body).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
    let told = "SELECT account_id, type FROM gateway_events ORDER BY type";
    let told = until("the gateway has told all", BOUND, || async {
        let rows = app.db.query(told, &[]).await.expect("events");
        let told: Vec<(Option<i64>, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        Some(told).filter(|told| told.len() == 3)
    })
    .await;
    let account = Some(app.account().await);
    let kinds = ["payment_intent.payment_failed", "payment_intent.succeeded", "refund.created"];
    assert_eq!(told, kinds.map(|kind| (account, kind.to_owned())));
}

/// Without a secret nothing can be believed; whoever configures one later gets the redelivery.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn without_a_secret_nothing_is_believed() {
    let app = App::builder(World::Up).start().await;
    let answer = deliver(&app, &event("evt_1", None)).await;
    assert_eq!((answer.status, answer.json()["code"].as_str()), (503, Some("gateway-not-configured")));
    assert_eq!(app.get("/problems/gateway-not-configured").await.status, 200);
    assert_eq!(kept(&app).await, (0, 0));
}
