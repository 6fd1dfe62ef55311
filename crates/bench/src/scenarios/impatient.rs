//! The impatient client: gives up after 10 ms, tries again five times, and only the sixth time waits.
//!
//! A client that gives up closes its socket (FIN) or resets it (RST). A handler goes on after a FIN, as the article's Go
//! servers do; after a RST actix drops it where it stands, and whatever it had begun is left as it is.

use std::time::Duration;

use testkit::{Connection, Request};

use super::trial::{GATEWAY_ORDERS, Trial, order, said};
use super::{Outcome, Play, Run, Scenario};
use crate::systems::System::{self, NaiveHybrid, NoKey, PostgresOnly, RedisOnly};

/// How long the client waits for an answer, and after a 409.
const PATIENCE: Duration = Duration::from_millis(10);
const ATTEMPTS: usize = 6;
const COLUMNS: &[&str] = &["what the client saw", "timeouts"];

pub const BY_FIN: Scenario = Scenario {
    name: "impatient-fin",
    title: "gives up after 10 ms (closes), retries 5 times, the 6th waits; the gateway takes 30 ms",
    columns: COLUMNS,
    fails: &[NoKey],
    notes: &[
        "the article: no key 6 orders; Redis only 1 order, 1 timeout; PostgreSQL only 1 order, 3 timeouts",
    ],
    own_redis: false,
    play: Play::InTurn(|run, system| Box::pin(rows(run, system, Leave::Fin))),
};

pub const BY_RST: Scenario = Scenario {
    name: "impatient-rst",
    title: "the same client resets its connection instead: actix drops the handler where it stands",
    columns: COLUMNS,
    fails: &[NoKey, RedisOnly, PostgresOnly, NaiveHybrid],
    notes: &[
        "a handler that is dropped gives nothing back: a place in Redis stays taken for its 60 s, a charge stays charged",
        "ours runs the work in a task of its own, which nobody's connection can end",
    ],
    own_redis: false,
    play: Play::InTurn(|run, system| Box::pin(rows(run, system, Leave::Rst))),
};

#[derive(Debug, Clone, Copy)]
enum Leave {
    Fin,
    Rst,
}

async fn rows(run: &Run, system: System, leave: Leave) -> anyhow::Result<Vec<Outcome>> {
    let trial = Trial::start(run, system, async |_| Ok(())).await?;
    let request = trial.request(GATEWAY_ORDERS, &run.stack.new_key(), &order(1));
    let seen = retry(&trial, &request, leave).await?;
    let timeouts = seen.iter().filter(|word| *word == TIMEOUT).count();
    let cells = vec![counted(&seen), timeouts.to_string()];
    let outcome = Outcome::charged(trial.effects().await?, cells);
    trial.end().await?;
    Ok(vec![outcome])
}

const TIMEOUT: &str = "timeout";

async fn retry(trial: &Trial<'_>, request: &Request, leave: Leave) -> anyhow::Result<Vec<String>> {
    let mut seen = Vec::new();
    for attempt in 1..=ATTEMPTS {
        let mut connection = Connection::open(trial.running().api).await?;
        connection.send(request).await?;
        let answer = if attempt < ATTEMPTS {
            tokio::time::timeout(PATIENCE, connection.read()).await
        } else {
            Ok(connection.read().await)
        };
        match answer {
            Err(_) => {
                seen.push(TIMEOUT.to_owned());
                match leave {
                    Leave::Fin => connection.close(),
                    Leave::Rst => connection.reset(),
                }
            }
            Ok(answer) => {
                seen.push(said(&answer));
                if answer.is_ok_and(|answer| answer.status == 201) {
                    break;
                }
                tokio::time::sleep(PATIENCE).await;
            }
        }
    }
    Ok(seen)
}

/// `timeout ×3, 201`.
fn counted(words: &[String]) -> String {
    words
        .chunk_by(|one, other| one == other)
        .map(|same| if same.len() == 1 { same[0].clone() } else { format!("{} ×{}", same[0], same.len()) })
        .collect::<Vec<_>>()
        .join(", ")
}
