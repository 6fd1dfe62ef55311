//! One system on its stores, in one scenario: asked, killed, started again, and counted.
//!
//! Knows requests and counts. Deliberately knows no scenario. Invariant: effects are counted from the end of the warm-up
//! on, and only once everything that was begun has ended.

use std::io;
use std::time::{Duration, Instant};

use anyhow::bail;
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use testkit::{Request, Response};

use super::Run;
use super::outcome::Effects;
use crate::stack::{Database, Stack, redis_command};
use crate::systems::{Running, Setup, System};
use crate::work::gateway::APPLICATION_NAME;

/// How long a scenario waits for what must come.
pub const BOUND: Duration = Duration::from_secs(20);
/// How often it looks.
const TICK: Duration = Duration::from_millis(5);
/// Requests that open connections and prepare statements before anything counts.
const WARM_UPS: usize = 24;
/// How long after the last answer a handler may still be about to begin its transaction.
const STRAGGLERS: Duration = Duration::from_millis(150);

pub const ORDERS: &str = "/v1/orders";
pub const MINIMAL_ORDERS: &str = "/v1/minimal-orders";
pub const GATEWAY_ORDERS: &str = "/v1/gateway-orders";

/// A system under trial.
pub struct Trial<'a> {
    pub stack: &'a Stack,
    pub system: System,
    pub database: Database,
    pub setup: Setup,
    running: Option<Running>,
    before: Effects,
}

impl<'a> Trial<'a> {
    /// Starts the system on its own database, and warms it up.
    pub async fn start(
        run: &'a Run,
        system: System,
        tune: impl AsyncFnOnce(&mut Setup) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let (stack, database) = (&run.stack, run.database(system).await?);
        let mut setup = Setup::new(&database.url, stack.redis_url());
        tune(&mut setup).await?;
        let running = Some(system.start(&setup).await?);
        let before = Effects { orders: 0, charges: 0 };
        let mut trial = Self { stack, system, database, setup, running, before };
        trial.warm_up().await?;
        trial.before = trial.count().await?;
        Ok(trial)
    }

    /// Sends orders under keys of their own until they are made: a machine that is busy starting five systems is not on
    /// trial. One is charged, so that the process knows its gateway.
    async fn warm_up(&self) -> anyhow::Result<()> {
        let paths = std::iter::once(GATEWAY_ORDERS).chain(std::iter::repeat_n(ORDERS, WARM_UPS));
        let made = paths.map(|path| {
            wait_for("a warm-up", BOUND, async move || {
                let answer = self.send(&self.request(path, &self.stack.new_key(), &order(1))).await;
                Ok(answer.is_ok_and(|answer| answer.status == 201))
            })
        });
        try_join_all(made).await.map(drop)
    }

    pub fn running(&self) -> &Running {
        self.running.as_ref().expect("it was started, and is started again after a kill")
    }

    /// SIGKILL.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        match self.running.take() {
            Some(running) => running.kill().await,
            None => Ok(()),
        }
    }

    /// A new process in place of the killed one.
    pub async fn start_again(&mut self) -> anyhow::Result<()> {
        self.running = Some(self.system.start(&self.setup).await?);
        Ok(())
    }

    /// A POST of the first account.
    pub fn request(&self, path: &str, key: &str, body: &Value) -> Request {
        self.request_of(0, path, key, body)
    }

    /// A POST of the first or the second account.
    pub fn request_of(&self, account: usize, path: &str, key: &str, body: &Value) -> Request {
        Request::post(path)
            .header("Authorization", format!("Bearer {}", self.stack.api_keys()[account]))
            .header("Idempotency-Key", key)
            .json(body)
    }

    /// Sends it to the running process, on a connection of its own.
    pub async fn send(&self, request: &Request) -> io::Result<Response> {
        testkit::send(self.running().api, request).await
    }

    /// Sends it until the answer is another than 409; returns it, and how long that took.
    pub async fn send_until_free(&self, request: &Request) -> anyhow::Result<(Response, Duration)> {
        let began = Instant::now();
        loop {
            let answer = self.send(request).await?;
            if answer.status != 409 {
                return Ok((answer, began.elapsed()));
            }
            if began.elapsed() > BOUND {
                bail!("{}: 409 for {BOUND:?}", self.system);
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// Orders and charges since the warm-up, once all is quiet.
    pub async fn effects(&self) -> anyhow::Result<Effects> {
        tokio::time::sleep(self.setup.gateway + STRAGGLERS).await;
        wait_for("every transaction to end", BOUND, async || Ok(self.busy().await? == 0)).await?;
        let now = self.count().await?;
        Ok(Effects { orders: now.orders - self.before.orders, charges: now.charges - self.before.charges })
    }

    /// Charges since the warm-up, now.
    pub async fn charges(&self) -> anyhow::Result<i64> {
        Ok(self.database.charges().await? - self.before.charges)
    }

    /// Sessions of the system that are in a transaction or in a statement.
    pub async fn busy(&self) -> anyhow::Result<i64> {
        let sql = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
                      AND application_name <> $1 AND backend_type = 'client backend'";
        Ok(self.database.client.query_one(sql, &[&APPLICATION_NAME]).await?.get(0))
    }

    async fn count(&self) -> anyhow::Result<Effects> {
        Ok(Effects { orders: self.database.orders().await?, charges: self.database.charges().await? })
    }

    /// The name under which the system keeps a key of the first account; `None` if it keeps none in Redis.
    pub async fn redis_name(&self, key: &str) -> anyhow::Result<Option<String>> {
        Ok(self.system.redis_name(self.database.account(0).await?, key))
    }

    /// Whether Redis holds something under the key's name; `None` if the system has no such name.
    pub async fn redis_holds(&self, redis_url: &str, key: &str) -> anyhow::Result<Option<bool>> {
        let Some(name) = self.redis_name(key).await? else { return Ok(None) };
        Ok(Some(redis_command::<i64>(redis_url, &["EXISTS", &name]).await? == 1))
    }

    /// Ends the process.
    pub async fn end(mut self) -> anyhow::Result<()> {
        match self.running.take() {
            Some(running) => running.stop().await,
            None => Ok(()),
        }
    }
}

/// A small order.
pub fn order(quantity: u32) -> Value {
    json!({ "items": [{ "sku": "TEA-001", "quantity": quantity }] })
}

/// An amount in minor units.
pub fn minimal(amount: i64) -> Value {
    json!({ "amount": amount })
}

/// An answer in one word or two.
pub fn said(answer: &io::Result<Response>) -> String {
    match answer {
        Ok(answer) if is_replay(answer) => format!("{} replay", answer.status),
        Ok(answer) => answer.status.to_string(),
        Err(_) => "no answer".to_owned(),
    }
}

pub fn is_replay(answer: &Response) -> bool {
    answer.header("idempotent-replayed") == Some("true")
}

/// Looks until it is so, or fails with what was waited for.
pub async fn wait_for(
    what: &str,
    bound: Duration,
    mut is_so: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let began = Instant::now();
    while !is_so().await? {
        if began.elapsed() > bound {
            bail!("waited {bound:?} for {what}");
        }
        tokio::time::sleep(TICK).await;
    }
    Ok(())
}
