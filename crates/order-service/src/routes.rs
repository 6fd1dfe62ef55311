//! Every route of the public API, in one table.
//!
//! A new command is one file beside `orders/` and one line here. Invariant: a POST that has an effect goes through
//! `command::<…>()`, `workflow::<…>()` or, from a partner, `signed::<…>()`, so that none can forget the key.

use std::sync::Arc;

use actix_web::http::Method;
use actix_web::web::{self, ServiceConfig};
use actix_web::{Resource, Route, guard};
use idempotency::Workflows;
use idempotency::http::{
    Routed, announce, command, key_status, method_not_allowed, operation, policy, problem_response, resource,
    signed, workflow,
};
use uuid::Uuid;

use crate::gateway_events::GatewayEvent;
use crate::orders::{self, CancelOrder, CreateOrder};
use crate::payments::rejections::GATEWAY_NOT_CONFIGURED;
use crate::payments::{PayOrder, RefundOrder};
use crate::webhooks::{self, RegisterEndpoint, RotateSecret};
use crate::{Shop, catalogue, events, openapi, problem_pages};

/// `payments`: whether there is a gateway.
pub(crate) fn table(config: &mut ServiceConfig, payments: bool) {
    // Tried in this order, and a path with parameters is matched by a regular expression: what is asked for most comes first.
    config.service(also_read(command::<CreateOrder>("/v1/orders"), reading().to(orders::read::list)));
    let (pay, refund) = ("/v1/orders/{id}/payments", "/v1/orders/{id}/refunds");
    if payments {
        config.service(workflow::<PayOrder>(pay)).service(workflow::<RefundOrder>(refund));
    } else {
        config.service(no_gateway(pay)).service(no_gateway(refund));
    }
    config
        .service(read_only("/v1/orders/{id}", reading().to(orders::read::one)))
        .service(command::<CancelOrder>("/v1/orders/{id}/cancel"))
        .service(read_only("/v1/products", reading().to(catalogue::list)))
        .service(read_only("/v1/products/{sku}", reading().to(catalogue::one)))
        .service(also_read(
            command::<RegisterEndpoint>("/v1/webhook-endpoints"),
            reading().to(webhooks::list),
        ))
        .service(deletable("/v1/webhook-endpoints/{id}", web::delete().to(webhooks::delete)))
        .service(command::<RotateSecret>("/v1/webhook-endpoints/{id}/rotate-secret"))
        .service(read_only("/v1/events", reading().to(events::list)))
        .service(signed::<GatewayEvent>("/v1/gateway-events"))
        .service(key_status("/v1/idempotency-keys"))
        .service(operation())
        .service(policy("/v1/idempotency"))
        .service(read_only("/problems/{code}", reading().to(problem_pages::page)))
        .service(read_only("/openapi.json", reading().to(openapi::json)))
        .service(read_only("/docs", reading().to(openapi::docs)));
}

/// Every workflow of this service, by the name that records have: what the completer can go on with.
pub(crate) fn workflows(shop: &Arc<Shop>) -> Workflows {
    let known = Workflows::new();
    if shop.gateway.is_none() {
        return known;
    }
    known.with::<PayOrder>(Arc::clone(shop)).with::<RefundOrder>(Arc::clone(shop))
}

/// What needs a gateway, without one: no key is taken.
fn no_gateway(path: &str) -> Resource {
    resource(path)
        .route(web::post().to(|| async {
            let problem = GATEWAY_NOT_CONFIGURED.because("payments are not set up");
            problem_response(&problem, Uuid::now_v7())
        }))
        .default_service(web::route().to(|| method_not_allowed(&[Method::POST])))
}

/// A route for GET and HEAD.
fn reading() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

/// A path that is only read; other methods are answered 405.
pub fn read_only(path: &str, route: Route) -> Resource {
    announce(Routed { method: "get", path: path.to_owned(), name: "read", is_workflow: false });
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

/// A path that can only be deleted.
fn deletable(path: &str, route: Route) -> Resource {
    announce(Routed { method: "delete", path: path.to_owned(), name: "delete", is_workflow: false });
    resource(path).route(route).default_service(web::route().to(|| method_not_allowed(&[Method::DELETE])))
}
