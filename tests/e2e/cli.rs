//! What an operator types: every command says what it takes, works when repeated, and fails in one clear line.
//!
//! Invariant: a refusal is on stderr, short, bounded in time and without secrets.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{Request, Response, until, within};

use crate::harness::database;
use crate::harness::{App, Stack, World, order};

const BOUND: Duration = Duration::from_secs(20);
const PROGRAM: &str = env!("CARGO_BIN_EXE_service-under-test");
/// Nobody listens on port 1.
const NOBODY: &str = "postgres://somebody:sesame@127.0.0.1:1/shop";

/// A command of the binary that has ended.
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ended {
    #[track_caller]
    pub fn succeeded(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out
    }

    /// The lines on stderr: the command must have failed, said nothing on stdout, and named no password.
    #[track_caller]
    fn faults(&self) -> Vec<&str> {
        assert!(self.code.is_some_and(|code| code != 0), "{:?} {}", self.code, self.err);
        assert_eq!(self.out, "", "{}", self.err);
        assert!(!self.err.contains("sesame"), "{}", self.err);
        self.err.lines().collect()
    }

    /// The only line on stderr.
    #[track_caller]
    pub fn fault(&self) -> &str {
        let lines = self.faults();
        assert!(lines.len() == 1 && lines[0].starts_with("error: "), "{lines:?}");
        lines[0]
    }
}

/// The binary without the settings of whoever runs the tests.
pub fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments);
    for setting in
        ["DATABASE_URL", "REDIS_URL", "LOG_FORMAT", "GATEWAY_URL", "GATEWAY_KEY", "GATEWAY_WEBHOOK_SECRET"]
    {
        command.env_remove(setting);
    }
    command
}

/// Runs a command to its end.
pub async fn run(command: Command) -> Ended {
    let what = format!("{command:?}");
    let output = tokio::process::Command::from(command).kill_on_drop(true).output();
    let output = within(&what, BOUND, output).await.expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

async fn run_on(database_url: &str, arguments: &[&str]) -> Ended {
    let mut command = program(arguments);
    command.env("DATABASE_URL", database_url);
    run(command).await
}

/// A request with an API key.
async fn send(api: SocketAddr, api_key: &str, request: Request) -> Response {
    let request = request.header("Authorization", format!("Bearer {api_key}"));
    testkit::send(api, &request).await.expect("an answer")
}

/// `POST /v1/orders`.
async fn place(api: SocketAddr, api_key: &str) -> Response {
    send(api, api_key, Request::post("/v1/orders").header("Idempotency-Key", "K").json(&order(2))).await
}

async fn empty_database() -> String {
    tokio::task::spawn_blocking(|| Stack::get().empty_database()).await.expect("a database")
}

#[tokio::test]
async fn help_names_every_option_with_its_variable() {
    const SERVE: &str = "DATABASE_URL REDIS_URL BIND ADMIN_BIND ADMIN_TOKEN SHUTDOWN_GRACE IDEMPOTENCY_LEASE \
        IDEMPOTENCY_EXECUTE_MAX IDEMPOTENCY_RESULT_RETENTION IDEMPOTENCY_KEY_RETENTION IDEMPOTENCY_CACHE_BODY_MAX \
        BODY_MAX DATABASE_POOL DATABASE_POOL_WAIT DATABASE_STATEMENT_TIMEOUT DATABASE_LOCK_TIMEOUT DATABASE_POOLER \
        REDIS_TIMEOUT IDEMPOTENCY_ON_DUPLICATE IDEMPOTENCY_WAIT_MAX IDEMPOTENCY_WAITERS_MAX IDEMPOTENCY_INLINE_MAX \
        IDEMPOTENCY_STUCK_AFTER STORED_BODY_MAX LOG_FORMAT WEBHOOK_ALLOW_PRIVATE WEBHOOK_RETRY_BASE \
        EVENTS_RETENTION GATEWAY_WEBHOOK_SECRET";
    let dev = format!("{SERVE} DATA_DIR ORDER_SERVICE_SERVERS ORDER_SERVICE_NO_INSTALL");
    for (command, variables) in [
        ("serve", SERVE),
        ("dev", &dev),
        ("migrate", "DATABASE_URL"),
        ("seed", "DATABASE_URL"),
        ("accounts create", "DATABASE_URL"),
        ("accounts list", "DATABASE_URL"),
        ("accounts revoke", "DATABASE_URL"),
        ("keys stuck", "DATABASE_URL IDEMPOTENCY_STUCK_AFTER"),
        (
            "doctor",
            "DATABASE_URL REDIS_URL DATABASE_POOL DATABASE_POOLER IDEMPOTENCY_LEASE ADMIN_BIND ADMIN_TOKEN REPLICAS REPORT_JSON",
        ),
        (
            "verify",
            "DATABASE_URL REDIS_URL IDEMPOTENCY_KEY_RETENTION EVENTS_RETENTION IDEMPOTENCY_STUCK_AFTER REPORT_JSON",
        ),
        ("webhooks dead", "DATABASE_URL"),
        ("webhooks redeliver", "DATABASE_URL"),
    ] {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let help = run(program(&words)).await.succeeded();
        let options = help.lines().filter(|line| line.trim_start().starts_with("--")).count();
        assert_eq!(
            help.matches("[env: ").count(),
            options,
            "an option of {command} names no variable: {help}"
        );
        for variable in variables.split_whitespace() {
            let named =
                help.split(|c: char| !c.is_ascii_uppercase() && c != '_').any(|word| word == variable);
            assert!(named, "{command} --help does not name {variable}");
        }
    }
    let top = run(program(&["--help"])).await.succeeded();
    let group = run(program(&["accounts", "--help"])).await.succeeded();
    for name in ["dev", "serve", "migrate", "seed", "accounts", "webhooks", "doctor", "verify"] {
        assert!(top.contains(&format!("\n  {name} ")), "{name}");
    }
    for name in ["create", "list", "revoke"] {
        assert!(group.contains(&format!("\n  {name} ")), "{name}");
    }
}

#[tokio::test]
async fn a_mistyped_command_is_refused_in_one_line() {
    for (words, named) in [
        ("bogus", "'bogus'"),
        ("accounts bogus", "'bogus'"),
        ("serve --nope", "'--nope'"),
        ("migrate", "DATABASE_URL"),
        ("seed", "DATABASE_URL"),
        ("serve", "REDIS_URL"),
        ("accounts list", "DATABASE_URL"),
        ("accounts create", "NAME"),
        ("seed --log-format loud", "LOG_FORMAT"),
        ("migrate --database-url postgres://u:sesame@127.0.0.1:port/x", "DATABASE_URL"),
        ("accounts list --database-url nonsense", "DATABASE_URL"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let ended = run(program(&words)).await;
        assert!(ended.fault().contains(named), "{words:?}: {}", ended.err);
    }
    // Half a command is answered with what it can be.
    for words in [vec![], vec!["accounts"]] {
        let ended = run(program(&words)).await;
        assert!(ended.faults().iter().any(|line| line.starts_with("Commands:")), "{words:?}: {}", ended.err);
    }
}

#[tokio::test]
async fn settings_that_contradict_each_other_stop_the_start() {
    for (settings, named) in [
        ("IDEMPOTENCY_LEASE=0s", &["IDEMPOTENCY_LEASE"][..]),
        ("IDEMPOTENCY_LEASE=500ms", &["IDEMPOTENCY_LEASE"]),
        ("IDEMPOTENCY_LEASE=-1s", &["IDEMPOTENCY_LEASE"]),
        ("IDEMPOTENCY_LEASE=10", &["IDEMPOTENCY_LEASE"]),
        ("IDEMPOTENCY_LEASE=301s", &["EXECUTE_MAX"]),
        ("IDEMPOTENCY_RESULT_RETENTION=9s", &["RESULT_RETENTION"]),
        ("IDEMPOTENCY_RESULT_RETENTION=0s", &["RESULT_RETENTION must be above zero", "IDEMPOTENCY_LEASE"]),
        ("IDEMPOTENCY_KEY_RETENTION=23h", &["KEY_RETENTION"]),
        ("IDEMPOTENCY_EXECUTE_MAX=0s", &["EXECUTE_MAX must be above zero", "IDEMPOTENCY_LEASE"]),
        ("BODY_MAX=0KiB", &["BODY_MAX"]),
        ("BODY_MAX=1MB", &["BODY_MAX"]),
        ("IDEMPOTENCY_ON_DUPLICATE=maybe", &["ON_DUPLICATE"]),
        ("DATABASE_POOL=0", &["DATABASE_POOL "]),
        ("DATABASE_POOL=-1", &["DATABASE_POOL"]),
        ("DATABASE_POOLER=pgbouncer", &["DATABASE_POOLER"]),
        ("DATABASE_LOCK_TIMEOUT=0s", &["DATABASE_LOCK_TIMEOUT"]),
        ("REDIS_TIMEOUT=0s", &["REDIS_TIMEOUT"]),
        ("WEBHOOK_RETRY_BASE=0s", &["WEBHOOK_RETRY_BASE"]),
        ("EVENTS_RETENTION=29d", &["EVENTS_RETENTION must not be shorter"]),
        ("GATEWAY_WEBHOOK_SECRET=sesame", &["GATEWAY_WEBHOOK_SECRET"]),
        ("REDIS_URL=redis://:sesame@127.0.0.1:port", &["REDIS_URL"]),
        ("DATABASE_URL=postgres://u:sesame@127.0.0.1:port/x", &["DATABASE_URL"]),
        ("SHUTDOWN_GRACE=0s", &["SHUTDOWN_GRACE"]),
        ("ADMIN_TOKEN=", &["ADMIN_TOKEN"]),
        ("ADMIN_BIND=0.0.0.0:0", &["ADMIN_TOKEN"]),
        (
            "IDEMPOTENCY_LEASE=0s DATABASE_POOL=0 REDIS_TIMEOUT=0s",
            &["LEASE", "REDIS_TIMEOUT", "DATABASE_POOL"],
        ),
    ] {
        let mut command = program(&["serve"]);
        command.env("DATABASE_URL", NOBODY).env("REDIS_URL", "redis://127.0.0.1:1");
        command.env("BIND", "127.0.0.1:0").env("ADMIN_BIND", "127.0.0.1:0");
        command.envs(settings.split(' ').filter_map(|setting| setting.split_once('=')));
        let ended = run(command).await;
        let lines = ended.faults();
        assert_eq!(lines.len(), named.len(), "{settings}: {lines:?}");
        for (line, named) in lines.iter().zip(named) {
            assert!(line.starts_with("error: ") && line.contains(named), "{settings}: {line}");
        }
    }
}

#[tokio::test]
async fn a_database_that_cannot_be_used_is_told_in_time_and_without_its_password() {
    // The system takes connections on its behalf, and it never says a word.
    let deaf = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let deaf = format!("postgres://somebody:sesame@{}/shop", deaf.local_addr().expect("its address"));
    let stranger = empty_database().await;
    let stranger = format!("postgres://postgres:sesame@{}", stranger.rsplit_once('@').expect("a password").1);
    let mut refusals = Vec::new();
    for url in [NOBODY, &deaf, &stranger] {
        for words in ["migrate", "seed", "accounts create x", "accounts list", "accounts revoke x"] {
            let (url, words) = (url.to_owned(), words.split(' ').collect::<Vec<_>>());
            refusals.push(tokio::spawn(async move { run_on(&url, &words).await }));
        }
    }
    for refusal in refusals {
        let ended = refusal.await.expect("a command");
        assert!(ended.fault().contains("PostgreSQL cannot be reached"), "{}", ended.err);
    }
    let unmigrated = empty_database().await;
    for words in [&["seed"][..], &["accounts", "list"]] {
        assert!(run_on(&unmigrated, words).await.fault().contains("does not exist"), "{words:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn five_replicas_that_migrate_at_once_apply_each_migration_once() {
    let url = empty_database().await;
    let five = [(); 5].map(|()| {
        let url = url.clone();
        tokio::spawn(async move { run_on(&url, &["migrate"]).await.succeeded() })
    });
    let mut applied = Vec::new();
    for one in five {
        let said = one.await.expect("a migration");
        applied.extend(said.lines().filter(|line| *line != "nothing to apply").map(str::to_owned));
    }
    let client = database::connect(&url).await;
    let sql = "SELECT 'applied V' || version || '__' || name FROM refinery_schema_history ORDER BY version";
    let history: Vec<String> =
        client.query(sql, &[]).await.expect("the history").iter().map(|row| row.get(0)).collect();
    assert!(history.len() >= 5, "{history:?}");
    assert_eq!(applied, history);
    assert_eq!(run_on(&url, &["migrate"]).await.succeeded(), "nothing to apply\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_empty_database_is_made_ready_under_a_running_service() {
    let app = App::builder(World::Up).start().await;
    let url = empty_database().await;
    let replica = app.new_replica_with(&[("DATABASE_URL", &url)]).await;
    let ready = async || testkit::send(replica.admin, &Request::get("/readyz")).await.expect("an answer");
    let before = ready().await;
    assert_eq!((before.status, &before.json()["reason"]), (503, &json!("database is not migrated")));
    run_on(&url, &["migrate"]).await.succeeded();
    assert_eq!(ready().await.status, 200, "ready without a restart");

    let said = run_on(&url, &["seed"]).await.succeeded();
    let (_, key) = said.trim().split_once("account demo: ").expect("the demo account with its key");
    assert_eq!(place(replica.api, key).await.status, 201);

    let client = database::connect(&url).await;
    client.batch_execute("UPDATE products SET unit_price = 1 WHERE sku = 'TEA-002'").await.expect("a change");
    let before = dump(&client).await;
    assert!(!run_on(&url, &["seed"]).await.succeeded().contains("osk_"), "a key is printed once");
    assert_eq!(dump(&client).await, before, "what is there stays as it is");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_key_is_shown_once_and_kept_nowhere() {
    let app = App::builder(World::Up).start().await;
    let create = async || run_on(&app.database_url, &["accounts", "create", "Tea & Söhne"]).await.succeeded();
    let list = async || run_on(&app.database_url, &["accounts", "list"]).await.succeeded();
    let orders = async |key: &str| send(app.replica().api, key, Request::get("/v1/orders")).await;
    let keys = [create().await, create().await].map(|said| said.trim_end().to_owned());
    assert_ne!(keys[0], keys[1]);
    let placed = place(app.replica().api, &keys[0]).await.json();
    for key in &keys {
        assert_eq!(orders(key).await.json()["data"][0]["id"], placed["id"], "both are keys of one account");
    }

    let listed = list().await;
    let everything = [dump(&app.db).await, app.replica().process.lines().join("\n"), listed.clone()].concat();
    let mut ids = Vec::new();
    for key in &keys {
        let (id, secret) = key.strip_prefix("osk_").and_then(|rest| rest.split_once('_')).expect("osk_…");
        let line = listed.lines().find(|line| line.contains(id)).expect("every key is listed");
        assert!(line.contains("Tea & Söhne") && line.ends_with("valid"), "{line}");
        // A part of it would be too much already.
        let part = &secret[..16];
        let hex: String = part.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(!everything.contains(part) && !everything.contains(&hex), "the secret was kept somewhere");
        ids.push(id);
    }

    for words in [["accounts", "revoke", "no-such-key"], ["accounts", "create", ""]] {
        run_on(&app.database_url, &words).await.fault();
    }
    run_on(&app.database_url, &["accounts", "revoke", ids[0]]).await.succeeded();
    let refused = async || orders(&keys[0]).await.status == 401;
    until("the revoked key is refused", Duration::from_secs(5), refused).await;
    assert_eq!(orders(&keys[1]).await.status, 200, "the other key lives on");
    let twice = run_on(&app.database_url, &["accounts", "revoke", ids[0]]).await;
    assert!(twice.fault().contains(ids[0]), "{}", twice.err);
    let listed = list().await;
    assert!(listed.lines().any(|line| line.contains(ids[0]) && line.ends_with("revoked")), "{listed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn time_zones_of_machine_and_database_move_no_deadline() {
    let app = App::builder(World::Up).start().await;
    let name = app.database_url.rsplit_once('/').expect("a database").1;
    let zone = format!("ALTER DATABASE {name} SET timezone = 'America/Lima'");
    app.db.batch_execute(&zone).await.expect("a time zone");
    let settings =
        [("TZ", "Pacific/Auckland"), ("IDEMPOTENCY_RESULT_RETENTION", "3s"), ("IDEMPOTENCY_LEASE", "1s")];
    let replica = app.new_replica_with(&settings).await;
    let begun = Instant::now();
    let first = place(replica.api, &app.api_key).await;
    assert!(first.json()["created_at"].as_str().is_some_and(|text| text.ends_with('Z')), "{}", first.text());
    let expired = async || {
        let again = place(replica.api, &app.api_key).await;
        assert!(again.status == 409 || again.body == first.body, "{}", again.text());
        again.status == 409
    };
    until("the response is no longer kept", BOUND, expired).await;
    let took = begun.elapsed().as_secs_f64();
    assert!((2.9..6.0).contains(&took), "kept for {took} s");
}

/// Every row of every table.
async fn dump(client: &tokio_postgres::Client) -> String {
    let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' ORDER BY 1";
    let mut dumped = String::new();
    for table in client.query(tables, &[]).await.expect("the tables") {
        let name: &str = table.get(0);
        let sql = format!("SELECT coalesce(string_agg(t::text, E'\\n' ORDER BY t::text), '') FROM {name} t");
        dumped.push_str(client.query_one(&sql, &[]).await.expect("its rows").get(0));
    }
    dumped
}
