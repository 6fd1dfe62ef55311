//! The sandbox's own events: signed, repeated until taken, with one id.

use crate::support::Gateway;
use base64::Engine as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const SECRET: &[u8] = b"a secret of the tests";

struct Post {
    head: String,
    body: String,
}

impl Post {
    fn header(&self, name: &str) -> &str {
        let line = self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("no {name} in {}", self.head))
    }
}

/// Takes one request and answers it.
async fn take(listener: &TcpListener, status: &str) -> Post {
    let (mut socket, _) = listener.accept().await.expect("a connection");
    let mut text = String::new();
    loop {
        let mut part = [0; 4096];
        let read = socket.read(&mut part).await.expect("a part");
        text.push_str(std::str::from_utf8(&part[..read]).expect("a text"));
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let post = Post { head: head.to_lowercase(), body: body.to_owned() };
            if post.body.len() >= post.header("content-length").parse::<usize>().expect("a length") {
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                socket.write_all(answer.as_bytes()).await.expect("answered");
                return Post { head: head.to_owned(), body: body.to_owned() };
            }
        }
        assert!(read > 0, "half a request: {text}");
    }
}

#[tokio::test]
async fn events_are_signed_and_repeated_until_taken() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/v1/gateway-events", listener.local_addr().expect("an address"));
    let gateway = Gateway::start_with(|settings| {
        settings.webhook_url = Some(url);
        let secret = base64::engine::general_purpose::STANDARD.encode(SECRET);
        settings.webhook_secret = Some(format!("whsec_{secret}"));
    });

    let intent = gateway.charged("k1", 500).await;
    let (refused, taken) = (take(&listener, "503 Busy").await, take(&listener, "204 Taken").await);
    assert_eq!(refused.header("webhook-id"), taken.header("webhook-id"));
    assert_eq!(refused.body, taken.body);
    let (id, timestamp) = (taken.header("webhook-id"), taken.header("webhook-timestamp"));
    let signature = sandbox_gateway::sign(SECRET, id, timestamp.parse().expect("seconds"), &taken.body);
    assert_eq!(taken.header("webhook-signature"), signature);
    let event: serde_json::Value = serde_json::from_str(&taken.body).expect("JSON");
    assert_eq!((&event["id"], &event["type"]), (&id.into(), &"payment_intent.succeeded".into()));
    assert_eq!(event["data"]["object"]["id"], intent);
    assert_eq!(event["data"]["object"]["metadata"]["operation"], "k1");

    // A replay is no event; the next one is the refund's.
    gateway.charge("k1", 500, "tok_visa").await;
    gateway.refund("r1", &intent, 100).await;
    let event: serde_json::Value =
        serde_json::from_str(&take(&listener, "204 Taken").await.body).expect("JSON");
    assert_eq!((&event["type"], &event["data"]["object"]["amount"]), (&"refund.created".into(), &100.into()));
}
