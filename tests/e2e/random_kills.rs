//! SIGKILL and SIGSTOP of the service and of the payment gateway, at random points under load: no money moves twice, and every event
//! of what was committed arrives.
//!
//! `clients` order, cancel, pay and refund, with retries under the same key; `outages` takes two replicas and the gateway away and
//! brings them back, at points that depend on the seed and on how far the clients have come; `audit` compares the books afterwards.
//! `RANDOM_KILLS_SEED=… cargo test -p e2e random_kills` does the same sequence of outages again.

mod audit;
mod clients;
mod dice;
mod outages;

use std::sync::Arc;

use testkit::until;

use crate::harness::receiver::Receiver;
use crate::harness::sandbox::Sandbox;
use crate::harness::{App, World};
use clients::{Client, Shared};
use dice::Dice;
use outages::Outages;

/// Clients of each of the two accounts.
const CLIENTS: u64 = 3;
/// Outages, each of one or more processes.
const OUTAGES: usize = 16;

/// The seed of this run: a new one, unless the environment names one.
fn seed() -> u64 {
    let told = std::env::var("RANDOM_KILLS_SEED").ok().map(|text| text.parse().expect("a number"));
    told.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0)
}

async fn app(sandbox: &Sandbox) -> App {
    let builder = App::builder(World::Up)
        .env("IDEMPOTENCY_LEASE", "1s")
        .env("GATEWAY_TIMEOUT", "500ms")
        .env("WEBHOOK_ALLOW_PRIVATE", "1")
        .env("WEBHOOK_RETRY_BASE", "1ms");
    sandbox.env().iter().fold(builder, |builder, (name, value)| builder.env(name, value)).start().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn no_money_moves_twice_and_every_event_arrives() {
    let seed = seed();
    println!("RANDOM_KILLS_SEED={seed}");
    let sandbox = Sandbox::start().await;
    let mut app = app(&sandbox).await;
    let receiver = Receiver::start().await;
    let keys = [app.api_key.clone(), app.other_api_key.clone()];
    for key in &keys {
        receiver.register_for(&app, key).await;
    }
    // Two replicas that can both be taken away, in place of the one that cannot.
    app.kill().await;
    let mut outages = Outages::begin(&app, sandbox, Dice::new(seed)).await;
    let shared = Arc::new(Shared::new(outages.addresses()));
    let clients: Vec<_> = (0..CLIENTS * 2)
        .map(|number| {
            let key = &keys[usize::try_from(number % 2).expect("0 or 1")];
            let dice = Dice::new(seed ^ (number + 1));
            tokio::spawn(Client::new(number, key, dice, Arc::clone(&shared)).work())
        })
        .collect();
    for number in 1..=OUTAGES {
        outages.one(number, &app, &shared).await;
    }
    shared.end();
    let mut answered = Vec::new();
    for client in clients {
        answered.extend(until_hurried(&app, client).await);
    }
    println!("{} answers after {} attempts", answered.len(), shared.attempts());
    audit::money(&app, outages.sandbox()).await;
    audit::answers(&answered, &outages.addresses()).await;
    audit::events(&app, &receiver).await;
    app.after().check().await;
}

/// Waits for a client, while the completer's growing pauses are cut short.
async fn until_hurried<T>(app: &App, client: tokio::task::JoinHandle<T>) -> T {
    let hurry = "UPDATE idempotency_records SET attempts = 1 WHERE status = 'IN_PROGRESS' AND attempts > 1";
    until("a client has its last answer", clients::BOUND, || async {
        app.db.batch_execute(hurry).await.expect("hurried");
        client.is_finished()
    })
    .await;
    client.await.expect("a client")
}
