//! What can be ordered: reads only.

use actix_web::{HttpResponse, web};
use idempotency::{Problem, problems};
use serde::Serialize;
use tokio_postgres::Row;

use crate::Shop;
use crate::page::{Page, Window};
use crate::reading::{Caller, respond, unreadable};

const LIST_SQL: &str = "SELECT sku, name, unit_price, currency, stock FROM products \
                        WHERE $1::text IS NULL OR sku > $1 ORDER BY sku LIMIT $2";
const ONE_SQL: &str = "SELECT sku, name, unit_price, currency, stock FROM products WHERE sku = $1";

#[derive(Debug, Serialize)]
struct ProductView {
    sku: String,
    name: String,
    unit_price: i64,
    currency: String,
    stock: i64,
}

fn view(row: &Row) -> ProductView {
    ProductView {
        sku: row.get(0),
        name: row.get(1),
        unit_price: row.get(2),
        currency: row.get(3),
        stock: row.get(4),
    }
}

/// `GET /v1/products`
pub(crate) async fn list(caller: Caller, shop: web::Data<Shop>) -> HttpResponse {
    respond(products(&caller, &shop).await)
}

async fn products(caller: &Caller, shop: &Shop) -> Result<Page<ProductView>, Problem> {
    caller.account().await?;
    let window = Window::parse(caller.query())?;
    let (limit, cursor) = (window.limit()?, window.cursor::<String>()?);
    let rows =
        shop.database.read(LIST_SQL, &[&cursor, &(limit + 1)]).await.map_err(|error| unreadable(&error))?;
    Ok(Page::of(rows.iter().map(view).collect(), limit, |product: &ProductView| product.sku.clone()))
}

/// `GET /v1/products/{sku}`
pub(crate) async fn one(caller: Caller, shop: web::Data<Shop>, sku: web::Path<String>) -> HttpResponse {
    respond(product(&caller, &shop, &sku).await)
}

async fn product(caller: &Caller, shop: &Shop, sku: &str) -> Result<ProductView, Problem> {
    caller.account().await?;
    let not_found = || problems::NOT_FOUND.because("there is no product with this sku");
    if sku.contains('\0') {
        return Err(not_found());
    }
    let rows = shop.database.read(ONE_SQL, &[&sku]).await.map_err(|error| unreadable(&error))?;
    rows.first().map(view).ok_or_else(not_found)
}
