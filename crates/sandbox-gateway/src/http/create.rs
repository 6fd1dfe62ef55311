//! The one path of every charge and refund: key, fault, work, fault, answer.
//!
//! Knows no rules of money. Invariant: begun work runs on the main runtime and ends whether its caller waits or not;
//! its claim on the key ends with it.

use actix_web::{HttpRequest, HttpResponse};

use super::{Desk, answer};
use crate::books::Entry;
use crate::fault::{self, Fault, Target, When};
use crate::form::Form;
use crate::refusal::Refusal;
use crate::till::{Arrival, Claim, Order, is_card};

/// Longest idempotency key, in characters: Stripe's limit.
const KEY_MAX: usize = 255;

pub(super) async fn create(
    request: &HttpRequest,
    body: &[u8],
    desk: &Desk,
    target: Target,
    read: impl FnOnce(&Form) -> Result<Order, Refusal>,
) -> HttpResponse {
    match attempt(request, body, desk, target, read).await {
        Ok(response) => response,
        Err(refusal) => answer::refusal(&refusal),
    }
}

async fn attempt(
    request: &HttpRequest,
    body: &[u8],
    desk: &Desk,
    target: Target,
    read: impl FnOnce(&Form) -> Result<Order, Refusal>,
) -> Result<HttpResponse, Refusal> {
    desk.authorise(request)?;
    let key = key(request)?;
    let form = Form::parse(body)?;
    let order = read(&form)?;
    if let Some(unknown) =
        order.source().filter(|source| !is_card(source) && fault::of_source(source).is_none())
    {
        return Err(Refusal::missing("payment_method", unknown));
    }
    desk.count(key);

    let arrival = desk.till.arrive(key, form.canonical(request.path()))?;
    let fault = desk.faults.strike(target).or_else(|| match arrival {
        Arrival::Answered(_) => None,
        Arrival::Begun(_) => desk.faults.of_source(order.source(), key),
    });
    // The claim is held meanwhile, and dropped with this request.
    if let Some(response) = strike(fault, When::Before).await {
        return Ok(response);
    }
    let (outcome, replayed) = match arrival {
        Arrival::Answered(outcome) => (*outcome, true),
        Arrival::Begun(claim) => (work(desk, claim, order, fault).await?.outcome, false),
    };
    if let Some(response) = strike(fault, When::After).await {
        return Ok(response);
    }
    Ok(answer::outcome(&outcome, replayed))
}

/// Lets the fault happen if this is its moment. A slow one is part of the work.
async fn strike(fault: Option<Fault>, moment: When) -> Option<HttpResponse> {
    match fault {
        Some(fault) if fault.when() == moment && fault.delay().is_none() => answer::strike(fault).await,
        _ => None,
    }
}

/// Carries the order out, slowly if that is asked for, and announces what happened.
async fn work(desk: &Desk, claim: Claim, order: Order, fault: Option<Fault>) -> Result<Entry, Refusal> {
    let delay = fault.and_then(Fault::delay);
    let webhooks = desk.webhooks.clone();
    let begun = desk.runtime.spawn(async move {
        if let Some(delay) = delay {
            tokio::time::sleep(delay).await;
        }
        let carried_out = tokio::task::spawn_blocking(move || claim.carry_out(order)).await;
        if let Ok(Ok(Ok(entry))) = &carried_out {
            webhooks.announce(entry);
        }
        carried_out
    });
    match begun.await {
        Ok(Ok(Ok(done))) => done,
        Ok(Ok(Err(error))) => {
            tracing::error!(%error, "the ledger cannot be written");
            Err(Refusal::injected(500))
        }
        Ok(Err(error)) | Err(error) => {
            tracing::error!(%error, "a request ended in the middle");
            Err(Refusal::injected(500))
        }
    }
}

fn key(request: &HttpRequest) -> Result<Option<&str>, Refusal> {
    let Some(value) = request.headers().get("idempotency-key") else { return Ok(None) };
    match value.to_str() {
        Ok(key) if (1..=KEY_MAX).contains(&key.len()) => Ok(Some(key)),
        _ => Err(Refusal::parameter("Idempotency-Key must have 1 to 255 characters of ASCII")),
    }
}
