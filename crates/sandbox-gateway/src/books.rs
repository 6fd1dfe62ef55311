//! Everything that ever happened, in memory: rebuilt from the log at the start, one [`Entry`] at a time.
//!
//! Knows no rules and no file. Invariant: the books are what [`Books::enter`] makes of the log's lines, in order.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::objects::{OPERATION, Object, PaymentIntent, Refund};
use crate::refusal::{self, Refusal};

/// One line of the log: what happened, and for which request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The idempotency key, if the request had one.
    pub(crate) key: Option<String>,
    /// Path and parameters.
    pub(crate) request: String,
    /// The id of the event that tells of it.
    pub(crate) event: String,
    pub(crate) outcome: Outcome,
}

/// What came of a request that was carried out.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Charged(PaymentIntent),
    Declined(PaymentIntent),
    Refunded(Refund),
    Refused(Refusal),
}

impl Outcome {
    /// Status and body: the same each time, so that a replay is the first answer.
    pub(crate) fn answer(&self) -> (u16, Value) {
        match self {
            Self::Charged(intent) => (200, json!(intent)),
            Self::Declined(intent) => (402, refusal::declined(intent)),
            Self::Refunded(refund) => (200, json!(refund)),
            Self::Refused(refusal) => (refusal.status, refusal.body()),
        }
    }

    /// Type and object of the event, where there is one.
    pub(crate) fn event(&self) -> Option<(&'static str, Value)> {
        match self {
            Self::Charged(intent) => Some(("payment_intent.succeeded", json!(intent))),
            Self::Declined(intent) => Some(("payment_intent.payment_failed", json!(intent))),
            Self::Refunded(refund) => Some(("refund.created", json!(refund))),
            Self::Refused(_) => None,
        }
    }
}

#[derive(Default)]
pub(crate) struct Books {
    intents: Shelf<PaymentIntent>,
    refunds: Shelf<Refund>,
    /// What was carried out under each key.
    answered: HashMap<String, Entry>,
    /// The keys behind objects, by object id.
    keys: HashMap<String, String>,
    /// Sum of refunds by payment intent.
    refunded: HashMap<String, i64>,
}

impl Books {
    pub(crate) fn enter(&mut self, entry: Entry) {
        let id = match &entry.outcome {
            Outcome::Charged(intent) | Outcome::Declined(intent) => self.intents.add(intent.clone()),
            Outcome::Refunded(refund) => {
                *self.refunded.entry(refund.payment_intent.clone()).or_default() += refund.amount;
                self.refunds.add(refund.clone())
            }
            Outcome::Refused(_) => String::new(),
        };
        if let Some(key) = &entry.key {
            self.keys.insert(id, key.clone());
            self.answered.insert(key.clone(), entry);
        }
    }

    pub(crate) fn answered(&self, key: &str) -> Option<&Entry> {
        self.answered.get(key)
    }

    pub(crate) fn intents(&self) -> &Shelf<PaymentIntent> {
        &self.intents
    }

    pub(crate) fn refunds(&self) -> &Shelf<Refund> {
        &self.refunds
    }

    pub(crate) fn refunded(&self, intent: &str) -> i64 {
        self.refunded.get(intent).copied().unwrap_or(0)
    }

    /// The money that moved, for tests: refusals are not in it.
    pub(crate) fn ledger(&self) -> Value {
        let line = |id: &str, amount: i64, operation: Option<&String>, created: u64| json!({"id": id, "amount": amount, "operation": operation, "idempotency_key": self.keys.get(id), "created": created});
        let charges = self.intents.newest_first().filter(|intent| intent.last_payment_error.is_none());
        let charges = charges.map(|i| line(&i.id, i.amount, i.metadata.get(OPERATION), i.created));
        let refunds = self.refunds.newest_first().map(|refund| {
            let mut line = line(&refund.id, refund.amount, refund.metadata.get(OPERATION), refund.created);
            line["payment_intent"] = json!(refund.payment_intent);
            line
        });
        json!({"charges": charges.collect::<Vec<_>>(), "refunds": refunds.collect::<Vec<_>>()})
    }
}

/// Objects of one kind, in the order of their making.
pub(crate) struct Shelf<T> {
    all: Vec<T>,
    places: HashMap<String, usize>,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { all: Vec::new(), places: HashMap::new() }
    }
}

impl<T: Object> Shelf<T> {
    fn add(&mut self, object: T) -> String {
        let id = object.id().to_owned();
        self.places.insert(id.clone(), self.all.len());
        self.all.push(object);
        id
    }

    pub(crate) fn get(&self, id: &str) -> Option<&T> {
        self.places.get(id).map(|place| &self.all[*place])
    }

    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &T> {
        self.all.iter().rev()
    }
}
