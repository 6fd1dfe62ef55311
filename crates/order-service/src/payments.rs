//! Payments: so far only the way to the gateway. The workflows that charge and refund are built on it.

pub(crate) mod gateway;
