//! One operation at a time for each caller: Redis refuses early, PostgreSQL decides.

use std::time::Duration;

use serde_json::json;
use testkit::{Request, Response};

use crate::harness::database::connect;
use crate::harness::{App, World, in_every_world};

const BOUND: Duration = Duration::from_secs(20);

fn request(key: &str, api_key: &str) -> Request {
    Request::post("/v1/serialised")
        .header("Authorization", format!("Bearer {api_key}"))
        .header("Idempotency-Key", key)
        .json(&json!({}))
        .bound(BOUND)
}

async fn send(app: &App, key: &str) -> Response {
    app.send(&request(key, &app.api_key)).await
}

in_every_world!(
    only_one_runs_at_a_time_for_a_caller,
    |builder| builder.env("DATABASE_LOCK_TIMEOUT", "10s"),
    |app| async move {
        let gate = connect(&app.database_url).await;
        gate.batch_execute("SELECT pg_advisory_lock(1)").await.expect("the gate");
        let (api, first) = (app.replica().api, request("K1", &app.api_key));
        let first = tokio::spawn(async move { testkit::send(api, &first).await.expect("an answer") });
        app.waiting_for_lock(1).await;
        let busy = send(&app, "K2").await;
        assert_eq!(
            (busy.status, busy.json()["code"].as_str()),
            (409, Some("caller-busy")),
            "{}",
            busy.text()
        );
        assert!(busy.header("retry-after").is_some());
        assert_eq!((&busy.json()["same_key"], &busy.json()["new_key_safe"]), (&json!("yes"), &json!(false)));
        let same = send(&app, "K1").await;
        assert_eq!(
            same.json()["code"],
            "request-in-progress",
            "the same key is told that it is running itself"
        );
        // Redis forgets everything; PostgreSQL still lets nobody in.
        if app.redis.is_some() {
            let _: () = app.redis(&["FLUSHALL"]).await;
        }
        assert_eq!(send(&app, "K3").await.json()["code"], "caller-busy");
        // Another caller, and another command of this one, are not held up.
        let (api, theirs) = (app.replica().api, request("K1", &app.other_api_key));
        let theirs = tokio::spawn(async move { testkit::send(api, &theirs).await.expect("an answer") });
        app.waiting_for_lock(2).await;
        assert_eq!(app.order("order", 1).await.status, 201);
        gate.batch_execute("SELECT pg_advisory_unlock(1)").await.expect("open");
        let first = first.await.expect("an answer");
        assert_eq!((first.status, theirs.await.expect("an answer").status), (200, 200), "{}", first.text());
        app.heal();
        // It is over: the next ones run, and each key has its own answer.
        for key in ["K2", "K3"] {
            let next = testkit::until("the next one runs", BOUND, || async {
                let answer = send(&app, key).await;
                (answer.status == 200).then_some(answer)
            })
            .await;
            assert_eq!(next.header("idempotent-replayed"), None, "{key}");
        }
        assert_eq!(send(&app, "K1").await.header("idempotent-replayed"), Some("true"));
        let ran = app
            .db
            .query_one("SELECT count(*) FROM events WHERE type = 'probe.ran'", &[])
            .await
            .expect("events");
        assert_eq!(ran.get::<_, i64>(0), 4);
    }
);

/// Key and lock of a serialised command share a hash tag; whoever asks for the state of the key need not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn its_key_is_seen_running() {
    let app = App::builder(World::Up).start().await;
    let gate = connect(&app.database_url).await;
    gate.batch_execute("SELECT pg_advisory_lock(1)").await.expect("the gate");
    let (api, first) = (app.replica().api, request("K1", &app.api_key));
    let first = tokio::spawn(async move { testkit::send(api, &first).await.expect("an answer") });
    app.waiting_for_lock(1).await;
    let ask =
        Request::get("/v1/idempotency-keys/K1").header("Authorization", format!("Bearer {}", app.api_key));
    let status = app.send(&ask).await;
    assert_eq!((status.status, &status.json()["state"]), (200, &json!("running")), "{}", status.text());
    gate.batch_execute("SELECT pg_advisory_unlock(1)").await.expect("open");
    assert_eq!(first.await.expect("an answer").status, 200);
    assert_eq!(app.send(&ask).await.json()["state"], "completed");
}
