//! One PostgreSQL connection: groups messages into flights, judges statements, pairs answers with Syncs.
//!
//! It deliberately does not know sockets.
//!
//! Invariants: `expected` holds the Syncs without an answer, oldest first, each with the rules that wait for it;
//! a flight is open exactly while something of it is unanswered or unsynced.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use super::flight::{Flight, Statement, Step};
use super::message::{self, Frontend, Opening};
use crate::proxy::{Log, Reply, Request, Rule, RuleBook, Session, Wire};

/// PostgreSQL's protocol 3, without TLS.
pub enum Postgres {}

impl Wire for Postgres {
    type Subject = Statement;
    type Entry = Flight;
    type Session = PgSession;

    fn session(connection: u64, rules: Arc<RuleBook<Statement>>, log: Arc<Log<Flight>>) -> PgSession {
        PgSession {
            connection,
            rules,
            log,
            phase: Phase::Opening,
            statements: HashMap::new(),
            portals: HashMap::new(),
            flight: None,
            expected: VecDeque::new(),
            unsynced: None,
            gates: Vec::new(),
            is_sending: false,
        }
    }
}

#[derive(PartialEq, Eq)]
enum Phase {
    /// The client's next packet has no type byte.
    Opening,
    /// The server's next byte stands alone: its answer to a request for encryption.
    Encryption,
    Typed,
}

pub struct PgSession {
    connection: u64,
    rules: Arc<RuleBook<Statement>>,
    log: Arc<Log<Flight>>,
    phase: Phase,
    /// SQL by statement name, as this connection has prepared it.
    statements: HashMap<String, String>,
    /// SQL by portal name.
    portals: HashMap<String, String>,
    /// The open flight's number in the log.
    flight: Option<u64>,
    expected: VecDeque<Vec<Rule>>,
    /// Rules of the messages since the last Sync; `None` when there were no messages.
    unsynced: Option<Vec<Rule>>,
    /// Reply rules that have matched since the last reply.
    gates: Vec<Rule>,
    /// The beginning of another message of the client is here.
    is_sending: bool,
}

impl Session for PgSession {
    fn next_request(&mut self, input: &mut Vec<u8>) -> io::Result<Option<Request>> {
        if self.phase != Phase::Typed {
            return self.next_opening(input);
        }
        let length = message::typed(input)?;
        self.is_sending = length.is_none() && !input.is_empty();
        let Some(length) = length else { return Ok(None) };
        let bytes: Vec<u8> = input.drain(..length).collect();
        let message = message::frontend(&bytes)?;
        if message == Frontend::Aside {
            return Ok(Some(Request { bytes, rule: None }));
        }
        let ends = matches!(message, Frontend::Sync | Frontend::Query { .. });
        self.note(|flight| {
            flight.syncs += usize::from(ends);
            flight.answered = false;
        });
        let rule = self.understand(message);
        let waiting = self.unsynced.get_or_insert_default();
        if let Some(rule) = rule.clone().filter(|rule| !rule.action().is_before()) {
            waiting.push(rule.clone());
            self.gates.push(rule);
        }
        if ends {
            self.expected.extend(self.unsynced.take());
        }
        Ok(Some(Request { bytes, rule }))
    }

    fn next_reply(&mut self, input: &mut Vec<u8>) -> io::Result<Option<Reply>> {
        if self.phase == Phase::Encryption {
            return self.answer_to_encryption(input);
        }
        let Some(length) = message::typed(input)? else { return Ok(None) };
        let bytes: Vec<u8> = input.drain(..length).collect();
        let is_ready = bytes.first() == Some(&b'Z');
        let completes = if is_ready { self.expected.pop_front().unwrap_or_default() } else { Vec::new() };
        if is_ready && self.expected.is_empty() && self.unsynced.is_none() {
            self.note(|flight| flight.answered = true);
            // A message that had begun before the answer belongs to the same round trip.
            self.flight = self.flight.filter(|_| self.is_sending);
        }
        Ok(Some(Reply { bytes, gates: std::mem::take(&mut self.gates), completes }))
    }
}

impl PgSession {
    fn next_opening(&mut self, input: &mut Vec<u8>) -> io::Result<Option<Request>> {
        if self.phase == Phase::Encryption {
            // The client waits for the single byte as well.
            return Ok(None);
        }
        let Some((opening, length)) = message::opening(input)? else { return Ok(None) };
        match opening {
            Opening::Encryption => self.phase = Phase::Encryption,
            // Nothing follows, in either direction.
            Opening::Cancel => {}
            Opening::Startup => {
                self.phase = Phase::Typed;
                self.note(|flight| flight.startup = true);
                self.expected.push_back(Vec::new());
            }
        }
        Ok(Some(Request { bytes: input.drain(..length).collect(), rule: None }))
    }

    fn answer_to_encryption(&mut self, input: &mut Vec<u8>) -> io::Result<Option<Reply>> {
        if input.is_empty() {
            return Ok(None);
        }
        let bytes: Vec<u8> = input.drain(..1).collect();
        if bytes != b"N" {
            return Err(io::Error::other("the server wants encryption, which the proxy cannot read"));
        }
        self.phase = Phase::Opening;
        Ok(Some(Reply { bytes, gates: Vec::new(), completes: Vec::new() }))
    }

    /// Notes what the message is in the log and finds the rule that it meets.
    fn understand(&mut self, message: Frontend) -> Option<Rule> {
        match message {
            Frontend::Parse { name, sql } => {
                self.note(|flight| flight.prepared.push(sql.clone()));
                self.statements.insert(name, sql.clone());
                self.judge(Step::Prepare, sql)
            }
            Frontend::Bind { portal, name } => {
                let sql = self.statements.get(&name).cloned();
                let sql = sql.unwrap_or_else(|| format!("(unknown statement {name:?})"));
                self.portals.insert(portal, sql.clone());
                self.judge(Step::Execute, sql)
            }
            Frontend::Execute { portal } => {
                let sql = self.portals.get(&portal).cloned();
                let sql = sql.unwrap_or_else(|| format!("(unknown portal {portal:?})"));
                self.note(|flight| flight.statements.push(sql));
                None
            }
            Frontend::Query { sql } => {
                self.note(|flight| flight.statements.push(sql.clone()));
                self.judge(Step::Execute, sql)
            }
            Frontend::CloseStatement { name } => {
                self.note(|flight| flight.closed += 1);
                self.statements.remove(&name);
                None
            }
            Frontend::Sync | Frontend::Aside | Frontend::Other => None,
        }
    }

    fn judge(&self, step: Step, sql: String) -> Option<Rule> {
        self.rules.judge(&Statement { connection: self.connection, step, sql })
    }

    /// Changes the open flight; begins one if there is none.
    fn note(&mut self, change: impl FnOnce(&mut Flight)) {
        let connection = self.connection;
        let begin = |number| Flight { number, connection, ..Flight::default() };
        let number = *self.flight.get_or_insert_with(|| self.log.push(begin));
        self.log.update(number, change);
    }
}

#[cfg(test)]
mod tests;
