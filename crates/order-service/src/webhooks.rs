//! Webhook endpoints: where an account's events go. (Delivery reads them later.)

mod endpoints;
mod register;
mod target;

pub(crate) use endpoints::{delete, list};
pub(crate) use register::RegisterEndpoint;

use idempotency::ProblemKind;

pub(crate) const TARGET_FORBIDDEN: &ProblemKind = &ProblemKind::rejection(
    "webhook-target-forbidden",
    422,
    "The address is not one that webhooks may go to",
    "Webhooks go to public addresses: not to loopback, private, link-local or otherwise special ones. Nothing was registered, and \
     this refusal is the answer of its key for good. Register another address with a new key.",
);

/// Every kind of this module.
pub(crate) const REJECTIONS: &[&ProblemKind] = &[TARGET_FORBIDDEN];
