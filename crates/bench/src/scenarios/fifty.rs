//! Fifty requests at once with one key, as fifty workers of a queue that got the same message would send them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use testkit::{Connection, Response};

use super::trial::{GATEWAY_ORDERS, Trial, order, said};
use super::{Outcome, Play, Run, Scenario};
use crate::systems::System::{self, NoKey};

const CLIENTS: usize = 50;
/// How often the database is asked how many connections are busy.
const LOOK_EVERY: Duration = Duration::from_millis(2);

pub const SCENARIO: Scenario = Scenario {
    name: "fifty",
    title: "50 requests at once with one key",
    columns: &["answers", "different orders seen", "connections busy at most"],
    fails: &[NoKey],
    notes: &[
        "the article: no key 50 × 201, 50 orders; Redis only 1 × 201 and 49 × 409; PostgreSQL only 50 × 201 with one id and a \
         connection held by every waiter (here at most the pool's 16)",
    ],
    own_redis: false,
    play: Play::InTurn(|run, system| Box::pin(rows(run, system))),
};

async fn rows(run: &Run, system: System) -> anyhow::Result<Vec<Outcome>> {
    if system != System::OrderService {
        return Ok(vec![row(run, system, None).await?]);
    }
    let reject = row(run, system, None).await?;
    let wait = row(run, system, Some("wait=10")).await?;
    Ok(vec![
        Outcome { label: Some(format!("{system} (reject)")), ..reject },
        Outcome { label: Some(format!("{system} (wait)")), ..wait },
    ])
}

async fn row(run: &Run, system: System, prefer: Option<&str>) -> anyhow::Result<Outcome> {
    let trial = Trial::start(run, system, async |_| Ok(())).await?;
    let mut request = trial.request(GATEWAY_ORDERS, &run.stack.new_key(), &order(1));
    if let Some(prefer) = prefer {
        request = request.header("Prefer", prefer);
    }
    let open = (0..CLIENTS).map(|_| Connection::open(trial.running().api));
    let mut connections = try_join_all(open).await?;
    let mut all = Box::pin(join_all(connections.iter_mut().map(|connection| connection.exchange(&request))));
    let mut busy_at_most = 0;
    let answers = loop {
        tokio::select! {
            answers = &mut all => break answers,
            () = tokio::time::sleep(LOOK_EVERY) => busy_at_most = busy_at_most.max(trial.busy().await?),
        }
    };
    drop(all);
    let ids: BTreeSet<String> = answers
        .iter()
        .flatten()
        .filter(|answer| answer.status == 201)
        .map(|answer| answer.json()["id"].to_string())
        .collect();
    let cells = vec![tally(&answers), ids.len().to_string(), busy_at_most.to_string()];
    let odd = answers
        .iter()
        .filter(|answer| !answer.as_ref().is_ok_and(|answer| [201, 409].contains(&answer.status)));
    let outcome = Outcome::charged(trial.effects().await?, cells)
        .fault_if(odd.count() > 0, "AN ANSWER IS NEITHER 201 NOR 409")
        .fault_if(
            prefer.is_some() && answers.iter().flatten().any(|answer| answer.status != 201),
            "A WAITER WAS TURNED AWAY",
        );
    trial.end().await?;
    Ok(outcome)
}

/// `1 × 201, 49 × 409`; a replay is a 201 like the first.
fn tally(answers: &[io::Result<Response>]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for answer in answers {
        *counts.entry(said(answer)).or_default() += 1;
    }
    counts.iter().map(|(word, count)| format!("{count} × {word}")).collect::<Vec<_>>().join(", ")
}
