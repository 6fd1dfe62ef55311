//! Rounds: A B C A B C …, so that whatever else the machine does meets everybody alike.
//!
//! Knows contestants and loads, and no measure. Before each round there is a checkpoint, which everybody's pages pay for in
//! the same round; before each window there is load that is not counted. Invariant: either every contestant has a point in
//! every round, or there is an error that names who failed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use super::contestant::Contestant;
use super::orders::Shape;
use super::plan::{LEAD_IN, WARM_UP};
use super::progress::Progress;
use super::series::{Phase, Point, Series};
use crate::driver::{Kind, Load, Slice};

/// One phase: what everybody is asked for.
pub struct Rounds {
    pub id: String,
    pub title: String,
    pub shape: Shape,
    pub replays: bool,
    pub connections: usize,
    pub rounds: usize,
    pub window: Duration,
}

impl Rounds {
    /// Asks the contestants in turn.
    ///
    /// # Errors
    /// When one of them gives another answer than the expected one: a number would mean nothing then.
    pub async fn run(
        self,
        contestants: &mut [&mut Contestant],
        progress: &mut Progress,
    ) -> anyhow::Result<Phase> {
        let series =
            |contestant: &&mut Contestant| Series { label: contestant.label.clone(), points: Vec::new() };
        let mut all: Vec<Series> = contestants.iter().map(series).collect();
        for contestant in contestants.iter_mut() {
            progress.show(&self.title, &format!("warm-up of {}", contestant.label));
            // However slow it is: only the rounds count.
            self.slice(contestant, Duration::ZERO, WARM_UP).await?;
            progress.advance(WARM_UP);
        }
        for round in 1..=self.rounds {
            // Given servers may not allow it; they then choose the time themselves.
            let _ = contestants[0].database.client.batch_execute("CHECKPOINT").await;
            for (contestant, series) in contestants.iter_mut().zip(&mut all) {
                progress
                    .show(&self.title, &format!("{}, round {round} of {}", contestant.label, self.rounds));
                let slice = self.slice(contestant, LEAD_IN, self.window).await?;
                slice.tally.not_empty(&contestant.label)?;
                series.points.push(Point::of_slice(&slice));
                progress.advance(LEAD_IN + self.window);
            }
        }
        Ok(Phase { id: self.id, title: self.title, series: all })
    }

    async fn slice(
        &self,
        contestant: &mut Contestant,
        lead_in: Duration,
        window: Duration,
    ) -> anyhow::Result<Slice> {
        let kind = if self.replays {
            let known = contestant.known(self.shape).await;
            Kind::Replays(Arc::clone(&known.with_context(|| contestant.label.clone())?))
        } else {
            Kind::Fresh
        };
        let target = contestant.target(self.shape);
        let load = Load { target, connections: self.connections, kind, lead_in, window };
        let (whose, processes) =
            (format!("{} ({})", contestant.label, self.title), contestant.processes.clone());
        tokio::task::spawn_blocking(move || load.run(&whose, &processes)).await?
    }
}
