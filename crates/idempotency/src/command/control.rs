//! SQL that a command may not run: what would begin, end or cut its transaction, or change the session.
//!
//! Reads the first words of a statement, nothing more: PostgreSQL itself refuses the rest. Invariant: no statement that starts
//! with such a word passes, whatever comments and empty statements stand before it.

/// A statement that a command may not run.
#[derive(Debug, thiserror::Error)]
#[error("a command cannot control its transaction, and this statement would: {0}")]
pub struct TransactionControl(&'static str);

/// Words that begin, end or cut a transaction, or change the session that the next command inherits.
const CONTROL: [&str; 12] = [
    "begin",
    "start",
    "commit",
    "end",
    "rollback",
    "abort",
    "savepoint",
    "release",
    "prepare",
    "deallocate",
    "discard",
    "reset",
];

/// PostgreSQL itself refuses several statements in one text, and COMMIT inside a DO block or a procedure.
pub(super) fn refuse_control(sql: &'static str) -> Result<(), TransactionControl> {
    let rest = skip_comments(sql);
    let mut words = rest.split(|c: char| !c.is_ascii_alphabetic());
    let word = words.next().unwrap_or_default();
    let session_setting = word.eq_ignore_ascii_case("set")
        && !words.find(|word| !word.is_empty()).is_some_and(|next| next.eq_ignore_ascii_case("local"));
    if session_setting || CONTROL.iter().any(|control| word.eq_ignore_ascii_case(control)) {
        return Err(TransactionControl(sql));
    }
    Ok(())
}

/// What stands behind leading white space, empty statements and comments (which nest).
fn skip_comments(sql: &str) -> &str {
    let mut rest = sql;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ';');
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n').map_or("", |(_, tail)| tail);
        } else if rest.starts_with("/*") {
            let mut depth = 0_usize;
            loop {
                let opens = rest.starts_with("/*");
                if opens || rest.starts_with("*/") {
                    depth = if opens { depth + 1 } else { depth - 1 };
                    rest = &rest[2..];
                } else {
                    let mut characters = rest.chars();
                    characters.next();
                    rest = characters.as_str();
                }
                if depth == 0 || rest.is_empty() {
                    break;
                }
            }
        } else {
            return rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_control_is_refused_however_it_is_spelled() {
        for sql in [
            "COMMIT",
            "  commit and chain",
            "/* x */ -- y\n ; Rollback",
            "END",
            "begin",
            "START TRANSACTION",
            "SAVEPOINT a",
            "RELEASE a",
            "abort",
            "PREPARE TRANSACTION 'x'",
            "SET TRANSACTION READ ONLY",
            "set search_path = x",
            "RESET ALL",
            "/* /* */ */ COMMIT",
            "/*;*/;--\n\tCommit",
        ] {
            assert!(refuse_control(sql).is_err(), "{sql:?} was let through");
        }
        for sql in [
            "SELECT 1",
            "WITH a AS (SELECT 1) SELECT * FROM a",
            "UPDATE commits SET a = 1",
            "INSERT INTO ends VALUES (1)",
            "",
            "SET LOCAL enable_seqscan = off",
            "/* COMMIT */ SELECT 1",
            "-- COMMIT",
        ] {
            assert!(refuse_control(sql).is_ok(), "{sql:?} was refused");
        }
    }
}
