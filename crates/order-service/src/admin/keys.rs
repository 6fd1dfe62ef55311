//! `order-service keys …`: what an operator sees of a key and may do about it.
//!
//! Knows arguments and how things are printed; what may be changed is the framework's business (`Operator`). Invariant: a command that
//! changed nothing ends with an error that says why.

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use idempotency::gate::Gate;
use idempotency::{
    AccountId, CurrentGeneration, Database, Decision, IdempotencyKey, Operator, parse_duration,
};
use serde_json::{Value, json};

use super::asking;
use crate::config::DatabaseUrl;

const ACCOUNT_SQL: &str = "SELECT id FROM accounts WHERE name = $1";
const ORDER_SQL: &str = "SELECT id::text, status FROM orders WHERE idem_key = $1";

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Show the record, the state in Redis and the order behind a key, as JSON
    Show(KeyArgs),
    /// List work that waits for somebody: unknown outcomes, errors, no progress for long; one JSON object a line
    Stuck {
        #[command(flatten)]
        database: DatabaseUrl,
        /// How long without progress is too long
        #[arg(long, env = "IDEMPOTENCY_STUCK_AFTER", default_value = "15m", value_parser = parse_duration)]
        stuck_after: Duration,
    },
    /// Free a key under which provably nobody works and nothing was done
    Release(KeyArgs),
    /// Decide about a foreign call whose outcome nobody knows; the decision is kept
    Resolve {
        #[command(flatten)]
        key: KeyArgs,
        /// What has become of it
        #[arg(long = "as")]
        decision: DecisionChoice,
        /// How you know
        #[arg(long)]
        reason: String,
        /// With `--as done`: what the call would have answered, as JSON
        #[arg(long, default_value = "null")]
        result: String,
    },
}

/// What has become of a foreign call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DecisionChoice {
    /// It was done
    Done,
    /// It was not done, and will not be
    Absent,
}

/// One key of one account.
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    #[command(flatten)]
    database: DatabaseUrl,
    /// Redis, as redis://host:port/db; without it only PostgreSQL is asked
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    redis_url: Option<String>,
    /// Name of the account
    #[arg(long)]
    account: String,
    /// The key, without quotes around it
    key: String,
}

/// A key that was found to be one, with the ways to ask about it.
struct Asked {
    database: Database,
    gate: Option<std::sync::Arc<Gate>>,
    account: AccountId,
    key: IdempotencyKey,
}

pub(crate) async fn run(command: KeysCommand) -> anyhow::Result<()> {
    match command {
        KeysCommand::Show(arguments) => show(&Asked::of(&arguments).await?).await,
        KeysCommand::Stuck { database, stuck_after } => {
            let stuck_ms = i64::try_from(stuck_after.as_millis()).unwrap_or(i64::MAX);
            for record in Operator::new(asking::database(&database, CurrentGeneration::default())?)
                .stuck(stuck_ms)
                .await?
            {
                println!("{record}");
            }
            Ok(())
        }
        KeysCommand::Release(arguments) => {
            let Asked { database, gate, account, key } = Asked::of(&arguments).await?;
            Operator::new(database).release(account, &key).await?;
            if let Some(gate) = gate {
                gate.free_place(account, &key)
                    .await
                    .map_err(anyhow::Error::msg)
                    .context("Redis could not be asked")?;
            }
            println!("released {}", key.as_str());
            Ok(())
        }
        KeysCommand::Resolve { key, decision, reason, result } => {
            let decision = match decision {
                DecisionChoice::Done => {
                    Decision::Done(serde_json::from_str(&result).context("--result is not JSON")?)
                }
                DecisionChoice::Absent => Decision::Absent,
            };
            let Asked { database, account, key, .. } = Asked::of(&key).await?;
            Operator::new(database).resolve(account, &key, &decision, &reason).await?;
            println!("resolved {}", key.as_str());
            Ok(())
        }
    }
}

async fn show(asked: &Asked) -> anyhow::Result<()> {
    let Asked { database, gate, account, key } = asked;
    let record = Operator::new(database.clone()).show(*account, key).await?;
    let natural_key = format!("{}:{}", account.0, key.as_str());
    let orders = database.read(ORDER_SQL, &[&natural_key]).await?;
    let order =
        orders.first().map(|row| json!({ "id": row.get::<_, &str>(0), "status": row.get::<_, &str>(1) }));
    let redis = match gate {
        None => Value::Null,
        Some(gate) => match gate.place_is_held(*account, key).await {
            Ok(held) => json!({ "place_is_held": held }),
            Err(error) => json!({ "error": error }),
        },
    };
    if record.is_none() && order.is_none() && redis["place_is_held"] != true {
        bail!("nothing is known of this key");
    }
    println!("{:#}", json!({ "record": record, "redis": redis, "order": order }));
    Ok(())
}

impl Asked {
    async fn of(arguments: &KeyArgs) -> anyhow::Result<Self> {
        let database = asking::database(&arguments.database, CurrentGeneration::default())?;
        let rows = database.read(ACCOUNT_SQL, &[&arguments.account.as_str()]).await?;
        let row = rows.first().with_context(|| format!("there is no account {}", arguments.account))?;
        let key = IdempotencyKey::from_text(&arguments.key).context("this cannot be a key")?;
        let url = arguments.redis_url.as_ref();
        let gate = url.map(|url| asking::gate(url, CurrentGeneration::default())).transpose()?;
        Ok(Self { database, gate, account: AccountId(row.get(0)), key })
    }
}
