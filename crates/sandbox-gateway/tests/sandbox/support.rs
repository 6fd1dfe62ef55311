//! A sandbox for one test, in this process or as a process of its own, and short ways to ask it.

use std::io;
use std::net::SocketAddr;
use std::process::{ExitStatus, Stdio};

use devstack::TempDir;
use sandbox_gateway::{READY, Sandbox, Settings};
use serde_json::Value;
use testkit::wait::BOUND;
use testkit::{Connection, Request, Response, until, within};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

enum Running {
    Here(Sandbox),
    Process { child: Child, address: SocketAddr },
}

pub struct Gateway {
    running: Running,
    store: TempDir,
}

pub fn form(amount: i64, source: &str, operation: &str) -> String {
    format!(
        "amount={amount}&currency=eur&payment_method={source}&confirm=true&metadata%5Boperation%5D={operation}"
    )
}

pub async fn post(address: SocketAddr, path: &str, key: Option<&str>, body: &str) -> io::Result<Response> {
    testkit::send(address, &request(path, key, body)).await
}

pub async fn refund(address: SocketAddr, key: &str, intent: &str, amount: i64) -> io::Result<Response> {
    let body = format!("payment_intent={intent}&amount={amount}&metadata%5Boperation%5D={key}");
    post(address, "/v1/refunds", Some(key), &body).await
}

/// The reason of a 402.
pub fn declined(response: &Response) -> String {
    let error = &response.json()["error"];
    assert_eq!((&error["type"], &error["code"]), (&"card_error".into(), &"card_declined".into()));
    assert_eq!(error["payment_intent"]["status"], "requires_payment_method");
    error["decline_code"].as_str().expect("a decline code").to_owned()
}

fn request(path: &str, key: Option<&str>, body: &str) -> Request {
    let request = Request::post(path).header("Content-Type", "application/x-www-form-urlencoded").body(body);
    let request = request.header("Authorization", format!("Bearer {}", Settings::API_KEY));
    match key {
        Some(key) => request.header("Idempotency-Key", key),
        None => request,
    }
}

impl Gateway {
    pub fn start() -> Self {
        Self::start_with(|_| ())
    }

    pub fn start_with(change: impl FnOnce(&mut Settings)) -> Self {
        let store = TempDir::new("sandbox-").expect("a folder");
        let mut settings = Settings::new(store.path());
        change(&mut settings);
        let sandbox = sandbox_gateway::start(&settings).expect("a sandbox");
        Self { running: Running::Here(sandbox), store }
    }

    pub async fn start_process() -> Self {
        let store = TempDir::new("sandbox-").expect("a folder");
        Self { running: spawn(&store).await, store }
    }

    /// SIGKILL, then another one on the same store.
    pub async fn kill_and_restart(&mut self) {
        if let Running::Process { child, .. } = &mut self.running {
            child.kill().await.expect("killed and gone");
        }
        self.running = spawn(&self.store).await;
    }

    /// Closes its standard input and waits for its end.
    pub async fn ended_with_its_pipe(&mut self) -> ExitStatus {
        let Running::Process { child, .. } = &mut self.running else { panic!("not a process") };
        drop(child.stdin.take());
        within("the end of the sandbox", BOUND, child.wait()).await.expect("its status")
    }

    pub fn address(&self) -> SocketAddr {
        match &self.running {
            Running::Here(sandbox) => sandbox.address(),
            Running::Process { address, .. } => *address,
        }
    }

    pub async fn post(&self, path: &str, key: Option<&str>, body: &str) -> Response {
        post(self.address(), path, key, body).await.expect("an answer")
    }

    pub async fn try_charge(&self, key: &str, amount: i64, source: &str) -> io::Result<Response> {
        post(self.address(), "/v1/payment_intents", Some(key), &form(amount, source, key)).await
    }

    pub async fn charge(&self, key: &str, amount: i64, source: &str) -> Response {
        self.try_charge(key, amount, source).await.expect("an answer")
    }

    /// The id of a charge that succeeded.
    pub async fn charged(&self, key: &str, amount: i64) -> String {
        self.charge(key, amount, "tok_visa").await.json()["id"].as_str().expect("an id").to_owned()
    }

    /// Sends a charge of 500 and does not wait.
    pub async fn begin_charge(&self, key: &str, source: &str) -> Connection {
        let mut connection = Connection::open(self.address()).await.expect("a connection");
        let request = request("/v1/payment_intents", Some(key), &form(500, source, key));
        connection.send(&request).await.expect("sent");
        connection
    }

    pub async fn try_refund(&self, key: &str, intent: &str, amount: i64) -> io::Result<Response> {
        refund(self.address(), key, intent, amount).await
    }

    pub async fn refund(&self, key: &str, intent: &str, amount: i64) -> Response {
        self.try_refund(key, intent, amount).await.expect("an answer")
    }

    pub async fn get(&self, path: &str) -> Response {
        let request = Request::get(path).header("Authorization", format!("Bearer {}", Settings::API_KEY));
        testkit::send(self.address(), &request).await.expect("an answer")
    }

    pub async fn delete(&self, path: &str) -> Response {
        testkit::send(self.address(), &Request::new("DELETE", path)).await.expect("an answer")
    }

    pub async fn post_json(&self, path: &str, body: &Value) -> Response {
        testkit::send(self.address(), &Request::post(path).json(body)).await.expect("an answer")
    }

    pub async fn ledger(&self) -> Value {
        self.get("/sandbox/ledger").await.json()
    }

    pub async fn charges(&self) -> usize {
        self.ledger().await["charges"].as_array().map_or(0, Vec::len)
    }

    /// Waits until so many requests have come with the key.
    pub async fn arrivals(&self, key: &str, count: u64) {
        let arrived = async || self.get("/sandbox/requests").await.json()["by_key"][key] == count;
        until("the request to arrive", BOUND, arrived).await;
    }
}

async fn spawn(store: &TempDir) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox-gateway"));
    command.arg("--until-stdin-ends").arg("--store").arg(store.path());
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = piped.spawn().expect("the sandbox");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let line = lines.next_line().await.expect("its output").expect("a line");
    let address = line.trim().strip_prefix(READY).and_then(|url| url.strip_prefix("http://"));
    let address = address.expect("the address").parse().expect("an address");
    Running::Process { child, address }
}
