//! What the service costs beside the baselines: throughput, latency, CPU, round trips, growth, a storm.
//!
//! The map: `plan` says what is asked and for how long, `interleave` asks it in rounds, `series` holds the answers,
//! `measure` compares them; `counts` counts on the wire; `growth`, `storm` and `reaper` are further questions; `progress` is
//! the bar. `crate::report` makes pages of the results. Deliberately unknown here: how a system works. Invariant: every
//! number that is compared comes from rounds in which everybody took turns, of one process start, on this machine.

mod contestant;
mod counts;
#[cfg(test)]
pub mod example;
mod fill;
mod growth;
mod interleave;
mod machine;
mod measure;
mod orders;
mod plan;
mod progress;
mod reaper;
mod results;
mod series;
mod storm;
mod suite;
mod swarm;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

pub use counts::{Counted, Counts};
pub use growth::StoredKeys;
#[cfg(test)]
pub use machine::Machine;
pub use measure::{Measure, Wanted};
pub use reaper::Cycle;
pub use results::Results;
pub use series::{Phase, Point, Series, Spread};
pub use storm::{QUIET, STORMY, Storm};

use crate::report;
use crate::stack::{Given, Stack};
use plan::Plan;
use progress::Progress;

/// Expired keys that a reaper cycle begins with.
const EXPIRED: u64 = 500_000;
const CYCLES: usize = 2;

/// `bench throughput`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Under four minutes: shorter rounds, fewer of them, fewer stored keys
    #[arg(long)]
    quick: bool,
    /// Most keys that are stored to see how cost grows [default: 10000000, about 7 GB of disk; with --quick 1000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(plan::KEYS_LEAST..))]
    keys: Option<u64>,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write the results as one page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    given: Given,
}

/// `bench storm`.
#[derive(Debug, clap::Args)]
pub struct StormArguments {
    /// What duplicates do; all three if none is named
    kinds: Vec<storm::Kind>,
    /// Shorter halves, fewer rounds
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    given: Given,
}

/// `bench reaper`.
#[derive(Debug, clap::Args)]
pub struct ReaperArguments {
    /// Keys that are past their retention, in each cycle
    #[arg(long, default_value_t = EXPIRED)]
    expired: u64,
    #[command(flatten)]
    given: Given,
}

/// Measures everything and reports it. Success means measured, not that every floor is met.
pub async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    warn_of_debug_builds();
    // Before minutes of measuring: a file that cannot be written later would lose them.
    for file in [&arguments.json, &arguments.html].into_iter().flatten() {
        std::fs::write(file, "").with_context(|| format!("{} cannot be written", file.display()))?;
    }
    let plan = Plan::new(arguments.quick, arguments.keys);
    let stack = Stack::start(arguments.given).await?;
    let results = suite::run(&stack, &plan).await;
    stack.close().await?;
    let results = results?;
    print!("{}", report::text(&results));
    for (file, text) in [(arguments.json, report::json(&results)), (arguments.html, report::html(&results))] {
        if let Some(file) = file {
            std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        }
    }
    Ok(if results.invalid.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Storms alone, side by side.
pub async fn run_storms(arguments: StormArguments) -> anyhow::Result<ExitCode> {
    warn_of_debug_builds();
    let mut kinds = arguments.kinds;
    if kinds.is_empty() {
        kinds = vec![storm::Kind::Reject, storm::Kind::Wait, storm::Kind::RedisAway];
    }
    let plan = Plan::new(arguments.quick, None);
    let stack = Stack::start(arguments.given).await?;
    let mut progress = Progress::new(plan.storming() * u32::try_from(kinds.len()).unwrap_or(1));
    let storms = async {
        let mut storms = Vec::new();
        for kind in kinds {
            storms.push(storm::run(&stack, kind, plan.storm, &mut progress).await?);
        }
        anyhow::Ok(storms)
    };
    let storms = storms.await;
    progress.end();
    stack.close().await?;
    print!("{}", report::storms(&storms?));
    Ok(ExitCode::SUCCESS)
}

/// The reaper alone.
pub async fn run_reaper(arguments: ReaperArguments) -> anyhow::Result<ExitCode> {
    warn_of_debug_builds();
    let stack = Stack::start(arguments.given).await?;
    let cycles = reaper::run(&stack, CYCLES, arguments.expired, &|line| eprintln!("{line}")).await;
    stack.close().await?;
    print!("{}", report::cycles(&cycles?));
    Ok(ExitCode::SUCCESS)
}

fn warn_of_debug_builds() {
    if cfg!(debug_assertions) {
        eprintln!(
            "warning: this is a debug build; its numbers mean nothing (cargo run --release -p bench -- …)"
        );
    }
}
