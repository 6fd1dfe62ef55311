//! The request body, within its limits.
//!
//! Knows media types, sizes and slow clients. Invariant: at most the limit is ever held in memory, and no client can hold
//! a request open for longer than [`READ_MAX`].

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::http::header;
use futures_util::StreamExt as _;

use crate::problem::Problem;
use crate::problems;

/// How long a body may take to arrive.
const READ_MAX: Duration = Duration::from_secs(30);
/// How long an unwanted body is read and dropped.
const DRAIN_FOR: Duration = Duration::from_secs(10);
/// Most bytes of an unwanted body that are read and dropped, so that the client comes to read the answer.
const DRAIN_MAX: usize = 20 * 1024 * 1024;

/// Reads a JSON body; without body and media type it is `{}`.
pub(super) async fn read_json(
    request: &HttpRequest,
    payload: &mut Payload,
    max: usize,
) -> Result<Vec<u8>, Problem> {
    let length = declared_length(request);
    let has_body =
        length.is_some_and(|length| length > 0) || request.headers().contains_key("transfer-encoding");
    let typed = request.headers().contains_key(header::CONTENT_TYPE);
    if !has_body && !typed {
        return Ok(b"{}".to_vec());
    }
    check_media_type(request)?;
    let too_large = || problems::BODY_TOO_LARGE.because(format!("the body is larger than {max} bytes"));
    if length.is_some_and(|length| length > max as u64) {
        return Err(too_large());
    }
    let reading = async {
        let mut body = Vec::with_capacity(length.map_or(0, |length| usize::try_from(length).unwrap_or(0)));
        while let Some(chunk) = payload.next().await {
            let chunk = chunk.map_err(|_| problems::INVALID_REQUEST.because("the body was cut off"))?;
            if body.len() + chunk.len() > max {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    };
    tokio::time::timeout(READ_MAX, reading).await.unwrap_or_else(|_| {
        Err(problems::REQUEST_TIMEOUT
            .because(format!("the body did not arrive within {} s", READ_MAX.as_secs())))
    })
}

/// Drops what is left of a body that nobody wants, unless the client waits to be asked for it (`Expect`).
pub(super) async fn drain(request: &HttpRequest, payload: &mut Payload) {
    if request.headers().contains_key(header::EXPECT) {
        return;
    }
    let mut left = DRAIN_MAX;
    let dropping = async {
        while let Some(Ok(chunk)) = payload.next().await {
            left = left.saturating_sub(chunk.len());
            if left == 0 {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN_FOR, dropping).await;
}

fn declared_length(request: &HttpRequest) -> Option<u64> {
    request.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

fn check_media_type(request: &HttpRequest) -> Result<(), Problem> {
    let mut types = request.headers().get_all(header::CONTENT_TYPE);
    let is_json = match (types.next(), types.next()) {
        // As nearly everybody writes it.
        (Some(only), None) if only.as_bytes() == b"application/json" => true,
        (Some(only), None) => only.to_str().is_ok_and(|value| {
            value
                .split(';')
                .next()
                .is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
        }),
        _ => false,
    };
    if !is_json {
        return Err(problems::UNSUPPORTED_MEDIA_TYPE
            .because("the body must be sent as Content-Type: application/json"));
    }
    let encoded = request
        .headers()
        .get_all(header::CONTENT_ENCODING)
        .any(|value| !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity"));
    if encoded {
        return Err(
            problems::UNSUPPORTED_MEDIA_TYPE.because("the body must be sent without Content-Encoding")
        );
    }
    Ok(())
}
