//! The switches of a proxy, which act on all its connections, and the count of these.
//!
//! It deliberately does not know sockets: connections and the door watch it and act themselves.
//!
//! Invariant: a switch that can be awaited has taken effect when its call returns.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::door::Door;

/// What the connections of a proxy watch.
#[derive(Clone)]
pub(crate) struct Orders {
    pub(crate) door: Door,
    pub(crate) delay: Duration,
    /// Connections with a lower number are to be cut.
    cut_below: u64,
}

impl Orders {
    pub(crate) fn cuts(&self, connection: u64) -> bool {
        connection < self.cut_below
    }

    pub(crate) fn lets_through(&self) -> bool {
        self.door != Door::BlackHole
    }
}

#[derive(Default)]
struct Connections {
    accepted: u64,
    open: BTreeSet<u64>,
}

pub(crate) struct Switches {
    orders: watch::Sender<Orders>,
    /// The door as the accepting task has last set it up.
    standing: watch::Sender<Door>,
    connections: watch::Sender<Connections>,
}

impl Switches {
    pub(crate) fn new() -> Switches {
        let orders = Orders { door: Door::Open, delay: Duration::ZERO, cut_below: 0 };
        Switches {
            orders: watch::Sender::new(orders),
            standing: watch::Sender::new(Door::Open),
            connections: watch::Sender::default(),
        }
    }

    pub(crate) fn orders(&self) -> watch::Receiver<Orders> {
        self.orders.subscribe()
    }

    /// Returns once the accepting task has followed.
    pub(crate) async fn set_door(&self, door: Door) {
        self.orders.send_modify(|orders| orders.door = door);
        let _ = self.standing.subscribe().wait_for(|standing| *standing == door).await;
    }

    pub(crate) fn door_stands(&self, door: Door) {
        self.standing.send_replace(door);
    }

    pub(crate) async fn cut_all(&self) {
        let (accepted, open) = {
            let connections = self.connections.borrow();
            (connections.accepted, connections.open.clone())
        };
        self.orders.send_modify(|orders| orders.cut_below = accepted);
        let _ = self.connections.subscribe().wait_for(|now| now.open.is_disjoint(&open)).await;
    }

    pub(crate) fn set_delay(&self, delay: Duration) {
        self.orders.send_modify(|orders| orders.delay = delay);
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.connections.borrow().open.len()
    }

    pub(crate) fn accepted(&self) -> u64 {
        self.connections.borrow().accepted
    }
}

/// A connection that counts as open.
pub(crate) struct Open {
    number: u64,
    switches: Arc<Switches>,
}

impl Open {
    pub(crate) fn new(switches: Arc<Switches>) -> Open {
        let mut number = 0;
        switches.connections.send_modify(|connections| {
            number = connections.accepted;
            connections.accepted += 1;
            connections.open.insert(number);
        });
        Open { number, switches }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The client has left; the server may still be busy with what it sent.
    pub(crate) fn client_left(&mut self) {
        self.switches.connections.send_if_modified(|connections| connections.open.remove(&self.number));
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.client_left();
    }
}
