//! Payments and refunds over the sandbox gateway: its ledger is the proof that nothing is charged or given back twice.

use std::sync::Arc;

use serde_json::{Value, json};
use testkit::{Response, until};

use crate::harness::sandbox::Sandbox;
use crate::harness::voyage::BOUND;
use crate::harness::{App, World};

/// What one order with quantity 1 of the first product costs, as the ledger has it, is whatever the order says.
struct Paid {
    order: String,
    amount: i64,
}

async fn app(world: World, sandbox: &Sandbox) -> App {
    let builder = App::builder(world).env("IDEMPOTENCY_LEASE", "1s").env("GATEWAY_TIMEOUT", "2s");
    sandbox.env().iter().fold(builder, |builder, (name, value)| builder.env(name, value)).start().await
}

async fn order(app: &App, key: &str) -> Paid {
    let made = app.order(key, 2).await.json();
    let id = made["id"].as_str().expect("an id").to_owned();
    Paid { order: format!("/v1/orders/{id}"), amount: made["total"]["amount"].as_i64().expect("an amount") }
}

async fn pay(app: &App, order: &Paid, key: &str, source: &str) -> Response {
    let path = format!("{}/payments", order.order);
    app.send(&app.request(&path, key, &json!({ "source": source })).bound(BOUND)).await
}

async fn refund(app: &App, order: &Paid, key: &str, amount: i64) -> Response {
    let path = format!("{}/refunds", order.order);
    app.send(&app.request(&path, key, &json!({ "amount": amount })).bound(BOUND)).await
}

async fn status(app: &App, order: &Paid) -> Value {
    app.get(&order.order).await.json()["status"].clone()
}

fn count(ledger: &Value, what: &str) -> usize {
    ledger[what].as_array().map_or(0, Vec::len)
}

/// Without a key in its own words, an operation's key at the gateway is ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_order_is_paid_once_and_then_neither_paid_nor_cancelled() {
    for world in [World::Up, World::Absent] {
        let sandbox = Sandbox::start().await;
        let app = app(world, &sandbox).await;
        let order = order(&app, "order").await;
        let first = pay(&app, &order, "K", "tok_visa").await;
        assert_eq!(first.status, 201, "{}", first.text());
        let payment = first.json();
        assert_eq!(
            (payment["status"].as_str(), payment["total"]["amount"].as_i64()),
            (Some("succeeded"), Some(order.amount))
        );
        let again = pay(&app, &order, "K", "tok_visa").await;
        assert_eq!(
            (again.status, &again.body, again.header("idempotent-replayed")),
            (201, &first.body, Some("true"))
        );
        assert_eq!(status(&app, &order).await, "paid");
        for (answer, code) in [
            (pay(&app, &order, "K2", "tok_visa").await, "order-not-payable"),
            (app.post(&format!("{}/cancel", order.order), "K3", &json!({})).await, "order-not-cancellable"),
        ] {
            assert_eq!((answer.status, answer.json()["code"].as_str()), (409, Some(code)));
            assert_eq!(app.get(answer.json()["type"].as_str().expect("a page")).await.status, 200);
        }
        assert_eq!(pay(&app, &order, "K2", "tok_visa").await.header("idempotent-replayed"), Some("true"));
        let ledger = sandbox.ledger().await;
        assert_eq!(
            (count(&ledger, "charges"), ledger["charges"][0]["amount"].as_i64()),
            (1, Some(order.amount))
        );
        let theirs = ledger["charges"][0]["idempotency_key"].as_str().expect("a key");
        assert!(theirs.starts_with("idem-") && !theirs.contains('K'), "{theirs}");
        assert_eq!(app.events("payment.succeeded").await, 1);
    }
}

/// A definite no is stored, and the order can be paid with another key.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_declined_payment_leaves_the_order_payable() {
    let sandbox = Sandbox::start().await;
    let app = app(World::Up, &sandbox).await;
    let order = order(&app, "order").await;
    // A source that the gateway does not have is the caller's mistake, as final as an empty card.
    for (key, source) in [("K", "tok_chargeDeclined"), ("K1", "tok_nonsense"), ("K2", "é😀")] {
        for _ in 0..2 {
            let declined = pay(&app, &order, key, source).await;
            assert_eq!(
                (declined.status, declined.json()["code"].as_str()),
                (402, Some("payment-declined")),
                "{source}: {}",
                declined.text()
            );
        }
        assert_eq!(status(&app, &order).await, "pending_payment", "{source}");
    }
    assert_eq!(pay(&app, &order, "K3", "tok_visa").await.status, 201);
    assert_eq!(count(&sandbox.ledger().await, "charges"), 1);
    assert_eq!((app.events("payment.declined").await, app.events("payment.succeeded").await), (3, 1));
}

/// Two payments with different keys at once: one is made, the other is refused for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn of_two_payments_with_different_keys_one_is_made() {
    let sandbox = Sandbox::start().await;
    let app = Arc::new(app(World::Up, &sandbox).await);
    for round in 0..5 {
        let order = Arc::new(order(&app, &format!("order-{round}")).await);
        let both: Vec<_> = ["a", "b"]
            .map(|name| {
                let (app, order, key) = (Arc::clone(&app), Arc::clone(&order), format!("{name}-{round}"));
                tokio::spawn(async move { pay(&app, &order, &key, "tok_visa").await })
            })
            .into();
        let mut statuses = Vec::new();
        for answer in both {
            let answer = answer.await.expect("a task");
            assert!(
                answer.status == 201 || answer.json()["code"] == "order-not-payable",
                "{}",
                answer.text()
            );
            statuses.push(answer.status);
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409]);
    }
    assert_eq!(count(&sandbox.ledger().await, "charges"), 5);
}

/// Whatever the gateway does to the call: plain retries settle the payment, and it is charged once.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_gateway_that_misbehaves_charges_once() {
    let sandbox = Sandbox::start().await;
    let app = app(World::Up, &sandbox).await;
    let faults = [
        "cut_before_charge",
        "cut_after_charge",
        "500_before_charge",
        "500_after_charge",
        "429",
        "in_use",
        "slow_300",
    ];
    for fault in faults {
        let order = order(&app, fault).await;
        let paid = until(fault, BOUND, || async {
            let answer = pay(&app, &order, &format!("pay-{fault}"), &format!("tok_{fault}")).await;
            (answer.status == 201).then_some(answer)
        })
        .await;
        assert_eq!(paid.json()["status"], "succeeded");
    }
    assert_eq!(count(&sandbox.ledger().await, "charges"), faults.len());
    assert_eq!(app.events("payment.succeeded").await, faults.len() as i64);
}

/// The gateway is killed in the middle of a charge, and the service too: one charge, one paid order.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn kills_of_both_sides_charge_once() {
    let mut sandbox = Sandbox::start().await;
    let mut app = app(World::Up, &sandbox).await;
    for (round, on) in ["cut_after_charge", "hang_after_charge"].into_iter().enumerate() {
        let order = order(&app, &format!("order-{round}")).await;
        sandbox.always("payment_intents", on).await;
        let path = format!("{}/payments", order.order);
        let request = app.request(&path, &format!("K{round}"), &json!({ "source": "tok_visa" })).bound(BOUND);
        let (api, sent) = (app.replica().api, request.clone());
        let first = tokio::spawn(async move { testkit::send(api, &sent).await.ok() });
        let charged = round + 1;
        until("it is charged", BOUND, || async { count(&sandbox.ledger().await, "charges") == charged })
            .await;
        app.kill().await;
        let _ = first.await;
        sandbox.kill_and_restart().await;
        app.restart().await;
        let paid = until("the payment is settled by plain retries", BOUND, || async {
            let answer = app.send(&request).await;
            (answer.status == 201).then_some(answer)
        })
        .await;
        assert_eq!(paid.json()["status"], "succeeded");
        assert_eq!(status(&app, &order).await, "paid");
        assert_eq!(count(&sandbox.ledger().await, "charges"), charged);
    }
    let paid =
        app.db.query_one("SELECT count(*) FROM orders WHERE status = 'paid'", &[]).await.expect("orders");
    assert_eq!(paid.get::<_, i64>(0), 2);
}

/// While it is being paid an order can be neither cancelled nor paid; given up, it can be paid again.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_order_being_paid_is_held_and_payable_again_when_given_up() {
    let sandbox = Sandbox::start().await;
    let builder = App::builder(World::Up).env("IDEMPOTENCY_LEASE", "1s").env("IDEMPOTENCY_STUCK_AFTER", "2s");
    let app =
        sandbox.env().iter().fold(builder, |builder, (name, value)| builder.env(name, value)).start().await;
    let order = order(&app, "order").await;
    sandbox.always("payment_intents", "429").await;
    assert_eq!(pay(&app, &order, "K", "tok_visa").await.status, 503);
    assert_eq!(status(&app, &order).await, "paying");
    assert_eq!(
        app.post(&format!("{}/cancel", order.order), "C", &json!({})).await.json()["code"],
        "order-not-cancellable"
    );
    assert_eq!(pay(&app, &order, "K2", "tok_visa").await.json()["code"], "order-not-payable");
    app.record_is("K", "FAILED").await;
    assert_eq!(pay(&app, &order, "K", "tok_visa").await.json()["code"], "abandoned");
    assert_eq!(status(&app, &order).await, "pending_payment");
    sandbox.clear().await;
    assert_eq!(pay(&app, &order, "K3", "tok_visa").await.status, 201);
    assert_eq!(count(&sandbox.ledger().await, "charges"), 1);
}

/// All refunds together never exceed the payment, whatever the gateway does to them.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn refunds_never_exceed_the_payment() {
    let sandbox = Sandbox::start().await;
    let app = app(World::Up, &sandbox).await;
    let order = order(&app, "order").await;
    assert_eq!(refund(&app, &order, "early", 1).await.json()["code"], "order-not-refundable");
    assert_eq!(pay(&app, &order, "pay", "tok_visa").await.status, 201);
    assert_eq!(refund(&app, &order, "zero", 0).await.status, 400);
    let first = refund(&app, &order, "R1", 1).await;
    assert_eq!((first.status, first.json()["status"].as_str()), (201, Some("succeeded")), "{}", first.text());
    assert_eq!(refund(&app, &order, "R1", 1).await.body, first.body);
    let too_much = refund(&app, &order, "R2", order.amount).await;
    assert_eq!((too_much.status, too_much.json()["code"].as_str()), (422, Some("refund-too-large")));
    assert_eq!(status(&app, &order).await, "paid");
    sandbox.always("refunds", "cut_after_refund").await;
    let rest = until("the rest is given back by plain retries", BOUND, || async {
        let answer = refund(&app, &order, "R3", order.amount - 1).await;
        (answer.status == 201).then_some(answer)
    })
    .await;
    assert_eq!(rest.json()["total"]["amount"].as_i64(), Some(order.amount - 1));
    assert_eq!(status(&app, &order).await, "refunded");
    let ledger = sandbox.ledger().await;
    let given: i64 =
        ledger["refunds"].as_array().expect("refunds").iter().filter_map(|r| r["amount"].as_i64()).sum();
    assert_eq!((count(&ledger, "refunds"), given), (2, order.amount));
    assert_eq!(app.events("refund.succeeded").await, 2);
}

/// Without a gateway the routes say so, and take no key.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn without_a_gateway_no_key_is_taken() {
    let app = App::builder(World::Up).start().await;
    let order = order(&app, "order").await;
    let refused = pay(&app, &order, "K", "tok_visa").await;
    assert_eq!((refused.status, refused.json()["code"].as_str()), (503, Some("gateway-not-configured")));
    assert_eq!(app.of_record("K", "status").await, None);
    assert_eq!(app.order("K", 1).await.status, 201);
}
