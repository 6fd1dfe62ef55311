//! Canonical JSON: one form for every spelling of the same document.
//!
//! A strict reader (RFC 8259) that writes while it reads: members sorted, white space dropped, string escapes
//! normalised, numbers kept as they are written. Knows nothing of hashing or HTTP. Invariant: two documents have the
//! same canonical form only if every value in them is the same; what could be read in two ways (duplicate members,
//! integers outside 64 bits, NUL characters) is refused.

use std::fmt;

/// Deepest nesting of arrays and objects, in levels (below the limit of the typed reader, so that ours answers first).
pub const DEPTH_MAX: usize = 64;

/// Why a document has no canonical form, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError {
    /// The member that is at fault, as `items[0].quantity`; empty for the document itself.
    pub field: String,
    /// What is wrong, for the caller's eyes.
    pub reason: String,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            f.write_str(&self.reason)
        } else {
            write!(f, "{}: {}", self.field, self.reason)
        }
    }
}

impl JsonError {
    fn new(reason: impl Into<String>) -> Self {
        Self { field: String::new(), reason: reason.into() }
    }

    /// Puts the place that contains the fault in front of it, on the way out.
    fn within(mut self, place: &str) -> Self {
        let joint = if self.field.is_empty() || self.field.starts_with('[') { "" } else { "." };
        self.field = format!("{place}{joint}{}", self.field);
        self
    }
}

/// Rewrites a JSON document into its canonical form.
///
/// # Errors
/// [`JsonError`] for what is not JSON, and for JSON with more than one meaning.
pub fn canonicalize(document: &[u8]) -> Result<String, JsonError> {
    let text = std::str::from_utf8(document).map_err(|_| JsonError::new("the body is not valid UTF-8"))?;
    let out = String::with_capacity(text.len());
    let mut reader = Reader { text, at: 0, out, members: Vec::new(), depth: 0 };
    reader.value()?;
    reader.space();
    if reader.at < text.len() {
        return Err(reader.unexpected("the end of the document"));
    }
    Ok(reader.out)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    out: String,
    /// Of all objects that are open, the innermost last.
    members: Vec<Member>,
    depth: usize,
}

/// A member as it lies in the output: its key (with quotes) and where its value ends.
#[derive(Clone, Copy)]
struct Member {
    start: usize,
    key_end: usize,
    end: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn unexpected(&self, wanted: &str) -> JsonError {
        match self.text[self.at..].chars().next() {
            None => JsonError::new(format!("the body is not valid JSON: it ends where {wanted} should be")),
            Some(found) => JsonError::new(format!(
                "the body is not valid JSON: {found:?} at byte {} instead of {wanted}",
                self.at
            )),
        }
    }

    fn value(&mut self) -> Result<(), JsonError> {
        self.space();
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                for word in ["true", "false", "null"] {
                    if self.text[self.at..].starts_with(word) {
                        self.at += word.len();
                        self.out.push_str(word);
                        return Ok(());
                    }
                }
                Err(self.unexpected("a value"))
            }
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<(), JsonError>) -> Result<(), JsonError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(JsonError::new(format!("nested deeper than {DEPTH_MAX} levels")));
        }
        self.at += 1;
        read(self)?;
        self.depth -= 1;
        Ok(())
    }

    fn array(&mut self) -> Result<(), JsonError> {
        self.out.push('[');
        for index in 0.. {
            self.space();
            if index == 0 && self.peek() == Some(b']') {
                break;
            }
            self.value().map_err(|fault| fault.within(&format!("[{index}]")))?;
            self.space();
            match self.peek() {
                Some(b',') => self.out.push(','),
                Some(b']') => break,
                _ => return Err(self.unexpected("',' or ']'")),
            }
            self.at += 1;
        }
        self.at += 1;
        self.out.push(']');
        Ok(())
    }

    fn object(&mut self) -> Result<(), JsonError> {
        self.out.push('{');
        let (start_of_members, mine) = (self.out.len(), self.members.len());
        let mut sorted = true;
        loop {
            self.space();
            if self.members.len() == mine && self.peek() == Some(b'}') {
                break;
            }
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a member name"));
            }
            let start = self.out.len();
            self.string()?;
            let key_end = self.out.len();
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("':'"));
            }
            self.at += 1;
            self.out.push(':');
            if let Err(fault) = self.value() {
                return Err(fault.within(&self.out[start + 1..key_end - 1]));
            }
            let last = self.members[mine..].last().map(|last| &self.out[last.start..last.key_end]);
            sorted &= last.is_none_or(|last| last < &self.out[start..key_end]);
            self.members.push(Member { start, key_end, end: self.out.len() });
            self.space();
            match self.peek() {
                Some(b',') => self.out.push(','),
                Some(b'}') => break,
                _ => return Err(self.unexpected("',' or '}'")),
            }
            self.at += 1;
        }
        self.at += 1;
        // Many writers sort: then all lies where it belongs already.
        if !sorted {
            self.sort_members(start_of_members, mine)?;
        }
        self.members.truncate(mine);
        self.out.push('}');
        Ok(())
    }

    /// Puts the members from `mine` on, which were written since `first`, in the order of their keys.
    fn sort_members(&mut self, first: usize, mine: usize) -> Result<(), JsonError> {
        let written = self.out.split_off(first);
        let members = &mut self.members[mine..];
        let key = |member: &Member| &written[member.start - first..member.key_end - first];
        members.sort_by(|a, b| key(a).cmp(key(b)));
        for pair in members.windows(2) {
            if key(&pair[0]) == key(&pair[1]) {
                let fault = JsonError::new("the member stands there twice");
                return Err(fault.within(key(&pair[0]).trim_matches('"')));
            }
        }
        for (position, member) in members.iter().enumerate() {
            if position > 0 {
                self.out.push(',');
            }
            self.out.push_str(&written[member.start - first..member.end - first]);
        }
        Ok(())
    }

    /// A number, as it is written: no float is ever rounded on the way to the hash.
    fn number(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let leading_zero = self.peek() == Some(b'0');
        let digits = self.digits()?;
        if leading_zero && digits > 1 {
            return Err(JsonError::new("the body is not valid JSON: a number starts with 0"));
        }
        let mut integer = true;
        if self.peek() == Some(b'.') {
            integer = false;
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            integer = false;
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        let literal = &self.text[start..self.at];
        if integer && literal.parse::<i64>().is_err() && literal.parse::<u64>().is_err() {
            return Err(JsonError::new("the integer does not fit in 64 bits"));
        }
        if !integer && literal.parse::<f64>().is_ok_and(f64::is_infinite) {
            return Err(JsonError::new("the number is out of range"));
        }
        self.out.push_str(literal);
        Ok(())
    }

    fn digits(&mut self) -> Result<usize, JsonError> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(self.unexpected("a digit")) } else { Ok(self.at - start) }
    }

    fn string(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        self.out.push('"');
        loop {
            let rest = &self.text[self.at..];
            let plain =
                rest.bytes().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f)).unwrap_or(rest.len());
            self.out.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    self.out.push('"');
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    let character = self.escape()?;
                    self.character(character)?;
                }
                _ => return Err(self.unexpected("a string character")),
            }
        }
    }

    /// The character behind a backslash.
    fn escape(&mut self) -> Result<char, JsonError> {
        let kind = self.peek();
        let character = match kind {
            Some(b'"' | b'\\' | b'/') => char::from(kind.unwrap_or_default()),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.unexpected("an escape")),
        };
        self.at += 1;
        Ok(character)
    }

    fn unicode_escape(&mut self) -> Result<char, JsonError> {
        let lone = || JsonError::new("the body is not valid JSON: half of a surrogate pair");
        let high = self.hex()?;
        if !(0xD800..=0xDFFF).contains(&high) {
            return char::from_u32(high).ok_or_else(lone);
        }
        if high >= 0xDC00 || !self.text[self.at..].starts_with("\\u") {
            return Err(lone());
        }
        self.at += 1;
        let low = self.hex()?;
        if !(0xDC00..=0xDFFF).contains(&low) {
            return Err(lone());
        }
        char::from_u32(0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00)).ok_or_else(lone)
    }

    /// `uXXXX`, with the reader on the `u`.
    fn hex(&mut self) -> Result<u32, JsonError> {
        let digits = self
            .text
            .get(self.at + 1..self.at + 5)
            .filter(|four| four.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(digits) = digits else { return Err(self.unexpected("four hexadecimal digits")) };
        self.at += 5;
        u32::from_str_radix(digits, 16).map_err(|_| self.unexpected("four hexadecimal digits"))
    }

    fn character(&mut self, character: char) -> Result<(), JsonError> {
        match character {
            '\0' => return Err(JsonError::new("the NUL character is not allowed")),
            '"' => self.out.push_str("\\\""),
            '\\' => self.out.push_str("\\\\"),
            '\u{1}'..='\u{1f}' => self.out.push_str(&format!("\\u{:04x}", u32::from(character))),
            plain => self.out.push(plain),
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "canonical_tests.rs"]
mod tests;
