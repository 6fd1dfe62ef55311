//! What every read shares: who asks, and how an answer or a failure becomes a response.
//!
//! Knows no route and no table. Invariant: a read never looks at an idempotency key and never stores anything.

use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::web;
use actix_web::{FromRequest, HttpRequest, HttpResponse, HttpResponseBuilder};
use idempotency::http::{Authenticator, REQUEST_ID, problem_response};
use idempotency::{AccountId, Problem, ReadError, explain, problems};
use serde::Serialize;
use uuid::Uuid;

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
        Ok(body) => with_request_id(HttpResponse::Ok()).json(body),
        Err(problem) => problem_response(&problem, Uuid::now_v7()),
    }
}

/// Every answer names its request.
pub(crate) fn with_request_id(mut response: HttpResponseBuilder) -> HttpResponseBuilder {
    response.insert_header((REQUEST_ID, Uuid::now_v7().to_string()));
    response
}

/// A read that PostgreSQL did not answer.
pub(crate) fn unreadable(error: &ReadError) -> Problem {
    tracing::warn!(error = explain(error), "a read failed");
    if error.is_temporary() {
        problems::TEMPORARILY_UNAVAILABLE.because("the database could not be asked in time")
    } else {
        problems::INTERNAL.because("the read failed")
    }
}
