//! A workflow does each of its steps once, answers like any command, and can go on in the background.

use std::time::Duration;

use serde_json::json;
use testkit::Request;

use crate::harness::foreign::{Charging, Finding, Foreign, Hold};
use crate::harness::voyage::{BOUND, Done};
use crate::harness::{App, World, in_every_world};

in_every_world!(each_step_is_done_once, |app| async move {
    let foreign = Foreign::start().await;
    let first = app.send(&app.voyage("K", &foreign)).await;
    assert_eq!((first.status, first.header("location")), (201, Some("/v1/voyages/c1")), "{}", first.text());
    assert_eq!(first.header("idempotent-replayed"), None);
    for _ in 0..2 {
        let again = app.send(&app.voyage("K", &foreign)).await;
        assert_eq!((again.status, &again.body), (201, &first.body));
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(again.header("original-request-id"), first.header("x-request-id"));
    }
    let other = app.post("/v1/voyages", "K", &json!({ "foreign": "elsewhere" })).await;
    assert_eq!(other.status, 422);
    assert_eq!(app.done(&foreign).await, Done::ONCE);
    let call = foreign.calls().remove(0);
    assert!(call.ends_with("-1-charge") && !call.contains('K'), "derived, not the client's own: {call}");

    let status = app.get("/v1/idempotency-keys/K").await.json();
    assert_eq!((&status["state"], &status["attempts"]), (&json!("completed"), &json!(1)), "{status}");
    let operation = app.operation(status["links"]["operation"].as_str().expect("a link")).await;
    assert_eq!(operation["state"], "succeeded");
    assert_eq!(
        (&operation["response"]["status"], &operation["response"]["body"]),
        (&json!(201), &first.json())
    );
    assert_eq!(app.of_record("K", "request_body").await, None, "nothing is kept to be run again");
});

in_every_world!(a_refusal_is_stored_behind_the_steps_that_are_done, |app| async move {
    let foreign = Foreign::start().await;
    foreign.charging(Charging::Declines);
    let first = app.send(&app.voyage("K", &foreign)).await;
    assert_eq!(
        (first.status, first.json()["code"].as_str()),
        (402, Some("voyage-declined")),
        "{}",
        first.text()
    );
    foreign.charging(Charging::Works);
    let again = app.send(&app.voyage("K", &foreign)).await;
    assert_eq!((again.status, &again.body), (402, &first.body));
    assert_eq!((app.events("voyage.reserved").await, app.events("voyage.released").await), (1, 1));
    assert_eq!((foreign.charges(), foreign.calls().len()), (0, 1));
    assert_eq!(app.get("/v1/idempotency-keys/K").await.json()["state"], "failed");
});

in_every_world!(
    a_running_one_is_seen_by_every_duplicate,
    |builder| builder.env("DATABASE_LOCK_TIMEOUT", "10s"),
    |app| async move {
        let foreign = Foreign::start().await;
        let point = app.hold_point("before-charge").await;
        let first = app.voyage_in_background("K", &foreign);
        app.point_reached().await;
        // Other ways in: Redis knows it, or has forgotten it, or is not there.
        for _ in 0..2 {
            let second = app.send(&app.voyage("K", &foreign)).await;
            assert_eq!(second.json()["code"], "request-in-progress", "{}", second.text());
            assert_eq!(app.post("/v1/voyages", "K", &json!({ "foreign": "x" })).await.status, 422);
            if app.redis.is_some() {
                let _: () = app.redis(&["FLUSHALL"]).await;
            }
        }
        assert_eq!(app.get("/v1/idempotency-keys/K").await.json()["state"], "running");
        let (api, waiter) = (app.replica().api, app.voyage("K", &foreign).header("Prefer", "wait=10"));
        let waiter = tokio::spawn(async move { testkit::send(api, &waiter).await.expect("an answer") });
        point.release().await;
        let first = first.await.expect("a task").expect("an answer");
        assert_eq!(first.status, 201, "{}", first.text());
        let waiter = waiter.await.expect("a task");
        assert_eq!((waiter.status, &waiter.body), (201, &first.body));
        app.heal();
        assert_eq!(app.done(&foreign).await, Done::ONCE);
    }
);

in_every_world!(a_caller_may_prefer_to_be_answered_at_once, |app| async move {
    let foreign = Foreign::start().await;
    foreign.hold(Hold::Charge);
    let at_once = app.send(&app.voyage("K", &foreign).header("Prefer", "respond-async")).await;
    assert_eq!((at_once.status, at_once.header("preference-applied")), (202, Some("respond-async")));
    let location = at_once.header("location").expect("a place to look at").to_owned();
    assert_eq!(at_once.json()["state"], "running");
    // With or without the preference, and whether or not Redis remembers: the same operation.
    for _ in 0..2 {
        let again = app.send(&app.voyage("K", &foreign)).await;
        assert_eq!(
            (again.status, again.header("location")),
            (202, Some(location.as_str())),
            "{}",
            again.text()
        );
        assert_eq!(app.post("/v1/voyages", "K", &json!({ "foreign": "x" })).await.status, 422);
        if app.redis.is_some() {
            let _: () = app.redis(&["FLUSHALL"]).await;
        }
    }
    assert_eq!(app.operation(&location).await["state"], "running");
    let stranger = Request::get(&location).header("Authorization", format!("Bearer {}", app.other_api_key));
    assert_eq!(app.send(&stranger).await.status, 404, "another account's operation");
    let bearer = format!("Bearer {}", app.api_key);
    let poll =
        Request::get(&location).header("Authorization", bearer).header("Prefer", "wait=10").bound(BOUND);
    let (api, poll) = (app.replica().api, poll);
    let poll = tokio::spawn(async move { testkit::send(api, &poll).await.expect("an answer") });
    foreign.release();
    let poll = poll.await.expect("a task");
    assert_eq!(
        (poll.json()["state"].as_str(), poll.header("preference-applied")),
        (Some("succeeded"), Some("wait=10"))
    );
    let last = app.send(&app.voyage("K", &foreign).header("Prefer", "respond-async")).await;
    assert_eq!((last.status, last.header("idempotent-replayed")), (201, Some("true")), "{}", last.text());
    assert_eq!(last.header("preference-applied"), None);
    assert_eq!(poll.json()["response"]["body"], last.json());
    assert_eq!(app.done(&foreign).await, Done::ONCE);
});

/// The gate knows the operation of what runs in the background: a retry makes no query.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn redis_alone_answers_a_retry_of_what_runs_in_the_background() {
    let app = App::builder(World::Up).pg_proxy().start().await;
    let foreign = Foreign::start().await;
    foreign.hold(Hold::Charge);
    let first = app.send(&app.voyage("K", &foreign).header("Prefer", "respond-async")).await;
    assert_eq!(first.status, 202);
    foreign.reached().await;
    let proxy = app.pg_proxy.as_ref().expect("a proxy");
    proxy.clear_log();
    for _ in 0..5 {
        let again = app.send(&app.voyage("K", &foreign)).await;
        assert_eq!((again.status, again.header("location")), (202, first.header("location")));
    }
    let asked = |sql: &String| sql.contains("pg_try_advisory_xact_lock");
    assert!(!proxy.round_trips().iter().any(|trip| trip.statements.iter().any(asked)));
    foreign.release();
    app.record_is("K", "COMPLETED").await;
}

/// A run that takes longer than the inline limit is answered 202, and goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_long_run_is_answered_202_and_goes_on() {
    for world in [World::Up, World::Absent] {
        let app = App::builder(world).env("IDEMPOTENCY_INLINE_MAX", "300ms").start().await;
        let foreign = Foreign::start().await;
        let point = app.hold_point("after-charge").await;
        let first = app.send(&app.voyage("K", &foreign)).await;
        assert_eq!((first.status, first.header("preference-applied")), (202, None), "{}", first.text());
        let again = app.send(&app.voyage("K", &foreign)).await;
        assert_eq!((again.status, again.header("location")), (202, first.header("location")));
        point.release().await;
        app.record_is("K", "COMPLETED").await;
        let last = app.settle_voyage("K", &foreign, 201).await;
        assert_eq!(last.header("idempotent-replayed"), Some("true"));
        assert_eq!(app.done(&foreign).await, Done::ONCE);
    }
}

/// One at a time for each caller, also while nobody runs it: the record holds the place, not a process.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_serialised_workflow_runs_alone_for_its_caller() {
    for world in [World::Up, World::Absent] {
        let mut app = App::builder(world).env("IDEMPOTENCY_LEASE", "2s").start().await;
        let foreign = Foreign::start().await;
        let body = json!({ "foreign": foreign.address.to_string() });
        foreign.hold(Hold::Charge);
        let request = app.request("/v1/serialised-voyages", "K1", &body).bound(Duration::from_secs(30));
        let api = app.replica().api;
        let first = tokio::spawn(async move { testkit::send(api, &request).await.ok() });
        foreign.reached().await;
        let busy = app.post("/v1/serialised-voyages", "K2", &body).await;
        assert_eq!(
            (busy.status, busy.json()["code"].as_str()),
            (409, Some("caller-busy")),
            "{}",
            busy.text()
        );
        app.kill().await;
        assert!(first.await.expect("a task").is_none(), "its connection is gone");
        foreign.finding(Finding::Shrugs);
        app.restart().await;
        if app.redis.is_some() {
            let _: () = app.redis(&["FLUSHALL"]).await;
        }
        // Nobody knows what became of K1: its place is not free.
        let busy = app.post("/v1/serialised-voyages", "K2", &body).await;
        assert_eq!(busy.json()["code"], "caller-busy", "{}", busy.text());
        foreign.finding(Finding::Tells);
        foreign.release();
        app.record_is("K1", "COMPLETED").await;
        let next = testkit::until("the next one runs", BOUND, || async {
            let answer = app.post("/v1/serialised-voyages", "K2", &body).await;
            (answer.status == 201).then_some(answer)
        })
        .await;
        assert_eq!(next.header("idempotent-replayed"), None);
        assert_eq!((foreign.charges(), app.events("voyage.settled").await), (2, 2));
    }
}
