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
    /// The key's, and the caller's lock's, which only serialised commands have.
    redis_names: [String; 2],
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
        let redis_names = [redis_name(account, &key), String::new()];
        Self { account, key, asked, path, request_id, serial: None, redis_names }
    }

    /// Only the question what has become of a key.
    pub(crate) fn inquiry(account: AccountId, key: IdempotencyKey) -> Self {
        Self::new(account, key, Asked::nothing(), String::new(), Uuid::now_v7())
    }

    /// The same, for a serialised command.
    #[must_use]
    pub fn serialised(mut self, command: &'static str) -> Self {
        self.redis_names =
            [serialised_redis_name(self.account, &self.key), lock_redis_name(self.account, command)];
        self.serial = Some(command);
        self
    }

    /// The same inquiry under the name that serialised commands use: whoever asks does not know of which kind the work is.
    pub(crate) fn as_if_serialised(&self) -> Self {
        Self {
            redis_names: [serialised_redis_name(self.account, &self.key), String::new()],
            serial: None,
            ..self.clone()
        }
    }

    /// The key's name in Redis, and that of the caller's lock.
    pub(crate) fn redis_names(&self) -> &[String] {
        if self.serial.is_some() { &self.redis_names } else { &self.redis_names[..1] }
    }
}
