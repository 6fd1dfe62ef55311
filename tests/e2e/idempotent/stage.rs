//! The service under test as the kit wants it: one replica behind a proxy, one beside it, and a payment sandbox.
//!
//! Invariant: a stage has a database, a Redis and a sandbox of its own.

use std::marker::PhantomData;
use std::net::SocketAddr;

use serde_json::Value;
use testkit::{Again, Flight, PgProxy, Process, Request, Subject};

use super::housekeeping;
use super::state::{Since, state};
use super::works::{Prepared, Work};
use crate::gateway_events::CONFIGURED;
use crate::harness::sandbox::Sandbox;
use crate::harness::voyage::BOUND;
use crate::harness::{App, Replica, World};

/// Short, so that what was left behind by a killed or paused executor is soon free.
const LEASE: &str = "1s";

pub struct Stage<W> {
    app: App,
    beside: Replica,
    sandbox: Sandbox,
    work: PhantomData<W>,
}

/// A request, and when its effects begin.
pub struct Case {
    prepared: Prepared,
    since: Since,
}

impl<W: Work> Subject for Stage<W> {
    const NAME: &'static str = W::NAME;
    const AGAIN: Again = W::AGAIN;
    type World = World;
    type Case = Case;

    async fn arrange(world: World) -> Self {
        let sandbox = Sandbox::start().await;
        let builder = App::builder(world).pg_proxy();
        let builder = builder.env("IDEMPOTENCY_LEASE", LEASE).env("GATEWAY_TIMEOUT", "2s");
        let builder = builder.env("GATEWAY_WEBHOOK_SECRET", CONFIGURED);
        let app = sandbox
            .env()
            .iter()
            .fold(builder, |builder, (name, value)| builder.env(name, value))
            .start()
            .await;
        let beside = app.new_replica_with(&[("DATABASE_URL", &app.database_url)]).await;
        Self { app, beside, sandbox, work: PhantomData }
    }

    async fn prepare(&self, key: &str) -> Case {
        let since = Since::now(&self.app, &self.sandbox).await;
        let prepared = W::prepare(&self.app, key).await;
        Case { prepared: Prepared { request: prepared.request.bound(BOUND), ..prepared }, since }
    }

    fn request(&self, case: &Case) -> Request {
        case.prepared.request.clone()
    }

    async fn state(&self, case: &Case) -> Value {
        state(&self.app, &self.sandbox, &case.since, case.prepared.secret.as_deref()).await
    }

    fn is_step(flight: &Flight) -> bool {
        housekeeping::is_step(flight)
    }

    fn postgres(&self) -> &PgProxy {
        self.app.pg_proxy.as_ref().expect("the stage has a proxy")
    }

    fn process(&self) -> &Process {
        &self.app.replica().process
    }

    fn api(&self) -> SocketAddr {
        self.app.replica().api
    }

    fn other_api(&self) -> SocketAddr {
        self.beside.api
    }

    async fn kill(&mut self) {
        self.app.kill().await;
    }

    async fn restart(&mut self) {
        self.app.restart().await;
    }
}
