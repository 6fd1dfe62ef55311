//! An id as it stands in a path: a UUID in its canonical text, and in no other.
//!
//! Pure. Invariant: two ids are equal if and only if their texts are, so that one thing has one path.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;
use uuid::timestamp::Timestamp;
use uuid::timestamp::context::{ContextV7, ThreadLocalContext};

thread_local! {
    /// One for each thread: cores that share one wait for each other with every request.
    static SEQUENCE: ContextV7 = const { ContextV7::new() };
}

/// A new id (UUID version 7), ordered among those of its thread.
pub fn new_id() -> Uuid {
    Uuid::new_v7(Timestamp::now(ThreadLocalContext::new(&SEQUENCE)))
}

/// A UUID that was read from its canonical text (lower case, with hyphens).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Id(pub Uuid);

/// A text that is not the canonical form of a UUID.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("not an id")]
pub struct NotAnId;

impl FromStr for Id {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let id: Uuid = text.parse().map_err(|_| NotAnId)?;
        let mut canonical = Uuid::encode_buffer();
        if *id.hyphenated().encode_lower(&mut canonical) == *text { Ok(Self(id)) } else { Err(NotAnId) }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_id_has_one_text() {
        let text = "01a22cc1-a058-7485-8a3c-232bdd46ba57";
        assert_eq!(text.parse::<Id>().unwrap().to_string(), text);
        for other in [
            text.to_uppercase(),
            text.replace('-', ""),
            format!("{{{text}}}"),
            format!("urn:uuid:{text}"),
            String::new(),
        ] {
            assert!(other.parse::<Id>().is_err(), "{other}");
        }
    }
}
