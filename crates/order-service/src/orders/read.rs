//! `GET /v1/orders` and `GET /v1/orders/{id}`: own orders only, always current.

use std::collections::HashMap;

use actix_web::{HttpResponse, web};
use idempotency::{AccountId, Id, Problem, problems};
use uuid::Uuid;

use super::view::{ItemView, OrderView};
use crate::Shop;
use crate::page::{Page, Window};
use crate::reading::{Caller, respond, unreadable};

const ONE_SQL: &str = "
SELECT id, status, total_amount, currency, note, created_at FROM orders WHERE id = $1 AND account_id = $2";
const LIST_SQL: &str = "
SELECT id, status, total_amount, currency, note, created_at FROM orders
 WHERE account_id = $1 AND ($2::uuid IS NULL OR id < $2) ORDER BY id DESC LIMIT $3";
const ITEMS_SQL: &str = "
SELECT order_id, sku, name, quantity, unit_price FROM order_items WHERE order_id = ANY($1) ORDER BY order_id, position";

/// `GET /v1/orders/{id}`
pub(crate) async fn one(caller: Caller, shop: web::Data<Shop>, id: web::Path<String>) -> HttpResponse {
    respond(order(&caller, &shop, &id).await)
}

async fn order(caller: &Caller, shop: &Shop, id: &str) -> Result<OrderView, Problem> {
    let AccountId(account) = caller.account().await?;
    let not_found = || problems::NOT_FOUND.because("there is no order with this id");
    let Id(id) = id.parse().map_err(|_| not_found())?;
    let rows = shop.database.read(ONE_SQL, &[&id, &account]).await.map_err(|error| unreadable(&error))?;
    let mut orders = vec![rows.first().map(OrderView::of).ok_or_else(not_found)?];
    add_items(shop, &mut orders).await?;
    orders.pop().ok_or_else(not_found)
}

/// `GET /v1/orders`
pub(crate) async fn list(caller: Caller, shop: web::Data<Shop>) -> HttpResponse {
    respond(orders(&caller, &shop).await)
}

async fn orders(caller: &Caller, shop: &Shop) -> Result<Page<OrderView>, Problem> {
    let AccountId(account) = caller.account().await?;
    let window = Window::parse(caller.query())?;
    let (limit, cursor) = (window.limit()?, window.cursor::<Id>()?.map(|Id(id)| id));
    let rows = shop.database.read(LIST_SQL, &[&account, &cursor, &(limit + 1)]).await;
    let rows = rows.map_err(|error| unreadable(&error))?;
    let mut orders: Vec<OrderView> = rows.iter().map(OrderView::of).collect();
    add_items(shop, &mut orders).await?;
    Ok(Page::of(orders, limit, |order| order.id.to_string()))
}

async fn add_items(shop: &Shop, orders: &mut [OrderView]) -> Result<(), Problem> {
    let ids: Vec<Uuid> = orders.iter().map(|order| order.id).collect();
    let rows = shop.database.read(ITEMS_SQL, &[&ids]).await.map_err(|error| unreadable(&error))?;
    let mut places: HashMap<Uuid, &mut OrderView> =
        orders.iter_mut().map(|order| (order.id, order)).collect();
    for row in &rows {
        if let Some(order) = places.get_mut(&row.get(0)) {
            order.items.push(ItemView::of(row, 1));
        }
    }
    Ok(())
}
