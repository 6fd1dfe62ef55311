//! What two runs have in common, and how a third one differs from it.
//!
//! Knows JSON and nothing of its meaning. Invariant: only a text or a number that differed between the two runs is taken for
//! generated; a member, an entry, a status or an amount that both had must be there, and be the same.

use serde_json::{Map, Value};

/// Stands for what is new each time: an id, a time, a secret.
const GENERATED: &str = "(generated)";

/// What both have, or where they have not the same shape.
pub(super) fn common(one: &Value, other: &Value, at: &str) -> Result<Value, String> {
    match (one, other) {
        _ if one == other => Ok(one.clone()),
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            let member = |(name, value): (&String, &Value)| {
                Ok((name.clone(), common(value, &b[name], &format!("{at}.{name}"))?))
            };
            Ok(Value::Object(a.iter().map(member).collect::<Result<Map<_, _>, String>>()?))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let entries = a.iter().zip(b).enumerate();
            let entry = |(index, (a, b)): (usize, (&Value, &Value))| common(a, b, &format!("{at}[{index}]"));
            Ok(Value::Array(entries.map(entry).collect::<Result<_, _>>()?))
        }
        (Value::String(_), Value::String(_)) | (Value::Number(_), Value::Number(_)) => {
            Ok(Value::from(GENERATED))
        }
        _ => Err(format!("{at}: {one} and {other}")),
    }
}

/// The first place where a value is not what it is expected to be, and both values there.
pub(super) fn difference(expected: &Value, seen: &Value, at: &str) -> Option<String> {
    match (expected, seen) {
        (Value::String(text), Value::String(_) | Value::Number(_)) if text == GENERATED => None,
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            a.iter().find_map(|(name, value)| difference(value, &b[name], &format!("{at}.{name}")))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut entries = a.iter().zip(b).enumerate();
            entries.find_map(|(index, (a, b))| difference(a, b, &format!("{at}[{index}]")))
        }
        _ if expected == seen => None,
        _ => Some(format!("{at}: expected {expected}\n{:>width$}: {seen}", "seen", width = at.len() + 10)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_two_runs_disagree_on_is_free() {
        let run = |id: &str, amount: u32| json!({ "id": id, "rows": [{ "amount": amount, "by": id }] });
        let known = common(&run("a", 5), &run("b", 5), "state").unwrap();
        assert_eq!(known, json!({ "id": GENERATED, "rows": [{ "amount": 5, "by": GENERATED }] }));
        assert_eq!(difference(&known, &run("c", 5), "state"), None);
        let found = difference(&known, &run("c", 6), "state").unwrap();
        assert!(
            found.starts_with("state.rows[0].amount: expected 5\n") && found.ends_with("seen: 6"),
            "{found}"
        );
    }

    #[test]
    fn shapes_are_compared() {
        let twice = json!({ "rows": [1, 1] });
        assert!(common(&json!({ "rows": [1] }), &twice, "state").is_err());
        assert!(common(&json!({ "a": null }), &json!({ "a": "x" }), "state").is_err());
        for other in [json!({ "rows": [1] }), json!({ "rows": [1, 1], "more": 1 }), json!(null)] {
            assert!(difference(&twice, &other, "state").is_some(), "{other}");
        }
        assert!(difference(&json!(GENERATED), &json!(null), "state").is_some());
    }
}
