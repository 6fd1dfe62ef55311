//! From an answer to a response.
//!
//! Invariant: a stored reply is sent with its own status, headers and bytes, and only a replay carries the marks of one.

use std::borrow::Cow;
use std::time::{Duration, UNIX_EPOCH};

use actix_web::HttpResponse;
use actix_web::http::header::{self, HeaderName, HeaderValue, HttpDate};
use actix_web::http::{Method, StatusCode};
use actix_web::web::Bytes;
use serde_json::json;
use uuid::Uuid;

use crate::answer::{Answer, Tier};
use crate::problem::Problem;
use crate::problems;
use crate::reply::Finished;

/// The headers of answers that a browser of another origin must be allowed to see.
pub const EXPOSED_HEADERS: [&str; 11] = [
    "idempotent-replayed",
    "x-cache-lookup",
    "idempotency-expires",
    "x-request-id",
    "original-request-id",
    "location",
    "retry-after",
    "preference-applied",
    "link",
    "etag",
    "allow",
];
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
const EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
const ORIGINAL_REQUEST_ID: HeaderName = HeaderName::from_static("original-request-id");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const CACHE_LOOKUP: HeaderName = HeaderName::from_static("x-cache-lookup");
/// Names the request in its answer, in logs and in the problem that it met.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

pub(super) fn answer(answer: Answer, request_id: Uuid) -> HttpResponse {
    let problem = match answer {
        Answer::First { finished } => return stored(finished, request_id),
        Answer::Replay { finished, tier } => {
            let original = finished.request_id;
            let mut response = stored(finished, request_id);
            let headers = response.headers_mut();
            headers.insert(ORIGINAL_REQUEST_ID, id_value(original));
            headers.insert(REPLAYED, HeaderValue::from_static("true"));
            match tier {
                Tier::Hit => headers.insert(CACHE_LOOKUP, HeaderValue::from_static("HIT")),
                Tier::Miss => headers.insert(CACHE_LOOKUP, HeaderValue::from_static("MISS")),
                // No store was asked.
                Tier::Memory => return response,
            };
            return response;
        }
        Answer::InProgress => {
            problems::REQUEST_IN_PROGRESS.because("a request with this key is being worked on")
        }
        Answer::Accepted { operation } => {
            return HttpResponse::Accepted()
                .insert_header((header::LOCATION, operation_path(operation)))
                .insert_header((REQUEST_ID, request_id.to_string()))
                .json(json!({ "id": operation, "state": "running", "response": null }));
        }
        Answer::OutcomeUnknown { operation } => problems::OUTCOME_UNKNOWN
            .because("nobody knows what became of a call to another service")
            .at(Some(operation_path(operation))),
        Answer::Diverged => problems::WORKFLOW_CHANGED
            .because("this version of the service cannot go on with what another one has begun"),
        Answer::Interrupted => {
            problems::INTERNAL.because("a step failed and was rolled back; what was done before it is kept")
        }
        Answer::CallerBusy => problems::CALLER_BUSY.because("another operation of this caller is running"),
        Answer::Reused => problems::KEY_REUSED
            .because("this key was first sent with another method, path or body than this one"),
        Answer::AlreadyCompleted { location } => {
            problems::ALREADY_COMPLETED.because("the work under this key was done before").at(location)
        }
        Answer::Unavailable(why) => problems::TEMPORARILY_UNAVAILABLE.because(why),
        Answer::Overloaded => problems::OVERLOADED.because("too many requests wait for a running one"),
        Answer::Internal => problems::INTERNAL.because("the work was rolled back and nothing was stored"),
    };
    problem_response(&problem, request_id)
}

/// Says what of the caller's preferences was applied: how long it waited at most, in whole seconds; whether it was answered at once.
pub(super) fn preference_applied(response: &mut HttpResponse, waited: Option<Duration>, at_once: bool) {
    if waited.is_none() && !at_once {
        return;
    }
    let waited = waited.map(|patience| format!("wait={}", patience.as_secs()));
    let applied: Vec<String> =
        at_once.then(|| "respond-async".to_owned()).into_iter().chain(waited).collect();
    if let Ok(value) = HeaderValue::from_str(&applied.join(", ")) {
        response.headers_mut().insert(PREFERENCE_APPLIED, value);
    }
}

/// Where an operation is looked at.
pub(super) fn operation_path(operation: Uuid) -> String {
    format!("{}/{operation}", super::operation::PATH)
}

fn stored(finished: Finished, request_id: Uuid) -> HttpResponse {
    let Finished { reply, expires_ms, .. } = finished;
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut builder = HttpResponse::build(status);
    let mut response = if reply.body.is_empty() { builder.finish() } else { builder.body(reply.body) };
    let headers = response.headers_mut();
    for (name, value) in reply.headers {
        let value = match value {
            Cow::Borrowed(known) => HeaderValue::from_str(known),
            Cow::Owned(value) => HeaderValue::from_maybe_shared(Bytes::from(value)),
        };
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), value) {
            headers.insert(name, value);
        }
    }
    headers.insert(REQUEST_ID, id_value(request_id));
    let expires = UNIX_EPOCH + Duration::from_millis(u64::try_from(expires_ms).unwrap_or(0));
    if let Ok(expires) = HeaderValue::from_maybe_shared(Bytes::from(HttpDate::from(expires).to_string())) {
        headers.insert(EXPIRES, expires);
    }
    response
}

/// Without a text of its own in between.
fn id_value(id: Uuid) -> HeaderValue {
    let mut text = Uuid::encode_buffer();
    HeaderValue::from_str(id.hyphenated().encode_lower(&mut text))
        .unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// A problem as `application/problem+json`, with the headers that go with it.
pub fn problem_response(problem: &Problem, request_id: Uuid) -> HttpResponse {
    let status = StatusCode::from_u16(problem.kind.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut builder = HttpResponse::build(status);
    builder
        .insert_header((header::CONTENT_TYPE, "application/problem+json"))
        .insert_header((header::LINK, format!("</problems/{}>; rel=\"describedby\"", problem.kind.code)))
        .insert_header((REQUEST_ID, request_id.to_string()));
    if let Some(seconds) = problem.retry_after_seconds() {
        builder.insert_header((header::RETRY_AFTER, seconds.to_string()));
    }
    if let Some(location) = &problem.location {
        builder.insert_header((header::LOCATION, location.as_str()));
    }
    if status == StatusCode::UNAUTHORIZED {
        builder.insert_header((header::WWW_AUTHENTICATE, "Bearer"));
    }
    builder.body(problem.body(request_id))
}

/// 404 for a path that nothing is registered for.
pub async fn fallback_not_found() -> HttpResponse {
    problem_response(&problems::NOT_FOUND.because("there is nothing at this path"), Uuid::now_v7())
}

/// 405 with the methods that the path takes.
pub fn method_not_allowed(allowed: &[Method]) -> impl Future<Output = HttpResponse> + use<> {
    let allowed = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
    async move {
        let detail = format!("this path takes {allowed}");
        let problem = problems::METHOD_NOT_ALLOWED.because(detail);
        let mut response = problem_response(&problem, Uuid::now_v7());
        if let Ok(value) = HeaderValue::from_str(&allowed) {
            response.headers_mut().insert(header::ALLOW, value);
        }
        response
    }
}
