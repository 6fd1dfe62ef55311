//! A read that flies with the opening of the transaction, and so costs no round trip of its own.
//!
//! It is sent before anybody knows whether BEGIN succeeded; had BEGIN failed, it would run by itself. So only what is
//! plainly a read flies. Knows SQL text, nothing of connections. Invariant: a text with a function call, a lock or a second
//! statement never flies; it is run behind the opening instead.

use crate::database::Param;

/// A command's first read: one SELECT with its values.
pub struct OpeningRead {
    pub(crate) sql: &'static str,
    params: Vec<Box<dyn Param + Send>>,
}

impl OpeningRead {
    /// A plain `SELECT` (columns, tables, conditions; of functions only `= ANY ($1)`). Any other text is correct too, and
    /// costs a round trip.
    pub fn new(sql: &'static str, params: Vec<Box<dyn Param + Send>>) -> Self {
        Self { sql, params }
    }

    pub(crate) fn params(&self) -> Vec<&dyn Param> {
        self.params.iter().map(|param| &**param as &dyn Param).collect()
    }

    /// Whether it may be sent before BEGIN is known to have succeeded.
    pub(crate) fn may_fly(&self) -> bool {
        is_plain_read(self.sql)
    }
}

/// A call is a parenthesis behind anything but ANY; operators are trusted not to write.
fn is_plain_read(sql: &str) -> bool {
    let reads = sql.trim_start().get(..7).is_some_and(|head| head.eq_ignore_ascii_case("select "));
    let forbidden =
        |word: &str| ["into", "for", "call", "table"].iter().any(|bad| word.eq_ignore_ascii_case(bad));
    let comments = sql.contains("--") || sql.contains("/*");
    let before =
        |at: usize| sql[..at].trim_end().rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
    let calls = sql
        .match_indices('(')
        .any(|(at, _)| !before(at).is_some_and(|word| word.eq_ignore_ascii_case("any")));
    reads
        && !comments
        && !calls
        && !sql.contains(';')
        && !sql.split(|c: char| !c.is_ascii_alphanumeric()).any(forbidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_plainly_a_read_flies() {
        for sql in [
            "SELECT sku, name FROM products WHERE sku = ANY($1)",
            "select a.b from a join b using_c on a.x = b.x where a.id = $1 order by a.x limit 1",
            " SELECT status FROM orders WHERE id = $1",
        ] {
            assert!(is_plain_read(sql), "{sql}");
        }
        for sql in [
            "SELECT pay($1)",
            "SELECT nextval ('s')",
            "SELECT 1 FROM orders FOR UPDATE",
            "SELECT 1; DELETE FROM orders",
            "SELECT * INTO t FROM orders",
            "WITH a AS MATERIALIZED SELECT 1",
            "INSERT INTO t VALUES ($1)",
            "SELECT 1 -- FROM",
            "SELECT company(1)",
            "",
            "SEL",
            "selectç",
        ] {
            assert!(!is_plain_read(sql), "{sql}");
        }
    }
}
