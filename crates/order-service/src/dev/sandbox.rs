//! The payment sandbox of `dev`: a child process, so that payments cross a real socket.
//!
//! Knows no payments. Invariant: it ends when the pipe to it does, so it outlives this process in no case.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use sandbox_gateway::{READY, Settings};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::config::{GatewaySettings, Secret};
use crate::webhooks::new_secret;

/// How long it may take to answer, and to end.
const START_MAX: Duration = Duration::from_secs(10);
const END_MAX: Duration = Duration::from_secs(5);

pub(super) struct Sandbox {
    child: Child,
    url: String,
    /// What its messages are signed with, if it sends any.
    secret: Option<Secret>,
}

impl Sandbox {
    /// Starts this program once more, as `sandbox`. Its messages go to the service at `api`, signed with the secret that the
    /// service was told, or with a new one; nowhere if the service's port is not known yet.
    pub(super) async fn start(
        directory: &Path,
        api: SocketAddr,
        told: &GatewaySettings,
    ) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("this program cannot be found")?;
        let mut command = Command::new(program);
        command.args(["sandbox", "--until-stdin-ends", "--bind", "127.0.0.1:0"]);
        command.arg("--store").arg(directory.join("sandbox"));
        command.env("SANDBOX_API_KEY", Settings::API_KEY);
        command.env_remove("SANDBOX_WEBHOOK_URL").env_remove("SANDBOX_WEBHOOK_SECRET");
        let secret = match &told.gateway_webhook_secret {
            _ if api.port() == 0 => None,
            Some(told) => Some(told.clone()),
            None => Some(Secret::from(new_secret()?.as_str())),
        };
        if let Some(secret) = &secret {
            let host = if api.ip().is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { api.ip() };
            let url = format!("http://{}/v1/gateway-events", SocketAddr::new(host, api.port()));
            command.env("SANDBOX_WEBHOOK_URL", url).env("SANDBOX_WEBHOOK_SECRET", secret.expose());
        }
        // Ctrl-C goes to the whole group of a terminal: payments that are being finished still need it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("the payment sandbox cannot be started")?;
        let stdout = child.stdout.take().context("the payment sandbox has no output")?;
        let mut lines = BufReader::new(stdout).lines();
        let first = tokio::time::timeout(START_MAX, lines.next_line()).await;
        let line = first.context("the payment sandbox does not answer")??.unwrap_or_default();
        let Some(url) = line.strip_prefix(READY) else { bail!("the payment sandbox could not start") };
        println!("payments go to the sandbox at {url} (its ledger: {url}/sandbox/ledger)");
        Ok(Self { url: url.to_owned(), child, secret })
    }

    /// How the service reaches it.
    pub(super) fn settings(&self, told: &GatewaySettings) -> GatewaySettings {
        GatewaySettings {
            gateway_url: Some(self.url.clone()),
            gateway_key: Some(Secret::from(Settings::API_KEY)),
            gateway_timeout: told.gateway_timeout,
            gateway_webhook_secret: self.secret.clone().or_else(|| told.gateway_webhook_secret.clone()),
        }
    }

    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        // Waiting closes its pipe first.
        if let Ok(ended) = tokio::time::timeout(END_MAX, self.child.wait()).await {
            ended.context("the payment sandbox cannot be waited for")?;
            return Ok(());
        }
        self.child.kill().await.context("the payment sandbox cannot be stopped")
    }
}
