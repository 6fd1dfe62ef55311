//! What has become of a key, and the policy in force: for clients that want to know without sending anything again.
//!
//! Knows the record and the place in Redis; executes nothing. Invariant: a caller learns of its own keys only.

use std::time::Duration;

use actix_web::http::{Method, header};
use actix_web::{HttpRequest, HttpResponse, Resource, guard, web};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use super::respond::{self, method_not_allowed, problem_response};
use super::{Authenticator, REQUEST_ID};
use crate::attempt::Attempt;
use crate::engine::Engine;
use crate::fingerprint;
use crate::inquiry::Inquired;
use crate::key::{IdempotencyKey, KEY_LEN_MAX};
use crate::policy::{OnDuplicate, Policy};
use crate::prefer::Preferences;
use crate::problem::Problem;
use crate::problems;
use crate::record::{Record, Status};
use crate::reply::Finished;

/// `GET {path}/{key}`: the state of one of the caller's keys. With `Prefer: wait=N` it polls until the work is finished.
pub fn key_status(path: &str) -> Resource {
    web::resource(format!("{path}/{{key}}"))
        .route(web::route().guard(guard::Any(guard::Get()).or(guard::Head())).to(status))
        .default_service(web::route().to(|| method_not_allowed(&[Method::GET, Method::HEAD])))
}

/// `GET {path}`: the policy in force.
pub fn policy(path: &str) -> Resource {
    super::resource(path)
        .route(web::route().guard(guard::Any(guard::Get()).or(guard::Head())).to(tell_policy))
        .default_service(web::route().to(|| method_not_allowed(&[Method::GET, Method::HEAD])))
}

async fn status(
    request: HttpRequest,
    engine: web::Data<Engine>,
    authenticator: web::Data<Authenticator>,
) -> HttpResponse {
    let request_id = Uuid::now_v7();
    let waits = waits(&request, &engine);
    let mut response = match look(&request, &engine, &authenticator, waits.unwrap_or_default()).await {
        Ok(state) => HttpResponse::Ok().insert_header((REQUEST_ID, request_id.to_string())).json(state),
        Err(problem) => problem_response(&problem, request_id),
    };
    respond::preference_applied(&mut response, waits, false);
    response
}

/// How long whoever only asks wants to wait, within the limits.
pub(super) fn waits(request: &HttpRequest, engine: &Engine) -> Option<Duration> {
    let lines = request.headers().get_all(&super::PREFER).map(header::HeaderValue::as_bytes);
    Preferences::parse(lines).wait.map(|wanted| wanted.min(engine.policy().wait_max))
}

async fn look(
    request: &HttpRequest,
    engine: &Engine,
    authenticator: &Authenticator,
    patience: Duration,
) -> Result<Value, Problem> {
    let account = authenticator.authenticate(request).await?;
    // The segment as it was sent: the router leaves some escapes alone.
    let raw = request.uri().path().rsplit('/').next().unwrap_or_default();
    let not_seen = || problems::KEY_NOT_SEEN.because("no work under this key is finished");
    let key = decode(raw).and_then(|text| IdempotencyKey::from_text(&text)).ok_or_else(not_seen)?;
    let found = engine.inquire(&Attempt::inquiry(account, key), patience).await;
    match found
        .map_err(|_| problems::TEMPORARILY_UNAVAILABLE.because("the database could not be asked in time"))?
    {
        Some(Inquired::Record(record)) => Ok(describe(&record)),
        Some(Inquired::Running) => {
            Ok(json!({ "state": "running", "expires_at": null, "links": {}, "attempts": null }))
        }
        None => Err(not_seen()),
    }
}

fn describe(record: &Record) -> Value {
    let state = match record.status {
        Status::InProgress if record.is_settled() => "unknown",
        Status::InProgress => "running",
        Status::Completed => "completed",
        Status::Failed => "failed",
    };
    let finished = record.finished.as_ref();
    let expires = finished.and_then(|finished| {
        let moment =
            OffsetDateTime::from_unix_timestamp_nanos(i128::from(finished.expires_ms) * 1_000_000).ok()?;
        moment.format(&Rfc3339).ok()
    });
    let mut links = serde_json::Map::new();
    if let Some(location) = finished.and_then(Finished::location) {
        links.insert("result".to_owned(), location.into());
    }
    if record.workflow.is_some() {
        links.insert("operation".to_owned(), respond::operation_path(record.request_id).into());
    }
    let attempts = record.workflow.map(|workflow| workflow.attempts);
    json!({ "state": state, "expires_at": expires, "links": links, "attempts": attempts })
}

/// Percent-decodes one segment.
fn decode(segment: &str) -> Option<String> {
    let mut bytes = segment.bytes();
    let mut text = Vec::with_capacity(segment.len());
    while let Some(byte) = bytes.next() {
        text.push(if byte == b'%' {
            let digits = [bytes.next()?, bytes.next()?];
            u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
        } else {
            byte
        });
    }
    String::from_utf8(text).ok()
}

async fn tell_policy(engine: web::Data<Engine>) -> HttpResponse {
    let request_id = Uuid::now_v7().to_string();
    HttpResponse::Ok().insert_header((REQUEST_ID, request_id)).json(describe_policy(engine.policy()))
}

fn describe_policy(policy: &Policy) -> Value {
    let seconds = |span: Duration| span.as_secs_f64();
    json!({
        "header": "Idempotency-Key",
        "required_on": ["POST"],
        "format": {
            "length_max": KEY_LEN_MAX,
            "bare": "printable ASCII without space, comma, semicolon or double quote",
            "quoted": "a structured-field string (RFC 9651): the same key as its bare characters",
        },
        "scope": "account",
        "fingerprint": {
            "version": fingerprint::VERSION,
            "over": ["method", "path with query", "operation", "canonical JSON body"],
        },
        "duplicate_of_running": {
            "default": match policy.on_duplicate { OnDuplicate::Reject => "reject", OnDuplicate::Wait => "wait" },
            "prefer": "wait=N",
            "wait_max_seconds": seconds(policy.wait_max),
        },
        "retention": {
            "result_seconds": seconds(policy.result_retention),
            "key_seconds": seconds(policy.key_retention),
        },
        "stored": {
            "headers": ["content-type", "location", "link"],
            "body_max_bytes": policy.stored_body_max,
        },
        "request_body_max_bytes": policy.body_max,
        "execute_max_seconds": seconds(policy.execute_max),
        "workflows": {
            "prefer": "respond-async",
            "inline_max_seconds": seconds(policy.inline_max),
            "stuck_after_seconds": seconds(policy.stuck_after),
            "operations": super::operation::PATH,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_decoded_once() {
        assert_eq!(decode("a%2Fb%2520c").as_deref(), Some("a/b%20c"));
        for bad in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
