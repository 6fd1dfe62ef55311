//! What a proxy still owes the client: replies, and the gates and due times that stand before them.
//!
//! It deliberately does not know where replies come from. Invariant: nothing overtakes; a reply leaves only after
//! everything before it has left, and a shut gate holds all that follows.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::rule::{Action, Rule};

enum Item {
    Bytes { due: Instant, bytes: Vec<u8> },
    Gate(Rule),
}

#[derive(Default)]
pub(crate) struct Outbox(VecDeque<Item>);

/// Why nothing leaves at the moment.
pub(crate) enum Blocked {
    Empty,
    Until(Instant),
    Behind(Rule),
    /// The proxy's door is shut in the middle of the connection.
    ByDoor,
}

impl Outbox {
    pub(crate) fn push(&mut self, bytes: Vec<u8>, due: Instant) {
        self.0.push_back(Item::Bytes { due, bytes });
    }

    pub(crate) fn gate(&mut self, rule: Rule) {
        self.0.push_back(Item::Gate(rule));
    }

    /// Moves what may leave to `out`, and says what stands in the way of the rest.
    pub(crate) fn leave(&mut self, out: &mut Vec<u8>, now: Instant) -> Blocked {
        loop {
            match self.0.front() {
                None => return Blocked::Empty,
                Some(Item::Bytes { due, .. }) if *due > now => return Blocked::Until(*due),
                Some(Item::Gate(rule)) if !opens(rule) => return Blocked::Behind(rule.clone()),
                Some(Item::Bytes { .. } | Item::Gate(_)) => {}
            }
            if let Some(Item::Bytes { bytes, .. }) = self.0.pop_front() {
                out.extend_from_slice(&bytes);
            }
        }
    }
}

/// Only a hold can be released: a swallowed or dropped answer stays away, whatever becomes of its rule.
fn opens(rule: &Rule) -> bool {
    rule.action() == Action::HoldReply && rule.is_released()
}
