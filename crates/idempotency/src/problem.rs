//! Problems (RFC 9457): what a caller reads when the answer is no, and the page behind each code.
//!
//! Knows no HTTP framework. Invariant: a problem can only be made from a [`ProblemKind`], which has its page; `detail`
//! is written for the caller and never carries an internal error.

use serde::Serialize;

use crate::reply::{Header, StoredReply};

/// Longest detail, in characters.
const DETAIL_MAX: usize = 300;

/// What a client should do with the key of the refused request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SameKey {
    /// Send the same request with the same key again.
    Yes,
    /// This key is used up.
    No,
    /// Correct the request, then the same key may be used.
    Corrected,
    /// The key belongs to the payload that it was first sent with.
    FirstPayload,
    /// The answer is final and will be replayed.
    Final,
}

impl SameKey {
    fn word(self) -> Option<&'static str> {
        match self {
            Self::Yes => Some("yes"),
            Self::No => Some("no"),
            Self::Corrected => Some("corrected"),
            Self::FirstPayload => Some("first-payload"),
            Self::Final => None,
        }
    }
}

/// One kind of problem: a code, its meaning, and what a client may do. Declared once, as a constant.
#[derive(Debug)]
pub struct ProblemKind {
    /// Stable, machine-readable; also the last segment of `type`.
    pub code: &'static str,
    /// HTTP status.
    pub status: u16,
    /// One line for people.
    pub title: &'static str,
    /// Whether repeating can help.
    pub retryable: bool,
    /// What to do with the key.
    pub same_key: SameKey,
    /// Whether a new key is safe: only where no attempt under this key had or can have an effect.
    pub new_key_safe: bool,
    /// How long to wait before repeating, in ms; 0 where it does not apply.
    pub retry_after_ms: u64,
    /// The page: what happened, and what to do.
    pub page: &'static str,
}

impl ProblemKind {
    /// The kind of a business rule's refusal: final, stored and replayed, and nothing was done under its key.
    pub const fn rejection(code: &'static str, status: u16, title: &'static str, page: &'static str) -> Self {
        Self {
            code,
            status,
            title,
            retryable: false,
            same_key: SameKey::Final,
            new_key_safe: true,
            retry_after_ms: 0,
            page,
        }
    }

    /// A problem of this kind.
    pub fn because(&'static self, detail: impl Into<String>) -> Problem {
        let mut detail = detail.into();
        // It may quote the caller, who may have sent a lot.
        if let Some((end, _)) = detail.char_indices().nth(DETAIL_MAX) {
            detail.truncate(end);
            detail.push('…');
        }
        Problem { kind: self, detail, location: None }
    }
}

/// A problem that can be answered.
#[derive(Debug, Clone)]
pub struct Problem {
    /// What kind.
    pub kind: &'static ProblemKind,
    /// What happened this time, for the caller.
    pub detail: String,
    /// Where the result is, as a path.
    pub location: Option<String>,
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    instance: String,
    code: &'a str,
    retryable: bool,
    same_key: Option<&'a str>,
    new_key_safe: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl Problem {
    /// Adds where the result is.
    #[must_use]
    pub fn at(mut self, location: Option<String>) -> Self {
        self.location = location;
        self
    }

    /// The `application/problem+json` body; `request_id` becomes `instance`.
    pub fn body(&self, request_id: uuid::Uuid) -> Vec<u8> {
        let kind = self.kind;
        let body = Body {
            r#type: format!("/problems/{}", kind.code),
            title: kind.title,
            status: kind.status,
            detail: &self.detail,
            instance: format!("urn:uuid:{request_id}"),
            code: kind.code,
            retryable: kind.retryable,
            same_key: kind.same_key.word(),
            new_key_safe: kind.new_key_safe,
            retry_after_ms: (kind.retry_after_ms > 0).then_some(kind.retry_after_ms),
        };
        // Strings, numbers and booleans: this cannot fail.
        serde_json::to_vec(&body).unwrap_or_default()
    }

    /// The problem as a reply that can be stored and sent again.
    pub(crate) fn seal(&self, request_id: uuid::Uuid) -> StoredReply {
        let mut headers: Vec<Header> = vec![
            ("content-type".into(), "application/problem+json".into()),
            ("link".into(), format!("</problems/{}>; rel=\"describedby\"", self.kind.code).into()),
        ];
        if let Some(location) = &self.location {
            headers.push(("location".into(), location.clone().into()));
        }
        StoredReply { status: self.kind.status, headers, body: self.body(request_id) }
    }

    /// `Retry-After` in whole seconds, at least 1, where it applies.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        (self.kind.retry_after_ms > 0).then(|| self.kind.retry_after_ms.div_ceil(1000))
    }
}
