//! The routes: Stripe's under `/v1`, with an API key; the tests' own under `/sandbox`, open, since it listens on loopback.
//!
//! Knows no rules of money. Invariant: nothing under `/v1` is looked at before its API key.

mod answer;
mod create;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::{Value, json};

use crate::books::{Books, Shelf};
use crate::fault::{Faults, Plan, Target};
use crate::form::{Form, search};
use crate::objects::{Object, Refund};
use crate::refusal::Refusal;
use crate::till::{Order, Till};
use crate::webhook::Webhooks;

/// Objects of a page, unless the caller asks for fewer.
const PAGE_MAX: usize = 100;
/// Largest form, in bytes.
const FORM_MAX: usize = 64 * 1024;

/// What every route shares.
pub(crate) struct Desk {
    till: Arc<Till>,
    webhooks: Webhooks,
    faults: Faults,
    api_key: String,
    /// Arrivals of POST by idempotency key, since the start.
    arrivals: Mutex<BTreeMap<String, u64>>,
    /// Work that was begun ends here, whatever its caller does.
    runtime: tokio::runtime::Handle,
}

impl Desk {
    pub(crate) fn new(till: Arc<Till>, webhooks: Webhooks, api_key: String) -> Self {
        let runtime = tokio::runtime::Handle::current();
        Self { till, webhooks, faults: Faults::default(), api_key, arrivals: Mutex::default(), runtime }
    }

    fn authorise(&self, request: &HttpRequest) -> Result<(), Refusal> {
        let given = request.headers().get("authorization").and_then(|value| value.to_str().ok());
        match given.and_then(|given| given.strip_prefix("Bearer ")) {
            Some(key) if key == self.api_key => Ok(()),
            _ => Err(Refusal::api_key()),
        }
    }

    fn count(&self, key: Option<&str>) {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        *arrivals.entry(key.unwrap_or_default().to_owned()).or_default() += 1;
    }
}

type Shared = web::Data<Desk>;

pub(crate) fn routes(config: &mut web::ServiceConfig) {
    config
        .app_data(web::PayloadConfig::new(FORM_MAX))
        .route("/v1/payment_intents", web::post().to(charge))
        .route("/v1/payment_intents/search", web::get().to(search_intents))
        .route("/v1/payment_intents/{id}", web::get().to(intent))
        .route("/v1/refunds", web::post().to(refund))
        .route("/v1/refunds", web::get().to(list_refunds))
        .route("/v1/refunds/search", web::get().to(search_refunds))
        .route("/v1/refunds/{id}", web::get().to(one_refund))
        .route("/sandbox/ledger", web::get().to(ledger))
        .route("/sandbox/requests", web::get().to(requests))
        .route("/sandbox/faults", web::get().to(async |desk: Shared| web::Json(desk.faults.shown())))
        .route("/sandbox/faults", web::post().to(add_faults))
        .route("/sandbox/faults", web::delete().to(clear_faults));
}

async fn charge(request: HttpRequest, body: web::Bytes, desk: Shared) -> HttpResponse {
    create::create(&request, &body, &desk, Target::PaymentIntents, Order::charge).await
}

async fn refund(request: HttpRequest, body: web::Bytes, desk: Shared) -> HttpResponse {
    create::create(&request, &body, &desk, Target::Refunds, Order::refund).await
}

async fn intent(request: HttpRequest, id: web::Path<String>, desk: Shared) -> HttpResponse {
    read(&request, &desk, |books, _| one(books.intents(), "payment_intent", &id)).await
}

async fn one_refund(request: HttpRequest, id: web::Path<String>, desk: Shared) -> HttpResponse {
    read(&request, &desk, |books, _| one(books.refunds(), "refund", &id)).await
}

async fn search_intents(request: HttpRequest, desk: Shared) -> HttpResponse {
    read(&request, &desk, |books, form| found(books.intents(), form)).await
}

async fn search_refunds(request: HttpRequest, desk: Shared) -> HttpResponse {
    read(&request, &desk, |books, form| found(books.refunds(), form)).await
}

async fn list_refunds(request: HttpRequest, desk: Shared) -> HttpResponse {
    read(&request, &desk, |books, form| {
        let intent = form.get("payment_intent");
        let of_it = |refund: &&Refund| intent.is_none_or(|intent| refund.payment_intent == intent);
        page("list", form, books.refunds().newest_first().filter(of_it))
    })
    .await
}

/// The one path of every GET under `/v1`.
async fn read(
    request: &HttpRequest,
    desk: &Desk,
    look: impl FnOnce(&Books, &Form) -> Result<Value, Refusal>,
) -> HttpResponse {
    if let Err(refusal) = desk.authorise(request) {
        return answer::refusal(&refusal);
    }
    if let Some(fault) = desk.faults.strike(Target::Reads)
        && let Some(response) = answer::strike(fault).await
    {
        return response;
    }
    let looked = Form::parse(request.query_string().as_bytes())
        .and_then(|form| desk.till.read(|books| look(books, &form)));
    match looked {
        Ok(value) => HttpResponse::Ok().json(value),
        Err(refusal) => answer::refusal(&refusal),
    }
}

fn one<T: Object>(shelf: &Shelf<T>, what: &str, id: &str) -> Result<Value, Refusal> {
    shelf.get(id).map(|object| json!(object)).ok_or_else(|| Refusal::missing(what, id))
}

fn found<T: Object>(shelf: &Shelf<T>, form: &Form) -> Result<Value, Refusal> {
    let (name, value) = search(form.required("query")?)?;
    let matches = |object: &&T| object.metadata().get(&name) == Some(&value);
    page("search_result", form, shelf.newest_first().filter(matches))
}

/// One page, newest first, from behind `starting_after` on.
fn page<'a, T: Object + 'a>(
    kind: &str,
    form: &Form,
    all: impl Iterator<Item = &'a T>,
) -> Result<Value, Refusal> {
    let limit = match form.amount("limit")? {
        Some(limit) => usize::try_from(limit).map_or(PAGE_MAX, |limit| limit.min(PAGE_MAX)),
        None => PAGE_MAX,
    };
    let mut behind = form.get("starting_after");
    let mut rest = all.skip_while(|object| match behind {
        Some(id) if object.id() == id => {
            behind = None;
            true
        }
        Some(_) => true,
        None => false,
    });
    let data: Vec<&T> = rest.by_ref().take(limit).collect();
    Ok(json!({"object": kind, "data": data, "has_more": rest.next().is_some()}))
}

async fn ledger(desk: Shared) -> HttpResponse {
    HttpResponse::Ok().json(desk.till.read(Books::ledger))
}

async fn requests(desk: Shared) -> HttpResponse {
    let arrivals = desk.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
    let total: u64 = arrivals.values().sum();
    HttpResponse::Ok().json(json!({"total": total, "by_key": &*arrivals}))
}

async fn add_faults(plan: web::Json<Plan>, desk: Shared) -> HttpResponse {
    match desk.faults.add(plan.into_inner()) {
        Ok(plan) => HttpResponse::Ok().json(plan),
        Err(name) => HttpResponse::BadRequest().body(format!("no fault is named {name:?}\n")),
    }
}

async fn clear_faults(desk: Shared) -> HttpResponse {
    desk.faults.clear();
    HttpResponse::NoContent().finish()
}
