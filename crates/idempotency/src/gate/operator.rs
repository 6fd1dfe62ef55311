//! What operators ask of Redis, past the breaker: they want to know what is wrong, not to be spared.
//!
//! Invariant: nothing here admits an attempt; a place is freed only for an account that is named.

use deadpool_redis::redis::{self, Value};

use super::line::{Ask, Script};
use super::{Gate, PROBE_NAME};
use crate::attempt::Attempt;
use crate::key::{AccountId, IdempotencyKey};

/// Most pages of names that are looked through.
const SCANS_MAX: usize = 100;

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
        let info = self.info().await.ok()?;
        info.lines().find_map(|line| line.strip_prefix("evicted_keys:"))?.trim().parse().ok()
    }

    /// What Redis says of itself: `name:value` lines, as INFO has them.
    ///
    /// # Errors
    /// What Redis, or the way to it, said.
    pub async fn info(&self) -> Result<String, String> {
        match self.plain(&["INFO"]).await? {
            Value::BulkString(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            other => Err(format!("INFO was answered {other:?}")),
        }
    }

    /// Its clock, in ms since 1970.
    ///
    /// # Errors
    /// What Redis, or the way to it, said.
    pub async fn clock_ms(&self) -> Result<i64, String> {
        let time = self.plain(&["TIME"]).await?;
        let [seconds, micros] =
            redis::from_redis_value::<[i64; 2]>(time).map_err(|error| error.to_string())?;
        Ok(seconds * 1000 + micros / 1000)
    }

    /// Whether scripts may run and write. An error says why not.
    ///
    /// # Errors
    /// What Redis, or the way to it, said.
    pub async fn probe(&self) -> Result<(), String> {
        let answer = self.line.ask(Ask::Run(Script::Probe, &[PROBE_NAME.to_owned()], &[])).await;
        answer.map(drop).map_err(|fault| fault.to_string())
    }

    /// Names of keys' values, up to `max` of them and as they come; what else lies in the database is passed over.
    ///
    /// # Errors
    /// What Redis, or the way to it, said.
    pub async fn names(&self, max: usize) -> Result<Vec<String>, String> {
        let (mut cursor, mut names) = ("0".to_owned(), Vec::new());
        // A SCAN of a large database that holds nothing of ours must end, too.
        for _ in 0..SCANS_MAX {
            let page = self.plain(&["SCAN", &cursor, "MATCH", "idem:v1:*", "COUNT", "1000"]).await?;
            let (next, found): (String, Vec<String>) =
                redis::from_redis_value(page).map_err(|error| error.to_string())?;
            names.extend(found);
            if next == "0" || names.len() >= max {
                break;
            }
            cursor = next;
        }
        names.truncate(max);
        Ok(names)
    }

    /// The value under a name, if it is there.
    ///
    /// # Errors
    /// What Redis, or the way to it, said; also that something else than a text is there.
    pub async fn value(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        match self.plain(&["GET", name]).await? {
            Value::BulkString(value) => Ok(Some(value)),
            _ => Ok(None),
        }
    }

    async fn plain(&self, words: &[&str]) -> Result<Value, String> {
        self.line.ask(Ask::Plain(words)).await.map_err(|fault| fault.to_string())
    }
}
