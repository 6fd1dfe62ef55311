//! From path and body to a command: one typed struct, filled from both.
//!
//! Invariant: a body cannot name what the path names, and an error names the field that is at fault.

use actix_web::HttpRequest;
use serde_json::{Map, Value};

use crate::canonical::canonicalize;
use crate::command::Command;
use crate::http::objects::Node;
use crate::problem::Problem;
use crate::problems;

/// The command and the canonical form of the body.
pub(super) fn parse<C: Command>(request: &HttpRequest, document: &[u8]) -> Result<(C, Vec<u8>), Problem> {
    let canonical = canonicalize(document).map_err(|fault| invalid(fault.to_string()))?;
    let command = match C::deserialize(Node(members(request, &canonical)?)) {
        Ok(command) => command,
        // Read once more, now keeping account of where it is: only an error is interested in that.
        Err(_) => serde_path_to_error::deserialize(Node(members(request, &canonical)?)).map_err(|fault| {
            // An id that cannot be one names nothing.
            match fault.path().iter().next() {
                Some(serde_path_to_error::Segment::Map { key })
                    if request.match_info().get(key).is_some() =>
                {
                    problems::NOT_FOUND.because("there is nothing with this id")
                }
                _ => invalid(describe(&fault)),
            }
        })?,
    };
    command.validate().map_err(|fault| invalid(fault.to_string()))?;
    Ok((command, canonical))
}

/// The members of the body, and the parameters of the path.
fn members(request: &HttpRequest, canonical: &[u8]) -> Result<Value, Problem> {
    let not_object = |_| invalid("the body must be a JSON object".to_owned());
    let mut members: Map<String, Value> = serde_json::from_slice(canonical).map_err(not_object)?;
    for (name, value) in request.match_info().iter() {
        if members.insert(name.to_owned(), Value::String(value.to_owned())).is_some() {
            return Err(invalid(format!("{name}: it is named by the path already")));
        }
    }
    Ok(Value::Object(members))
}

fn invalid(detail: String) -> Problem {
    problems::INVALID_REQUEST.because(detail)
}

/// The field and what is wrong with it.
fn describe(fault: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let mut reason = fault.inner().to_string();
    // Callers do not know our types.
    for integer in ["i64", "u64", "i32", "u32", "i16", "u16", "usize"] {
        reason = reason.replace(&format!("expected {integer}"), "expected an integer");
    }
    match fault.path().to_string().as_str() {
        "." => reason,
        field => format!("{field}: {reason}"),
    }
}
