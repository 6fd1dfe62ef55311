//! What bodies look like, as JSON Schema.
//!
//! Invariant (`tests/e2e/openapi.rs`): an answer of the service has the members that its schema requires, and no others.

use serde_json::{Value, json};

use crate::orders::create::{ITEMS_MAX, NOTE_MAX, QUANTITY_MAX, SKU_MAX};
use crate::payments::pay::SOURCE_MAX;
use crate::webhooks::target::URL_MAX;

/// An object of which every member is there, and no other is.
fn object(members: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
    let mut object = optional(members);
    object["required"] = json!(names);
    object
}

/// An object of which members may be missing.
fn optional(members: &[(&str, Value)]) -> Value {
    let properties: serde_json::Map<String, Value> =
        members.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn short_text(max: usize) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": max })
}

fn number() -> Value {
    json!({ "type": "integer", "format": "int64" })
}

fn id() -> Value {
    json!({ "type": "string", "format": "uuid" })
}

fn time() -> Value {
    json!({ "type": "string", "format": "date-time" })
}

fn one_of(words: &[&str]) -> Value {
    json!({ "type": "string", "enum": words })
}

fn or_null(mut schema: Value) -> Value {
    let kind = schema["type"].take();
    schema["type"] = json!([kind, "null"]);
    schema
}

pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn list_of(name: &str) -> Value {
    let item = reference(name);
    object(&[("data", json!({ "type": "array", "items": item })), ("next_cursor", or_null(text()))])
}

/// Every schema that an operation names.
pub(super) fn all() -> Value {
    let anything = json!({ "type": "object" });
    let positive = |max: i64| json!({ "type": "integer", "minimum": 1, "maximum": max });
    let item = object(&[("sku", short_text(SKU_MAX)), ("quantity", positive(QUANTITY_MAX))]);
    let items = json!({ "type": "array", "minItems": 1, "maxItems": ITEMS_MAX, "items": item });
    let mut new_order =
        optional(&[("items", items), ("note", json!({ "type": ["string", "null"], "maxLength": NOTE_MAX }))]);
    new_order["required"] = json!(["items"]);
    let sold = object(&[
        ("sku", text()),
        ("name", text()),
        ("quantity", number()),
        ("unit_price", number()),
        ("amount", number()),
    ]);
    let order_status = one_of(&["pending_payment", "paying", "paid", "cancelled", "refunded"]);
    let endpoint = object(&[("id", id()), ("url", text()), ("created_at", time())]);
    let event = object(&[("id", id()), ("type", text()), ("created_at", time()), ("data", anything.clone())]);
    let response = json!({
        "type": ["object", "null"],
        "properties": { "status": number(), "headers": anything, "body": {} },
        "required": ["status", "headers", "body"],
    });
    json!({
        "Money": object(&[("amount", number()), ("currency", json!({ "type": "string", "pattern": "^[A-Z]{3}$" }))]),
        "NewOrder": new_order,
        "Order": object(&[
            ("id", id()),
            ("status", order_status),
            ("items", json!({ "type": "array", "items": sold })),
            ("total", reference("Money")),
            ("note", or_null(text())),
            ("created_at", time()),
        ]),
        "Orders": list_of("Order"),
        "NewPayment": object(&[("source", short_text(SOURCE_MAX))]),
        "Payment": object(&[("id", id()), ("order_id", id()), ("status", text()), ("total", reference("Money"))]),
        "NewRefund": object(&[("amount", json!({ "type": "integer", "format": "int64", "minimum": 1 }))]),
        "Refund": object(&[
            ("id", id()),
            ("order_id", id()),
            ("payment_id", id()),
            ("status", text()),
            ("total", reference("Money")),
        ]),
        "Operation": object(&[
            ("id", id()),
            ("state", one_of(&["running", "succeeded", "failed", "unknown"])),
            ("response", response),
        ]),
        "Product": object(&[
            ("sku", text()),
            ("name", text()),
            ("unit_price", number()),
            ("currency", text()),
            ("stock", number()),
        ]),
        "Products": list_of("Product"),
        "NewEndpoint": object(&[("url", short_text(URL_MAX))]),
        "NewSecret": object(&[("id", id()), ("url", text()), ("secret", text())]),
        "Endpoint": endpoint,
        "Endpoints": list_of("Endpoint"),
        "Event": event,
        "Events": list_of("Event"),
        "GatewayEvent": anything,
        "KeyState": object(&[
            ("state", one_of(&["running", "completed", "failed", "unknown"])),
            ("expires_at", or_null(time())),
            ("links", json!({ "type": "object", "additionalProperties": { "type": "string" } })),
            ("attempts", or_null(number())),
        ]),
        "Anything": anything,
        "Policy": anything,
        "Document": anything,
        "Problem": json!({
            "type": "object",
            "description": "RFC 9457, with what a client may do",
            "properties": {
                "type": { "type": "string", "description": "a path: the page of this code" },
                "title": text(),
                "status": number(),
                "detail": text(),
                "instance": { "type": "string", "description": "the id of the request" },
                "code": text(),
                "retryable": { "type": "boolean" },
                "same_key": { "type": ["string", "null"], "enum": ["yes", "no", "corrected", "first-payload", null] },
                "new_key_safe": {
                    "type": "boolean",
                    "description": "only where no attempt under this key had or can have an effect",
                },
                "retry_after_ms": number(),
            },
            "required": ["type", "title", "status", "detail", "instance", "code", "retryable", "same_key", "new_key_safe"],
        }),
    })
}
