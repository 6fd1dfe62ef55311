//! `POST /v1/gateway-events`: what the payment gateway tells us of its own accord, each event once, however often it comes.
//!
//! Knows the gateway's envelope and Standard Webhooks; decides nothing about payments: the workflows ask the gateway
//! themselves, and what it says here is kept for whoever compares. Invariants: nothing is believed before its signature; an
//! old message that is sent again by somebody else is refused, by the database's clock; the event's own id is the key.

use std::time::Duration;

use actix_web::http::header::HeaderMap;
use idempotency::http::{Origin, Signed};
use idempotency::{
    Abort, AccountId, Command, Database, IdempotencyKey, Invalid, Problem, ProblemKind, Reply, SameKey, Tx,
    problems,
};
use serde::Deserialize;
use serde_json::Value;

use crate::Shop;
use crate::payments::ACCOUNT;
use crate::reading::unreadable;

/// How far the timestamp of a message may be from the database's clock, in seconds.
const TOLERANCE_S: i64 = 5 * 60;
/// Whose an event is that names no account: no account has this number.
const NOBODY: AccountId = AccountId(0);

const IN_TIME_SQL: &str = "SELECT abs(extract(epoch FROM clock_timestamp()) - $1) <= $2";
/// The event is kept for longer than the record of its key: also after that it is there once.
const KEEP_SQL: &str = "
INSERT INTO gateway_events (id, account_id, type, data) VALUES ($1, nullif($2, 0), $3, $4::text::jsonb)
ON CONFLICT (id) DO NOTHING";

/// The oldest first, along the index; a batch is $2 rows.
const FORGET_SQL: &str = "
DELETE FROM gateway_events
 WHERE ctid = ANY (ARRAY(SELECT ctid FROM gateway_events WHERE received_at <= now() - $1 * interval '1 millisecond'
                          ORDER BY received_at LIMIT $2 FOR UPDATE SKIP LOCKED))";
const FORGET_BATCH: i64 = 500;
const FORGET_EVERY: Duration = Duration::from_secs(5);

pub(crate) const NOT_SIGNED: &ProblemKind = &ProblemKind {
    code: problems::UNAUTHENTICATED.code,
    status: 401,
    title: "The message is not signed as the gateway signs",
    retryable: false,
    same_key: SameKey::Yes,
    new_key_safe: false,
    retry_after_ms: 0,
    page: "Messages of the payment gateway carry a webhook-id, a webhook-timestamp of the last five minutes, and a \
           webhook-signature over both and the body, as Standard Webhooks has it. Nothing was done and no key was taken.",
};
pub(crate) const NOT_CONFIGURED: &ProblemKind = &ProblemKind {
    code: "gateway-not-configured",
    status: 503,
    title: "Messages of the payment gateway are not expected here",
    retryable: true,
    same_key: SameKey::Yes,
    new_key_safe: false,
    retry_after_ms: 0,
    page: "This service has no secret to check messages of the payment gateway with (GATEWAY_WEBHOOK_SECRET). Nothing was done and \
           no key was taken.",
};

/// Every kind of this file.
pub(crate) const PROBLEMS: &[&ProblemKind] = &[NOT_SIGNED, NOT_CONFIGURED];

/// Forgets what was received longer ago, batch after batch, for as long as the process lives.
pub(crate) async fn forget(database: Database, kept: Duration) {
    let kept_ms = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
    let mut ticks = tokio::time::interval(FORGET_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = database.read(FORGET_SQL, &[&kept_ms, &FORGET_BATCH]).await {
            tracing::debug!(%error, "no gateway events could be forgotten");
        }
    }
}

/// The gateway's envelope; it may hold more than is read here.
#[derive(Debug, Deserialize)]
pub(crate) struct GatewayEvent {
    id: String,
    r#type: String,
    data: Value,
}

impl Command for GatewayEvent {
    const NAME: &'static str = "gateway_events.receive";
    type State = Shop;
    type Output = ();

    fn validate(&self) -> Result<(), Invalid> {
        if self.r#type.is_empty() { Err(Invalid::new("type", "must not be empty")) } else { Ok(()) }
    }

    async fn execute(&self, tx: &mut Tx<'_>, _shop: &Shop) -> Result<Reply<()>, Abort> {
        let (account, data) = (tx.account().0, self.data.to_string());
        tx.query(KEEP_SQL, &[&self.id, &account, &self.r#type, &data]).await?;
        Ok(Reply::no_content())
    }
}

impl Signed for GatewayEvent {
    async fn authenticate(headers: &HeaderMap, body: &[u8], shop: &Shop) -> Result<(), Problem> {
        let Some(key) = &shop.gateway_signs_with else {
            return Err(NOT_CONFIGURED.because("GATEWAY_WEBHOOK_SECRET is not set"));
        };
        let refused = |why: &str| NOT_SIGNED.because(why);
        let header = |name: &str| {
            let mut lines = headers.get_all(name);
            let only = lines.next().filter(|_| lines.next().is_none());
            only.and_then(|value| value.to_str().ok())
                .ok_or_else(|| refused("one of its headers is missing, or there twice"))
        };
        let (id, timestamp) = (header("webhook-id")?, header("webhook-timestamp")?);
        if !key.verifies(header("webhook-signature")?, id, timestamp, body) {
            return Err(refused("the signature does not match"));
        }
        let seconds: i64 =
            timestamp.parse().map_err(|_| refused("the timestamp is not a number of seconds"))?;
        let rows = shop.database.read(IN_TIME_SQL, &[&seconds, &TOLERANCE_S]).await;
        match rows.map_err(|error| unreadable(&error))?.first() {
            Some(row) if row.get(0) => Ok(()),
            _ => Err(refused("the message is too old, or from the future")),
        }
    }

    fn origin(&self) -> Result<Origin, Problem> {
        let key = IdempotencyKey::from_text(&self.id);
        let key = key.ok_or_else(|| problems::INVALID_REQUEST.because("id: cannot be a key"))?;
        let named = self.data["object"]["metadata"][ACCOUNT].as_str().and_then(|text| text.parse().ok());
        let account = named.filter(|number| *number > 0).map_or(NOBODY, AccountId);
        Ok(Origin { account, key })
    }
}
