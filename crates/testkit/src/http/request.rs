//! A request as bytes.
//!
//! It deliberately does not know what is valid: nothing is escaped, merged or refused. Invariant: apart from what
//! the test named, only `Host` and the framing of a body are added, and neither where the test has set it.

use std::time::Duration;

use super::DEFAULT_BOUND;

#[derive(Clone, Debug)]
pub struct Request {
    method: String,
    path: String,
    /// Whole header lines without their line end.
    headers: Vec<Vec<u8>>,
    body: Option<Vec<u8>>,
    framing: Framing,
    pub(super) bound: Duration,
}

/// How the end of the body is told.
#[derive(Clone, Copy, Debug)]
enum Framing {
    ContentLength,
    /// In chunks of so many bytes.
    Chunked(usize),
    Untold,
}

impl Request {
    pub fn new(method: &str, path: &str) -> Request {
        Request {
            method: method.to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: None,
            framing: Framing::ContentLength,
            bound: DEFAULT_BOUND,
        }
    }

    pub fn get(path: &str) -> Request {
        Request::new("GET", path)
    }

    pub fn post(path: &str) -> Request {
        Request::new("POST", path)
    }

    /// Adds a header; one of the same name stays.
    #[must_use]
    pub fn header(self, name: &str, value: impl AsRef<[u8]>) -> Request {
        self.header_line([name.as_bytes(), b": ", value.as_ref()].concat())
    }

    /// Adds a header line as it is, without a line end.
    #[must_use]
    pub fn header_line(mut self, line: impl Into<Vec<u8>>) -> Request {
        self.headers.push(line.into());
        self
    }

    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Request {
        self.body = Some(body.into());
        self
    }

    /// The body, with its `Content-Type`.
    #[must_use]
    pub fn json(self, value: &serde_json::Value) -> Request {
        self.header("Content-Type", "application/json").body(value.to_string())
    }

    /// Sends the body in chunks of so many bytes (at least one) instead of with `Content-Length`.
    #[must_use]
    pub fn chunked(mut self, chunk: usize) -> Request {
        self.framing = Framing::Chunked(chunk.max(1));
        self
    }

    /// Neither `Content-Length` nor chunks: the test tells the end itself, or not at all.
    #[must_use]
    pub fn unframed(mut self) -> Request {
        self.framing = Framing::Untold;
        self
    }

    /// How long [`super::send`] may take.
    #[must_use]
    pub fn bound(mut self, bound: Duration) -> Request {
        self.bound = bound;
        self
    }

    pub(super) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Everything before the body, with the empty line.
    pub fn head_bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path).into_bytes();
        let mut line = |line: &[u8]| head.extend([line, b"\r\n"].concat());
        if !self.has("host") {
            line(b"Host: test");
        }
        self.headers.iter().for_each(|header| line(header));
        match (self.framing, &self.body) {
            (Framing::ContentLength, Some(body)) if !self.has("content-length") => {
                line(format!("Content-Length: {}", body.len()).as_bytes());
            }
            (Framing::Chunked(_), Some(_)) if !self.has("transfer-encoding") => {
                line(b"Transfer-Encoding: chunked");
            }
            (Framing::ContentLength | Framing::Chunked(_) | Framing::Untold, _) => {}
        }
        line(b"");
        head
    }

    /// The body as it goes over the wire.
    pub fn body_bytes(&self) -> Vec<u8> {
        match (self.framing, &self.body) {
            (_, None) => Vec::new(),
            (Framing::ContentLength | Framing::Untold, Some(body)) => body.clone(),
            (Framing::Chunked(chunk), Some(body)) => {
                let mut bytes = Vec::new();
                for part in body.chunks(chunk) {
                    bytes.extend(format!("{:x}\r\n", part.len()).into_bytes());
                    bytes.extend([part, b"\r\n"].concat());
                }
                bytes.extend(b"0\r\n\r\n");
                bytes
            }
        }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        [self.head_bytes(), self.body_bytes()].concat()
    }

    fn has(&self, name: &str) -> bool {
        let named = |line: &Vec<u8>| {
            line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
                && line.get(name.len()) == Some(&b':')
        };
        self.headers.iter().any(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(request: &Request) -> String {
        String::from_utf8_lossy(&request.to_bytes()).into_owned()
    }

    #[test]
    fn adds_host_and_length_and_keeps_repeated_headers() {
        let request = Request::post("/a").header("K", "1").header("k", "2").body("xyz");
        assert_eq!(
            text(&request),
            "POST /a HTTP/1.1\r\nHost: test\r\nK: 1\r\nk: 2\r\nContent-Length: 3\r\n\r\nxyz"
        );
        assert_eq!(text(&Request::get("/a")), "GET /a HTTP/1.1\r\nHost: test\r\n\r\n");
    }

    #[test]
    fn leaves_alone_what_the_test_has_set() {
        let request = Request::post("/").header("HOST", "h").header("content-length", "9").body("xyz");
        assert_eq!(text(&request), "POST / HTTP/1.1\r\nHOST: h\r\ncontent-length: 9\r\n\r\nxyz");
        assert!(!text(&request.unframed()).contains("Content-Length"));
    }

    #[test]
    fn sends_raw_bytes_and_chunks() {
        let request = Request::post("/").header_line(b"K:\xff".as_slice()).body("abcde").chunked(2);
        assert!(request.head_bytes().windows(5).any(|bytes| bytes == b"K:\xff\r\n"));
        assert_eq!(request.body_bytes(), b"2\r\nab\r\n2\r\ncd\r\n1\r\ne\r\n0\r\n\r\n");
    }
}
