//! The answer to COMMIT never comes: the outcome is looked up, never guessed.

use testkit::pg_proxy::{Statement, Step};
use testkit::{Action, Door, SqlMatch};

use crate::harness::database::{Effects, at_commit, remove_triggers};
use crate::harness::{App, World, in_every_world};

/// COMMIT itself; BEGIN also has the word in its isolation level.
fn commit() -> SqlMatch {
    SqlMatch::new("COMMIT", |statement: &Statement| {
        statement.step == Step::Execute && statement.sql == "COMMIT"
    })
}

in_every_world!(a_lost_acknowledgement_is_looked_up, |builder| builder.pg_proxy(), |app| async move {
    let proxy = app.pg_proxy.as_ref().expect("a proxy");
    let lost = proxy.once(commit(), Action::DropReplyAndCut);
    let first = app.order("K", 2).await;
    lost.reached().await;
    assert_eq!(first.status, 201, "{}", first.text());
    assert_eq!(first.header("idempotent-replayed"), None, "it is this attempt's own order");
    let again = app.order("K", 2).await;
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert_eq!(app.effects("K").await, Effects::ONCE);
});

in_every_world!(a_commit_that_never_arrived_is_run_again, |builder| builder.pg_proxy(), |app| async move {
    let proxy = app.pg_proxy.as_ref().expect("a proxy");
    let cut = proxy.once(commit(), Action::CutBefore);
    let first = app.order("K", 2).await;
    cut.reached().await;
    assert_eq!(first.status, 201, "{}", first.text());
    assert_eq!(app.order("K", 2).await.body, first.body);
    assert_eq!(app.effects("K").await, Effects::ONCE);
});

in_every_world!(
    an_outcome_that_cannot_be_learned_is_503_and_not_a_guess,
    |builder| builder.pg_proxy(),
    |app| async move {
        let proxy = app.pg_proxy.as_ref().expect("a proxy");
        // The commit is executed, its answer is lost, and nobody can be asked any more.
        let lost = proxy.once(commit(), Action::HoldReply);
        let first = app.order_in_background("K", 2);
        lost.reached().await;
        proxy.down().await;
        let first = first.await.expect("an answer");
        assert_eq!(first.status, 503, "{}", first.text());
        assert_eq!(first.json()["code"], "temporarily-unavailable");
        assert_eq!(first.json()["new_key_safe"], false);
        app.heal();
        proxy.up().await;
        let settled = app.settle("K", 2).await;
        assert_eq!(settled.header("idempotent-replayed"), Some("true"), "it was committed all the same");
        assert_eq!(app.effects("K").await, Effects::ONCE);
    }
);

in_every_world!(
    a_slow_commit_is_awaited_and_its_duplicate_is_told_to_wait,
    |builder| builder,
    |app| async move {
        // The deferred trigger waits at COMMIT for a lock that the test holds.
        at_commit(&app.db, "PERFORM pg_advisory_xact_lock(1);").await;
        let gate = crate::harness::database::connect(&app.database_url).await;
        gate.batch_execute("SELECT pg_advisory_lock(1)").await.expect("the gate");
        let first = app.order_in_background("K", 2);
        app.waiting_for_lock(1).await;
        let second = app.order("K", 2).await;
        assert_eq!((second.status, second.header("retry-after").is_some()), (409, true), "{}", second.text());
        gate.batch_execute("SELECT pg_advisory_unlock(1)").await.expect("open");
        let first = first.await.expect("an answer");
        assert_eq!(first.status, 201, "{}", first.text());
        let third = app.order("K", 2).await;
        assert_eq!((third.status, &third.body), (201, &first.body));
        assert_eq!(app.effects("K").await, Effects::ONCE);
        remove_triggers(&app.db).await;
    }
);

/// The connection hangs at COMMIT for longer than is waited, and is alive: the key's lock decides once it is granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_commit_that_outlasts_its_wait_is_not_released_and_not_run_twice() {
    let app = App::builder(World::Up)
        .env("DATABASE_STATEMENT_TIMEOUT", "1s")
        .env("DATABASE_LOCK_TIMEOUT", "20s")
        .start()
        .await;
    let after = app.after();
    at_commit(&app.db, "PERFORM pg_advisory_xact_lock(1);").await;
    let gate = crate::harness::database::connect(&app.database_url).await;
    gate.batch_execute("SELECT pg_advisory_lock(1)").await.expect("the gate");
    let first = app.order("K", 2).await;
    assert_eq!(first.status, 503, "{}", first.text());
    let second = app.order("K", 2).await;
    assert_eq!(second.status, 409, "{}", second.text());
    let name = app.redis_name("K").await;
    assert_eq!(app.redis::<i64>(&["EXISTS", &name]).await, 1, "the lease is left to run out");
    gate.batch_execute("SELECT pg_advisory_unlock(1)").await.expect("open");
    let settled = app.settle("K", 2).await;
    assert_eq!(settled.header("idempotent-replayed"), Some("true"));
    assert_eq!(app.effects("K").await, Effects::ONCE);
    remove_triggers(&app.db).await;
    after.check().await;
}

/// PostgreSQL is away when the key is done and in Redis: the replay goes on, an unknown key is told to come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn replays_go_on_while_postgresql_is_away() {
    let app = App::builder(World::Up).pg_proxy().start().await;
    let first = app.order("K", 2).await;
    assert_eq!(first.status, 201);
    let proxy = app.pg_proxy.as_ref().expect("a proxy");
    for door in [Door::Closed, Door::Reset] {
        proxy.door(door).await;
        proxy.cut_all().await;
        let again = app.order("K", 2).await;
        assert_eq!(
            (again.status, &again.body, again.header("x-cache-lookup")),
            (201, &first.body, Some("HIT"))
        );
        assert_eq!(app.order("K", 3).await.status, 422);
        let fresh = app.order("fresh", 1).await;
        assert_eq!((fresh.status, fresh.header("retry-after").is_some()), (503, true), "{}", fresh.text());
        let request = testkit::Request::post("/v1/orders").header("Authorization", "Bearer osk_unknown_key");
        let stranger = app.send(&request.json(&crate::harness::order(2))).await.status;
        assert_eq!(stranger, 503, "an unknown API key cannot be told 401 now");
    }
    proxy.up().await;
    assert_eq!(app.settle("fresh", 1).await.status, 201);
}
