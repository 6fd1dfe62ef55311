//! The command line: names the commands, runs one, and says in one line what went wrong.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::Extra;
use crate::admin::doctor::{self, DoctorArgs};
use crate::admin::keys::{self, KeysCommand};
use crate::admin::verify::{self, VerifyArgs};
use crate::config::{DatabaseUrl, DevArgs, ServeArgs};
use crate::logging::LogFormat;
use crate::webhooks::operate;
use crate::{accounts, app, dev, logging, migrations, seed};

/// An order API on which a retry is harmless: same key, same answer, one order
#[derive(Debug, Parser)]
#[command(name = "order-service", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// How log lines on stderr look; text on a terminal and JSON elsewhere if not given
    #[arg(long, env = "LOG_FORMAT", global = true)]
    log_format: Option<LogFormat>,
}

/// What `devstack` reads by itself.
const SERVERS_HELP: &str = "\
Where the private servers come from (variables only):
  ORDER_SERVICE_SERVERS     `found` looks on this machine first; `embedded` takes none of those [default: found]
  ORDER_SERVICE_NO_INSTALL  `1` forbids fetching and installing what is missing";

#[derive(Debug, Subcommand)]
enum Command {
    /// Start everything on this machine: a private PostgreSQL and Redis, the demo shop, the service
    #[command(after_help = SERVERS_HELP)]
    Dev(Box<DevArgs>),
    /// Serve, on a migrated PostgreSQL and a Redis
    Serve(Box<ServeArgs>),
    /// Apply the migrations; safe to run by several replicas at once
    Migrate(DatabaseUrl),
    /// Put the demo catalogue and the demo account into the database; can be repeated
    Seed(DatabaseUrl),
    /// Accounts and their API keys
    Accounts {
        #[command(subcommand)]
        command: AccountsCommand,
    },
    /// Idempotency keys: what has become of one, what is stuck, and what to do about it
    Keys {
        #[command(subcommand)]
        command: KeysCommand,
    },
    /// Deliveries of events
    Webhooks {
        #[command(subcommand)]
        command: WebhooksCommand,
    },
    /// Check how both stores are set up; one line a check, exit code 1 if one fails
    Doctor(Box<DoctorArgs>),
    /// Prove the invariants on the live database; exit code 1 if one is broken
    Verify(Box<VerifyArgs>),
    /// A payment gateway for development and tests; it prints its address once it answers
    Sandbox(Box<sandbox_gateway::Settings>),
}

#[derive(Debug, Subcommand)]
enum AccountsCommand {
    /// Make an account (or a further key for it) and print its API key, this once
    Create {
        #[command(flatten)]
        database: DatabaseUrl,
        /// Name of the account
        name: String,
    },
    /// List accounts and keys
    List(DatabaseUrl),
    /// End a key; every replica refuses it within 5 s
    Revoke {
        #[command(flatten)]
        database: DatabaseUrl,
        /// Id of the key, as `accounts list` shows it
        key_id: String,
    },
}

#[derive(Debug, Subcommand)]
enum WebhooksCommand {
    /// List deliveries that were given up, the latest first
    Dead(DatabaseUrl),
    /// Send an event again to every endpoint of its account, under the same webhook-id
    Redeliver {
        #[command(flatten)]
        database: DatabaseUrl,
        /// Id of the event
        event_id: uuid::Uuid,
    },
}

/// Parses the arguments and runs the command.
pub(crate) fn main(extra: Extra) -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Half a command is answered with the whole help, on stderr too.
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
        Err(error) if error.use_stderr() => {
            eprintln!("{}", one_line(&error.to_string()));
            return ExitCode::from(2);
        }
        Err(error) => error.exit(),
    };
    // Commands and housekeeping run here; requests run on the workers of the HTTP server.
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    logging::start(cli.log_format);
    let ended = runtime.block_on(run(cli.command, extra));
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command, extra: Extra) -> anyhow::Result<()> {
    match command {
        Command::Dev(arguments) => dev::run(*arguments, extra).await,
        Command::Serve(arguments) => app::serve(&arguments, extra).await,
        Command::Migrate(database) => {
            let applied = migrations::apply(&database.database_url).await?;
            match applied.as_slice() {
                [] => println!("nothing to apply"),
                applied => applied.iter().for_each(|name| println!("applied {name}")),
            }
            Ok(())
        }
        Command::Seed(database) => {
            let client = migrations::connect(&database.database_url).await?;
            seed::catalogue(&client).await?;
            match seed::account(&client).await? {
                Some(key) => println!("account {}: {key}", seed::ACCOUNT),
                None => println!(
                    "account {} is there already; its key was printed when it was made",
                    seed::ACCOUNT
                ),
            }
            Ok(())
        }
        Command::Accounts { command } => manage_accounts(command).await,
        Command::Keys { command } => keys::run(command).await,
        Command::Webhooks { command } => manage_webhooks(command).await,
        Command::Doctor(arguments) => doctor::run(&arguments).await,
        Command::Verify(arguments) => verify::run(*arguments).await,
        Command::Sandbox(settings) => sandbox_gateway::run(&settings).await,
    }
}

async fn manage_accounts(command: AccountsCommand) -> anyhow::Result<()> {
    match command {
        AccountsCommand::Create { database, name } => {
            let client = migrations::connect(&database.database_url).await?;
            println!("{}", accounts::create(&client, &name).await?);
        }
        AccountsCommand::List(database) => {
            let client = migrations::connect(&database.database_url).await?;
            for line in accounts::list(&client).await? {
                println!("{line}");
            }
        }
        AccountsCommand::Revoke { database, key_id } => {
            let client = migrations::connect(&database.database_url).await?;
            accounts::revoke(&client, &key_id).await.context("nothing was revoked")?;
            println!("revoked {key_id}");
        }
    }
    Ok(())
}

async fn manage_webhooks(command: WebhooksCommand) -> anyhow::Result<()> {
    match command {
        WebhooksCommand::Dead(database) => {
            let client = migrations::connect(&database.database_url).await?;
            for line in operate::dead(&client).await? {
                println!("{line}");
            }
        }
        WebhooksCommand::Redeliver { database, event_id } => {
            let client = migrations::connect(&database.database_url).await?;
            let endpoints = operate::redeliver(&client, event_id).await.context("nothing is sent")?;
            println!("{event_id} is sent again, to {endpoints} endpoints");
        }
    }
    Ok(())
}

/// clap explains over several lines; the first paragraph says what is wrong.
fn one_line(explanation: &str) -> String {
    let first: Vec<&str> =
        explanation.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
    format!("{} (see --help)", first.join(" "))
}
