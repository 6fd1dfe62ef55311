//! The sandbox as a program of its own, for its tests; people use `order-service sandbox`, which is the same.

use clap::Parser as _;

/// A payment gateway for development and tests
#[derive(Debug, clap::Parser)]
struct Cli {
    #[command(flatten)]
    settings: sandbox_gateway::Settings,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    sandbox_gateway::run(&Cli::parse().settings).await
}
