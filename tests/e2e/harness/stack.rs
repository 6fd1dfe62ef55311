//! One PostgreSQL for all tests of this process, with a migrated template database; a Redis for each test.

use std::sync::OnceLock;

use devstack::{Ending, Environment, Postgres, PostgresOptions, Redis, RedisOptions, Servers, TempDir};

/// The binary under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_service-under-test");
const TEMPLATE: &str = "e2e_template";

/// What all tests share. Never dropped: the watchdogs end the servers with the process.
pub struct Stack {
    pub servers: Servers,
    pub postgres: Postgres,
    /// API keys of the accounts `demo` and `other`.
    pub api_key: String,
    pub other_api_key: String,
    folder: TempDir,
}

impl Stack {
    /// The stack, started by whoever needs it first. Blocks.
    pub fn get() -> &'static Self {
        static STACK: OnceLock<Stack> = OnceLock::new();
        STACK.get_or_init(Self::start)
    }

    fn start() -> Self {
        let report = |line: &str| eprintln!("{line}");
        let environment = Environment::of_this_process().expect("an environment");
        let servers = Servers::resolve(&environment, &report).expect("servers");
        let folder = TempDir::new("order-service-e2e").expect("a temporary folder");
        let options = PostgresOptions { on_death: Ending::AtOnce, ..PostgresOptions::default() };
        let mut postgres =
            Postgres::start(&servers.postgres, folder.path().join("postgres"), options, &report)
                .expect("PostgreSQL");
        assert!(postgres.is_running());
        run_sql(&postgres.url(), &format!("CREATE DATABASE {TEMPLATE}"));
        let template = postgres.url_for(TEMPLATE);
        command(&template, &["migrate"]);
        command(&template, &["seed"]);
        let api_key = command(&template, &["accounts", "create", "demo"]);
        let other_api_key = command(&template, &["accounts", "create", "other"]);
        Self { servers, postgres, api_key, other_api_key, folder }
    }

    /// A database with the schema, the demo catalogue and both accounts; returns its URL.
    pub fn new_database(&self) -> String {
        let name = format!("e2e_{}", uuid::Uuid::new_v4().simple());
        run_sql(&self.postgres.url(), &format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}"));
        self.postgres.url_for(&name)
    }

    /// An empty database; returns its URL.
    pub fn empty_database(&self) -> String {
        let name = format!("e2e_{}", uuid::Uuid::new_v4().simple());
        run_sql(&self.postgres.url(), &format!("CREATE DATABASE {name}"));
        self.postgres.url_for(&name)
    }

    /// A PostgreSQL of its own, for cases that restart it or change its settings; schema and accounts as above, in the
    /// database `postgres`. Its keys are returned beside it.
    pub fn new_postgres(&self, settings: &[(&str, &str)]) -> (Postgres, String, String) {
        let folder = self.folder.path().join(format!("postgres-{}", uuid::Uuid::new_v4().simple()));
        let options =
            PostgresOptions { on_death: Ending::AtOnce, ..PostgresOptions::default() }.settings(settings);
        let postgres = Postgres::start(&self.servers.postgres, folder, options, &|line| eprintln!("{line}"))
            .expect("PostgreSQL");
        let url = postgres.url();
        command(&url, &["migrate"]);
        command(&url, &["seed"]);
        let keys =
            (command(&url, &["accounts", "create", "demo"]), command(&url, &["accounts", "create", "other"]));
        (postgres, keys.0, keys.1)
    }

    /// A Redis of its own.
    pub fn new_redis(&self, settings: &[(&str, &str)]) -> Redis {
        let folder = self.folder.path().join(format!("redis-{}", uuid::Uuid::new_v4().simple()));
        let options = RedisOptions { on_death: Ending::AtOnce, ..RedisOptions::default() }.settings(settings);
        Redis::start(&self.servers.redis, folder, options, &|line| eprintln!("{line}")).expect("Redis")
    }
}

/// Runs a command of the binary and returns its last line.
pub fn command(database_url: &str, arguments: &[&str]) -> String {
    let output = std::process::Command::new(PROGRAM)
        .args(arguments)
        .env("DATABASE_URL", database_url)
        .output()
        .expect("the binary runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned()
}

/// Runs a command of the binary: what it printed, or what it complained about.
pub fn program_output(arguments: &[String], env: &[(String, String)]) -> Result<String, String> {
    let env = env.iter().map(|(name, value)| (name, value));
    let output =
        std::process::Command::new(PROGRAM).args(arguments).envs(env).output().expect("the binary runs");
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Runs SQL on a short-lived connection. Blocks.
fn run_sql(url: &str, sql: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (client, connection) =
            tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("PostgreSQL");
        let driven = tokio::spawn(connection);
        client.batch_execute(sql).await.expect("SQL");
        drop(client);
        let _ = driven.await;
    });
}
