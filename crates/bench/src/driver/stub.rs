//! A server for the generator's own tests: answers at once, and remembers which keys were sent.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Serves until the test process ends.
pub struct Server {
    address: SocketAddr,
    keys: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// `answer` makes status and body, given how many requests have been answered before.
    pub fn start(answer: fn(usize) -> (u16, &'static str)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let keys = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&keys);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = Arc::clone(&seen);
                std::thread::spawn(move || serve(&stream, &seen, answer));
            }
        });
        Self { address, keys }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn keys(&self) -> Vec<String> {
        self.keys.lock().expect("no panic holds it").clone()
    }
}

fn serve(
    stream: &TcpStream,
    seen: &Mutex<Vec<String>>,
    answer: fn(usize) -> (u16, &'static str),
) -> Option<()> {
    let (mut input, mut output) = (BufReader::new(stream), stream);
    loop {
        let (mut length, mut line) = (0, String::new());
        while line != "\r\n" {
            line.clear();
            if input.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(key) = line.strip_prefix("idempotency-key: ") {
                seen.lock().expect("no panic holds it").push(key.trim().to_owned());
            }
            if let Some(digits) = line.strip_prefix("content-length: ") {
                length = digits.trim().parse().ok()?;
            }
        }
        input.read_exact(&mut vec![0; length]).ok()?;
        let (status, body) = answer(seen.lock().expect("no panic holds it").len());
        let length = body.len();
        let response = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}");
        output.write_all(response.as_bytes()).ok()?;
    }
}
