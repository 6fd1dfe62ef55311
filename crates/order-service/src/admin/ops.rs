//! `/ops`: what an operator looks at first, as one page without scripts.
//!
//! Reads and changes nothing; what may be done about it are the commands that the page names. Invariants: everything that did not come from
//! here is escaped, and a store that does not answer costs the page its part, not its answer.

use std::fmt::Write as _;

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, web};
use idempotency::PoolUsage;
use idempotency::relay::{BACKLOG_SQL, DEAD_SQL};
use serde_json::Value;

use super::{Operator, PROBE_MAX};
use crate::webhooks::operate::given_up;

/// How often a browser asks again, in seconds.
const REFRESH_S: u32 = 5;
/// Most lines of a list.
const LINES_MAX: usize = 50;
/// Up to here deliveries that wait are counted.
const COUNTED_MAX: i64 = 10_000;
/// No progress for so long is shown: earlier than IDEMPOTENCY_STUCK_AFTER gives it up.
const STUCK_MS: i64 = 60_000;
/// Nothing is loaded, nothing is sent, nobody frames it.
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) async fn page(request: HttpRequest, operator: web::Data<Operator>) -> HttpResponse {
    if let Some(refused) = operator.refuses(&request) {
        return refused;
    }
    let (database, redis) = tokio::join!(operator.database_state(), operator.gate.is_writable());
    let PoolUsage { max, busy, idle, waiting } = operator.pools.usage();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"{REFRESH_S}\">\
         <title>order-service</title>\n<h1>order-service</h1>\n<dl>\n<dt>PostgreSQL</dt><dd>{}</dd>\n<dt>Redis</dt><dd>{}</dd>\n\
         <dt>Connections to PostgreSQL</dt><dd>{busy} busy, {idle} idle of at most {max}; {waiting} requests wait for one</dd>\n",
        database.err().unwrap_or("serves"),
        if redis { "serves" } else { "away or not writable: PostgreSQL alone answers" },
    );
    if operator.shutdown.has_begun() {
        page.push_str("<dt>This process</dt><dd>is stopping</dd>\n");
    }
    let limit = i64::try_from(LINES_MAX + 1).unwrap_or(i64::MAX);
    let backlog = rows(&operator, BACKLOG_SQL, &[&COUNTED_MAX]).await;
    let backlog = backlog.as_ref().and_then(|rows| rows.first()).map_or("unknown".to_owned(), |row| {
        format!("{}, the oldest for {:.0} s", row.get::<_, i64>(0), row.get::<_, f64>(1))
    });
    // Writing to a string does not fail.
    let _ = writeln!(page, "<dt>Deliveries that wait</dt><dd>{backlog}</dd>\n</dl>");

    page.push_str(
        "<h2>Work that waits for somebody</h2>\n<p>order-service keys show, keys resolve, keys release</p>\n",
    );
    let asking = idempotency::Operator::new(operator.database.clone());
    let stuck = tokio::time::timeout(PROBE_MAX, asking.stuck(STUCK_MS)).await.ok().and_then(Result::ok);
    list(&mut page, stuck.map(|records| records.iter().map(told).collect()));

    page.push_str(
        "<h2>Deliveries that were given up</h2>\n<p>order-service webhooks dead, webhooks redeliver</p>\n",
    );
    let dead = rows(&operator, DEAD_SQL, &[&limit]).await;
    list(&mut page, dead.map(|rows| rows.iter().filter_map(|row| given_up(row).ok()).collect()));
    page.push_str("</html>\n");
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .body(page)
}

/// `None` if PostgreSQL does not answer.
async fn rows(
    operator: &Operator,
    sql: &'static str,
    params: &[&dyn idempotency::Param],
) -> Option<Vec<tokio_postgres::Row>> {
    tokio::time::timeout(PROBE_MAX, operator.database.read(sql, params)).await.ok()?.ok()
}

fn told(record: &Value) -> String {
    let text = |name: &str| record[name].as_str().unwrap_or("–");
    let why = match (record["unknown_since"].as_str(), record["trouble"].as_str()) {
        (Some(since), _) => format!("a call's outcome is unknown since {since}"),
        (None, Some(trouble)) => trouble.to_owned(),
        (None, None) => format!("no progress since {}", text("updated_at")),
    };
    format!("{} of {}, key {}: {why}", text("workflow"), text("account"), text("key"))
}

fn list(page: &mut String, lines: Option<Vec<String>>) {
    let Some(lines) = lines else {
        page.push_str("<p>PostgreSQL does not say.</p>\n");
        return;
    };
    if lines.is_empty() {
        page.push_str("<p>None.</p>\n");
        return;
    }
    page.push_str("<ul>\n");
    for line in lines.iter().take(LINES_MAX) {
        let _ = writeln!(page, "<li>{}</li>", escaped(line));
    }
    if lines.len() > LINES_MAX {
        page.push_str("<li>and more</li>\n");
    }
    page.push_str("</ul>\n");
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            plain => safe.push(plain),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_cannot_become_markup() {
        let mut page = String::new();
        list(&mut page, Some(vec!["<img src=x onerror='alert(1)'>&\"".to_owned()]));
        assert_eq!(page, "<ul>\n<li>&lt;img src=x onerror=&#39;alert(1)&#39;&gt;&amp;&quot;</li>\n</ul>\n");
    }

    #[test]
    fn a_long_list_says_that_there_is_more() {
        let mut page = String::new();
        list(&mut page, Some(vec!["x".to_owned(); LINES_MAX + 1]));
        assert!(page.matches("<li>x</li>").count() == LINES_MAX && page.contains("and more"));
        list(&mut page, None);
        assert!(page.ends_with("<p>PostgreSQL does not say.</p>\n"));
    }
}
