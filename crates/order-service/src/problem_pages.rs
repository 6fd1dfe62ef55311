//! A page for every problem code, so that `type` in a problem leads somewhere.
//!
//! Knows the framework's kinds and the shop's. Invariant: every kind that this service can answer has its page; kinds that
//! share a code (a thing that is not there, found out before or by the handler) stand on one page, each with its own advice.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use idempotency::ProblemKind;
use idempotency::http::fallback_not_found;
use idempotency::problems;

use crate::gateway_events;
use crate::orders::rejections;
use crate::reading::with_request_id;
use crate::{payments, webhooks};

/// `GET /problems/{code}`
pub(crate) async fn page(code: web::Path<String>) -> HttpResponse {
    let kinds = problems::ALL
        .iter()
        .chain(rejections::ALL)
        .chain(payments::rejections::ALL)
        .chain(webhooks::REJECTIONS)
        .chain(gateway_events::PROBLEMS)
        .filter(|kind| kind.code == code.as_str());
    let sections: Vec<String> = kinds.map(|kind| section(kind)).collect();
    if sections.is_empty() {
        return fallback_not_found().await;
    }
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{code}</title>\n{}</html>\n",
        sections.concat()
    );
    with_request_id(HttpResponse::Ok())
        .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
        .body(page)
}

/// The texts are our own constants, without markup.
fn section(kind: &ProblemKind) -> String {
    let yes = |flag: bool| if flag { "yes" } else { "no" };
    format!(
        "<h1>{title}</h1>\n<p>{page}</p>\n<dl><dt>Code</dt><dd>{code}</dd><dt>Status</dt><dd>{status}</dd>\
         <dt>Can repeating help?</dt><dd>{retryable}</dd><dt>Is a new key safe?</dt><dd>{new_key}</dd></dl>\n",
        code = kind.code,
        title = kind.title,
        page = kind.page,
        status = kind.status,
        retryable = yes(kind.retryable),
        new_key = yes(kind.new_key_safe),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_say_what_they_are_about_and_codes_are_one_word() {
        for kind in problems::ALL
            .iter()
            .chain(rejections::ALL)
            .chain(payments::rejections::ALL)
            .chain(webhooks::REJECTIONS)
            .chain(gateway_events::PROBLEMS)
        {
            assert!(kind.code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{}", kind.code);
            assert!(!kind.page.contains(['<', '>', '&']) && kind.page.len() > 60, "{}", kind.code);
        }
    }
}
