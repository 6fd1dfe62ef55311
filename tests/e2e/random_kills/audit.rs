//! The books, when all is over: the gateway's against the service's, the answers against their replays, the events against what was
//! received.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use testkit::until;

use super::clients::{Answered, BOUND};
use crate::harness::App;
use crate::harness::deliveries::{count, in_state, time_passes};
use crate::harness::receiver::Receiver;
use crate::harness::sandbox::Sandbox;

const CHARGED_SQL: &str = "
SELECT gateway_id, amount, total_amount, order_id::text FROM payments JOIN orders ON orders.id = order_id
 WHERE payments.status = 'succeeded' AND orders.status IN ('paid', 'refunded')";
const GIVEN_BACK_SQL: &str = "
SELECT refunds.gateway_id, refunds.amount, payments.gateway_id FROM refunds JOIN payments ON payments.id = payment_id
 WHERE refunds.status = 'succeeded'";
const OPEN_SQL: &str = "
SELECT (SELECT count(*) FROM idempotency_records WHERE status = 'IN_PROGRESS')
     + (SELECT count(*) FROM payments WHERE status = 'pending') + (SELECT count(*) FROM refunds WHERE status = 'pending')
     + (SELECT count(*) FROM orders WHERE status = 'paying')";
const PAID_SQL: &str = "SELECT count(*) FROM orders WHERE status IN ('paid', 'refunded')";

/// One charge for each paid order, of its amount; refunds as the service has them, and never more than was charged.
pub async fn money(app: &App, sandbox: &Sandbox) {
    assert_eq!(count(app, OPEN_SQL, &[]).await, 0, "every client was answered, so nothing is open");
    let ledger = sandbox.ledger().await;
    let lines = |what: &str| ledger[what].as_array().expect("a list").clone();
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    let charges: BTreeMap<String, i64> =
        lines("charges").iter().map(|c| (text(&c["id"]), c["amount"].as_i64().expect("an amount"))).collect();
    assert_eq!(charges.len(), lines("charges").len());
    let paid = app.db.query(CHARGED_SQL, &[]).await.expect("payments");
    let orders: BTreeSet<&str> = paid.iter().map(|row| row.get(3)).collect();
    assert_eq!(
        (orders.len() as i64, paid.len()),
        (count(app, PAID_SQL, &[]).await, orders.len()),
        "one payment each"
    );
    let booked = paid.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(charges, booked, "what was charged is what is paid");
    assert!(paid.iter().all(|row| row.get::<_, i64>(1) == row.get::<_, i64>(2)), "each order's total");

    let refunds: BTreeMap<String, (i64, String)> = lines("refunds")
        .iter()
        .map(|r| (text(&r["id"]), (r["amount"].as_i64().expect("an amount"), text(&r["payment_intent"]))))
        .collect();
    assert_eq!(refunds.len(), lines("refunds").len());
    let given = app.db.query(GIVEN_BACK_SQL, &[]).await.expect("refunds");
    let booked = given.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect();
    assert_eq!(refunds, booked, "what was given back is what is booked");
    let mut left = charges.clone();
    for (amount, charge) in refunds.values() {
        *left.get_mut(charge).expect("a charge") -= amount;
    }
    assert!(left.values().all(|left| *left >= 0), "more given back than charged: {left:?}");
    println!("{} orders paid, {} refunds", charges.len(), refunds.len());
}

/// What a client was answered for good is what it is answered ever after.
pub async fn answers(answered: &[Answered], replicas: &[SocketAddr]) {
    for (index, Answered { request, answer }) in answered.iter().enumerate() {
        let again = testkit::send(replicas[index % replicas.len()], request).await.expect("an answer");
        assert_eq!((again.status, &again.body), (answer.status, &answer.body), "{}", again.text());
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
    }
}

/// Every event of the database was received, under one id each and with one body; and nothing else was.
pub async fn events(app: &App, receiver: &Receiver) {
    let all = count(app, "SELECT count(*) FROM events", &[]).await;
    until("every event is delivered", BOUND, || async {
        // Relays that died have left their leases behind.
        time_passes(app).await;
        in_state(app, "delivered").await == all
    })
    .await;
    let kinds = "SELECT count(*) FROM (SELECT DISTINCT type, data->>'id' FROM events) AS kinds";
    assert_eq!(count(app, kinds, &[]).await, all, "no event is there twice");
    let mut bodies: BTreeMap<String, String> = BTreeMap::new();
    for received in receiver.received() {
        let body = bodies.entry(received.id().to_owned()).or_insert_with(|| received.body.clone());
        assert_eq!(*body, received.body, "the same event has the same body each time");
        assert_ne!(received.json()["type"], "probe.ran", "this was rolled back");
    }
    let rows = app.db.query("SELECT id::text FROM events", &[]).await.expect("events");
    let committed: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(bodies.into_keys().collect::<BTreeSet<_>>(), committed);
    println!("{all} events, {} deliveries", receiver.received().len());
}
