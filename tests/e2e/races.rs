//! Two actors at once: clients, replicas, leases, locks. In each race it is said who wins.

use std::time::Duration;

use testkit::{Action, CommandMatch, Connection, Request, Response, Signal, until};

use crate::harness::database::{Effects, attempts, before_insert, remove_triggers};
use crate::harness::{App, World, in_every_world, order, script};

const BOUND: Duration = Duration::from_secs(20);

/// Every answer is a 201 with one and the same body, or a 409; returns how many were fresh.
fn fresh_among(answers: &[Response]) -> usize {
    let mut bodies: Vec<&[u8]> = Vec::new();
    let mut fresh = 0;
    for answer in answers {
        match answer.status {
            201 => {
                bodies.push(&answer.body);
                fresh += usize::from(answer.header("idempotent-replayed").is_none());
            }
            409 => assert_eq!(answer.json()["code"], "request-in-progress"),
            other => panic!("{other}: {}", answer.text()),
        }
    }
    bodies.dedup();
    assert!(bodies.len() <= 1, "two different answers under one key");
    fresh
}

async fn at_once(app: &App, key: &str, clients: usize) -> Vec<Response> {
    let requests: Vec<_> = (0..clients).map(|_| app.order_in_background(key, 2)).collect();
    let mut answers = Vec::new();
    for request in requests {
        answers.push(request.await.expect("an answer"));
    }
    answers
}

in_every_world!(fifty_at_once_make_one_order, |app| async move {
    let answers = at_once(&app, "K", 50).await;
    assert_eq!(fresh_among(&answers), 1);
    app.heal();
    let first = app.settle("K", 2).await;
    for _ in 0..20 {
        assert_eq!(app.order("K", 2).await.body, first.body);
    }
    assert_eq!(app.effects("K").await, Effects::ONCE);
});

in_every_world!(
    a_second_request_during_a_slow_transaction_is_told_to_wait_or_gets_the_answer,
    |builder| builder.env("DATABASE_LOCK_TIMEOUT", "10s"),
    |app| async move {
        for round in 0..5 {
            let key = format!("K{round}");
            app.strike();
            let frozen = app.freeze().await;
            let first = app.order_in_background(&key, 2);
            app.waiting_for_lock(1).await;
            let second = app.order(&key, 2).await;
            assert_eq!(second.status, 409, "{}", second.text());
            let retry_after: u64 =
                second.header("retry-after").and_then(|text| text.parse().ok()).expect("seconds");
            assert!((1..=10).contains(&retry_after));
            frozen.thaw().await;
            assert_eq!(first.await.expect("an answer").status, 201);
            assert_eq!(app.settle(&key, 2).await.status, 201);
            assert_eq!(app.effects(&key).await, Effects::ONCE);
        }
    }
);

in_every_world!(
    work_outlives_a_client_that_hangs_up,
    |builder| builder.env("DATABASE_LOCK_TIMEOUT", "10s"),
    |app| async move {
        for (key, reset) in [("reset", true), ("closed", false)] {
            let frozen = app.freeze().await;
            let client = app.begin_order(key, 2).await;
            app.waiting_for_lock(1).await;
            if reset {
                client.reset();
            } else {
                client.close();
            }
            frozen.thaw().await;
            until("the order that nobody waits for", BOUND, || async {
                app.effects(key).await == Effects::ONCE
            })
            .await;
            app.heal();
            let retry = app.settle(key, 2).await;
            assert_eq!(retry.header("idempotent-replayed"), Some("true"));
        }
    }
);

/// The client goes while its attempt waits for what Redis says: the attempt is carried out, and the place is given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn work_outlives_a_client_that_hangs_up_before_redis_has_answered() {
    let app = App::builder(World::Up).redis_proxy().env("REDIS_TIMEOUT", "10s").start().await;
    let after = app.after();
    assert_eq!(app.order("warm", 1).await.status, 201);
    let proxy = app.redis_proxy.as_ref().expect("a proxy");
    for (key, reset) in [("reset", true), ("closed", false)] {
        let held = proxy.once(CommandMatch::script([script("acquire")]), Action::HoldReply);
        let client = app.begin_order(key, 2).await;
        held.reached().await;
        if reset {
            client.reset();
        } else {
            client.close();
        }
        until("the order that nobody waits for", BOUND, || async { app.effects(key).await == Effects::ONCE })
            .await;
        held.release();
        let retry = app.settle(key, 2).await;
        assert_eq!(retry.header("idempotent-replayed"), Some("true"));
    }
    after.check().await;
}

in_every_world!(a_client_that_resets_at_any_moment_leaves_nothing_behind, |app| async move {
    for round in 0..40_usize {
        let key = format!("K{round}");
        let request = app.request("/v1/orders", &key, &order(1)).to_bytes();
        let mut client = Connection::open(app.replica().api).await.expect("a connection");
        // A different part of the request, or all of it, has been sent when the client goes.
        let part = request.len() * (round % 8 + 1) / 8;
        client.write(&request[..part]).await.expect("sent");
        if round % 2 == 0 { client.reset() } else { client.close() }
    }
    app.heal();
    for round in 0..40 {
        let key = format!("K{round}");
        app.settle(&key, 1).await;
        assert_eq!(app.effects(&key).await, Effects::ONCE, "{key}");
    }
});

/// One connection for all: five hundred resets later it still works, and no transaction was handed on open.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_pool_of_one_survives_five_hundred_resets() {
    let app = App::builder(World::Up).env("DATABASE_POOL", "1").start().await;
    let after = app.after();
    for round in 0..500 {
        app.begin_order(&format!("K{round}"), 1).await.reset();
    }
    for round in 0..50 {
        app.settle(&format!("after-{round}"), 1).await;
        assert_eq!(app.get("/v1/orders?limit=1").await.status, 200);
    }
    for round in (0..500).step_by(25) {
        app.settle(&format!("K{round}"), 1).await;
    }
    after.check().await;
}

in_every_world!(
    duplicates_of_a_slow_key_hold_no_connection,
    |builder| builder.env("DATABASE_POOL", "5").env("DATABASE_LOCK_TIMEOUT", "10s"),
    |app| async move {
        before_insert(
            &app.db,
            "IF NEW.idem_key LIKE '%:slow' THEN PERFORM pg_advisory_xact_lock(1); END IF;",
        )
        .await;
        let gate = crate::harness::database::connect(&app.database_url).await;
        gate.batch_execute("SELECT pg_advisory_lock(1)").await.expect("the gate");
        let first = app.order_in_background("slow", 2);
        app.waiting_for_lock(1).await;
        for round in 0..4 {
            for duplicate in at_once(&app, "slow", 50).await {
                assert_ne!(duplicate.status, 201, "{}", duplicate.text());
                // With Redis away each takes a connection for one round trip, and may find none in time.
                assert!(matches!(duplicate.status, 409 | 503), "{}", duplicate.text());
            }
            // The other keys, of the same product, are not held up.
            app.settle(&format!("fresh-{round}"), 1).await;
        }
        gate.batch_execute("SELECT pg_advisory_unlock(1)").await.expect("open");
        assert_eq!(first.await.expect("an answer").status, 201);
        app.heal();
        app.settle("slow", 2).await;
        assert_eq!(attempts(&app.db).await, 5, "the slow one and four fresh ones, each once");
        assert_eq!(app.effects("slow").await, Effects::ONCE);
        remove_triggers(&app.db).await;
    }
);

in_every_world!(two_replicas_make_one_order, |app| async move {
    let second = app.new_replica().await;
    for round in 0..15 {
        let key = format!("K{round}");
        app.strike();
        let request = app.request("/v1/orders", &key, &order(2));
        let (one, two) =
            tokio::join!(testkit::send(app.replica().api, &request), testkit::send(second.api, &request));
        let answers = [one.expect("an answer"), two.expect("an answer")];
        assert_eq!(fresh_among(&answers), 1, "{key}");
        app.heal();
        app.settle(&key, 2).await;
        assert_eq!(app.effects(&key).await, Effects::ONCE, "{key}");
    }
});

in_every_world!(two_keys_with_one_payload_are_two_orders, |app| async move {
    let (one, two) = (app.order_in_background("K1", 2), app.order_in_background("K2", 2));
    let (one, two) = (one.await.expect("an answer"), two.await.expect("an answer"));
    assert_eq!((one.status, two.status), (201, 201));
    assert_ne!(one.json()["id"], two.json()["id"]);
});

/// A claim that is taken away (DEL, FLUSHALL) while its owner works: PostgreSQL still lets nobody else in.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_claim_that_is_deleted_lets_nobody_in() {
    let app = App::builder(World::Up).env("DATABASE_LOCK_TIMEOUT", "10s").start().await;
    let after = app.after();
    for (key, command) in [("deleted", "DEL"), ("flushed", "FLUSHALL")] {
        let frozen = app.freeze().await;
        let first = app.order_in_background(key, 2);
        app.waiting_for_lock(1).await;
        let name = app.redis_name(key).await;
        let words = if command == "DEL" { vec!["DEL", &name] } else { vec![command] };
        let _: deadpool_redis::redis::Value = app.redis(&words).await;
        for _ in 0..3 {
            assert_eq!(app.order(key, 2).await.status, 409);
        }
        frozen.thaw().await;
        let first = first.await.expect("an answer");
        assert_eq!(first.status, 201);
        let again = app.order(key, 2).await;
        assert_eq!(
            (again.status, &again.body, again.header("x-cache-lookup")),
            (201, &first.body, Some("HIT"))
        );
        assert_eq!(app.effects(key).await, Effects::ONCE);
    }
    after.check().await;
}

/// The owner is paused until its lease has run out. Its transaction, if it still lives, keeps the second out; once the
/// server has ended it, the second wins, and the owner that wakes up finds a record and answers with that.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_paused_owner_cannot_overtake_its_successor() {
    let app = App::builder(World::Up).env("IDEMPOTENCY_LEASE", "1s").pg_proxy().start().await;
    let after = app.after();
    let second = app.new_replica().await;
    let proxy = app.pg_proxy.as_ref().expect("a proxy");
    // The owner has entered; it is stopped before it learns so.
    let entered =
        proxy.once(testkit::SqlMatch::executes("FROM idempotency_records"), testkit::Action::HoldReply);
    let owner = app.order_in_background("K", 2);
    entered.reached().await;
    app.replica().process.signal(Signal::Stop).await.expect("SIGSTOP");
    entered.release();
    let request = app.request("/v1/orders", "K", &order(2));
    let successor = until("the successor is let in", BOUND, || async {
        let answer = testkit::send(second.api, &request).await.expect("an answer");
        assert!(matches!(answer.status, 201 | 409), "{}", answer.text());
        (answer.status == 201).then_some(answer)
    })
    .await;
    assert_eq!(successor.header("idempotent-replayed"), None);
    app.replica().process.signal(Signal::Cont).await.expect("SIGCONT");
    let owner = owner.await.expect("an answer");
    assert_eq!((owner.status, &owner.body), (201, &successor.body), "both are told of the same order");
    assert_eq!(owner.header("idempotent-replayed"), Some("true"));
    assert_eq!(app.order("K", 2).await.body, successor.body);
    assert_eq!(app.effects("K").await, Effects::ONCE);
    after.check().await;
}

/// A lease that ran out under a paused owner is not released by it: the token is compared.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_paused_owner_does_not_release_its_successors_claim() {
    let app = App::builder(World::Up)
        .env("IDEMPOTENCY_LEASE", "1s")
        .env("DATABASE_LOCK_TIMEOUT", "10s")
        .start()
        .await;
    let second = app.new_replica().await;
    let name = app.redis_name("K").await;
    // The first attempt of all fails, later ones wait behind a gate.
    before_insert(
        &app.db,
        "IF currval('attempts') = 1 THEN PERFORM pg_advisory_xact_lock_shared(1); RAISE EXCEPTION 'asked for'; \
         ELSE PERFORM pg_advisory_xact_lock_shared(2); END IF;",
    )
    .await;
    let gate = crate::harness::database::connect(&app.database_url).await;
    gate.batch_execute("SELECT pg_advisory_lock(1), pg_advisory_lock(2)").await.expect("the gates");
    let owner = app.order_in_background("K", 2);
    app.waiting_for_lock(1).await;
    app.replica().process.signal(Signal::Stop).await.expect("SIGSTOP");
    let request = app.request("/v1/orders", "K", &order(2));
    until("the owner's lease has run out", BOUND, || async {
        app.redis::<i64>(&["EXISTS", &name]).await == 0
    })
    .await;
    // The owner's statement fails on the server; its transaction is aborted, and ended by the idle time-out.
    gate.batch_execute("SELECT pg_advisory_unlock(1)").await.expect("open");
    let successor = tokio::spawn({
        let (api, request) = (second.api, request.clone());
        async move {
            until("the successor runs", BOUND, || async {
                let answer = testkit::send(api, &request).await.expect("an answer");
                (answer.status != 409).then_some(answer)
            })
            .await
        }
    });
    until("the successor is at its insert", BOUND, || async { attempts(&app.db).await == 2 }).await;
    let claim: Vec<u8> = app.redis(&["GET", &name]).await;
    app.replica().process.signal(Signal::Cont).await.expect("SIGCONT");
    let owner = owner.await.expect("an answer");
    assert!(matches!(owner.status, 409 | 500 | 503), "{}", owner.text());
    let still: Option<Vec<u8>> = app.redis(&["GET", &name]).await;
    assert_eq!(still.as_deref().map(|value| &value[59..75]), Some(&claim[59..75]), "the successor's token");
    gate.batch_execute("SELECT pg_advisory_unlock(2)").await.expect("open");
    assert_eq!(successor.await.expect("the successor").status, 201);
    assert_eq!(app.effects("K").await, Effects::ONCE);
    remove_triggers(&app.db).await;
}

/// A living owner's heartbeat keeps its claim for longer than the lease; a killed one's runs out within it.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_lease_lives_as_long_as_its_owner() {
    let mut app = App::builder(World::Up)
        .env("IDEMPOTENCY_LEASE", "1s")
        .env("DATABASE_LOCK_TIMEOUT", "10s")
        .start()
        .await;
    let after = app.after();
    let frozen = app.freeze().await;
    let _unanswered = app.begin_order("K", 2).await;
    app.waiting_for_lock(1).await;
    let name = app.redis_name("K").await;
    let left = async || app.redis::<i64>(&["PTTL", &name]).await;
    for _beat in 0..3 {
        until("a part of the lease is over", BOUND, || async { (1..=900).contains(&left().await) }).await;
        until("the next heartbeat", BOUND, || async { (901..=1000).contains(&left().await) }).await;
    }
    app.kill().await;
    let left: i64 = app.redis(&["PTTL", &name]).await;
    assert!(left <= 1000, "{left} ms left");
    frozen.thaw().await;
    app.restart().await;
    app.settle("K", 2).await;
    assert_eq!(app.effects("K").await, Effects::ONCE);
    after.check().await;
}

/// One connection, two requests in one write.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn pipelined_requests_are_answered_in_order() {
    let app = App::builder(World::Up).start().await;
    let pipelined = async |key: &str, quantities: [u32; 2]| -> [Response; 2] {
        let requests: Vec<Request> =
            quantities.iter().map(|quantity| app.request("/v1/orders", key, &order(*quantity))).collect();
        let mut connection = Connection::open(app.replica().api).await.expect("a connection");
        connection.pipeline(&requests).await.expect("sent");
        [connection.read().await.expect("an answer"), connection.read().await.expect("an answer")]
    };
    let [first, second] = pipelined("same", [1, 1]).await;
    assert_eq!((first.status, second.status, &first.body), (201, 201, &second.body));
    assert_eq!(second.header("idempotent-replayed"), Some("true"));
    let [first, second] = pipelined("changed", [1, 2]).await;
    assert_eq!((first.status, second.status), (201, 422));
}
