//! The payment gateway, as Stripe's API has it: charges and refunds under a key that we derive, and questions about them.
//!
//! Every write carries the operation twice: as `Idempotency-Key`, so that the gateway does it at most once, and as
//! `metadata[operation]`, so that it can be found when the answer was lost; further metadata come back in the gateway's own messages
//! (`gateway_events` gives them to the account that they name). Deliberately unknown here: orders, retries,
//! and what is done about an unknown outcome; nothing is repeated here, not even by the HTTP client.
//!
//! Invariant: `Ok` is what the gateway said and will say again; [`CallError`] never claims more than is known.

mod call;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;
use url::Url;

use self::call::{Answer, Endpoint};
use crate::config::Secret;

/// Something is named that the gateway does not have.
const MISSING: &str = "resource_missing";
/// Most pages of a charge's refunds that are looked through, and refunds of a page.
const REFUND_PAGES_MAX: usize = 10;
const REFUND_PAGE: &str = "100";

/// The way to the gateway. Cheap to clone: clones share their connections.
#[derive(Debug, Clone)]
pub(crate) struct Gateway(Endpoint);

/// What became of a charge. Both are final, and replayed under the same operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Charged {
    Succeeded {
        /// The gateway's id, which a refund names.
        id: String,
    },
    Declined {
        /// Why, in the gateway's word: `generic_decline`, `insufficient_funds`, …
        code: String,
        /// For people.
        message: String,
    },
}

/// What became of a refund. Both are final.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refunded {
    Succeeded {
        id: String,
    },
    /// Nothing, or not so much, is left to give back.
    Refused {
        code: String,
        message: String,
    },
}

/// What a question about an operation found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found<T> {
    Done(T),
    /// The gateway knows of none *now*. A call that is still under way, or a search index that lags, may prove it wrong:
    /// reason enough to repeat under the same operation, never to begin another one.
    Absent,
    /// It knows of it, and cannot say how it ended.
    Unknown(String),
}

/// Why a call has no answer. Texts are for logs: they hold no secret.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum CallError {
    /// *This* call did nothing (an earlier one under its operation may have); it can be repeated.
    #[error("the gateway did not take the call: {why}")]
    NotDone {
        why: String,
        /// How long the gateway asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// An earlier call under this operation is still being worked on: this one did nothing, that one may.
    #[error("the gateway is still working on this operation: {0}")]
    InProgress(String),
    /// It may have happened: timed out, cut, 5xx, or an answer that cannot be read.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// A definite no that repeating does not change: our request or configuration is wrong.
    #[error("the gateway refuses the call: {0}")]
    Refused(String),
}

impl Gateway {
    /// The base URL is the gateway's root; the error says in one line what is wrong with it.
    pub(crate) fn new(url: &str, key: &Secret, timeout: Duration) -> Result<Self, String> {
        Endpoint::new(parse_url(url)?, key, timeout).map(Self)
    }

    /// Charges `amount` minor units, at most once per operation.
    pub(crate) async fn charge(
        &self,
        operation: &str,
        amount: i64,
        currency: &str,
        source: &str,
        metadata: &[(&str, &str)],
    ) -> Result<Charged, CallError> {
        let amount = amount.to_string();
        let mut form = vec![
            ("amount".to_owned(), amount.as_str()),
            ("currency".to_owned(), currency),
            ("payment_method".to_owned(), source),
            ("confirm".to_owned(), "true"),
            ("metadata[operation]".to_owned(), operation),
        ];
        form.extend(metadata.iter().map(|(name, value)| (format!("metadata[{name}]"), *value)));
        match self.0.post(&["payment_intents"], operation, &form).await? {
            Answer::Object(body) => match charged(call::read::<Intent>(&body)?) {
                Found::Done(charged) => Ok(charged),
                Found::Absent => Err(CallError::Unknown("no payment intent was answered".to_owned())),
                Found::Unknown(why) => Err(CallError::Unknown(why)),
            },
            Answer::Declined(error) => Ok(error.into()),
            // The source is all that a charge names, and it is the caller's: a definite no, and nothing that repeating mends.
            Answer::Invalid(error) if error.code == MISSING => Ok(error.into()),
            Answer::Invalid(error) => Err(CallError::Refused(error.to_string())),
        }
    }

    /// Asks what became of a charge.
    pub(crate) async fn find_charge(&self, operation: &str) -> Result<Found<Charged>, CallError> {
        let escaped = operation.replace('\\', "\\\\").replace('\'', "\\'");
        let query = format!("metadata['operation']:'{escaped}'");
        let body = self.0.get(&["payment_intents", "search"], &[("query", &query)]).await?;
        let intents: List<Intent> = call::read(&body)?;
        let mut found = Found::Absent;
        for intent in intents.data {
            match charged(intent) {
                // Money that moved outweighs whatever else is found.
                done @ Found::Done(Charged::Succeeded { .. }) => return Ok(done),
                other if found == Found::Absent => found = other,
                unknown @ Found::Unknown(_) => found = unknown,
                Found::Done(Charged::Declined { .. }) | Found::Absent => {}
            }
        }
        Ok(found)
    }

    /// Gives `amount` minor units of a charge back, at most once per operation.
    pub(crate) async fn refund(
        &self,
        operation: &str,
        charge_id: &str,
        amount: i64,
        metadata: &[(&str, &str)],
    ) -> Result<Refunded, CallError> {
        let amount = amount.to_string();
        let mut form = vec![
            ("payment_intent".to_owned(), charge_id),
            ("amount".to_owned(), &amount),
            ("metadata[operation]".to_owned(), operation),
        ];
        form.extend(metadata.iter().map(|(name, value)| (format!("metadata[{name}]"), *value)));
        match self.0.post(&["refunds"], operation, &form).await? {
            Answer::Object(body) => match refunded(call::read::<Refund>(&body)?) {
                Found::Done(refunded) => Ok(refunded),
                Found::Absent => Err(CallError::Unknown("no refund was answered".to_owned())),
                Found::Unknown(why) => Err(CallError::Unknown(why)),
            },
            Answer::Invalid(error) if NOTHING_LEFT.contains(&error.code.as_str()) => {
                Ok(Refunded::Refused { code: error.code, message: error.message })
            }
            Answer::Declined(error) | Answer::Invalid(error) => Err(CallError::Refused(error.to_string())),
        }
    }

    /// Asks what became of a refund of this charge. By list, not by search: the gateway's lists do not lag.
    pub(crate) async fn find_refund(
        &self,
        operation: &str,
        charge_id: &str,
    ) -> Result<Found<Refunded>, CallError> {
        let mut last: Option<String> = None;
        for _ in 0..REFUND_PAGES_MAX {
            let mut query = vec![("payment_intent", charge_id), ("limit", REFUND_PAGE)];
            query.extend(last.as_deref().map(|last| ("starting_after", last)));
            let page: List<Refund> = call::read(&self.0.get(&["refunds"], &query).await?)?;
            last = page.data.last().map(|refund| refund.id.clone()).filter(|_| page.has_more);
            let is_it = |refund: &Refund| refund.metadata.operation.as_deref() == Some(operation);
            if let Some(refund) = page.data.into_iter().find(is_it) {
                return Ok(refunded(refund));
            }
            if last.is_none() {
                return Ok(Found::Absent);
            }
        }
        Ok(Found::Unknown(format!("{charge_id} has more refunds than are looked through")))
    }
}

/// Reads the gateway's URL; the error does not repeat it, since it may hold what it must not.
pub(crate) fn parse_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("GATEWAY_URL cannot be read: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err("GATEWAY_URL must begin with http:// or https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("GATEWAY_URL must not carry credentials: that is GATEWAY_KEY".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("GATEWAY_URL must have neither query nor fragment".to_owned());
    }
    Ok(url)
}

/// Refusals of a refund that say something about the charge, not about us.
const NOTHING_LEFT: [&str; 2] = ["charge_already_refunded", "amount_too_large"];

#[derive(Debug, Deserialize)]
struct Intent {
    id: String,
    status: String,
    last_payment_error: Option<call::ErrorBody>,
}

#[derive(Debug, Deserialize)]
struct Refund {
    id: String,
    status: String,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata {
    operation: Option<String>,
}

#[derive(Debug, Deserialize)]
struct List<T> {
    data: Vec<T>,
    #[serde(default)]
    has_more: bool,
}

fn charged(intent: Intent) -> Found<Charged> {
    match (intent.status.as_str(), intent.last_payment_error) {
        ("succeeded", _) => Found::Done(Charged::Succeeded { id: intent.id }),
        ("requires_payment_method", Some(error)) => Found::Done(error.into()),
        (status, _) => Found::Unknown(format!("{} is {status}", intent.id)),
    }
}

fn refunded(refund: Refund) -> Found<Refunded> {
    match refund.status.as_str() {
        // The gateway has taken it; banks may take days to show it.
        "succeeded" | "pending" => Found::Done(Refunded::Succeeded { id: refund.id }),
        status => Found::Unknown(format!("{} is {status}", refund.id)),
    }
}

impl From<call::ErrorBody> for Charged {
    fn from(error: call::ErrorBody) -> Self {
        Self::Declined { code: error.decline_code.unwrap_or(error.code), message: error.message }
    }
}
