//! A key that is replayed again and again is read by a plain command: it must tell no other story than the script.

use std::time::Duration;

use deadpool_redis::redis;
use testkit::{Action, CommandMatch, Response, until};

use crate::counts::evalsha_calls;
use crate::harness::{App, World};

const BOUND: Duration = Duration::from_secs(20);
/// Replays by the script after which a worker looks first (`gate/stormed.rs`).
const STORMED_FROM: usize = 16;

/// One worker: each learns by itself.
async fn start(world: World) -> App {
    App::builder(world).env("DATABASE_POOL", "2").start().await
}

/// Replays until the worker looks first.
async fn storm(app: &App) {
    for _ in 0..STORMED_FROM {
        assert_eq!(app.order("K", 2).await.status, 201);
    }
}

async fn replayed(app: &App, first: &Response, tier: &str) {
    let again = app.order("K", 2).await;
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert_eq!(again.header("x-cache-lookup"), Some(tier));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.header("original-request-id"), first.header("x-request-id"));
    assert_eq!(again.header("idempotency-expires"), first.header("idempotency-expires"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn it_is_read_without_a_script() {
    let app = start(World::Up).await;
    let first = app.order("K", 2).await;
    storm(&app).await;
    let before = evalsha_calls(&app).await;
    for _ in 0..5 {
        replayed(&app, &first, "HIT").await;
    }
    assert_eq!(evalsha_calls(&app).await - before, 0);
    assert_eq!(app.order("K", 3).await.status, 422);
    assert_eq!(evalsha_calls(&app).await - before, 1, "another payload is for the script to judge");
}

/// Gone, cut, longer, changed anywhere, copied from another key, of another database, of another kind: PostgreSQL is asked, as for any key.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn whatever_else_is_held_is_no_answer() {
    let app = start(World::Up).await;
    let first = app.order("K", 2).await;
    assert_eq!(app.order("other", 3).await.status, 201);
    let (name, other) = (app.redis_name("K").await, app.redis_name("other").await);
    let length: i64 = app.redis(&["STRLEN", &name]).await;
    let (last, middle) = ((length - 9).to_string(), (length / 2).to_string());
    let cut = format!(
        "redis.call('SET', KEYS[1], string.sub(redis.call('GET', KEYS[1]), 1, {}), 'EX', 100)",
        length - 20
    );
    let spoiled: [(&[&str], bool); 8] = [
        (&["DEL", &name], true),
        (&["APPEND", &name, "junk"], true),
        (&["EVAL", &cut, "1", &name], true),
        (&["SETRANGE", &name, &middle, "!"], true),
        (&["SETRANGE", &name, &last, "!"], true),
        (&["COPY", &other, &name, "REPLACE"], true),
        (&["SETRANGE", &name, "2", "another "], true),
        // Of another account: left alone, since it may be a newer build's.
        (&["SETRANGE", &name, "43", "somebody"], false),
    ];
    // With the script, and once the worker looks first.
    for stormed in [false, true] {
        for (spoil, is_mended) in spoiled {
            if stormed {
                storm(&app).await;
            }
            let _: redis::Value = app.redis(spoil).await;
            replayed(&app, &first, "MISS").await;
            if !is_mended {
                replayed(&app, &first, "MISS").await;
                let _: i64 = app.redis(&["DEL", &name]).await;
                replayed(&app, &first, "MISS").await;
            }
            replayed(&app, &first, "HIT").await;
        }
    }
    let _: redis::Value = app.redis(&["COPY", &other, &name, "REPLACE"]).await;
    assert_eq!(
        app.order("K", 3).await.status,
        422,
        "what the other key was asked for is nothing to this one"
    );
    storm(&app).await;
    let _: i64 = app.redis(&["DEL", &name]).await;
    let _: i64 = app.redis(&["HSET", &name, "field", "value"]).await;
    replayed(&app, &first, "MISS").await;
}

/// Redis dies under the reading command: PostgreSQL answers, and Redis is asked again once it can be.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn redis_dies_under_it() {
    let app = App::builder(World::Up).redis_proxy().env("DATABASE_POOL", "2").start().await;
    let proxy = app.redis_proxy.as_ref().expect("a proxy");
    let first = app.order("K", 2).await;
    for action in [Action::CutBefore, Action::DropReplyAndCut] {
        storm(&app).await;
        let cut = proxy.always(CommandMatch::name("GET"), action);
        replayed(&app, &first, "MISS").await;
        cut.release();
        until("a replay from Redis", BOUND, || async {
            app.order("K", 2).await.header("x-cache-lookup") == Some("HIT")
        })
        .await;
    }
}
