//! A payment and a refund, as callers see them and as events have them.

use idempotency::Id;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Money {
    pub(crate) amount: i64,
    pub(crate) currency: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PaymentView {
    pub(crate) id: Id,
    pub(crate) order_id: Id,
    pub(crate) status: String,
    pub(crate) total: Money,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RefundView {
    pub(crate) id: Id,
    pub(crate) order_id: Id,
    pub(crate) payment_id: Id,
    pub(crate) status: String,
    pub(crate) total: Money,
}
