//! One Redis connection: judges commands and pairs replies with them.
//!
//! It deliberately does not know sockets. Invariant: `waiting` holds the commands without an answer, oldest first.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::command::Command;
use super::resp;
use crate::proxy::{Log, Reply, Request, Rule, RuleBook, Session, Wire};

/// Redis's protocol, RESP2 and RESP3.
pub enum Redis {}

impl Wire for Redis {
    type Subject = Command;
    type Entry = Command;
    type Session = RedisSession;

    fn session(connection: u64, rules: Arc<RuleBook<Command>>, log: Arc<Log<Command>>) -> RedisSession {
        RedisSession { connection, rules, log, waiting: VecDeque::new() }
    }
}

pub struct RedisSession {
    connection: u64,
    rules: Arc<RuleBook<Command>>,
    log: Arc<Log<Command>>,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    number: u64,
    /// A rule on the reply.
    rule: Option<Rule>,
}

impl Session for RedisSession {
    fn next_request(&mut self, input: &mut Vec<u8>) -> io::Result<Option<Request>> {
        let Some((words, length)) = resp::command(input)? else { return Ok(None) };
        let bytes: Vec<u8> = input.drain(..length).collect();
        if words.is_empty() {
            // Redis ignores an empty command, without a reply.
            return Ok(Some(Request { bytes, rule: None }));
        }
        let mut rule = None;
        let number = self.log.push(|number| {
            let command = Command::new(number, self.connection, &words);
            rule = self.rules.judge(&command);
            command
        });
        let on_reply = rule.clone().filter(|rule| !rule.action().is_before());
        self.waiting.push_back(Waiting { number, rule: on_reply });
        Ok(Some(Request { bytes, rule }))
    }

    fn next_reply(&mut self, input: &mut Vec<u8>) -> io::Result<Option<Reply>> {
        let Some(length) = resp::reply(input)? else { return Ok(None) };
        let bytes: Vec<u8> = input.drain(..length).collect();
        let answered = if bytes.starts_with(b">") { None } else { self.waiting.pop_front() };
        let Some(Waiting { number, rule }) = answered else {
            return Ok(Some(Reply { bytes, gates: Vec::new(), completes: Vec::new() }));
        };
        self.log.update(number, |command| command.answered = true);
        let rule = rule.filter(|rule| {
            let executed = !bytes.starts_with(b"-NOSCRIPT");
            if !executed {
                self.rules.take_back(rule);
            }
            executed
        });
        Ok(Some(Reply {
            bytes,
            gates: rule.iter().cloned().collect(),
            completes: rule.into_iter().collect(),
        }))
    }
}

#[cfg(test)]
mod tests;
