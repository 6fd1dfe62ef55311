//! How the cost grows: with stored keys, with replicas, with the size of bodies.
//!
//! Each is a comparison of the service with itself (bodies: also with the work alone), in interleaved rounds as everything
//! else. Invariant: the number of stored keys in a report is the number of rows that were there, never what was planned.

use std::sync::Arc;

use anyhow::Context as _;

use super::contestant::Contestant;
use super::fill;
use super::interleave::Rounds;
use super::measure::{Measure, STORED_KEYS};
use super::orders::Shape;
use super::plan::{BODIES, CONNECTIONS, Plan, REPLICAS, REPLICAS_CONNECTIONS};
use super::progress::Progress;
use super::series::Phase;
use crate::stack::Stack;
use crate::systems::{Setup, System};

/// The number of stored keys that the measure is about.
const KEYS_WANTED: f64 = 1e7;

/// The phase about stored keys, with its measure.
#[derive(Debug, Clone)]
pub struct StoredKeys {
    pub phase: Phase,
    /// Rows that were stored, one number for each series.
    pub keys: Vec<u64>,
    /// At the largest number that was stored.
    pub measure: Measure,
    /// What the ratio would be at ten million, on a line through the first and last point over the logarithm of the number
    /// of keys; none if so many were stored.
    pub extrapolated: Option<f64>,
}

/// Powers of ten as people write them, other numbers in full.
fn in_words(count: u64) -> String {
    let exponent = count.checked_ilog10().unwrap_or(0);
    if exponent == 0 || 10_u64.pow(exponent) != count {
        return count.to_string();
    }
    let raised =
        |digit: char| ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][digit as usize - '0' as usize];
    format!("10{}", exponent.to_string().chars().map(raised).collect::<String>())
}

/// One line through (`least`, 1) and (`most`, `value`), over the logarithm.
fn extrapolate(value: f64, least: f64, most: f64) -> Option<f64> {
    let slope = (value - 1.0) / (most / least).log10();
    (most < KEYS_WANTED && most > least).then(|| 1.0 + slope * (KEYS_WANTED / least).log10())
}

fn rounds(plan: &Plan, id: String, title: String, shape: Shape, connections: usize) -> Rounds {
    let (rounds, window) = plan.growth;
    Rounds { id, title, shape, replays: false, connections, rounds, window }
}

/// The service and the work alone, with bodies of several sizes.
pub async fn bodies(
    plan: &Plan,
    progress: &mut Progress,
    contestants: &mut [&mut Contestant],
) -> anyhow::Result<Vec<Phase>> {
    let mut phases = Vec::new();
    for bytes in BODIES {
        let shape = Shape::Body(bytes);
        let title = format!("New real orders, bodies of {:.1} KiB", bytes as f64 / 1024.0);
        let asked = rounds(plan, format!("fresh_{}", shape.name()), title, shape, CONNECTIONS);
        phases.push(asked.run(contestants, progress).await?);
    }
    Ok(phases)
}

/// One, two and four processes on the same stores.
pub async fn replicas(stack: &Stack, plan: &Plan, progress: &mut Progress) -> anyhow::Result<Phase> {
    let database = stack.database("replicas").await?;
    let setup = Setup::new(&database.url, stack.redis_url());
    let mut running = Vec::new();
    for _ in 0..REPLICAS.into_iter().max().unwrap_or(1) {
        running.push(Arc::new(System::OrderService.start(&setup).await?));
    }
    let mut contestants = Vec::new();
    for count in REPLICAS {
        let label = if count == 1 { "1 replica".to_owned() } else { format!("{count} replicas") };
        contestants.push(Contestant::of(stack, &label, database.clone(), running[..count].to_vec())?);
    }
    let title = format!("New real orders, replicas, {REPLICAS_CONNECTIONS} connections");
    let asked = rounds(plan, "fresh_replicas".to_owned(), title, Shape::Real, REPLICAS_CONNECTIONS);
    asked.run(&mut contestants.iter_mut().collect::<Vec<_>>(), progress).await
}

/// The same service on tables of different size.
pub async fn stored_keys(stack: &Stack, plan: &Plan, progress: &mut Progress) -> anyhow::Result<StoredKeys> {
    let (mut contestants, mut keys) = (Vec::new(), Vec::new());
    for count in &plan.stored_keys {
        progress.show("Stored keys", &format!("filling {count}"));
        let database = stack.database("keys").await?;
        let account = database.account(0).await?;
        let stored = fill::records(&database, account, *count).await?;
        progress.advance(Plan::filling(*count));
        let running = System::OrderService.start(&Setup::new(&database.url, stack.redis_url())).await?;
        let label = format!("{stored} keys");
        contestants.push(Contestant::of(stack, &label, database, vec![Arc::new(running)])?);
        keys.push(stored);
    }
    let title = "New real orders, stored keys".to_owned();
    let asked = rounds(plan, "fresh_stored_keys".to_owned(), title, Shape::Real, CONNECTIONS);
    let phase = asked.run(&mut contestants.iter_mut().collect::<Vec<_>>(), progress).await?;
    StoredKeys::measured(phase, keys)
}

impl StoredKeys {
    /// `keys` are the rows that each series met.
    pub fn measured(phase: Phase, keys: Vec<u64>) -> anyhow::Result<Self> {
        let [few, .., many] = phase.series.as_slice() else {
            anyhow::bail!("one size of table is no comparison")
        };
        let ratio = phase.ratio(&many.label, &few.label, |point| point.per_second).context("no rounds")?;
        let (least, most) = (keys[0], keys[keys.len() - 1]);
        let name = format!("throughput with {} stored keys against {}", in_words(most), in_words(least));
        let measure = STORED_KEYS.met_by(name, ratio);
        let extrapolated = extrapolate(measure.value, least as f64, most as f64);
        Ok(Self { phase, keys, measure, extrapolated })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_measure_says_how_many_keys_there_were() {
        assert_eq!([1_000, 10_000_000, 2_500, 1].map(in_words), ["10³", "10⁷", "2500", "1"]);
    }

    #[test]
    fn what_was_stored_is_not_extrapolated() {
        assert_eq!(extrapolate(0.9, 1e3, 1e7), None);
        assert_eq!(extrapolate(0.9, 1e3, 1e3), None);
        let told = extrapolate(0.9, 1e3, 1e5).unwrap();
        assert!((told - 0.8).abs() < 1e-9, "two decades cost a tenth, so four cost two: {told}");
    }
}
