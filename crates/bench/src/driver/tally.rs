//! What a load saw: latencies, statuses, and the first answer that should not have come.
//!
//! Deliberately unknown: who asked and why. Invariant: a tally with an unexpected answer never becomes a number
//! ([`Tally::checked`]): a system that refuses is faster than one that works.

use std::collections::BTreeMap;
use std::time::Duration;

use super::histogram::Histogram;

/// Most characters of an unexpected answer that are shown.
const SHOWN: usize = 400;

/// The measured part of a load.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Of the expected answers.
    pub latencies: Histogram,
    /// How many of each status; 0 stands for no answer at all.
    pub statuses: BTreeMap<u16, u64>,
    /// How long was measured.
    pub window: Duration,
    unexpected: Option<String>,
}

impl Tally {
    /// Nothing yet, over so long a time.
    pub fn over(window: Duration) -> Self {
        Self { window, ..Self::default() }
    }

    /// An answer that was wanted.
    pub fn expected(&mut self, status: u16, time: Duration) {
        *self.statuses.entry(status).or_default() += 1;
        self.latencies.record(time);
    }

    /// An answer that was not, or none (status 0, and why in place of the body).
    pub fn unexpected(&mut self, status: u16, body: &[u8]) {
        *self.statuses.entry(status).or_default() += 1;
        self.unexpected.get_or_insert_with(|| {
            let body: String = String::from_utf8_lossy(body).chars().take(SHOWN).collect();
            if status == 0 { format!("no answer: {body}") } else { format!("{status}: {body}") }
        });
    }

    pub fn merge(&mut self, other: &Tally) {
        self.latencies.merge(&other.latencies);
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.window = self.window.max(other.window);
        if self.unexpected.is_none() {
            self.unexpected.clone_from(&other.unexpected);
        }
    }

    /// The tally, if every answer was the expected one.
    ///
    /// # Errors
    /// Names the first answer that was not, and how many of each status came.
    pub fn checked(self, whose: &str) -> anyhow::Result<Self> {
        match &self.unexpected {
            None => Ok(self),
            Some(first) => anyhow::bail!(
                "{whose} gave an answer that makes its measurement invalid: {first}\nstatuses: {:?}",
                self.statuses
            ),
        }
    }

    /// The tally, if there was an answer at all: nothing can be said of none.
    ///
    /// # Errors
    /// Names who did not answer.
    pub fn not_empty(&self, whose: &str) -> anyhow::Result<&Self> {
        anyhow::ensure!(self.latencies.len() > 0, "{whose} answered nothing within {:?}", self.window);
        Ok(self)
    }

    /// Expected answers per second.
    pub fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.window.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_unexpected_answer_makes_it_invalid_and_is_named() {
        let mut tally = Tally::over(Duration::from_secs(2));
        tally.expected(201, Duration::from_millis(1));
        tally.expected(201, Duration::from_millis(3));
        assert!((tally.clone().checked("it").unwrap().per_second() - 1.0).abs() < 1e-9);
        let mut other = Tally::default();
        other.unexpected(503, b"out of connections");
        other.unexpected(500, b"later");
        tally.merge(&other);
        let fault = tally.checked("naive-hybrid").unwrap_err().to_string();
        assert!(fault.starts_with("naive-hybrid") && fault.contains("503: out of connections"), "{fault}");
        assert!(fault.contains("{201: 2, 500: 1, 503: 1}"), "{fault}");
    }

    #[test]
    fn nothing_at_all_is_invalid_where_it_is_counted() {
        assert!(Tally::default().checked("it").unwrap().not_empty("it").is_err());
    }
}
