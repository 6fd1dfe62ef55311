//! Spent answers and forgotten keys are taken away in the background; nobody is told anything else for it.

use std::time::Duration;

use testkit::until;

use crate::harness::database::Effects;
use crate::harness::{App, World, redis_command};

const BOUND: Duration = Duration::from_secs(20);

async fn count(app: &App, condition: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM idempotency_records WHERE {condition}");
    app.db.query_one(&sql, &[]).await.expect("the records").get(0)
}

/// Thousands of rows of each kind: what is due goes, batch after batch, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_due_goes_and_nothing_else() {
    let app = App::builder(World::Absent).start().await;
    let second = app.new_replica().await;
    assert_eq!(app.order("live", 1).await.status, 201);
    let rows = "INSERT INTO idempotency_records (account_id, key, request_path, request_hash, fingerprint_version, request_id,
                    status, response_code, response_headers, response_body, result_expires_at, key_expires_at)
                SELECT 1, kind || n, '/', sha256('x'), 1, gen_random_uuid(), status, code, headers, body,
                       now() + result, now() + key + n * interval '1 millisecond'
                  FROM generate_series(1, 1700) AS n, (VALUES
                    ('forgotten-', 'COMPLETED', 201::smallint, '{location,/x}'::text[], 'body'::bytea, interval '-40 days', interval '-10 days'),
                    ('spent-', 'FAILED', 422::smallint, '{location,/x}', 'body', interval '-1 day', interval '28 days'),
                    ('kept-', 'COMPLETED', 201::smallint, '{location,/x}', 'body', interval '1 hour', interval '29 days 1 hour')
                  ) AS kinds (kind, status, code, headers, body, result, key)";
    app.db.batch_execute(rows).await.expect("rows");
    let running = "INSERT INTO idempotency_records (account_id, key, request_path, request_hash, fingerprint_version, request_id, status,
                       command, request_body, lease_token, lease_expires_at, attempts, updated_at)
                   VALUES (1, 'running', '/', sha256('x'), 1, gen_random_uuid(), 'IN_PROGRESS',
                       'of another build', '{}', gen_random_uuid(), now() - interval '90 days', 1, now() - interval '90 days')";
    app.db.batch_execute(running).await.expect("a row");
    until("forgotten keys are gone", BOUND, || async { count(&app, "key LIKE 'forgotten-%'").await == 0 })
        .await;
    until("spent bodies are gone", BOUND, || async {
        count(&app, "key LIKE 'spent-%' AND response_body IS NOT NULL").await == 0
    })
    .await;
    assert_eq!(
        count(&app, "key LIKE 'spent-%' AND response_headers IS NOT NULL").await,
        1700,
        "what is left says where"
    );
    assert_eq!(count(&app, "key LIKE 'kept-%' AND response_body IS NOT NULL").await, 1700);
    assert_eq!(count(&app, "key IN ('running', 'live')").await, 2);
    let reaped = |text: String| -> f64 {
        let lines = text.lines().filter(|line| line.starts_with("idempotency_reaped_total{kind=\"keys\"}"));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    // A batch is counted once its COMMIT was answered: its rows are gone a moment before.
    until("each is counted, once over both replicas", BOUND, || async {
        let mut total = 0.0;
        for admin in [app.replica().admin, second.admin] {
            let metrics = testkit::send(admin, &testkit::Request::get("/metrics")).await;
            total += reaped(metrics.expect("metrics").text());
        }
        assert!(total < 1700.5, "counted twice: {total}");
        total > 1699.5
    })
    .await;
    assert_eq!(app.order("live", 1).await.header("idempotent-replayed"), Some("true"));
}

/// Old statistics (a vacuum made the table look empty, then it was filled again) do not make each batch collect everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_batch_walks_the_index_whatever_statistics_say() {
    const ROWS: i64 = 6000;
    let app = App::builder(World::Absent).start().await;
    app.db
        .batch_execute("ALTER TABLE idempotency_records SET (autovacuum_enabled = off)")
        .await
        .expect("altered");
    let fill = async |account: i64, rows: i64, expires: &str| {
        let sql = format!(
            "INSERT INTO idempotency_records (account_id, key, request_path, request_hash, fingerprint_version, request_id, status,
                 response_code, response_headers, response_body, result_expires_at, key_expires_at)
             SELECT {account}, n::text, '/', sha256('x'), 1, gen_random_uuid(), 'COMPLETED', 201, '{{}}', repeat('x', 260)::bytea,
                    now() - interval '9 days', now() + interval '{expires}' FROM generate_series(1, {rows}) AS n"
        );
        app.db.batch_execute(&sql).await.expect("rows");
    };
    // The reaper takes this lock for a batch; held here, it waits until the stage is set.
    app.db.batch_execute("SELECT pg_advisory_lock(x'726561706572'::bigint)").await.expect("locked");
    fill(1000, ROWS, "-1 day").await;
    fill(1001, 100, "30 days").await;
    for sql in
        ["ANALYZE", "DELETE FROM idempotency_records WHERE account_id = 1000", "VACUUM idempotency_records"]
    {
        app.db.batch_execute(sql).await.expect("emptied");
    }
    fill(1000, ROWS, "-1 day").await;
    app.db.batch_execute("SELECT pg_advisory_unlock_all()").await.expect("unlocked");

    let read = async || -> (i64, i64) {
        // Fetched by walking the index; what a bitmap collects is not counted here.
        let sql = "SELECT n_tup_del, pg_stat_user_indexes.idx_tup_fetch
                     FROM pg_stat_user_tables JOIN pg_stat_user_indexes USING (relid)
                    WHERE indexrelname = 'idempotency_records_key_expires_at'";
        let row = app.db.query_one(sql, &[]).await.expect("statistics");
        (row.get(0), row.get(1))
    };
    until("the reaper's statistics tell of all rows", BOUND, || async { read().await.0 == 2 * ROWS }).await;
    assert_eq!(read().await.1, ROWS, "rows fetched by walking the index");
}

/// The answer to a retry is the same before and after the reaper came, with Redis and without.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nobody_is_told_anything_else_for_it() {
    for world in [World::Up, World::Absent] {
        let app = App::builder(world).start().await;
        let first = app.order("K", 2).await;
        assert_eq!(first.status, 201);
        // The answer is spent at once; the reaper comes when it comes.
        let spend = "UPDATE idempotency_records SET result_expires_at = now() - interval '1 second',
                            key_expires_at = now() + interval '29 days' - interval '2 seconds'";
        app.db.batch_execute(spend).await.expect("spent");
        if world == World::Up {
            let _: () = redis_command(app.redis_address, &["FLUSHALL"]).await.expect("flushed");
        }
        let before = app.order("K", 2).await;
        until("the reaper came", BOUND, || async { count(&app, "response_body IS NULL").await == 1 }).await;
        let after = app.order("K", 2).await;
        for answer in [before, after] {
            assert_eq!((answer.status, answer.json()["code"].as_str()), (409, Some("already-completed")));
            assert_eq!(answer.header("location"), first.header("location"));
        }
        assert_eq!(app.effects("K").await, Effects::ONCE);
    }
}
