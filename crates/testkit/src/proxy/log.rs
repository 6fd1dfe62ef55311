//! What went over a proxy's wire, for tests to read and to await.
//!
//! It deliberately does not know what an entry means. Invariant: entries stand in the order in which they began,
//! numbers are never reused, and a change of an entry that has been cleared is no change.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;

use crate::wait::within;

pub struct Log<T>(watch::Sender<Entries<T>>);

struct Entries<T> {
    next: u64,
    list: Vec<(u64, T)>,
}

impl<T: Clone> Log<T> {
    pub(crate) fn new() -> Log<T> {
        Log(watch::Sender::new(Entries { next: 0, list: Vec::new() }))
    }

    pub(crate) fn push(&self, entry: impl FnOnce(u64) -> T) -> u64 {
        let mut number = 0;
        self.0.send_modify(|entries| {
            number = entries.next;
            entries.next += 1;
            entries.list.push((number, entry(number)));
        });
        number
    }

    pub(crate) fn update(&self, number: u64, change: impl FnOnce(&mut T)) {
        self.0.send_modify(|entries| {
            if let Ok(at) = entries.list.binary_search_by_key(&number, |(number, _)| *number) {
                change(&mut entries.list[at].1);
            }
        });
    }

    pub(crate) fn clear(&self) {
        self.0.send_modify(|entries| entries.list.clear());
    }

    pub(crate) fn read(&self) -> Vec<T> {
        self.0.borrow().read()
    }

    #[track_caller]
    pub(crate) fn until(
        &self,
        what: &str,
        bound: Duration,
        mut enough: impl FnMut(&[T]) -> bool,
    ) -> impl Future<Output = Vec<T>> {
        let mut log = self.0.subscribe();
        within(what, bound, async move {
            loop {
                let entries = log.borrow_and_update().read();
                if enough(&entries) || log.changed().await.is_err() {
                    return entries;
                }
            }
        })
    }
}

impl<T: Clone> Entries<T> {
    fn read(&self) -> Vec<T> {
        self.list.iter().map(|(_, entry)| entry.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::BOUND;

    #[tokio::test]
    async fn numbers_survive_a_clear_and_a_cleared_entry_does_not_come_back() {
        let log = Log::new();
        let first = log.push(|number| format!("entry {number}"));
        log.clear();
        let second = log.push(|number| format!("entry {number}"));
        log.update(first, |entry| entry.push_str(", answered"));
        log.update(second, |entry| entry.push_str(", answered"));
        assert_eq!(log.read(), ["entry 1, answered"]);
    }

    #[tokio::test]
    async fn a_waiter_sees_what_comes_later() {
        let log = Log::new();
        let waiter = log.until("two entries", BOUND, |entries| entries.len() == 2);
        log.push(|_| 'a');
        log.push(|_| 'b');
        assert_eq!(waiter.await, ['a', 'b']);
    }
}
