//! The two objects of the API as they are stored and answered: payment intents and refunds.
//!
//! Members and their names are Stripe's; of its many, those that a caller needs. Knows no rules.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Random bytes of an id.
const ID_LEN: usize = 12;
/// The metadata member that names the caller's operation.
pub(crate) const OPERATION: &str = "operation";

pub(crate) type Metadata = BTreeMap<String, String>;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PaymentIntent {
    pub(crate) id: String,
    pub(crate) object: String,
    pub(crate) amount: i64,
    /// 0 when declined.
    pub(crate) amount_received: i64,
    pub(crate) currency: String,
    /// `succeeded`, or `requires_payment_method` when declined.
    pub(crate) status: String,
    pub(crate) payment_method: String,
    pub(crate) metadata: Metadata,
    pub(crate) last_payment_error: Option<CardError>,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) livemode: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CardError {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) code: String,
    pub(crate) decline_code: String,
    pub(crate) message: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Refund {
    pub(crate) id: String,
    pub(crate) object: String,
    pub(crate) amount: i64,
    pub(crate) currency: String,
    pub(crate) payment_intent: String,
    pub(crate) status: String,
    pub(crate) metadata: Metadata,
    /// Seconds since 1970.
    pub(crate) created: u64,
}

/// What searches and lists look at.
pub(crate) trait Object: Clone + Serialize {
    fn id(&self) -> &str;
    fn metadata(&self) -> &Metadata;
}

impl Object for PaymentIntent {
    fn id(&self) -> &str {
        &self.id
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

impl Object for Refund {
    fn id(&self) -> &str {
        &self.id
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// A new id, such as `pi_5f3c…`.
pub(crate) fn new_id(prefix: &str) -> std::io::Result<String> {
    let mut random = [0_u8; ID_LEN];
    getrandom::fill(&mut random).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(random.iter().fold(format!("{prefix}_"), |id, byte| format!("{id}{byte:02x}")))
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
