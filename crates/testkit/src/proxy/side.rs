//! One socket of a proxied connection, with what has come from it and what is to go to it.
//!
//! It deliberately does not know messages. Invariant: nothing here waits for the other side: what cannot be written
//! yet stays in `output`, so that the two directions never block each other.

use std::io;

use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;

/// One of the two sockets of a connection, with what has been read from it and is to be written to it.
pub(crate) struct Side {
    pub(crate) stream: TcpStream,
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
    /// More can come from it.
    pub(crate) is_read: bool,
    /// It still takes what is written to it.
    pub(crate) is_written: bool,
}

impl Side {
    pub(crate) fn new(stream: TcpStream) -> Side {
        Side { stream, input: Vec::new(), output: Vec::new(), is_read: true, is_written: true }
    }

    pub(crate) fn read(&mut self) {
        let mut buffer = [0; 16 * 1024];
        while self.is_read {
            match self.stream.try_read(&mut buffer) {
                Ok(0) => self.is_read = false,
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => (self.is_read, self.is_written) = (false, false),
            }
        }
    }

    pub(crate) fn write(&mut self) {
        while !self.output.is_empty() {
            let written =
                if self.is_written { self.stream.try_write(&self.output) } else { Ok(self.output.len()) };
            match written {
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.is_written = false,
            }
        }
    }

    pub(crate) async fn finish(&mut self) {
        if self.is_written {
            self.is_written = false;
            // A socket that is already gone needs no farewell.
            let _ = self.stream.shutdown().await;
        }
    }

    /// Delivers what is left, says goodbye, and waits for the other side to do the same.
    pub(crate) async fn drain(mut self) {
        loop {
            self.read();
            self.input.clear();
            self.write();
            if self.output.is_empty() {
                self.finish().await;
            }
            if !self.is_read {
                return;
            }
            self.ready().await;
        }
    }

    pub(crate) async fn ready(&self) {
        let interest = match (self.is_read, !self.output.is_empty()) {
            (true, true) => Interest::READABLE | Interest::WRITABLE,
            (true, false) => Interest::READABLE,
            (false, true) => Interest::WRITABLE,
            (false, false) => return std::future::pending().await,
        };
        let _ = self.stream.ready(interest).await;
    }
}
