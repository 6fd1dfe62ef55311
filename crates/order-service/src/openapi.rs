//! `/openapi.json` and `/docs`: the API as the service itself tells it.
//!
//! Made of the table of operations, the problem kinds and the limits of the commands, once. Knows no handler. Invariant: both are
//! complete (`tests/e2e/openapi.rs` compares them with the routes and with answers).

mod operations;
mod schemas;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use actix_web::HttpResponse;
use actix_web::http::header;
use idempotency::KEY_LEN_MAX;
use serde_json::{Map, Value, json};

use crate::page::LIMIT_MAX;
use crate::reading::with_request_id;
use operations::{Kind, Operation, all};

static DOCUMENT: LazyLock<String> = LazyLock::new(|| format!("{:#}\n", document()));
static PAGE: LazyLock<String> = LazyLock::new(page);

/// `GET /openapi.json`
pub(crate) async fn json() -> HttpResponse {
    with_request_id(HttpResponse::Ok())
        .insert_header((header::CONTENT_TYPE, "application/json"))
        .body(DOCUMENT.as_str())
}

/// `GET /docs`
pub(crate) async fn docs() -> HttpResponse {
    with_request_id(HttpResponse::Ok())
        .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((header::CONTENT_SECURITY_POLICY, "default-src 'none'"))
        .body(PAGE.as_str())
}

fn document() -> Value {
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for operation in all() {
        let methods = paths.entry(operation.path.to_string()).or_default();
        methods.insert(operation.method().to_owned(), described(&operation));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "order-service",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Orders and payments on which a retry is harmless: same key, same answer, one effect.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "securitySchemes": { "api_key": { "type": "http", "scheme": "bearer", "bearerFormat": "osk_…" } },
        },
    })
}

fn described(operation: &Operation) -> Value {
    let (status, schema) = operation.gives;
    let status = status.map_or("2XX".to_owned(), |status| status.to_string());
    let mut responses = Map::from_iter([(status, success(operation, schema))]);
    if operation.kind == Kind::Workflow {
        let schema = json!({ "schema": schemas::reference("Operation") });
        let running = json!({
            "description": "It runs in the background; Location is the operation",
            "content": { "application/json": schema },
        });
        responses.insert("202".to_owned(), running);
    }
    for kind in operation.problems() {
        let response = responses.entry(kind.status.to_string()).or_insert_with(|| {
            json!({
                "description": "",
                "content": { "application/problem+json": { "schema": schemas::reference("Problem") } },
            })
        });
        let told = response["description"].as_str().unwrap_or_default();
        let separator = if told.is_empty() { "" } else { "; " };
        response["description"] = format!("{told}{separator}`{}`: {}", kind.code, kind.title).into();
    }
    let mut described = json!({
        "operationId": operation_id(operation),
        "summary": operation.summary,
        "parameters": parameters(operation),
        "responses": responses,
    });
    if !matches!(operation.kind, Kind::Open | Kind::Signed) {
        described["security"] = json!([{ "api_key": [] }]);
    }
    if let Some(name) = operation.takes {
        let content = json!({ "application/json": { "schema": schemas::reference(name) } });
        described["requestBody"] = json!({ "required": true, "content": content });
    }
    described
}

fn success(operation: &Operation, schema: Option<&str>) -> Value {
    let mut response = json!({ "description": operation.summary });
    if let Some(name) = schema {
        response["content"] = json!({ "application/json": { "schema": schemas::reference(name) } });
    }
    if matches!(operation.kind, Kind::Command | Kind::Workflow) {
        let text = json!({ "schema": { "type": "string" } });
        response["headers"] = json!({
            "Location": text,
            "Idempotent-Replayed": { "description": "`true` on every replay", "schema": { "const": "true" } },
            "X-Cache-Lookup": { "description": "which store a replay came from", "schema": { "enum": ["HIT", "MISS"] } },
            "Idempotency-Expires": { "description": "until when it is replayed", "schema": { "type": "string" } },
            "X-Request-Id": text,
            "Original-Request-Id": { "description": "on a replay: the request that did it", "schema": { "type": "string" } },
        });
    }
    response
}

/// `post_v1_orders_id_cancel`
fn operation_id(operation: &Operation) -> String {
    let words = operation.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    [operation.method()].into_iter().chain(words).collect::<Vec<_>>().join("_")
}

fn parameters(operation: &Operation) -> Vec<Value> {
    let text = |name: &str, place: &str, is_required: bool, what: &str, schema: Value| json!({ "name": name, "in": place, "required": is_required, "description": what, "schema": schema });
    let string = || json!({ "type": "string" });
    let mut parameters = Vec::new();
    for segment in operation.path.split('/') {
        if let Some(name) = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            parameters.push(text(name, "path", true, "", string()));
        }
    }
    if matches!(operation.kind, Kind::Command | Kind::Workflow) {
        let key = json!({ "type": "string", "minLength": 1, "maxLength": KEY_LEN_MAX });
        let what = "One unique value (a UUID, say) per intent, kept over all retries of it; bare or quoted";
        parameters.push(text("Idempotency-Key", "header", true, what, key));
    }
    match operation.kind {
        Kind::Command => {
            parameters.push(text("Prefer", "header", false, "wait=N: wait for a running first", string()));
        }
        Kind::Workflow => {
            let what = "wait=N: wait for a running first; respond-async: be told 202 at once";
            parameters.push(text("Prefer", "header", false, what, string()));
        }
        Kind::Poll => {
            parameters.push(text("Prefer", "header", false, "wait=N: wait until it is finished", string()));
        }
        Kind::List => {
            let limit = json!({ "type": "integer", "minimum": 1, "maximum": LIMIT_MAX });
            parameters.push(text("limit", "query", false, "How many at most", limit));
            parameters.push(text("cursor", "query", false, "next_cursor of the page before", string()));
        }
        Kind::Signed => {
            for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
                parameters.push(text(name, "header", true, "As Standard Webhooks has it", string()));
            }
        }
        Kind::Read | Kind::Delete | Kind::Open => {}
    }
    parameters
}

/// The texts are our own constants, without markup.
fn page() -> String {
    let mut page = String::from(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>order-service</title>\n<h1>order-service</h1>\n\
         <p>Every POST takes an Idempotency-Key: one unique value per intent, kept over all retries of it. A retry gets the first \
         answer again, marked with Idempotent-Replayed. Credentials are an API key: Authorization: Bearer osk_…</p>\n\
         <p>For machines: <a href=\"/openapi.json\">/openapi.json</a>. The policy in force: \
         <a href=\"/v1/idempotency\">/v1/idempotency</a>.</p>\n",
    );
    for operation in all() {
        let (method, path) = (operation.method().to_uppercase(), &operation.path);
        // Writing to a string does not fail.
        let _ = write!(page, "<h2>{method} {path}</h2>\n<p>{}.", operation.summary);
        match operation.gives.0 {
            Some(status) => page.push_str(&format!(" Answers {status}.</p>\n<ul>\n")),
            None => page.push_str("</p>\n<ul>\n"),
        }
        let mut codes: Vec<(u16, &str, &str)> =
            operation.problems().iter().map(|kind| (kind.status, kind.code, kind.title)).collect();
        codes.sort_unstable();
        codes.dedup_by_key(|(status, code, _)| (*status, *code));
        for (status, code, title) in codes {
            let _ = writeln!(page, "<li>{status} <a href=\"/problems/{code}\">{code}</a>: {title}</li>");
        }
        page.push_str("</ul>\n");
    }
    page.push_str("</html>\n");
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_that_is_named_is_there() {
        let text = DOCUMENT.as_str();
        let document: Value = serde_json::from_str(text).unwrap();
        for named in text.split("#/components/schemas/").skip(1) {
            let name = named.split('"').next().unwrap();
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
    }

    #[test]
    fn operations_are_told_apart() {
        let mut ids: Vec<String> = all().iter().map(operation_id).collect();
        ids.sort();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }
}
