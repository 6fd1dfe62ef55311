//! Every operation of the public API, as data: what the document and the page for people are made of.
//!
//! Knows paths, schemas' names and problem kinds. A handler that is routed and of which nothing is said here is listed all the same, by its
//! name. Invariant (`tests/e2e/openapi.rs`): what is listed is served, and what `routes.rs` serves is listed.

use std::borrow::Cow;

use idempotency::http::{Routed, routed};
use idempotency::{ProblemKind, problems};

use crate::gateway_events;
use crate::orders::rejections::{
    INSUFFICIENT_STOCK, MIXED_CURRENCIES, ORDER_NOT_CANCELLABLE, ORDER_NOT_FOUND, UNKNOWN_SKU,
};
use crate::payments::rejections::{
    GATEWAY_NOT_CONFIGURED, ORDER_NOT_PAYABLE, ORDER_NOT_REFUNDABLE, PAYMENT_DECLINED, REFUND_REFUSED,
    REFUND_TOO_LARGE,
};
use crate::webhooks::{ENDPOINT_NOT_FOUND, TARGET_FORBIDDEN};

/// Of which kind an operation is: that decides its parameters and what it shares with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A POST with a key.
    Command,
    /// A POST with a key that may go on in the background.
    Workflow,
    /// A POST with a signature instead of credentials.
    Signed,
    /// A list in pages.
    List,
    /// A read of one thing.
    Read,
    /// A read that `Prefer: wait=N` makes wait.
    Poll,
    /// A DELETE.
    Delete,
    /// Read by anybody.
    Open,
}

/// One operation.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    pub(super) path: Cow<'static, str>,
    pub(super) summary: Cow<'static, str>,
    /// The schema of the body, if it has one.
    pub(super) takes: Option<&'static str>,
    /// Status (if it is known) and, unless there is no body, schema of success.
    pub(super) gives: (Option<u16>, Option<&'static str>),
    /// What it refuses beside what its kind does.
    pub(super) refusals: &'static [&'static ProblemKind],
}

impl Operation {
    pub(super) fn method(&self) -> &'static str {
        match self.kind {
            Kind::Command | Kind::Workflow | Kind::Signed => "post",
            Kind::Delete => "delete",
            Kind::List | Kind::Read | Kind::Poll | Kind::Open => "get",
        }
    }

    /// Of which only what the router knows is known.
    fn untold(routed: Routed) -> Self {
        let kind = match routed.method {
            "get" => Kind::Read,
            "delete" => Kind::Delete,
            _ if routed.is_workflow => Kind::Workflow,
            _ => Kind::Command,
        };
        Self {
            kind,
            path: Cow::Owned(routed.path),
            summary: Cow::Borrowed(routed.name),
            takes: matches!(kind, Kind::Command | Kind::Workflow).then_some("Anything"),
            gives: (None, Some("Anything")),
            refusals: &[],
        }
    }

    /// Everything that it may refuse with.
    pub(super) fn problems(&self) -> Vec<&'static ProblemKind> {
        let (shared, more): (&[&ProblemKind], &[&ProblemKind]) = match self.kind {
            Kind::Command => (&COMMAND, &[]),
            Kind::Workflow => (&COMMAND, &WORKFLOW),
            Kind::Signed => (&SIGNED, &[]),
            Kind::List => (&LIST, &[]),
            Kind::Read | Kind::Poll | Kind::Delete => (&READ, &[]),
            Kind::Open => (&[], &[]),
        };
        shared.iter().chain(more).chain(self.refusals).copied().collect()
    }
}

/// Every operation: what is told of the shop's, and whatever else this process routes.
pub(super) fn all() -> Vec<Operation> {
    let mut all = TOLD.to_vec();
    for other in routed() {
        if !TOLD.iter().any(|told| told.method() == other.method && told.path == other.path) {
            all.push(Operation::untold(other));
        }
    }
    all
}

const COMMAND: [&ProblemKind; 14] = [
    problems::KEY_MISSING,
    problems::KEY_INVALID,
    problems::INVALID_REQUEST,
    problems::UNAUTHENTICATED,
    problems::REQUEST_TIMEOUT,
    problems::REQUEST_IN_PROGRESS,
    problems::ALREADY_COMPLETED,
    problems::BODY_TOO_LARGE,
    problems::UNSUPPORTED_MEDIA_TYPE,
    problems::KEY_REUSED,
    problems::INTERNAL,
    problems::TEMPORARILY_UNAVAILABLE,
    problems::OVERLOADED,
    problems::NOT_FOUND,
];
/// Beside those of commands.
const WORKFLOW: [&ProblemKind; 4] =
    [problems::CALLER_BUSY, problems::OUTCOME_UNKNOWN, problems::ABANDONED, problems::WORKFLOW_CHANGED];
const SIGNED: [&ProblemKind; 5] = [
    problems::INVALID_REQUEST,
    problems::BODY_TOO_LARGE,
    problems::UNSUPPORTED_MEDIA_TYPE,
    problems::INTERNAL,
    problems::TEMPORARILY_UNAVAILABLE,
];
const LIST: [&ProblemKind; 3] =
    [problems::INVALID_REQUEST, problems::UNAUTHENTICATED, problems::TEMPORARILY_UNAVAILABLE];
const READ: [&ProblemKind; 3] =
    [problems::NOT_FOUND, problems::UNAUTHENTICATED, problems::TEMPORARILY_UNAVAILABLE];

macro_rules! operations {
    ($($kind:ident $path:literal $summary:literal ($($takes:literal)?) -> $status:literal ($($gives:literal)?) [$($refusal:expr),*];)*) => {
        /// What is said of each operation of the shop, in the order of the documentation.
        const TOLD: &[Operation] = &[$(Operation {
            kind: Kind::$kind,
            path: Cow::Borrowed($path),
            summary: Cow::Borrowed($summary),
            takes: operations!(@optional $($takes)?),
            gives: (Some($status), operations!(@optional $($gives)?)),
            refusals: &[$($refusal),*],
        }),*];
    };
    (@optional) => { None };
    (@optional $name:literal) => { Some($name) };
}

operations! {
    Command "/v1/orders" "Make an order: prices are the catalogue's, stock is taken with it" ("NewOrder") -> 201 ("Order")
        [UNKNOWN_SKU, INSUFFICIENT_STOCK, MIXED_CURRENCIES];
    List "/v1/orders" "The caller's orders, the latest first" () -> 200 ("Orders") [];
    Read "/v1/orders/{id}" "One of the caller's orders" () -> 200 ("Order") [];
    Command "/v1/orders/{id}/cancel" "Cancel an order that is not paid: its stock is put back" () -> 200 ("Order")
        [ORDER_NOT_FOUND, ORDER_NOT_CANCELLABLE];
    Workflow "/v1/orders/{id}/payments" "Pay an order; the gateway charges once at most" ("NewPayment") -> 201 ("Payment")
        [ORDER_NOT_FOUND, ORDER_NOT_PAYABLE, PAYMENT_DECLINED, GATEWAY_NOT_CONFIGURED];
    Workflow "/v1/orders/{id}/refunds" "Give back part of a payment, or all of it; one refund of a caller at a time"
        ("NewRefund") -> 201 ("Refund")
        [ORDER_NOT_FOUND, ORDER_NOT_REFUNDABLE, REFUND_TOO_LARGE, REFUND_REFUSED, GATEWAY_NOT_CONFIGURED];
    Poll "/v1/operations/{id}" "Work that goes on in the background, or was interrupted" () -> 200 ("Operation") [];
    List "/v1/products" "The catalogue" () -> 200 ("Products") [];
    Read "/v1/products/{sku}" "One product" () -> 200 ("Product") [];
    Command "/v1/webhook-endpoints" "Say where events go; the secret is in the first answer only" ("NewEndpoint") -> 201 ("NewSecret")
        [TARGET_FORBIDDEN];
    List "/v1/webhook-endpoints" "Where the caller's events go" () -> 200 ("Endpoints") [];
    Delete "/v1/webhook-endpoints/{id}" "Send no more events there" () -> 204 () [];
    Command "/v1/webhook-endpoints/{id}/rotate-secret" "A new secret; the old one signs beside it for a while" () -> 201 ("NewSecret")
        [ENDPOINT_NOT_FOUND];
    List "/v1/events" "What happened to the caller's orders, the latest first" () -> 200 ("Events") [];
    Signed "/v1/gateway-events" "The payment gateway's own messages, signed as Standard Webhooks has it" ("GatewayEvent") -> 204 ()
        [gateway_events::NOT_SIGNED, gateway_events::NOT_CONFIGURED];
    Poll "/v1/idempotency-keys/{key}" "What has become of one of the caller's keys" () -> 200 ("KeyState") [problems::KEY_NOT_SEEN];
    Open "/v1/idempotency" "The idempotency policy in force" () -> 200 ("Policy") [];
    Open "/problems/{code}" "What a problem means and what to do, for people" () -> 200 () [problems::NOT_FOUND];
    Open "/openapi.json" "This document" () -> 200 ("Document") [];
    Open "/docs" "The same for people" () -> 200 () [];
}
