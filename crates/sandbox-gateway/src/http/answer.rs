//! What goes over the wire: answers, refusals, and the ways to give neither.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::HttpResponse;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::http::StatusCode;
use actix_web::web::Bytes;

use crate::books::Outcome;
use crate::fault::Fault;
use crate::refusal::Refusal;

/// When a caller that was told 429 may come again, in seconds.
const RETRY_AFTER: u64 = 1;
/// Marks the answer of an earlier request with the same key.
const REPLAYED: (&str, &str) = ("idempotent-replayed", "true");

pub(super) fn outcome(outcome: &Outcome, replayed: bool) -> HttpResponse {
    let (status, body) = outcome.answer();
    let mut response = HttpResponse::build(status_code(status));
    if replayed {
        response.insert_header(REPLAYED);
    }
    response.json(body)
}

pub(super) fn refusal(refusal: &Refusal) -> HttpResponse {
    let mut response = HttpResponse::build(status_code(refusal.status));
    if refusal.status == 429 {
        response.insert_header(("retry-after", RETRY_AFTER.to_string()));
    }
    response.json(refusal.body())
}

fn status_code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).expect("statuses are written in this crate")
}

/// Lets a fault happen; nothing if the request goes on after it.
pub(super) async fn strike(fault: Fault) -> Option<HttpResponse> {
    match fault {
        Fault::Slow(delay) => {
            tokio::time::sleep(delay).await;
            None
        }
        Fault::Cut(_) => Some(HttpResponse::Ok().body(BoxBody::new(Cut))),
        // The caller's leaving ends it.
        Fault::Hang(_) => std::future::pending().await,
        Fault::Status(status, _) => Some(refusal(&Refusal::injected(status))),
    }
}

/// A body that fails at once: the server closes the connection before it has flushed the head.
struct Cut;

impl MessageBody for Cut {
    type Error = io::Error;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        Poll::Ready(Some(Err(io::Error::other("cut on purpose"))))
    }
}
