//! Starts a server on a port and waits, bounded, until it answers: the same for every server.

use std::time::Duration;

use crate::command::tail;
use crate::home::Home;
use crate::poll::wait_for;
use crate::server::{Launch, Server, Signals};
use crate::{Error, Result, port};

const PORT_TRIES: u32 = 8;
const LOG_LINES: usize = 12;

pub(crate) struct Start<'a> {
    pub(crate) home: &'a Home,
    pub(crate) signals: Signals,
    /// `None` takes a free port.
    pub(crate) port: Option<u16>,
    pub(crate) bound: Duration,
}

/// What a server that is starting says: `None` not yet, an error never.
pub(crate) type Answer = Option<std::result::Result<(), String>>;

impl<'a> Start<'a> {
    /// `launch` makes the command for a port, `ask` asks the server with this process id on it.
    pub(crate) fn run(
        &self,
        launch: impl Fn(u16) -> Result<Launch<'a>>,
        ask: impl Fn(u32, u16) -> Answer,
    ) -> Result<(Server, u16)> {
        let mut tries = 1..PORT_TRIES;
        loop {
            let port = self.port.map_or_else(port::free, Ok)?;
            let offset = self.home.log_length();
            let mut server = Server::launch(&launch(port)?, self.signals)?;
            let answer = wait_for(self.bound, || {
                if server.has_ended() {
                    return Some(Err("it ended at once".to_owned()));
                }
                ask(server.pid(), port)
            });
            let reason = match answer {
                Some(Ok(())) => return Ok((server, port)),
                Some(Err(reason)) => reason,
                None => format!("not ready within {} s", self.bound.as_secs()),
            };
            let ended = server.has_ended();
            drop(server);
            let log = self.home.logged_since(offset);
            // Somebody took the port between our look and the server's bind: another one, or, where
            // the port is given, the same again when it is free.
            if ended && log.contains("Address already in use") && tries.next().is_some() {
                let _ = wait_for(Duration::from_millis(250), || port::is_free(port).then_some(()));
                continue;
            }
            let server = self.signals.server;
            let (log, tail) = (self.home.log_path.clone(), tail(&log, LOG_LINES));
            return Err(Error::NotStarted { server, reason, log, tail });
        }
    }
}
