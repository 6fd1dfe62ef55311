//! What is answered instead of an object: Stripe's error envelope.
//!
//! Invariant: every refusal of the API has one of the shapes here.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::objects::PaymentIntent;

/// An error of the API, as it is answered and (if the work had begun) replayed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    #[serde(rename = "type")]
    kind: String,
    pub(crate) code: Option<String>,
    message: String,
}

impl Refusal {
    fn new(status: u16, kind: &str, code: Option<&str>, message: impl Into<String>) -> Self {
        Self { status, kind: kind.to_owned(), code: code.map(str::to_owned), message: message.into() }
    }

    /// A parameter is missing or makes no sense.
    pub(crate) fn parameter(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request_error", Some("parameter_invalid"), message)
    }

    /// A well-formed request that the state of a charge forbids.
    pub(crate) fn forbidden(code: &str, message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request_error", Some(code), message)
    }

    pub(crate) fn missing(what: &str, id: &str) -> Self {
        let message = format!("No such {what}: '{id}'");
        Self::new(404, "invalid_request_error", Some("resource_missing"), message)
    }

    pub(crate) fn api_key() -> Self {
        Self::new(401, "invalid_request_error", None, "Invalid API Key provided.")
    }

    pub(crate) fn key_reused() -> Self {
        let message = "Keys for idempotent requests can only be used with the same parameters they were first used with.";
        Self::new(400, "idempotency_error", None, message)
    }

    pub(crate) fn key_in_use() -> Self {
        let message = "There is currently another in-progress request using this idempotency key.";
        Self::new(409, "idempotency_error", Some("idempotency_key_in_use"), message)
    }

    /// Not this request's fault; what it means is the status.
    pub(crate) fn injected(status: u16) -> Self {
        match status {
            409 => Self::key_in_use(),
            429 => Self::new(429, "invalid_request_error", Some("rate_limit"), "Too many requests."),
            _ => Self::new(status, "api_error", None, "An error occurred with our connection to ourselves."),
        }
    }

    pub(crate) fn body(&self) -> Value {
        json!({"error": {"type": self.kind, "code": self.code, "message": self.message}})
    }
}

/// The body of a 402.
pub(crate) fn declined(intent: &PaymentIntent) -> Value {
    let mut error = json!(intent.last_payment_error);
    error["payment_intent"] = json!(intent);
    json!({"error": error})
}
