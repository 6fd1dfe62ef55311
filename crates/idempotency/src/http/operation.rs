//! An operation: a workflow seen from outside, while it runs and afterwards.
//!
//! Knows the record; executes nothing. Invariant: a caller sees its own operations only, and the response in one is the stored
//! answer, byte for byte.

use std::time::Duration;

use actix_web::http::{Method, header};
use actix_web::{HttpRequest, HttpResponse, Resource, guard, web};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::respond::{self, method_not_allowed, problem_response};
use super::{Authenticator, REQUEST_ID};
use crate::engine::Engine;
use crate::id::Id;
use crate::problem::Problem;
use crate::problems;
use crate::record::{Record, Status};
use crate::reply::Finished;

/// Where operations are.
pub(super) const PATH: &str = "/v1/operations";

/// `GET /v1/operations/{id}`: one of the caller's operations. With `Prefer: wait=N` it polls until the work is finished.
pub fn operation() -> Resource {
    super::resource(&format!("{PATH}/{{id}}"))
        .route(web::route().guard(guard::Any(guard::Get()).or(guard::Head())).to(look))
        .default_service(web::route().to(|| method_not_allowed(&[Method::GET, Method::HEAD])))
}

async fn look(
    request: HttpRequest,
    id: web::Path<String>,
    engine: web::Data<Engine>,
    authenticator: web::Data<Authenticator>,
) -> HttpResponse {
    let request_id = Uuid::now_v7();
    let waits = super::status::waits(&request, &engine);
    let mut response = match find(&request, &id, &engine, &authenticator, waits.unwrap_or_default()).await {
        Ok(record) => HttpResponse::Ok()
            .insert_header((REQUEST_ID, request_id.to_string()))
            .insert_header((header::CONTENT_TYPE, "application/json"))
            .body(describe(&record)),
        Err(problem) => problem_response(&problem, request_id),
    };
    respond::preference_applied(&mut response, waits, false);
    response
}

async fn find(
    request: &HttpRequest,
    id: &str,
    engine: &Engine,
    authenticator: &Authenticator,
    patience: Duration,
) -> Result<Record, Problem> {
    let account = authenticator.authenticate(request).await?;
    let not_found = || problems::NOT_FOUND.because("there is no operation with this id");
    let id: Id = id.parse().map_err(|_| not_found())?;
    let found = engine.operation(account, id.0, patience).await;
    let found = found
        .map_err(|_| problems::TEMPORARILY_UNAVAILABLE.because("the database could not be asked in time"))?;
    found.filter(|record| !record.is_forgotten()).ok_or_else(not_found)
}

/// The body is put together by hand, so that the stored one is in it as it is.
fn describe(record: &Record) -> Vec<u8> {
    let state = match record.status {
        Status::InProgress if record.is_settled() => "unknown",
        Status::InProgress => "running",
        Status::Completed => "succeeded",
        Status::Failed => "failed",
    };
    let mut text = format!(r#"{{"id":"{}","state":"{state}","response":"#, record.request_id).into_bytes();
    let kept = |finished: &&Finished| finished.kept && record.now_ms < finished.expires_ms;
    match record.finished.as_ref().filter(kept) {
        None => text.extend_from_slice(b"null"),
        Some(Finished { reply, .. }) => {
            let headers: Map<String, Value> =
                reply.headers.iter().map(|(name, value)| (name.to_string(), value.as_ref().into())).collect();
            let head = format!(r#"{{"status":{},"headers":{},"body":"#, reply.status, Value::Object(headers));
            text.extend_from_slice(head.as_bytes());
            // Every stored body is JSON, or nothing.
            text.extend_from_slice(if reply.body.is_empty() { b"null" } else { &reply.body });
            text.push(b'}');
        }
    }
    text.push(b'}');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::Asked;
    use crate::generation::Generation;
    use crate::reply::StoredReply;

    #[test]
    fn the_stored_body_is_in_it_as_it_is() {
        let mut record = Record {
            fingerprint: Asked::nothing().current,
            status: Status::InProgress,
            finished: None,
            request_id: Uuid::nil(),
            workflow: None,
            key_expires_ms: 2,
            now_ms: 1,
            generation: Generation(1),
        };
        let id = Uuid::nil();
        let said = |record: &Record| String::from_utf8(describe(record)).unwrap();
        assert_eq!(said(&record), format!(r#"{{"id":"{id}","state":"running","response":null}}"#));
        let headers = vec![("content-type".into(), "application/json".into())];
        let body = br#"{ "n": 1.0,  "a": [] }"#.to_vec();
        let reply = StoredReply { status: 201, headers, body };
        record.status = Status::Completed;
        record.finished = Some(Finished { reply, kept: true, request_id: id, expires_ms: 2 });
        let expected = format!(
            r#"{{"id":"{id}","state":"succeeded","response":{{"status":201,"headers":{{"content-type":"application/json"}},"body":{{ "n": 1.0,  "a": [] }}}}}}"#
        );
        assert_eq!(said(&record), expected);
        record.now_ms = 3;
        assert!(said(&record).ends_with(r#""response":null}"#), "spent");
    }
}
