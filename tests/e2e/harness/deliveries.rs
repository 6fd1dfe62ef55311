//! What a case about webhooks stands on: a service that may deliver to this machine, and what its deliveries have come to.

use std::time::Duration;

use testkit::until;
use tokio_postgres::types::ToSql;

use super::{App, World};

const BOUND: Duration = Duration::from_secs(20);

/// A service that may deliver to this machine, quickly.
pub async fn app() -> App {
    App::builder(World::Up).env("WEBHOOK_ALLOW_PRIVATE", "1").env("WEBHOOK_RETRY_BASE", "1ms").start().await
}

pub async fn count(app: &App, sql: &str, params: &[&(dyn ToSql + Sync)]) -> i64 {
    app.db.query_one(sql, params).await.expect("a count").get(0)
}

pub async fn in_state(app: &App, state: &str) -> i64 {
    count(app, "SELECT count(*) FROM event_deliveries WHERE state = $1", &[&state]).await
}

pub async fn all_delivered(app: &App, deliveries: i64) {
    until("all are delivered", BOUND, async || in_state(app, "delivered").await == deliveries).await;
    assert_eq!(count(app, "SELECT count(*) FROM event_deliveries", &[]).await, deliveries);
}

pub async fn ordered(app: &App, key: &str) -> String {
    let answer = app.order(key, 1).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["id"].as_str().expect("an id").to_owned()
}

/// Lets time pass for pauses and leases: whoever waits for a moment waits no longer.
pub async fn time_passes(app: &App) {
    app.db
        .batch_execute("UPDATE webhook_endpoints SET not_before = now(); UPDATE event_deliveries SET due_at = now() WHERE due_at > now()")
        .await
        .expect("the time");
}
