//! Every route of the public API, in one table.
//!
//! A new command is one file beside `orders/` and one line here. Invariant: a POST that has an effect goes through
//! `command::<…>()`, so that none can forget the key.

use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::http::Method;
use actix_web::web::{self, ServiceConfig};
use actix_web::{FromRequest, HttpRequest, HttpResponse, Resource, Route, guard};
use idempotency::http::{Authenticator, command, method_not_allowed, problem_response, resource};
use idempotency::{AccountId, Problem, ReadError, problems};
use serde::Serialize;
use uuid::Uuid;

use crate::orders::{self, CancelOrder, CreateOrder};
use crate::{catalogue, problem_pages};

pub(crate) fn table(config: &mut ServiceConfig) {
    config
        .service(also_read(command::<CreateOrder>("/v1/orders"), reading().to(orders::read::list)))
        .service(read_only("/v1/orders/{id}", reading().to(orders::read::one)))
        .service(command::<CancelOrder>("/v1/orders/{id}/cancel"))
        .service(read_only("/v1/products", reading().to(catalogue::list)))
        .service(read_only("/v1/products/{sku}", reading().to(catalogue::one)))
        .service(read_only("/problems/{code}", reading().to(problem_pages::page)));
}

/// A route for GET and HEAD.
fn reading() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

/// A path that is only read; other methods are answered 405.
pub fn read_only(path: &str, route: Route) -> Resource {
    resource(path)
        .route(route)
        .default_service(web::route().to(|| method_not_allowed(&[Method::GET, Method::HEAD])))
}

/// A command's path that is also read.
fn also_read(command: Resource, route: Route) -> Resource {
    command
        .route(route)
        .default_service(web::route().to(|| method_not_allowed(&[Method::POST, Method::GET, Method::HEAD])))
}

/// Who is calling a read.
pub struct Caller {
    request: HttpRequest,
}

impl Caller {
    /// The account behind the credentials.
    ///
    /// # Errors
    /// 401, or 503 while unknown credentials cannot be looked up.
    pub async fn account(&self) -> Result<AccountId, Problem> {
        match self.request.app_data::<web::Data<Authenticator>>() {
            Some(authenticator) => authenticator.authenticate(&self.request).await,
            None => Err(problems::INTERNAL.because("no authenticator is registered")),
        }
    }

    /// The raw query string.
    pub(crate) fn query(&self) -> &str {
        self.request.query_string()
    }
}

impl FromRequest for Caller {
    type Error = actix_web::Error;
    type Future = Ready<Result<Self, Self::Error>>;

    fn from_request(request: &HttpRequest, _payload: &mut Payload) -> Self::Future {
        ready(Ok(Self { request: request.clone() }))
    }
}

/// The response of a read.
pub(crate) fn respond<T: Serialize>(result: Result<T, Problem>) -> HttpResponse {
    match result {
        Ok(body) => HttpResponse::Ok().json(body),
        Err(problem) => problem_response(&problem, Uuid::now_v7()),
    }
}

/// A read that PostgreSQL did not answer.
pub(crate) fn unreadable(error: &ReadError) -> Problem {
    tracing::warn!(%error, "a read failed");
    if error.is_temporary() {
        problems::TEMPORARILY_UNAVAILABLE.because("the database could not be asked in time")
    } else {
        problems::INTERNAL.because("the read failed")
    }
}
