//! End-to-end tests, named after what they protect.
//!
//! The service is a real process, the stores are real servers, and what breaks is broken at a named point by a proxy.
//! `harness` has the stack, the app under test and the worlds; every other module is about one promise.

mod answers;
mod bodies;
mod cli;
mod counts;
mod dev;
mod doctor;
mod gateway_events;
mod harness;
mod horizons;
mod idempotent;
mod keys;
mod kills;
mod last_writes;
mod limits;
mod lost_commit;
mod metrics;
mod openapi;
mod ops;
mod outbox;
mod payments;
mod postgres_faults;
mod races;
mod random_kills;
mod reaper;
mod redis_faults;
mod routing;
mod serialised;
mod shutdown;
mod smoke;
mod status;
mod stormed;
mod verify;
mod waiting;
mod webhook_endpoints;
mod webhooks;
mod workflow_faults;
mod workflow_keys;
mod workflow_kills;
mod workflow_pauses;
mod workflows;
