//! Redis in every kind of trouble: the order is made by PostgreSQL alone, nobody is told 409 for it, and the fast path is
//! used again once it can be.

use std::time::Duration;

use testkit::{Door, Response, until};

use crate::harness::database::Effects;
use crate::harness::{App, World};

const BOUND: Duration = Duration::from_secs(20);

/// The value of the counter of calls that Redis did not do.
async fn faults(app: &App, class: &str) -> u64 {
    let text = app.get_admin("/metrics").await.text();
    let name = format!("idempotency_gate_faults_total{{class=\"{class}\"}}");
    let line = text.lines().find(|line| line.starts_with(&name)).unwrap_or_default().to_owned();
    line.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// One order and its replay, both by PostgreSQL.
async fn ordered_without_redis(app: &App, key: &str) -> Response {
    let first = app.order(key, 2).await;
    assert_eq!(first.status, 201, "{key}: {}", first.text());
    let again = app.order(key, 2).await;
    assert_eq!((again.status, &again.body), (201, &first.body), "{key}");
    assert_eq!(again.header("x-cache-lookup"), Some("MISS"), "{key}");
    assert_eq!(app.order(key, 3).await.status, 422, "{key}");
    assert_eq!(app.effects(key).await, Effects::ONCE, "{key}");
    first
}

/// The fast path is used again, without a restart.
async fn fast_again(app: &App, key: &str) {
    until("a replay from Redis", BOUND, || async {
        app.order(key, 2).await.header("x-cache-lookup") == Some("HIT")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn out_of_memory() {
    let app = App::builder(World::Up).start().await;
    let after = app.after();
    let _: () = app.redis(&["CONFIG", "SET", "maxmemory", "1"]).await;
    ordered_without_redis(&app, "K").await;
    assert!(faults(&app, "oom").await > 0, "the class of the error is in the metrics");
    let _: () = app.redis(&["CONFIG", "SET", "maxmemory", "0"]).await;
    fast_again(&app, "K").await;
    after.check().await;
}

/// Memory runs out between acquire and settle: the settle that fails takes its own lease away.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn out_of_memory_at_the_settle() {
    let app = App::builder(World::Up).env("DATABASE_LOCK_TIMEOUT", "10s").start().await;
    let frozen = app.freeze().await;
    let first = app.order_in_background("K", 2);
    app.waiting_for_lock(1).await;
    let _: () = app.redis(&["CONFIG", "SET", "maxmemory", "1"]).await;
    frozen.thaw().await;
    assert_eq!(first.await.expect("an answer").status, 201);
    let again = app.order("K", 2).await;
    assert_eq!((again.status, again.header("x-cache-lookup")), (201, Some("MISS")), "{}", again.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_password_that_is_not_known() {
    let app = App::builder(World::Up).start().await;
    let _: () = app.redis(&["CONFIG", "SET", "requirepass", "changed"]).await;
    let address = format!("redis://:changed@{}", app.redis_address);
    let client = deadpool_redis::redis::Client::open(address).expect("a URL");
    let mut connection = client.get_multiplexed_async_connection().await.expect("Redis");
    let mut run = deadpool_redis::redis::cmd("CLIENT");
    let _: i64 = run
        .arg("KILL")
        .arg("TYPE")
        .arg("normal")
        .arg("SKIPME")
        .arg("yes")
        .query_async(&mut connection)
        .await
        .expect("killed");
    ordered_without_redis(&app, "K").await;
    assert!(faults(&app, "noauth").await > 0);
    let mut forget = deadpool_redis::redis::cmd("CONFIG");
    let _: () =
        forget.arg("SET").arg("requirepass").arg("").query_async(&mut connection).await.expect("no password");
    fast_again(&app, "K").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_read_only_replica() {
    let app = App::builder(World::Up).start().await;
    let _: () = app.redis(&["REPLICAOF", "127.0.0.1", "1"]).await;
    ordered_without_redis(&app, "K").await;
    let _: () = app.redis(&["REPLICAOF", "NO", "ONE"]).await;
    fast_again(&app, "K").await;
}

/// A name that is taken by another structure, or by a value that this build cannot read, costs its own key the fast path
/// and nobody else's; it is left as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_name_that_is_taken() {
    let app = App::builder(World::Up).start().await;
    // A first answer makes the account known and the connections warm.
    assert_eq!(app.order("warm", 1).await.status, 201);
    let hash = app.redis_name("hash").await;
    let _: i64 = app.redis(&["HSET", &hash, "field", "value"]).await;
    let newer = app.redis_name("newer").await;
    let value = format!("\u{3}R{}", "x".repeat(90));
    let _: () = app.redis(&["SET", &newer, &value, "EX", "100"]).await;
    let garbage = app.redis_name("garbage").await;
    let _: () = app.redis(&["SET", &garbage, "{}", "EX", "100"]).await;
    for key in ["hash", "newer", "garbage"] {
        ordered_without_redis(&app, key).await;
        assert_eq!(app.order("fine", 2).await.status, 201);
        assert_eq!(app.order("fine", 2).await.header("x-cache-lookup"), Some("HIT"), "beside {key}");
    }
    assert_eq!(app.redis::<String>(&["GET", &newer]).await, value);
    assert_eq!(app.redis::<String>(&["GET", &garbage]).await, "{}");
    assert_eq!(app.redis::<String>(&["TYPE", &hash]).await, "hash");
    assert!(faults(&app, "wrongtype").await > 0);
}

/// A value under the right name that says that it is another account's is never replayed.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_value_of_another_account() {
    let app = App::builder(World::Up).start().await;
    let first = app.order("K", 2).await;
    assert_eq!(first.status, 201);
    let other = app
        .db
        .query_one("SELECT id FROM accounts WHERE name = 'other'", &[])
        .await
        .expect("it")
        .get::<_, i64>(0);
    let (mine, theirs) = (app.redis_name("K").await, format!("idem:v1:{other}:K"));
    let _: i64 = app.redis(&["COPY", &mine, &theirs]).await;
    let request = testkit::Request::post("/v1/orders")
        .header("Authorization", format!("Bearer {}", app.other_api_key))
        .header("Idempotency-Key", "K")
        .json(&crate::harness::order(2));
    let answer = app.send(&request).await;
    assert_eq!((answer.status, answer.header("idempotent-replayed")), (201, None), "{}", answer.text());
    assert_ne!(answer.json()["id"], first.json()["id"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn scripts_that_were_flushed_are_loaded_again() {
    let app = App::builder(World::Up).start().await;
    assert_eq!(app.order("K", 2).await.status, 201);
    for _ in 0..3 {
        let _: () = app.redis(&["SCRIPT", "FLUSH"]).await;
        assert_eq!(app.order("K", 2).await.header("x-cache-lookup"), Some("HIT"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn killed_and_started_again_and_again() {
    let mut app = App::builder(World::Up).start().await;
    let after = app.after();
    for round in 0..3 {
        app.redis.as_mut().expect("Redis").kill().expect("killed");
        ordered_without_redis(&app, &format!("K{round}")).await;
        app.redis.as_mut().expect("Redis").restart().expect("restarted");
        fast_again(&app, &format!("K{round}")).await;
    }
    for round in 0..3 {
        assert_eq!(app.effects(&format!("K{round}")).await, Effects::ONCE);
    }
    after.check().await;
}

/// Redis stands still: requests are answered within its time-out, and what it executes late does not stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_acquire_that_is_executed_late_does_not_stay() {
    let app = App::builder(World::Up).start().await;
    let after = app.after();
    assert_eq!(app.order("warm", 1).await.status, 201);
    let redis = app.redis.as_ref().expect("Redis");
    redis.pause();
    // A refusal that is not stored (the body fails at PostgreSQL) must leave the key free; a success must be replayed.
    app.db
        .batch_execute("ALTER TABLE orders ADD CONSTRAINT t CHECK (note IS DISTINCT FROM 'no') NOT VALID")
        .await
        .expect("it");
    let mut refused = crate::harness::order(2);
    refused["note"] = "no".into();
    let failed = app.post("/v1/orders", "failed", &refused).await;
    assert_eq!(failed.status, 500, "{}", failed.text());
    let first = app.order("K", 2).await;
    assert_eq!(first.status, 201, "{}", first.text());
    redis.resume();
    app.db.batch_execute("ALTER TABLE orders DROP CONSTRAINT t").await.expect("it");
    // Far below the lease of 10 s.
    let soon = Duration::from_secs(4);
    until("the late acquires are undone", soon, || async {
        let replayed = app.order("K", 2).await;
        let repaired = app.post("/v1/orders", "failed", &refused).await;
        (replayed.status, repaired.status) == (201, 201)
    })
    .await;
    assert_eq!(app.order("K", 2).await.body, first.body);
    assert_eq!(app.effects("K").await, Effects::ONCE);
    assert_eq!(app.effects("failed").await, Effects::ONCE);
    after.check().await;
}

/// Writes are held back for a second, as during a fail-over; the acquire is executed when they go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn writes_that_are_paused() {
    let app = App::builder(World::Up).start().await;
    assert_eq!(app.order("warm", 1).await.status, 201);
    let _: () = app.redis(&["CLIENT", "PAUSE", "1000", "WRITE"]).await;
    let first = app.order("K", 2).await;
    assert_eq!(first.status, 201, "{}", first.text());
    assert_eq!(app.settle("K", 2).await.body, first.body);
    fast_again(&app, "K").await;
    assert_eq!(app.effects("K").await, Effects::ONCE);
}

/// Nobody answers at Redis's address, from the start.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_address_that_never_answers() {
    let app = App::builder(World::Up).redis_proxy().start().await;
    let proxy = app.redis_proxy.as_ref().expect("a proxy");
    proxy.door(Door::BlackHole).await;
    proxy.cut_all().await;
    let fresh = app.new_replica().await;
    let request = app.request("/v1/orders", "K", &crate::harness::order(2));
    let first = testkit::send(fresh.api, &request).await.expect("an answer");
    assert_eq!(first.status, 201, "{}", first.text());
    assert_eq!(app.effects("K").await, Effects::ONCE);
    proxy.up().await;
    until("a replay from Redis", BOUND, || async {
        testkit::send(fresh.api, &request).await.expect("an answer").header("x-cache-lookup") == Some("HIT")
    })
    .await;
}

/// Redis speaks of a database that has been restarted since: its values are misses, PostgreSQL decides, Redis is refilled.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn values_of_another_generation_are_misses() {
    let mut app = App::builder(World::Up).own_postgres().start().await;
    let first = app.order("K", 2).await;
    assert_eq!(first.status, 201);
    assert_eq!(app.order("K", 2).await.header("x-cache-lookup"), Some("HIT"));
    let name = app.redis_name("K").await;
    let before: Vec<u8> = app.redis(&["GET", &name]).await;
    app.postgres.as_mut().expect("PostgreSQL").restart().expect("restarted");
    // Any new connection tells the process; the first key that needs one is enough.
    until("a new order on the restarted server", BOUND, || async {
        app.order("other", 1).await.status == 201
    })
    .await;
    let again = app.order("K", 2).await;
    assert_eq!((again.status, &again.body, again.header("x-cache-lookup")), (201, &first.body, Some("MISS")));
    assert_eq!(app.order("K", 2).await.header("x-cache-lookup"), Some("HIT"));
    let refilled: Vec<u8> = app.redis(&["GET", &name]).await;
    assert_ne!(before[2..10], refilled[2..10], "the generation");
    // The sum at the end is also of the generation.
    let end = before.len() - 8;
    assert_eq!(
        before[51..end],
        refilled[51..end],
        "expiry and reply are the record's: a refill prolongs nothing"
    );
}

/// The database behind the keys is another one (restored, or pointed to by mistake): its orders are made, not replayed.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn redis_never_speaks_for_another_database() {
    let one = App::builder(World::Up).start().await;
    let first = one.order("K", 2).await;
    assert_eq!(first.status, 201);
    let two = App::builder(World::Up).start().await;
    let redis = format!("redis://{}/0", one.redis_address);
    let replica = two.new_replica_with(&[("REDIS_URL", &redis)]).await;
    let request = two.request("/v1/orders", "K", &crate::harness::order(2));
    let answer = testkit::send(replica.api, &request).await.expect("an answer");
    assert_eq!((answer.status, answer.header("idempotent-replayed")), (201, None));
    assert_ne!(answer.json()["id"], first.json()["id"]);
    assert_eq!(two.effects("K").await, Effects::ONCE);
}
