//! `/openapi.json` and `/docs`: the service tells the API that it serves, all of it and nothing else.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use testkit::Request;

use crate::harness::{App, World};

/// Paths whose handlers are the framework's, which names them itself.
const OF_THE_FRAMEWORK: [(&str, &str); 2] =
    [("/v1/idempotency-keys", "/v1/idempotency-keys/{key}"), ("", "/v1/operations/{id}")];

async fn document(app: &App) -> Value {
    let answer = testkit::send(app.replica().api, &Request::get("/openapi.json")).await.expect("an answer");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    assert!(answer.header("x-request-id").is_some());
    answer.json()
}

/// Every operation: path, method, what is said of it.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().expect("paths");
    let of = |(path, methods): (&String, &Value)| {
        let methods = methods.as_object().expect("methods").clone();
        let path = path.clone();
        methods.into_iter().map(move |(method, told)| (path.clone(), method, told))
    };
    paths.iter().flat_map(of).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_listed_is_served() {
    let app = App::builder(World::Up).start().await;
    for (path, method, told) in operations(&document(&app).await) {
        let concrete = path.replace("{code}", "internal").replace("{sku}", "TEA-001").replace("{key}", "k");
        let concrete = concrete.replace("{id}", "019d1f0a-7c3e-7d30-9c1c-1d9a7f0b2c4e");
        let request = match method.as_str() {
            "post" => Request::post(&concrete).json(&json!({})),
            "delete" => Request::new("DELETE", &concrete),
            _ => Request::get(&concrete),
        };
        let answer = testkit::send(app.replica().api, &request).await.expect("an answer");
        let is_open = told.get("security").is_none();
        let as_told = if is_open {
            told["responses"].get(answer.status.to_string()).is_some()
        } else {
            answer.status == 401
        };
        // Without a gateway nothing is asked of whoever wants to pay.
        let no_gateway = answer.status == 503 && answer.json()["code"] == "gateway-not-configured";
        assert!(as_told || no_gateway, "{method} {path}: {} {}", answer.status, answer.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_served_is_listed() {
    let app = App::builder(World::Up).start().await;
    let document = document(&app).await;
    let table = include_str!("../../crates/order-service/src/routes.rs");
    // Every second part stands between quotes.
    let mut served: BTreeSet<&str> =
        table.split('"').skip(1).step_by(2).filter(|text| text.starts_with('/')).collect();
    for (named, whole) in OF_THE_FRAMEWORK {
        served.remove(named);
        served.insert(whole);
    }
    let listed: BTreeSet<&str> =
        document["paths"].as_object().expect("paths").keys().map(String::as_str).collect();
    let missing: Vec<_> = served.difference(&listed).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // A command of this package's own, of which nothing is said anywhere.
    assert!(listed.len() > served.len(), "{listed:?}");
    // A path that takes another method than those that are told says so itself.
    for path in ["/v1/orders", "/v1/webhook-endpoints", "/v1/products"] {
        let answer = testkit::send(app.replica().api, &Request::new("PUT", path)).await.expect("an answer");
        let allowed: BTreeSet<String> = answer
            .header("allow")
            .expect("Allow")
            .split(", ")
            .map(str::to_lowercase)
            .filter(|method| method != "head")
            .collect();
        let told: BTreeSet<String> =
            document["paths"][path].as_object().expect("methods").keys().cloned().collect();
        assert_eq!(told, allowed, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn answers_look_as_they_are_told() {
    let app = App::builder(World::Up).start().await;
    let document = document(&app).await;
    let order = app.order("K", 2).await;
    let location = order.header("location").expect("a location").to_owned();
    app.post("/v1/webhook-endpoints", "W", &json!({ "url": "https://example.com/hook" })).await;
    let paths = [
        ("/v1/orders", "/v1/orders".to_owned()),
        ("/v1/orders/{id}", location.clone()),
        ("/v1/products", "/v1/products?limit=1".to_owned()),
        ("/v1/products/{sku}", "/v1/products/TEA-001".to_owned()),
        ("/v1/webhook-endpoints", "/v1/webhook-endpoints".to_owned()),
        ("/v1/events", "/v1/events".to_owned()),
        ("/v1/idempotency-keys/{key}", "/v1/idempotency-keys/K".to_owned()),
    ];
    for (path, concrete) in paths {
        let answer = app.get(&concrete).await;
        assert_eq!(answer.status, 200, "{concrete}");
        looks_like(&document, &told(&document, path, "get", "200"), &answer.json(), path);
    }
    for (path, concrete, key, body, status) in [
        ("/v1/orders", "/v1/orders", "K", crate::harness::order(2), "201"),
        ("/v1/orders/{id}/cancel", &*format!("{location}/cancel"), "C", json!({}), "200"),
        (
            "/v1/webhook-endpoints",
            "/v1/webhook-endpoints",
            "W2",
            json!({ "url": "https://example.com/2" }),
            "201",
        ),
    ] {
        let answer = app.post(concrete, key, &body).await;
        assert_eq!(answer.status.to_string(), status, "{}", answer.text());
        looks_like(&document, &told(&document, path, "post", status), &answer.json(), path);
    }
    let endpoint =
        app.get("/v1/webhook-endpoints").await.json()["data"][0]["id"].as_str().expect("an id").to_owned();
    let rotated = app.post(&format!("/v1/webhook-endpoints/{endpoint}/rotate-secret"), "R", &json!({})).await;
    let schema =
        told(&document, "/v1/webhook-endpoints/{id}/rotate-secret", "post", &rotated.status.to_string());
    looks_like(&document, &schema, &rotated.json(), "a rotated secret");
    let problem = app.post("/v1/orders", "P", &json!({ "items": [] })).await;
    looks_like(&document, &json!({ "$ref": "#/components/schemas/Problem" }), &problem.json(), "a problem");
}

/// The schema of an answer.
fn told(document: &Value, path: &str, method: &str, status: &str) -> Value {
    document["paths"][path][method]["responses"][status]["content"]["application/json"]["schema"].clone()
}

/// As much of JSON Schema as the document uses.
#[track_caller]
fn looks_like(document: &Value, schema: &Value, value: &Value, at: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().expect("a name");
        return looks_like(document, &document["components"]["schemas"][name], value, at);
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is_of_kind = match &schema["type"] {
        Value::String(one) => one == kind,
        Value::Array(some) => some.iter().any(|one| one == kind),
        _ => false,
    };
    assert!(is_of_kind, "{at}: {value} against {schema}");
    if let Some(words) = schema["enum"].as_array() {
        assert!(words.contains(value), "{at}: {value}");
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        looks_like(document, &schema["items"], item, &format!("{at}[{index}]"));
    }
    let Some(members) = value.as_object() else { return };
    for required in schema["required"].as_array().into_iter().flatten() {
        assert!(members.contains_key(required.as_str().expect("a name")), "{at} has no {required}");
    }
    for (name, member) in members {
        match schema["properties"].get(name) {
            Some(schema) => looks_like(document, schema, member, &format!("{at}.{name}")),
            None => assert!(
                schema["additionalProperties"] != false && schema["properties"].is_null()
                    || schema["additionalProperties"].is_object(),
                "{at} has {name}"
            ),
        }
    }
}

/// For people: every path, and a page behind every code.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_page_for_people_names_everything() {
    let app = App::builder(World::Up).start().await;
    let document = document(&app).await;
    let answer = testkit::send(app.replica().api, &Request::get("/docs")).await.expect("an answer");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!(answer.header("content-security-policy"), Some("default-src 'none'"));
    let page = answer.text();
    for (path, method, _) in operations(&document) {
        assert!(page.contains(&format!("{} {path}</h2>", method.to_uppercase())), "{method} {path}");
    }
    let codes: BTreeSet<&str> =
        page.split("href=\"/problems/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(codes.len() > 20, "{codes:?}");
    for code in codes {
        let answer = testkit::send(app.replica().api, &Request::get(&format!("/problems/{code}"))).await;
        assert_eq!(answer.expect("an answer").status, 200, "{code}");
    }
}
