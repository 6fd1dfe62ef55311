//! The whole run, in the order in which it happens.
//!
//! Knows which question comes after which and what has to be gone by then (two hundred connections are all that PostgreSQL
//! has). Deliberately does not know how a question is asked. Invariant: a phase in which somebody gave a
//! wrong answer has no number; it is named in the results, and its measures do not hold.

use super::contestant::Contestant;
use super::counts::{self, Counted};
use super::interleave::Rounds;
use super::machine::Machine;
use super::measure::{self, STORM, STORM_NAME};
use super::plan::{LEAD_IN, Plan, Question, REPLAYED, WARM_UP};
use super::progress::Progress;
use super::results::Results;
use super::series::{Phase, Spread};
use super::{growth, storm};
use crate::stack::Stack;
use crate::systems::System;

/// Measures everything that the plan asks for.
pub async fn run(stack: &Stack, plan: &Plan) -> anyhow::Result<Results> {
    let machine = Machine::look(stack).await?;
    let mut progress = Progress::new(plan.lasts());
    let results = measure_all(stack, plan, machine, &mut progress).await;
    progress.end();
    results
}

async fn measure_all(
    stack: &Stack,
    plan: &Plan,
    machine: Machine,
    progress: &mut Progress,
) -> anyhow::Result<Results> {
    let counts = count(stack, plan, progress).await?;
    let mut invalid = Vec::new();
    let (phases, bodies) = compare(stack, plan, progress, &mut invalid).await?;
    let replicas = growth::replicas(stack, plan, progress).await?;
    let stored_keys = growth::stored_keys(stack, plan, progress).await?;
    let storm = storm::run(stack, storm::Kind::Reject, plan.storm, progress).await;
    let storm = storm.map_err(|error| invalid.push(format!("{error:#}"))).ok();

    let mut measures = measure::of_systems(&phases);
    let stormy =
        storm.as_ref().and_then(|storm| storm.phase.ratio(storm::STORMY, storm::QUIET, |point| point.p99_ms));
    measures.push(STORM.met_by(STORM_NAME, stormy.unwrap_or(Spread::UNKNOWN)));
    measures.push(stored_keys.measure.clone());
    let (method, quick) = (method(plan), plan.quick);
    Ok(Results {
        machine,
        quick,
        method,
        measures,
        phases,
        counts,
        bodies,
        replicas,
        stored_keys,
        storm,
        invalid,
    })
}

async fn count(stack: &Stack, plan: &Plan, progress: &mut Progress) -> anyhow::Result<Vec<Counted>> {
    let mut all = Vec::new();
    for system in System::ALL {
        progress.show("Round trips and statements, counted on the wire", system.name());
        all.push(counts::run(stack, system).await?);
        progress.advance(plan.counting() / u32::try_from(System::ALL.len()).unwrap_or(1));
    }
    Ok(all)
}

/// All systems run from the first question to the last; whoever is not asked is idle.
async fn compare(
    stack: &Stack,
    plan: &Plan,
    progress: &mut Progress,
    invalid: &mut Vec<String>,
) -> anyhow::Result<(Vec<Phase>, Vec<Phase>)> {
    let mut contestants = Vec::new();
    for system in System::ALL {
        progress.show("Starting the systems", system.name());
        contestants.push(Contestant::start(stack, system).await?);
    }
    let mut phases = Vec::new();
    for question in &plan.questions {
        let mut asked = among(&mut contestants, &question.systems);
        match rounds(question).run(&mut asked, progress).await {
            Ok(phase) => phases.push(phase),
            Err(error) => invalid.push(format!("{error:#}")),
        }
    }
    let mut asked = among(&mut contestants, &[System::NoKeyPipelined, System::OrderService]);
    let bodies = growth::bodies(plan, progress, &mut asked).await?;
    Ok((phases, bodies))
}

fn among<'a>(contestants: &'a mut [Contestant], systems: &[System]) -> Vec<&'a mut Contestant> {
    let wanted = |one: &&mut Contestant| systems.iter().any(|system| system.name() == one.label);
    contestants.iter_mut().filter(wanted).collect()
}

fn rounds(question: &Question) -> Rounds {
    Rounds {
        id: question.id(),
        title: question.title(),
        shape: question.shape,
        replays: question.replays,
        connections: question.connections,
        rounds: question.rounds,
        window: question.window,
    }
}

/// What a reader has to know to believe the numbers.
fn method(plan: &Plan) -> Vec<String> {
    let kind = if plan.quick {
        "A quick run: the table of measures with short rounds; minimal orders only at 16 connections, the gateway only for two systems, \
         fewer stored keys."
    } else {
        "A whole run."
    };
    vec![
        kind.to_owned(),
        "Systems take turns within each phase (A B C A B C …); a value is the median of the rounds, a spread their least and greatest, \
         a measure the ratio of two medians of one phase."
            .to_owned(),
        format!(
            "Before a phase {} ms of load for each, before each window {} ms, neither counted; a CHECKPOINT before each round.",
            WARM_UP.as_millis(),
            LEAD_IN.as_millis()
        ),
        "Each system has its own process and database on one PostgreSQL (fsync and synchronous_commit on) and one Redis; nobody else is \
         asked meanwhile."
            .to_owned(),
        "A real order has one of the four products of the demo catalogue, drawn anew for each: everybody contends for four rows of \
         stock. Keys are random UUIDs.".to_owned(),
        format!(
            "Replays are of {REPLAYED} orders that Redis holds, in turn: keys that are stormed, which the order service reads with \
             GET from the seventeenth replay on. bare-evalsha answers any request with stored bytes, by a script."
        ),
        "Bodies: of 0.3 KiB by a note; of 4 KiB by the longest note (1 000 characters of four bytes); of 64 KiB by that and white space, \
         which is read and not kept. The work of the order is the same."
            .to_owned(),
        "CPU time is that of the process trees in /proc, divided by the requests of the window; the generator's is not told. It runs on one \
         thread of its own and is not pinned: it shares the cores with the systems, all of them alike."
            .to_owned(),
        "Stored keys are records of orders of the last 20 hours under random keys of the account that orders (about 500 bytes each), \
         written by the server, on index pages that are filled to 70 %."
            .to_owned(),
    ]
}
