//! Responses, read off a growing buffer.
//!
//! It deliberately does not know sockets: whoever reads says whether the other side has hung up.
//!
//! Invariant: given a prefix of a response it asks for more and takes nothing, at whatever byte the prefix ends.

use std::io;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// In order, repeated ones too; values with blanks trimmed and bytes above ASCII as Latin-1.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    /// The first header of this name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(header, _)| header.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The body as JSON. Panics, with the response, when it is none.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("not JSON: {error}: {} {:?} {:?}", self.status, self.headers, self.text()),
        }
    }

    /// The body as text, for assertions and messages.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(super) fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }
}

/// Takes the response at the start of `input`, or `None` while it is incomplete.
pub(super) fn take(input: &mut Vec<u8>, to_head: bool, hung_up: bool) -> io::Result<Option<Response>> {
    let Some(end) = find(input, b"\r\n\r\n") else { return Ok(None) };
    let (status, headers) = head(&input[..end])?;
    let mut response = Response { status, headers, body: Vec::new() };
    let rest = &input[end + 4..];
    let taken = match framing(&response, to_head)? {
        Framing::Length(length) => rest.get(..length).map(|body| (body.to_vec(), length)),
        Framing::Chunked => chunks(rest)?,
        Framing::UntilClosed => hung_up.then(|| (rest.to_vec(), rest.len())),
    };
    let Some((body, length)) = taken else { return Ok(None) };
    response.body = body;
    input.drain(..end + 4 + length);
    Ok(Some(response))
}

enum Framing {
    Length(usize),
    Chunked,
    UntilClosed,
}

fn framing(response: &Response, to_head: bool) -> io::Result<Framing> {
    if to_head || response.status < 200 || [204, 304].contains(&response.status) {
        return Ok(Framing::Length(0));
    }
    let coding = response.header("transfer-encoding").unwrap_or_default().to_ascii_lowercase();
    if coding.ends_with("chunked") {
        return Ok(Framing::Chunked);
    }
    match response.header("content-length") {
        Some(length) => length.parse().map(Framing::Length).map_err(|_| malformed("Content-Length", length)),
        None => Ok(Framing::UntilClosed),
    }
}

type Head = (u16, Vec<(String, String)>);

fn head(bytes: &[u8]) -> io::Result<Head> {
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse().ok());
    let status = status.ok_or_else(|| malformed("status line", first))?;
    let header = |line: &str| {
        let (name, value) = line.split_once(':').ok_or_else(|| malformed("header", line))?;
        Ok((name.to_owned(), value.trim().to_owned()))
    };
    Ok((status, lines.map(header).collect::<io::Result<_>>()?))
}

/// The body in the chunks at the start of `rest`, and how many bytes they take with their trailers.
fn chunks(rest: &[u8]) -> io::Result<Option<(Vec<u8>, usize)>> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let Some(end) = find(&rest[at..], b"\r\n") else { return Ok(None) };
        let line = String::from_utf8_lossy(&rest[at..at + end]).into_owned();
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| malformed("chunk size", &line))?;
        at += end + 2;
        if size == 0 {
            return Ok(trailers(&rest[at..]).map(|length| (body, at + length)));
        }
        let Some(chunk) = rest.get(at..at + size + 2) else { return Ok(None) };
        let chunk = chunk.strip_suffix(b"\r\n").ok_or_else(|| malformed("chunk end", &line))?;
        body.extend_from_slice(chunk);
        at += size + 2;
    }
}

/// The length of the trailers and the empty line that ends them.
fn trailers(rest: &[u8]) -> Option<usize> {
    if rest.starts_with(b"\r\n") { Some(2) } else { find(rest, b"\r\n\r\n").map(|end| end + 4) }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn malformed(what: &str, found: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not an HTTP response: {what} {found:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &str = "HTTP/1.1 200 OK\r\n";

    #[test]
    fn finds_the_end_and_waits_at_every_earlier_byte() {
        for (rest, body) in [
            ("Content-Length: 4\r\n\r\na\r\nb", "a\r\nb"),
            ("content-length: 0\r\n\r\n", ""),
            (
                "Transfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
                "abc0123456789",
            ),
            ("Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nT: 1\r\n\r\n", "a"),
        ] {
            let text = format!("{OK}{rest}");
            let mut followed = format!("{text}HTTP/1.1 2").into_bytes();
            let response = take(&mut followed, false, false).unwrap().unwrap();
            assert_eq!((response.status, response.text().as_str()), (200, body));
            assert_eq!(followed, b"HTTP/1.1 2");
            for cut in 0..text.len() {
                let mut input = text.as_bytes()[..cut].to_vec();
                assert_eq!(take(&mut input, false, true).unwrap(), None, "{text:?} cut at {cut}");
                assert_eq!(input.len(), cut);
            }
        }
    }

    #[test]
    fn knows_the_responses_without_a_body() {
        let mut input =
            b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n".to_vec();
        assert_eq!(take(&mut input, false, false).unwrap().unwrap().status, 204);
        assert_eq!(take(&mut input, false, false).unwrap().unwrap().status, 304);
        let mut input = format!("{OK}Content-Length: 9\r\n\r\n").into_bytes();
        assert_eq!(take(&mut input, true, false).unwrap().unwrap().body, b"");
    }

    #[test]
    fn a_body_without_a_length_ends_with_the_connection() {
        let mut input = format!("{OK}\r\nabc").into_bytes();
        assert_eq!(take(&mut input, false, false).unwrap(), None);
        assert_eq!(take(&mut input, false, true).unwrap().unwrap().body, b"abc");
    }

    #[test]
    fn headers_keep_order_and_repetition() {
        let mut input = format!("{OK}B: 1\r\na:  x \r\nb: 2\r\nContent-Length: 2\r\n\r\n{{}}").into_bytes();
        let response = take(&mut input, false, false).unwrap().unwrap();
        assert_eq!(
            (response.header("A"), response.header("b"), response.header("c")),
            (Some("x"), Some("1"), None)
        );
        assert_eq!(response.headers[2], ("b".to_owned(), "2".to_owned()));
        assert_eq!(response.json(), serde_json::json!({}));
    }

    #[test]
    fn refuses_what_is_not_http() {
        for text in ["SSH-2.0\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nnothing\r\n\r\n"] {
            assert!(take(&mut text.as_bytes().to_vec(), false, false).is_err(), "{text:?}");
        }
        assert!(take(&mut format!("{OK}Content-Length: -1\r\n\r\n").into_bytes(), false, false).is_err());
        assert!(
            take(&mut format!("{OK}Transfer-Encoding: chunked\r\n\r\nxyz\r\n").into_bytes(), false, false)
                .is_err()
        );
    }
}
