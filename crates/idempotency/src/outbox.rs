//! Events: written in the transaction that makes them true, delivered later.
//!
//! Knows the `events` table and nothing of delivery. Invariant: an event is there if and only if the work that emitted it
//! was committed.

use uuid::Uuid;

use crate::database::Param;
use crate::key::AccountId;

pub(crate) const INSERT_SQL: &str = include_str!("ledger/events.sql");

/// Something that happened: a type such as `order.created`, and its data as JSON text.
#[derive(Debug)]
pub struct Event {
    pub(crate) id: Uuid,
    pub(crate) kind: &'static str,
    pub(crate) data: String,
}

/// Events as the columns of one INSERT.
pub(crate) struct Columns<'a> {
    account: i64,
    ids: Vec<Uuid>,
    kinds: Vec<&'a str>,
    data: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    pub(crate) fn of(account: AccountId, events: &'a [Event]) -> Self {
        Self {
            account: account.0,
            ids: events.iter().map(|event| event.id).collect(),
            kinds: events.iter().map(|event| event.kind).collect(),
            data: events.iter().map(|event| event.data.as_str()).collect(),
        }
    }

    pub(crate) fn params(&self) -> [&dyn Param; 4] {
        [&self.account, &self.ids, &self.kinds, &self.data]
    }
}
