//! The articles' designs, each a small server on the same actix, pools and order work as the service.
//!
//! | module | design |
//! | --- | --- |
//! | `no_key` | none: what the work costs, in turn or in as few flights as can be |
//! | `redis_only` | `SET NX GET`, two times to live, DEL on error |
//! | `postgres_only` | `INSERT ON CONFLICT DO NOTHING` in the order's transaction |
//! | `naive_hybrid` | Lua lock, record in the transaction, unconditional DEL |
//! | `bare_evalsha` | not a design: the floor of a replay |
//!
//! Faithful in the protocol, and not crippled anywhere else: pools and a kept Redis connection for each worker, statements
//! prepared once and sent without waiting wherever the protocol lets them (only `no-key` awaits each in turn). They keep
//! the articles' faults; nothing but `bench` may use them. Invariant: a handler is a plain actix handler, so that what a
//! dropped client does to it is what it does to everybody's.

mod answer;
mod bare_evalsha;
mod line;
mod naive_hybrid;
mod no_key;
mod perform;
mod postgres_only;
mod redis_only;
mod request;
pub mod schema;
mod server;
mod session;

pub use bare_evalsha::NAME as BARE_EVALSHA_NAME;
pub use naive_hybrid::name as naive_hybrid_name;
pub use redis_only::name as redis_only_name;
pub use server::{LOCK_TTL, Settings, serve};
