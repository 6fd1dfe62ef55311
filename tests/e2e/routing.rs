//! Paths, methods and framing: one operation has one spelling, and everything else is a problem that says so.
//!
//! Reads are here too: they are never stored, always current, and show the caller's own orders only.

use serde_json::{Value, json};
use testkit::{Connection, Request, Response};

use crate::answers::{assert_first, assert_problem, assert_rejection, assert_replay};
use crate::harness::database::Effects;
use crate::harness::{App, World, in_every_world, order};

/// The pages of a list, each as its `data`, until there is no next cursor.
async fn pages(app: &App, path: &str, limit: usize) -> Vec<Vec<Value>> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = app.get(&format!("{path}?limit={limit}{cursor}")).await;
        assert_eq!(page.status, 200, "{}", page.text());
        let page = page.json();
        pages.push(page["data"].as_array().expect("data").clone());
        assert!(pages.len() < 50, "the list of {path} does not end");
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return pages,
        }
    }
}

fn strings(rows: &[Value], member: &str) -> Vec<String> {
    rows.iter().map(|row| row[member].as_str().expect("a string").to_owned()).collect()
}

/// A refusal has a page behind its `type`.
async fn assert_has_page(app: &App, answer: &Response) {
    let kind = answer.json()["type"].as_str().expect("a type").to_owned();
    let page = app.send(&Request::get(&kind)).await;
    assert_eq!(page.status, 200, "{kind}");
    assert!(page.header("content-type").is_some_and(|kind| kind.starts_with("text/html")));
    assert!(page.text().contains(answer.json()["title"].as_str().expect("a title")), "{kind}");
}

in_every_world!(an_operation_has_one_spelling, |app| async move {
    let first = app.order("K", 2).await;
    assert_first(&first, 201);
    let location = first.header("location").expect("a Location");
    let paths = [
        "/v1/orders/".to_owned(),
        "/v1//orders".to_owned(),
        "//v1/orders".to_owned(),
        "/v1/%6Frders".to_owned(),
        "/v1/%6frders".to_owned(),
        "/v1%2Forders".to_owned(),
        "/v1/./orders".to_owned(),
        "/v1/x/../orders".to_owned(),
        "/V1/orders".to_owned(),
        "/v1/Orders".to_owned(),
        "/v1/orders;x=1".to_owned(),
        "/v1/orders%20".to_owned(),
        format!("{location}/cancel/"),
        format!("{location}/%63ancel"),
        format!("{location}//cancel"),
    ];
    for path in &paths {
        app.strike();
        for key in ["K", "fresh"] {
            let answer = app.post(path, key, &order(2)).await;
            assert_eq!(answer.status, 404, "{path}: {}", answer.text());
            assert_problem(&answer, 404, "not-found");
        }
    }
    assert_eq!(app.effects("fresh").await, Effects::NONE);
    assert_eq!(app.get(location).await.json()["status"], "pending_payment");
    assert_replay(&first, &app.order("K", 2).await);
    assert_eq!(app.effects("K").await, Effects::ONCE);
});

in_every_world!(an_ambiguous_frame_is_refused_and_executes_nothing, |app| async move {
    let body = order(2).to_string();
    let framed = |key: &str, lines: &[String]| {
        let request = app.request("/v1/orders", key, &order(2)).unframed();
        lines.iter().fold(request, |request, line| request.header_line(line.as_bytes()))
    };
    let length = format!("Content-Length: {}", body.len());
    let chunked = "Transfer-Encoding: chunked".to_owned();
    let frames = [
        vec![length.clone(), chunked.clone()],
        vec![chunked, length.clone()],
        vec![length.clone(), format!("Content-Length: {}", body.len() + 1)],
        vec![length.clone(), "Content-Length: 0".to_owned()],
        vec!["Transfer-Encoding: xchunked".to_owned()],
        vec![length, "Transfer-Encoding: xchunked".to_owned()],
        vec!["Content-Length: +5".to_owned()],
        vec!["Content-Length: 0x10".to_owned()],
    ];
    for lines in frames {
        let mut connection = Connection::open(app.replica().api).await.expect("a connection");
        connection.send(&framed("K", &lines)).await.expect("sent");
        let refused = connection.read().await.expect("an answer");
        assert_eq!(refused.status, 400, "{lines:?}");
        connection.closed().await.unwrap_or_else(|open| panic!("{lines:?}: still open: {open}"));
    }
    assert_eq!(app.effects("K").await, Effects::NONE);
    assert_first(&app.order("K", 2).await, 201);
});

in_every_world!(two_requests_in_one_write_are_answered_in_order, |app| async move {
    let twice =
        |key, quantities: [u32; 2]| quantities.map(|count| app.request("/v1/orders", key, &order(count)));
    for (key, quantities) in [("same", [2, 2]), ("other", [2, 3])] {
        app.heal();
        app.strike();
        let mut connection = Connection::open(app.replica().api).await.expect("a connection");
        connection.pipeline(&twice(key, quantities)).await.expect("sent");
        let first = connection.read().await.expect("the first answer");
        let second = connection.read().await.expect("the second answer");
        assert_first(&first, 201);
        if key == "same" {
            assert_replay(&first, &second);
        } else {
            assert_problem(&second, 422, "idempotency-key-reused");
        }
        assert_eq!(app.effects(key).await, Effects::ONCE);
    }
});

in_every_world!(what_is_not_there_is_a_problem_with_a_page, |app| async move {
    let made = app.order("made", 2).await;
    let location = made.header("location").expect("a Location").to_owned();
    let cancel = format!("{location}/cancel");
    let nowhere = format!("/v1/orders/{}", uuid::Uuid::now_v7());
    for path in ["/", "/v1", "/v1/orders/x", "/v1/orders/0", &nowhere, "/v1/products/NOPE", "/problems/nope"]
    {
        let missing = app.get(path).await;
        assert_problem(&missing, 404, "not-found");
        assert_has_page(&app, &missing).await;
    }
    for path in ["/v1/nothing", "/v1/orders/x/cancel"] {
        assert_problem(&app.post(path, "K", &json!({})).await, 404, "not-found");
    }
    assert_eq!(app.effects("K").await, Effects::NONE, "a bad id takes no key");
    let allowed = [
        ("/v1/orders", "POST, GET, HEAD", "DELETE"),
        (location.as_str(), "GET, HEAD", "POST"),
        (cancel.as_str(), "POST", "GET"),
        ("/v1/products", "GET, HEAD", "POST"),
        ("/v1/products/TEA-001", "GET, HEAD", "PUT"),
        ("/problems/internal", "GET, HEAD", "PATCH"),
    ];
    for (path, methods, method) in allowed {
        let request = Request::new(method, path)
            .header("Authorization", format!("Bearer {}", app.api_key))
            .header("Idempotency-Key", "K");
        let refused = app.send(&request).await;
        assert_problem(&refused, 405, "method-not-allowed");
        let mut listed: Vec<&str> = refused.header("allow").unwrap_or_default().split(", ").collect();
        let mut wanted: Vec<&str> = methods.split(", ").collect();
        listed.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(listed, wanted, "{path}");
        assert_has_page(&app, &refused).await;
    }
    assert_eq!(app.effects("K").await, Effects::NONE);
});

in_every_world!(every_code_leads_to_its_page, |app| async move {
    let key = |request: Request| request.header("Authorization", format!("Bearer {}", app.api_key));
    let nope = json!({ "items": [{ "sku": "NOPE", "quantity": 1 }] });
    app.order("K", 2).await;
    let seen = [
        app.send(&Request::post("/v1/orders")).await,
        app.send(&key(Request::post("/v1/orders"))).await,
        app.send(&key(Request::post("/v1/orders")).header("Idempotency-Key", "")).await,
        app.send(&app.request("/v1/orders", "L", &json!([]))).await,
        app.send(&app.request("/v1/orders", "L", &order(1)).header("Content-Encoding", "gzip")).await,
        app.order("K", 3).await,
        app.post("/v1/orders", "unknown", &nope).await,
        app.get("/v1/orders/x").await,
        app.post("/v1/probes", "failed", &json!({ "then": "fail" })).await,
    ];
    let mut codes = Vec::new();
    for answer in &seen {
        assert_has_page(&app, answer).await;
        codes.push(answer.json()["code"].as_str().expect("a code").to_owned());
    }
    let expected = "unauthenticated idempotency-key-missing idempotency-key-invalid invalid-request \
                    unsupported-media-type idempotency-key-reused unknown-sku not-found internal";
    assert_eq!(codes.join(" "), expected);
    // These need more than one request to be seen; their cases are in `answers` and `bodies`.
    for code in [
        "request-in-progress",
        "temporarily-unavailable",
        "already-completed",
        "body-too-large",
        "insufficient-stock",
        "order-not-cancellable",
        "mixed-currencies",
    ] {
        assert_eq!(app.send(&Request::get(&format!("/problems/{code}"))).await.status, 200, "{code}");
    }
});

in_every_world!(the_page_of_a_stored_refusal_does_not_deny_that_it_was_stored, |app| async move {
    let cancel = format!("/v1/orders/{}/cancel", uuid::Uuid::now_v7());
    let refused = app.post(&cancel, "K", &json!({})).await;
    assert_rejection(&refused, 404, "not-found");
    let page = app.send(&Request::get(refused.json()["type"].as_str().expect("a type"))).await.text();
    assert!(
        !page.contains("no key was taken"),
        "the refusal is its key's answer for good, and its page says: {page}"
    );
    assert_has_page(&app, &refused).await;
});

in_every_world!(a_list_of_orders_has_each_once_newest_first, |app| async move {
    let mut made = Vec::new();
    for index in 0..7 {
        let answer = app.order(&format!("K{index}"), 1).await;
        made.push(answer.json()["id"].as_str().expect("an id").to_owned());
    }
    made.reverse();
    let theirs = Request::get("/v1/orders").header("Authorization", format!("Bearer {}", app.other_api_key));
    assert_eq!(app.send(&theirs).await.json(), json!({ "data": [], "next_cursor": null }));
    let of_ours = Request::get(&format!("/v1/orders/{}", made[0]))
        .header("Authorization", format!("Bearer {}", app.other_api_key));
    assert_problem(&app.send(&of_ours).await, 404, "not-found");

    for (limit, sizes) in [(1, vec![1; 7]), (3, vec![3, 3, 1]), (7, vec![7]), (100, vec![7])] {
        let pages = pages(&app, "/v1/orders", limit).await;
        assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), sizes, "limit {limit}");
        assert_eq!(strings(&pages.concat(), "id"), made, "limit {limit}");
        for order in pages.concat() {
            let one = app.get(&format!("/v1/orders/{}", order["id"].as_str().expect("an id"))).await;
            assert_eq!(one.json(), order);
        }
    }
    // What arrives while a list is walked shifts nothing.
    let page = app.get("/v1/orders?limit=3").await.json();
    app.order("later", 1).await;
    let rest = app
        .get(&format!("/v1/orders?limit=100&cursor={}", page["next_cursor"].as_str().expect("more")))
        .await;
    assert_eq!(strings(rest.json()["data"].as_array().expect("data"), "id"), made[3..]);
    for query in
        ["limit=0", "limit=101", "limit=-1", "limit=x", "limit=", "limit=2.0", "cursor=x", "cursor=", "foo=1"]
    {
        let refused = app.get(&format!("/v1/orders?{query}")).await;
        assert_eq!(refused.status, 400, "{query}: {}", refused.text());
        let problem = assert_problem(&refused, 400, "invalid-request");
        let field = query.split('=').next().unwrap_or_default();
        assert!(problem["detail"].to_string().contains(field), "{query}: {problem}");
    }
});

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_catalogue_is_listed_in_order_and_read_one_by_one() {
    let app = App::builder(World::Up).start().await;
    for limit in [1, 2, 100] {
        let products = pages(&app, "/v1/products", limit).await.concat();
        let skus = strings(&products, "sku");
        assert_eq!(skus[0], "TEA-001");
        assert!(skus.is_sorted() && skus.len() >= 4, "{skus:?}");
        for product in products {
            assert_eq!(product["stock"], 1_000_000);
            assert!(product["unit_price"].is_u64() && product["currency"] == "EUR", "{product}");
            let one = app.get(&format!("/v1/products/{}", product["sku"].as_str().expect("a sku"))).await;
            assert_eq!((one.status, one.json()), (200, product));
        }
    }
    for query in ["limit=0", "limit=101", "foo=1"] {
        let refused = app.get(&format!("/v1/products?{query}")).await;
        assert_eq!(refused.status, 400, "{query}: {}", refused.text());
        assert_problem(&refused, 400, "invalid-request");
    }
    assert_problem(&app.get("/v1/products/%00").await, 404, "not-found");
    assert_problem(&app.send(&Request::get("/v1/products")).await, 401, "unauthenticated");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_cursor_that_no_page_gave_is_refused() {
    let app = App::builder(World::Up).start().await;
    for list in ["/v1/products", "/v1/orders"] {
        let refused = app.get(&format!("{list}?cursor=%00")).await;
        assert_problem(&refused, 400, "invalid-request");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_answer_has_a_request_id_of_its_own() {
    let app = App::builder(World::Up).start().await;
    let key = format!("Bearer {}", app.api_key);
    let (mut ids, mut without) = (std::collections::BTreeSet::new(), Vec::new());
    let paths = ["/v1/orders", "/v1/products", "/v1/products/TEA-001", "/v1/nothing", "/problems/internal"];
    for (path, method) in paths.iter().flat_map(|path| ["GET", "HEAD", "DELETE"].map(|method| (path, method)))
    {
        let request = Request::new(method, path).header("Authorization", &key).header("X-Request-Id", "mine");
        match app.send(&request).await.header("x-request-id") {
            Some(id) => {
                assert!(id != "mine" && ids.insert(id.to_owned()), "{method} {path} has another's id");
            }
            None => without.push(format!("{method} {path}")),
        }
    }
    assert!(without.is_empty(), "without X-Request-Id: {without:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn health_is_told_on_the_admin_listener_only() {
    let app = App::builder(World::Up).start().await;
    assert_eq!(app.get_admin("/livez").await.status, 200);
    let ready = app.get_admin("/readyz").await;
    assert_eq!((ready.status, &ready.json()["status"]), (200, &json!("ready")));
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_problem(&app.get(path).await, 404, "not-found");
    }
    assert_problem(&app.get_admin("/v1/orders").await, 404, "not-found");
}
