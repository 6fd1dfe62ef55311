//! PostgreSQL's protocol 3, as far as the proxy needs it.
//!
//! It deliberately does not know parameters, rows, or what any reply but ReadyForQuery says.
//!
//! Invariant: given a prefix of a message it asks for more and takes nothing, at whatever byte the prefix ends.
//! Source: PostgreSQL documentation, chapter "Frontend/Backend Protocol", section "Message Formats".

use std::io;

const CANCEL: u32 = 80_877_102;
const SSL: u32 = 80_877_103;
const GSSENC: u32 = 80_877_104;

/// A message longer than this is taken for garbage.
const MAX_LENGTH: usize = 1 << 30;

/// What a client sends first, without a type byte.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// Asks for encryption; the answer is a single byte, and on `N` another opening follows.
    Encryption,
    Cancel,
    Startup,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frontend {
    Parse {
        name: String,
        sql: String,
    },
    Bind {
        portal: String,
        name: String,
    },
    Execute {
        portal: String,
    },
    Query {
        sql: String,
    },
    CloseStatement {
        name: String,
    },
    Sync,
    /// Belongs to no flight: passwords and the farewell.
    Aside,
    /// Belongs to a flight and says nothing to us: Describe, Flush, …
    Other,
}

/// The untyped packet at the start of `input` and its length.
pub(crate) fn opening(input: &[u8]) -> io::Result<Option<(Opening, usize)>> {
    let (Some(length), Some(code)) = (word(input, 0), word(input, 4)) else { return Ok(None) };
    let length = length_of(length, 8)?;
    let opening = match code {
        SSL | GSSENC => Opening::Encryption,
        CANCEL => Opening::Cancel,
        version if version >> 16 == 3 => Opening::Startup,
        _ => return Err(malformed("an opening packet")),
    };
    Ok((input.len() >= length).then_some((opening, length)))
}

/// The length of the typed message at the start of `input`.
pub(crate) fn typed(input: &[u8]) -> io::Result<Option<usize>> {
    let Some(length) = word(input, 1) else { return Ok(None) };
    let length = length_of(length, 4)? + 1;
    Ok((input.len() >= length).then_some(length))
}

/// What a whole typed message of the client says.
pub(crate) fn frontend(message: &[u8]) -> io::Result<Frontend> {
    let body = message.get(5..).unwrap_or_default();
    Ok(match message.first() {
        Some(b'P') => {
            let (name, rest) = text(body)?;
            Frontend::Parse { name, sql: text(rest)?.0 }
        }
        Some(b'B') => {
            let (portal, rest) = text(body)?;
            Frontend::Bind { portal, name: text(rest)?.0 }
        }
        Some(b'E') => Frontend::Execute { portal: text(body)?.0 },
        Some(b'Q') => Frontend::Query { sql: text(body)?.0 },
        Some(b'C') if body.first() == Some(&b'S') => Frontend::CloseStatement { name: text(&body[1..])?.0 },
        // A function call ends with ReadyForQuery like a Query does.
        Some(b'S' | b'F') => Frontend::Sync,
        Some(b'p' | b'X') => Frontend::Aside,
        Some(_) => Frontend::Other,
        None => return Err(malformed("a message's type")),
    })
}

fn text(body: &[u8]) -> io::Result<(String, &[u8])> {
    let end = body.iter().position(|byte| *byte == 0).ok_or_else(|| malformed("a text's end"))?;
    Ok((String::from_utf8_lossy(&body[..end]).into_owned(), &body[end + 1..]))
}

fn word(input: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(input.get(at..at + 4)?.try_into().ok()?))
}

fn length_of(length: u32, least: usize) -> io::Result<usize> {
    let length = length as usize;
    if (least..MAX_LENGTH).contains(&length) { Ok(length) } else { Err(malformed("a message's length")) }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not PostgreSQL's protocol: {what} expected"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[kind], &length.to_be_bytes()[..], body].concat()
    }

    fn packet(code: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 8).unwrap();
        [&length.to_be_bytes()[..], &code.to_be_bytes()[..], body].concat()
    }

    #[test]
    fn finds_a_messages_end_and_waits_at_every_earlier_byte() {
        for bytes in [message(b'S', b""), message(b'Q', b"SELECT 1\0")] {
            let followed = [&bytes[..], b"S\0\0"].concat();
            assert_eq!(typed(&followed).unwrap(), Some(bytes.len()));
            for cut in 0..bytes.len() {
                assert_eq!(typed(&bytes[..cut]).unwrap(), None, "cut at {cut}");
            }
        }
    }

    #[test]
    fn tells_the_openings_apart_and_waits_at_every_earlier_byte() {
        for (bytes, expected) in [
            (packet(SSL, b""), Opening::Encryption),
            (packet(GSSENC, b""), Opening::Encryption),
            (packet(CANCEL, b"\0\0\0\x01\0\0\0\x02"), Opening::Cancel),
            (packet(3 << 16, b"user\0test\0\0"), Opening::Startup),
            (packet((3 << 16) + 2, b"user\0test\0\0"), Opening::Startup),
        ] {
            for cut in 0..bytes.len() {
                assert_eq!(opening(&bytes[..cut]).unwrap(), None, "{expected:?} cut at {cut}");
            }
            let followed = [&bytes[..], b"p"].concat();
            assert_eq!(opening(&followed).unwrap(), Some((expected, bytes.len())));
        }
    }

    #[test]
    fn reads_names_and_texts() {
        let read = |kind, body: &[u8]| frontend(&message(kind, body)).unwrap();
        let (name, sql) = ("s1".to_owned(), "SELECT 1".to_owned());
        assert_eq!(
            read(b'P', b"s1\0SELECT 1\0\0\0"),
            Frontend::Parse { name: name.clone(), sql: sql.clone() }
        );
        assert_eq!(
            read(b'B', b"p1\0s1\0\0\0"),
            Frontend::Bind { portal: "p1".to_owned(), name: name.clone() }
        );
        assert_eq!(read(b'E', b"p1\0\0\0\0\0"), Frontend::Execute { portal: "p1".to_owned() });
        assert_eq!(read(b'Q', b"SELECT 1\0"), Frontend::Query { sql });
        assert_eq!(read(b'C', b"Ss1\0"), Frontend::CloseStatement { name });
        assert_eq!(read(b'C', b"Pp1\0"), Frontend::Other);
        assert_eq!((read(b'S', b""), read(b'X', b"")), (Frontend::Sync, Frontend::Aside));
    }

    #[test]
    fn refuses_what_is_not_the_protocol() {
        assert!(opening(b"GET / HTTP/1.1").is_err());
        assert!(typed(b"Q\0\0\0\x03").is_err());
        assert!(typed(b"Q\xff\xff\xff\xff").is_err());
        assert!(frontend(&message(b'Q', b"no end")).is_err());
    }
}
