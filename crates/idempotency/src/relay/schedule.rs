//! When a delivery is tried again, and when it is given up: pure.
//!
//! Knows neither clock nor chance: it gives longest pauses, and the statement that settles draws below them (full jitter).
//! Invariant: a delivery that is not taken is tried [`TRIES_MAX`] times, no more.

use std::time::Duration;

use super::Outcome;

/// Tries of one delivery, the first included. With a base of 2 s the pauses between them sum up to a day, on average.
pub const TRIES_MAX: u16 = 12;
/// For so many tries what is newer waits behind it; then it is set aside, and overtaken.
pub const TRIES_IN_ORDER: u16 = 4;
/// By how much the longest pause grows with each try.
const GROWTH: u32 = 3;

/// What follows from a try.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Delivered,
    /// The subscriber is left alone for up to so long; this delivery then comes first again.
    InOrder(Duration),
    /// This delivery waits for up to so long, and newer ones overtake it.
    Aside(Duration),
    Dead,
}

/// After try number `attempt` (from 1 on); `base` is the longest pause after the first.
pub(super) fn after(outcome: &Outcome, attempt: u16, base: Duration) -> Next {
    let longest = base.saturating_mul(GROWTH.saturating_pow(u32::from(attempt.saturating_sub(1))));
    match outcome {
        Outcome::Delivered => Next::Delivered,
        Outcome::Refused(_) => Next::Dead,
        Outcome::Failed(_) if attempt >= TRIES_MAX => Next::Dead,
        Outcome::Failed(_) if attempt < TRIES_IN_ORDER => Next::InOrder(longest),
        Outcome::Failed(_) => Next::Aside(longest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twelve_tries_take_about_a_day_and_the_first_ones_keep_the_order() {
        let base = Duration::from_secs(2);
        let failed = Outcome::Failed("500".to_owned());
        let mut pauses = Vec::new();
        for attempt in 1..TRIES_MAX {
            pauses.push(match after(&failed, attempt, base) {
                Next::InOrder(pause) if attempt < TRIES_IN_ORDER => pause,
                Next::Aside(pause) if attempt >= TRIES_IN_ORDER => pause,
                other => panic!("{attempt}: {other:?}"),
            });
        }
        assert_eq!(pauses[..4], [2, 6, 18, 54].map(Duration::from_secs));
        let expected: Duration = pauses.iter().map(|longest| *longest / 2).sum();
        assert_eq!(expected.as_secs() / 3600, 24, "full jitter halves them on average");
        for attempt in [TRIES_MAX, TRIES_MAX + 1, u16::MAX] {
            assert_eq!(after(&failed, attempt, base), Next::Dead);
        }
    }

    #[test]
    fn taken_is_taken_and_a_definite_no_is_not_repeated() {
        for attempt in [1, TRIES_MAX] {
            assert_eq!(after(&Outcome::Delivered, attempt, Duration::ZERO), Next::Delivered);
            assert_eq!(after(&Outcome::Refused("410".to_owned()), attempt, Duration::ZERO), Next::Dead);
        }
    }
}
