//! Commands that a partner sends signed, without credentials and without the header: key and account come with the payload.
//!
//! Knows neither how partners sign nor what they send: that is the command's. Invariants: nothing is read out of a body before
//! its sender is known, and what is refused takes no key. The body is vouched for by the signature, so the partner's own id
//! alone is the fingerprint: it may word the same event differently the next time.

use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::http::Method;
use actix_web::http::header::HeaderMap;
use actix_web::{HttpRequest, HttpResponse, Resource, guard, web};
use uuid::Uuid;

use super::input::{Input, Operation};
use super::{Services, body, input, method_not_allowed, proceed, resource};
use crate::attempt::Attempt;
use crate::command::Command;
use crate::fingerprint::Asked;
use crate::key::{AccountId, IdempotencyKey};
use crate::problem::Problem;

/// Whose a signed command is, and the partner's own id for it.
#[derive(Debug)]
pub struct Origin {
    /// The scope of the key. It must follow from the payload alone, so that a redelivery has the same.
    pub account: AccountId,
    /// The key.
    pub key: IdempotencyKey,
}

/// A command that a partner sends signed.
pub trait Signed: Command {
    /// Whether the request is from the partner: judged over headers and raw body.
    fn authenticate(
        headers: &HeaderMap,
        body: &[u8],
        state: &Self::State,
    ) -> impl Future<Output = Result<(), Problem>>;

    /// Where it belongs.
    ///
    /// # Errors
    /// A problem, if the payload does not say; no key is taken.
    fn origin(&self) -> Result<Origin, Problem>;
}

/// A route that runs a signed command for each POST, once per account and partner's id. Needs the same as
/// [`command`](super::command).
pub fn signed<C: Signed>(path: &str) -> Resource {
    resource(path)
        .route(web::route().guard(guard::Post()).to(handle::<C>))
        .default_service(web::route().to(|| method_not_allowed(&[Method::POST])))
}

async fn handle<C: Signed>(
    request: HttpRequest,
    payload: web::Payload,
    services: Services,
    state: web::Data<C::State>,
) -> HttpResponse {
    let Services { engine, shutdown, .. } = services;
    let (request_id, mut payload) = (Uuid::now_v7(), payload.into_inner());
    let read = read::<C>(&request, &mut payload, request_id, &state, engine.policy().body_max).await;
    proceed(read, &request, payload, request_id, (engine, &shutdown), |engine, attempt, input, wishes| {
        engine.execute(attempt, input.typed, state.into_inner(), wishes.patience)
    })
    .await
}

async fn read<C: Signed>(
    request: &HttpRequest,
    payload: &mut Payload,
    request_id: Uuid,
    state: &C::State,
    body_max: usize,
) -> Result<(Arc<Attempt>, Input<C>), Problem> {
    let document = body::read_json(request, payload, body_max).await?;
    C::authenticate(request.headers(), &document, state).await?;
    let operation = Operation::<C>::of_command();
    let input = input::parse(request, &document, &operation)?;
    let Origin { account, key } = input.typed.origin()?;
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let asked = Asked::compute(request.method().as_str(), &path, C::NAME, key.as_str().as_bytes());
    let attempt = Attempt::new(account, key, asked, path, request_id);
    let attempt = if C::SERIALIZE { attempt.serialised(C::NAME) } else { attempt };
    Ok((Arc::new(attempt), input))
}
