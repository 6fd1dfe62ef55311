//! One connection, under the test's full control.
//!
//! It deliberately does not know retries or pools. Invariant: it sends only what it is told to, and how it ends
//! (FIN or RST) is the test's choice: dropped, it sends FIN.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{DEFAULT_BOUND, Request, Response, response};

pub struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    hung_up: bool,
    /// For each request sent and not yet answered, whether it was a HEAD.
    unanswered: VecDeque<bool>,
    bound: Duration,
}

impl Connection {
    pub async fn open(addr: SocketAddr) -> io::Result<Connection> {
        let stream = bounded(DEFAULT_BOUND, TcpStream::connect(addr)).await?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            input: Vec::new(),
            hung_up: false,
            unanswered: VecDeque::new(),
            bound: DEFAULT_BOUND,
        })
    }

    /// How long each call on this connection may take.
    #[must_use]
    pub fn bound(mut self, bound: Duration) -> Connection {
        self.bound = bound;
        self
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Sends a request and reads its response, the latter while still sending: a server may refuse a body without
    /// reading it.
    pub async fn exchange(&mut self, request: &Request) -> io::Result<Response> {
        self.unanswered.push_back(request.is_head());
        let bytes = request.to_bytes();
        bounded(self.bound, async {
            let mut unsent = bytes.as_slice();
            loop {
                match self.parsed()? {
                    Some(response) if !response.is_interim() => return Ok(response),
                    Some(_) => continue,
                    None => {}
                }
                let interest = if unsent.is_empty() {
                    Interest::READABLE
                } else {
                    Interest::READABLE | Interest::WRITABLE
                };
                self.stream.ready(interest).await?;
                match self.stream.try_write(unsent) {
                    Ok(count) => unsent = &unsent[count..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // It no longer listens, but it may have answered before.
                    Err(_) => unsent = &[],
                }
                match self.stream.try_read_buf(&mut self.input) {
                    Ok(count) => self.hung_up = count == 0,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        })
        .await
    }

    /// Sends a whole request.
    pub async fn send(&mut self, request: &Request) -> io::Result<()> {
        self.unanswered.push_back(request.is_head());
        self.write(&request.to_bytes()).await
    }

    /// Sends several requests in one write.
    pub async fn pipeline(&mut self, requests: &[Request]) -> io::Result<()> {
        self.unanswered.extend(requests.iter().map(Request::is_head));
        let bytes: Vec<u8> = requests.iter().flat_map(Request::to_bytes).collect();
        self.write(&bytes).await
    }

    /// Sends the head and so many bytes of the body as it goes over the wire; the rest can follow with
    /// [`Connection::send_rest`], or never.
    pub async fn send_part(&mut self, request: &Request, body: usize) -> io::Result<()> {
        self.unanswered.push_back(request.is_head());
        let bytes = request.body_bytes();
        let part = bytes.get(..body).unwrap_or(&bytes);
        self.write(&[&request.head_bytes(), part].concat()).await
    }

    /// Sends what [`Connection::send_part`] left out.
    pub async fn send_rest(&mut self, request: &Request, body: usize) -> io::Result<()> {
        let bytes = request.body_bytes();
        self.write(bytes.get(body..).unwrap_or_default()).await
    }

    /// Sends bytes as they are.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        bounded(self.bound, self.stream.write_all(bytes)).await
    }

    /// Reads the next final response; interim ones (100 Continue) are skipped.
    pub async fn read(&mut self) -> io::Result<Response> {
        let bound = self.bound;
        bounded(bound, async {
            loop {
                let response = self.next().await?;
                if !response.is_interim() {
                    return Ok(response);
                }
            }
        })
        .await
    }

    /// Reads the next response, be it an interim one.
    pub async fn read_any(&mut self) -> io::Result<Response> {
        bounded(self.bound, self.next()).await
    }

    /// Waits until the server has hung up. Fails when it sends something that nobody has read instead.
    pub async fn closed(&mut self) -> io::Result<()> {
        bounded(self.bound, async {
            while !self.hung_up {
                self.fill().await?;
            }
            if self.input.is_empty() { Ok(()) } else { Err(io::Error::other("an unread response")) }
        })
        .await
    }

    /// Ends the sending half with FIN; responses can still be read.
    pub async fn finish(&mut self) -> io::Result<()> {
        bounded(self.bound, self.stream.shutdown()).await
    }

    /// Ends the connection with FIN.
    pub fn close(self) {}

    /// Ends the connection with RST.
    pub fn reset(self) {
        // Fails only on a socket that is already gone.
        let _ = self.stream.set_zero_linger();
    }

    async fn next(&mut self) -> io::Result<Response> {
        loop {
            if let Some(response) = self.parsed()? {
                return Ok(response);
            }
            self.fill().await?;
        }
    }

    /// The next response, if it is here; an error if it never can be.
    fn parsed(&mut self) -> io::Result<Option<Response>> {
        let to_head = self.unanswered.front().copied().unwrap_or(false);
        let response = response::take(&mut self.input, to_head, self.hung_up)?;
        if response.as_ref().is_some_and(|response| !response.is_interim()) {
            self.unanswered.pop_front();
        }
        if response.is_none() && self.hung_up {
            let text = format!("the server hung up after {} bytes of a response", self.input.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        Ok(response)
    }

    async fn fill(&mut self) -> io::Result<()> {
        self.hung_up = self.stream.read_buf(&mut self.input).await? == 0;
        Ok(())
    }
}

async fn bounded<T>(bound: Duration, call: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match timeout(bound, call).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no HTTP progress within {bound:?}"))),
    }
}

#[cfg(test)]
mod tests;
