//! Payments and refunds: workflows over the gateway, one file each.
//!
//! `pay` and `refund` know orders and what they do to them; `gateway` knows the other side. Invariant: whatever dies, an order is
//! charged at most once, and never gives back more than it was charged.

pub(crate) mod gateway;
pub(crate) mod pay;
mod refund;
pub(crate) mod rejections;
mod view;

pub(crate) use pay::PayOrder;
pub(crate) use refund::RefundOrder;

use gateway::{CallError, Found, Gateway};
use idempotency::{Abort, Recovered, Unanswered};

use crate::Shop;

/// The metadata member of charges and refunds that names the account: what the gateway says about them later is given to it.
pub(crate) const ACCOUNT: &str = "account";

/// The process has no way to the gateway. Its routes are not served then; a record that another replica began waits for one that has.
#[derive(Debug, thiserror::Error)]
#[error("no payment gateway is set up in this process")]
struct NotConfigured;

fn gateway_of(shop: &Shop) -> Result<&Gateway, Abort> {
    shop.gateway.as_ref().ok_or_else(|| NotConfigured.into())
}

/// A call that failed: whether it is certain that it did nothing.
fn unanswered(error: &CallError) -> Unanswered {
    match error {
        // A refusal is our fault or a setting's: nothing was done, and somebody has to mend it.
        CallError::NotDone { .. } | CallError::Refused(_) => Unanswered::NotSent(error.to_string()),
        CallError::InProgress(_) | CallError::Unknown(_) => Unanswered::Unknown(error.to_string()),
    }
}

/// What the gateway says about a call.
fn recovered<T>(found: Result<Found<T>, CallError>) -> Recovered<T> {
    match found {
        Ok(Found::Done(answer)) => Recovered::Done(answer),
        Ok(Found::Absent) => Recovered::Absent,
        Ok(Found::Unknown(_)) | Err(_) => Recovered::Unknown,
    }
}
