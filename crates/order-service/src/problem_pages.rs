//! A page for every problem code, so that `type` in a problem leads somewhere.
//!
//! Knows the framework's kinds and the shop's. Invariant: every kind that this service can answer has its page.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use idempotency::ProblemKind;
use idempotency::http::fallback_not_found;
use idempotency::problems;

use crate::orders::rejections;

/// `GET /problems/{code}`
pub(crate) async fn page(code: web::Path<String>) -> HttpResponse {
    let kinds = problems::ALL.iter().chain(rejections::ALL);
    match kinds.into_iter().find(|kind| kind.code == code.as_str()) {
        Some(kind) => HttpResponse::Ok()
            .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
            .body(html(kind)),
        None => fallback_not_found().await,
    }
}

/// The texts are our own constants, without markup.
fn html(kind: &ProblemKind) -> String {
    let yes = |flag: bool| if flag { "yes" } else { "no" };
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{code}</title>\n<h1>{title}</h1>\n<p>{page}</p>\n\
         <dl><dt>Code</dt><dd>{code}</dd><dt>Status</dt><dd>{status}</dd><dt>Can repeating help?</dt><dd>{retryable}</dd>\
         <dt>Is a new key safe?</dt><dd>{new_key}</dd></dl>\n</html>\n",
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
        for kind in problems::ALL.iter().chain(rejections::ALL) {
            assert!(kind.code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{}", kind.code);
            assert!(!kind.page.contains(['<', '>', '&']) && kind.page.len() > 60, "{}", kind.code);
        }
    }
}
