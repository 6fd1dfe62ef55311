//! What operators ask of Redis, past the breaker: they want to know what is wrong, not to be spared.
//!
//! Invariant: nothing here admits an attempt; a place is freed only for an account that is named.

use deadpool_redis::redis::Value;

use super::Gate;
use super::line::{Ask, Script};
use crate::attempt::Attempt;
use crate::key::{AccountId, IdempotencyKey};

impl Gate {
    /// Whether a place is held under a key, as an operator asks; an error says why Redis does not tell.
    ///
    /// # Errors
    /// What Redis, or the way to it, said.
    pub async fn place_is_held(&self, account: AccountId, key: &IdempotencyKey) -> Result<bool, String> {
        self.of_places(Script::Look, account, key).await
    }

    /// Frees a place whose owner is provably gone. It costs nobody more than a courtesy if that was wrong.
    ///
    /// # Errors
    /// What Redis, or the way to it, said.
    pub async fn free_place(&self, account: AccountId, key: &IdempotencyKey) -> Result<bool, String> {
        self.of_places(Script::Free, account, key).await
    }

    async fn of_places(
        &self,
        script: Script,
        account: AccountId,
        key: &IdempotencyKey,
    ) -> Result<bool, String> {
        let plain = Attempt::inquiry(account, key.clone());
        let mut any = false;
        for asked in [&plain, &plain.as_if_serialised()] {
            let account = account.0.to_be_bytes();
            let answer = self.line.ask(Ask::Run(script, asked.redis_names(), &[&account])).await;
            any |= matches!(answer.map_err(|fault| fault.to_string())?, Value::Int(1));
        }
        Ok(any)
    }

    /// How many values Redis has thrown away for want of memory, if it says so.
    pub async fn evicted_keys(&self) -> Option<u64> {
        let info = self.line.info().await.ok()?;
        info.lines().find_map(|line| line.strip_prefix("evicted_keys:"))?.trim().parse().ok()
    }
}
