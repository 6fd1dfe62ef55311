//! Clients that obey the protocol: one intent is one key, sent again, to whichever replica, until it is answered for good.
//!
//! Knows the routes. Invariant: an answer that is neither final nor "running", "unknown", "not now" or "too slow" fails the test.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Request, Response, until};
use tokio::sync::watch;

use super::dice::Dice;
use crate::harness::order;

/// How long one intent may take, over all outages.
pub const BOUND: Duration = Duration::from_secs(120);
/// How long a client waits for one answer, before it asks elsewhere.
const PATIENCE: Duration = Duration::from_millis(500);

/// Cards that are charged at once, so slowly that an outage may come in between, without an answer, and not at all.
const SOURCES: [&str; 6] = [
    "tok_visa",
    "tok_slow_100",
    "tok_slow_200",
    "tok_slow_400",
    "tok_cut_after_charge",
    "tok_chargeDeclined",
];

/// What clients and outages know of each other.
pub struct Shared {
    replicas: Mutex<Vec<SocketAddr>>,
    attempts: watch::Sender<u64>,
    over: watch::Sender<bool>,
}

impl Shared {
    pub fn new(replicas: Vec<SocketAddr>) -> Self {
        Self {
            replicas: Mutex::new(replicas),
            attempts: watch::Sender::new(0),
            over: watch::Sender::new(false),
        }
    }

    /// Where the replicas are now.
    pub fn tell(&self, replicas: Vec<SocketAddr>) {
        *self.replicas.lock().expect("no panic holds it") = replicas;
    }

    /// Clients begin nothing more.
    pub fn end(&self) {
        self.over.send_replace(true);
    }

    pub fn attempts(&self) -> u64 {
        *self.attempts.borrow()
    }

    /// Waits until so many more attempts have ended, however they did.
    pub async fn attempts_end(&self, more: u64) {
        let wanted = self.attempts() + more;
        let mut attempts = self.attempts.subscribe();
        let ended = attempts.wait_for(|ended| *ended >= wanted);
        testkit::within("clients go on trying", BOUND, ended).await.expect("the count");
    }

    fn replica(&self, number: u64) -> SocketAddr {
        let replicas = self.replicas.lock().expect("no panic holds it");
        replicas[usize::try_from(number).expect("a small number") % replicas.len()]
    }
}

/// An intent, and what it was answered for good.
pub struct Answered {
    pub request: Request,
    pub answer: Response,
}

pub struct Client {
    number: u64,
    api_key: String,
    dice: Dice,
    shared: Arc<Shared>,
    answered: Vec<Answered>,
}

impl Client {
    pub fn new(number: u64, api_key: &str, dice: Dice, shared: Arc<Shared>) -> Self {
        Self { number, api_key: api_key.to_owned(), dice, shared, answered: Vec::new() }
    }

    /// Orders and what becomes of them, until all is over.
    pub async fn work(mut self) -> Vec<Answered> {
        let mut round = 0;
        while !*self.shared.over.borrow() {
            let name = format!("c{}-{round}", self.number);
            self.round(&name).await;
            round += 1;
        }
        self.answered
    }

    async fn round(&mut self, name: &str) {
        // Emits an event, and is refused: nobody may hear of it.
        self.settle("/v1/probes", &format!("{name}-probe"), &json!({ "then": "reject" })).await;
        let made = self.settle("/v1/orders", &format!("{name}-order"), &order(2)).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let (path, total) =
            (made.header("location").expect("a location").to_owned(), made.json()["total"]["amount"].clone());
        let total = total.as_u64().expect("an amount");
        if self.dice.once_in(6) {
            self.settle(&format!("{path}/cancel"), &format!("{name}-cancel"), &json!({})).await;
        }
        let source = SOURCES[usize::try_from(self.dice.below(SOURCES.len() as u64)).expect("a small number")];
        self.settle(&format!("{path}/payments"), &format!("{name}-pay"), &json!({ "source": source })).await;
        for part in 0..self.dice.below(3) {
            let amount = 1 + self.dice.below(total);
            let key = format!("{name}-refund-{part}");
            self.settle(&format!("{path}/refunds"), &key, &json!({ "amount": amount })).await;
        }
    }

    async fn settle(&mut self, path: &str, key: &str, body: &Value) -> Response {
        let request = Request::post(path)
            .header("Authorization", format!("Bearer {}", self.api_key))
            .header("Idempotency-Key", key)
            .json(body)
            .bound(PATIENCE);
        let (sent, shared, dice) = (&request, &self.shared, &mut self.dice);
        let answer = until(key, BOUND, || {
            let api = shared.replica(dice.below(2));
            async move {
                let answer = testkit::send(api, sent).await;
                shared.attempts.send_modify(|ended| *ended += 1);
                answer.ok().filter(|answer| is_final(answer, key))
            }
        })
        .await;
        self.answered.push(Answered { request, answer: answer.clone() });
        answer
    }
}

fn is_final(answer: &Response, key: &str) -> bool {
    // A process that was stopped finds that the request has been on its way for too long: said by HTTP, before any key is taken.
    if answer.status == 408 {
        return false;
    }
    let is_final = answer.status < 300 && answer.status != 202 || answer.json()["retryable"] == false;
    assert!(
        is_final || [202, 409, 503].contains(&answer.status),
        "{key}: {} {}",
        answer.status,
        answer.text()
    );
    is_final
}
