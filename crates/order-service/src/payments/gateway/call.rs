//! One HTTP call: sent once, bounded in time and size, and judged by what its failure proves.
//!
//! Knows HTTP and the gateway's error envelope, no object. Invariant: a failure after the first byte may have been sent
//! is never taken for "nothing happened".

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, RequestBuilder, StatusCode, redirect, retry};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::{Host, Url, form_urlencoded};

use super::CallError;
use crate::config::Secret;

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// How long an idle connection is kept: less than any gateway does.
const IDLE_MAX: Duration = Duration::from_secs(20);
/// Largest answer that is read, in bytes.
const ANSWER_MAX: usize = 1024 * 1024;
const FORM: &str = "application/x-www-form-urlencoded";

/// Where calls go, and how.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    client: Client,
    root: Url,
}

/// An answer that settles the call.
pub(super) enum Answer {
    Object(Vec<u8>),
    /// 402.
    Declined(ErrorBody),
    /// 400, from a gateway that has understood who asks.
    Invalid(ErrorBody),
}

/// The gateway's error, without what we do not use.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ErrorBody {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default, deserialize_with = "or_empty")]
    pub(super) code: String,
    pub(super) decline_code: Option<String>,
    #[serde(default, deserialize_with = "or_empty")]
    pub(super) message: String,
}

impl fmt::Display for ErrorBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.kind, self.code, self.message)
    }
}

fn or_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Option::<String>::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl Endpoint {
    pub(super) fn new(root: Url, key: &Secret, timeout: Duration) -> Result<Self, String> {
        let mut authorization = HeaderValue::try_from(format!("Bearer {}", key.expose()))
            .map_err(|_| "GATEWAY_KEY holds what no header may".to_owned())?;
        authorization.set_sensitive(true);
        // The client asks the process for its TLS provider. A second installation is refused, and the first is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .connect_timeout(CONNECT_MAX)
            .timeout(timeout)
            .pool_idle_timeout(IDLE_MAX)
            // A redirect would carry the key elsewhere, and a retry is the workflow's decision.
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .user_agent(concat!("order-service/", env!("CARGO_PKG_VERSION")))
            .default_headers(HeaderMap::from_iter([(AUTHORIZATION, authorization)]));
        if root.scheme() == "http" {
            // No certificates of the system are needed, and a slim image has none.
            builder = builder.tls_certs_only([]);
        }
        if is_loopback(&root) {
            builder = builder.no_proxy();
        }
        let client =
            builder.build().map_err(|error| format!("no HTTPS client can be made: {}", told(error)))?;
        Ok(Self { client, root })
    }

    /// A write under an idempotency key.
    pub(super) async fn post(
        &self,
        path: &[&str],
        key: &str,
        form: &[(String, &str)],
    ) -> Result<Answer, CallError> {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = self.client.post(self.url(path)).header("idempotency-key", key);
        let (status, body) = send(request.header(CONTENT_TYPE, FORM).body(body)).await?;
        match status {
            StatusCode::PAYMENT_REQUIRED => error_body(&body).map(Answer::Declined),
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => match error_body(&body) {
                Ok(error) => Ok(Answer::Invalid(error)),
                Err(_) => Err(CallError::Refused(status.to_string())),
            },
            _ => Ok(Answer::Object(body)),
        }
    }

    pub(super) async fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Vec<u8>, CallError> {
        let mut url = self.url(path);
        url.query_pairs_mut().extend_pairs(query);
        let (status, body) = send(self.client.get(url)).await?;
        if status.is_success() { Ok(body) } else { Err(CallError::Refused(refusal(status, &body))) }
    }

    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.root.clone();
        url.path_segments_mut().expect("an http URL").pop_if_empty().push("v1").extend(path);
        url
    }
}

/// Sends it once. What comes back with a status is 2xx, 400, 402 or 404.
async fn send(request: RequestBuilder) -> Result<(StatusCode, Vec<u8>), CallError> {
    let mut response = request.send().await.map_err(unsent)?;
    let status = response.status();
    let retry_after = retry_after(response.headers());
    let mut body = Vec::new();
    let read: Result<(), CallError> = async {
        while let Some(part) = response
            .chunk()
            .await
            .map_err(|error| CallError::Unknown(format!("{status}, then {}", told(error))))?
        {
            if body.len() + part.len() > ANSWER_MAX {
                return Err(CallError::Unknown(format!("{status} with more than {ANSWER_MAX} bytes")));
            }
            body.extend_from_slice(&part);
        }
        Ok(())
    }
    .await;
    match status {
        _ if status.is_success()
            || matches!(
                status,
                StatusCode::BAD_REQUEST | StatusCode::PAYMENT_REQUIRED | StatusCode::NOT_FOUND
            ) =>
        {
            read.map(|()| (status, body))
        }
        StatusCode::TOO_MANY_REQUESTS => Err(CallError::NotDone { why: refusal(status, &body), retry_after }),
        StatusCode::CONFLICT => Err(CallError::InProgress(refusal(status, &body))),
        // A gateway that gave up on us may have given up in the middle.
        StatusCode::REQUEST_TIMEOUT => Err(CallError::Unknown(refusal(status, &body))),
        _ if status.is_server_error() => Err(CallError::Unknown(refusal(status, &body))),
        _ => Err(CallError::Refused(refusal(status, &body))),
    }
}

/// No answer came.
fn unsent(error: reqwest::Error) -> CallError {
    if error.is_connect() {
        // Nothing is written before there is a connection.
        CallError::NotDone { why: told(error), retry_after: None }
    } else if error.is_builder() {
        CallError::Refused(told(error))
    } else {
        CallError::Unknown(told(error))
    }
}

/// Reads an object of a settled call.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, CallError> {
    serde_json::from_slice(body)
        .map_err(|error| CallError::Unknown(format!("the answer cannot be read: {error}")))
}

/// Reads the envelope; an answer without one is not the gateway's, so it settles nothing.
fn error_body(body: &[u8]) -> Result<ErrorBody, CallError> {
    #[derive(Deserialize)]
    struct Envelope {
        error: ErrorBody,
    }
    read::<Envelope>(body).map(|envelope| envelope.error)
}

fn refusal(status: StatusCode, body: &[u8]) -> String {
    match error_body(body) {
        Ok(error) => format!("{status}, {error}"),
        Err(_) => status.to_string(),
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

/// The error and its causes, without the URL.
fn told(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}
