//! From path and body to a command or workflow: one typed struct, filled from both.
//!
//! Invariant: a body cannot name what the path names, and an error names the field that is at fault.

use actix_web::HttpRequest;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::canonical::canonicalize;
use crate::command::{Command, Invalid};
use crate::objects::Objects;
use crate::problem::Problem;
use crate::problems;

const NOT_OBJECT: &str = "the body must be a JSON object";

/// What a route takes: a command or a workflow, without its work.
pub(super) struct Operation<T> {
    pub(super) name: &'static str,
    pub(super) is_serialised: bool,
    pub(super) validate: fn(&T) -> Result<(), Invalid>,
    /// Whether the request is kept as it was read, to be run again.
    pub(super) is_kept: bool,
}

impl<C: Command> Operation<C> {
    pub(super) fn of_command() -> Self {
        Self { name: C::NAME, is_serialised: C::SERIALIZE, validate: C::validate, is_kept: false }
    }
}

/// What was read of a request.
pub(super) struct Input<T> {
    pub(super) typed: T,
    /// The canonical form of the body, for the fingerprint.
    pub(super) canonical: String,
    /// All members, those of the path too, as JSON; empty if they are not kept.
    pub(super) members: Vec<u8>,
}

/// Reads path and body.
pub(super) fn parse<T: DeserializeOwned>(
    request: &HttpRequest,
    document: &[u8],
    operation: &Operation<T>,
) -> Result<Input<T>, Problem> {
    let canonical = canonicalize(document).map_err(|fault| invalid(fault.to_string()))?;
    let mut kept = Vec::new();
    let typed = if operation.is_kept || !request.match_info().is_empty() {
        let members = members(request, &canonical)?;
        if operation.is_kept {
            kept = serde_json::to_vec(&members).map_err(|fault| invalid(fault.to_string()))?;
        }
        T::deserialize(Objects(members))
    } else if canonical.starts_with('{') {
        // Nothing to put beside the members: straight into the type.
        T::deserialize(Objects(&mut serde_json::Deserializer::from_str(&canonical)))
    } else {
        return Err(invalid(NOT_OBJECT.to_owned()));
    };
    let typed = match typed {
        Ok(typed) => typed,
        Err(_) => at_fault(request, &canonical)?,
    };
    (operation.validate)(&typed).map_err(|fault| invalid(fault.to_string()))?;
    Ok(Input { typed, canonical, members: kept })
}

/// Reads it once more, now keeping account of where it is: only an error is interested in that.
fn at_fault<T: DeserializeOwned>(request: &HttpRequest, canonical: &str) -> Result<T, Problem> {
    serde_path_to_error::deserialize(Objects(members(request, canonical)?)).map_err(|fault| {
        // An id that cannot be one names nothing.
        match fault.path().iter().next() {
            Some(serde_path_to_error::Segment::Map { key }) if request.match_info().get(key).is_some() => {
                problems::NOT_FOUND.because("there is nothing with this id")
            }
            _ => invalid(describe(&fault)),
        }
    })
}

/// The members of the body, and the parameters of the path.
fn members(request: &HttpRequest, canonical: &str) -> Result<Value, Problem> {
    let not_object = |_| invalid(NOT_OBJECT.to_owned());
    let mut members: Map<String, Value> = serde_json::from_str(canonical).map_err(not_object)?;
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
