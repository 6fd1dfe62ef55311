//! What a command answers, and the same as bytes that can be stored.
//!
//! Knows which headers may be kept and how a reply is laid out in Redis. Knows nothing of HTTP frameworks. Invariant:
//! a stored reply decodes to exactly what was encoded, body byte for byte.

use std::borrow::Cow;

use serde::Serialize;
use uuid::Uuid;

/// The answer of a command: a status, an optional `Location`, and a body that is sent as JSON.
#[derive(Debug)]
pub struct Reply<T> {
    status: u16,
    location: Option<String>,
    body: Option<T>,
    secrets: &'static [&'static str],
}

impl<T: Serialize> Reply<T> {
    /// 200 with a body.
    pub fn ok(body: T) -> Self {
        Self { status: 200, location: None, body: Some(body), secrets: &[] }
    }

    /// 201 with a body and where the new thing is (a path).
    pub fn created(location: impl Into<String>, body: T) -> Self {
        Self { status: 201, location: Some(location.into()), body: Some(body), secrets: &[] }
    }

    /// 204: done, nothing to say.
    pub fn no_content() -> Self {
        Self { status: 204, location: None, body: None, secrets: &[] }
    }

    /// Names the fields of the body that may not be stored, such as a secret that is shown once. The body is then stored
    /// nowhere, and a retry is told where the result is instead of what it was.
    #[must_use]
    pub fn with_secrets(mut self, fields: &'static [&'static str]) -> Self {
        self.secrets = fields;
        self
    }

    /// Whether the body may be stored.
    pub(crate) fn may_be_stored(&self) -> bool {
        self.secrets.is_empty()
    }

    /// The bytes that are sent now, and sent again on every replay.
    pub(crate) fn seal(&self) -> Result<StoredReply, serde_json::Error> {
        let mut headers = Vec::new();
        let mut body = Vec::new();
        if let Some(value) = &self.body {
            headers.push(("content-type".into(), "application/json".into()));
            body = serde_json::to_vec(value)?;
        }
        if let Some(location) = &self.location {
            headers.push(("location".into(), location.clone().into()));
        }
        Ok(StoredReply { status: self.status, headers, body })
    }
}

/// First code of a known header.
const KNOWN_FROM: u8 = 128;
/// Headers that nearly every reply has: a name with its whole value, or a name alone. Codes are never given twice.
const KNOWN: [(&str, &str); 4] = [
    ("content-type", "application/json"),
    ("content-type", "application/problem+json"),
    ("location", ""),
    ("link", ""),
];
const KNOWN_CODES: [u8; 4] = [KNOWN_FROM, KNOWN_FROM + 1, KNOWN_FROM + 2, KNOWN_FROM + 3];

/// A header's lower-case name and its value; those that nearly every reply has are not copied.
pub type Header = (Cow<'static, str>, Cow<'static, str>);

/// A reply as it is stored in both stores: status, allowed headers (lower-case names), body.
///
/// Only headers that are true of the answer for as long as it is replayed are ever put here: never `Set-Cookie`,
/// `Date` or hop-by-hop headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredReply {
    /// HTTP status code.
    pub status: u16,
    /// Lower-case names and values, in order.
    pub headers: Vec<Header>,
    /// The body, not encoded.
    pub body: Vec<u8>,
}

/// A reply with what is known of it once it is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// What was answered; without a body if that is not kept.
    pub reply: StoredReply,
    /// Whether a retry gets the reply itself, or only where the result is.
    pub kept: bool,
    /// The request that did it.
    pub request_id: Uuid,
    /// Until when it is replayed, ms since 1970.
    pub expires_ms: i64,
}

impl Finished {
    /// Where the result is.
    pub(crate) fn location(&self) -> Option<String> {
        self.reply.header("location").map(str::to_owned)
    }
}

impl StoredReply {
    /// The value of a header, by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_ref())
    }

    /// What is left of a reply whose body is not kept: where the result is.
    pub(crate) fn reference(&self) -> Self {
        let location = self.headers.iter().filter(|(name, _)| name == "location").cloned().collect();
        Self { status: self.status, headers: location, body: Vec::new() }
    }

    /// Appends status (2 bytes), number of headers (1), the headers, the body. `None` if a header is too long for that.
    ///
    /// A header is one byte where it is known whole, one byte and its value (2-byte length) where its name is known, else
    /// the name (1-byte length, below 128) and the value.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Option<()> {
        out.extend_from_slice(&self.status.to_be_bytes());
        out.push(u8::try_from(self.headers.len()).ok()?);
        for (name, value) in &self.headers {
            let known = KNOWN
                .iter()
                .zip(KNOWN_CODES)
                .find(|((known, whole), _)| known == name && (whole.is_empty() || whole == value));
            match known {
                Some(((_, whole), code)) => {
                    out.push(code);
                    if !whole.is_empty() {
                        continue;
                    }
                }
                None => {
                    out.push(u8::try_from(name.len()).ok().filter(|length| *length < KNOWN_FROM)?);
                    out.extend_from_slice(name.as_bytes());
                }
            }
            out.extend_from_slice(&u16::try_from(value.len()).ok()?.to_be_bytes());
            out.extend_from_slice(value.as_bytes());
        }
        out.extend_from_slice(&self.body);
        Some(())
    }

    /// The reverse of [`encode`](Self::encode); `None` for bytes that it did not write.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let status = u16::from_be_bytes(*bytes.split_first_chunk::<2>().map(|(head, tail)| {
            bytes = tail;
            head
        })?);
        let (&count, mut rest) = bytes.split_first()?;
        let mut headers = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let (&code, mut tail) = rest.split_first()?;
            let name = if code < KNOWN_FROM {
                let (name, behind) = tail.split_at_checked(usize::from(code))?;
                tail = behind;
                String::from_utf8(name.to_vec()).ok()?.into()
            } else {
                let (name, whole) = KNOWN.get(usize::from(code - KNOWN_FROM))?;
                if !whole.is_empty() {
                    headers.push(((*name).into(), (*whole).into()));
                    rest = tail;
                    continue;
                }
                (*name).into()
            };
            let (length, tail) = tail.split_first_chunk::<2>()?;
            let (value, tail) = tail.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            headers.push((name, String::from_utf8(value.to_vec()).ok()?.into()));
            rest = tail;
        }
        Some(Self { status, headers, body: rest.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_reply_survives_its_bytes() {
        let reply = Reply::created("/v1/orders/1", serde_json::json!({"a": []})).seal().unwrap();
        let empty = Reply::<()>::no_content().seal().unwrap();
        assert_eq!((empty.headers.len(), empty.body.len()), (0, 0));
        let other = StoredReply {
            status: 200,
            headers: vec![("content-type".into(), "text/plain".into()), ("etag".into(), "\"1\"".into())],
            body: vec![0, 255],
        };
        for reply in [reply, empty, other] {
            let mut bytes = Vec::new();
            reply.encode(&mut bytes).unwrap();
            assert_eq!(StoredReply::decode(&bytes), Some(reply.clone()));
            for cut in 0..bytes.len() - reply.body.len() {
                assert_eq!(StoredReply::decode(&bytes[..cut]), None, "cut at {cut}");
            }
        }
    }
}
