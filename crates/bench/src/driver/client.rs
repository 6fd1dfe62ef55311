//! One keep-alive connection, with as little work for each exchange as HTTP/1.1 allows.
//!
//! The generator shares its cores with what it measures, so a request is bytes that were built before and a response is
//! read for its status and its length. Deliberately unknown: chunked bodies, redirects, TLS (no system under test sends or
//! wants them; a response without a length is an error, never a guess). Invariant: after [`Connection::exchange`] has
//! returned `Ok`, nothing of the response is left on the wire.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long a connection may take to open.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Largest response that is read, in bytes: above it, something else than an order came.
const RESPONSE_MAX: usize = 4 * 1024 * 1024;

/// One connection; the buffer is kept from exchange to exchange.
pub struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
}

/// A response, as far as it is looked at.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    pub status: u16,
    pub body: &'a [u8],
    /// The server will not take another request on this connection.
    pub closes: bool,
}

impl Connection {
    pub async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = tokio::time::timeout(CONNECT_MAX, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        Ok(Self { stream, input: Vec::with_capacity(4096) })
    }

    /// Sends the request and reads the whole response. Has no bound of its own: a load bounds all its exchanges at once.
    pub async fn exchange(&mut self, request: &[u8]) -> io::Result<Answer<'_>> {
        let head = self.send_and_read(request).await?;
        Ok(Answer { status: head.status, body: &self.input[head.length..], closes: head.closes })
    }

    async fn send_and_read(&mut self, request: &[u8]) -> io::Result<Head> {
        self.input.clear();
        self.stream.write_all(request).await?;
        loop {
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server hung up"));
            }
            let Some(head) = read_head(&self.input)? else { continue };
            let whole = head.length + head.body;
            if self.input.len() > whole || whole > RESPONSE_MAX {
                return Err(malformed("a response that is longer than it says"));
            }
            self.input.reserve(whole - self.input.len());
            while self.input.len() < whole {
                if self.stream.read_buf(&mut self.input).await? == 0 {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "half a response"));
                }
            }
            return Ok(head);
        }
    }
}

/// Status line and headers.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// Bytes up to the body.
    length: usize,
    /// Bytes of the body.
    body: usize,
    closes: bool,
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// `None` while it is not complete.
fn read_head(input: &[u8]) -> io::Result<Option<Head>> {
    let mut head = Head { status: 0, length: 0, body: 0, closes: false };
    let mut has_length = false;
    let mut at = 0;
    while let Some(end) = memchr::memchr(b'\n', &input[at..]) {
        let line = input[at..at + end].trim_ascii_end();
        at += end + 1;
        if head.status == 0 {
            let digits = line.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
            head.status = digits.and_then(number).ok_or_else(|| malformed("no status line"))? as u16;
        } else if line.is_empty() {
            // 204 and 304 have no body, and need not say so.
            if !has_length && !matches!(head.status, 204 | 304) {
                return Err(malformed("a response without Content-Length"));
            }
            head.length = at;
            return Ok(Some(head));
        } else if let Some(value) = value_of(line, b"content-length:") {
            head.body = number(value).ok_or_else(|| malformed("a Content-Length that is no number"))?;
            has_length = true;
        } else if let Some(value) = value_of(line, b"connection:") {
            head.closes = value.eq_ignore_ascii_case(b"close");
        }
    }
    Ok(None)
}

fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_whole() {
        let text = b"HTTP/1.1 201 Created\r\ncontent-LENGTH: 2\r\nConnection: close\r\nx: y\r\n\r\n{}";
        for cut in 0..text.len() - 2 {
            assert_eq!(read_head(&text[..cut]).unwrap(), None, "{cut}");
        }
        let head = Head { status: 201, length: text.len() - 2, body: 2, closes: true };
        assert_eq!(read_head(text).unwrap(), Some(head));
        assert_eq!(read_head(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap().unwrap().body, 0);
    }

    #[test]
    fn what_cannot_be_measured_is_an_error() {
        for text in [
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
            "HTTP/1.1 abc\r\n",
            "SSH-2.0\r\n",
        ] {
            assert!(read_head(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn exchanges_follow_each_other_on_one_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut connection = Connection::open(listener.local_addr().unwrap()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let serving = async move {
            let mut request = [0; 4];
            for part in [&b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nfi"[..], b"rst"] {
                if part.starts_with(b"HTTP") {
                    server.read_exact(&mut request).await.unwrap();
                }
                server.write_all(part).await.unwrap();
                server.flush().await.unwrap();
            }
            server.read_exact(&mut request).await.unwrap();
            server.write_all(b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        };
        let asking = async move {
            let first = connection.exchange(b"ping").await.unwrap();
            assert_eq!((first.status, first.body), (201, &b"first"[..]));
            let second = connection.exchange(b"ping").await.unwrap();
            assert_eq!((second.status, second.body), (409, &b""[..]));
            assert!(connection.exchange(b"ping").await.is_err(), "the server is gone");
        };
        tokio::join!(serving, asking);
    }
}
