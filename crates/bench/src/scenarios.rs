//! The articles' scenarios, each over the four baselines and the order service, with a verdict for each row.
//!
//! One scenario per file: how it is brought about, what is printed, and of whom it is said that they fail. Knows no
//! protocol. Invariant: the exit code says whether every system did what is said of it; a baseline that holds where it
//! should fail is as wrong as the service failing.

mod amount;
mod bytes;
mod cost;
mod crashes;
mod fifty;
mod forgotten;
mod impatient;
mod late_owner;
mod other_user;
mod outcome;
mod trial;
pub mod way;
mod wrongtype;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use futures_util::future::{LocalBoxFuture, try_join_all};
use tokio::sync::Mutex;

use crate::report::{table, verdicts};
use crate::stack::{Database, Given, Stack};
use crate::systems::System;
pub use outcome::{Outcome, Report, Row, Verdict};

/// In the order in which they run.
const ALL: [&Scenario; 14] = [
    &impatient::BY_FIN,
    &impatient::BY_RST,
    &fifty::SCENARIO,
    &amount::SCENARIO,
    &cost::SCENARIO,
    &forgotten::EVICTED,
    &forgotten::RESTARTED,
    &forgotten::FAILED_OVER,
    &crashes::BEFORE_REFILL,
    &crashes::WHILE_RUNNING,
    &wrongtype::SCENARIO,
    &other_user::SCENARIO,
    &bytes::SCENARIO,
    &late_owner::SCENARIO,
];

/// A scenario, and what is said of the systems.
struct Scenario {
    /// As `--only` takes it.
    name: &'static str,
    title: &'static str,
    /// Without the system in front, and without charges and orders behind.
    columns: &'static [&'static str],
    /// Who fails, as the articles say (or as follows from what they say).
    fails: &'static [System],
    notes: &'static [&'static str],
    /// It breaks a Redis, so it needs one of its own.
    own_redis: bool,
    play: Play,
}

/// How a scenario is played.
enum Play {
    /// Every system at the same time: they share nothing but the servers.
    AtOnce(OneSystem),
    /// One system after the other, since milliseconds decide what happens.
    InTurn(OneSystem),
    /// All systems together, request by request, since they are compared by time.
    SideBySide(AllSystems),
}

type OneSystem = for<'a> fn(&'a Run, System) -> LocalBoxFuture<'a, anyhow::Result<Vec<Outcome>>>;
type AllSystems = for<'a> fn(&'a Run) -> LocalBoxFuture<'a, anyhow::Result<Played>>;
/// What each system did, in the order of the table.
type Played = Vec<(System, Vec<Outcome>)>;

/// What all scenarios of a run share.
struct Run {
    stack: Stack,
    quick: bool,
    /// One for each system, made when it is first needed; effects are counted from where they were.
    databases: Mutex<HashMap<System, Database>>,
}

impl Run {
    async fn database(&self, system: System) -> anyhow::Result<Database> {
        let mut databases = self.databases.lock().await;
        if let Some(database) = databases.get(&system) {
            return Ok(database.clone());
        }
        let database = self.stack.database(system.name()).await?;
        databases.insert(system, database.clone());
        Ok(database)
    }
}

/// `bench scenarios`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub given: Given,
    /// Only these scenarios
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(ALL.map(|scenario| scenario.name)))]
    pub only: Vec<String>,
    /// Fewer requests where times are measured
    #[arg(long)]
    pub quick: bool,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write the results as one page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Runs them, prints a table for each, and cleans up; also on Ctrl-C and SIGTERM.
pub async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let run = Run {
        stack: Stack::start(arguments.given).await?,
        quick: arguments.quick,
        databases: Mutex::default(),
    };
    let wanted = |scenario: &&&Scenario| {
        arguments.only.is_empty() || arguments.only.iter().any(|name| name == scenario.name)
    };
    let scenarios: Vec<&Scenario> = ALL.iter().filter(wanted).copied().collect();
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let reports = tokio::select! {
        reports = reports(&run, &scenarios) => reports,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        _ = terminate.recv() => Err(anyhow::anyhow!("told to end")),
    };
    run.stack.close().await?;
    let (servers, reports) = reports?;
    let pages = [
        (arguments.json, verdicts::json(&servers, &reports)),
        (arguments.html, verdicts::html(&servers, &reports)),
    ];
    for (file, text) in pages {
        if let Some(file) = file {
            std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        }
    }
    let as_claimed = reports.iter().filter(|report| report.is_as_claimed()).count();
    println!("\n{as_claimed} of {} scenarios went as claimed.", reports.len());
    Ok(if as_claimed == reports.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn reports(run: &Run, scenarios: &[&Scenario]) -> anyhow::Result<(String, Vec<Report>)> {
    let (postgres, redis) = run.stack.versions().await?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let servers = format!("PostgreSQL {postgres}, Redis {redis}, {cores} cores");
    println!("{servers}");
    let mut reports = Vec::new();
    for scenario in scenarios {
        let began = Instant::now();
        let report = scenario.run(run).await.with_context(|| format!("scenario {}", scenario.name))?;
        eprintln!("{}: {:.1} s", scenario.name, began.elapsed().as_secs_f64());
        table::print(&report);
        reports.push(report);
    }
    Ok((servers, reports))
}

impl Scenario {
    async fn run(&self, run: &Run) -> anyhow::Result<Report> {
        if self.own_redis && !run.stack.has_redis_programs() {
            let why = "it breaks a Redis, and there is no redis-server on this machine to start";
            return Ok(self.report(&[], Some(why.to_owned())));
        }
        let one = async |rows: OneSystem, system: System| {
            anyhow::Ok((system, rows(run, system).await.with_context(|| system.name())?))
        };
        let outcomes = match self.play {
            Play::AtOnce(rows) => try_join_all(System::COMPARED.map(|system| one(rows, system))).await?,
            Play::InTurn(rows) => {
                let mut outcomes = Vec::new();
                for system in System::COMPARED {
                    outcomes.push(one(rows, system).await?);
                }
                outcomes
            }
            Play::SideBySide(rows) => rows(run).await?,
        };
        Ok(self.report(&outcomes, None))
    }

    fn report(&self, outcomes: &[(System, Vec<Outcome>)], skipped: Option<String>) -> Report {
        let charged = outcomes.iter().flat_map(|(_, outcomes)| outcomes).any(|outcome| outcome.charged);
        let mut columns = self.columns.to_vec();
        columns.extend(charged.then_some("charges"));
        columns.push("orders");
        let row = |system: System, outcome: &Outcome| {
            let mut cells = outcome.cells.clone();
            cells.extend(charged.then(|| outcome.effects.charges.to_string()));
            cells.push(outcome.effects.orders.to_string());
            let label = outcome.label.clone().unwrap_or_else(|| system.name().to_owned());
            Row { label, cells, verdict: outcome.verdict(!self.fails.contains(&system)) }
        };
        let rows = outcomes
            .iter()
            .flat_map(|(system, outcomes)| outcomes.iter().map(|outcome| row(*system, outcome)))
            .collect();
        Report { name: self.name, title: self.title, columns, rows, notes: self.notes, skipped }
    }
}
