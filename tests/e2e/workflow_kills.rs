//! SIGKILL at every point of a workflow: whoever goes on, a retry or the completer, does each step once.

use std::time::Instant;

use crate::harness::foreign::{Charging, Foreign, Hold};
use crate::harness::voyage::{Done, POINTS};
use crate::harness::{App, World};

/// Short, so that a record that was left behind is soon free.
const LEASE: &str = "1s";

/// Who goes on after the kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Retry,
    Completer,
}

async fn app(world: World) -> App {
    App::builder(world).env("IDEMPOTENCY_LEASE", LEASE).env("DATABASE_LOCK_TIMEOUT", "10s").start().await
}

/// Whoever is left goes on, until the voyage has its answer; then nothing was done twice.
async fn goes_on(mut app: App, foreign: &Foreign, by: By, what: &str) {
    let killed = Instant::now();
    app.restart().await;
    if by == By::Completer {
        app.record_is("K", "COMPLETED").await;
    }
    let settled = app.settle_voyage("K", foreign, 201).await;
    println!("{what}: settled by {by:?} after {:?}", killed.elapsed());
    let again = app.send(&app.voyage("K", foreign)).await;
    assert_eq!((again.status, &again.body), (201, &settled.body), "{what}");
    assert_eq!(again.header("idempotent-replayed"), Some("true"), "{what}");
    assert_eq!(app.done(foreign).await, Done::ONCE, "{what}");
    let calls = foreign.calls();
    assert!(calls.iter().all(|key| *key == calls[0]), "{what}: one derived key over all calls: {calls:?}");
    app.after().check().await;
}

async fn killed_at_every_point(world: World, by: By) {
    for point in POINTS {
        let mut app = app(world).await;
        let foreign = Foreign::start().await;
        let held = app.hold_point(point).await;
        let first = app.voyage_in_background("K", &foreign);
        app.point_reached().await;
        app.kill().await;
        assert!(first.await.expect("a task").is_none(), "{point}: no answer");
        held.release().await;
        goes_on(app, &foreign, by, point).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn at_every_point_a_retry_goes_on() {
    killed_at_every_point(World::Up, By::Retry).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn at_every_point_a_retry_goes_on_without_redis() {
    killed_at_every_point(World::Absent, By::Retry).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn at_every_point_the_completer_goes_on() {
    killed_at_every_point(World::Up, By::Completer).await;
}

/// Killed during the call: whether it was charged or not, the foreign service is asked before anything is called again.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn during_the_foreign_call() {
    for by in [By::Retry, By::Completer] {
        for hold in [Hold::Charge, Hold::Answer] {
            let mut app = app(World::Up).await;
            let foreign = Foreign::start().await;
            foreign.hold(hold);
            let first = app.voyage_in_background("K", &foreign);
            foreign.reached().await;
            app.kill().await;
            assert!(first.await.expect("a task").is_none());
            if hold == Hold::Charge {
                // The call that is under way comes to nothing.
                foreign.charging(Charging::Cuts);
                foreign.release();
                foreign.idle().await;
                foreign.charging(Charging::Works);
            }
            foreign.release();
            goes_on(app, &foreign, by, &format!("{hold:?}")).await;
            let calls = if hold == Hold::Charge { 2 } else { 1 };
            assert_eq!((foreign.calls().len(), foreign.questions()), (calls, 1), "{hold:?}");
        }
    }
}

/// A caller that was answered 202 finds its operation after a restart, and a retry finds the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_operation_survives_its_process() {
    let mut app = app(World::Up).await;
    let foreign = Foreign::start().await;
    let held = app.hold_point("before-charge").await;
    let first = app.send(&app.voyage("K", &foreign).header("Prefer", "respond-async")).await;
    let location = first.header("location").expect("a place to look at").to_owned();
    app.point_reached().await;
    app.kill().await;
    app.restart().await;
    assert_eq!(app.operation(&location).await["state"], "running");
    let again = testkit::until("a retry is told the operation", crate::harness::voyage::BOUND, || async {
        let answer = app.send(&app.voyage("K", &foreign)).await;
        (answer.status == 202).then_some(answer)
    })
    .await;
    assert_eq!(again.header("location"), Some(location.as_str()));
    held.release().await;
    app.record_is("K", "COMPLETED").await;
    let last = app.settle_voyage("K", &foreign, 201).await;
    assert_eq!(app.operation(&location).await["response"]["body"], last.json());
    assert_eq!(app.done(&foreign).await, Done::ONCE);
}

/// Two replicas look for what is left; whatever is found is gone on with by one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn two_completers_never_take_the_same() {
    const VOYAGES: usize = 12;
    let mut app = app(World::Up).await;
    let foreign = Foreign::start().await;
    let held = app.hold_point("before-charge").await;
    for number in 0..VOYAGES {
        let request = app.voyage(&format!("K{number}"), &foreign).header("Prefer", "respond-async");
        assert_eq!(app.send(&request).await.status, 202);
    }
    testkit::until("all have begun", crate::harness::voyage::BOUND, || async {
        app.events("voyage.reserved").await == VOYAGES as i64
    })
    .await;
    app.kill().await;
    held.release().await;
    app.restart().await;
    let _second = app.new_replica().await;
    testkit::until("all are finished", crate::harness::voyage::BOUND, || async {
        app.events("voyage.settled").await == VOYAGES as i64
    })
    .await;
    for number in 0..VOYAGES {
        let key = format!("K{number}");
        app.record_is(&key, "COMPLETED").await;
        assert_eq!(app.of_record(&key, "attempts").await.as_deref(), Some("2"), "{key}: taken up once");
    }
    let mut calls = foreign.calls();
    calls.sort();
    calls.dedup();
    assert_eq!((calls.len(), foreign.calls().len(), foreign.charges()), (VOYAGES, VOYAGES, VOYAGES));
    assert_eq!(app.events("voyage.reserved").await, VOYAGES as i64);
}
