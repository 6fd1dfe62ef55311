//! `order-service dev`, the main job: one command on a fresh machine, and nothing is left of it but its data.
//!
//! The real command with real private servers. Invariant: no server outlives its `dev`, however that ends.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use devstack::{TempDir, is_alive};
use serde_json::Value;
use testkit::{Process, Request, Response, Signal, until, within};

use crate::cli::{program, run};
use crate::harness::{Stack, database, order, redis_command};

const BOUND: Duration = Duration::from_secs(60);

/// A running `dev`, and what it says of itself.
struct Dev {
    process: Process,
    json: Value,
    curl: String,
}

fn command(folder: &Path) -> std::process::Command {
    let mut command = program(&["dev", "--bind", "127.0.0.1:0", "--admin-bind", "127.0.0.1:0"]);
    command.arg("--data-dir").arg(folder);
    command
}

impl Dev {
    async fn start(folder: &Path) -> Self {
        Self::start_as(command(folder), folder).await
    }

    async fn start_as(command: std::process::Command, folder: &Path) -> Self {
        let process = Process::spawn(command).expect("dev starts");
        // Polled, as a script would: whenever the file is there, it must be whole.
        let there = async || {
            if !is_alive(process.pid()) {
                // Fails with its last lines.
                process.line_containing("curl -i").await;
            }
            fs::read_to_string(folder.join("dev.json")).ok()
        };
        let text = until("dev.json is there", BOUND, there).await;
        let json = serde_json::from_str(&text).expect("dev.json is whole whenever it is there");
        let curl = process.line_containing("curl -i").await;
        Self { process, json, curl }
    }

    fn said(&self, name: &str) -> &str {
        self.json[name].as_str().expect("a text")
    }

    async fn send(&self, listener: &str, request: &Request) -> Response {
        let address = self.said(listener).strip_prefix("http://").and_then(|text| text.parse().ok());
        testkit::send(address.expect("an address"), request).await.expect("an answer")
    }

    async fn order(&self, key: &str) -> Response {
        let request = Request::post("/v1/orders").header("Idempotency-Key", key).json(&order(2));
        let request = request.header("Authorization", format!("Bearer {}", self.said("api_key")));
        self.send("api", &request).await
    }

    async fn is_ready(&self) -> bool {
        self.send("admin", &Request::get("/readyz")).await.json()["status"] == "ready"
    }

    /// Pastes the printed line into a shell: what curl printed, split into head and body.
    async fn paste(&self) -> (String, String) {
        let shell = tokio::process::Command::new("sh").args(["-c", self.curl.trim()]).output();
        let output = within("curl", BOUND, shell).await.expect("sh");
        let text = String::from_utf8(output.stdout).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        (head.to_ascii_lowercase(), body.to_owned())
    }

    async fn redis_pid(&self) -> u32 {
        let address =
            self.said("redis_url").strip_prefix("redis://").and_then(|text| text.strip_suffix("/0"));
        let address = address.expect("database 0").parse().expect("an address");
        let info: String = redis_command(address, &["INFO", "server"]).await.expect("Redis");
        let pid = info.lines().find_map(|line| line.strip_prefix("process_id:")).expect("a process id");
        pid.trim().parse().expect("a number")
    }

    /// The private servers' processes.
    async fn servers(&self) -> [u32; 2] {
        let client = database::connect(self.said("database_url")).await;
        let sql = "SELECT setting || '/postmaster.pid' FROM pg_settings WHERE name = 'data_directory'";
        let path: String = client.query_one(sql, &[]).await.expect("the data folder").get(0);
        let text = fs::read_to_string(path).expect("postmaster.pid");
        let postmaster = text.lines().next().and_then(|line| line.parse().ok()).expect("a process id");
        let all = [postmaster, self.redis_pid().await];
        assert!(all.iter().all(|pid| is_alive(*pid)), "{all:?}");
        all
    }

    /// Where the payment sandbox listens.
    async fn sandbox(&self) -> SocketAddr {
        let line = self.process.line_containing("payments go to the sandbox at ").await;
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split_once(' '));
        let address = address.expect("an address").0.parse().expect("an address");
        let ledger = testkit::send(address, &Request::get("/sandbox/ledger")).await.expect("a ledger");
        assert_eq!(ledger.json()["charges"], serde_json::json!([]));
        address
    }

    async fn end(mut self) {
        self.process.signal(Signal::Term).await.expect("SIGTERM");
        assert_eq!(self.process.wait_exit(BOUND).await.code(), Some(0));
    }
}

async fn all_are_gone(pids: [u32; 2]) {
    until("no server is left", BOUND, || async { !pids.iter().any(|pid| is_alive(*pid)) }).await;
}

async fn is_closed(address: SocketAddr) -> bool {
    tokio::net::TcpStream::connect(address).await.is_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_command_makes_a_shop_whose_data_outlives_it() {
    let folder = TempDir::new("e2e-dev").expect("a folder");
    let file = folder.path().join("dev.json");
    let dev = Dev::start(folder.path()).await;
    let mut names: Vec<&String> = dev.json.as_object().expect("an object").keys().collect();
    names.sort();
    assert_eq!(names, ["account", "admin", "api", "api_key", "database_url", "pid", "redis_url"]);
    assert_eq!((&dev.json["pid"], dev.said("account")), (&dev.process.pid().into(), "demo"));
    assert_eq!(fs::metadata(&file).expect("dev.json").mode() & 0o777, 0o600, "it holds a key and a password");
    assert!(dev.is_ready().await);
    let client = database::connect(dev.said("database_url")).await;
    let sql =
        "SELECT usesuper, to_regclass('public.orders') IS NOT NULL FROM pg_user WHERE usename = current_user";
    let row = client.query_one(sql, &[]).await.expect("a role");
    assert!(row.get::<_, bool>(0) && row.get::<_, bool>(1), "a superuser, and tables in public");

    let (head, body) = dev.paste().await;
    assert!(head.starts_with("http/1.1 201") && !head.contains("idempotent-replayed"), "{head}");
    let (again, same_body) = dev.paste().await;
    assert!(again.starts_with("http/1.1 201") && again.contains("idempotent-replayed: true"), "{again}");
    assert_eq!(body, same_body);
    let orders = "SELECT count(*) FROM orders";
    assert_eq!(client.query_one(orders, &[]).await.expect("a count").get::<_, i64>(0), 1);
    let admin = dev.said("admin").trim_start_matches("http://");
    for arguments in [&["verify"][..], &["doctor", "--admin-bind", admin]] {
        let mut command = program(arguments);
        command.env("DATABASE_URL", dev.said("database_url")).env("REDIS_URL", dev.said("redis_url"));
        let said = run(command).await.succeeded();
        assert!(said.lines().all(|line| line.starts_with("ok ")), "{said}");
    }

    let (servers, sandbox) = (dev.servers().await, dev.sandbox().await);
    let first = dev.json.clone();
    dev.end().await;
    assert!(!servers.iter().any(|pid| is_alive(*pid)), "ended before dev, not after it");
    assert!(is_closed(sandbox).await, "ended before dev, too");
    assert!(!file.exists(), "nobody listens any more where it points to");

    let mut dev = Dev::start(folder.path()).await;
    assert_eq!(dev.json["api_key"], first["api_key"]);
    let (again, same_body) = dev.paste().await;
    assert!(again.contains("idempotent-replayed: true") && body == same_body, "{again} {same_body}");
    let (servers, sandbox) = (dev.servers().await, dev.sandbox().await);
    dev.process.signal(Signal::Kill).await.expect("SIGKILL");
    dev.process.wait_exit(BOUND).await;
    all_are_gone(servers).await;
    until("the sandbox is gone", BOUND, || is_closed(sandbox)).await;

    // What was committed before the SIGKILL is still there, and the stale dev.json is not mistaken for a new one.
    assert!(file.exists());
    let mut dev = command(folder.path());
    dev.env("IDEMPOTENCY_LEASE", "0s");
    assert!(run(dev).await.err.contains("IDEMPOTENCY_LEASE"), "a start that fails");
    assert!(!file.exists());
    let dev = Dev::start(folder.path()).await;
    assert_eq!(dev.paste().await.1, body);
    let servers = dev.servers().await;
    dev.end().await;
    all_are_gone(servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_start_that_is_called_off_leaves_no_server() {
    let folder = TempDir::new("e2e-dev").expect("a folder");
    // The worst moment: PostgreSQL's watchdog has been started, and finds that nobody listens to it any more.
    let script = r#"case "$*" in *devstack-watchdog*) touch "$note"; read -r _ ;; esac; exec /bin/sh "$@""#;
    let (path, reached) = decoy(folder.path(), "sh", script);
    for signal in [Signal::Term, Signal::Kill] {
        let mut start = command(folder.path());
        start.env("PATH", &path);
        let mut dev = Process::spawn(start).expect("dev starts");
        until("the watchdog is started", BOUND, || async { reached.exists() }).await;
        dev.signal(signal).await.expect("a signal");
        assert_eq!(dev.wait_exit(BOUND).await.code(), (signal == Signal::Term).then_some(0));
        assert!(!folder.path().join("dev.json").exists());
        fs::remove_file(&reached).expect("the note");
        // A server that was left behind would keep the folder.
        Dev::start(folder.path()).await.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_second_one_on_the_same_folder_is_refused_and_harms_nothing() {
    let folder = TempDir::new("e2e-dev").expect("a folder");
    let dev = Dev::start(folder.path()).await;
    let file = fs::read(folder.path().join("dev.json")).expect("dev.json");
    let mut with_stores = command(folder.path());
    with_stores.env("DATABASE_URL", dev.said("database_url")).env("REDIS_URL", dev.said("redis_url"));
    for second in [command(folder.path()), with_stores] {
        let ended = run(second).await;
        assert!(ended.fault().contains("in use by another"), "{}", ended.err);
        assert!(ended.err.contains(&folder.path().display().to_string()), "{}", ended.err);
        assert_eq!(fs::read(folder.path().join("dev.json")).expect("dev.json"), file);
        assert!(dev.is_ready().await);
    }
    assert_eq!(dev.order("K").await.status, 201);
    let servers = dev.servers().await;
    dev.end().await;
    all_are_gone(servers).await;
}

/// A port that somebody has is told before anything is started, or fetched.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_taken_port_is_told_at_once() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    for (option, name) in [("--bind", "(BIND)"), ("--admin-bind", "(ADMIN_BIND)")] {
        let folder = TempDir::new("e2e-dev").expect("a folder");
        let mut command = program(&["dev", option, &address]);
        let other = if option == "--bind" { "--admin-bind" } else { "--bind" };
        command.args([other, "127.0.0.1:0", "--data-dir"]).arg(folder.path());
        let ended = run(command).await;
        assert!(ended.fault().contains(&format!("cannot listen on {address} {name}")), "{}", ended.err);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing was made");
    }
}

/// A `PATH` that begins with a script of this name, and the file `$note` that it can make.
fn decoy(parent: &Path, name: &str, script: &str) -> (OsString, PathBuf) {
    let folder = parent.join("decoy");
    fs::create_dir(&folder).expect("a folder");
    // The servers' user runs it too.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("its mode");
    let (file, note) = (folder.join(name), folder.join("note"));
    devstack::write_script(&file, &format!("note='{}'\n{script}", note.display())).expect("a script");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder).chain(std::env::split_paths(&path));
    (std::env::join_paths(folders).expect("a PATH"), note)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn stores_that_are_given_are_used_and_not_started() {
    let folder = TempDir::new("e2e-dev").expect("a folder");
    let stack = || (Stack::get().empty_database(), Stack::get().new_redis(&[]));
    let (database_url, mut redis) = tokio::task::spawn_blocking(stack).await.expect("stores");
    let mut both = command(folder.path());
    both.env("DATABASE_URL", &database_url).env("REDIS_URL", redis.url());
    let dev = Dev::start_as(both, folder.path()).await;
    assert_eq!((dev.said("database_url"), dev.said("redis_url")), (&*database_url, &*redis.url()));
    assert_eq!(dev.order("K").await.status, 201);
    assert!(!folder.path().join("postgres").exists() && !folder.path().join("redis").exists());
    dev.end().await;
    assert!(redis.is_running(), "what it did not start, it does not end");

    let (path, looked_at) = decoy(folder.path(), "postgres", r#"touch "$note"; exit 1"#);
    let mut one = command(folder.path());
    one.env("DATABASE_URL", &database_url).env("PATH", path);
    let dev = Dev::start_as(one, folder.path()).await;
    assert!(!looked_at.exists(), "a PostgreSQL was looked for, and would have been installed");
    assert_eq!(dev.order("K").await.header("idempotent-replayed"), Some("true"));
    let redis = dev.redis_pid().await;
    dev.end().await;
    assert!(!is_alive(redis) && !folder.path().join("postgres").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn without_servers_it_says_in_one_line_what_is_missing() {
    let folder = TempDir::new("e2e-dev").expect("a folder");
    let home = folder.path().join("home");
    fs::create_dir(&home).expect("a folder");
    let mut unknown = command(&home.join("data"));
    unknown.env("ORDER_SERVICE_SERVERS", "bogus");
    assert!(run(unknown).await.fault().contains("use `found` or `embedded`"));

    // The servers of this machine cannot be hidden, so only embedded ones are asked for, with an empty cache.
    let mut missing = command(&home.join("data"));
    if fs::metadata(&home).expect("the folder").uid() == 0 {
        // Root's cache is not below HOME: run it as nobody, from where nobody can reach it.
        fs::set_permissions(&home, fs::Permissions::from_mode(0o777)).expect("its mode");
        let copy = folder.path().join("order-service");
        // By another process: a file that this one has open for writing could be inherited by a fork of another test, and
        // then not be executed ("text file busy").
        let copied = std::process::Command::new("cp").arg(missing.get_program()).arg(&copy).status();
        assert!(copied.expect("cp runs").success());
        let mut as_nobody = std::process::Command::new(copy);
        as_nobody.args(missing.get_args()).env_remove("DATABASE_URL").env_remove("REDIS_URL");
        as_nobody.uid(65534).gid(65534).current_dir("/");
        missing = as_nobody;
    }
    missing.env("ORDER_SERVICE_SERVERS", "embedded").env("ORDER_SERVICE_NO_INSTALL", "1");
    missing.env("HOME", &home).env_remove("XDG_CACHE_HOME");
    let ended = run(missing).await;
    let fault = ended.fault();
    assert!(fault.contains("PostgreSQL") && fault.contains("ORDER_SERVICE_NO_INSTALL"), "{fault}");
    assert!(!home.join(".cache").exists(), "nothing was fetched");
    assert!(!home.join("data/dev.json").exists());
}

/// With a port that is known beforehand, the sandbox tells the service of what it did, and is believed.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_sandbox_tells_the_service_what_it_did() {
    let folder = TempDir::new("e2e-dev").expect("a folder");
    let free =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free port");
    let mut command = program(&["dev", "--admin-bind", "127.0.0.1:0", "--bind", &free.to_string()]);
    command.arg("--data-dir").arg(folder.path());
    let dev = Dev::start_as(command, folder.path()).await;
    let sandbox = dev.sandbox().await;
    let charge = Request::post("/v1/payment_intents")
        .header("Authorization", "Bearer sk_test_sandbox")
        .header("Idempotency-Key", "K")
        .header("Content-Type", "application/x-www-form-urlencoded")
        .body("amount=500&currency=eur&payment_method=tok_visa&confirm=true&metadata%5Baccount%5D=1");
    assert_eq!(testkit::send(sandbox, &charge).await.expect("an answer").status, 200);
    let client = database::connect(dev.said("database_url")).await;
    let sql =
        "SELECT count(*) FROM gateway_events WHERE type = 'payment_intent.succeeded' AND account_id = 1";
    let kept = async || client.query_one(sql, &[]).await.expect("a count").get::<_, i64>(0) == 1;
    until("the gateway's event is kept", BOUND, kept).await;
    dev.end().await;
}
