//! Where events go: registered once, its secret shown once.

use serde_json::json;
use testkit::Request;

use crate::harness::{App, World, in_every_world};

in_every_world!(an_endpoint_is_registered_once_and_its_secret_is_shown_once, |app| async move {
    let body = json!({ "url": "https://example.com/hook" });
    let first = app.post("/v1/webhook-endpoints", "K", &body).await;
    assert_eq!(first.status, 201, "{}", first.text());
    let (made, location) = (first.json(), first.header("location").expect("a location").to_owned());
    assert!(made["secret"].as_str().is_some_and(|secret| secret.starts_with("whsec_")));
    for _ in 0..2 {
        let again = app.post("/v1/webhook-endpoints", "K", &body).await;
        assert_eq!(
            (again.status, again.json()["code"].as_str()),
            (409, Some("already-completed")),
            "{}",
            again.text()
        );
        assert_eq!(again.header("location"), Some(location.as_str()));
        assert!(!again.text().contains("whsec_"));
    }
    let listed = app.get("/v1/webhook-endpoints").await.json();
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
    assert_eq!((&listed["data"][0]["id"], &listed["data"][0]["secret"]), (&made["id"], &json!(null)));
    let stored =
        app.db.query_one("SELECT count(*) FROM idempotency_records WHERE response_body IS NULL", &[]).await;
    assert_eq!(stored.expect("records").get::<_, i64>(0), 1);

    let delete =
        |key: &str| Request::new("DELETE", &location).header("Authorization", format!("Bearer {key}"));
    assert_eq!(app.send(&delete(&app.other_api_key)).await.status, 404, "own endpoints only");
    assert_eq!(app.send(&delete(&app.api_key)).await.status, 204);
    assert_eq!(app.send(&delete(&app.api_key)).await.status, 404);
    assert_eq!(app.post("/v1/webhook-endpoints", "K", &body).await.status, 409, "the key stays used");
});

in_every_world!(a_special_address_is_refused, |app| async move {
    for (index, url) in
        ["http://127.0.0.1/", "http://[::1]/x", "http://169.254.169.254/", "http://localhost:8080"]
            .iter()
            .enumerate()
    {
        let key = format!("K{index}");
        for _ in 0..2 {
            let refused = app.post("/v1/webhook-endpoints", &key, &json!({ "url": url })).await;
            assert_eq!(
                (refused.status, refused.json()["code"].as_str()),
                (422, Some("webhook-target-forbidden")),
                "{url}"
            );
        }
    }
    let invalid = app.post("/v1/webhook-endpoints", "bad", &json!({ "url": "ftp://example.com" })).await;
    assert_eq!((invalid.status, invalid.json()["code"].as_str()), (400, Some("invalid-request")));
    assert!(invalid.text().contains("url"));
});

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn private_addresses_can_be_allowed() {
    let app = App::builder(World::Up).env("WEBHOOK_ALLOW_PRIVATE", "1").start().await;
    assert_eq!(
        app.post("/v1/webhook-endpoints", "K", &json!({ "url": "http://127.0.0.1:1/" })).await.status,
        201
    );
}

/// A browser of a configured origin may send the headers and see the marks; others may not.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn browsers_of_configured_origins_see_the_marks() {
    let app = App::builder(World::Up)
        .env("CORS_ORIGINS", "https://shop.example,https://other.example")
        .start()
        .await;
    let preflight = Request::new("OPTIONS", "/v1/orders")
        .header("Origin", "https://shop.example")
        .header("Access-Control-Request-Method", "POST")
        .header("Access-Control-Request-Headers", "authorization,content-type,idempotency-key,prefer");
    let allowed = app.send(&preflight).await;
    assert_eq!(
        (allowed.status, allowed.header("access-control-allow-origin")),
        (200, Some("https://shop.example"))
    );
    let order =
        |origin: &str| app.request("/v1/orders", "K", &crate::harness::order(1)).header("Origin", origin);
    for _ in 0..2 {
        let answer = app.send(&order("https://shop.example")).await;
        assert_eq!(answer.status, 201);
        let exposed = answer.header("access-control-expose-headers").unwrap_or_default().to_ascii_lowercase();
        for name in
            ["idempotent-replayed", "x-cache-lookup", "idempotency-expires", "retry-after", "location"]
        {
            assert!(exposed.contains(name), "{name} in {exposed}");
        }
    }
    assert_eq!(app.send(&order("https://evil.example")).await.header("access-control-allow-origin"), None);
    let silent = App::builder(World::Up).start().await;
    assert_eq!(silent.send(&preflight).await.header("access-control-allow-origin"), None);
}
