//! What goes wrong inside a workflow: steps that fail or panic, answers that are missing, work that nobody can finish, another build.

use serde_json::json;
use testkit::until;

use crate::harness::foreign::{Charging, Finding, Foreign, Hold};
use crate::harness::voyage::{BOUND, Done};
use crate::harness::{App, World};

async fn app(world: World) -> App {
    App::builder(world).env("IDEMPOTENCY_LEASE", "1s").start().await
}

/// A failure stores no answer and gives the lease back, long before it would run out: whoever comes next goes on at once, behind the
/// last step that is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_step_that_fails_or_panics_is_gone_on_with_by_a_retry() {
    for world in [World::Up, World::Absent] {
        for what in ["fail", "panic"] {
            for point in ["before-reserve", "before-charge", "after-charge", "after-settle"] {
                let app = App::builder(world).env("IDEMPOTENCY_LEASE", "1m").start().await;
                let foreign = Foreign::start().await;
                app.at_point(point, what, 1).await;
                let first = app.send(&app.voyage("K", &foreign)).await;
                let problem = first.json();
                assert_eq!((first.status, &problem["same_key"]), (500, &json!("yes")), "{}", first.text());
                assert!(!first.text().contains("asked for"), "no internals");
                app.settle_voyage("K", &foreign, 201).await;
                assert_eq!(app.done(&foreign).await, Done::ONCE, "{point} {what}");
            }
        }
    }
}

/// Nobody retries: the completer does, after a pause.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_completer_repeats_what_fails() {
    let app = app(World::Up).await;
    let foreign = Foreign::start().await;
    app.at_point("after-charge", "fail", 3).await;
    assert_eq!(app.send(&app.voyage("K", &foreign)).await.status, 500);
    app.record_is("K", "COMPLETED").await;
    assert_eq!(app.of_record("K", "attempts").await.as_deref(), Some("4"));
    assert_eq!(app.done(&foreign).await, Done::ONCE);
}

/// A call that was cut is asked about before it is repeated, and is repeated with the same key.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_without_an_answer_is_asked_about() {
    let app = app(World::Up).await;
    let foreign = Foreign::start().await;
    foreign.charging(Charging::ChargesAndCuts);
    let first = app.send(&app.voyage("K", &foreign)).await;
    assert_eq!(first.status, 201, "{}", first.text());
    assert_eq!((foreign.calls().len(), foreign.questions()), (1, 1), "asked once, called once");
    assert_eq!(app.done(&foreign).await, Done::ONCE);
}

/// Nobody was there to be called: nothing is in doubt, and the next one simply goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_that_never_left_leaves_no_doubt() {
    let app = App::builder(World::Up).start().await;
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = nobody.local_addr().expect("an address");
    drop(nobody);
    let body = json!({ "foreign": address.to_string() });
    let first = app.post("/v1/voyages", "K", &body).await;
    assert_eq!(
        (first.status, first.json()["code"].as_str()),
        (503, Some("temporarily-unavailable")),
        "{}",
        first.text()
    );
    let begun = app.db.query_one("SELECT count(*) FROM workflow_steps WHERE state = 'begun'", &[]).await;
    assert_eq!(begun.expect("steps").get::<_, i64>(0), 0);
    assert_eq!(app.of_record("K", "unknown_since").await, None);
}

/// Unknown is an outcome: it is answered, shown, never repeated blindly; it ends when the other side says something.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_unknown_outcome_is_answered_as_such_and_never_repeated() {
    for world in [World::Up, World::Absent] {
        let app = app(world).await;
        let foreign = Foreign::start().await;
        foreign.charging(Charging::ChargesAndCuts);
        foreign.finding(Finding::Shrugs);
        let first = app.send(&app.voyage("K", &foreign)).await;
        let problem = first.json();
        assert_eq!(
            (first.status, problem["code"].as_str()),
            (409, Some("outcome-unknown")),
            "{}",
            first.text()
        );
        assert_eq!(
            (&problem["retryable"], &problem["same_key"], &problem["new_key_safe"]),
            (&json!(true), &json!("yes"), &json!(false))
        );
        let location = first.header("location").expect("the operation").to_owned();
        assert_eq!(app.operation(&location).await["state"], "unknown");
        assert_eq!(app.get("/v1/idempotency-keys/K").await.json()["state"], "unknown");
        let asked = foreign.questions();
        until("it is asked about again", BOUND, || async { foreign.questions() > asked }).await;
        let again = until("it is between two questions", BOUND, || async {
            let answer = app.send(&app.voyage("K", &foreign)).await;
            (answer.json()["code"] == "outcome-unknown").then_some(answer)
        })
        .await;
        assert_eq!(again.header("location"), Some(location.as_str()));
        assert_eq!(foreign.calls().len(), 1, "never repeated while it is not known");
        foreign.finding(Finding::Tells);
        app.record_is("K", "COMPLETED").await;
        assert_eq!(app.send(&app.voyage("K", &foreign)).await.status, 201);
        assert_eq!((foreign.calls().len(), app.done(&foreign).await), (1, Done::ONCE));
    }
}

/// Whose records are stuck after two seconds without progress.
async fn soon_stuck() -> App {
    App::builder(World::Up).env("IDEMPOTENCY_LEASE", "1s").env("IDEMPOTENCY_STUCK_AFTER", "2s").start().await
}

/// No progress for too long, and nothing in doubt: FAILED, and what it held is given back in the same transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_nobody_can_finish_is_given_up() {
    let app = soon_stuck().await;
    let foreign = Foreign::start().await;
    app.at_point("before-charge", "fail", 1_000_000).await;
    assert_eq!(app.send(&app.voyage("K", &foreign)).await.status, 500);
    app.record_is("K", "FAILED").await;
    let last = app.send(&app.voyage("K", &foreign)).await;
    let problem = last.json();
    assert_eq!((last.status, problem["code"].as_str()), (500, Some("abandoned")), "{}", last.text());
    assert_eq!((&problem["retryable"], &problem["same_key"]), (&json!(false), &json!("no")));
    assert_eq!(last.header("idempotent-replayed"), Some("true"));
    assert_eq!((app.events("voyage.reserved").await, app.events("voyage.abandoned").await), (1, 1));
    assert_eq!(foreign.charges(), 0);
    assert_eq!(app.get("/v1/idempotency-keys/K").await.json()["state"], "failed");
}

/// A call that is never taken is no progress, and a client that comes again and again does not put the end off: its retry gives up
/// as the completer would, which never comes to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_that_insists_does_not_keep_alive_what_nobody_can_finish() {
    let app = soon_stuck().await;
    let nobody = json!({ "foreign": "127.0.0.1:1" });
    let request = app.request("/v1/voyages", "K", &nobody).bound(BOUND);
    let last = until("it is given up", BOUND, || async {
        let answer = app.send(&request).await;
        (answer.status != 503).then_some(answer)
    })
    .await;
    assert_eq!((last.status, last.json()["code"].as_str()), (500, Some("abandoned")), "{}", last.text());
    assert_eq!((app.events("voyage.reserved").await, app.events("voyage.abandoned").await), (1, 1));
}

/// No progress for too long, and a call in doubt: it is left for an operator, also if the other side knows nothing of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_in_doubt_is_never_given_up() {
    let app = soon_stuck().await;
    let foreign = Foreign::start().await;
    foreign.charging(Charging::Cuts);
    let first = app.send(&app.voyage("K", &foreign)).await;
    assert_eq!(first.json()["code"], "outcome-unknown", "absent is no answer: {}", first.text());
    until("nobody asks any more", BOUND, || async {
        app.of_record("K", "updated_at < now() - interval '4 seconds'").await.as_deref() == Some("true")
    })
    .await;
    let (asked, called) = (foreign.questions(), foreign.calls().len());
    assert_eq!(app.send(&app.voyage("K", &foreign)).await.json()["code"], "outcome-unknown");
    assert_eq!((foreign.questions(), foreign.calls().len()), (asked, called));
    assert_eq!(app.of_record("K", "status").await.as_deref(), Some("IN_PROGRESS"));
    assert_eq!(app.events("voyage.abandoned").await, 0);
}

/// The same where the run fails before it even comes to the call: what is begun is in doubt, whoever did not get that far.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_in_doubt_is_not_given_up_by_a_run_that_does_not_reach_it() {
    let mut app = soon_stuck().await;
    let foreign = Foreign::start().await;
    foreign.hold(Hold::Charge);
    let _unanswered = app.voyage_in_background("K", &foreign);
    foreign.reached().await;
    app.kill().await;
    app.at_point("before-reserve", "fail", 1_000_000).await;
    app.restart().await;
    until("it is left for an operator", BOUND, || async {
        app.of_record("K", "unknown_since").await.is_some()
    })
    .await;
    assert_eq!(app.of_record("K", "status").await.as_deref(), Some("IN_PROGRESS"));
    assert_eq!(app.events("voyage.abandoned").await, 0);
}

/// A run that takes longer than its lease keeps it, for as long as its process lives.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_run_keeps_its_lease() {
    let app = App::builder(World::Absent)
        .env("IDEMPOTENCY_LEASE", "1s")
        .env("DATABASE_LOCK_TIMEOUT", "20s")
        .start()
        .await;
    let _second = app.new_replica().await;
    let foreign = Foreign::start().await;
    let point = app.hold_point("before-charge").await;
    let first = app.voyage_in_background("K", &foreign);
    until("its lease has run out three times over", BOUND, || async {
        app.of_record("K", "created_at < now() - interval '3 seconds'").await.as_deref() == Some("true")
    })
    .await;
    let second = app.send(&app.voyage("K", &foreign)).await;
    assert_eq!(second.json()["code"], "request-in-progress", "{}", second.text());
    point.release().await;
    assert_eq!(first.await.expect("a task").expect("an answer").status, 201);
    assert_eq!(app.of_record("K", "attempts").await.as_deref(), Some("1"), "nobody took it");
}

/// A build whose steps have other names, or whose results cannot be read, does not go on with what another one has begun.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_journal_of_another_build_is_an_error_of_that_record() {
    let changes = [
        ("UPDATE workflow_steps SET name = 'book' WHERE position = 0", "UPDATE workflow_steps SET name = 'reserve' WHERE position = 0"),
        ("UPDATE workflow_steps SET result = '7' WHERE position = 1", "UPDATE workflow_steps SET result = '{\"done\":\"c1\"}' WHERE position = 1"),
        (
            "INSERT INTO workflow_steps (account_id, key, position, name, kind, state, result, done_at)
             SELECT account_id, key, 3, 'more', 'atomic', 'done', 'null', now() FROM workflow_steps WHERE position = 0",
            "DELETE FROM workflow_steps WHERE position = 3",
        ),
    ];
    for (change, back) in changes {
        let app = App::builder(World::Absent).start().await;
        let foreign = Foreign::start().await;
        app.at_point("after-settle", "fail", 1_000_000).await;
        assert_eq!(app.send(&app.voyage("K", &foreign)).await.status, 500);
        app.db.batch_execute(change).await.expect("another build");
        app.db.batch_execute("DELETE FROM probe_orders").await.expect("nothing fails by itself");
        let changed = until("somebody tries to go on", BOUND, || async {
            let answer = app.send(&app.voyage("K", &foreign)).await;
            (answer.status == 500).then_some(answer)
        })
        .await;
        assert_eq!(
            (changed.status, changed.json()["code"].as_str()),
            (500, Some("workflow-changed")),
            "{}",
            changed.text()
        );
        assert!(
            app.of_record("K", "trouble").await.is_some_and(|why| why.contains("step")),
            "shown to the operator"
        );
        assert_eq!(app.get(changed.json()["type"].as_str().expect("a page")).await.status, 200);
        app.db.batch_execute(back).await.expect("the first build");
        let settled = app.settle_voyage("K", &foreign, 201).await;
        assert_eq!(settled.status, 201);
        assert_eq!(app.done(&foreign).await, Done::ONCE, "{change}");
    }
}
