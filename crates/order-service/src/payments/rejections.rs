//! Definite noes about payments: stored under the key, replayed to every retry.

use idempotency::{ProblemKind, SameKey};

pub(crate) const ORDER_NOT_PAYABLE: &ProblemKind = &ProblemKind::rejection(
    "order-not-payable",
    409,
    "The order cannot be paid now",
    "An order can be paid while it waits for it: not when it is paid, being paid, cancelled or refunded. Nothing was charged under this \
     key, and this refusal is its answer for good. Look at the order before you try with a new key.",
);
pub(crate) const PAYMENT_DECLINED: &ProblemKind = &ProblemKind::rejection(
    "payment-declined",
    402,
    "The payment was declined",
    "The gateway declined the payment; the detail says why. Nothing was charged, the order can be paid again, and this refusal is the \
     answer of its key for good. Use a new key for another try.",
);
pub(crate) const ORDER_NOT_REFUNDABLE: &ProblemKind = &ProblemKind::rejection(
    "order-not-refundable",
    409,
    "The order cannot be refunded",
    "Only what was paid can be given back, and this order is not paid. Nothing was given back, and this refusal is the answer of its \
     key for good.",
);
pub(crate) const REFUND_TOO_LARGE: &ProblemKind = &ProblemKind::rejection(
    "refund-too-large",
    422,
    "The refund is larger than what is left of the payment",
    "All refunds of an order together never exceed its payment; the detail says what is left. Nothing was given back, and this refusal \
     is the answer of its key for good. Ask for less with a new key.",
);
pub(crate) const REFUND_REFUSED: &ProblemKind = &ProblemKind::rejection(
    "refund-refused",
    409,
    "The gateway refused the refund",
    "The gateway gives nothing (or not so much) back for this payment; the detail says why. Nothing was given back, and this refusal is \
     the answer of its key for good.",
);
/// Before a key is taken.
pub(crate) const GATEWAY_NOT_CONFIGURED: &ProblemKind = &ProblemKind {
    code: "gateway-not-configured",
    status: 503,
    title: "Payments are not set up",
    retryable: true,
    same_key: SameKey::Yes,
    new_key_safe: false,
    retry_after_ms: 30_000,
    page: "This service has no payment gateway (GATEWAY_URL, GATEWAY_KEY). Nothing was done and no key was taken: send the same request \
           again once it has one.",
};

/// Every kind of this file.
#[rustfmt::skip]
pub(crate) const ALL: &[&ProblemKind] = &[
    ORDER_NOT_PAYABLE,
    PAYMENT_DECLINED,
    ORDER_NOT_REFUNDABLE,
    REFUND_TOO_LARGE,
    REFUND_REFUSED,
    GATEWAY_NOT_CONFIGURED,
];
