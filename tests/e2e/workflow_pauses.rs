//! SIGSTOP past the lease at every point: another replica takes over, and what was paused commits nothing when it goes on.

use testkit::{Signal, until};

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

/// Paused between "begun" and the answer: the successor asks, and the call that comes late is the same one to the other side.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn during_the_foreign_call() {
    for hold in [Hold::BeforeCharging, Hold::BeforeAnswering] {
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

/// Every row that a voyage writes, with the moment of its last change.
async fn whole_state(app: &App) -> Vec<String> {
    let sql = "SELECT row_to_json(r)::text FROM idempotency_records r
               UNION ALL SELECT row_to_json(s)::text FROM workflow_steps s
               UNION ALL SELECT row_to_json(e)::text FROM events e ORDER BY 1";
    app.db.query(sql, &[]).await.expect("rows").iter().map(|row| row.get(0)).collect()
}
