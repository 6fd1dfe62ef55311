//! Somebody who receives webhooks: a server that keeps what came and answers as it is told.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Request, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::App;

const BOUND: Duration = Duration::from_secs(20);

/// A request that came.
#[derive(Debug, Clone)]
pub struct Received {
    head: String,
    pub body: String,
}

impl Received {
    /// A header, by its lower-case name.
    pub fn header(&self, name: &str) -> &str {
        let line = self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        });
        line.unwrap_or_else(|| panic!("no {name} in {}", self.head))
    }

    pub fn id(&self) -> &str {
        self.header("webhook-id")
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }

    /// The order that the event is about.
    pub fn order(&self) -> String {
        self.json()["data"]["id"].as_str().expect("an order's id").to_owned()
    }

    /// Whether a signature was made with this secret, by an implementation that is not the service's.
    pub fn is_signed_with(&self, secret: &str) -> bool {
        let bytes = base64(secret.strip_prefix("whsec_").expect("a secret"));
        let timestamp = self.header("webhook-timestamp").parse().expect("seconds");
        let expected = sandbox_gateway::sign(&bytes, self.id(), timestamp, &self.body);
        self.header("webhook-signature").split(' ').any(|given| given == expected)
    }
}

/// How one request is answered.
#[derive(Debug, Clone)]
pub enum Answer {
    Status(u16),
    Redirect(String),
    /// None before [`Receiver::speak`]; then 204.
    Silence,
}

#[derive(Default)]
struct State {
    received: Vec<Received>,
    next: VecDeque<Answer>,
    always: Option<Answer>,
    spoken: watch::Sender<bool>,
}

/// The server; it ends with the test.
pub struct Receiver {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Receiver {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, Arc::clone(&shared)));
            }
        });
        Self { address, state }
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// How the next requests are answered, one after the other; 204 after those.
    pub fn answer_next(&self, answers: impl IntoIterator<Item = Answer>) {
        self.state.lock().expect("no panic holds it").next.extend(answers);
    }

    /// How every request is answered from now on.
    pub fn answer_always(&self, answer: Option<Answer>) {
        self.state.lock().expect("no panic holds it").always = answer;
    }

    /// Ends every silence.
    pub fn speak(&self) {
        self.state.lock().expect("no panic holds it").spoken.send_replace(true);
    }

    /// All that came so far.
    pub fn received(&self) -> Vec<Received> {
        self.state.lock().expect("no panic holds it").received.clone()
    }

    /// Waits until so many requests have come.
    pub async fn has_received(&self, count: usize) -> Vec<Received> {
        until("webhooks arrive", BOUND, async || Some(self.received()).filter(|all| all.len() >= count)).await
    }

    /// Registers this as an endpoint of the demo account; returns its id and secret.
    pub async fn register(&self, app: &App) -> (String, String) {
        self.register_for(app, &app.api_key).await
    }

    /// The same for the account of an API key.
    pub async fn register_for(&self, app: &App, api_key: &str) -> (String, String) {
        let register = Request::post("/v1/webhook-endpoints")
            .header("Authorization", format!("Bearer {api_key}"))
            .header("Idempotency-Key", self.url())
            .json(&json!({ "url": self.url() }));
        let made = app.send(&register).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let text = |name: &str| made.json()[name].as_str().expect("a text").to_owned();
        (text("id"), text("secret"))
    }
}

async fn serve(mut socket: TcpStream, state: Arc<Mutex<State>>) {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        while let Some((received, length)) = request(&bytes) {
            bytes.drain(..length);
            let answer = {
                let mut state = state.lock().expect("no panic holds it");
                state.received.push(received);
                let next = state.next.pop_front();
                next.or_else(|| state.always.clone()).unwrap_or(Answer::Status(204))
            };
            let said = match answer {
                Answer::Status(status) => format!("HTTP/1.1 {status} Said\r\ncontent-length: 0\r\n\r\n"),
                Answer::Redirect(to) => {
                    format!("HTTP/1.1 307 There\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n")
                }
                Answer::Silence => {
                    let mut spoken = state.lock().expect("no panic holds it").spoken.subscribe();
                    let _ = spoken.wait_for(|spoken| *spoken).await;
                    "HTTP/1.1 204 Said\r\ncontent-length: 0\r\n\r\n".to_owned()
                }
            };
            if socket.write_all(said.as_bytes()).await.is_err() {
                return;
            }
        }
        match socket.read(&mut part).await {
            Ok(0) | Err(_) => return,
            Ok(read) => bytes.extend_from_slice(&part[..read]),
        }
    }
}

/// The first request, if it is whole, and its length.
fn request(bytes: &[u8]) -> Option<(Received, usize)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8(bytes[..end].to_vec()).expect("a text");
    let mut received = Received { head, body: String::new() };
    let length = end + received.header("content-length").parse::<usize>().expect("a length");
    received.body = String::from_utf8(bytes.get(end..length)?.to_vec()).expect("a text");
    Some((received, length))
}

/// Decodes base64, so that the check of a signature shares nothing with what made it.
fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut held, mut bytes) = (0_u32, 0, Vec::new());
    for digit in text.bytes().filter(|digit| *digit != b'=') {
        let value = DIGITS.iter().position(|known| *known == digit).expect("base64");
        bits = (bits << 6) | u32::try_from(value).expect("six bits");
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from((bits >> held) & 0xff).expect("a byte"));
        }
    }
    bytes
}
