//! The sandbox over real sockets, in this process or as one of its own.

mod gateway;
mod support;
mod webhooks;
