//! What every case stands on.
//!
//! `stack`: one PostgreSQL for all tests, with a migrated template. `world`: what happens to Redis. `app`: the service as a
//! process with a database and a Redis of its own. Invariant: a test sees only its own database and Redis, so all run in
//! parallel, and every case ends with the checks that hold after every case.

mod app;
pub mod database;
pub mod deliveries;
pub mod foreign;
pub mod receiver;
pub mod sandbox;
mod stack;
pub mod voyage;
mod world;

pub use app::{App, Replica, order, redis_command};
pub use stack::{Stack, program_output};
pub use world::{World, script};

/// A case in every world: `in_every_world!(name, |app| async move { … })`, or with a first argument that changes the
/// service's settings: `in_every_world!(name, |builder| builder.env("…", "…"), |app| async move { … })`.
macro_rules! in_every_world {
    ($name:ident, |$app:ident| $case:expr) => {
        in_every_world!($name, |builder| builder, |$app| $case);
    };
    ($name:ident, |$builder:ident| $configure:expr, |$app:ident| $case:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            use $crate::harness::World;

            async fn in_world(world: World) {
                let $builder = $crate::harness::App::builder(world);
                let $app = $configure.start().await;
                let after = $app.after();
                $case.await;
                after.check().await;
            }

            in_every_world!(@worlds up Up, absent Absent, acquire_not_sent AcquireNotSent,
                acquire_reply_lost AcquireReplyLost, gone_before_settle GoneBeforeSettle, settle_lost SettleLost,
                flushed_while_running FlushedWhileRunning);
        }
    };
    (@worlds $($test:ident $world:ident),*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
        async fn $test() {
            in_world(World::$world).await;
        }
    )*};
}
pub(crate) use in_every_world;
