//! Events reach the endpoints of their account as Standard Webhooks: signed, under one id, in order as long as they are taken.

use std::time::Duration;

use serde_json::json;
use testkit::{Request, until};

use crate::harness::deliveries::{all_delivered, app, count, in_state, ordered, time_passes};
use crate::harness::receiver::{Answer, Received, Receiver};
use crate::harness::{App, World, in_every_world};

const BOUND: Duration = Duration::from_secs(20);

in_every_world!(
    an_event_is_delivered_once_signed_and_replays_deliver_nothing,
    |builder| builder.env("WEBHOOK_ALLOW_PRIVATE", "1"),
    |app| async move {
        let receiver = Receiver::start().await;
        let (_, secret) = receiver.register(&app).await;
        let first = app.settle("K", 2).await;
        for _ in 0..10 {
            assert_eq!(app.order("K", 2).await.header("idempotent-replayed"), Some("true"));
        }
        let came = receiver.has_received(1).await;
        all_delivered(&app, 1).await;
        assert_eq!(receiver.received().len(), 1);
        let (event, order) = (came[0].json(), first.json());
        assert!(came[0].is_signed_with(&secret), "{:?}", came[0]);
        assert_eq!((&event["type"], &event["data"]), (&json!("order.created"), &order));
        assert_eq!(came[0].header("content-type"), "application/json");
        let stored = app.get("/v1/events").await.json();
        let stored = &stored["data"][0];
        assert_eq!((&stored["id"], &stored["created_at"]), (&json!(came[0].id()), &event["timestamp"]));
    }
);

/// Two refusals, then it is taken: one id, one body, a signature each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_refused_event_comes_again_under_its_id_and_newer_ones_wait() {
    let app = app().await;
    let receiver = Receiver::start().await;
    let (_, secret) = receiver.register(&app).await;
    receiver.answer_next([Answer::Status(500), Answer::Status(503)]);
    let orders = [ordered(&app, "K1").await, ordered(&app, "K2").await, ordered(&app, "K3").await];
    let came = receiver.has_received(5).await;
    all_delivered(&app, 3).await;
    assert!(came.iter().all(|came| came.is_signed_with(&secret)));
    assert!(came[1..3].iter().all(|again| (again.id(), &again.body) == (came[0].id(), &came[0].body)));
    let order: Vec<String> = came.iter().map(Received::order).collect();
    assert_eq!(order[2..], orders, "in order, once the first was taken");
    let tries = "SELECT max(attempts)::int8 FROM event_deliveries";
    assert_eq!(count(&app, tries, &[]).await, 3);
}

/// An event that is never taken holds the others up for a few tries, then they overtake it.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_event_that_is_never_taken_is_overtaken() {
    let app = app().await;
    let receiver = Receiver::start().await;
    let (_, _) = receiver.register(&app).await;
    let tries = usize::from(idempotency::relay::TRIES_IN_ORDER);
    // Every further try of the first one would be taken: it must not come before the second.
    receiver.answer_next(vec![Answer::Status(500); tries]);
    let first = ordered(&app, "K1").await;
    let second = ordered(&app, "K2").await;
    let came = receiver.has_received(tries + 1).await;
    assert!(came[..tries].iter().all(|came| came.order() == first));
    let _ = second;
    time_passes(&app).await;
    all_delivered(&app, 2).await;
}

/// Slow, silent and failing endpoints cost a slot each; a healthy one gets its events meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn bad_endpoints_do_not_slow_a_good_one() {
    let app = app().await;
    let (mut silent, good) = (Vec::new(), Receiver::start().await);
    for _ in 0..5 {
        let receiver = Receiver::start().await;
        receiver.register(&app).await;
        receiver.answer_always(Some(Answer::Silence));
        silent.push(receiver);
    }
    let failing = Receiver::start().await;
    failing.register(&app).await;
    failing.answer_always(Some(Answer::Status(500)));
    good.register(&app).await;
    let mut orders = Vec::new();
    for number in 0..30 {
        orders.push(ordered(&app, &format!("K{number}")).await);
    }
    let came = good.has_received(30).await;
    assert_eq!(came.iter().map(Received::order).collect::<Vec<_>>(), orders);
    for receiver in &silent {
        assert_eq!(receiver.has_received(1).await.len(), 1, "one at a time, and that one has not ended");
    }
}

/// A redirect is an answer like any other that is not 2xx: nobody goes there.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn redirects_are_not_followed() {
    let app = app().await;
    let (receiver, elsewhere) = (Receiver::start().await, Receiver::start().await);
    receiver.register(&app).await;
    receiver.answer_next([Answer::Redirect(elsewhere.url())]);
    ordered(&app, "K").await;
    receiver.has_received(2).await;
    all_delivered(&app, 1).await;
    assert_eq!(elsewhere.received().len(), 0);
}

/// Allowed when it was registered, and not any more: nothing is sent, and the operator sees why.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn special_addresses_are_refused_when_it_is_delivered() {
    let app = App::builder(World::Up).start().await;
    let receiver = Receiver::start().await;
    for url in [receiver.url(), format!("http://localhost:{}/", receiver.address.port())] {
        let insert = "INSERT INTO webhook_endpoints (id, account_id, url, secret) VALUES (gen_random_uuid(), $1, $2, 'whsec_AAAA')";
        app.db.execute(insert, &[&app.account().await, &url]).await.expect("an endpoint");
    }
    ordered(&app, "K").await;
    let why =
        "SELECT count(*) FROM event_deliveries WHERE attempts > 0 AND last_error LIKE '%may not go to%'";
    until("both were tried", BOUND, async || count(&app, why, &[]).await == 2).await;
    assert_eq!(receiver.received().len(), 0);
}

/// After its last try a delivery is dead, shown, and sent again on request, under the same id.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_dead_delivery_is_shown_and_can_be_sent_again() {
    let app = app().await;
    let receiver = Receiver::start().await;
    let (endpoint, _) = receiver.register(&app).await;
    receiver.answer_always(Some(Answer::Status(500)));
    ordered(&app, "K").await;
    receiver.has_received(1).await;
    until("it is dead", BOUND, async || {
        time_passes(&app).await;
        in_state(&app, "dead").await == 1
    })
    .await;
    let tries = usize::from(idempotency::relay::TRIES_MAX);
    let event = receiver.received()[0].id().to_owned();
    assert_eq!(receiver.received().len(), tries);
    app.replica().process.line_containing("a delivery is given up").await;
    until("metrics tell", BOUND, async || app.get_admin("/metrics").await.text().contains("outbox_dead 1"))
        .await;

    let listed = command(&app, &["webhooks", "dead"]).await;
    assert!(
        [&event, &endpoint, "order.created", "500", "12 tries"].iter().all(|said| listed.contains(*said)),
        "{listed}"
    );
    receiver.answer_always(None);
    receiver.answer_next([Answer::Status(500)]);
    let said = command(&app, &["webhooks", "redeliver", &event]).await;
    assert!(said.contains(&event), "{said}");
    let came = receiver.has_received(tries + 2).await;
    assert!(came[tries..].iter().all(|again| again.id() == event), "it has all its tries again");
    all_delivered(&app, 1).await;
    command(&app, &["webhooks", "redeliver", &event]).await;
    receiver.has_received(tries + 3).await;
}

/// What a command of the binary prints.
async fn command(app: &App, arguments: &[&str]) -> String {
    let mut program = crate::cli::program(arguments);
    program.env("DATABASE_URL", &app.database_url);
    crate::cli::run(program).await.succeeded()
}

/// 410 is a definite no.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_endpoint_that_is_gone_is_not_tried_again() {
    let app = app().await;
    let receiver = Receiver::start().await;
    receiver.register(&app).await;
    receiver.answer_next([Answer::Status(410)]);
    ordered(&app, "K1").await;
    until("it is dead", BOUND, async || in_state(&app, "dead").await == 1).await;
    ordered(&app, "K2").await;
    assert_eq!(receiver.has_received(2).await.len(), 2);
    all_settled(&app).await;
}

async fn all_settled(app: &App) {
    until("nothing waits", BOUND, async || in_state(app, "pending").await == 0).await;
}

in_every_world!(
    a_secret_is_rotated_with_an_overlap,
    |builder| builder.env("WEBHOOK_ALLOW_PRIVATE", "1"),
    |app| async move {
        let receiver = Receiver::start().await;
        let (endpoint, old) = receiver.register(&app).await;
        let path = format!("/v1/webhook-endpoints/{endpoint}/rotate-secret");
        let rotated = app.post(&path, "R", &json!({})).await;
        assert_eq!(rotated.status, 201, "{}", rotated.text());
        let new = rotated.json()["secret"].as_str().expect("a secret").to_owned();
        assert_ne!(old, new);
        app.heal();
        let again = app.post(&path, "R", &json!({})).await;
        assert_eq!((again.status, again.json()["code"].as_str()), (409, Some("already-completed")));
        assert!(!again.text().contains("whsec_"));
        let stranger = Request::post(&path)
            .header("Authorization", format!("Bearer {}", app.other_api_key))
            .header("Idempotency-Key", "R")
            .json(&json!({}));
        assert_eq!(app.send(&stranger).await.status, 404, "own endpoints only");

        app.settle("K1", 1).await;
        let came = receiver.has_received(1).await;
        assert!(came[0].is_signed_with(&new) && came[0].is_signed_with(&old), "both, within the overlap");
        app.db
            .batch_execute("UPDATE webhook_endpoints SET previous_secret_until = now()")
            .await
            .expect("the overlap is over");
        app.settle("K2", 1).await;
        let came = receiver.has_received(2).await;
        assert!(came[1].is_signed_with(&new) && !came[1].is_signed_with(&old), "only the new one after it");
    }
);

/// A name that nobody could refuse when it was registered, and that leads to this machine: judged where it is connected to.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_name_that_leads_to_a_private_address_gets_nothing() {
    let (receiver, by_name) = (Receiver::start().await, Receiver::start().await);
    let app = App::builder(World::Up).start().await;
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("this machine has a name");
    let url = format!("http://{}:{}/hook", machine.trim(), receiver.address.port());
    let made = app.post("/v1/webhook-endpoints", "K", &json!({ "url": url })).await;
    assert_eq!(made.status, 201, "{}", made.text());
    // Registered while it was allowed, say.
    let planted = "INSERT INTO webhook_endpoints (id, account_id, url, secret)
                   SELECT gen_random_uuid(), account_id, $1, secret FROM webhook_endpoints";
    let localhost = format!("http://localhost:{}/hook", by_name.address.port());
    app.db.execute(planted, &[&localhost]).await.expect("planted");
    ordered(&app, "order").await;
    until("both were tried", BOUND, async || {
        count(&app, "SELECT count(*) FROM event_deliveries WHERE attempts > 0", &[]).await == 2
    })
    .await;
    let errors = app.db.query("SELECT last_error FROM event_deliveries ORDER BY last_error", &[]).await;
    let errors: Vec<String> = errors.expect("deliveries").iter().map(|row| row.get(0)).collect();
    assert!(errors.iter().any(|error| error.contains("the URL names an address")), "{errors:?}");
    // A machine whose name leads elsewhere, or nowhere, cannot be asked for more.
    let mut leads = tokio::net::lookup_host((machine.trim(), 0)).await.into_iter().flatten().peekable();
    let here = leads.peek().is_some() && leads.all(|address| address.ip().is_loopback());
    assert!(!here || errors.iter().any(|error| error.contains("the name leads to no address")), "{errors:?}");
    assert_eq!((receiver.received().len(), by_name.received().len()), (0, 0));
}
