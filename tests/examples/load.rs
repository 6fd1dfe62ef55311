//! Two measurements of the service under load, on private servers: `storm` (a thousand duplicates of one slow order beside
//! fresh orders) and `reaper` (half a million expired records beside orders). Prints numbers side by side; asserts nothing
//! about time. Bounded: each phase ends by itself.
//!
//! `cargo build --release -p order-service && cargo run --release -p e2e --example load -- storm`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use devstack::{Ending, Environment, Postgres, PostgresOptions, Redis, RedisOptions, Servers, TempDir};
use serde_json::{Value, json};
use testkit::{Connection, Process, Request};
use tokio_postgres::{Client, NoTls};

/// Fresh orders a second.
const RATE: u64 = 50;
/// How long a phase of fresh orders lasts.
const PHASE: Duration = Duration::from_secs(8);
/// Duplicates of the slow order, and how long each waits before it sends again.
const CLIENTS: usize = 1000;
const RETRY_EVERY: Duration = Duration::from_millis(100);
/// Expired rows.
const EXPIRED: u64 = 500_000;

struct Stack {
    // Dropped in this order: servers before their folder.
    postgres: Postgres,
    redis: Option<Redis>,
    _folder: TempDir,
    key: String,
    program: PathBuf,
}

impl Stack {
    fn start(with_redis: bool) -> Self {
        let report = |line: &str| eprintln!("{line}");
        let servers = Servers::resolve(&Environment::of_this_process().expect("environment"), &report)
            .expect("servers");
        let folder = TempDir::new("order-service-load").expect("a folder");
        let options = PostgresOptions { on_death: Ending::AtOnce, ..PostgresOptions::default() };
        let postgres = Postgres::start(&servers.postgres, folder.path().join("postgres"), options, &report)
            .expect("PostgreSQL");
        let redis = with_redis.then(|| {
            let options = RedisOptions { on_death: Ending::AtOnce, ..RedisOptions::default() };
            Redis::start(&servers.redis, folder.path().join("redis"), options, &report).expect("Redis")
        });
        let program = std::env::current_exe()
            .expect("a path")
            .ancestors()
            .nth(2)
            .expect("target")
            .join("order-service");
        let run = |arguments: &[&str]| {
            let output = Command::new(&program)
                .args(arguments)
                .env("DATABASE_URL", postgres.url())
                .output()
                .expect("it runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        };
        run(&["migrate"]);
        run(&["seed"]);
        let key = run(&["accounts", "create", "load"]);
        Self { postgres, redis, _folder: folder, key, program }
    }

    async fn replica(&self) -> (Process, SocketAddr) {
        let mut command = Command::new(&self.program);
        command
            .arg("serve")
            .env("DATABASE_URL", self.postgres.url())
            .env("REDIS_URL", self.redis.as_ref().map_or("redis://127.0.0.1:1/0".to_owned(), Redis::url))
            .env("BIND", "127.0.0.1:0")
            .env("ADMIN_BIND", "127.0.0.1:0")
            .env("LOG_FORMAT", "json")
            .env("DATABASE_LOCK_TIMEOUT", "10s");
        let process = Process::spawn(command).expect("the service starts");
        let line: Value = serde_json::from_str(&process.line_containing("\"serving\"").await).expect("JSON");
        let api = line["api"].as_str().and_then(|text| text.parse().ok()).expect("an address");
        (process, api)
    }

    async fn client(&self) -> Client {
        let (client, connection) =
            tokio_postgres::connect(&self.postgres.url(), NoTls).await.expect("PostgreSQL");
        tokio::spawn(connection);
        client
    }

    fn order(&self, key: &str) -> Request {
        Request::post("/v1/orders")
            .header("Authorization", format!("Bearer {}", self.key))
            .header("Idempotency-Key", key)
            .json(&json!({ "items": [{ "sku": "TEA-002", "quantity": 1 }] }))
    }
}

/// Fresh orders at a fixed rate, whatever their answers take; returns p50, p99 and the worst, in ms.
async fn fresh_orders(stack: &Stack, apis: &[SocketAddr], name: &str) -> [f64; 3] {
    let began = Instant::now();
    let mut orders = Vec::new();
    for number in 0..RATE * PHASE.as_secs() {
        let due = began + Duration::from_secs_f64(number as f64 / RATE as f64);
        tokio::time::sleep_until(due.into()).await;
        let api = apis[usize::try_from(number).unwrap_or(0) % apis.len()];
        let request = stack.order(&format!("{name}-{number}"));
        orders.push(tokio::spawn(async move {
            let answer = testkit::send(api, &request).await.expect("an answer");
            assert_eq!(answer.status, 201, "{}", answer.text());
            due.elapsed().as_secs_f64() * 1000.0
        }));
    }
    let mut times = Vec::new();
    for order in orders {
        times.push(order.await.expect("an order"));
    }
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    [at(0.5), at(0.99), at(1.0)]
}

/// One client that sends the slow order until it is answered 201.
async fn duplicate(api: SocketAddr, request: Request, requests: Arc<AtomicU64>) -> Vec<u8> {
    let mut connection = Connection::open(api).await.expect("a connection");
    loop {
        requests.fetch_add(1, Ordering::Relaxed);
        let Ok(answer) = connection.exchange(&request).await else {
            connection = Connection::open(api).await.expect("a connection");
            continue;
        };
        match answer.status {
            201 => return answer.body,
            409 | 503 => tokio::time::sleep(RETRY_EVERY).await,
            other => panic!("{other}: {}", answer.text()),
        }
    }
}

async fn storm(how: &str) {
    let stack = Stack::start(how != "redis away");
    let (one, two) = (stack.replica().await, stack.replica().await);
    let apis = [one.1, two.1];
    let client = stack.client().await;
    client
        .batch_execute(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF NEW.idem_key LIKE '%:slow%' THEN PERFORM pg_sleep(2); END IF; RETURN NEW; END $$;
             CREATE TRIGGER slow BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION slow();",
        )
        .await
        .expect("a trigger");
    fresh_orders(&stack, &apis, "warm").await;
    let quiet = fresh_orders(&stack, &apis, "quiet").await;

    let stop = Arc::new(AtomicBool::new(false));
    let watch = tokio::spawn({
        let (watcher, stop) = (stack.client().await, Arc::clone(&stop));
        async move {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'order-service'";
            let mut most = 0_i64;
            while !stop.load(Ordering::Relaxed) {
                most = most.max(watcher.query_one(sql, &[]).await.expect("activity").get(0));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            most
        }
    });
    // Slow orders one after the other, so that the storm lasts as long as the phase.
    let requests = Arc::new(AtomicU64::new(0));
    let storming = async {
        let mut bodies = std::collections::BTreeSet::new();
        for round in 0..3 {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|index| {
                    let mut request = stack.order(&format!("slow-{round}"));
                    if how == "wait" {
                        request = request.header("Prefer", "wait=10");
                    }
                    tokio::spawn(duplicate(apis[index % 2], request, Arc::clone(&requests)))
                })
                .collect();
            for client in clients {
                bodies.insert((round, client.await.expect("a client")));
            }
        }
        bodies.len()
    };
    let (stormy, answers) = tokio::join!(fresh_orders(&stack, &apis, "storm"), storming);
    stop.store(true, Ordering::Relaxed);
    let orders: i64 = client
        .query_one("SELECT count(*) FROM orders WHERE idem_key LIKE '%:slow%'", &[])
        .await
        .expect("orders")
        .get(0);
    println!(
        "storm ({how}): fresh orders p50/p99/max {:.1}/{:.1}/{:.1} ms without, {:.1}/{:.1}/{:.1} ms with; {} duplicates sent, \
         {answers} different answers and {orders} orders for 3 keys; {} connections at most, pools 2 × 16",
        quiet[0],
        quiet[1],
        quiet[2],
        stormy[0],
        stormy[1],
        stormy[2],
        requests.load(Ordering::Relaxed),
        watch.await.expect("it")
    );
}

async fn reaper() {
    let stack = Stack::start(true);
    let (_process, api) = stack.replica().await;
    let client = stack.client().await;
    fresh_orders(&stack, &[api], "warm").await;
    for cycle in 0..2 {
        let quiet = fresh_orders(&stack, &[api], &format!("quiet-{cycle}")).await;
        let rows = format!(
            "INSERT INTO idempotency_records (account_id, key, request_path, request_hash, fingerprint_version, request_id, status,
                 response_code, response_headers, response_body, result_expires_at, key_expires_at)
             SELECT 1000, gen_random_uuid()::text, '/v1/orders', sha256('x'), 1, gen_random_uuid(), 'COMPLETED', 201,
                    ARRAY['location', '/v1/orders/x'], repeat('x', 260)::bytea, now() - interval '2 days', now() - interval '1 day'
               FROM generate_series(1, {EXPIRED})"
        );
        client.batch_execute(&rows).await.expect("rows");
        let reaped = fresh_orders(&stack, &[api], &format!("reaped-{cycle}")).await;
        let left = "SELECT count(*) FROM idempotency_records WHERE account_id = 1000";
        let during: i64 = client.query_one(left, &[]).await.expect("rows").get(0);
        let began = Instant::now();
        while client.query_one(left, &[]).await.expect("rows").get::<_, i64>(0) > 0 {
            assert!(began.elapsed() < Duration::from_secs(300), "the reaper does not come to an end");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        println!(
            "reaper, cycle {cycle}: orders p50/p99/max {:.1}/{:.1}/{:.1} ms without, {:.1}/{:.1}/{:.1} ms while {} of {EXPIRED} \
             rows went; all gone {:.0} s later",
            quiet[0],
            quiet[1],
            quiet[2],
            reaped[0],
            reaped[1],
            reaped[2],
            EXPIRED - u64::try_from(during).unwrap_or(0),
            began.elapsed().as_secs_f64()
        );
        client.batch_execute("VACUUM idempotency_records").await.expect("vacuumed");
    }
}

#[tokio::main]
async fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("storm") => {
            for how in ["reject", "wait", "redis away"] {
                storm(how).await;
            }
        }
        Some("reaper") => reaper().await,
        _ => eprintln!("load storm | load reaper"),
    }
}
