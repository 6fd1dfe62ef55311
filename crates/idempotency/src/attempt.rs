//! One arrival of a request: who, which key, what for. Pure; invariant: nothing in it changes once it is made.

use uuid::Uuid;

use crate::fingerprint::Fingerprint;
use crate::key::{AccountId, IdempotencyKey, redis_name};

/// An arrival that has passed every check that needs no store.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The scope of the key.
    pub account: AccountId,
    /// The client's key.
    pub key: IdempotencyKey,
    /// What is asked for.
    pub fingerprint: Fingerprint,
    /// Path with query, as received.
    pub path: String,
    /// This arrival's own id, never the client's.
    pub request_id: Uuid,
    /// The key's name in Redis.
    pub(crate) redis_name: String,
}

impl Attempt {
    /// Puts an attempt together.
    pub fn new(
        account: AccountId,
        key: IdempotencyKey,
        fingerprint: Fingerprint,
        path: String,
        request_id: Uuid,
    ) -> Self {
        let redis_name = redis_name(account, &key);
        Self { account, key, fingerprint, path, request_id, redis_name }
    }
}
