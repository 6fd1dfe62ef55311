//! The service as a process, with its own database and its own Redis.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deadpool_redis::redis;
use devstack::Redis;
use serde_json::{Value, json};
use testkit::{Connection, PgProxy, Process, RedisProxy, Request, Response, Rule, Signal, until};
use tokio_postgres::Client;

use super::database::{self, Effects, Frozen};
use super::stack::{PROGRAM, Stack};
use super::world::{self, World};

/// How long a case waits for what must come.
const BOUND: Duration = Duration::from_secs(20);

/// How an app is set up.
pub struct Builder {
    world: World,
    env: Vec<(String, String)>,
    pg_proxy: bool,
    redis_proxy: bool,
    own_postgres: Option<Vec<(String, String)>>,
}

impl Builder {
    /// One more setting of the service.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Puts a proxy between the service and PostgreSQL.
    pub fn pg_proxy(mut self) -> Self {
        self.pg_proxy = true;
        self
    }

    /// Puts a proxy between the service and Redis, also in the world `Up`.
    pub fn redis_proxy(mut self) -> Self {
        self.redis_proxy = true;
        self
    }

    /// Gives the case a PostgreSQL of its own, which it may restart or reconfigure.
    pub fn own_postgres(mut self) -> Self {
        self.own_postgres = Some(Vec::new());
        self
    }

    /// Starts it, and waits until it answers.
    pub async fn start(self) -> App {
        let stack = tokio::task::spawn_blocking(Stack::get).await.expect("the stack");
        let own_settings = self.own_postgres.clone();
        let (database_url, postgres, api_key, other_api_key) = match own_settings {
            None => {
                let url = tokio::task::spawn_blocking(|| stack.new_database()).await.expect("a database");
                (url, None, stack.api_key.clone(), stack.other_api_key.clone())
            }
            Some(settings) => {
                let start = move || {
                    let settings: Vec<_> = settings.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
                    stack.new_postgres(&settings)
                };
                let (postgres, key, other) = tokio::task::spawn_blocking(start).await.expect("PostgreSQL");
                (postgres.url(), Some(postgres), key, other)
            }
        };
        let (redis, redis_address) = if self.world == World::Absent {
            (None, closed_port().await)
        } else {
            let redis = tokio::task::spawn_blocking(|| stack.new_redis(&[])).await.expect("Redis");
            let address = loopback(redis.port());
            (Some(redis), address)
        };
        let redis_proxy = if self.world.is_dying() || self.redis_proxy {
            Some(RedisProxy::start(redis_address).await.expect("a proxy"))
        } else {
            None
        };
        let pg_proxy = if self.pg_proxy {
            Some(PgProxy::start(loopback(port_of(&database_url))).await.expect("a proxy"))
        } else {
            None
        };
        let service_redis = redis_proxy.as_ref().map_or(redis_address, RedisProxy::addr);
        let service_database = match &pg_proxy {
            Some(proxy) => database_url
                .replace(&format!(":{}/", port_of(&database_url)), &format!(":{}/", proxy.addr().port())),
            None => database_url.clone(),
        };
        let mut app = App {
            world: self.world,
            env: self.env,
            service_database,
            service_redis: format!("redis://{service_redis}/0"),
            db: Arc::new(database::connect(&database_url).await),
            database_url,
            postgres,
            redis,
            redis_address,
            redis_proxy,
            pg_proxy,
            api_key,
            other_api_key,
            replica: None,
            strike: Mutex::new(None),
        };
        app.replica = Some(app.new_replica().await);
        app.strike();
        app
    }
}

/// One process of the service.
pub struct Replica {
    pub process: Process,
    pub api: SocketAddr,
    pub admin: SocketAddr,
}

/// A service with its stores, and the test's own ways into them.
pub struct App {
    pub world: World,
    /// The test's session.
    pub db: Arc<Client>,
    /// PostgreSQL, not through the proxy.
    pub database_url: String,
    pub postgres: Option<devstack::Postgres>,
    pub redis: Option<Redis>,
    pub redis_address: SocketAddr,
    pub redis_proxy: Option<RedisProxy>,
    pub pg_proxy: Option<PgProxy>,
    pub api_key: String,
    pub other_api_key: String,
    env: Vec<(String, String)>,
    service_database: String,
    service_redis: String,
    replica: Option<Replica>,
    strike: Mutex<Option<Rule>>,
}

/// A minimal order.
pub fn order(quantity: u32) -> Value {
    json!({ "items": [{ "sku": "TEA-001", "quantity": quantity }] })
}

impl App {
    pub fn builder(world: World) -> Builder {
        Builder { world, env: Vec::new(), pg_proxy: false, redis_proxy: false, own_postgres: None }
    }

    /// Starts one more process on the same stores.
    pub async fn new_replica(&self) -> Replica {
        self.new_replica_with(&[]).await
    }

    /// Starts one more process on the same stores, with further settings.
    pub async fn new_replica_with(&self, env: &[(&str, &str)]) -> Replica {
        let mut command = std::process::Command::new(PROGRAM);
        command
            .arg("serve")
            .env("DATABASE_URL", &self.service_database)
            .env("REDIS_URL", &self.service_redis)
            .env("BIND", "127.0.0.1:0")
            .env("ADMIN_BIND", "127.0.0.1:0")
            .env("LOG_FORMAT", "json")
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .envs(env.iter().copied());
        let process = Process::spawn(command).expect("the service starts");
        let line = process.line_containing("\"serving\"").await;
        let said: Value = serde_json::from_str(&line).expect("a JSON log line");
        let address =
            |name: &str| said[name].as_str().and_then(|text| text.parse().ok()).expect("an address");
        Replica { api: address("api"), admin: address("admin"), process }
    }

    pub fn replica(&self) -> &Replica {
        self.replica.as_ref().expect("the service is running")
    }

    pub fn replica_mut(&mut self) -> &mut Replica {
        self.replica.as_mut().expect("the service is running")
    }

    /// SIGKILL, awaited.
    pub async fn kill(&mut self) {
        let mut replica = self.replica.take().expect("the service is running");
        replica.process.signal(Signal::Kill).await.expect("SIGKILL");
        replica.process.wait_exit(BOUND).await;
    }

    /// A new process in place of one that has ended.
    pub async fn restart(&mut self) {
        self.replica = Some(self.new_replica().await);
    }

    /// Arms the world's cut until the next answer (of [`App::send`]).
    pub fn strike(&self) {
        let armed =
            self.redis_proxy.as_ref().and_then(|proxy| world::strike(self.world, proxy, self.redis_address));
        *self.strike.lock().expect("no panic holds it") = armed;
    }

    /// Lets Redis work again.
    pub fn heal(&self) {
        // A flush is over by itself, and releasing it early would only let the reply pass before.
        if let Some(rule) = self.strike.lock().expect("no panic holds it").take()
            && self.world != World::FlushedWhileRunning
        {
            rule.release();
        }
    }

    /// A POST with everything that it needs.
    pub fn request(&self, path: &str, key: &str, body: &Value) -> Request {
        Request::post(path)
            .header("Authorization", format!("Bearer {}", self.api_key))
            .header("Idempotency-Key", key)
            .json(body)
    }

    pub async fn send(&self, request: &Request) -> Response {
        let answer = testkit::send(self.replica().api, request).await.expect("an answer");
        self.heal();
        answer
    }

    pub async fn post(&self, path: &str, key: &str, body: &Value) -> Response {
        self.send(&self.request(path, key, body)).await
    }

    /// `POST /v1/orders`.
    pub async fn order(&self, key: &str, quantity: u32) -> Response {
        self.post("/v1/orders", key, &order(quantity)).await
    }

    /// `POST /v1/orders` in a task of its own.
    pub fn order_in_background(&self, key: &str, quantity: u32) -> tokio::task::JoinHandle<Response> {
        let (api, request) = (self.replica().api, self.request("/v1/orders", key, &order(quantity)));
        tokio::spawn(async move { testkit::send(api, &request).await.expect("an answer") })
    }

    /// A connection on which only the request has been sent.
    pub async fn begin_order(&self, key: &str, quantity: u32) -> Connection {
        let mut connection = Connection::open(self.replica().api).await.expect("a connection");
        connection.send(&self.request("/v1/orders", key, &order(quantity))).await.expect("sent");
        connection
    }

    pub async fn get(&self, path: &str) -> Response {
        self.send(&Request::get(path).header("Authorization", format!("Bearer {}", self.api_key))).await
    }

    pub async fn get_admin(&self, path: &str) -> Response {
        testkit::send(self.replica().admin, &Request::get(path)).await.expect("an answer")
    }

    /// Sends the same order until it is answered with success, and returns that answer.
    pub async fn settle(&self, key: &str, quantity: u32) -> Response {
        until("the order is settled by plain retries", BOUND, || async {
            let answer = self.order(key, quantity).await;
            (answer.status == 201).then_some(answer)
        })
        .await
    }

    pub async fn effects(&self, key: &str) -> Effects {
        database::effects(&self.db, key).await
    }

    pub async fn freeze(&self) -> Frozen {
        database::freeze(&self.database_url).await
    }

    /// Ends every session of the service in this database.
    pub async fn terminate_sessions(&self) {
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE datname = current_database() AND application_name = 'order-service'";
        self.db.query_one(sql, &[]).await.expect("terminated");
    }

    /// Waits until as many sessions of the service wait for a lock.
    pub async fn waiting_for_lock(&self, sessions: i64) {
        until("sessions wait for a lock", BOUND, || async {
            database::waiting_for_lock(&self.db).await >= sessions
        })
        .await;
    }

    /// The account's number of `demo`.
    pub async fn account(&self) -> i64 {
        self.db
            .query_one("SELECT id FROM accounts WHERE name = 'demo'", &[])
            .await
            .expect("the account")
            .get(0)
    }

    /// The name of a key in Redis.
    pub async fn redis_name(&self, key: &str) -> String {
        format!("idem:v1:{}:{key}", self.account().await)
    }

    /// Runs a command in this test's Redis, not through the proxy.
    pub async fn redis<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        redis_command(self.redis_address, words).await.expect("Redis answers")
    }

    /// Puts bytes under a name in this test's Redis, for a minute.
    pub async fn redis_set(&self, name: &str, value: &[u8]) {
        let client = redis::Client::open(format!("redis://{}", self.redis_address)).expect("an address");
        let mut connection = client.get_multiplexed_async_connection().await.expect("Redis");
        let mut set = redis::cmd("SET");
        let _: () =
            set.arg(name).arg(value).arg("PX").arg(60_000).query_async(&mut connection).await.expect("SET");
    }

    /// The checks that hold after every case.
    pub fn after(&self) -> After {
        let redis = self.redis.as_ref().map(|_| self.redis_address);
        After { db: Arc::clone(&self.db), redis }
    }
}

/// Runs one command on a connection of its own.
pub async fn redis_command<T: redis::FromRedisValue>(
    address: SocketAddr,
    words: &[&str],
) -> redis::RedisResult<T> {
    let client = redis::Client::open(format!("redis://{address}"))?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(*word);
    }
    command.query_async(&mut connection).await
}

/// What must hold when a case is over, whatever it did.
pub struct After {
    db: Arc<Client>,
    redis: Option<SocketAddr>,
}

impl After {
    pub async fn check(self) {
        // A server that the case took away cannot be asked, and cannot hold anything either.
        if let Some(address) = self.redis
            && let Ok(names) = redis_command::<Vec<String>>(address, &["KEYS", "idem:*"]).await
        {
            for name in names {
                let left: i64 = redis_command(address, &["PTTL", &name]).await.expect("PTTL");
                assert_ne!(left, -1, "{name} has no expiry");
            }
        }
        if self.db.is_closed() {
            return;
        }
        until("no session sits in a transaction", BOUND, || async {
            database::idle_in_transaction(&self.db).await == 0
        })
        .await;
        let row = self
            .db
            .query_one(
                "SELECT (SELECT count(*) FROM (SELECT idem_key FROM orders GROUP BY idem_key HAVING count(*) > 1) AS twice),
                        (SELECT count(*) FROM orders LEFT JOIN events ON type = 'order.created' AND data->>'id' = orders.id::text
                          WHERE events.id IS NULL AND orders.note IS DISTINCT FROM 'planted'),
                        (SELECT count(*) FROM events LEFT JOIN orders ON data->>'id' = orders.id::text
                          WHERE type = 'order.created' AND orders.id IS NULL)",
                &[],
            )
            .await
            .expect("the invariants");
        let counts: [i64; 3] = [row.get(0), row.get(1), row.get(2)];
        assert_eq!(counts, [0, 0, 0], "keys with two orders, orders without event, events without order");
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn port_of(url: &str) -> u16 {
    let after_host = url.rsplit_once(':').expect("a URL with a port").1;
    after_host.split('/').next().and_then(|port| port.parse().ok()).expect("a port")
}

/// A port at which nobody listens.
async fn closed_port() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    listener.local_addr().expect("an address")
}
