//! The decisions: what a card does, how much may be refunded, what an idempotency key means.
//!
//! A key is free, in use by a running request, or answered for ever. Invariant: per key one request is carried out, and
//! who comes meanwhile is told so; a request that dies before its line is in the log leaves the key free.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;

use crate::books::{Books, Entry, Outcome};
use crate::form::Form;
use crate::log::Log;
use crate::objects::{CardError, Metadata, PaymentIntent, Refund, new_id, now};
use crate::refusal::Refusal;

/// What a request asks for, well-formed.
#[derive(Debug)]
pub(crate) enum Order {
    Charge { amount: i64, currency: String, source: String, metadata: Metadata },
    Refund { intent: String, amount: Option<i64>, metadata: Metadata },
}

impl Order {
    pub(crate) fn charge(form: &Form) -> Result<Self, Refusal> {
        let amount =
            form.amount("amount")?.ok_or_else(|| Refusal::parameter("Missing required param: amount."))?;
        let (currency, source) = (form.required("currency")?, form.required("payment_method")?);
        if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err(Refusal::parameter(format!("Invalid currency: {currency}")));
        }
        if form.get("confirm") != Some("true") {
            return Err(Refusal::parameter("the sandbox knows confirm=true only"));
        }
        let (currency, source) = (currency.to_ascii_lowercase(), source.to_owned());
        Ok(Self::Charge { amount, currency, source, metadata: form.metadata()? })
    }

    pub(crate) fn refund(form: &Form) -> Result<Self, Refusal> {
        let (intent, amount) = (form.required("payment_intent")?.to_owned(), form.amount("amount")?);
        Ok(Self::Refund { intent, amount, metadata: form.metadata()? })
    }

    /// The card or token behind a charge.
    pub(crate) fn source(&self) -> Option<&str> {
        match self {
            Self::Charge { source, .. } => Some(source),
            Self::Refund { .. } => None,
        }
    }
}

pub(crate) struct Till(Mutex<State>);

struct State {
    books: Books,
    log: Log,
    /// Keys whose requests run.
    in_use: HashSet<String>,
}

/// How a request under a key is met.
pub(crate) enum Arrival {
    /// It was carried out before.
    Answered(Box<Outcome>),
    /// It is this one's to carry out.
    Begun(Claim),
}

/// The right to carry out one request; dropping it frees the key.
pub(crate) struct Claim {
    till: Arc<Till>,
    key: Option<String>,
    request: String,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.till.state().in_use.remove(key);
        }
    }
}

impl Till {
    pub(crate) fn open(folder: &Path) -> anyhow::Result<Self> {
        let opened = Log::open(folder).with_context(|| format!("cannot use the store {}", folder.display()));
        let (log, entries) = opened?;
        let mut books = Books::default();
        entries.into_iter().for_each(|entry| books.enter(entry));
        Ok(Self(Mutex::new(State { books, log, in_use: HashSet::new() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The books change in one step, after the log: a panic elsewhere leaves them whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&Books) -> T) -> T {
        look(&self.state().books)
    }

    /// Takes the key, or says why not.
    pub(crate) fn arrive(self: &Arc<Self>, key: Option<&str>, request: String) -> Result<Arrival, Refusal> {
        if let Some(key) = key {
            let mut state = self.state();
            let State { books, in_use, .. } = &mut *state;
            match books.answered(key) {
                Some(entry) if entry.request == request => {
                    return Ok(Arrival::Answered(Box::new(entry.outcome.clone())));
                }
                Some(_) => return Err(Refusal::key_reused()),
                None if !in_use.insert(key.to_owned()) => return Err(Refusal::key_in_use()),
                None => {}
            }
        }
        Ok(Arrival::Begun(Claim { till: self.clone(), key: key.map(str::to_owned), request }))
    }
}

impl Claim {
    /// Decides, writes, and only then frees the key. A refusal of the inner result left no trace.
    pub(crate) fn carry_out(self, order: Order) -> io::Result<Result<Entry, Refusal>> {
        let mut state = self.till.state();
        let outcome = match decide(&state.books, order)? {
            Ok(outcome) => outcome,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let (key, request, event) = (self.key.clone(), self.request.clone(), new_id("evt")?);
        let entry = Entry { key, request, event, outcome };
        state.log.append(&entry)?;
        state.books.enter(entry.clone());
        Ok(Ok(entry))
    }
}

fn decide(books: &Books, order: Order) -> io::Result<Result<Outcome, Refusal>> {
    Ok(match order {
        Order::Charge { amount, currency, source, metadata } => {
            let decline = decline(&source);
            let intent = PaymentIntent {
                id: new_id("pi")?,
                object: "payment_intent".to_owned(),
                amount,
                amount_received: if decline.is_none() { amount } else { 0 },
                currency,
                status: if decline.is_none() { "succeeded" } else { "requires_payment_method" }.to_owned(),
                payment_method: source,
                metadata,
                last_payment_error: decline,
                created: now(),
                livemode: false,
            };
            Ok(match intent.last_payment_error {
                None => Outcome::Charged(intent),
                Some(_) => Outcome::Declined(intent),
            })
        }
        Order::Refund { intent: id, amount, metadata } => {
            let Some(intent) = books.intents().get(&id) else {
                return Ok(Err(Refusal::missing("payment_intent", &id)));
            };
            let left = intent.amount_received - books.refunded(&id);
            let amount = amount.unwrap_or(left);
            if let Some(refusal) = excess(intent, left, amount) {
                return Ok(Ok(Outcome::Refused(refusal)));
            }
            Ok(Outcome::Refunded(Refund {
                id: new_id("re")?,
                object: "refund".to_owned(),
                amount,
                currency: intent.currency.clone(),
                payment_intent: id,
                status: "succeeded".to_owned(),
                metadata,
                created: now(),
            }))
        }
    })
}

fn excess(intent: &PaymentIntent, left: i64, amount: i64) -> Option<Refusal> {
    if intent.last_payment_error.is_some() {
        let message = "This PaymentIntent does not have a successful charge to refund.";
        return Some(Refusal::forbidden("payment_intent_unexpected_state", message));
    }
    if left == 0 {
        let message = format!("Charge of {} has already been refunded.", intent.id);
        return Some(Refusal::forbidden("charge_already_refunded", message));
    }
    (amount > left).then(|| {
        let message =
            format!("Refund amount ({amount}) is greater than unrefunded amount on charge ({left})");
        Refusal::forbidden("amount_too_large", message)
    })
}

/// Why the card says no, if it does.
fn decline(source: &str) -> Option<CardError> {
    let (decline_code, message) = match source {
        "tok_chargeDeclined" => ("generic_decline", "Your card was declined."),
        "tok_chargeDeclinedInsufficientFunds" => ("insufficient_funds", "Your card has insufficient funds."),
        _ => return None,
    };
    Some(CardError {
        kind: "card_error".to_owned(),
        code: "card_declined".to_owned(),
        decline_code: decline_code.to_owned(),
        message: message.to_owned(),
    })
}

/// Whether the source is one that is known to be charged or declined.
pub(crate) fn is_card(source: &str) -> bool {
    matches!(source, "tok_visa" | "tok_mastercard" | "pm_card_visa") || decline(source).is_some()
}
