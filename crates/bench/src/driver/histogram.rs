//! Latencies, counted in steps that grow with the value.
//!
//! Each doubling is cut into [`STEPS`] equal steps, so a value is known to less than one percent and recording it is a few
//! instructions without an allocation. Deliberately unknown: what was timed. Invariant: a quantile is never below the true
//! one by more than its step, and merging two histograms is the same as recording into one.

use std::time::Duration;

/// Steps in each doubling: 128 of them make each 0.8 % wide.
const STEPS: u64 = 1 << STEP_BITS;
const STEP_BITS: u32 = 7;

/// Durations in nanoseconds, 0.8 % exact.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: Duration,
}

impl Histogram {
    pub fn record(&mut self, time: Duration) {
        let slot = slot_of(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        if slot >= self.counts.len() {
            self.counts.resize(slot + 1, 0);
        }
        self.counts[slot] += 1;
        self.total += 1;
        self.max = self.max.max(time);
    }

    pub fn merge(&mut self, other: &Histogram) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// How many were recorded.
    pub fn len(&self) -> u64 {
        self.total
    }

    /// The slowest, exact.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The value that this part (0 to 1) of all values does not exceed; zero if there is none.
    pub fn quantile(&self, part: f64) -> Duration {
        let wanted = ((part * self.total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (slot, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(upper_edge(slot)).min(self.max);
            }
        }
        Duration::ZERO
    }
}

/// Values below [`STEPS`] have a slot each; above, the highest bits choose it.
fn slot_of(value: u64) -> usize {
    let doubling = (u64::BITS - value.leading_zeros()).saturating_sub(STEP_BITS + 1);
    let step = value >> doubling;
    usize::try_from(u64::from(doubling) * STEPS + step).expect("fewer than 64 × 128 slots")
}

/// The largest value of a slot.
fn upper_edge(slot: usize) -> u64 {
    let slot = slot as u64;
    let doubling = (slot / STEPS).saturating_sub(1);
    let step = slot - doubling * STEPS;
    ((step + 1) << doubling) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_slot_and_slots_are_narrow() {
        let large = (13..50).map(|bits| (1_u64 << bits) + bits);
        for value in (0..5_000).chain(large).chain([123_456_789, u64::MAX >> 20]) {
            let edge = upper_edge(slot_of(value));
            assert!(edge >= value, "{value} is above the edge {edge} of its slot");
            assert!((edge - value) as f64 <= value as f64 / 100.0, "{value} is told as {edge}");
        }
        for value in 1..5_000 {
            assert!(slot_of(value) - slot_of(value - 1) <= 1, "a gap before {value}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_values() {
        let mut histogram = Histogram::default();
        for micros in 1..=1000 {
            histogram.record(Duration::from_micros(micros));
        }
        for (part, exact) in [(0.0, 1), (0.5, 500), (0.99, 990), (1.0, 1000)] {
            let told = histogram.quantile(part).as_micros();
            assert!(told.abs_diff(exact) <= exact / 100 + 1, "{part}: {told} instead of {exact}");
        }
        assert_eq!((histogram.len(), histogram.max()), (1000, Duration::from_millis(1)));
        assert_eq!(Histogram::default().quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn merging_is_recording_into_one() {
        let (mut left, mut right, mut both) = <(Histogram, Histogram, Histogram)>::default();
        for micros in [3_u64, 9, 2_000, 40_000] {
            left.record(Duration::from_micros(micros));
            right.record(Duration::from_micros(micros * 7));
            both.record(Duration::from_micros(micros));
            both.record(Duration::from_micros(micros * 7));
        }
        left.merge(&right);
        assert_eq!((left.len(), left.max()), (both.len(), both.max()));
        for part in [0.1, 0.5, 0.9, 1.0] {
            assert_eq!(left.quantile(part), both.quantile(part));
        }
    }
}
