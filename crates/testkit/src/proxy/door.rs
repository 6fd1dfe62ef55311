//! The door of a proxy: how connections are met.
//!
//! It deliberately does not know what flows through a connection.
//!
//! Invariant: the port belongs to the proxy for all its life. A closed door keeps it bound without listening, so
//! that neither another process nor a client's own source port can take it meanwhile.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::pump::{End, Pump, Session};
use super::rule::Rule;
use super::switches::{Open, Orders, Switches};
use crate::wait::{BOUND, until};

/// How new connections are met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Open,
    /// Nobody listens: the client's `connect` is refused.
    Closed,
    /// The connection is accepted and reset at once.
    Reset,
    /// Connections, open ones too, are read from, and nothing goes through in either direction. What was read
    /// goes on when the door opens, unless its client has left: a partition that heals.
    BlackHole,
}

/// Accepts for as long as the proxy lives.
pub(crate) async fn attend<S: Session>(
    listener: TcpListener,
    server: SocketAddr,
    switches: Arc<Switches>,
    session: impl Fn(u64) -> S,
) {
    let mut orders = switches.orders();
    let mut connections = JoinSet::new();
    let mut port = Port::Listening(listener);
    loop {
        let door = orders.borrow_and_update().door;
        port = match port.turn(door).await {
            Ok(port) => port,
            Err(error) => panic!("the proxy has lost its port: {error}"),
        };
        switches.door_stands(door);
        tokio::select! {
            changed = orders.changed() => if changed.is_err() { return },
            client = port.accept() => match (client, door) {
                (Ok(client), Door::Open | Door::BlackHole) => {
                    let open = Open::new(switches.clone());
                    let session = session(open.number());
                    connections.spawn(serve(client, server, open, session, orders.clone()));
                }
                (Ok(client), Door::Reset | Door::Closed) => reset(client),
                (Err(error), _) => panic!("the proxy cannot accept: {error}"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve<S: Session>(
    client: TcpStream,
    server: SocketAddr,
    mut open: Open,
    session: S,
    orders: watch::Receiver<Orders>,
) {
    let Ok(server) = TcpStream::connect(server).await else { return reset(client) };
    // Small messages must not wait for acknowledgements: the proxy is to add no latency of its own.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let mut pump = Pump::new(client, server, session, orders, open.number());
    if let End::Cut(rules) = pump.run(&mut open).await {
        let (client, server) = pump.part();
        reset(client);
        drop(open);
        rules.iter().for_each(Rule::announce);
        server.drain().await;
    }
}

fn reset(client: TcpStream) {
    // With a zero linger time closing sends RST. It fails only on a socket that is already gone.
    let _ = client.set_zero_linger();
    drop(client);
}

enum Port {
    Listening(TcpListener),
    /// Bound, not listening: a connection is refused and the port stays ours.
    Reserved(TcpSocket),
}

impl Port {
    async fn turn(self, door: Door) -> io::Result<Port> {
        match (self, door) {
            (Port::Listening(listener), Door::Closed) => {
                let address = listener.local_addr()?;
                drop(listener);
                // The kernel may take a moment to let go of the port.
                let reserved = until("the port to be reserved", BOUND, async || reserve(address).ok()).await;
                Ok(Port::Reserved(reserved))
            }
            (Port::Reserved(socket), Door::Open | Door::Reset | Door::BlackHole) => {
                Ok(Port::Listening(socket.listen(1024)?))
            }
            (port @ (Port::Listening(_) | Port::Reserved(_)), _) => Ok(port),
        }
    }

    async fn accept(&self) -> io::Result<TcpStream> {
        match self {
            Port::Listening(listener) => Ok(listener.accept().await?.0),
            Port::Reserved(_) => std::future::pending().await,
        }
    }
}

fn reserve(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
