//! The payment sandbox as a process of its own, and its ledger: the proof of what was charged.

use std::net::SocketAddr;

use devstack::TempDir;
use serde_json::{Value, json};
use testkit::{Process, Request, Signal};

use super::stack::PROGRAM;

/// A running sandbox; its ledger lives as long as this does, over kills.
pub struct Sandbox {
    process: Process,
    pub address: SocketAddr,
    folder: TempDir,
    /// Where it tells of what happened: URL and secret.
    tells: Option<(String, String)>,
}

impl Sandbox {
    pub async fn start() -> Self {
        let folder = TempDir::new("sandbox").expect("a folder");
        let (process, address) = Self::spawn(&folder, "127.0.0.1:0", None).await;
        Self { process, address, folder, tells: None }
    }

    async fn spawn(folder: &TempDir, bind: &str, tells: Option<&(String, String)>) -> (Process, SocketAddr) {
        let mut command = std::process::Command::new(PROGRAM);
        command.args(["sandbox", "--bind", bind, "--store"]).arg(folder.path());
        if let Some((url, secret)) = tells {
            command.env("SANDBOX_WEBHOOK_URL", url).env("SANDBOX_WEBHOOK_SECRET", secret);
        }
        let process = Process::spawn(command).expect("the sandbox starts");
        let line = process.line_containing("payment sandbox answers at http://").await;
        let address = line.rsplit("http://").next().and_then(|text| text.trim().parse().ok());
        (process, address.expect("an address"))
    }

    /// The service's settings.
    pub fn env(&self) -> [(&'static str, String); 2] {
        [("GATEWAY_URL", format!("http://{}", self.address)), ("GATEWAY_KEY", "sk_test_sandbox".to_owned())]
    }

    pub async fn signal(&self, signal: Signal) {
        self.process.signal(signal).await.expect("a signal");
    }

    /// SIGKILL, awaited.
    pub async fn kill(&mut self) {
        self.signal(Signal::Kill).await;
        self.process.wait_exit(testkit::wait::BOUND).await;
    }

    /// A new one in place of a killed one, at the same address with the same ledger.
    pub async fn restart(&mut self) {
        let (process, address) =
            Self::spawn(&self.folder, &self.address.to_string(), self.tells.as_ref()).await;
        (self.process, self.address) = (process, address);
    }

    /// From now on it tells the service of what happens, in messages of its own.
    pub async fn tell(&mut self, api: SocketAddr, secret: &str) {
        self.tells = Some((format!("http://{api}/v1/gateway-events"), secret.to_owned()));
        self.kill_and_restart().await;
    }

    /// SIGKILL, and a new one.
    pub async fn kill_and_restart(&mut self) {
        self.kill().await;
        self.restart().await;
    }

    pub async fn ledger(&self) -> Value {
        testkit::send(self.address, &Request::get("/sandbox/ledger")).await.expect("the ledger").json()
    }

    /// Faults for every call of this kind, until they are cleared.
    pub async fn always(&self, on: &str, then: &str) {
        let plan = json!({ "always": [{ "on": on, "then": then }] });
        let answer = testkit::send(self.address, &Request::post("/sandbox/faults").json(&plan)).await;
        assert_eq!(answer.expect("an answer").status, 200);
    }

    pub async fn clear(&self) {
        let clear = Request::new("DELETE", "/sandbox/faults");
        assert_eq!(testkit::send(self.address, &clear).await.expect("an answer").status, 204);
    }
}
