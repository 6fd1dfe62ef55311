//! `order-service keys …`: an operator sees what waits, decides about what nobody knows, and takes nothing from whoever runs.

use serde_json::{Value, json};
use testkit::until;

use crate::harness::foreign::{Charging, Finding, Foreign, Hold};
use crate::harness::voyage::{BOUND, Done};
use crate::harness::{App, World, program_output};

async fn keys(app: &App, words: &[&str]) -> Result<String, String> {
    let words: Vec<String> = ["keys"].iter().chain(words).map(|word| (*word).to_owned()).collect();
    let env = vec![
        ("DATABASE_URL".to_owned(), app.database_url.clone()),
        ("REDIS_URL".to_owned(), format!("redis://{}/0", app.redis_address)),
    ];
    tokio::task::spawn_blocking(move || program_output(&words, &env)).await.expect("a task")
}

async fn show(app: &App, key: &str) -> Value {
    let said = keys(app, &["show", key, "--account", "demo"]).await.expect("shown");
    serde_json::from_str(&said).expect("JSON")
}

/// A voyage that was charged or not, and of which the foreign service says nothing.
async fn unknown(foreign: &Foreign, charging: Charging) -> App {
    let app = App::builder(World::Up)
        .env("IDEMPOTENCY_LEASE", "1s")
        .env("IDEMPOTENCY_STUCK_AFTER", "2s")
        .start()
        .await;
    foreign.charging(charging);
    foreign.finding(Finding::Shrugs);
    let first = app.send(&app.voyage("K", foreign)).await;
    assert_eq!(first.json()["code"], "outcome-unknown", "{}", first.text());
    app
}

async fn resolve(app: &App, decision: &str, more: &[&str]) -> Result<String, String> {
    let words = ["resolve", "K", "--account", "demo", "--as", decision, "--reason", "seen in its dashboard"];
    let words: Vec<&str> = words.iter().chain(more).copied().collect();
    until("nobody is asking at this moment", BOUND, || async {
        let said = keys(app, &words).await;
        (!said.as_ref().is_err_and(|why| why.contains("somebody is working on it"))).then_some(said)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_was_done_after_all_is_gone_on_with() {
    let foreign = Foreign::start().await;
    let app = unknown(&foreign, Charging::ChargesAndCuts).await;
    let listed = keys(&app, &["stuck"]).await.expect("a list");
    let listed: Value = serde_json::from_str(listed.lines().next().expect("a line")).expect("JSON");
    assert_eq!(
        (&listed["account"], &listed["key"], &listed["workflow"]),
        (&json!("demo"), &json!("K"), &json!("probes.voyage"))
    );
    assert!(listed["unknown_since"].is_string());
    // Also while somebody asks about it once more.
    let held = "UPDATE idempotency_records SET lease_expires_at = now() + interval '1 hour' WHERE key = 'K'";
    app.db.batch_execute(held).await.expect("SQL");
    let listed = keys(&app, &["stuck"]).await.expect("a list");
    assert!(listed.contains("\"K\"") && listed.contains("is_being_worked_on"), "{listed}");
    let free = "UPDATE idempotency_records SET lease_expires_at = now() WHERE key = 'K'";
    app.db.batch_execute(free).await.expect("SQL");
    let shown = show(&app, "K").await;
    assert_eq!(
        (&shown["record"]["steps"][1]["state"], &shown["record"]["status"]),
        (&json!("begun"), &json!("IN_PROGRESS"))
    );

    // A result that the workflow cannot read is shown as such, and can be corrected.
    resolve(&app, "done", &["--result", "7"]).await.expect("resolved");
    until("somebody tried to read it", BOUND, || async { app.of_record("K", "trouble").await.is_some() })
        .await;
    assert_eq!(app.of_record("K", "status").await.as_deref(), Some("IN_PROGRESS"));
    resolve(&app, "done", &["--result", r#"{"done":"c1"}"#]).await.expect("resolved");
    app.record_is("K", "COMPLETED").await;
    let last = app.settle_voyage("K", &foreign, 201).await;
    assert_eq!((last.json()["charge"].as_str(), foreign.calls().len()), (Some("c1"), 1));
    assert_eq!(app.done(&foreign).await, Done::ONCE);
    let decisions = &show(&app, "K").await["record"]["decisions"];
    assert_eq!(
        (&decisions[1]["decision"], &decisions[1]["reason"]),
        (&json!("done"), &json!("seen in its dashboard"))
    );
    assert!(keys(&app, &["stuck"]).await.expect("a list").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_was_never_done_is_called_again_with_the_same_key() {
    let foreign = Foreign::start().await;
    let app = unknown(&foreign, Charging::Cuts).await;
    foreign.charging(Charging::Works);
    let said = keys(&app, &["resolve", "K", "--account", "demo", "--as", "absent", "--reason", " "]).await;
    assert!(said.is_err_and(|why| why.contains("reason")));
    resolve(&app, "absent", &[]).await.expect("resolved");
    app.record_is("K", "COMPLETED").await;
    let calls = foreign.calls();
    assert_eq!((calls.len(), &calls[0]), (2, &calls[1]));
    assert_eq!(app.done(&foreign).await, Done::ONCE);
    let again =
        keys(&app, &["resolve", "K", "--account", "demo", "--as", "absent", "--reason", "again"]).await;
    assert!(
        again.is_err_and(|why| why.contains("no workflow is running")),
        "a finished record is not touched"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn only_what_provably_does_not_run_is_released() {
    let app = App::builder(World::Up).env("DATABASE_LOCK_TIMEOUT", "10s").start().await;
    let release = async |key: &str| keys(&app, &["release", key, "--account", "demo"]).await;

    let frozen = app.freeze().await;
    let order = app.order_in_background("order", 1);
    app.waiting_for_lock(1).await;
    assert!(release("order").await.is_err_and(|why| why.contains("running")), "a command that runs");
    assert_eq!(show(&app, "order").await["redis"]["place_is_held"], true);
    frozen.thaw().await;
    assert_eq!(order.await.expect("an order").status, 201);
    assert!(release("order").await.is_err_and(|why| why.contains("finished")));
    assert_eq!(show(&app, "order").await["order"]["status"], "pending_payment");

    let foreign = Foreign::start().await;
    foreign.hold(Hold::Charge);
    let voyage = app.voyage_in_background("K", &foreign);
    foreign.reached().await;
    assert!(release("K").await.is_err_and(|why| why.contains("working on it")), "a workflow that runs");
    let absent = ["resolve", "K", "--account", "demo", "--as", "absent", "--reason", "it seems so"];
    let refused = keys(&app, &absent).await;
    assert!(refused.is_err_and(|why| why.contains("working on it")), "a call that is under way");
    foreign.release();
    assert_eq!(voyage.await.expect("a task").expect("an answer").status, 201);

    // A place that a dead owner has left in Redis, and a key that nobody knows.
    let name = app.redis_name("left").await;
    let account = app.account().await;
    let mut value = vec![1, b'R'];
    value.resize(43, 7);
    value.extend_from_slice(&account.to_be_bytes());
    value.resize(75, 0);
    app.redis_set(&name, &value).await;
    assert_eq!(show(&app, "left").await["redis"]["place_is_held"], true);
    release("left").await.expect("released");
    assert_eq!(app.redis::<i64>(&["EXISTS", &name]).await, 0);
    assert!(keys(&app, &["show", "left", "--account", "demo"]).await.is_err());
    assert!(keys(&app, &["show", "left", "--account", "nobody"]).await.is_err());
}

/// A workflow that has failed before its first step has done nothing: its key can be freed, and used for something else.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_workflow_that_has_done_nothing_is_released() {
    let app = App::builder(World::Up).start().await;
    let foreign = Foreign::start().await;
    app.at_point("before-reserve", "fail", 1_000_000).await;
    assert_eq!(app.send(&app.voyage("K", &foreign)).await.status, 500);
    until("it is released between two tries", BOUND, || async {
        keys(&app, &["release", "K", "--account", "demo"]).await.is_ok()
    })
    .await;
    assert_eq!(app.of_record("K", "status").await, None);
    assert_eq!(app.order("K", 1).await.status, 201, "the key is free");
}
