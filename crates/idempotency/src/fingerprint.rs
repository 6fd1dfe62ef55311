//! What a request asks for, as 32 bytes.
//!
//! SHA-256 over a format version, method, path with query, command name and canonical body, each preceded by its
//! length. Knows nothing of who asks (that is the key's scope) or of stores. Invariant: the digest of a given request is
//! the same in every build that writes the same version.

use sha2::{Digest as _, Sha256};

/// The version that this build writes.
pub const VERSION: u8 = 1;
/// The version that the build before this one wrote, while both may run side by side. There is none yet.
const PREVIOUS: Option<u8> = None;

/// A digest and the version of the rule that made it. Digests of different versions cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    /// The rule.
    pub version: u8,
    /// SHA-256, 32 bytes.
    pub digest: [u8; 32],
}

/// What a request asks for, by this build's rule and by the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// By this build's version: what is stored.
    pub current: Fingerprint,
    previous: Option<Fingerprint>,
}

impl Asked {
    /// `body` is the canonical form (see `canonical.rs`).
    pub fn compute(method: &str, path_and_query: &str, command: &str, body: &[u8]) -> Self {
        let by = |version| Fingerprint::compute(version, method, path_and_query, command, body);
        Self { current: by(VERSION), previous: PREVIOUS.map(by) }
    }

    /// Asks for nothing, and contradicts nothing.
    pub(crate) fn nothing() -> Self {
        Self { current: Fingerprint { version: 0, digest: [0; 32] }, previous: None }
    }

    /// What a stored record was asked for.
    pub(crate) fn stored(fingerprint: Fingerprint) -> Self {
        Self { current: fingerprint, previous: None }
    }

    /// Whether `stored` is known to be another request. A version that this build cannot compute is never a mismatch:
    /// during a rolling deploy it is the newer build's.
    pub fn contradicts(&self, stored: &Fingerprint) -> bool {
        let mut known = std::iter::once(self.current).chain(self.previous);
        known.find(|ours| ours.version == stored.version).is_some_and(|ours| ours.digest != stored.digest)
    }
}

impl Fingerprint {
    fn compute(version: u8, method: &str, path_and_query: &str, command: &str, body: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update([version]);
        for part in [method.as_bytes(), path_and_query.as_bytes(), command.as_bytes(), body] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self { version, digest: hash.finalize().into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cannot_borrow_from_each_other() {
        let base = Asked::compute("POST", "/v1/orders", "orders.create", b"{}");
        assert!(!base.contradicts(&Asked::compute("POST", "/v1/orders", "orders.create", b"{}").current));
        for other in [
            Asked::compute("PUT", "/v1/orders", "orders.create", b"{}"),
            Asked::compute("POST", "/v1/orders?a", "orders.create", b"{}"),
            Asked::compute("POST", "/v1/order", "sorders.create", b"{}"),
            Asked::compute("POST", "/v1/orders", "orders.create{", b"}"),
        ] {
            assert!(base.contradicts(&other.current));
        }
    }

    #[test]
    fn the_previous_version_is_compared_and_an_unknown_one_is_never_a_mismatch() {
        let by = |version, body: &[u8]| Fingerprint::compute(version, "POST", "/", "c", body);
        let asked = Asked { current: by(2, b"{}"), previous: Some(by(1, b"{}")) };
        assert!(!asked.contradicts(&by(1, b"{}")) && !asked.contradicts(&by(2, b"{}")));
        assert!(asked.contradicts(&by(1, b"{1}")) && asked.contradicts(&by(2, b"{1}")));
        assert!(!asked.contradicts(&by(3, b"{1}")));
    }

    /// Frozen: a build that computes another digest for version 1 takes every retry for another request. A new rule is a new
    /// version, with this one as the previous.
    #[test]
    fn version_1_is_frozen() {
        let body = crate::canonical::canonicalize(
            br#"{ "note": "\u00e9", "items": [{"sku":"TEA-001","quantity":2}] }"#,
        )
        .unwrap();
        let asked = Asked::compute("POST", "/v1/orders?x=1", "orders.create", body.as_bytes());
        let digest: String = asked.current.digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            (asked.current.version, digest.as_str()),
            (1, "a92f063ddc0d4629a405ce5613a9345cc01e186818583883596f41443e1a38d8")
        );
    }
}
