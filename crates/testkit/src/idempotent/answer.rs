//! An answer as it is compared, and whether it is final.
//!
//! Knows what the protocol tells every client: 202 and a problem that says `retryable` are not final. Knows no route. Invariant: of
//! the answers that are not final, only those pass that say "it runs" or "not now"; an unexpected failure is one, whatever follows.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{BOUND, Subject};
use crate::http::{self, Response};
use crate::wait::until;

/// Accepted and running, running or unknown, not now.
const COME_AGAIN: [u16; 3] = [202, 409, 503];

/// Whether a client that got it has no reason to send the request again. Panics if it is neither final nor an invitation to come
/// again.
pub(super) fn is_final(answer: &Response, what: &str) -> bool {
    let is_final = match answer.status {
        202 => false,
        200..=299 => true,
        _ => serde_json::from_slice::<Value>(&answer.body).is_ok_and(|body| body["retryable"] == false),
    };
    let expected = is_final || COME_AGAIN.contains(&answer.status);
    assert!(expected, "{what}: an unexpected failure: {}", shown(answer));
    is_final
}

/// Status, whether it is a replay, and the body.
pub(super) fn shown(answer: &Response) -> Value {
    let body = serde_json::from_slice(&answer.body).unwrap_or_else(|_| Value::from(answer.text()));
    let replayed = answer.header("idempotent-replayed") == Some("true");
    json!({ "status": answer.status, "replayed": replayed, "location": answer.header("location"), "body": body })
}

/// Sends the request until it is answered finally, as a client does.
pub(super) async fn settled<S: Subject>(
    subject: &S,
    case: &S::Case,
    api: SocketAddr,
    what: &str,
) -> Response {
    let request = subject.request(case);
    let (request, awaited) = (&request, format!("{what}: a final answer by plain retries"));
    until(&awaited, BOUND, || async move {
        http::send(api, request).await.ok().filter(|answer| is_final(answer, what))
    })
    .await
}
