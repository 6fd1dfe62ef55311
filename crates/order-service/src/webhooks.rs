//! Webhooks: where an account's events go, and how they get there.
//!
//! When they go is the framework's relay's affair (`idempotency::relay`); here are the endpoints, and the sink that signs and
//! sends.

mod endpoints;
pub(crate) mod operate;
mod register;
mod resolver;
mod rotate;
mod sender;
mod signature;
pub(crate) mod target;

pub(crate) use endpoints::{delete, list};
pub(crate) use register::RegisterEndpoint;
pub(crate) use rotate::RotateSecret;
pub(crate) use sender::Sender;
pub(crate) use signature::{SigningKey, new_secret};

use idempotency::ProblemKind;

pub(crate) const TARGET_FORBIDDEN: &ProblemKind = &ProblemKind::rejection(
    "webhook-target-forbidden",
    422,
    "The address is not one that webhooks may go to",
    "Webhooks go to public addresses: not to loopback, private, link-local or otherwise special ones. Nothing was registered, and \
     this refusal is the answer of its key for good. Register another address with a new key.",
);

pub(crate) const ENDPOINT_NOT_FOUND: &ProblemKind = &ProblemKind::rejection(
    "not-found",
    404,
    "There is no such endpoint",
    "No webhook endpoint with this id belongs to the caller. Nothing was done, and this refusal is the answer of its key for good.",
);

/// Every kind of this module.
pub(crate) const REJECTIONS: &[&ProblemKind] = &[TARGET_FORBIDDEN, ENDPOINT_NOT_FOUND];
