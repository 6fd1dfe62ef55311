//! What the two proxies share: a listener in front of a server, rules, switches and a log.
//!
//! ```text
//! client ── door (accepts, refuses) ── pump (bytes, holds, cuts) ── server
//!                                        │ asks
//!                                   session (one protocol) ── rules, log
//! ```
//!
//! It deliberately does not know a protocol: a [`Wire`] cuts the bytes into messages and judges them.
//!
//! Invariant: without a rule and with the door open, both sides see the bytes that the other one sent, in order.
//! A proxy answers nothing itself.

mod door;
mod log;
mod outbox;
mod pump;
mod rule;
mod side;
mod switches;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

pub use door::Door;
pub use log::Log;
pub use rule::{Action, Matcher, Rule, RuleBook};

use crate::wait::{BOUND, within};
pub use pump::{Reply, Request, Session};
pub(crate) use rule::Repeat;
use switches::Switches;

/// One protocol, as the shared parts see it.
pub trait Wire: 'static {
    /// What rules judge.
    type Subject: Send + 'static;
    /// What the log keeps.
    type Entry: Clone + Send + Sync + 'static;
    type Session: Session;

    fn session(
        connection: u64,
        rules: Arc<RuleBook<Self::Subject>>,
        log: Arc<Log<Self::Entry>>,
    ) -> Self::Session;
}

/// A proxy in front of one server. It lives until it is dropped, and its connections with it.
pub struct Proxy<W: Wire> {
    address: SocketAddr,
    rules: Arc<RuleBook<W::Subject>>,
    log: Arc<Log<W::Entry>>,
    switches: Arc<Switches>,
    task: JoinHandle<()>,
}

impl<W: Wire> Proxy<W> {
    /// Listens on a free port of 127.0.0.1 and forwards to `server`.
    pub async fn start(server: SocketAddr) -> io::Result<Proxy<W>> {
        let rules = Arc::new(RuleBook::new());
        let log = Arc::new(Log::new());
        let switches = Arc::new(Switches::new());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let session = {
            let (rules, log) = (rules.clone(), log.clone());
            move |connection| W::session(connection, rules.clone(), log.clone())
        };
        let task = tokio::spawn(door::attend(listener, server, switches.clone(), session));
        Ok(Proxy { address, rules, log, switches, task })
    }

    /// Where the client connects to.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Applies `action` to the first match, or to the `nth` if the matcher says so.
    pub fn once(&self, matcher: Matcher<W::Subject>, action: Action) -> Rule {
        self.rules.add(matcher, action, Repeat::Once)
    }

    /// Applies `action` to every match, from the `nth` on.
    pub fn always(&self, matcher: Matcher<W::Subject>, action: Action) -> Rule {
        self.rules.add(matcher, action, Repeat::Always)
    }

    /// Releases and forgets every rule.
    pub fn clear_rules(&self) {
        self.rules.release_all();
    }

    pub fn clear_log(&self) {
        self.log.clear();
    }

    /// The log as it stands.
    pub fn log(&self) -> Vec<W::Entry> {
        self.log.read()
    }

    /// Waits until the log is as wanted, and returns it. Panics after [`BOUND`].
    #[track_caller]
    pub fn log_until(
        &self,
        what: &str,
        enough: impl FnMut(&[W::Entry]) -> bool,
    ) -> impl Future<Output = Vec<W::Entry>> {
        self.log.until(what, BOUND, enough)
    }

    /// How new connections are met, from the return of this call on.
    #[track_caller]
    pub fn door(&self, door: Door) -> impl Future<Output = ()> {
        within("the proxy's door to change", BOUND, self.switches.set_door(door))
    }

    /// The server is gone: open connections are reset and new ones refused.
    pub async fn down(&self) {
        self.door(Door::Closed).await;
        self.cut_all().await;
    }

    /// The server is back. Rules stay.
    pub async fn up(&self) {
        self.door(Door::Open).await;
    }

    /// Resets every connection that is open now, and returns when they are gone.
    #[track_caller]
    pub fn cut_all(&self) -> impl Future<Output = ()> {
        within("the proxy's connections to be cut", BOUND, self.switches.cut_all())
    }

    /// Every reply takes this much longer. For measuring; zero, the default, is no delay.
    pub fn delay(&self, delay: Duration) {
        self.switches.set_delay(delay);
    }

    /// Connections whose client has not left.
    pub fn open_connections(&self) -> usize {
        self.switches.open_connections()
    }

    /// Connections ever accepted, refused ones not counted.
    pub fn accepted(&self) -> u64 {
        self.switches.accepted()
    }
}

impl<W: Wire> Drop for Proxy<W> {
    fn drop(&mut self) {
        // The accepting task owns the connections' tasks.
        self.task.abort();
    }
}
