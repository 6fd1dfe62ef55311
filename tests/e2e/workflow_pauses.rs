//! SIGSTOP past the lease at every point: another replica takes over, and what was paused commits nothing when it goes on.

use testkit::{Action, Signal, SqlMatch, until};

use crate::harness::foreign::{Foreign, Hold};
use crate::harness::voyage::{BOUND, Done, POINTS};
use crate::harness::{App, World};

const LEASE: &str = "1s";

async fn app() -> App {
    App::builder(World::Up).env("IDEMPOTENCY_LEASE", LEASE).env("DATABASE_LOCK_TIMEOUT", "10s").start().await
}

/// Sends the voyage to another replica until it is done there.
async fn taken_over(
    app: &App,
    other: std::net::SocketAddr,
    foreign: &Foreign,
    what: &str,
) -> testkit::Response {
    until(what, BOUND, || async {
        let answer = testkit::send(other, &app.voyage("K", foreign)).await.expect("an answer");
        (answer.status == 201).then_some(answer)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn at_every_point_the_paused_one_commits_nothing() {
    for point in POINTS {
        let app = app().await;
        let second = app.new_replica().await;
        let foreign = Foreign::start().await;
        let held = app.hold_point(point).await;
        let first = app.voyage_in_background("K", &foreign);
        app.point_reached().await;
        app.replica().process.signal(Signal::Stop).await.expect("SIGSTOP");
        held.release().await;
        let settled = taken_over(&app, second.api, &foreign, point).await;
        assert_eq!(app.done(&foreign).await, Done::ONCE, "{point}");
        let before = whole_state(&app).await;
        app.replica().process.signal(Signal::Cont).await.expect("SIGCONT");
        let stale = first.await.expect("a task").expect("an answer: it has stopped");
        assert!(
            stale.status == 409 || (stale.status, &stale.body) == (201, &settled.body),
            "{point}: {}",
            stale.text()
        );
        assert_eq!(whole_state(&app).await, before, "{point}: the paused one changed nothing");
        assert_eq!(app.done(&foreign).await, Done::ONCE, "{point}");
        app.after().check().await;
    }
}

/// The successor is in the middle of it when the paused one goes on: what is between them is the token, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn beside_a_successor_that_is_not_finished_the_paused_one_commits_nothing() {
    for point in POINTS.into_iter().filter(|point| !point.starts_with("in-")) {
        let app = app().await;
        let second = app.new_replica_with(&[("VOYAGE_POINTS", "second-")]).await;
        let foreign = Foreign::start().await;
        let (held, of_second) =
            (app.hold_point(point).await, app.hold_point(&format!("second-{point}")).await);
        let first = app.voyage_in_background("K", &foreign);
        app.waiting_for_lock(1).await;
        app.replica().process.signal(Signal::Stop).await.expect("SIGSTOP");
        let request = app.voyage("K", &foreign);
        let successor = tokio::spawn(async move {
            until("the second replica finishes it", BOUND, || async {
                let answer = testkit::send(second.api, &request).await.expect("an answer");
                (answer.status == 201).then_some(answer)
            })
            .await
        });
        // Both wait at their points: the paused one's session, and the successor.
        app.waiting_for_lock(2).await;
        let before = whole_state(&app).await;

        app.replica().process.signal(Signal::Cont).await.expect("SIGCONT");
        held.release().await;
        let stale = first.await.expect("a task").expect("an answer: it has stopped");
        assert_eq!(
            (stale.status, stale.json()["code"].as_str()),
            (409, Some("request-in-progress")),
            "{point}"
        );
        assert_eq!(whole_state(&app).await, before, "{point}: the paused one changed nothing");
        of_second.release().await;
        successor.await.expect("a task");
        assert_eq!(app.done(&foreign).await, Done::ONCE, "{point}");
    }
}

/// Paused between "begun" and the answer: the successor asks, and the call that comes late is the same one to the other side.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn during_the_foreign_call() {
    for hold in [Hold::Charge, Hold::Answer] {
        let app = app().await;
        let second = app.new_replica().await;
        let foreign = Foreign::start().await;
        foreign.hold(hold);
        let first = app.voyage_in_background("K", &foreign);
        foreign.reached().await;
        app.replica().process.signal(Signal::Stop).await.expect("SIGSTOP");
        foreign.release();
        foreign.idle().await;
        let settled = taken_over(&app, second.api, &foreign, "taken over").await;
        let before = whole_state(&app).await;
        app.replica().process.signal(Signal::Cont).await.expect("SIGCONT");
        let stale = first.await.expect("a task").expect("an answer");
        assert!(stale.status == 409 || stale.body == settled.body, "{}", stale.text());
        assert_eq!(whole_state(&app).await, before, "{hold:?}");
        assert_eq!(app.done(&foreign).await, Done::ONCE, "{hold:?}");
    }
}

/// The successor is still asking when the paused one gets its answer: it is not the paused one's to write down any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_answer_that_comes_to_a_paused_one_is_not_written_down() {
    let app = app().await;
    let second = app.new_replica().await;
    let foreign = Foreign::start().await;
    foreign.hold(Hold::Answer);
    let first = app.voyage_in_background("K", &foreign);
    foreign.reached().await;
    app.replica().process.signal(Signal::Stop).await.expect("SIGSTOP");
    foreign.hold(Hold::Tell);
    foreign.idle().await;
    let request = app.voyage("K", &foreign);
    let successor = tokio::spawn(async move {
        until("the second replica finishes it", BOUND, || async {
            let answer = testkit::send(second.api, &request).await.expect("an answer");
            (answer.status == 201).then_some(answer)
        })
        .await
    });
    foreign.reached().await;
    app.replica().process.signal(Signal::Cont).await.expect("SIGCONT");
    let stale = first.await.expect("a task").expect("an answer: it has stopped");
    assert_eq!(stale.status, 409, "{}", stale.text());
    let open = "SELECT count(*) FROM workflow_steps WHERE name = 'charge' AND state = 'begun'";
    assert_eq!(app.db.query_one(open, &[]).await.expect("steps").get::<_, i64>(0), 1);
    foreign.release();
    successor.await.expect("a task");
    assert_eq!((foreign.calls().len(), app.done(&foreign).await), (1, Done::ONCE));
}

/// A retry has seen that the lease ran out; before it takes over, the paused one goes on and renews it. The token is the same as
/// before, so that only the time tells: nothing is taken from the living.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_lease_that_is_renewed_between_the_look_and_the_taking_is_left_to_its_owner() {
    let builder = App::builder(World::Up).pg_proxy().env("IDEMPOTENCY_LEASE", LEASE);
    let app = builder.env("DATABASE_LOCK_TIMEOUT", "10s").start().await;
    let second = app.new_replica().await;
    let proxy = app.pg_proxy.as_ref().expect("a proxy");
    // Here only retries take over.
    proxy.always(SqlMatch::executes("command = ANY ($2)"), Action::CutBefore);
    let foreign = Foreign::start().await;
    foreign.hold(Hold::Charge);
    let first = app.voyage_in_background("K", &foreign);
    foreign.reached().await;
    let token = app.of_record("K", "lease_token").await;
    app.replica().process.signal(Signal::Stop).await.expect("SIGSTOP");
    let taking = proxy.once(SqlMatch::executes("WITH free AS MATERIALIZED"), Action::HoldBefore);
    let (request, held) = (app.voyage("K", &foreign), taking.clone());
    let retry = tokio::spawn(async move {
        until("a retry wants to take over", BOUND, || async {
            let answer = testkit::send(second.api, &request).await.expect("an answer");
            (held.times() > 0).then_some(answer)
        })
        .await
    });
    taking.reached().await;
    app.replica().process.signal(Signal::Cont).await.expect("SIGCONT");
    until("the owner renews its lease", BOUND, || async {
        app.of_record("K", "lease_expires_at > clock_timestamp()").await.as_deref() == Some("true")
    })
    .await;
    taking.release();
    let refused = retry.await.expect("a task");
    assert_eq!((refused.status, refused.json()["code"].as_str()), (409, Some("request-in-progress")));
    assert_eq!(app.of_record("K", "lease_token").await, token, "it is still the owner's");
    foreign.release();
    assert_eq!(first.await.expect("a task").expect("an answer").status, 201);
    assert_eq!(app.done(&foreign).await, Done::ONCE);
}

/// Every row that a voyage writes, with the moment of its last change.
async fn whole_state(app: &App) -> Vec<String> {
    // The heartbeat of whoever holds the lease is not a change.
    let sql = "SELECT (to_jsonb(r) - 'lease_expires_at')::text FROM idempotency_records r
               UNION ALL SELECT row_to_json(s)::text FROM workflow_steps s
               UNION ALL SELECT row_to_json(e)::text FROM events e ORDER BY 1";
    app.db.query(sql, &[]).await.expect("rows").iter().map(|row| row.get(0)).collect()
}
