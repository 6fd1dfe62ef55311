//! HTTP: a command or workflow as a route of actix-web.
//!
//! The only module that knows actix. Turns a request into an [`Attempt`], hands it to the engine, and turns the
//! answer into a response. Invariant: whatever is refused here took no key, and every refusal is a problem+json.

mod body;
mod input;
mod operation;
mod respond;
mod routed;
mod signed;
mod status;

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::http::{ConnectionType, Method};
use actix_web::{FromRequest, HttpRequest, HttpResponse, Resource, guard, web};
use futures_util::future::LocalBoxFuture;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::answer::Answer;
use crate::attempt::Attempt;
use crate::command::Command;
use crate::engine::Engine;
use crate::fingerprint::Asked;
use crate::id::new_id;
use crate::key::{AccountId, IdempotencyKey, KeyError};
use crate::prefer::Preferences;
use crate::problem::Problem;
use crate::problems;
use crate::shutdown::Shutdown;
use crate::workflow::{self, Workflow};
use input::{Input, Operation};

pub use operation::operation;
pub use signed::{Origin, Signed, signed};
pub use status::{key_status, policy};

pub use routed::{Routed, announce, routed};

pub use respond::{EXPOSED_HEADERS, REQUEST_ID, fallback_not_found, method_not_allowed, problem_response};

/// Whose value is an [`IdempotencyKey`].
static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Whose values are [`Preferences`].
static PREFER: HeaderName = HeaderName::from_static("prefer");

/// Who is calling. A service brings its own way to tell and registers it as `web::Data<Authenticator>`.
pub trait Authenticate: 'static {
    /// The account behind a request's credentials.
    fn authenticate<'a>(&'a self, request: &'a HttpRequest)
    -> LocalBoxFuture<'a, Result<AccountId, Problem>>;
}

/// The registered [`Authenticate`].
pub struct Authenticator(Box<dyn Authenticate>);

impl Authenticator {
    /// Wraps an implementation for registering.
    pub fn new(implementation: impl Authenticate) -> Self {
        Self(Box::new(implementation))
    }

    /// The account behind a request's credentials.
    ///
    /// # Errors
    /// A 401, or a 503 while unknown credentials cannot be looked up.
    pub async fn authenticate(&self, request: &HttpRequest) -> Result<AccountId, Problem> {
        self.0.authenticate(request).await
    }
}

/// A route that runs a command for each POST, once per idempotency key.
///
/// Needs `web::Data` of [`Engine`], [`Authenticator`], [`Shutdown`] and `C::State` in the application. Other methods are
/// answered 405; add `.route(…)` and `.default_service(…)` for a path that also takes them.
pub fn command<C: Command>(path: &str) -> Resource {
    announce(Routed { method: "post", path: path.to_owned(), name: C::NAME, is_workflow: false });
    resource(path)
        .route(web::route().guard(guard::Post()).to(handle::<C>))
        .default_service(web::route().to(|| method_not_allowed(&[Method::POST])))
}

/// A route that runs a workflow for each POST, once per idempotency key. Needs the same as [`command`].
pub fn workflow<W: Workflow>(path: &str) -> Resource {
    announce(Routed { method: "post", path: path.to_owned(), name: W::NAME, is_workflow: true });
    resource(path)
        .route(web::route().guard(guard::Post()).to(handle_workflow::<W>))
        .default_service(web::route().to(|| method_not_allowed(&[Method::POST])))
}

/// A path that is only what it is spelled like. The router decodes `%6F` before it matches, so `/v1/%6Frders` would be a
/// second spelling of the same operation, with another fingerprint; here it is nothing at all.
pub fn resource(path: &str) -> Resource {
    let (pattern, has_parameters) = (path.to_owned(), path.contains('{'));
    web::resource(path).guard(guard::fn_guard(move |context| {
        if !has_parameters {
            return pattern == context.head().uri.path();
        }
        let (mut literal, mut raw) = (pattern.split('/'), context.head().uri.path().split('/'));
        loop {
            match (literal.next(), raw.next()) {
                (None, None) => return true,
                (Some(wanted), Some(given)) if wanted == given => {}
                (Some(wanted), Some(given)) if wanted.starts_with('{') && !has_needless_escape(given) => {}
                _ => return false,
            }
        }
    }))
}

/// Whether a segment escapes a character that stands for itself (RFC 3986, 2.3).
fn has_needless_escape(segment: &str) -> bool {
    segment.split('%').skip(1).any(|escaped| {
        let byte = escaped.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        byte.is_none_or(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~'))
    })
}

async fn handle<C: Command>(
    request: HttpRequest,
    payload: web::Payload,
    services: Services,
    state: web::Data<C::State>,
) -> HttpResponse {
    let operation = Operation::<C>::of_command();
    respond_to(&request, payload, services, &operation, |engine, attempt, input, wishes| {
        engine.execute(attempt, input.typed, state.into_inner(), wishes.patience)
    })
    .await
}

async fn handle_workflow<W: Workflow>(
    request: HttpRequest,
    payload: web::Payload,
    services: Services,
    state: web::Data<W::State>,
) -> HttpResponse {
    let operation =
        Operation { name: W::NAME, is_serialised: W::SERIALIZE, validate: W::validate, is_kept: true };
    respond_to(&request, payload, services, &operation, |engine, attempt, input, wishes| {
        let Input { typed: workflow, members: request, .. } = input;
        let job = Arc::new(workflow::Bound { workflow, request, state: state.into_inner() });
        engine.execute_workflow(attempt, job, wishes.respond_async, wishes.patience)
    })
    .await
}

/// What a caller prefers, within the limits.
#[derive(Clone, Copy)]
struct Wishes {
    patience: Duration,
    respond_async: bool,
}

/// Reads a request, has it executed and turns the answer into a response.
async fn respond_to<T: DeserializeOwned, Executing: Future<Output = Answer>>(
    request: &HttpRequest,
    payload: web::Payload,
    services: Services,
    operation: &Operation<T>,
    execute: impl FnOnce(Arc<Engine>, Arc<Attempt>, Input<T>, Wishes) -> Executing,
) -> HttpResponse {
    let request_id = new_id();
    let mut payload = payload.into_inner();
    let Services { engine, authenticator, shutdown } = services;
    let body_max = engine.policy().body_max;
    let read = read(request, &mut payload, request_id, &authenticator, body_max, operation).await;
    proceed(read, request, payload, request_id, (engine, &shutdown), execute).await
}

/// Refuses what did not pass the checks, executes what did, and answers.
async fn proceed<T, Executing: Future<Output = Answer>>(
    read: Result<(Arc<Attempt>, Input<T>), Problem>,
    request: &HttpRequest,
    mut payload: Payload,
    request_id: Uuid,
    (engine, shutdown): (web::Data<Engine>, &Shutdown),
    execute: impl FnOnce(Arc<Engine>, Arc<Attempt>, Input<T>, Wishes) -> Executing,
) -> HttpResponse {
    let (attempt, input) = match read {
        Ok(read) => read,
        Err(problem) => {
            // A client that sends everything before it reads must still receive the answer; one that stalls has had its time.
            if problem.kind.status != problems::REQUEST_TIMEOUT.status {
                Box::pin(body::drain(request, &mut payload)).await;
            }
            return problem_response(&problem, request_id);
        }
    };
    let Some(_admitted) = shutdown.admit() else {
        let problem = problems::TEMPORARILY_UNAVAILABLE.because("this replica is shutting down");
        let mut response = problem_response(&problem, request_id);
        response.head_mut().set_connection_type(ConnectionType::Close);
        return response;
    };
    let preferences = Preferences::parse(request.headers().get_all(&PREFER).map(HeaderValue::as_bytes));
    let patience = engine.policy().patience(&preferences);
    let wishes = Wishes { patience, respond_async: preferences.respond_async };
    // Boxed: actix boxes the whole handler, and the allocator is quick only up to a kilobyte.
    let answer = Box::pin(execute(engine.into_inner(), attempt, input, wishes)).await;
    let answered_async = preferences.respond_async && matches!(answer, Answer::Accepted { .. });
    let mut response = respond::answer(answer, request_id);
    respond::preference_applied(&mut response, preferences.wait.map(|_| patience), answered_async);
    response
}

/// The checks that need no store, in the order of the contract: credentials, key, media type and size, body.
async fn read<T: DeserializeOwned>(
    request: &HttpRequest,
    payload: &mut Payload,
    request_id: Uuid,
    authenticator: &Authenticator,
    body_max: usize,
    operation: &Operation<T>,
) -> Result<(Arc<Attempt>, Input<T>), Problem> {
    let account = authenticator.authenticate(request).await?;
    let lines = request.headers().get_all(&IDEMPOTENCY_KEY).map(HeaderValue::as_bytes);
    let key = IdempotencyKey::parse(lines).map_err(|error| match error {
        KeyError::Missing => problems::KEY_MISSING.because(error.to_string()),
        KeyError::Invalid(_) => problems::KEY_INVALID.because(error.to_string()),
    })?;
    let document = body::read_json(request, payload, body_max).await?;
    let input = input::parse(request, &document, operation)?;
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let asked = Asked::compute(request.method().as_str(), &path, operation.name, input.canonical.as_bytes());
    let attempt = Attempt::new(account, key, asked, path, request_id);
    let attempt = if operation.is_serialised { attempt.serialised(operation.name) } else { attempt };
    Ok((Arc::new(attempt), input))
}

/// What a worker's application needs for commands, besides each command's own state.
#[derive(Clone)]
pub struct Services {
    /// The protocol.
    pub engine: web::Data<Engine>,
    /// Who is calling.
    pub authenticator: web::Data<Authenticator>,
    /// Whether new work is still taken.
    pub shutdown: web::Data<Shutdown>,
}

/// Out of the application that they were registered in.
impl FromRequest for Services {
    type Error = actix_web::Error;
    type Future = Ready<Result<Self, Self::Error>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let mut registered = || {
            Ok(Self {
                engine: web::Data::from_request(request, payload).into_inner()?,
                authenticator: web::Data::from_request(request, payload).into_inner()?,
                shutdown: web::Data::from_request(request, payload).into_inner()?,
            })
        };
        ready(registered())
    }
}

impl Services {
    /// Puts them together.
    pub fn new(engine: Arc<Engine>, authenticator: Authenticator, shutdown: Shutdown) -> Self {
        Self {
            engine: web::Data::from(engine),
            authenticator: web::Data::new(authenticator),
            shutdown: web::Data::new(shutdown),
        }
    }

    /// Registers them.
    pub fn register(&self, config: &mut web::ServiceConfig) {
        config
            .app_data(self.engine.clone())
            .app_data(self.authenticator.clone())
            .app_data(self.shutdown.clone());
    }
}
