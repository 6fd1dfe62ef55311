//! The client against a socket that the test serves by hand.

use tokio::net::TcpListener;

use super::*;
use crate::http::send;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

async fn pair() -> (Connection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connection = Connection::open(listener.local_addr().unwrap()).await.unwrap();
    (connection, listener.accept().await.unwrap().0)
}

#[tokio::test]
async fn sends_in_parts_skips_continue_and_keeps_the_connection() {
    let (mut client, mut server) = pair().await;
    let request = Request::post("/").header("Expect", "100-continue").body("hello");
    client.send_part(&request, 2).await.unwrap();
    let mut head = vec![0; request.head_bytes().len() + 2];
    server.read_exact(&mut head).await.unwrap();
    assert!(head.ends_with(b"\r\n\r\nhe"));
    server.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
    assert_eq!(client.read_any().await.unwrap().status, 100);
    client.send_rest(&request, 2).await.unwrap();
    let mut rest = [0; 3];
    server.read_exact(&mut rest).await.unwrap();
    assert_eq!(&rest, b"llo");
    server.write_all(&[b"HTTP/1.1 100 Continue\r\n\r\n", OK, OK].concat()).await.unwrap();
    assert_eq!(client.read().await.unwrap().text(), "ok");
    client.send(&Request::get("/")).await.unwrap();
    assert_eq!(client.read().await.unwrap().status, 200);
}

#[tokio::test]
async fn pipelines_in_one_write_and_knows_which_was_a_head() {
    let (mut client, mut server) = pair().await;
    client.pipeline(&[Request::new("HEAD", "/a"), Request::get("/b")]).await.unwrap();
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
    server.write_all(&[&head[..], OK].concat()).await.unwrap();
    assert_eq!(client.read().await.unwrap().body, b"");
    assert_eq!(client.read().await.unwrap().body, b"ok");
}

#[tokio::test]
async fn a_reset_is_a_reset_and_a_close_is_not() {
    let (client, mut server) = pair().await;
    client.reset();
    let error = server.read(&mut [0; 1]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);

    let (client, mut server) = pair().await;
    client.close();
    assert_eq!(server.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test]
async fn an_incomplete_response_is_an_error_and_so_is_none() {
    let (mut client, mut server) = pair().await;
    server.write_all(&OK[..OK.len() - 1]).await.unwrap();
    drop(server);
    assert_eq!(client.read().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert!(client.closed().await.is_err());

    let (client, _server) = pair().await;
    let mut client = client.bound(Duration::from_millis(1));
    assert_eq!(client.read().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn one_call_opens_asks_and_hangs_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut server, _) = listener.accept().await.unwrap();
        let wanted = Request::get("/x").to_bytes();
        let mut request = vec![0; wanted.len()];
        server.read_exact(&mut request).await.unwrap();
        assert_eq!(request, wanted);
        server.write_all(b"HTTP/1.0 200 OK\r\n\r\nuntil closed").await.unwrap();
    });
    assert_eq!(send(addr, &Request::get("/x")).await.unwrap().text(), "until closed");
    server.await.unwrap();
}

#[tokio::test]
async fn a_refusal_is_read_although_the_body_is_not() {
    let (client, mut server) = pair().await;
    let mut client = client.bound(crate::wait::BOUND);
    let large = Request::post("/").body(vec![b'x'; 64 << 20]);
    let refusal = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n";
    let (response, refused) = tokio::join!(client.exchange(&large), server.write_all(refusal));
    refused.unwrap();
    assert_eq!(response.unwrap().status, 413);
}
