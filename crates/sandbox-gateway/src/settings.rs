//! What the sandbox is told at the start: options of `order-service sandbox`.
//!
//! The API key and the webhook secret are for tests and still never shown by `Debug` or `--help`.

use std::fmt;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Options of the sandbox.
#[derive(Clone, clap::Args)]
pub struct Settings {
    /// Where it listens; port 0 takes a free one
    #[arg(long = "bind", env = "SANDBOX_BIND", default_value = "127.0.0.1:0")]
    pub bind: SocketAddr,
    /// Folder of its ledger, which survives restarts and crashes
    #[arg(long = "store", env = "SANDBOX_STORE", default_value = ".order-service/sandbox")]
    pub store: PathBuf,
    /// Where events are posted
    #[arg(long = "webhook-url", env = "SANDBOX_WEBHOOK_URL", requires = "webhook_secret")]
    pub webhook_url: Option<String>,
    /// What signs them, as Standard Webhooks has it: whsec_ and base64
    #[arg(long = "webhook-secret", env = "SANDBOX_WEBHOOK_SECRET", hide_env_values = true)]
    pub webhook_secret: Option<String>,
    /// The only API key it takes
    #[arg(long = "api-key", env = "SANDBOX_API_KEY", default_value = Settings::API_KEY, hide_env_values = true)]
    pub api_key: String,
    /// End when standard input does: a child that must not outlive its parent
    #[arg(long = "until-stdin-ends")]
    pub until_stdin_ends: bool,
}

impl Settings {
    /// The API key if none is given.
    pub const API_KEY: &str = "sk_test_sandbox";

    /// A sandbox on a free port of 127.0.0.1, without webhooks.
    #[must_use]
    pub fn new(store: impl Into<PathBuf>) -> Self {
        Self {
            bind: SocketAddr::from(([127, 0, 0, 1], 0)),
            store: store.into(),
            webhook_url: None,
            webhook_secret: None,
            api_key: Self::API_KEY.to_owned(),
            until_stdin_ends: false,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("bind", &self.bind)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// Returns when standard input has ended: the other end of the pipe is closed, however its owner ended.
pub(crate) async fn parent_has_gone() {
    // A thread of its own: a read of standard input cannot be cancelled, and must not hold the runtime's end.
    let (gone, wait) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin();
        while matches!(stdin.read(&mut [0; 64]), Ok(1..)) {}
        let _ = gone.send(());
    });
    let _ = wait.await;
}
