//! The sandbox over real sockets: what a key means, what a refund may be, how it misbehaves, what it remembers.

use crate::support::{Gateway, declined, form, refund};
use serde_json::json;
use testkit::{until, wait::BOUND};

#[tokio::test]
async fn the_same_key_replays_and_other_parameters_are_refused() {
    let gateway = Gateway::start();
    let first = gateway.charge("k1", 500, "tok_visa").await;
    assert_eq!((first.status, first.header("idempotent-replayed")), (200, None), "{}", first.text());
    assert_eq!(first.json()["status"], "succeeded");
    assert_eq!(first.json()["metadata"], json!({"operation": "k1"}));

    let again = gateway.charge("k1", 500, "tok_visa").await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(again.body, first.body);

    let other = gateway.charge("k1", 501, "tok_visa").await;
    assert_eq!((other.status, &other.json()["error"]["type"]), (400, &json!("idempotency_error")));

    let ledger = gateway.ledger().await;
    assert_eq!(ledger["charges"].as_array().map(Vec::len), Some(1));
    assert_eq!(ledger["charges"][0]["idempotency_key"], "k1");
    assert_eq!(ledger["charges"][0]["operation"], "k1");
    assert_eq!(gateway.get("/sandbox/requests").await.json()["by_key"]["k1"], 3);
}

#[tokio::test]
async fn a_decline_is_replayed_and_no_charge() {
    let gateway = Gateway::start();
    let first = gateway.charge("k1", 500, "tok_chargeDeclined").await;
    assert_eq!((first.status, declined(&first)), (402, "generic_decline".to_owned()));
    assert_eq!(gateway.charge("k1", 500, "tok_chargeDeclined").await.body, first.body);
    let poor = gateway.charge("k2", 500, "tok_chargeDeclinedInsufficientFunds").await;
    assert_eq!((poor.status, declined(&poor)), (402, "insufficient_funds".to_owned()));
    assert_eq!(gateway.ledger().await["charges"], json!([]));
    // It is found, as what it is, and cannot be refunded.
    let found = gateway.get("/v1/payment_intents/search?query=metadata%5B'operation'%5D%3A'k1'").await.json();
    assert_eq!(found["data"][0]["status"], "requires_payment_method");
    let refund = gateway.refund("r1", found["data"][0]["id"].as_str().unwrap(), 1).await;
    assert_eq!(refund.json()["error"]["code"], "payment_intent_unexpected_state");
}

#[tokio::test]
async fn who_comes_while_the_key_is_in_use_is_told_so() {
    let gateway = Gateway::start();
    let slow = gateway.charge("k1", 500, "tok_slow_1500");
    let meanwhile = async {
        gateway.arrivals("k1", 1).await;
        gateway.charge("k1", 500, "tok_slow_1500").await
    };
    let (slow, meanwhile) = tokio::join!(slow, meanwhile);
    assert_eq!(slow.status, 200);
    assert_eq!(
        (meanwhile.status, &meanwhile.json()["error"]["code"]),
        (409, &json!("idempotency_key_in_use"))
    );
    assert_eq!(gateway.charge("k1", 500, "tok_slow_1500").await.body, slow.body);
}

#[tokio::test]
async fn slow_work_is_done_though_its_caller_has_left() {
    let gateway = Gateway::start();
    let connection = gateway.begin_charge("k1", "tok_slow_300").await;
    gateway.arrivals("k1", 1).await;
    connection.reset();
    until("the charge of the caller that left", BOUND, async || gateway.charges().await == 1).await;
}

#[tokio::test]
async fn a_request_that_hangs_frees_its_key_when_its_caller_leaves() {
    let gateway = Gateway::start();
    let connection = gateway.begin_charge("k1", "tok_hang").await;
    gateway.arrivals("k1", 1).await;
    assert_eq!(gateway.charge("k1", 500, "tok_hang").await.status, 409);
    connection.close();
    // Free again: other parameters are not compared with what never happened.
    let free = async || gateway.charge("k1", 500, "tok_visa").await.status == 200;
    until("the key to be free", BOUND, free).await;
    assert_eq!(gateway.charges().await, 1);
}

#[tokio::test]
async fn sources_fail_once_before_or_after_the_charge() {
    let gateway = Gateway::start();
    let cases = [
        ("tok_500_after_charge", Some(500), 1),
        ("tok_cut_after_charge", None, 1),
        ("tok_cut_before_charge", None, 0),
        ("tok_429_once", Some(429), 0),
    ];
    let mut before = 0;
    for (source, status, charged) in cases {
        let first = gateway.try_charge(source, 500, source).await;
        assert_eq!(first.as_ref().ok().map(|response| response.status), status, "{source}");
        assert_eq!(gateway.charges().await, before + charged, "{source}");
        assert_eq!(gateway.charge(source, 500, source).await.status, 200, "{source}");
        before += 1;
        assert_eq!(gateway.charges().await, before, "{source}");
    }
    assert_eq!(gateway.charge("k", 500, "tok_unheard_of").await.status, 404);
}

#[tokio::test]
async fn planned_faults_strike_in_order_and_end() {
    let gateway = Gateway::start();
    let intent = gateway.charged("k1", 500).await;
    let plan = json!({
        "next": [{"on": "refunds", "then": "cut_after_refund"}],
        "always": [{"on": "refunds", "then": "429"}, {"on": "reads", "then": "503"}],
    });
    assert_eq!(gateway.post_json("/sandbox/faults", &plan).await.status, 200);
    assert!(gateway.try_refund("r1", &intent, 100).await.is_err());
    let busy = gateway.refund("r1", &intent, 100).await;
    assert_eq!((busy.status, busy.header("retry-after")), (429, Some("1")));
    assert_eq!(gateway.get(&format!("/v1/payment_intents/{intent}")).await.status, 503);
    assert_eq!(gateway.charge("k2", 500, "tok_visa").await.status, 200, "nothing was asked for charges");

    assert_eq!(gateway.delete("/sandbox/faults").await.status, 204);
    let replayed = gateway.refund("r1", &intent, 100).await;
    assert_eq!((replayed.status, replayed.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(gateway.ledger().await["refunds"].as_array().map(Vec::len), Some(1));
    let unknown = json!({"next": [{"on": "refunds", "then": "explode"}]});
    assert_eq!(gateway.post_json("/sandbox/faults", &unknown).await.status, 400);
}

#[tokio::test]
async fn refunds_never_exceed_their_charge() {
    let gateway = Gateway::start();
    let intent = gateway.charged("k1", 500).await;
    let keys: Vec<String> = (0..10).map(|number| format!("r{number}")).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for key in keys {
        let (gateway, intent) = (gateway.address(), intent.clone());
        tasks.spawn(async move { refund(gateway, &key, &intent, 100).await.expect("an answer").status });
    }
    let statuses = tasks.join_all().await;
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 5, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 400).count(), 5, "{statuses:?}");
    let over = gateway.refund("over", &intent, 1).await;
    assert_eq!(over.json()["error"]["code"], "charge_already_refunded");

    let other = gateway.charged("k2", 500).await;
    let large = gateway.refund("large", &other, 501).await;
    assert_eq!((large.status, &large.json()["error"]["code"]), (400, &json!("amount_too_large")));
    assert_eq!(gateway.refund("large", &other, 501).await.header("idempotent-replayed"), Some("true"));
    assert_eq!(gateway.refund("none", "pi_none", 1).await.status, 404);

    let listed = gateway.get(&format!("/v1/refunds?payment_intent={intent}&limit=3")).await.json();
    assert_eq!((listed["data"].as_array().map(Vec::len), &listed["has_more"]), (Some(3), &json!(true)));
    let last = listed["data"][2]["id"].as_str().unwrap();
    let rest =
        gateway.get(&format!("/v1/refunds?payment_intent={intent}&starting_after={last}")).await.json();
    assert_eq!((rest["data"].as_array().map(Vec::len), &rest["has_more"]), (Some(2), &json!(false)));
    assert_eq!(gateway.get(&format!("/v1/refunds/{last}")).await.json()["id"], last);
    let operation = listed["data"][2]["metadata"]["operation"].as_str().unwrap();
    let found =
        gateway.get(&format!("/v1/refunds/search?query=metadata%5B'operation'%5D:'{operation}'")).await;
    assert_eq!(found.json()["data"][0]["id"], last);
}

#[tokio::test]
async fn what_is_malformed_takes_no_key() {
    let gateway = Gateway::start();
    for body in ["", "amount=0&currency=eur&payment_method=tok_visa&confirm=true", "amount=5&currency=euro"] {
        let refused = gateway.post("/v1/payment_intents", Some("k1"), body).await;
        assert_eq!(
            (refused.status, &refused.json()["error"]["type"]),
            (400, &json!("invalid_request_error"))
        );
    }
    assert_eq!(gateway.charge("k1", 500, "tok_visa").await.status, 200);
    let request = testkit::Request::post("/v1/payment_intents").body(form(500, "tok_visa", "k9"));
    for key in ["", "Bearer sk_test_other", "sk_test_sandbox"] {
        let response = testkit::send(gateway.address(), &request.clone().header("Authorization", key)).await;
        assert_eq!(response.expect("an answer").status, 401, "{key}");
    }
}

/// Cut down between the charge and the answer: the charge is there once, and the key answers with it.
#[tokio::test]
async fn the_ledger_survives_kill_9() {
    let mut gateway = Gateway::start_process().await;
    let connection = gateway.begin_charge("k1", "tok_hang").await;
    gateway.arrivals("k1", 1).await;
    let plan = json!({"next": [{"on": "payment_intents", "then": "hang_after_charge"}]});
    gateway.post_json("/sandbox/faults", &plan).await;
    let waiting = gateway.begin_charge("k2", "tok_visa").await;
    until("the charge", BOUND, async || gateway.charges().await == 1).await;
    let ledger = gateway.ledger().await;

    gateway.kill_and_restart().await;
    drop((connection, waiting));
    assert_eq!(gateway.ledger().await, ledger);
    let replayed = gateway.charge("k2", 500, "tok_visa").await;
    assert_eq!((replayed.status, replayed.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(replayed.json()["id"], ledger["charges"][0]["id"]);
    // The one that died before its charge left nothing: its key is free.
    assert_eq!(gateway.charge("k1", 500, "tok_visa").await.header("idempotent-replayed"), None);
    assert_eq!(gateway.charges().await, 2);
}

#[tokio::test]
async fn ends_with_the_pipe_of_its_parent() {
    let mut gateway = Gateway::start_process().await;
    let ended = gateway.ended_with_its_pipe().await;
    assert!(ended.success(), "{ended}");
}
