//! Lists in pages: `limit` and `cursor` in, `data` and `next_cursor` out.
//!
//! Invariant: a page is read by position (a key), never by offset, so rows that arrive meanwhile shift nothing.

use idempotency::{Problem, problems};
use serde::{Deserialize, Serialize};

/// Rows of a page when the caller does not say.
const LIMIT_DEFAULT: i64 = 20;
/// Most rows of a page.
pub(crate) const LIMIT_MAX: i64 = 100;

/// What a caller may say about a page.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Window {
    limit: Option<String>,
    cursor: Option<String>,
}

impl Window {
    /// From the query string.
    pub(crate) fn parse(query: &str) -> Result<Self, Problem> {
        actix_web::web::Query::<Self>::from_query(query)
            .map(actix_web::web::Query::into_inner)
            .map_err(|error| problems::INVALID_REQUEST.because(error.to_string()))
    }

    /// How many rows.
    pub(crate) fn limit(&self) -> Result<i64, Problem> {
        let Some(text) = &self.limit else { return Ok(LIMIT_DEFAULT) };
        let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
        limit.ok_or_else(|| {
            problems::INVALID_REQUEST.because(format!("limit: must be a number from 1 to {LIMIT_MAX}"))
        })
    }

    /// Behind which row, as what the list is sorted by.
    pub(crate) fn cursor<T: std::str::FromStr>(&self) -> Result<Option<T>, Problem> {
        let Some(text) = &self.cursor else { return Ok(None) };
        // PostgreSQL has no text with NUL, so no page has given such a cursor.
        let cursor = if text.contains('\0') { None } else { text.parse().ok() };
        cursor.map(Some).ok_or_else(|| problems::INVALID_REQUEST.because("cursor: is not one of this list"))
    }
}

/// One page.
#[derive(Debug, Serialize)]
pub(crate) struct Page<T> {
    data: Vec<T>,
    next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// From one row more than the limit, if there are that many: then there is a next page.
    pub(crate) fn of(mut data: Vec<T>, limit: i64, cursor: impl Fn(&T) -> String) -> Self {
        let limit = usize::try_from(limit).unwrap_or(0);
        let more = data.len() > limit;
        data.truncate(limit);
        let next_cursor = if more { data.last().map(cursor) } else { None };
        Self { data, next_cursor }
    }
}
