//! Test tools: the service as a process, raw HTTP towards it, and proxies between it and its stores that break
//! a connection at a *named* point.
//!
//! | module | for |
//! | --- | --- |
//! | [`wait`] | bounded waits for a condition; the only polling in the kit |
//! | [`process`] | a child process: its lines, its signals, its exit |
//! | [`http`] | HTTP/1.1 by the byte: half a request, a reset, two requests in one write |
//! | [`proxy`] | what both proxies share: rules, switches, the log |
//! | [`redis_proxy`] | the proxy that reads RESP |
//! | [`pg_proxy`] | the proxy that reads PostgreSQL's protocol, and counts round trips |
//! | [`idempotent`] | `assert_idempotent`: fails, kills, repeats and pauses a command at each of its steps, and compares |
//!
//! The kit deliberately does not know the service: no route, no table, no script.
//!
//! Invariant: no test sleeps. Every wait is for a condition or a signal, has a bound, and panics at it with the
//! name of what did not come and the line that waited.

pub mod http;
pub mod idempotent;
pub mod pg_proxy;
pub mod process;
pub mod proxy;
pub mod redis_proxy;
pub mod wait;

pub use http::{Connection, Request, Response, send};
pub use idempotent::{Again, Disturbance, Subject, assert_idempotent};
pub use pg_proxy::{Flight, PgProxy, SqlMatch};
pub use process::{Process, Signal};
pub use proxy::{Action, Door, Proxy, Rule};
pub use redis_proxy::{Command, CommandMatch, RedisProxy};
pub use wait::{until, within};
