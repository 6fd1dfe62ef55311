//! SIGKILL of the service, at named points and at random ones: plain retries settle every key, once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use testkit::pg_proxy::{Statement, Step};
use testkit::{Action, CommandMatch, Response, Rule, SqlMatch, until};

use crate::harness::database::Effects;
use crate::harness::{App, World, order, script};

/// Short, so that a place that was left behind is soon free.
const LEASE: &str = "1s";

async fn app() -> App {
    let builder = App::builder(World::Up).pg_proxy().redis_proxy().env("IDEMPOTENCY_LEASE", LEASE);
    let app = builder.start().await;
    // Connections are open and statements prepared: what follows is the order's own traffic.
    for key in 0..8 {
        assert_eq!(app.order(&format!("warm-{key}"), 1).await.status, 201);
    }
    app
}

fn redis(app: &App, name: &str, action: Action) -> Rule {
    app.redis_proxy.as_ref().expect("a proxy").once(CommandMatch::script([script(name)]), action)
}

fn postgres(app: &App, part: &'static str, action: Action) -> Rule {
    let matcher = SqlMatch::new(part, move |statement: &Statement| {
        statement.step == Step::Execute
            && (statement.sql == part || (part != "COMMIT" && statement.sql.contains(part)))
    });
    app.pg_proxy.as_ref().expect("a proxy").once(matcher, action)
}

/// Kills the service where the rule holds it, starts a new one, and retries until the order is there.
async fn killed_at(mut app: App, point: Rule, committed: bool) {
    let after = app.after();
    let _unanswered = app.begin_order("K", 2).await;
    point.reached().await;
    app.kill().await;
    app.redis_proxy.as_ref().expect("a proxy").clear_rules();
    app.pg_proxy.as_ref().expect("a proxy").clear_rules();
    app.restart().await;
    let first = app.settle("K", 2).await;
    let replayed = first.header("idempotent-replayed").is_some();
    assert_eq!(
        replayed, committed,
        "committed before the kill means replayed after it, and not means executed"
    );
    let again = app.order("K", 2).await;
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert_eq!(app.order("K", 3).await.status, 422);
    assert_eq!(app.effects("K").await, Effects::ONCE);
    after.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn after_acquire() {
    let app = app().await;
    let point = redis(&app, "acquire", Action::HoldReply);
    killed_at(app, point, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn after_enter() {
    let app = app().await;
    let point = postgres(&app, "FROM idempotency_records", Action::HoldReply);
    killed_at(app, point, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn after_the_first_writes() {
    let app = app().await;
    // Order and stock are written; what flies behind them has not arrived.
    let point = postgres(&app, "INSERT INTO events", Action::HoldBefore);
    killed_at(app, point, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn record_sent_and_commit_not() {
    let app = app().await;
    let point = postgres(&app, "COMMIT", Action::HoldBefore);
    killed_at(app, point, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn record_and_commit_sent() {
    let app = app().await;
    let point = postgres(&app, "COMMIT", Action::HoldReply);
    killed_at(app, point, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn committed_and_not_settled() {
    let app = app().await;
    let point = redis(&app, "settle", Action::HoldBefore);
    killed_at(app, point, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn settled_and_not_answered() {
    let app = app().await;
    let point = redis(&app, "settle", Action::HoldReply);
    killed_at(app, point, true).await;
}

/// Clients that order under ever new keys while the service is killed after a random number of answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn at_random_points_under_load() {
    const ROUNDS: usize = 5;
    const CLIENTS: usize = 4;
    let mut app = App::builder(World::Up).env("IDEMPOTENCY_LEASE", LEASE).start().await;
    let after = app.after();
    let answered: Arc<Mutex<HashMap<String, Response>>> = Arc::default();
    let mut sent: Vec<String> = Vec::new();
    for round in 0..ROUNDS {
        let seed = uuid::Uuid::new_v4().as_bytes()[0];
        let kill_after = 5 + usize::from(seed) % 60;
        println!("round {round}: killed after {kill_after} answers");
        let before = answered.lock().expect("not poisoned").len();
        let started: Arc<Mutex<Vec<String>>> = Arc::default();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (api, answered, started) =
                    (app.replica().api, Arc::clone(&answered), Arc::clone(&started));
                let requests: Vec<_> = (0..500)
                    .map(|number| format!("r{round}-c{client}-{number}"))
                    .map(|key| (app.request("/v1/orders", &key, &order(1)), key))
                    .collect();
                tokio::spawn(async move {
                    for (request, key) in requests {
                        started.lock().expect("not poisoned").push(key.clone());
                        let Ok(answer) = testkit::send(api, &request).await else { return };
                        assert_eq!(answer.status, 201, "{}", answer.text());
                        answered.lock().expect("not poisoned").insert(key, answer);
                    }
                })
            })
            .collect();
        until("enough answers", testkit::wait::BOUND, || async {
            answered.lock().expect("not poisoned").len() >= before + kill_after
        })
        .await;
        app.kill().await;
        for client in clients {
            client.await.expect("a client");
        }
        sent.extend(started.lock().expect("not poisoned").drain(..));
        app.restart().await;
    }
    let answered = answered.lock().expect("not poisoned").clone();
    for key in &sent {
        let settled = app.settle(key, 1).await;
        if let Some(first) = answered.get(key) {
            assert_eq!(settled.body, first.body, "{key}: an answered 201 is still there, and is the same");
        }
        assert_eq!(app.order(key, 1).await.body, settled.body);
        assert_eq!(app.effects(key).await, Effects::ONCE, "{key}");
    }
    println!("{} keys, {} answered before a kill", sent.len(), answered.len());
    assert!(sent.len() > answered.len(), "at least one request was cut by a kill");
    after.check().await;
}
