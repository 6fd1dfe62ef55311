//! What a user writes against: [`Command`], [`Tx`], [`Abort`].
//!
//! A command is one atomic piece of work. It is given statements and events, and no way to commit: the framework commits
//! its work together with the record of the key. Knows nothing of HTTP or Redis. Invariant: `Tx` never runs a statement
//! that would begin, end or cut a transaction.

mod control;
mod last;
mod opening;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_postgres::Row;

use crate::attempt::Attempt;
use crate::database::{Param, Query};
use crate::id::new_id;
use crate::key::{AccountId, natural_key};
use crate::ledger::{Flown, Transaction};
use crate::outbox::Event;
use crate::problem::{Problem, ProblemKind};
use crate::reply::{Reply, StoredReply};
use crate::sqlstate;
use control::refuse_control;

pub use control::TransactionControl;
pub use last::LastWrite;
pub use opening::OpeningRead;

/// One atomic piece of work: the typed request, and what it does.
///
/// The struct's fields are the members of the JSON body and the parameters of the path (`/v1/orders/{id}` fills a field
/// `id`). Write `#[serde(deny_unknown_fields)]`.
pub trait Command: DeserializeOwned + Send + Sync + 'static {
    /// Stable name, such as `orders.create`: part of the fingerprint, of metrics and of logs. Never change it.
    const NAME: &'static str;
    /// A unique constraint over a column that holds [`Tx::natural_key`], if the command writes one. When it refuses a
    /// row, the work was done before and [`existing`](Self::existing) says where it is.
    const NATURAL_KEY: Option<&'static str> = None;
    /// What a retry gets: the first answer, or only where its result is.
    const REPLAY: Replay = Replay::Body;
    /// Whether only one of these runs at a time for each caller; another is told 409 `caller-busy`.
    const SERIALIZE: bool = false;
    /// What the command shares with others: settings, clients. Registered as `web::Data` by the service.
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

    /// A plain read that the work begins with, if it has one: it flies with the opening of the transaction, and
    /// [`Tx::opening_rows`] has its rows.
    fn opening_read(&self) -> Option<OpeningRead> {
        None
    }

    /// Does the work. May run more than once (its transaction was rolled back each time before), so it must not touch
    /// anything but `tx`.
    ///
    /// # Errors
    /// [`Abort::Reject`] undoes the work and stores the refusal; [`Abort::Fail`] undoes it and stores nothing.
    fn execute(
        &self,
        tx: &mut Tx<'_>,
        state: &Self::State,
    ) -> impl Future<Output = Result<Reply<Self::Output>, Abort>> + Send;

    /// Where the result of this key is, if a row with its natural key exists (a path).
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    fn existing(
        tx: &mut Tx<'_>,
        state: &Self::State,
    ) -> impl Future<Output = Result<Option<String>, Abort>> + Send {
        let _ = (tx, state);
        async { Ok(None) }
    }
}

/// What a retry of a finished command gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// The first answer, byte for byte.
    Body,
    /// 409 `already-completed` with the `Location` of the result: for callers that should not see the answer twice. The
    /// body is stored nowhere.
    Reference,
}

/// Work that is done and waits to be committed.
pub struct Done {
    pub(crate) reply: StoredReply,
    /// Whether the body is stored.
    pub(crate) kept: bool,
    pub(crate) effects: Effects,
}

/// What a command leaves to be written with COMMIT.
#[derive(Default)]
pub struct Effects {
    pub(crate) events: Vec<Event>,
    pub(crate) last: Vec<LastWrite>,
}

impl Effects {
    /// The refusal that this error of a last write stands for.
    pub(crate) fn refusal(&self, error: &tokio_postgres::Error) -> Option<Problem> {
        self.last.iter().find_map(|write| write.refusal(error))
    }
}

impl Done {
    /// A refusal: nothing but the answer.
    pub(crate) fn refused(reply: StoredReply) -> Self {
        Self { reply, kept: true, effects: Effects::default() }
    }
}

/// A field that is not valid.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct Invalid {
    /// The field, as `items[0].quantity`.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

impl Invalid {
    /// Names the field and what is wrong with it.
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}

/// Why a command does not answer with a [`Reply`].
#[derive(Debug)]
pub enum Abort {
    /// A definite no by a business rule: the work is undone, the refusal is stored and replayed.
    Reject(Problem),
    /// It failed: everything is undone, nothing is stored, the same key may be sent again. What `?` makes of an error.
    Fail(Box<dyn std::error::Error + Send + Sync>),
}

impl Abort {
    /// A refusal of this kind; `detail` is for the caller.
    pub fn reject(kind: &'static ProblemKind, detail: impl Into<String>) -> Self {
        Self::Reject(kind.because(detail))
    }

    /// Turns the violation of one named constraint into a refusal, at the call site; any other error stays a failure.
    pub fn on_violation(
        constraint: &'static str,
        kind: &'static ProblemKind,
        detail: &'static str,
    ) -> impl FnOnce(StatementError) -> Self {
        move |error| match error.constraint() {
            Some(name) if name == constraint => Self::reject(kind, detail),
            _ => Self::from(error),
        }
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Abort {
    fn from(error: E) -> Self {
        Self::Fail(Box::new(error))
    }
}

/// The command's side of its transaction: statements and events, not commit.
///
/// This is a command's work:
///
/// ```
/// # use idempotency::{Abort, Tx};
/// async fn work(tx: &mut Tx<'_>) -> Result<(), Abort> {
///     tx.query("UPDATE things SET seen = true", &[]).await?;
///     Ok(())
/// }
/// ```
///
/// And these are not: a command cannot end its transaction (only the last line of each differs from the one above).
///
/// ```compile_fail
/// # use idempotency::{Abort, Tx};
/// async fn work(tx: &mut Tx<'_>) -> Result<(), Abort> {
///     tx.query("UPDATE things SET seen = true", &[]).await?;
///     Ok(tx.commit().await?)
/// }
/// ```
///
/// ```compile_fail
/// # use idempotency::{Abort, Tx};
/// async fn work(tx: &mut Tx<'_>) -> Result<(), Abort> {
///     tx.query("UPDATE things SET seen = true", &[]).await?;
///     Ok(tx.transaction.rollback().await)
/// }
/// ```
///
/// Nor can it keep the transaction for later:
///
/// ```compile_fail
/// # use idempotency::{Abort, Tx};
/// async fn work(tx: &mut Tx<'_>) -> Result<(), Abort> {
///     tx.query("UPDATE things SET seen = true", &[]).await?;
///     Ok(std::thread::spawn(move || drop(tx)).join().unwrap_or(()))
/// }
/// ```
pub struct Tx<'t> {
    transaction: Transaction,
    attempt: &'t Attempt,
    effects: Effects,
    opening: Option<OpeningRead>,
    flown: Flown,
}

impl<'t> Tx<'t> {
    pub(crate) fn new(transaction: Transaction, attempt: &'t Attempt) -> Self {
        Self { transaction, attempt, effects: Effects::default(), opening: None, flown: None }
    }

    /// With the opening read, and what came of it if it flew.
    pub(crate) fn opened_with(self, opening: Option<OpeningRead>, flown: Flown) -> Self {
        Self { opening, flown, ..self }
    }

    /// The transaction and what is to be committed with it.
    pub(crate) fn into_parts(self) -> (Transaction, Effects) {
        (self.transaction, self.effects)
    }

    /// The calling account.
    pub fn account(&self) -> AccountId {
        self.attempt.account
    }

    /// Account and client key in one text, for the unique column that [`Command::NATURAL_KEY`] names.
    pub fn natural_key(&self) -> String {
        natural_key(self.attempt.account, &self.attempt.key)
    }

    /// Runs one statement in one round trip and returns its rows.
    ///
    /// # Errors
    /// [`Abort::Fail`]; the transaction is then dead, whatever the command does next.
    pub async fn query(&self, sql: &'static str, params: &[&dyn Param]) -> Result<Vec<Row>, StatementError> {
        refuse_control(sql)?;
        Ok(self.transaction.run(Query { sql, params }).await?)
    }

    /// The rows of [`Command::opening_read`], once; nothing if it declared none.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub async fn opening_rows(&mut self) -> Result<Vec<Row>, StatementError> {
        let Some(opening) = self.opening.take() else { return Ok(Vec::new()) };
        match self.flown.take() {
            Some(flown) => Ok(flown?),
            None => self.query(opening.sql, &opening.params()).await,
        }
    }

    /// Runs several statements in one round trip, in order, and returns the rows of each.
    ///
    /// # Errors
    /// The first statement's that failed.
    pub async fn query_all(&self, queries: &[Query<'_>]) -> Result<Vec<Vec<Row>>, StatementError> {
        for query in queries {
            refuse_control(query.sql)?;
        }
        Ok(self.transaction.run_all(queries).await?)
    }

    /// Leaves a write for the end: it flies with the events, the record and COMMIT, behind everything else, in the order given.
    /// An error of it undoes everything (see [`LastWrite::refused_by`]).
    ///
    /// # Errors
    /// If it would control the transaction.
    pub fn write_last(&mut self, write: LastWrite) -> Result<(), TransactionControl> {
        self.effects.last.push(write.checked()?);
        Ok(())
    }

    /// Writes an event with the work: it is there if and only if the work is committed. `data` becomes JSON.
    ///
    /// # Errors
    /// If `data` cannot be serialised.
    pub fn emit(&mut self, kind: &'static str, data: &impl Serialize) -> Result<(), serde_json::Error> {
        let data = serde_json::to_string(data)?;
        self.effects.events.push(Event { id: new_id(), kind, data });
        Ok(())
    }
}

/// A statement that did not run.
#[derive(Debug, thiserror::Error)]
pub enum StatementError {
    /// It would control the transaction.
    #[error(transparent)]
    Control(#[from] TransactionControl),
    /// PostgreSQL refused it, or the connection failed.
    #[error("PostgreSQL: {0}")]
    Database(#[from] tokio_postgres::Error),
}

impl StatementError {
    /// The name of the constraint that refused a row, if one did.
    pub fn constraint(&self) -> Option<&str> {
        match self {
            Self::Control(_) => None,
            Self::Database(error) => error.as_db_error().and_then(|db| db.constraint()),
        }
    }
}

/// A command with its state, as the engine sees it: without its types, so that the protocol is compiled once.
pub(crate) trait Work: Send + Sync {
    fn name(&self) -> &'static str;
    fn natural_key(&self) -> Option<&'static str>;
    fn opening_read(&self) -> Option<OpeningRead>;
    /// The reply, and whether its body may be stored.
    fn execute<'a>(&'a self, tx: &'a mut Tx<'_>) -> BoxFuture<'a, Result<(StoredReply, bool), Abort>>;
    fn existing<'a>(&'a self, tx: &'a mut Tx<'_>) -> BoxFuture<'a, Result<Option<String>, Abort>>;
}

pub(crate) struct Bound<C: Command> {
    pub(crate) command: C,
    pub(crate) state: Arc<C::State>,
}

impl<C: Command> Work for Bound<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn natural_key(&self) -> Option<&'static str> {
        C::NATURAL_KEY
    }

    fn opening_read(&self) -> Option<OpeningRead> {
        self.command.opening_read()
    }

    fn execute<'a>(&'a self, tx: &'a mut Tx<'_>) -> BoxFuture<'a, Result<(StoredReply, bool), Abort>> {
        Box::pin(async move {
            let reply = self.command.execute(tx, &self.state).await?;
            Ok((reply.seal()?, reply.may_be_stored() && C::REPLAY == Replay::Body))
        })
    }

    fn existing<'a>(&'a self, tx: &'a mut Tx<'_>) -> BoxFuture<'a, Result<Option<String>, Abort>> {
        Box::pin(C::existing(tx, &self.state))
    }
}

/// The PostgreSQL error inside a failure, if that is what it was.
pub(crate) fn database_error<'a>(
    failure: &'a (dyn std::error::Error + Send + Sync + 'static),
) -> Option<&'a tokio_postgres::Error> {
    sqlstate::find(failure)
}
