//! Which keys are being replayed again and again.
//!
//! Redis has one thread for all replicas, and a GET costs it less than half of a script. So what has been replayed by the acquire script
//! [`STORMED_FROM`] times is looked at first. A hint and nothing else: what Redis holds is compared with what is asked, and whatever is not
//! the answer goes through the script. Knows names, no values. Invariant: bounded, and never the reason for an answer.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Replays by the script after which a key counts as stormed.
pub(super) const STORMED_FROM: u64 = 16;
/// Keys that a worker keeps an eye on; of two that meet in a slot, the later one has it.
const SLOTS: usize = 8192;
/// The part of a slot that counts; the rest is of the name's hash.
const COUNT: u64 = 0xff;

/// One worker's.
#[derive(Debug)]
pub(super) struct Stormed {
    slots: Box<[AtomicU64]>,
    hasher: RandomState,
}

/// Where a name is counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    index: usize,
    mark: u64,
}

impl Stormed {
    pub(super) fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(), hasher: RandomState::new() }
    }

    pub(super) fn slot(&self, name: &str) -> Slot {
        let hash = self.hasher.hash_one(name);
        // From both ends: what does not choose the slot tells names in it apart.
        let index = usize::try_from(hash % SLOTS as u64).unwrap_or(0);
        Slot { index, mark: hash & !COUNT }
    }

    pub(super) fn has(&self, slot: Slot) -> bool {
        let seen = self.slots[slot.index].load(Ordering::Relaxed);
        seen & !COUNT == slot.mark && seen & COUNT >= STORMED_FROM
    }

    /// The script has replayed it. Two at once may count as one.
    pub(super) fn replayed(&self, slot: Slot) {
        let seen = self.slots[slot.index].load(Ordering::Relaxed);
        let count = if seen & !COUNT == slot.mark { (seen & COUNT).min(STORMED_FROM - 1) } else { 0 };
        self.slots[slot.index].store(slot.mark | (count + 1), Ordering::Relaxed);
    }

    /// It was not there, or something else was.
    pub(super) fn forget(&self, slot: Slot) {
        self.slots[slot.index].store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_stormed_once_it_was_replayed_often_and_until_it_is_missed() {
        let stormed = Stormed::new();
        let slot = stormed.slot("idem:v1:1:k");
        for _ in 0..STORMED_FROM {
            assert!(!stormed.has(slot));
            stormed.replayed(slot);
        }
        assert!(stormed.has(slot));
        stormed.replayed(slot);
        assert!(stormed.has(slot), "the count does not run over");
        stormed.forget(slot);
        assert!(!stormed.has(slot));
    }

    #[test]
    fn of_two_keys_in_a_slot_the_later_one_is_counted() {
        let stormed = Stormed::new();
        let first = stormed.slot("a");
        let second = Slot { mark: !first.mark & !COUNT, ..first };
        (0..STORMED_FROM).for_each(|_| stormed.replayed(first));
        stormed.replayed(second);
        assert!(!stormed.has(first) && !stormed.has(second));
    }
}
