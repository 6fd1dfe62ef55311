//! The commands and workflows of the service, one request of each: what it needs first, and what it asks for.
//!
//! Two stand here twice: a refusal is stored too, and takes another way.

use serde_json::json;
use testkit::{Again, Request, Response};

use crate::gateway_events::{self, SECRET, signed};
use crate::harness::{App, order};

/// What is asked, the same each time.
pub struct Prepared {
    pub request: Request,
    /// The secret of an endpoint that was registered for it.
    pub secret: Option<String>,
}

impl From<Request> for Prepared {
    fn from(request: Request) -> Self {
        Self { request, secret: None }
    }
}

/// A command or workflow.
pub trait Work: Send + Sync + 'static {
    /// As its implementation has it.
    const NAME: &'static str;
    /// Secrets are shown once.
    const AGAIN: Again = Again::Replay;

    fn prepare(app: &App, key: &str) -> impl Future<Output = Prepared> + Send;
}

pub struct CreateOrder;

impl Work for CreateOrder {
    const NAME: &'static str = "orders.create";

    async fn prepare(app: &App, key: &str) -> Prepared {
        app.request("/v1/orders", key, &order(2)).into()
    }
}

/// More than there is: found while the transaction is open, undone, and stored as a refusal.
pub struct RefusedOrder;

impl Work for RefusedOrder {
    const NAME: &'static str = "orders.create";

    async fn prepare(app: &App, key: &str) -> Prepared {
        let body = json!({ "items": [{ "sku": "no-such-thing", "quantity": 1 }] });
        app.request("/v1/orders", key, &body).into()
    }
}

pub struct CancelOrder;

impl Work for CancelOrder {
    const NAME: &'static str = "orders.cancel";

    async fn prepare(app: &App, key: &str) -> Prepared {
        let order = ordered(app, key).await;
        app.request(&format!("{order}/cancel"), key, &json!({})).into()
    }
}

pub struct PayOrder;

impl Work for PayOrder {
    const NAME: &'static str = "orders.pay";

    async fn prepare(app: &App, key: &str) -> Prepared {
        let order = ordered(app, key).await;
        app.request(&format!("{order}/payments"), key, &json!({ "source": "tok_visa" })).into()
    }
}

/// The gateway says no: given back what was reserved, and stored as a refusal.
pub struct DeclinedPayment;

impl Work for DeclinedPayment {
    const NAME: &'static str = "orders.pay";

    async fn prepare(app: &App, key: &str) -> Prepared {
        let order = ordered(app, key).await;
        app.request(&format!("{order}/payments"), key, &json!({ "source": "tok_chargeDeclined" })).into()
    }
}

pub struct RefundOrder;

impl Work for RefundOrder {
    const NAME: &'static str = "orders.refund";

    async fn prepare(app: &App, key: &str) -> Prepared {
        let order = ordered(app, key).await;
        let pay = app.request(
            &format!("{order}/payments"),
            &format!("pay-{key}"),
            &json!({ "source": "tok_visa" }),
        );
        made(app, &pay).await;
        app.request(&format!("{order}/refunds"), key, &json!({ "amount": 1 })).into()
    }
}

pub struct RegisterEndpoint;

impl Work for RegisterEndpoint {
    const NAME: &'static str = "webhook_endpoints.register";
    const AGAIN: Again = Again::Reference;

    async fn prepare(app: &App, key: &str) -> Prepared {
        app.request("/v1/webhook-endpoints", key, &json!({ "url": "https://example.com/hook" })).into()
    }
}

pub struct RotateSecret;

impl Work for RotateSecret {
    const NAME: &'static str = "webhook_endpoints.rotate_secret";
    const AGAIN: Again = Again::Reference;

    async fn prepare(app: &App, key: &str) -> Prepared {
        let register = RegisterEndpoint::prepare(app, &format!("register-{key}")).await;
        let endpoint = made(app, &register.request).await;
        let path = format!("{}/rotate-secret", endpoint.header("location").expect("a location"));
        let secret = endpoint.json()["secret"].as_str().map(str::to_owned);
        Prepared { request: app.request(&path, key, &json!({})), secret }
    }
}

/// What the gateway tells: the event's own id is the key.
pub struct GatewayEvent;

impl Work for GatewayEvent {
    const NAME: &'static str = "gateway_events.receive";

    async fn prepare(app: &App, key: &str) -> Prepared {
        let event = gateway_events::event(key, Some(app.account().await));
        signed(SECRET, key, gateway_events::now(), &event.to_string()).into()
    }
}

/// An order that was made for the case; its path.
async fn ordered(app: &App, key: &str) -> String {
    let made = made(app, &app.request("/v1/orders", &format!("order-{key}"), &order(2))).await;
    made.header("location").expect("a location").to_owned()
}

async fn made(app: &App, request: &Request) -> Response {
    let answer = app.send(request).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer
}
