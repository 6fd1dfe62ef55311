//! Work that reaches outside: [`Workflow`], written from top to bottom, run step by step.
//!
//! A step is a transaction ([`Flow::atomic`]) or a call to another service outside of any ([`Flow::foreign`]). Each is journaled;
//! whoever goes on after a crash runs the same code again and finds the finished steps done. Knows nothing of HTTP or Redis.
//! Invariant: no step is done twice, and a foreign call is repeated only with the same derived key, and only once the other side
//! has said that it knows nothing of it.

mod flow;
mod journal;
mod registry;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::command::{Abort, Invalid, Tx};
use crate::reply::{Reply, StoredReply};

pub(crate) use flow::FlowEnd;
pub use flow::{Flow, Recovered, Unanswered};
pub use journal::Journal;
pub use registry::Workflows;

/// Work of several steps: the typed request, and what it does.
///
/// The code between steps may run more than once, and must take the same way each time: from the request, the state and the
/// results of steps, never from a clock, a random number or a table that it reads by itself. The names and the order of steps are
/// part of what is stored: a build that changes them cannot go on with what an earlier one has begun.
///
/// ```
/// use idempotency::{Abort, Flow, Recovered, Reply, Unanswered, Workflow};
///
/// #[derive(serde::Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Announce { id: idempotency::Id }
///
/// struct Billboard;
/// impl Billboard {
///     async fn put_up(&self, key: String) -> Result<String, Unanswered> { Ok(key) }
///     async fn find(&self, _key: String) -> Recovered<String> { Recovered::Absent }
/// }
///
/// impl Workflow for Announce {
///     const NAME: &'static str = "things.announce";
///     type State = Billboard;
///     type Output = serde_json::Value;
///
///     async fn run<'f>(&'f self, flow: &mut Flow<'f>, billboard: &'f Billboard) -> Result<Reply<Self::Output>, Abort> {
///         flow.atomic("mark", |tx| Box::pin(async move {
///             tx.query("UPDATE things SET announcing = true WHERE id = $1", &[&self.id.0]).await?;
///             Ok(())
///         })).await?;
///         let poster = flow.foreign("put-up", |key| billboard.put_up(key), |key| billboard.find(key)).await?;
///         Ok(Reply::ok(serde_json::json!({ "id": self.id, "poster": poster })))
///     }
/// }
/// ```
pub trait Workflow: DeserializeOwned + Send + Sync + 'static {
    /// Stable name, such as `orders.pay`: part of the fingerprint, the record, metrics and logs. Never change it.
    const NAME: &'static str;
    /// Whether only one of these runs at a time for each caller; another is told 409 `caller-busy`.
    const SERIALIZE: bool = false;
    /// The longest that one foreign call, or one question about it, may take.
    const CALL_MAX: Duration = Duration::from_secs(20);
    /// What the workflow shares with others: settings, clients. Registered as `web::Data` and in [`Workflows`] by the service.
    type State: Send + Sync + 'static;
    /// The body of its answer.
    type Output: Serialize;

    /// Checks that need no store. The error names the field.
    ///
    /// # Errors
    /// [`Invalid`]: answered 400, and no key is taken.
    fn validate(&self) -> Result<(), Invalid> {
        Ok(())
    }

    /// Does the work, step by step.
    ///
    /// # Errors
    /// [`Abort::Reject`] is the answer for good, and undoes no step that is done; [`Abort::Fail`] stores nothing: the same request,
    /// or the completer, goes on from the last step.
    fn run<'f>(
        &'f self,
        flow: &mut Flow<'f>,
        state: &'f Self::State,
    ) -> impl Future<Output = Result<Reply<Self::Output>, Abort>> + Send;

    /// Gives back what the work holds when nobody could finish it: runs in the transaction that makes the record FAILED. No foreign
    /// call is without an answer then, but some may have succeeded: the journal says which.
    ///
    /// # Errors
    /// Any: the record is not given up, and an operator sees it.
    fn abandon(
        &self,
        tx: &mut Tx<'_>,
        journal: &Journal<'_>,
        state: &Self::State,
    ) -> impl Future<Output = Result<(), Abort>> + Send {
        let _ = (tx, journal, state);
        async { Ok(()) }
    }
}

/// A workflow with its state and its request, as the engine sees it: without its types.
pub(crate) trait Job: Send + Sync {
    fn name(&self) -> &'static str;
    fn is_serialised(&self) -> bool;
    fn call_max(&self) -> Duration;
    /// The request's members, as JSON: enough to run it again.
    fn request(&self) -> &[u8];
    /// The reply, and whether its body may be stored.
    fn run<'a, 'f: 'a>(&'f self, flow: &'a mut Flow<'f>)
    -> BoxFuture<'a, Result<(StoredReply, bool), Abort>>;
    fn abandon<'a>(
        &'a self,
        tx: &'a mut Tx<'_>,
        journal: &'a Journal<'_>,
    ) -> BoxFuture<'a, Result<(), Abort>>;
}

pub(crate) struct Bound<W: Workflow> {
    pub(crate) workflow: W,
    pub(crate) request: Vec<u8>,
    pub(crate) state: Arc<W::State>,
}

impl<W: Workflow> Job for Bound<W> {
    fn name(&self) -> &'static str {
        W::NAME
    }

    fn is_serialised(&self) -> bool {
        W::SERIALIZE
    }

    fn call_max(&self) -> Duration {
        W::CALL_MAX
    }

    fn request(&self) -> &[u8] {
        &self.request
    }

    fn run<'a, 'f: 'a>(
        &'f self,
        flow: &'a mut Flow<'f>,
    ) -> BoxFuture<'a, Result<(StoredReply, bool), Abort>> {
        Box::pin(async move {
            let reply = self.workflow.run(flow, &self.state).await?;
            Ok((reply.seal()?, reply.may_be_stored()))
        })
    }

    fn abandon<'a>(
        &'a self,
        tx: &'a mut Tx<'_>,
        journal: &'a Journal<'_>,
    ) -> BoxFuture<'a, Result<(), Abort>> {
        Box::pin(self.workflow.abandon(tx, journal, &self.state))
    }
}
