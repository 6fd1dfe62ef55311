//! Who is calling: API keys, known without a database round trip.
//!
//! A bounded cache of keys that were seen, shared by all workers and compared with the database every [`REFRESH`].
//! Invariant: a revoked key is refused by every replica within 5 s while PostgreSQL answers; while it does not, keys that
//! are known stay valid and unknown ones are told to come back.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::header;
use futures_util::future::LocalBoxFuture;
use idempotency::http::Authenticate;
use idempotency::{AccountId, Database, Problem, ReadError, explain, problems};
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;

use crate::accounts::ApiKey;

/// How often known keys are compared with the database; with the time a read may take, below the promised 5 s.
pub(crate) const REFRESH: Duration = Duration::from_secs(2);
/// Most unknown keys that a worker looks up at a time.
const LOOK_UPS_MAX: usize = 2;
/// How long the look-up of an unknown key waits for its turn.
const LOOK_UP_WAIT: Duration = Duration::from_secs(2);
/// Most keys that are remembered.
const KEYS_MAX: usize = 10_000;

#[derive(Clone, Copy)]
struct Known {
    account: AccountId,
    hash: [u8; 32],
}

/// The keys that this process has seen valid.
#[derive(Clone, Default)]
pub(crate) struct KnownKeys(Arc<Shared>);

#[derive(Default)]
struct Shared {
    keys: RwLock<HashMap<String, Known>>,
    /// Counts what was taken away: a worker's copy of an earlier count is thrown away.
    removals: AtomicU64,
}

/// A worker's copy of what it has looked up in the shared ones: cores that take one lock with every request wait for each other.
#[derive(Default)]
struct Copies {
    keys: HashMap<String, Known>,
    /// The count of removals before the first of them was looked up.
    of: u64,
}

impl KnownKeys {
    fn get(&self, copies: &RefCell<Copies>, id: &str) -> Option<Known> {
        // Read before the key is: what is removed in between counts as a later removal.
        let removals = self.0.removals.load(Ordering::Acquire);
        let mut copies = copies.borrow_mut();
        if copies.of != removals {
            *copies = Copies { of: removals, ..Copies::default() };
        }
        if let Some(known) = copies.keys.get(id) {
            return Some(*known);
        }
        let known = *self.0.keys.read().unwrap_or_else(PoisonError::into_inner).get(id)?;
        copies.keys.insert(id.to_owned(), known);
        Some(known)
    }

    fn remember(&self, id: &str, known: Known) {
        let mut keys = self.0.keys.write().unwrap_or_else(PoisonError::into_inner);
        if keys.len() >= KEYS_MAX
            && let Some(any) = keys.keys().next().cloned()
        {
            keys.remove(&any);
            self.0.removals.fetch_add(1, Ordering::Release);
        }
        keys.insert(id.to_owned(), known);
    }

    /// Drops the keys that the database no longer knows as valid.
    pub(crate) async fn refresh(&self, database: &Database) -> Result<(), ReadError> {
        let ids: Vec<String> =
            self.0.keys.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        if ids.is_empty() {
            return Ok(());
        }
        let rows = database
            .read("SELECT id FROM api_keys WHERE id = ANY($1) AND revoked_at IS NULL", &[&ids])
            .await?;
        let valid: std::collections::HashSet<&str> = rows.iter().map(|row| row.get(0)).collect();
        let mut keys = self.0.keys.write().unwrap_or_else(PoisonError::into_inner);
        for id in ids.iter().filter(|id| !valid.contains(id.as_str())) {
            keys.remove(id);
            self.0.removals.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }
}

/// API keys in the `Authorization` header, for one worker.
pub(crate) struct ApiKeys {
    known: KnownKeys,
    copies: RefCell<Copies>,
    database: Database,
    look_ups: Semaphore,
}

impl ApiKeys {
    pub(crate) fn new(known: KnownKeys, database: Database) -> Self {
        Self { known, copies: RefCell::default(), database, look_ups: Semaphore::new(LOOK_UPS_MAX) }
    }

    async fn account(&self, request: &HttpRequest) -> Result<AccountId, Problem> {
        let unknown =
            || problems::UNAUTHENTICATED.because("send a valid API key as Authorization: Bearer osk_…");
        let key = bearer(request).and_then(ApiKey::parse).ok_or_else(unknown)?;
        let known = match self.known.get(&self.copies, key.id) {
            Some(known) => known,
            // Boxed, so that those who are known do not carry it.
            None => Box::pin(self.look_up(key.id)).await?.ok_or_else(unknown)?,
        };
        if bool::from(known.hash.ct_eq(&key.hash())) { Ok(known.account) } else { Err(unknown()) }
    }

    async fn look_up(&self, id: &str) -> Result<Option<Known>, Problem> {
        // Whoever has no key yet must not take the connections of those who have one: they wait for each other.
        let place = tokio::time::timeout(LOOK_UP_WAIT, self.look_ups.acquire()).await;
        let Ok(Ok(_place)) = place else {
            return Err(
                problems::TEMPORARILY_UNAVAILABLE.because("too many unknown API keys are being checked")
            );
        };
        // Somebody else's look-up of the same key may just have ended.
        if let Some(known) = self.known.get(&self.copies, id) {
            return Ok(Some(known));
        }
        let sql = "SELECT account_id, secret_hash FROM api_keys WHERE id = $1 AND revoked_at IS NULL";
        let rows = self.database.read(sql, &[&id]).await.map_err(|error| {
            tracing::warn!(error = explain(&error), "an API key could not be looked up");
            problems::TEMPORARILY_UNAVAILABLE.because("this API key cannot be checked now")
        })?;
        let Some(row) = rows.first() else { return Ok(None) };
        let hash: &[u8] = row.get(1);
        let known = Known { account: AccountId(row.get(0)), hash: hash.try_into().unwrap_or_default() };
        self.known.remember(id, known);
        Ok(Some(known))
    }
}

impl Authenticate for ApiKeys {
    fn authenticate<'a>(
        &'a self,
        request: &'a HttpRequest,
    ) -> LocalBoxFuture<'a, Result<AccountId, Problem>> {
        Box::pin(self.account(request))
    }
}

const SCHEME: &[u8] = b"Bearer ";

/// The bearer token of a request, if it has exactly one.
pub(crate) fn bearer(request: &HttpRequest) -> Option<&str> {
    let mut lines = request.headers().get_all(header::AUTHORIZATION);
    let (scheme, token) = lines.next()?.as_bytes().split_at_checked(SCHEME.len())?;
    let is_only_one = scheme.eq_ignore_ascii_case(SCHEME) && lines.next().is_none();
    is_only_one.then_some(token.trim_ascii()).and_then(|token| std::str::from_utf8(token).ok())
}
