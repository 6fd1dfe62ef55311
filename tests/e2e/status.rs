//! What has become of a key, asked without sending anything again; and the policy in force.

use std::time::Duration;

use serde_json::json;
use testkit::Request;

use crate::harness::{App, World, in_every_world};

fn ask(app: &App, key: &str) -> Request {
    let path = format!("/v1/idempotency-keys/{key}");
    Request::get(&path)
        .header("Authorization", format!("Bearer {}", app.api_key))
        .bound(Duration::from_secs(20))
}

in_every_world!(
    a_key_says_what_has_become_of_it,
    |builder| builder.env("DATABASE_LOCK_TIMEOUT", "10s"),
    |app| async move {
        let unseen = testkit::send(app.replica().api, &ask(&app, "K")).await.expect("an answer");
        assert_eq!((unseen.status, unseen.json()["code"].as_str()), (404, Some("key-not-seen")));
        assert_eq!(
            (&unseen.json()["new_key_safe"], &unseen.json()["same_key"]),
            (&json!(false), &json!("yes"))
        );

        let frozen = app.freeze().await;
        let first = app.order_in_background("K", 2);
        app.waiting_for_lock(1).await;
        let running = testkit::send(app.replica().api, &ask(&app, "K")).await.expect("an answer");
        // Where Redis does not know, nobody does: "not finished and perhaps running".
        match running.status {
            200 => assert_eq!(running.json()["state"], "running"),
            other => assert_eq!((other, running.json()["code"].as_str()), (404, Some("key-not-seen"))),
        }
        if app.world == World::Up {
            assert_eq!(running.status, 200);
        }
        let (api, poll) = (app.replica().api, ask(&app, "K").header("Prefer", "wait=10"));
        let poll = tokio::spawn(async move { testkit::send(api, &poll).await.expect("an answer") });
        frozen.thaw().await;
        let first = first.await.expect("an answer");
        assert_eq!(first.status, 201);
        let polled = poll.await.expect("an answer");
        assert_eq!(
            (polled.status, polled.header("preference-applied")),
            (200, Some("wait=10")),
            "{}",
            polled.text()
        );
        app.heal();

        let done = app.send(&ask(&app, "K")).await.json();
        assert_eq!((&done["state"], &done), (&json!("completed"), &polled.json()));
        assert_eq!(done["links"]["result"].as_str(), first.header("location"));
        assert!(done["expires_at"].as_str().is_some_and(|time| time.ends_with('Z')), "{done}");

        let refused = json!({ "items": [{ "sku": "NOPE", "quantity": 1 }] });
        assert_eq!(app.post("/v1/orders", "refused", &refused).await.status, 422);
        assert_eq!(app.send(&ask(&app, "refused")).await.json()["state"], "failed");
        // Own keys only.
        let theirs = Request::get("/v1/idempotency-keys/K")
            .header("Authorization", format!("Bearer {}", app.other_api_key));
        assert_eq!(app.send(&theirs).await.status, 404);
        assert_eq!(app.send(&Request::get("/v1/idempotency-keys/K")).await.status, 401);
    }
);

/// The key is one percent-encoded segment, decoded once.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn any_key_can_be_asked_for() {
    let app = App::builder(World::Up).start().await;
    for (header, segment) in
        [("a/b:c", "a%2Fb%3Ac"), ("K%20", "K%2520"), ("\"a b\"", "a%20b"), ("x{y}", "%78%7By%7D")]
    {
        assert_eq!(app.order(header, 1).await.status, 201, "{header}");
        let asked = app.send(&ask(&app, segment)).await;
        assert_eq!((asked.status, asked.json()["state"].as_str()), (200, Some("completed")), "{header}");
    }
    for nonsense in ["%", "%00", "%ff", "%C3%A9"] {
        assert_eq!(app.send(&ask(&app, nonsense)).await.status, 404, "{nonsense}");
    }
}

/// The policy is what this process really does.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_policy_is_told() {
    let app = App::builder(World::Up)
        .env("IDEMPOTENCY_RESULT_RETENTION", "48h")
        .env("IDEMPOTENCY_ON_DUPLICATE", "wait")
        .env("STORED_BODY_MAX", "64KiB")
        .start()
        .await;
    let policy = app.send(&Request::get("/v1/idempotency")).await.json();
    assert_eq!(policy["retention"]["result_seconds"], json!(172_800.0));
    assert_eq!(policy["retention"]["key_seconds"], json!(2_592_000.0));
    assert_eq!(policy["duplicate_of_running"]["default"], "wait");
    assert_eq!(policy["stored"]["body_max_bytes"], 65_536);
    assert_eq!(policy["format"]["length_max"], 255);
}
