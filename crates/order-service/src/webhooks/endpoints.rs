//! `GET /v1/webhook-endpoints` and `DELETE /v1/webhook-endpoints/{id}`: own endpoints only, never a secret.
//!
//! Deleting twice is deleting once, so it needs no key.

use actix_web::{HttpResponse, web};
use idempotency::http::problem_response;
use idempotency::{AccountId, Id, Problem, problems};
use serde::Serialize;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::Shop;
use crate::page::{Page, Window};
use crate::reading::{Caller, respond, unreadable, with_request_id};

const LIST_SQL: &str = "
SELECT id, url, created_at FROM webhook_endpoints
 WHERE account_id = $1 AND ($2::uuid IS NULL OR id < $2) ORDER BY id DESC LIMIT $3";
const DELETE_SQL: &str = "DELETE FROM webhook_endpoints WHERE account_id = $1 AND id = $2 RETURNING 1";

#[derive(Debug, Serialize)]
struct EndpointView {
    id: Uuid,
    url: String,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

/// `GET /v1/webhook-endpoints`
pub(crate) async fn list(caller: Caller, shop: web::Data<Shop>) -> HttpResponse {
    respond(endpoints(&caller, &shop).await)
}

async fn endpoints(caller: &Caller, shop: &Shop) -> Result<Page<EndpointView>, Problem> {
    let AccountId(account) = caller.account().await?;
    let window = Window::parse(caller.query())?;
    let (limit, cursor) = (window.limit()?, window.cursor::<Id>()?.map(|Id(id)| id));
    let rows = shop.database.read(LIST_SQL, &[&account, &cursor, &(limit + 1)]).await;
    let view =
        |row: &tokio_postgres::Row| EndpointView { id: row.get(0), url: row.get(1), created_at: row.get(2) };
    let endpoints = rows.map_err(|error| unreadable(&error))?.iter().map(view).collect();
    Ok(Page::of(endpoints, limit, |endpoint: &EndpointView| endpoint.id.to_string()))
}

/// `DELETE /v1/webhook-endpoints/{id}`
pub(crate) async fn delete(caller: Caller, shop: web::Data<Shop>, id: web::Path<String>) -> HttpResponse {
    match deleted(&caller, &shop, &id).await {
        Ok(()) => with_request_id(HttpResponse::NoContent()).finish(),
        Err(problem) => problem_response(&problem, Uuid::now_v7()),
    }
}

async fn deleted(caller: &Caller, shop: &Shop, id: &str) -> Result<(), Problem> {
    let AccountId(account) = caller.account().await?;
    let not_found = || problems::NOT_FOUND.because("there is no endpoint with this id");
    let Id(id) = id.parse().map_err(|_| not_found())?;
    let rows = shop.database.read(DELETE_SQL, &[&account, &id]).await.map_err(|error| unreadable(&error))?;
    if rows.is_empty() { Err(not_found()) } else { Ok(()) }
}
