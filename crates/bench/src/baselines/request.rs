//! A request, read: who asks, under which key, for what work.
//!
//! Knows headers, paths and bodies. Knows no store. Invariant: whoever is authenticated is so without asking a store, as
//! the service's known keys are.

use actix_web::HttpRequest;
use actix_web::http::header::AUTHORIZATION;
use actix_web::web::Bytes;
use sha2::{Digest as _, Sha256};

use super::answer::Failure;
use super::server::Accounts;
use crate::work::minimal::MinimalOrder;
use crate::work::order::NewOrder;

/// The POSTs that every system has.
pub const MINIMAL_ORDERS: &str = "/v1/minimal-orders";
pub const ORDERS: &str = "/v1/orders";
pub const GATEWAY_ORDERS: &str = "/v1/gateway-orders";

/// What is to be done.
pub enum Job {
    /// One INSERT.
    Minimal(MinimalOrder),
    /// The service's own order.
    Order(NewOrder),
    /// A charge, then the order.
    Charged(NewOrder),
}

/// One request.
pub struct Incoming {
    pub account: i64,
    pub path: String,
    pub job: Job,
    key: Option<String>,
    hash: String,
}

impl Incoming {
    pub fn read(request: &HttpRequest, body: &Bytes, accounts: &Accounts) -> Result<Self, Failure> {
        let account = accounts.of(bearer(request)).ok_or(Failure::Unauthenticated)?;
        let path = request.path().to_owned();
        let invalid = |error: serde_json::Error| Failure::Invalid(error.to_string());
        let job = match path.as_str() {
            MINIMAL_ORDERS => Job::Minimal(serde_json::from_slice(body).map_err(invalid)?),
            ORDERS => Job::Order(serde_json::from_slice(body).map_err(invalid)?),
            _ => Job::Charged(serde_json::from_slice(body).map_err(invalid)?),
        };
        let valid = match &job {
            Job::Minimal(order) => order.is_valid(),
            Job::Order(order) | Job::Charged(order) => order.is_valid(),
        };
        if !valid {
            return Err(Failure::Invalid("outside the limits".to_owned()));
        }
        let key = request.headers().get("Idempotency-Key").and_then(|value| value.to_str().ok());
        Ok(Self { account, job, key: key.map(str::to_owned), hash: hash(&path, body), path })
    }

    /// The client's key, for those who need one.
    pub fn key(&self) -> Result<&str, Failure> {
        self.key.as_deref().ok_or_else(|| Failure::Invalid("Idempotency-Key is missing".to_owned()))
    }

    /// SHA-256 over path and body, in hex.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

fn bearer(request: &HttpRequest) -> &str {
    let line = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    line.and_then(|line| line.strip_prefix("Bearer ")).unwrap_or_default()
}

fn hash(path: &str, body: &[u8]) -> String {
    use std::fmt::Write as _;
    let digest = Sha256::new().chain_update(path).chain_update([0]).chain_update(body).finalize();
    digest.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
