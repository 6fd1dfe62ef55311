//! The shop's definite noes: stored under the key, replayed to every retry.

use idempotency::ProblemKind;

pub(crate) const UNKNOWN_SKU: &ProblemKind = &ProblemKind::rejection(
    "unknown-sku",
    422,
    "An item is not in the catalogue",
    "The order names a sku that is not in the catalogue; the detail says which. Nothing was ordered, and this refusal is the \
     answer of its key for good. Correct the order and send it with a new key.",
);
pub(crate) const INSUFFICIENT_STOCK: &ProblemKind = &ProblemKind::rejection(
    "insufficient-stock",
    422,
    "There is not enough in stock",
    "The order asks for more than there is; the detail says of what. Nothing was ordered, and this refusal is the answer of its \
     key for good. Order less, or later, with a new key.",
);
pub(crate) const MIXED_CURRENCIES: &ProblemKind = &ProblemKind::rejection(
    "mixed-currencies",
    422,
    "The items are priced in different currencies",
    "One order is paid in one currency, and these items have prices in several. Nothing was ordered. Make one order per \
     currency, each with its own key.",
);
pub(crate) const ORDER_NOT_FOUND: &ProblemKind = &ProblemKind::rejection(
    "not-found",
    404,
    "There is no such order",
    "No order with this id belongs to the caller. Nothing was done, and this refusal is the answer of its key for good.",
);
pub(crate) const ORDER_NOT_CANCELLABLE: &ProblemKind = &ProblemKind::rejection(
    "order-not-cancellable",
    409,
    "The order cannot be cancelled any more",
    "An order can be cancelled until it is paid, being paid or cancelled. Nothing was done, and this refusal is the answer of \
     its key for good.",
);

/// Every kind of this file.
#[rustfmt::skip]
pub(crate) const ALL: &[&ProblemKind] = &[
    UNKNOWN_SKU,
    INSUFFICIENT_STOCK,
    MIXED_CURRENCIES,
    ORDER_NOT_FOUND,
    ORDER_NOT_CANCELLABLE,
];
