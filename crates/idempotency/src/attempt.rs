//! One arrival of a request: who, which key, what for. Pure; invariant: nothing in it changes once it is made.

use uuid::Uuid;

use crate::fingerprint::Asked;
use crate::key::{AccountId, IdempotencyKey, lock_redis_name, redis_name, serialised_redis_name};

/// An arrival that has passed every check that needs no store.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The scope of the key.
    pub account: AccountId,
    /// The client's key.
    pub key: IdempotencyKey,
    /// What is asked for.
    pub asked: Asked,
    /// Path with query, as received.
    pub path: String,
    /// This arrival's own id, never the client's.
    pub request_id: Uuid,
    /// The command, if it is serialised: only one of it runs at a time for this caller.
    pub serial: Option<&'static str>,
    redis_name: String,
    redis_lock: Option<String>,
}

impl Attempt {
    /// Puts an attempt together.
    pub fn new(
        account: AccountId,
        key: IdempotencyKey,
        asked: Asked,
        path: String,
        request_id: Uuid,
    ) -> Self {
        let redis_name = redis_name(account, &key);
        Self { account, key, asked, path, request_id, serial: None, redis_name, redis_lock: None }
    }

    /// Only the question what has become of a key.
    pub(crate) fn inquiry(account: AccountId, key: IdempotencyKey) -> Self {
        Self::new(account, key, Asked::nothing(), String::new(), Uuid::now_v7())
    }

    /// The same, for a serialised command.
    #[must_use]
    pub fn serialised(mut self, command: &'static str) -> Self {
        self.redis_name = serialised_redis_name(self.account, &self.key);
        self.redis_lock = Some(lock_redis_name(self.account, command));
        self.serial = Some(command);
        self
    }

    /// The same inquiry under the name that serialised commands use: whoever asks does not know of which kind the work is.
    pub(crate) fn as_if_serialised(&self) -> Self {
        Self { redis_name: serialised_redis_name(self.account, &self.key), ..self.clone() }
    }

    /// The key's name in Redis, and that of the caller's lock.
    pub(crate) fn redis_names(&self) -> Vec<&str> {
        std::iter::once(self.redis_name.as_str()).chain(self.redis_lock.as_deref()).collect()
    }
}
