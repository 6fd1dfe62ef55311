//! HTTP/1.1 by the byte, for what a well-behaved client cannot do: half a request, two in one write, a reset, a
//! header twice, a body that is announced and never sent.
//!
//! It deliberately does not know TLS, redirects, cookies, compression or HTTP/2, and corrects nothing: what a test
//! writes is what is sent.
//!
//! Invariant: every call ends within its bound ([`DEFAULT_BOUND`] unless the request or connection names another),
//! and a response that is not complete is an error, never a short body.
//!
//! ```no_run
//! # async fn example(addr: std::net::SocketAddr) -> std::io::Result<()> {
//! use testkit::{Connection, Request, send};
//!
//! let order = Request::post("/v1/orders").header("Idempotency-Key", "K").json(&serde_json::json!({"sku": "a"}));
//! assert_eq!(send(addr, &order).await?.status, 201);
//!
//! let mut half = Connection::open(addr).await?;
//! half.send_part(&order, 5).await?; // the head and five bytes of the body
//! half.reset();
//! # Ok(()) }
//! ```

mod connection;
mod request;
mod response;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub use connection::Connection;
pub use request::Request;
pub use response::Response;

/// How long a call may take.
pub const DEFAULT_BOUND: Duration = Duration::from_secs(30);

/// One request on a connection of its own.
pub async fn send(addr: SocketAddr, request: &Request) -> io::Result<Response> {
    Connection::open(addr).await?.bound(request.bound).exchange(request).await
}
