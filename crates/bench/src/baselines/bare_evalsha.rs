//! The floor of a replay: a handler that reads the body, checks nothing, and returns stored bytes by one EVALSHA.
//!
//! What it gets from Redis is as long as what the service keeps of such an answer, and its body is as long as the service's.

use std::sync::LazyLock;

use actix_web::HttpResponse;
use deadpool_redis::redis::{self, Script};

use super::answer::{Answer, Failure};
use super::server::Worker;

/// Where the bytes are.
pub const NAME: &str = "bench:bare-evalsha";
/// For longer than any run, in seconds.
const STORED_TTL_S: u64 = 86_400;
const GET_LUA: &str = "return redis.call('GET', KEYS[1])";
static GET: LazyLock<Script> = LazyLock::new(|| Script::new(GET_LUA));

/// As large as the answer to a small order.
const STORED: &str = r#"{"id":"019d1f0a-7c3e-7d30-9c1c-1d9a7f0b2c4e","status":"pending_payment","items":[{"sku":"TEA-001","name":"Assam, 250 g","quantity":1,"unit_price":1290,"amount":1290}],"total":{"amount":1290,"currency":"EUR"},"note":null,"created_at":"2026-11-30T12:00:00.000000Z"}"#;

/// Bytes in front of the body, as the service's value has them: its header, status, media type and location.
const IN_FRONT: usize = 128;

/// Stores what will be returned.
pub async fn prepare(worker: &Worker) -> Result<(), Failure> {
    let mut store = redis::cmd("SET");
    let value = [&[b'h'; IN_FRONT], STORED.as_bytes()].concat();
    Ok(worker.line.run::<()>(store.arg(NAME).arg(value).arg("EX").arg(STORED_TTL_S)).await?)
}

pub async fn handle(worker: &Worker) -> Result<HttpResponse, Failure> {
    let mut value: Vec<u8> = worker.line.evaluate(&GET, GET_LUA, NAME, &[]).await?;
    let body = value.split_off(IN_FRONT.min(value.len()));
    Ok(Answer { status: 201, body }.first())
}
