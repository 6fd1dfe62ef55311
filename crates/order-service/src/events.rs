//! `GET /v1/events`: what happened to the account, newest first.

use actix_web::{HttpResponse, web};
use idempotency::{AccountId, Id, Problem};
use serde::Serialize;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::Shop;
use crate::page::{Page, Window};
use crate::reading::{Caller, respond, unreadable};

const LIST_SQL: &str = "
SELECT id, type, created_at, data::text FROM events
 WHERE account_id = $1 AND ($2::uuid IS NULL OR id < $2) ORDER BY id DESC LIMIT $3";

#[derive(Debug, Serialize)]
struct EventView {
    id: Uuid,
    r#type: String,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    data: serde_json::Value,
}

/// `GET /v1/events`
pub(crate) async fn list(caller: Caller, shop: web::Data<Shop>) -> HttpResponse {
    respond(events(&caller, &shop).await)
}

async fn events(caller: &Caller, shop: &Shop) -> Result<Page<EventView>, Problem> {
    let AccountId(account) = caller.account().await?;
    let window = Window::parse(caller.query())?;
    let (limit, cursor) = (window.limit()?, window.cursor::<Id>()?.map(|Id(id)| id));
    let rows = shop.database.read(LIST_SQL, &[&account, &cursor, &(limit + 1)]).await;
    let view = |row: &tokio_postgres::Row| EventView {
        id: row.get(0),
        r#type: row.get(1),
        created_at: row.get(2),
        // jsonb gives nothing but JSON.
        data: serde_json::from_str(row.get(3)).unwrap_or_default(),
    };
    let events = rows.map_err(|error| unreadable(&error))?.iter().map(view).collect();
    Ok(Page::of(events, limit, |event: &EventView| event.id.to_string()))
}
