//! How long everything takes: the sizes of a whole run and of a quick one.
//!
//! Pure. A quick run asks every question of the table of measures, with fewer and shorter rounds and fewer stored keys, and
//! leaves out what the table does not name; it says so in its report.

use std::time::Duration;

use super::orders::Shape;
use crate::systems::System;

/// Everything that a run's length depends on.
#[derive(Debug, Clone)]
pub struct Plan {
    pub quick: bool,
    /// Interleaved phases about the systems.
    pub questions: Vec<Question>,
    /// Rounds and window of stored keys, replicas and bodies.
    pub growth: (usize, Duration),
    /// How many keys are stored, from few to many.
    pub stored_keys: Vec<u64>,
    /// Rounds of the storm (each a quiet and a stormy half), and how long a half lasts.
    pub storm: (usize, Duration),
}

/// One interleaved phase: everybody is asked for the same, in turn.
#[derive(Debug, Clone)]
pub struct Question {
    pub shape: Shape,
    /// New orders, or replays of orders made before.
    pub replays: bool,
    pub connections: usize,
    pub systems: Vec<System>,
    pub rounds: usize,
    pub window: Duration,
}

/// Under load and not counted: before each window, and before the first one of a contestant.
pub const LEAD_IN: Duration = Duration::from_millis(120);
pub const WARM_UP: Duration = Duration::from_millis(300);
/// Orders made to be replayed, for each contestant.
pub const REPLAYED: usize = 128;
/// Requests whose statements and round trips are counted.
pub const COUNTED: usize = 20;
/// Sizes of bodies: 0.3, 4 and 64 KiB.
pub const BODIES: [usize; 3] = [307, 4096, 65_536];
/// Replicas of the service on one database.
pub const REPLICAS: [usize; 3] = [1, 2, 4];
/// Connections of the phases about replicas.
pub const REPLICAS_CONNECTIONS: usize = 64;
/// Connections of the other phases about growth.
pub const CONNECTIONS: usize = 16;

/// A comparison with fewer keys would be one with itself.
pub const KEYS_LEAST: u64 = 10_000;
const KEYS_FEW: u64 = 1_000;
const KEYS_SOME: u64 = 100_000;
const KEYS_QUICK: u64 = 1_000_000;
const KEYS_MANY: u64 = 10_000_000;
/// Rows of stored keys in a second, roughly: for the bar only.
const FILLED_PER_SECOND: u64 = 60_000;

impl Plan {
    /// `keys` is the largest number of stored keys, if the caller has a wish.
    pub fn new(quick: bool, keys: Option<u64>) -> Self {
        let mut plan = if quick { Self::quick() } else { Self::whole() };
        if let Some(most) = keys {
            plan.stored_keys.pop();
            plan.stored_keys.retain(|count| *count < most);
            plan.stored_keys.push(most);
        }
        plan
    }

    fn quick() -> Self {
        let ms = Duration::from_millis;
        let (fresh, replaying) = (fresh_systems(), replaying_systems());
        Self {
            quick: true,
            questions: vec![
                Question::new(Shape::Real, false, 16, &fresh, 5, ms(700)),
                Question::new(Shape::Real, true, 16, &replaying, 5, ms(400)),
                Question::new(Shape::Real, false, 1, &fresh, 5, ms(400)),
                Question::new(Shape::Real, true, 1, &replaying, 3, ms(200)),
                Question::new(Shape::Real, false, 64, &fresh, 3, ms(400)),
                Question::new(Shape::Real, true, 64, &replaying, 3, ms(300)),
                Question::new(Shape::Minimal, false, 16, &fresh, 3, ms(400)),
                Question::new(Shape::Gateway, false, 1, &gateway_systems(), 5, ms(1000)),
            ],
            growth: (3, ms(500)),
            stored_keys: vec![KEYS_FEW, KEYS_QUICK],
            storm: (3, ms(4000)),
        }
    }

    fn whole() -> Self {
        let (rounds, window) = (7, Duration::from_millis(2000));
        let mut questions = Vec::new();
        for shape in [Shape::Real, Shape::Minimal] {
            for connections in [16, 1, 64] {
                questions.push(Question::new(shape, false, connections, &fresh_systems(), rounds, window));
                questions.push(Question::new(shape, true, connections, &replaying_systems(), rounds, window));
            }
        }
        questions.push(Question::new(Shape::Gateway, false, 1, &fresh_systems(), rounds, window * 2));
        Self {
            quick: false,
            questions,
            growth: (rounds, window),
            stored_keys: vec![KEYS_FEW, KEYS_SOME, KEYS_MANY],
            storm: (5, Duration::from_secs(8)),
        }
    }

    /// About how long it takes, for the bar.
    pub fn lasts(&self) -> Duration {
        let systems: Duration = self.questions.iter().map(Question::lasts).sum();
        systems + self.counting() + self.growing() + self.storming()
    }

    pub fn counting(&self) -> Duration {
        Duration::from_millis(700) * u32::try_from(System::ALL.len()).unwrap_or(u32::MAX)
    }

    pub fn filling(keys: u64) -> Duration {
        Duration::from_secs(keys / FILLED_PER_SECOND)
    }

    fn growing(&self) -> Duration {
        let (rounds, window) = self.growth;
        let contestants = self.stored_keys.len() + BODIES.len() * 2 + REPLICAS.len();
        let slices = u32::try_from(contestants * rounds).unwrap_or(u32::MAX);
        let filling: Duration = self.stored_keys.iter().map(|keys| Self::filling(*keys)).sum();
        (window + LEAD_IN) * slices + filling
    }

    pub fn storming(&self) -> Duration {
        let (rounds, half) = self.storm;
        half * 2 * u32::try_from(rounds).unwrap_or(u32::MAX)
    }
}

impl Question {
    pub fn new(
        shape: Shape,
        replays: bool,
        connections: usize,
        systems: &[System],
        rounds: usize,
        window: Duration,
    ) -> Self {
        Self { shape, replays, connections, systems: systems.to_vec(), rounds, window }
    }

    pub fn id(&self) -> String {
        let kind = if self.replays { "replays" } else { "fresh" };
        format!("{kind}_{}_{}", self.shape.name(), self.connections)
    }

    pub fn title(&self) -> String {
        let what = match (self.shape, self.replays) {
            (Shape::Minimal, false) => "New minimal orders",
            (Shape::Minimal, true) => "Replays of minimal orders",
            (Shape::Gateway, _) => "New orders with a 30 ms gateway",
            (_, false) => "New real orders",
            (_, true) => "Replays of real orders",
        };
        let connections = self.connections;
        format!("{what}, {connections} connection{}", if connections == 1 { "" } else { "s" })
    }

    fn lasts(&self) -> Duration {
        let contestants = u32::try_from(self.systems.len()).unwrap_or(u32::MAX);
        let rounds = u32::try_from(self.rounds).unwrap_or(u32::MAX);
        (self.window + LEAD_IN) * contestants * rounds + WARM_UP * contestants
    }
}

/// Whoever makes orders.
fn fresh_systems() -> Vec<System> {
    System::ALL.into_iter().filter(|system| *system != System::BareEvalsha).collect()
}

/// Whoever replays: without keys a second request is a second order.
fn replaying_systems() -> Vec<System> {
    let replays = |system: &System| system.looks_at_keys() || *system == System::BareEvalsha;
    System::ALL.into_iter().filter(replays).collect()
}

fn gateway_systems() -> Vec<System> {
    vec![System::NoKeyPipelined, System::OrderService]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_fits_into_four_minutes_with_a_quarter_to_spare() {
        let lasts = Plan::new(true, None).lasts();
        assert!(lasts < Duration::from_secs(180), "{lasts:?}");
        assert!(lasts > Duration::from_secs(60), "{lasts:?}");
    }

    #[test]
    fn both_runs_ask_what_the_measures_need() {
        for quick in [true, false] {
            let plan = Plan::new(quick, None);
            let ids: Vec<String> = plan.questions.iter().map(Question::id).collect();
            for needed in ["replays_real_16", "fresh_real_16", "fresh_real_1", "fresh_gateway_1"] {
                assert!(ids.iter().any(|id| id == needed), "{needed} in {ids:?}");
            }
            assert!(plan.stored_keys.len() >= 2 && plan.storm.0 > 0);
        }
    }

    #[test]
    fn the_caller_chooses_the_largest_number_of_stored_keys() {
        assert_eq!(Plan::new(false, Some(200_000)).stored_keys, [1_000, 100_000, 200_000]);
        assert_eq!(Plan::new(false, Some(50_000)).stored_keys, [1_000, 50_000]);
        assert_eq!(Plan::new(true, Some(10_000_000)).stored_keys, [1_000, 10_000_000]);
        assert_eq!(Plan::new(true, Some(KEYS_LEAST)).stored_keys, [1_000, KEYS_LEAST]);
    }
}
