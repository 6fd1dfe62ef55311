//! Every command and workflow of the service, disturbed at each of its steps: the same answer and the same state as undisturbed.
//!
//! `works` has the requests, `stage` the service that they are made to and the state that they leave. A new command is added in
//! `works` and in the list below; `tests/tidy.rs` sees to it that none is left out.

mod housekeeping;
mod stage;
mod state;
mod works;

use testkit::{Disturbance, assert_idempotent};

use crate::harness::World;
use stage::Stage;

/// A test for each disturbance, so that they run beside each other.
macro_rules! idempotent {
    ($($name:ident: $work:ty, $world:ident;)*) => {$(
        mod $name {
            use super::*;

            idempotent!(@disturbances $work, $world:
                failed Failed, killed Killed, repeated Repeated, paused Paused);
        }
    )*};
    (@disturbances $work:ty, $world:ident: $($test:ident $disturbance:ident),*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
        async fn $test() {
            assert_idempotent::<Stage<$work>>(World::$world, Disturbance::$disturbance).await;
        }
    )*};
}

idempotent! {
    create_order: works::CreateOrder, Up;
    create_order_without_redis: works::CreateOrder, Absent;
    refused_order: works::RefusedOrder, Up;
    cancel_order: works::CancelOrder, Up;
    pay_order: works::PayOrder, Up;
    pay_order_without_redis: works::PayOrder, Absent;
    declined_payment: works::DeclinedPayment, Up;
    refund_order: works::RefundOrder, Up;
    register_endpoint: works::RegisterEndpoint, Up;
    rotate_secret: works::RotateSecret, Up;
    gateway_event: works::GatewayEvent, Up;
}
