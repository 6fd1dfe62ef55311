//! The systems under test, and how one is started: as a process of its own, so that its CPU can be told from everybody
//! else's and it can be killed.
//!
//! Knows names, environments and addresses. Deliberately does not know what a system does with a request. Invariant: all
//! of them are started by the same call, with the same stores, pools and gateway.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use serde_json::Value;
use testkit::{Process, Signal};

use crate::baselines::{self, Settings};

/// The name under which this binary is the order service.
const ORDER_SERVICE: &str = "order-service";
/// Tells a system who started it.
const PARENT: &str = "BENCH_PARENT_PID";
/// How often a system looks whether who started it is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a process may take to end once it was told to.
const END_MAX: Duration = Duration::from_secs(10);

/// A system under test. The order is that of every table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub enum System {
    /// No protection: each statement is awaited in turn, as ordinary handlers do
    NoKey,
    /// No protection, in as few flights as can be: what the work alone costs at best
    NoKeyPipelined,
    /// Keys in Redis only
    RedisOnly,
    /// Keys in PostgreSQL only
    PostgresOnly,
    /// Keys in both, with the faults that the article's code has
    NaiveHybrid,
    /// Ours
    OrderService,
    /// A handler that checks nothing and returns stored bytes by one EVALSHA: the floor of a replay
    BareEvalsha,
}

impl System {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::NoKey,
        Self::NoKeyPipelined,
        Self::RedisOnly,
        Self::PostgresOnly,
        Self::NaiveHybrid,
        Self::OrderService,
        Self::BareEvalsha,
    ];
    /// Those that the scenarios compare.
    pub const COMPARED: [Self; 5] =
        [Self::NoKey, Self::RedisOnly, Self::PostgresOnly, Self::NaiveHybrid, Self::OrderService];

    /// Its stable name, on the command line and in every report.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoKey => "no-key",
            Self::NoKeyPipelined => "no-key-pipelined",
            Self::RedisOnly => "redis-only",
            Self::PostgresOnly => "postgres-only",
            Self::NaiveHybrid => "naive-hybrid",
            Self::OrderService => ORDER_SERVICE,
            Self::BareEvalsha => "bare-evalsha",
        }
    }

    /// Whether a key means anything to it.
    pub fn looks_at_keys(self) -> bool {
        !matches!(self, Self::NoKey | Self::NoKeyPipelined | Self::BareEvalsha)
    }

    /// The name in Redis under which it keeps a client's key; `None` if it keeps none there.
    pub fn redis_name(self, account: i64, key: &str) -> Option<String> {
        match self {
            Self::RedisOnly => Some(baselines::redis_only_name(account, key)),
            Self::NaiveHybrid => Some(baselines::naive_hybrid_name(account, key)),
            // As its contract says.
            Self::OrderService => Some(format!("idem:v1:{account}:{key}")),
            Self::NoKey | Self::NoKeyPipelined | Self::PostgresOnly | Self::BareEvalsha => None,
        }
    }

    /// Starts it, and returns once it listens.
    pub async fn start(self, setup: &Setup) -> anyhow::Result<Running> {
        let mut command = Command::new(std::env::current_exe().context("this program's path")?);
        if self == Self::OrderService {
            command.arg0(ORDER_SERVICE).arg("serve");
        } else {
            command.args(["serve", self.name()]);
        }
        command.envs(setup.environment()).env(PARENT, std::process::id().to_string());
        let process = Process::spawn(command).with_context(|| format!("starting {}", self.name()))?;
        let line = process.line_containing("\"serving\"").await;
        let said: Value =
            serde_json::from_str(&line).with_context(|| format!("{} said {line}", self.name()))?;
        let api = said["api"].as_str().and_then(|text| text.parse().ok());
        let api = api.with_context(|| format!("no address in {line}"))?;
        Ok(Running { api, process })
    }

    /// `bench serve NAME`: becomes the system, until it is told to end.
    pub async fn serve(self) -> anyhow::Result<ExitCode> {
        if self == Self::OrderService {
            let mut command = Command::new(std::env::current_exe()?);
            return Err(command.arg0(ORDER_SERVICE).arg("serve").exec().into());
        }
        baselines::serve(self, Settings::of_environment()?).await?;
        Ok(ExitCode::SUCCESS)
    }
}

impl std::fmt::Display for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// In a system that [`System::start`] started: ends the process soon after its parent, which may have been killed and could
/// not end it.
pub fn end_with_parent() {
    let parent: Option<u32> = std::env::var(PARENT).ok().and_then(|pid| pid.parse().ok());
    let Some(parent) = parent else { return };
    std::thread::spawn(move || {
        while std::os::unix::process::parent_id() == parent {
            std::thread::sleep(LOOK_EVERY);
        }
        std::process::exit(1);
    });
}

/// Whether this process was started under the order service's name.
pub fn invoked_as_order_service() -> bool {
    std::env::args_os().next().is_some_and(|name| name == ORDER_SERVICE)
}

/// Runs one of the order service's own commands (`migrate`, `seed`, `accounts create NAME`) to its end and returns the last
/// line that it printed. Blocks.
pub fn order_service_command(database_url: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(std::env::current_exe().context("this program's path")?)
        .arg0(ORDER_SERVICE)
        .args(arguments)
        .env("DATABASE_URL", database_url)
        .output()?;
    anyhow::ensure!(
        output.status.success(),
        "order-service {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned())
}

/// What a system is started with.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Perhaps through a proxy.
    pub database_url: String,
    /// Where charges are written: the outside world, so never through a proxy.
    pub charges_url: String,
    /// Perhaps through a proxy.
    pub redis_url: String,
    /// Connections to PostgreSQL of the process, as `DATABASE_POOL` of the service.
    pub pool: usize,
    /// How long the payment gateway takes.
    pub gateway: Duration,
    /// How long the articles' lock holds a running key in Redis.
    pub lock: Duration,
    /// The same of the service, which renews it while it works.
    pub lease: Duration,
}

impl Setup {
    /// The articles' times: a gateway of 30 ms, a lock of 60 s; the service's default pool and lease.
    pub fn new(database_url: &str, redis_url: &str) -> Self {
        Self {
            database_url: database_url.to_owned(),
            charges_url: database_url.to_owned(),
            redis_url: redis_url.to_owned(),
            pool: 16,
            gateway: Duration::from_millis(30),
            lock: baselines::LOCK_TTL,
            lease: Duration::from_secs(10),
        }
    }

    fn environment(&self) -> [(&'static str, String); 10] {
        [
            ("BIND", "127.0.0.1:0".to_owned()),
            ("ADMIN_BIND", "127.0.0.1:0".to_owned()),
            ("LOG_FORMAT", "json".to_owned()),
            ("DATABASE_URL", self.database_url.clone()),
            ("REDIS_URL", self.redis_url.clone()),
            ("DATABASE_POOL", self.pool.to_string()),
            ("BENCH_CHARGES_URL", self.charges_url.clone()),
            ("BENCH_GATEWAY_MS", self.gateway.as_millis().to_string()),
            ("BENCH_LOCK_TTL_MS", self.lock.as_millis().to_string()),
            ("IDEMPOTENCY_LEASE", format!("{}ms", self.lease.as_millis())),
        ]
    }
}

/// A running system. Dropped, it is killed.
pub struct Running {
    /// Where it listens.
    pub api: SocketAddr,
    /// The process, for signals and for its CPU time.
    pub process: Process,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// SIGKILL; returns when it is gone.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.process.signal(Signal::Kill).await?;
        self.process.wait_exit(END_MAX).await;
        Ok(())
    }

    /// SIGTERM; returns when it is gone.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.process.signal(Signal::Term).await?;
        self.process.wait_exit(END_MAX).await;
        Ok(())
    }
}
