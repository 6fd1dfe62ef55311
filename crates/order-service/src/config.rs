//! What the service is told: one small struct per concern, each option also an environment variable.
//!
//! Knows names, defaults and contradictions. Invariant: what has no [`contradictions`] can be started.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use idempotency::gate::GateConfig;
use idempotency::{DatabaseConfig, OnDuplicate, Plans, Policy, Pooler, parse_duration, parse_size};

use crate::payments::gateway::Gateway;
use crate::webhooks::SigningKey;

/// Where PostgreSQL is.
#[derive(Debug, Clone, Args)]
pub(crate) struct DatabaseUrl {
    /// PostgreSQL, as a libpq URL; several hosts and target_session_attrs are allowed
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub(crate) database_url: String,
}

/// Where both stores are.
#[derive(Debug, Clone, Args)]
pub(crate) struct Stores {
    #[command(flatten)]
    pub(crate) database: DatabaseUrl,
    /// Redis, as redis://host:port/db
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub(crate) redis_url: String,
}

/// Where the service listens, and how it ends.
#[derive(Debug, Clone, Args)]
pub(crate) struct Listen {
    /// The public API; port 0 takes a free one
    #[arg(long, env = "BIND", default_value = "127.0.0.1:8080")]
    pub(crate) bind: SocketAddr,
    /// Health and metrics; not on a public address without ADMIN_TOKEN
    #[arg(long, env = "ADMIN_BIND", default_value = "127.0.0.1:9090")]
    pub(crate) admin_bind: SocketAddr,
    /// Bearer token of the admin listener (/livez and /readyz stay open)
    #[arg(long, env = "ADMIN_TOKEN", hide_env_values = true)]
    pub(crate) admin_token: Option<String>,
    /// Origins whose browsers may call, separated by commas
    #[arg(long, env = "CORS_ORIGINS", value_delimiter = ',')]
    pub(crate) cors_origins: Vec<String>,
    /// How long running work is waited for on SIGTERM
    #[arg(long, env = "SHUTDOWN_GRACE", default_value = "30s", value_parser = parse_duration)]
    pub(crate) shutdown_grace: Duration,
}

/// What stands between the service and PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PoolerChoice {
    /// Nothing
    None,
    /// A pooler such as PgBouncer, in transaction mode
    Transaction,
}

/// What a duplicate of a running request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DuplicateChoice {
    /// 409 at once
    Reject,
    /// The first one's answer, if it comes in time
    Wait,
}

/// The limits of the protocol and of the stores.
#[derive(Debug, Clone, Args)]
pub(crate) struct Limits {
    /// How long Redis holds a place without a heartbeat
    #[arg(long, env = "IDEMPOTENCY_LEASE", default_value = "10s", value_parser = parse_duration)]
    pub(crate) idempotency_lease: Duration,
    /// The longest that a command may execute
    #[arg(long, env = "IDEMPOTENCY_EXECUTE_MAX", default_value = "30s", value_parser = parse_duration)]
    pub(crate) idempotency_execute_max: Duration,
    /// How long the stored response is replayed
    #[arg(long, env = "IDEMPOTENCY_RESULT_RETENTION", default_value = "24h", value_parser = parse_duration)]
    pub(crate) idempotency_result_retention: Duration,
    /// How long a used key stays refused after its response is gone
    #[arg(long, env = "IDEMPOTENCY_KEY_RETENTION", default_value = "30d", value_parser = parse_duration)]
    pub(crate) idempotency_key_retention: Duration,
    /// What a duplicate of a running request gets when it says nothing
    #[arg(long, env = "IDEMPOTENCY_ON_DUPLICATE", default_value = "reject")]
    pub(crate) idempotency_on_duplicate: DuplicateChoice,
    /// The longest that a duplicate may wait
    #[arg(long, env = "IDEMPOTENCY_WAIT_MAX", default_value = "10s", value_parser = parse_duration)]
    pub(crate) idempotency_wait_max: Duration,
    /// Most waiters of this process
    #[arg(long, env = "IDEMPOTENCY_WAITERS_MAX", default_value_t = 1000)]
    pub(crate) idempotency_waiters_max: usize,
    /// A workflow that runs for longer answers 202
    #[arg(long, env = "IDEMPOTENCY_INLINE_MAX", default_value = "30s", value_parser = parse_duration)]
    pub(crate) idempotency_inline_max: Duration,
    /// How long after its last progress a workflow that nobody could finish is given up
    #[arg(long, env = "IDEMPOTENCY_STUCK_AFTER", default_value = "15m", value_parser = parse_duration)]
    pub(crate) idempotency_stuck_after: Duration,
    /// Larger responses stay in PostgreSQL only
    #[arg(long, env = "IDEMPOTENCY_CACHE_BODY_MAX", default_value = "16KiB", value_parser = parse_size)]
    pub(crate) idempotency_cache_body_max: usize,
    /// Largest request body
    #[arg(long, env = "BODY_MAX", default_value = "1MiB", value_parser = parse_size)]
    pub(crate) body_max: usize,
    /// Largest stored response; of a larger one only the outcome is kept
    #[arg(long, env = "STORED_BODY_MAX", default_value = "1MiB", value_parser = parse_size)]
    pub(crate) stored_body_max: usize,
    /// PostgreSQL connections of this process, some of them for housekeeping (at least 2 are used)
    #[arg(long, env = "DATABASE_POOL", default_value_t = 16)]
    pub(crate) database_pool: usize,
    /// How long a request waits for a PostgreSQL connection
    #[arg(long, env = "DATABASE_POOL_WAIT", default_value = "2s", value_parser = parse_duration)]
    pub(crate) database_pool_wait: Duration,
    /// The longest that one statement may run
    #[arg(long, env = "DATABASE_STATEMENT_TIMEOUT", default_value = "10s", value_parser = parse_duration)]
    pub(crate) database_statement_timeout: Duration,
    /// The longest that a statement waits for a lock
    #[arg(long, env = "DATABASE_LOCK_TIMEOUT", default_value = "2s", value_parser = parse_duration)]
    pub(crate) database_lock_timeout: Duration,
    /// Let webhooks go to loopback and private addresses
    #[arg(long, env = "WEBHOOK_ALLOW_PRIVATE", default_value_t = false, value_parser = clap::builder::BoolishValueParser::new(), num_args = 0..=1, default_missing_value = "true")]
    pub(crate) webhook_allow_private: bool,
    /// The longest pause after the first failed try of a webhook; it triples with each further one
    #[arg(long, env = "WEBHOOK_RETRY_BASE", default_value = "2s", value_parser = parse_duration)]
    pub(crate) webhook_retry_base: Duration,
    /// How long events, our own and the gateway's, are kept; one that waits for its delivery is kept for longer
    #[arg(long, env = "EVENTS_RETENTION", default_value = "90d", value_parser = parse_duration)]
    pub(crate) events_retention: Duration,
    /// Whether a transaction pooler stands before PostgreSQL
    #[arg(long, env = "DATABASE_POOLER", default_value = "none")]
    pub(crate) database_pooler: PoolerChoice,
    /// One call to Redis, connecting included
    #[arg(long, env = "REDIS_TIMEOUT", default_value = "250ms", value_parser = parse_duration)]
    pub(crate) redis_timeout: Duration,
}

/// The payment gateway; without one, nothing is charged.
#[derive(Debug, Clone, Args)]
pub(crate) struct GatewaySettings {
    /// The payment gateway, as the root of its URL (https://api.stripe.com)
    #[arg(long, env = "GATEWAY_URL", hide_env_values = true)]
    pub(crate) gateway_url: Option<String>,
    /// Its API key
    #[arg(long, env = "GATEWAY_KEY", hide_env_values = true)]
    pub(crate) gateway_key: Option<Secret>,
    /// One call to it, connecting included
    #[arg(long, env = "GATEWAY_TIMEOUT", default_value = "10s", value_parser = parse_duration)]
    pub(crate) gateway_timeout: Duration,
    /// What its messages to /v1/gateway-events are signed with, as Standard Webhooks has it: whsec_ and base64
    #[arg(long, env = "GATEWAY_WEBHOOK_SECRET", hide_env_values = true)]
    pub(crate) gateway_webhook_secret: Option<Secret>,
}

impl GatewaySettings {
    /// The way to the gateway, if one is set up; the error is one line.
    pub(crate) fn gateway(&self) -> Result<Option<Gateway>, String> {
        match (&self.gateway_url, &self.gateway_key) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err("GATEWAY_KEY is set, and GATEWAY_URL is not".to_owned()),
            (Some(_), None) => Err("GATEWAY_URL is set, and GATEWAY_KEY is not".to_owned()),
            (Some(_), Some(key)) if key.expose().is_empty() => {
                Err("GATEWAY_KEY must not be empty".to_owned())
            }
            (Some(_), Some(_)) if self.gateway_timeout.is_zero() => {
                Err("GATEWAY_TIMEOUT must be above zero".to_owned())
            }
            (Some(url), Some(key)) => Gateway::new(url, key, self.gateway_timeout).map(Some),
        }
    }

    /// What the gateway's messages are signed with, if any are expected; the error is one line.
    pub(crate) fn signing_key(&self) -> Result<Option<SigningKey>, String> {
        let Some(secret) = &self.gateway_webhook_secret else { return Ok(None) };
        let key = SigningKey::parse(secret.expose());
        key.map(Some).ok_or_else(|| "GATEWAY_WEBHOOK_SECRET must be whsec_ and base64".to_owned())
    }
}

/// A text that is never shown.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What `dev` needs.
#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// Where the private servers keep their data
    #[arg(long, env = "DATA_DIR", default_value = ".order-service")]
    pub(crate) data_dir: PathBuf,
    /// Use this PostgreSQL instead of a private one
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub(crate) database_url: Option<String>,
    /// Use this Redis instead of a private one
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub(crate) redis_url: Option<String>,
    #[command(flatten)]
    pub(crate) listen: Listen,
    #[command(flatten)]
    pub(crate) gateway: GatewaySettings,
    #[command(flatten)]
    pub(crate) limits: Limits,
}

/// All of what `serve` needs.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) stores: Stores,
    #[command(flatten)]
    pub(crate) listen: Listen,
    #[command(flatten)]
    pub(crate) gateway: GatewaySettings,
    #[command(flatten)]
    pub(crate) limits: Limits,
}

/// Contradictions, one line each.
pub(crate) fn contradictions(listen: &Listen, gateway: &GatewaySettings, limits: &Limits) -> Vec<String> {
    let mut faults = limits.policy().check();
    faults.extend(gateway.gateway().err());
    faults.extend(gateway.signing_key().err());
    let spans = [
        ("DATABASE_POOL_WAIT", limits.database_pool_wait),
        ("DATABASE_STATEMENT_TIMEOUT", limits.database_statement_timeout),
        ("DATABASE_LOCK_TIMEOUT", limits.database_lock_timeout),
        ("REDIS_TIMEOUT", limits.redis_timeout),
        ("WEBHOOK_RETRY_BASE", limits.webhook_retry_base),
        ("EVENTS_RETENTION", limits.events_retention),
        ("SHUTDOWN_GRACE", listen.shutdown_grace),
    ];
    for (name, span) in spans {
        if span.is_zero() {
            faults.push(format!("{name} must be above zero"));
        }
    }
    if limits.events_retention < limits.idempotency_key_retention {
        // Between the two, an event that the gateway sends again would be kept a second time.
        faults.push("EVENTS_RETENTION must not be shorter than IDEMPOTENCY_KEY_RETENTION".to_owned());
    }
    if limits.database_pool == 0 {
        faults.push("DATABASE_POOL must be above zero".to_owned());
    }
    if listen.admin_token.as_deref().is_some_and(str::is_empty) {
        faults.push("ADMIN_TOKEN must not be empty".to_owned());
    }
    if !listen.admin_bind.ip().is_loopback() && listen.admin_token.is_none() {
        faults.push("ADMIN_BIND is not a loopback address: set ADMIN_TOKEN".to_owned());
    }
    faults
}

impl Limits {
    pub(crate) fn policy(&self) -> Policy {
        Policy {
            lease: self.idempotency_lease,
            execute_max: self.idempotency_execute_max,
            result_retention: self.idempotency_result_retention,
            key_retention: self.idempotency_key_retention,
            cache_body_max: self.idempotency_cache_body_max,
            body_max: self.body_max,
            stored_body_max: self.stored_body_max,
            on_duplicate: match self.idempotency_on_duplicate {
                DuplicateChoice::Reject => OnDuplicate::Reject,
                DuplicateChoice::Wait => OnDuplicate::Wait,
            },
            wait_max: self.idempotency_wait_max,
            waiters_max: self.idempotency_waiters_max,
            inline_max: self.idempotency_inline_max,
            stuck_after: self.idempotency_stuck_after,
        }
    }
}

impl ServeArgs {
    pub(crate) fn check(&self) -> Vec<String> {
        contradictions(&self.listen, &self.gateway, &self.limits)
    }

    pub(crate) fn policy(&self) -> Policy {
        self.limits.policy()
    }

    pub(crate) fn database(&self) -> DatabaseConfig {
        DatabaseConfig {
            url: self.stores.database.database_url.clone(),
            pool_wait: self.limits.database_pool_wait,
            statement_timeout: self.limits.database_statement_timeout,
            lock_timeout: self.limits.database_lock_timeout,
            idle_timeout: self.limits.idempotency_lease,
            pooler: match self.limits.database_pooler {
                PoolerChoice::None => Pooler::None,
                PoolerChoice::Transaction => Pooler::Transaction,
            },
            plans: Plans::AsTheServerDecides,
        }
    }

    pub(crate) fn gate(&self) -> GateConfig {
        GateConfig {
            url: self.stores.redis_url.clone(),
            timeout: self.limits.redis_timeout,
            lease: self.limits.idempotency_lease,
            cache_body_max: self.limits.idempotency_cache_body_max,
        }
    }
}
