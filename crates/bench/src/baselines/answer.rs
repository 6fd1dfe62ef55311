//! What a baseline answers, and how it keeps an answer in Redis.
//!
//! Knows statuses and bytes. Knows no work and no store. Invariant: what is decoded is what was encoded, to the byte.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, RETRY_AFTER};
use deadpool_postgres::PoolError;

use super::line::LineError;
use crate::work::Refusal;
use crate::work::gateway::ChargeError;

/// A response that may be kept and given again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

/// Where a replay came from, for its headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Redis,
    Postgres,
}

impl Answer {
    pub fn created(body: &impl serde::Serialize) -> Result<Self, serde_json::Error> {
        Ok(Self { status: 201, body: serde_json::to_vec(body)? })
    }

    /// Status and body in one text, behind which nothing may follow.
    pub fn encode(&self) -> Vec<u8> {
        [self.status.to_string().as_bytes(), b"\n", &self.body].concat()
    }

    /// `None` for what [`Answer::encode`] did not write.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let status = std::str::from_utf8(&bytes[..end]).ok()?.parse().ok()?;
        Some(Self { status, body: bytes[end + 1..].to_vec() })
    }

    pub fn first(self) -> HttpResponse {
        self.response(None)
    }

    pub fn replayed(self, source: Source) -> HttpResponse {
        self.response(Some(source))
    }

    fn response(self, replayed: Option<Source>) -> HttpResponse {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = HttpResponse::build(status);
        response.insert_header((CONTENT_TYPE, "application/json"));
        if let Some(source) = replayed {
            let found = if source == Source::Redis { "HIT" } else { "MISS" };
            response.insert_header(("Idempotent-Replayed", "true")).insert_header(("X-Cache-Lookup", found));
        }
        response.body(self.body)
    }
}

/// Why there is no answer of the handler.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("no valid API key")]
    Unauthenticated,
    #[error("{0}")]
    Invalid(String),
    #[error("{}: {}", .0.code, .0.detail)]
    Refused(Refusal),
    #[error("the first request with this key is running")]
    Running,
    #[error("this key was used with another request")]
    Reused,
    #[error("PostgreSQL: {0}")]
    Postgres(#[from] tokio_postgres::Error),
    #[error("no connection to PostgreSQL: {0}")]
    Pool(#[from] PoolError),
    #[error(transparent)]
    Redis(#[from] LineError),
    #[error(transparent)]
    Gateway(#[from] ChargeError),
    #[error("JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("internal: {0}")]
    Internal(&'static str),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Failure {
    fn status(&self) -> StatusCode {
        match self {
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Refused(_) | Self::Reused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Running => StatusCode::CONFLICT,
            Self::Pool(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Postgres(_) | Self::Redis(_) | Self::Gateway(_) | Self::Json(_) | Self::Internal(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    pub fn response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status());
        if matches!(self, Self::Running) {
            response.insert_header((RETRY_AFTER, "1"));
        }
        response.json(serde_json::json!({ "error": self.to_string() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_back_byte_for_byte() {
        let answer = Answer { status: 201, body: b"{\"a\":1.10,\n\"b\":\"\xc3\xa9\"}\n".to_vec() };
        assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        assert_eq!(Answer::decode(b"no status\nbody"), None);
        assert_eq!(Answer::decode(b"201"), None);
    }
}
