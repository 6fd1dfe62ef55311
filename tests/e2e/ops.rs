//! `/ops`: the page that an operator looks at first. It answers while a store is away, and shows no markup but its own.

use std::time::Duration;

use testkit::{Door, Request, until};

use crate::harness::{App, World};

const BOUND: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn it_tells_what_waits_and_escapes_it() {
    let app = App::builder(World::Up).start().await;
    assert_eq!(app.order("K", 1).await.status, 201);
    let answer = app.get_admin("/ops").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = answer.header("content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let page = answer.text();
    assert!(
        page.contains("<dt>PostgreSQL</dt><dd>serves</dd>") && page.contains("<dt>Redis</dt><dd>serves</dd>"),
        "{page}"
    );
    assert_eq!(page.matches("<p>None.</p>").count(), 2, "{page}");

    // Of a workflow that this build does not know.
    let left = "INSERT INTO idempotency_records (account_id, key, request_path, request_hash, fingerprint_version, request_id, status, \
            updated_at, command, request_body, lease_token, lease_expires_at, attempts) \
        SELECT account_id, '<script>', '/', request_hash, 1, gen_random_uuid(), 'IN_PROGRESS', now() - interval '16 minutes', \
            'unheard-of', '', gen_random_uuid(), now() - interval '1 minute', 1 FROM idempotency_records WHERE key = 'K'";
    app.db.batch_execute(left).await.expect("SQL");
    let dead = "INSERT INTO event_deliveries (subscriber_id, event_id, state, last_error, settled_at) \
        SELECT gen_random_uuid(), id, 'dead', '<b>500</b>', now() FROM events";
    app.db.batch_execute(dead).await.expect("SQL");
    until("both are told", BOUND, || async {
        let page = app.get_admin("/ops").await.text();
        assert!(!page.contains("<script") && !page.contains("<b>"), "{page}");
        page.contains("unheard-of of demo, key &lt;script&gt;: ") && page.contains("&lt;b&gt;500&lt;/b&gt;")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn it_answers_while_a_store_is_away() {
    let app = App::builder(World::Absent).pg_proxy().start().await;
    let page = app.get_admin("/ops").await.text();
    assert!(page.contains("<dt>Redis</dt><dd>away"), "{page}");
    let proxy = app.pg_proxy.as_ref().expect("a proxy");
    proxy.door(Door::Closed).await;
    proxy.cut_all().await;
    let answer = app.get_admin("/ops").await;
    let page = answer.text();
    assert!(answer.status == 200 && page.contains("<dt>PostgreSQL</dt><dd>database "), "{page}");
    assert_eq!(page.matches("PostgreSQL does not say").count(), 2, "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn it_is_for_whoever_has_the_token() {
    let app = App::builder(World::Up).env("ADMIN_TOKEN", "sesame").start().await;
    let ask = async |token: &str| {
        let request = Request::get("/ops").header("Authorization", format!("Bearer {token}"));
        testkit::send(app.replica().admin, &request).await.expect("an answer").status
    };
    assert_eq!((ask("sesame").await, ask("open").await, app.get_admin("/ops").await.status), (200, 401, 401));
}
