//! RESP, as far as a proxy needs it: where a message ends, and the words of a command.
//!
//! It deliberately does not know what a value means. Invariant: given a prefix of a message it asks for more and
//! takes nothing, at whatever byte the prefix ends.

use std::io;

/// The words of the command at the start of `input` and its length in bytes, or `None` while it is incomplete.
pub(crate) fn command(input: &[u8]) -> io::Result<Option<(Vec<Vec<u8>>, usize)>> {
    let Some((line, mut at)) = line(input, 0) else { return Ok(None) };
    let Some(count) = line.strip_prefix(b"*") else {
        // An inline command, as typed into a terminal.
        let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        return Ok(Some((words.map(<[u8]>::to_vec).collect(), at)));
    };
    let mut words = Vec::new();
    for _ in 0..number(count)?.max(0) {
        let Some((head, start)) = self::line(input, at) else { return Ok(None) };
        let length = head.strip_prefix(b"$").ok_or_else(|| malformed("a command's word", head))?;
        let length = usize::try_from(number(length)?).map_err(|_| malformed("a word's length", head))?;
        let Some(word) = input.get(start..start + length) else { return Ok(None) };
        at = start + length + 2;
        if input.len() < at {
            return Ok(None);
        }
        words.push(word.to_vec());
    }
    Ok(Some((words, at)))
}

/// The length of the reply at the start of `input`, or `None` while it is incomplete. RESP2 and RESP3.
pub(crate) fn reply(input: &[u8]) -> io::Result<Option<usize>> {
    let mut at = 0;
    let mut missing: i64 = 1;
    while missing > 0 {
        let Some((head, next)) = line(input, at) else { return Ok(None) };
        at = next;
        missing -= 1;
        let Some((kind, rest)) = head.split_first() else { return Err(malformed("a reply", head)) };
        match kind {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => {}
            b'$' | b'=' | b'!' => {
                if let Ok(length) = usize::try_from(number(rest)?) {
                    at += length + 2;
                }
            }
            b'*' | b'~' | b'>' => missing += number(rest)?.max(0),
            b'%' => missing += number(rest)?.max(0) * 2,
            // Attributes stand before the value that they belong to.
            b'|' => missing += number(rest)?.max(0) * 2 + 1,
            _ => return Err(malformed("a reply", head)),
        }
        if input.len() < at {
            return Ok(None);
        }
    }
    Ok(Some(at))
}

/// The line that begins at `from`, without its end, and where the next one begins.
fn line(input: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let rest = input.get(from..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&rest[..end], from + end + 2))
}

fn number(digits: &[u8]) -> io::Result<i64> {
    std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| malformed("a number", digits))
}

fn malformed(what: &str, found: &[u8]) -> io::Error {
    let found = String::from_utf8_lossy(found);
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP: {what} expected, found {found:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each with something behind it, which must not be taken.
    const REPLIES: [&str; 14] = [
        "+OK\r\n",
        "-NOSCRIPT no\r\n",
        ":-3\r\n",
        "$5\r\na\r\nbc\r\n",
        "$-1\r\n",
        "$0\r\n\r\n",
        "*-1\r\n",
        "*0\r\n",
        "*3\r\n:1\r\n*2\r\n$1\r\nx\r\n$-1\r\n+y\r\n",
        "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n#t\r\n",
        "~2\r\n_\r\n,1.5\r\n",
        "|1\r\n+ttl\r\n:9\r\n*1\r\n(12345678901234567890\r\n",
        "=7\r\ntxt:a\r\n\r\n",
        ">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n",
    ];

    #[test]
    fn finds_a_replys_end_and_waits_at_every_earlier_byte() {
        for text in REPLIES {
            let followed = format!("{text}+next\r\n");
            assert_eq!(reply(followed.as_bytes()).unwrap(), Some(text.len()), "{text:?}");
            for cut in 0..text.len() {
                assert_eq!(reply(&text.as_bytes()[..cut]).unwrap(), None, "{text:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn finds_a_commands_end_and_waits_at_every_earlier_byte() {
        for (text, words) in [
            ("*2\r\n$3\r\nGET\r\n$3\r\n\r\nk\r\n", vec!["GET", "\r\nk"]),
            ("*1\r\n$0\r\n\r\n", vec![""]),
            ("PING  hello\r\n", vec!["PING", "hello"]),
            ("\r\n", vec![]),
        ] {
            let expected: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            let followed = format!("{text}*1\r\n");
            assert_eq!(command(followed.as_bytes()).unwrap(), Some((expected, text.len())), "{text:?}");
            for cut in 0..text.len() {
                assert_eq!(command(&text.as_bytes()[..cut]).unwrap(), None, "{text:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn refuses_what_is_not_resp() {
        assert!(reply(b"HTTP/1.1 200 OK\r\n").is_err());
        assert!(reply(b"\r\n").is_err());
        assert!(command(b"*1\r\n+OK\r\n").is_err());
        assert!(command(b"*1\r\n$-1\r\n").is_err());
        assert!(command(b"*x\r\n").is_err());
    }
}
