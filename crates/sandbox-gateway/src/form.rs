//! What a request says: Stripe's form encoding (`metadata[order]=…`) and its search language.
//!
//! Pure. Invariant: two bodies with the same parameters in another order have the same canonical text.

use std::collections::BTreeMap;

use url::form_urlencoded;

use crate::objects::Metadata;
use crate::refusal::Refusal;

/// Longest metadata key and value, in characters: Stripe's limits.
const METADATA_KEY_MAX: usize = 40;
const METADATA_VALUE_MAX: usize = 500;

/// The parameters of one request, each once.
#[derive(Debug)]
pub(crate) struct Form(BTreeMap<String, String>);

impl Form {
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Refusal> {
        let mut parameters = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(text) {
            if parameters.insert(name.to_string(), value.into_owned()).is_some() {
                return Err(Refusal::parameter(format!("Received {name} twice")));
            }
        }
        Ok(Self(parameters))
    }

    /// Path and parameters as one text: what a repeated idempotency key is compared by.
    pub(crate) fn canonical(&self, path: &str) -> String {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.0).finish();
        format!("{path}?{query}")
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(crate) fn required(&self, name: &str) -> Result<&str, Refusal> {
        self.get(name).ok_or_else(|| Refusal::parameter(format!("Missing required param: {name}.")))
    }

    /// An amount in minor units, above zero.
    pub(crate) fn amount(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let Some(text) = self.get(name) else { return Ok(None) };
        match text.parse() {
            Ok(amount @ 1..) => Ok(Some(amount)),
            _ => Err(Refusal::parameter(format!("Invalid positive integer: {name}"))),
        }
    }

    pub(crate) fn metadata(&self) -> Result<Metadata, Refusal> {
        let mut metadata = Metadata::new();
        for (name, value) in &self.0 {
            let Some(key) = name.strip_prefix("metadata[").and_then(|rest| rest.strip_suffix(']')) else {
                continue;
            };
            if key.chars().count() > METADATA_KEY_MAX || value.chars().count() > METADATA_VALUE_MAX {
                return Err(Refusal::parameter(format!("metadata {key} is too long")));
            }
            metadata.insert(key.to_owned(), value.clone());
        }
        Ok(metadata)
    }
}

/// Reads `metadata['name']:'value'`, the one kind of search that the sandbox knows; `\'` and `\\` are escapes.
pub(crate) fn search(query: &str) -> Result<(String, String), Refusal> {
    let refuse = || Refusal::parameter("the sandbox searches by metadata['name']:'value' only");
    let rest = query.trim().strip_prefix("metadata[").ok_or_else(refuse)?;
    let (name, rest) = quoted(rest).ok_or_else(refuse)?;
    let (value, rest) = rest.strip_prefix("]:").and_then(quoted).ok_or_else(refuse)?;
    if rest.is_empty() { Ok((name, value)) } else { Err(refuse()) }
}

/// A text in single or double quotes, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut characters = text.char_indices();
    let (_, quote) = characters.next().filter(|(_, first)| matches!(first, '\'' | '"'))?;
    let mut inner = String::new();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => inner.push(characters.next()?.1),
            _ if character == quote => return Some((inner, &text[at + 1..])),
            _ => inner.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_parameters_does_not_matter_and_any_value_does() {
        let canonical = |text: &str| Form::parse(text.as_bytes()).unwrap().canonical("/v1/refunds");
        assert_eq!(canonical("a=1&metadata%5Bb%5D=2"), canonical("metadata[b]=2&a=1"));
        assert_ne!(canonical("a=1"), canonical("a=2"));
        assert!(Form::parse(b"a=1&a=2").is_err());
    }

    #[test]
    fn reads_searches() {
        let read = |query| search(query).ok();
        let pair = |name: &str, value: &str| Some((name.to_owned(), value.to_owned()));
        assert_eq!(read("metadata['operation']:'k-1'"), pair("operation", "k-1"));
        assert_eq!(read(r#"metadata["a"]:"it\"s""#), pair("a", "it\"s"));
        assert_eq!(read(r"metadata['a']:'it\'s \\'"), pair("a", r"it's \"));
        for bad in ["", "status:'a'", "metadata['a']:'b", "metadata['a']:'b' AND x:'y'", "metadata['a']"] {
            assert!(search(bad).is_err(), "{bad}");
        }
    }
}
