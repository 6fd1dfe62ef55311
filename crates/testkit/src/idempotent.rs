//! [`assert_idempotent`]: whatever happens at whichever step of a command or workflow, plain retries end in the same answer and
//! the same state as one undisturbed request.
//!
//! A **step** is one round trip to PostgreSQL that the undisturbed request made; what it did in between (a call to another
//! service, say) is bracketed by two of them. At each step, before it reaches the server and after the server has done it:
//!
//! | disturbance | what happens there | what the client does |
//! | --- | --- | --- |
//! | [`Disturbance::Failed`] | the connection to PostgreSQL is cut | retries |
//! | [`Disturbance::Killed`] | the service is killed, and started anew | retries |
//! | [`Disturbance::Repeated`] | the request comes again, at this and at another replica, while the first one is held | waits, and repeats |
//! | [`Disturbance::Paused`] | the service is stopped, until another replica has answered; then it goes on | retries at the other one |
//!
//! It deliberately does not know the service: a [`Subject`] says how to make a world, what to ask and where the effects are to be
//! seen. Of the protocol it knows three things that are documented for clients: 202 is not final, a problem that says `retryable`
//! is not, and a replay is marked `Idempotent-Replayed`.
//!
//! Invariant: what two undisturbed runs do not agree on (ids, times, secrets) is generated, and is the only thing that is not
//! compared. A step that a disturbed request does not pass fails the test: nothing is skipped silently.
//!
//! ```no_run
//! # use testkit::idempotent::{Disturbance, Subject, assert_idempotent};
//! # async fn example<PayOrder: Subject<World = ()>>() {
//! assert_idempotent::<PayOrder>((), Disturbance::Killed).await;
//! # }
//! ```

mod answer;
mod disturb;
mod expected;
mod likeness;
mod step;

use std::fmt::Debug;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinSet;

use crate::http::Request;
use crate::pg_proxy::{Flight, PgProxy};
use crate::process::Process;
use expected::Expected;
use step::{Point, Step};

/// How long whatever must come may take: a lease to run out, a successor to go through all steps, and a slow machine.
const BOUND: Duration = Duration::from_secs(40);
/// Worlds that are worked in at a time, where most of the time is waiting for leases.
const LANES: usize = 4;

/// What happens to the request at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// The connection to PostgreSQL is cut.
    Failed,
    /// SIGKILL; a new process in its place.
    Killed,
    /// Duplicates arrive while the request is held there.
    Repeated,
    /// SIGSTOP for longer than the lease; SIGCONT when another replica has finished the work.
    Paused,
}

impl Disturbance {
    /// All of them.
    pub const ALL: [Disturbance; 4] =
        [Disturbance::Failed, Disturbance::Killed, Disturbance::Repeated, Disturbance::Paused];

    /// Killed and paused ones wait for a lease at each step; others are done in no time.
    fn lanes(self) -> usize {
        match self {
            Disturbance::Failed | Disturbance::Repeated => 1,
            Disturbance::Killed | Disturbance::Paused => LANES,
        }
    }
}

/// What a request is told that comes when all was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The first answer, marked as a replay.
    Replay,
    /// 409, and a `Location` that says where what was done is: for answers that hold what is shown once.
    Reference,
}

/// A command or workflow, and a service that runs it: a process behind a [`PgProxy`], and a second one beside it.
///
/// The lease of the service should be short, since a killed or paused executor's has to run out at every step.
pub trait Subject: Send + Sync + Sized + 'static {
    /// The name of the command, for messages.
    const NAME: &'static str;
    /// How a retry is answered.
    const AGAIN: Again = Again::Replay;
    /// The ways in which it can be arranged, such as with and without a cache.
    type World: Copy + Debug + Send + Sync + 'static;
    /// One request with all that it needs.
    type Case: Send + Sync + 'static;

    /// Starts the service and its stores.
    fn arrange(world: Self::World) -> impl Future<Output = Self> + Send;

    /// Makes what the request needs (an order that can be paid); `key` is new each time. Cases of a world come one after the other.
    fn prepare(&self, key: &str) -> impl Future<Output = Self::Case> + Send;

    /// The request, the same to the byte each time.
    fn request(&self, case: &Self::Case) -> Request;

    /// All effects since the case was prepared, in the database and outside: what must not be there twice, nor half.
    fn state(&self, case: &Self::Case) -> impl Future<Output = Value> + Send;

    /// Whether a round trip may belong to a request. The service's housekeeping goes through the same proxy, and does not.
    fn is_step(flight: &Flight) -> bool;

    /// Stands between the service and its database, and between no other process and it.
    fn postgres(&self) -> &PgProxy;

    /// The service's process.
    fn process(&self) -> &Process;

    /// Where the service answers.
    fn api(&self) -> SocketAddr;

    /// Where another replica answers, which reaches the database without the proxy.
    fn other_api(&self) -> SocketAddr;

    /// SIGKILL, awaited.
    fn kill(&mut self) -> impl Future<Output = ()> + Send;

    /// A new process in place of the killed one.
    fn restart(&mut self) -> impl Future<Output = ()> + Send;
}

/// Disturbs the request at each of its steps, and compares what comes of it with an undisturbed run.
///
/// # Panics
/// With command, disturbance, step and difference, when answer or state are not what the undisturbed run left; or when
/// something that must come does not come in time.
pub async fn assert_idempotent<S: Subject>(world: S::World, disturbance: Disturbance) {
    let subject = S::arrange(world).await;
    let (expected, steps) = expected::undisturbed(&subject).await;
    let points: Vec<(Step, Point)> =
        steps.iter().flat_map(|step| Point::BOTH.map(|point| (step.clone(), point))).collect();
    println!("{} in {world:?}, {disturbance:?}:", S::NAME);
    steps.iter().for_each(|step| println!("  {step}"));
    let mut lanes = JoinSet::new();
    let mut first = Some(subject);
    for lane in 0..disturbance.lanes().min(points.len()) {
        let mine: Vec<_> = points.iter().skip(lane).step_by(disturbance.lanes()).cloned().collect();
        let (expected, arranged) = (expected.clone(), first.take());
        lanes.spawn(async move {
            let mut subject = match arranged {
                Some(subject) => subject,
                None => S::arrange(world).await,
            };
            for (step, point) in mine {
                let what = format!("{} in {world:?}, {disturbance:?} {point} {step}", S::NAME);
                one(&mut subject, disturbance, &step, point, &expected, &what).await;
            }
        });
    }
    while let Some(lane) = lanes.join_next().await {
        if let Err(failed) = lane {
            std::panic::resume_unwind(failed.into_panic());
        }
    }
}

async fn one<S: Subject>(
    subject: &mut S,
    disturbance: Disturbance,
    step: &Step,
    point: Point,
    expected: &Expected,
    what: &str,
) {
    let case = subject.prepare(&format!("{disturbance:?}-{}-{point}", step.number)).await;
    let answers = disturb::disturb(subject, &case, disturbance, step, point, what).await;
    subject.postgres().clear_rules();
    let seen = expected::observed(subject, &case, answers, what).await;
    if let Some(difference) = expected.difference(&seen) {
        panic!("{what}:\n{difference}");
    }
}
