//! One connection through a proxy: moves the bytes, and carries out what the session's rules say.
//!
//! It deliberately does not know the protocol: a [`Session`] cuts the bytes into messages and names the rules.
//!
//! Invariants: bytes move only as whole messages, in order, in both directions. Whatever the client had sent when
//! a reply came in is judged before that reply is passed on, so that the log can tell "sent after the answer"
//! from "sent before it". One task does everything, so a message is held, cut or passed at exactly one point.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::outbox::{Blocked, Outbox};
use super::rule::{Action, Rule};
use super::side::Side;
use super::switches::{Open, Orders};

/// One protocol on one connection. Reads messages off the front of `input`; `None` asks for more bytes, an error
/// is a client or server that does not speak the protocol.
pub trait Session: Send + 'static {
    fn next_request(&mut self, input: &mut Vec<u8>) -> io::Result<Option<Request>>;

    fn next_reply(&mut self, input: &mut Vec<u8>) -> io::Result<Option<Reply>>;
}

/// A whole message of the client.
pub struct Request {
    pub(crate) bytes: Vec<u8>,
    pub(crate) rule: Option<Rule>,
}

/// A whole message of the server.
pub struct Reply {
    pub(crate) bytes: Vec<u8>,
    /// Reply rules that take effect before this message.
    pub(crate) gates: Vec<Rule>,
    /// Reply rules whose answer is complete with this message.
    pub(crate) completes: Vec<Rule>,
}

pub(crate) enum End {
    Closed,
    /// To be reset; the rules are announced once it has been.
    Cut(Vec<Rule>),
}

pub(crate) struct Pump<S> {
    number: u64,
    session: S,
    orders: watch::Receiver<Orders>,
    client: Side,
    server: Side,
    /// The message that a rule holds back; what follows it waits unparsed.
    held: Option<Request>,
    outbox: Outbox,
}

impl<S: Session> Pump<S> {
    pub(crate) fn new(
        client: TcpStream,
        server: TcpStream,
        session: S,
        orders: watch::Receiver<Orders>,
        number: u64,
    ) -> Pump<S> {
        let (client, server) = (Side::new(client), Side::new(server));
        Pump { number, session, orders, client, server, held: None, outbox: Outbox::default() }
    }

    /// Gives up the client, to be reset, and what remains to be done for the server.
    pub(crate) fn part(self) -> (TcpStream, Side) {
        (self.client.stream, self.server)
    }

    pub(crate) async fn run(&mut self, open: &mut Open) -> End {
        let end = self.run_to_end(open).await;
        // Only what a rule named is lost by a cut: what had passed it before is still delivered, both ways.
        self.outbox.leave(&mut self.client.output, Instant::now());
        self.client.write();
        end
    }

    async fn run_to_end(&mut self, open: &mut Open) -> End {
        loop {
            // The bytes first and the orders after them: what was sent after a switch was set is met by it.
            self.server.read();
            self.client.read();
            let orders = self.orders.borrow_and_update().clone();
            if orders.cuts(self.number) {
                return End::Cut(Vec::new());
            }
            if !self.client.is_read {
                open.client_left();
            }
            let passed =
                if orders.lets_through() { self.pass(orders.delay) } else { Ok(self.pass_nothing()) };
            let blocked = match passed {
                Ok(Passed::Blocked(blocked)) => blocked,
                Ok(Passed::Cut(rules)) => return End::Cut(rules),
                Err(error) => {
                    eprintln!("proxy: connection {} is cut: {error}", self.number);
                    return End::Cut(Vec::new());
                }
            };
            self.server.write();
            self.client.write();
            if let Some(end) = self.hang_up(&blocked).await {
                return end;
            }
            self.wait(blocked).await;
        }
    }

    fn pass(&mut self, delay: Duration) -> io::Result<Passed> {
        if let Some(rules) = self.pass_requests()? {
            return Ok(Passed::Cut(rules));
        }
        if let Some(rules) = self.pass_replies(delay)? {
            return Ok(Passed::Cut(rules));
        }
        Ok(Passed::Blocked(self.outbox.leave(&mut self.client.output, Instant::now())))
    }

    fn pass_nothing(&mut self) -> Passed {
        if !self.client.is_read {
            self.held = None;
            self.client.input.clear();
        }
        Passed::Blocked(Blocked::ByDoor)
    }

    fn pass_requests(&mut self) -> io::Result<Option<Vec<Rule>>> {
        if self.held.is_some() && !self.client.is_read {
            // The client left first: what was held, and all behind it, never reaches the server.
            self.held = None;
            self.client.input.clear();
        }
        loop {
            if let Some(request) = self.held.take_if(|held| held.rule.as_ref().is_none_or(Rule::is_released))
            {
                self.server.output.extend_from_slice(&request.bytes);
            }
            if self.held.is_some() {
                return Ok(None);
            }
            let Some(request) = self.session.next_request(&mut self.client.input)? else { return Ok(None) };
            match &request.rule {
                Some(rule) if rule.action() == Action::CutBefore => return Ok(Some(vec![rule.clone()])),
                Some(rule) if rule.action() == Action::HoldBefore => {
                    rule.announce();
                    self.held = Some(request);
                }
                Some(_) | None => self.server.output.extend_from_slice(&request.bytes),
            }
        }
    }

    fn pass_replies(&mut self, delay: Duration) -> io::Result<Option<Vec<Rule>>> {
        while let Some(reply) = self.session.next_reply(&mut self.server.input)? {
            reply.gates.into_iter().for_each(|rule| self.outbox.gate(rule));
            self.outbox.push(reply.bytes, Instant::now() + delay);
            if reply.completes.iter().any(|rule| rule.action() == Action::DropReplyAndCut) {
                return Ok(Some(reply.completes));
            }
            reply.completes.iter().for_each(Rule::announce);
        }
        Ok(None)
    }

    /// Passes the end of one side on to the other, once all that came before it has been.
    async fn hang_up(&mut self, blocked: &Blocked) -> Option<End> {
        if !self.client.is_read && self.server.output.is_empty() {
            self.server.finish().await;
        }
        if self.server.is_read {
            return None;
        }
        let over = match blocked {
            // The answer will never be complete: the server has gone before it.
            Blocked::Behind(rule) if rule.action() == Action::DropReplyAndCut => {
                return Some(End::Cut(Vec::new()));
            }
            Blocked::Empty => self.client.output.is_empty(),
            Blocked::Behind(_) | Blocked::ByDoor => !self.client.is_read,
            Blocked::Until(_) => false,
        };
        (over || !self.client.is_written).then_some(End::Closed)
    }

    async fn wait(&mut self, blocked: Blocked) {
        let held = self.held.as_ref().and_then(|held| held.rule.clone());
        tokio::select! {
            () = self.client.ready() => {}
            () = self.server.ready() => {}
            () = released(held) => {}
            () = leaves(blocked) => {}
            changed = self.orders.changed() => if changed.is_err() {
                // The proxy is being dropped, and this task with it.
                std::future::pending::<()>().await;
            },
        }
    }
}

enum Passed {
    Blocked(Blocked),
    Cut(Vec<Rule>),
}

async fn released(rule: Option<Rule>) {
    match rule {
        Some(rule) => rule.released().await,
        None => std::future::pending().await,
    }
}

async fn leaves(blocked: Blocked) {
    match blocked {
        Blocked::Until(due) => sleep_until(due).await,
        Blocked::Behind(rule) if rule.action() == Action::HoldReply => rule.released().await,
        Blocked::Behind(_) | Blocked::ByDoor | Blocked::Empty => std::future::pending().await,
    }
}
