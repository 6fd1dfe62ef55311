//! What a request asks for, as 32 bytes.
//!
//! SHA-256 over a format version, method, path with query, command name and canonical body, each preceded by its
//! length. Knows nothing of who asks (that is the key's scope) or of stores. Invariant: the digest of a given request is
//! the same in every build that writes the same version.

use sha2::{Digest as _, Sha256};

/// The version that this build writes.
pub const VERSION: u8 = 1;

/// A digest and the version of the rule that made it. Digests of different versions cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    /// The rule.
    pub version: u8,
    /// SHA-256, 32 bytes.
    pub digest: [u8; 32],
}

impl Fingerprint {
    /// `body` is the canonical form (see `canonical.rs`).
    pub fn compute(method: &str, path_and_query: &str, command: &str, body: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update([VERSION]);
        for part in [method.as_bytes(), path_and_query.as_bytes(), command.as_bytes(), body] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self { version: VERSION, digest: hash.finalize().into() }
    }

    /// Whether `stored` is known to be another request. A version that this build cannot compute is never a mismatch:
    /// during a rolling deploy it is the newer build's.
    pub fn contradicts(&self, stored: &Self) -> bool {
        self.version == stored.version && self.digest != stored.digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cannot_borrow_from_each_other() {
        let base = Fingerprint::compute("POST", "/v1/orders", "orders.create", b"{}");
        assert_eq!(base, Fingerprint::compute("POST", "/v1/orders", "orders.create", b"{}"));
        for other in [
            Fingerprint::compute("PUT", "/v1/orders", "orders.create", b"{}"),
            Fingerprint::compute("POST", "/v1/orders?a", "orders.create", b"{}"),
            Fingerprint::compute("POST", "/v1/order", "sorders.create", b"{}"),
            Fingerprint::compute("POST", "/v1/orders", "orders.create{", b"}"),
        ] {
            assert!(base.contradicts(&other));
        }
    }

    #[test]
    fn an_unknown_version_is_never_a_mismatch() {
        let ours = Fingerprint::compute("POST", "/", "c", b"{}");
        assert!(!ours.contradicts(&Fingerprint { version: 2, digest: [0; 32] }));
    }
}
