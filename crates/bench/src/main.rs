//! `bench`: watch four designs fail where the articles say that they fail, and see what the order service costs.
//!
//! Every system under test is a process of its own: this binary again, as `bench serve NAME`, or under the name
//! `order-service`, under which it is the order service with two more commands (see `ours`). This file only names the
//! commands; it deliberately knows no system, no scenario and no number.

mod baselines;
mod driver;
mod ours;
mod report;
mod scenarios;
mod stack;
mod systems;
mod throughput;
mod work;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use systems::System;

/// The order service's own, for the baselines too: what differs is what they do.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Baselines, scenarios and throughput: claims about the order service, reproduced on this machine
#[derive(Debug, Parser)]
#[command(name = "bench", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What happens to one order under retries, races and crashes, in five systems
    Scenarios(scenarios::Arguments),
    /// What the order service costs beside the baselines: throughput, latency, CPU, growth
    Throughput(throughput::Arguments),
    /// A thousand duplicates of one slow order beside fresh orders
    Storm(throughput::StormArguments),
    /// Orders while half a million expired keys are forgotten
    Reaper(throughput::ReaperArguments),
    /// One system under test, configured by its environment (see `systems`)
    #[command(hide = true)]
    Serve { system: System },
}

fn main() -> ExitCode {
    systems::end_with_parent();
    if systems::invoked_as_order_service() {
        return order_service::main_with(order_service::Extra {
            routes: ours::routes,
            ..order_service::Extra::NONE
        });
    }
    let ended = match Cli::parse().command {
        Command::Scenarios(arguments) => {
            runtime().and_then(|runtime| runtime.block_on(scenarios::run(arguments)))
        }
        Command::Throughput(arguments) => {
            runtime().and_then(|runtime| runtime.block_on(throughput::run(arguments)))
        }
        Command::Storm(arguments) => {
            runtime().and_then(|runtime| runtime.block_on(throughput::run_storms(arguments)))
        }
        Command::Reaper(arguments) => {
            runtime().and_then(|runtime| runtime.block_on(throughput::run_reaper(arguments)))
        }
        Command::Serve { system } => runtime().and_then(|runtime| runtime.block_on(system.serve())),
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// One thread beside the workers of the HTTP server, as in the order service.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?)
}
