//! The client's idempotency key: parsed once, valid from then on.
//!
//! Knows the header's two spellings (the IETF draft's quoted string and the bare token) and the names that are built
//! from a key. Knows nothing of HTTP frameworks or stores. Invariant: two headers are the same key if and only if
//! [`IdempotencyKey::as_str`] is equal, and no two (account, key) pairs share a [`redis_name`].

/// Longest key after unquoting, in characters (all are ASCII, so also in bytes).
pub const KEY_LEN_MAX: usize = 255;

/// The scope of every key: the number of the calling account, never its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AccountId(pub i64);

/// A valid key: 1 to [`KEY_LEN_MAX`] printable ASCII characters. Case matters; nothing is percent-decoded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

/// Why there is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The header is absent.
    #[error("the Idempotency-Key header is required; send one unique value per intent")]
    Missing,
    /// The header is there, and is not exactly one key.
    #[error("the Idempotency-Key header is not valid: {0}")]
    Invalid(&'static str),
}

impl IdempotencyKey {
    /// Parses the field lines of the `Idempotency-Key` header, as received.
    ///
    /// # Errors
    /// [`KeyError::Missing`] without a line; [`KeyError::Invalid`] for several lines or a malformed value.
    pub fn parse<'a>(mut lines: impl Iterator<Item = &'a [u8]>) -> Result<Self, KeyError> {
        let line = lines.next().ok_or(KeyError::Missing)?;
        if lines.next().is_some() {
            return Err(KeyError::Invalid("it stands in several header lines"));
        }
        let value = line.trim_ascii();
        let key = match value {
            [] => return Err(KeyError::Invalid("it is empty")),
            [b'"', rest @ ..] => unquote(rest)?,
            bare => token(bare)?,
        };
        match key.len() {
            0 => Err(KeyError::Invalid("it is empty")),
            1..=KEY_LEN_MAX => Ok(Self(key)),
            _ => Err(KeyError::Invalid("it is longer than 255 characters")),
        }
    }

    /// A key as it stands elsewhere than in its header, in a path say: the bare characters, without quotes.
    pub fn from_text(text: &str) -> Option<Self> {
        let valid =
            (1..=KEY_LEN_MAX).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        valid.then(|| Self(text.to_owned()))
    }

    /// A key as a record has it.
    pub(crate) fn stored(text: String) -> Self {
        Self(text)
    }

    /// The key as the client meant it, unquoted.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The rest of a structured-field string (RFC 9651, 3.3.3) after its opening quote; nothing may follow the closing one.
fn unquote(rest: &[u8]) -> Result<String, KeyError> {
    let mut key = String::with_capacity(rest.len());
    let mut bytes = rest.iter().copied();
    loop {
        match bytes.next() {
            None => return Err(KeyError::Invalid("the closing quote is missing")),
            Some(b'"') if bytes.len() == 0 => return Ok(key),
            Some(b'"') => return Err(KeyError::Invalid("nothing may follow the closing quote")),
            Some(b'\\') => match bytes.next() {
                Some(escaped @ (b'"' | b'\\')) => key.push(char::from(escaped)),
                _ => return Err(KeyError::Invalid("only \\\" and \\\\ may be escaped")),
            },
            Some(plain @ b' '..=b'~') => key.push(char::from(plain)),
            Some(_) => return Err(KeyError::Invalid("only printable ASCII characters are allowed")),
        }
    }
}

/// A bare key. Comma, semicolon and quote are refused, so that two joined lines or a parameter are never a third key.
fn token(bare: &[u8]) -> Result<String, KeyError> {
    let mut key = String::with_capacity(bare.len());
    for &byte in bare {
        match byte {
            b',' | b';' | b'"' | b' ' => {
                return Err(KeyError::Invalid("quote a key that holds space, comma, semicolon or quote"));
            }
            b'!'..=b'~' => key.push(char::from(byte)),
            _ => return Err(KeyError::Invalid("only printable ASCII characters are allowed")),
        }
    }
    Ok(key)
}

/// The Redis name of a key: `idem:v1:{account}:{key}`. `v1` is the version of the value's format.
///
/// Braces would choose the cluster slot, so they are escaped, and with them the escape character: injective.
pub fn redis_name(account: AccountId, key: &IdempotencyKey) -> String {
    named(&account.0.to_string(), key)
}

/// The same for a serialised command: the account is the hash tag, so that key and lock are in one slot.
pub fn serialised_redis_name(account: AccountId, key: &IdempotencyKey) -> String {
    named(&format!("{{{}}}", account.0), key)
}

/// The name of a caller's lock for one command.
pub fn lock_redis_name(account: AccountId, command: &str) -> String {
    format!("idem:lock:{{{}}}:{command}", account.0)
}

fn named(account: &str, key: &IdempotencyKey) -> String {
    let mut name = String::with_capacity(32 + key.0.len());
    for part in ["idem:v1:", account, ":"] {
        name.push_str(part);
    }
    if !key.0.contains(['{', '}', '%']) {
        name.push_str(&key.0);
        return name;
    }
    for character in key.0.chars() {
        match character {
            '{' => name.push_str("%7B"),
            '}' => name.push_str("%7D"),
            '%' => name.push_str("%25"),
            plain => name.push(plain),
        }
    }
    name
}

/// The reverse of [`redis_name`] and [`serialised_redis_name`]; `None` for what neither has made.
pub(crate) fn of_redis_name(name: &str) -> Option<(AccountId, IdempotencyKey)> {
    let (account, escaped) = name.strip_prefix("idem:v1:")?.split_once(':')?;
    let tagged = account.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let account = AccountId(tagged.unwrap_or(account).parse().ok()?);
    // What stands for itself is escaped last.
    let key = escaped.replace("%7B", "{").replace("%7D", "}").replace("%25", "%");
    let key = IdempotencyKey::from_text(&key)?;
    let known = [redis_name(account, &key), serialised_redis_name(account, &key)];
    known.iter().any(|known| known == name).then_some((account, key))
}

/// Account and client key in one text, for a unique column such as `orders.idem_key`: `{account}:{key}`, verbatim.
/// The account is a number, so the first colon ends it and the text is injective.
pub fn natural_key(account: AccountId, key: &IdempotencyKey) -> String {
    format!("{}:{}", account.0, key.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(value: &str) -> Result<String, KeyError> {
        IdempotencyKey::parse(std::iter::once(value.as_bytes())).map(|key| key.0)
    }

    #[test]
    fn quoted_and_bare_are_the_same_key() {
        assert_eq!(one("8e03-x"), one("\"8e03-x\""));
        assert_eq!(one("  K\t").unwrap(), "K");
        assert_eq!(one(r#""a\"b\\""#).unwrap(), r#"a"b\"#);
        assert_eq!(one("\"a b,c;d\"").unwrap(), "a b,c;d");
        assert_ne!(one("AbC"), one("aBc"));
        assert_eq!(one("K%20").unwrap(), "K%20");
    }

    #[test]
    fn anything_else_is_invalid() {
        for bad in [
            "",
            "  ",
            "\"",
            "\"\"",
            "\"K",
            "K\"",
            "\"K\";p=1",
            "\"K\" x",
            "K, K",
            "a;b",
            "a b",
            "kéy",
            "\"a\\n\"",
        ] {
            assert!(matches!(one(bad), Err(KeyError::Invalid(_))), "{bad:?} was accepted");
        }
        let twice = [&b"K"[..], b"K"];
        assert!(matches!(IdempotencyKey::parse(twice.into_iter()), Err(KeyError::Invalid(_))));
        assert_eq!(IdempotencyKey::parse(std::iter::empty()), Err(KeyError::Missing));
    }

    #[test]
    fn length_is_counted_after_unquoting() {
        assert!(one(&"k".repeat(255)).is_ok());
        assert!(one(&"k".repeat(256)).is_err());
        assert!(one(&format!("\"{}\"", "\\\\".repeat(255))).is_ok());
        assert!(one(&format!("\"{}\"", "\\\\".repeat(256))).is_err());
    }

    #[test]
    fn names_are_injective_and_carry_no_hash_tag() {
        let name = |account, key: &str| redis_name(AccountId(account), &IdempotencyKey(key.to_owned()));
        assert_eq!(name(42, "8e03978e"), "idem:v1:42:8e03978e");
        assert!(!name(1, "a{b}c").contains(['{', '}']));
        for key in ["a{b}c", "{}", "}{"] {
            let serialised = serialised_redis_name(AccountId(42), &IdempotencyKey(key.to_owned()));
            // The first brace opens the hash tag and the first closing one ends it: both names have the account's.
            assert!(serialised.starts_with("idem:v1:{42}:") && serialised.matches(['{', '}']).count() == 2);
        }
        assert_eq!(lock_redis_name(AccountId(42), "orders.refund"), "idem:lock:{42}:orders.refund");
        for key in ["8e03", "a{b}c", "%7B", "%257B", "%", "{%}", "a:b"] {
            let key = IdempotencyKey(key.to_owned());
            for name in [redis_name(AccountId(42), &key), serialised_redis_name(AccountId(42), &key)] {
                assert_eq!(of_redis_name(&name), Some((AccountId(42), key.clone())), "{name}");
            }
        }
        for foreign in [
            "idem:v1:42",
            "idem:v1:x:k",
            "idem:lock:{42}:c",
            "idem:v1:042:k",
            "idem:v1:42:{",
            "idem:v1:42:%7b%",
        ] {
            assert_eq!(of_redis_name(foreign), None, "{foreign}");
        }
        assert_ne!(name(1, "{"), name(1, "%7B"));
        assert_ne!(name(1, "2:x"), name(12, "x"));
        assert_eq!(natural_key(AccountId(7), &IdempotencyKey("a:b".into())), "7:a:b");
    }
}
