//! The probe workflow from a test's side: its requests, its points, what it did.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Request, Response, until};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::app::App;
use super::database::{connect, waiting_for_lock};
use super::foreign::Foreign;

/// How long a case waits for what must come.
pub const BOUND: Duration = Duration::from_secs(20);

/// The points at which the workflow can be stopped by a lock, and whether that is inside a step's transaction.
pub const POINTS: [&str; 6] =
    ["before-reserve", "in-reserve", "before-charge", "after-charge", "in-settle", "after-settle"];

/// What a voyage did: each step's event, and charges.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Done {
    pub reserved: i64,
    pub charges: usize,
    pub settled: i64,
    pub records: i64,
}

impl Done {
    /// Each step, once.
    pub const ONCE: Self = Self { reserved: 1, charges: 1, settled: 1, records: 1 };
}

/// A point that is held by a session of the test.
pub struct Held(Client);

impl Held {
    pub async fn release(self) {
        self.0.batch_execute("SELECT pg_advisory_unlock_all()").await.expect("released");
    }
}

impl App {
    pub fn voyage(&self, key: &str, foreign: &Foreign) -> Request {
        self.request("/v1/voyages", key, &json!({ "foreign": foreign.address.to_string() })).bound(BOUND)
    }

    pub fn voyage_in_background(&self, key: &str, foreign: &Foreign) -> JoinHandle<Option<Response>> {
        let (api, request) = (self.replica().api, self.voyage(key, foreign));
        tokio::spawn(async move { testkit::send(api, &request).await.ok() })
    }

    /// Sends the same voyage until it is answered with this status.
    pub async fn settle_voyage(&self, key: &str, foreign: &Foreign, status: u16) -> Response {
        until("the voyage is settled by plain retries", BOUND, || async {
            let answer = self.send(&self.voyage(key, foreign)).await;
            (answer.status == status).then_some(answer)
        })
        .await
    }

    /// Stops every voyage at this point.
    pub async fn hold_point(&self, point: &str) -> Held {
        let session = connect(&self.database_url).await;
        session.execute("SELECT pg_advisory_lock(hashtext($1))", &[&point]).await.expect("held");
        Held(session)
    }

    /// Returns once a voyage is stopped.
    pub async fn point_reached(&self) {
        until("a voyage is stopped", BOUND, || async { waiting_for_lock(&self.db).await > 0 }).await;
    }

    /// What voyages do at this point, so many times.
    pub async fn at_point(&self, point: &str, what: &str, times: i32) {
        let sql = "CREATE TABLE IF NOT EXISTS probe_orders (point text, what text, times integer)";
        self.db.batch_execute(sql).await.expect("a table");
        let sql = "INSERT INTO probe_orders VALUES ($1, $2, $3)";
        self.db.execute(sql, &[&point, &what, &times]).await.expect("an order");
    }

    pub async fn events(&self, kind: &str) -> i64 {
        let sql = "SELECT count(*) FROM events WHERE type = $1";
        self.db.query_one(sql, &[&kind]).await.expect("events").get(0)
    }

    pub async fn done(&self, foreign: &Foreign) -> Done {
        let sql = "SELECT count(*) FROM idempotency_records WHERE command IS NOT NULL";
        Done {
            reserved: self.events("voyage.reserved").await,
            charges: foreign.charges(),
            settled: self.events("voyage.settled").await,
            records: self.db.query_one(sql, &[]).await.expect("records").get(0),
        }
    }

    /// One column of a key's record, as text.
    pub async fn of_record(&self, key: &str, column: &str) -> Option<String> {
        let sql = format!("SELECT ({column})::text FROM idempotency_records WHERE key = $1");
        self.db.query_opt(&sql, &[&key]).await.expect("the record").and_then(|row| row.get(0))
    }

    /// Returns once the record has this status, whoever made it so.
    pub async fn record_is(&self, key: &str, status: &str) {
        until("the record has its status", BOUND, || async {
            self.of_record(key, "status").await.as_deref() == Some(status)
        })
        .await;
    }

    pub async fn operation(&self, location: &str) -> Value {
        let answer = self.get(location).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }
}
