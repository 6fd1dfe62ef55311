//! `order-service doctor`: what is set up well passes, and each fault of a store is named.

use serde_json::Value;

use crate::cli::{Ended, program, run};
use crate::harness::{App, Stack, World};

async fn doctor(database_url: &str, redis: std::net::SocketAddr, arguments: &[&str]) -> Ended {
    let mut command = program(&[&["doctor"], arguments].concat());
    command.env("DATABASE_URL", database_url).env("REDIS_URL", format!("redis://{redis}/0"));
    run(command).await
}

/// What it says of one check.
async fn state(app: &App, name: &str) -> String {
    let ended = doctor(&app.database_url, app.redis_address, &["--json"]).await;
    let said: Value = serde_json::from_str(&ended.out).expect("JSON");
    let check = said["checks"].as_array().expect("a list").iter().find(|check| check["name"] == name);
    check.expect("the check")["state"].as_str().expect("a text").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_set_up_well_passes() {
    let app = App::builder(World::Up).start().await;
    assert_eq!(app.order("a", 2).await.status, 201);
    let admin = app.replica().admin.to_string();
    // The tests' server is shared by many processes with a pool each.
    let arguments = ["--admin-bind", &admin, "--database-pool", "1"];
    let said = doctor(&app.database_url, app.redis_address, &arguments).await.succeeded();
    assert_eq!(said.lines().count(), 18, "{said}");
    assert!(said.lines().all(|line| line.starts_with("ok      ")), "{said}");
    assert!(said.contains("99 of 100 handlers took at most"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn each_fault_of_redis_is_named() {
    let app = App::builder(World::Up).start().await;
    for (name, fault, remedy) in [
        ("redis-memory-policy", &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"], "noeviction"),
        ("redis-persistence", &["CONFIG", "SET", "appendonly", "no"], "yes"),
    ] {
        assert_eq!(state(&app, name).await, "ok");
        let _: () = app.redis(fault).await;
        assert_eq!(state(&app, name).await, "failed");
        let _: () = app.redis(&[fault[0], fault[1], fault[2], remedy]).await;
    }
    let name = app.redis_name("K").await;
    assert_eq!(state(&app, "redis-key-types").await, "ok");
    let _: i64 = app.redis(&["HSET", &name, "field", "value"]).await;
    assert_eq!(state(&app, "redis-key-types").await, "failed");
    let _: () = app.redis(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert_eq!(state(&app, "redis-scripts").await, "failed");
    let _: () = app.redis(&["CONFIG", "SET", "maxmemory", "0"]).await;
    let _: () = app.redis(&["REPLICAOF", "127.0.0.1", "1"]).await;
    assert_eq!(state(&app, "redis-replication").await, "failed");
    let ended = doctor(&app.database_url, app.redis_address, &[]).await;
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.err.starts_with("error: ") && ended.err.trim_end().ends_with("checks failed"),
        "{}",
        ended.err
    );
    let failed: Vec<&str> = ended.out.lines().filter(|line| line.starts_with("failed")).collect();
    assert!(failed.iter().any(|line| line.contains("redis-key-types") && line.contains(&name)), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn each_fault_of_postgresql_is_named() {
    let app = App::builder(World::Up).start().await;
    assert_eq!(state(&app, "postgresql-orders-idem-key").await, "ok");
    for spoil in [
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'orders_idem_key'::regclass",
        "DROP INDEX orders_idem_key; CREATE INDEX orders_idem_key ON orders (idem_key)",
        "DROP INDEX orders_idem_key; CREATE UNIQUE INDEX orders_idem_key ON orders (id)",
        "DROP INDEX orders_idem_key",
    ] {
        app.db.batch_execute(spoil).await.expect("SQL");
        assert_eq!(state(&app, "postgresql-orders-idem-key").await, "failed", "{spoil}");
    }
    app.db.batch_execute("DELETE FROM refinery_schema_history WHERE version > 5").await.expect("SQL");
    assert_eq!(state(&app, "postgresql-migrations").await, "failed");
    for (name, setting) in [
        ("postgresql-commit", "synchronous_commit = off"),
        ("postgresql-primary", "default_transaction_read_only = on"),
    ] {
        assert_eq!(state(&app, name).await, "ok");
        let row = app.db.query_one("SELECT quote_ident(current_database())", &[]).await.expect("a name");
        let sql = format!("ALTER DATABASE {} SET {setting}", row.get::<_, &str>(0));
        app.db.batch_execute(&sql).await.expect("SQL");
        assert_eq!(state(&app, name).await, "failed");
    }
    let many = ["--replicas", "1000", "--json"];
    let said = doctor(&app.database_url, app.redis_address, &many).await.out;
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let of = |name: &str| {
        said["checks"].as_array().expect("a list").iter().find(|check| check["name"] == name).cloned()
    };
    assert_eq!(of("postgresql-connections").expect("the check")["state"], "failed");
}

/// Nothing is migrated, nobody listens: each is one line, and what cannot be asked is a fault, without the password.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn stores_that_are_not_there_are_told() {
    let url = tokio::task::spawn_blocking(|| Stack::get().empty_database()).await.expect("a database");
    let nobody = "127.0.0.1:1".parse().expect("an address");
    let ended = doctor(&url, nobody, &[]).await;
    assert_eq!(ended.code, Some(1));
    for (name, word) in
        [("postgresql-migrations", "migrate"), ("postgresql-orders-idem-key", "missing"), ("redis ", "")]
    {
        let line = ended.out.lines().find(|line| line.starts_with("failed") && line.contains(name));
        assert!(line.is_some_and(|line| line.contains(word)), "{name}: {}", ended.out);
    }
    let lease = ended.out.lines().find(|line| line.contains(" lease ")).expect("a line");
    assert!(lease.starts_with("skipped") || lease.starts_with("ok"), "{lease}");
    let ended = doctor("postgres://somebody:sesame@127.0.0.1:1/shop", nobody, &[]).await;
    assert!(ended.out.starts_with("failed  postgresql ") && !ended.out.contains("sesame"), "{}", ended.out);
}
