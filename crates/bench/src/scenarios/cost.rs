//! What a new request and a replay cost: 200 new orders one after the other, then the same 200 again.
//!
//! The systems are asked side by side, request by request, so that whatever else the machine does meets all of them.

use std::time::Instant;

use testkit::{Connection, Request};

use super::trial::{GATEWAY_ORDERS, ORDERS, Trial, order};
use super::{Outcome, Play, Played, Run, Scenario};
use crate::systems::System::{self, NoKey};

const ORDERS_OF_A_ROUND: usize = 200;
const ORDERS_OF_A_QUICK_ROUND: usize = 40;

pub const SCENARIO: Scenario = Scenario {
    name: "cost",
    title: "200 new orders, then the same 200 again, one after the other; p50 (40 with --quick)",
    columns: &["new, p50 ms", "again, p50 ms", "new without the gateway, p50 ms"],
    fails: &[NoKey],
    notes: &[
        "the article: no key 33.88 / 34.16 ms and 400 orders; Redis only 34.57 / 0.22; PostgreSQL only 34.45 / 0.28 ms",
        "compare within a column, not with other machines; the third one is a round of its own, not counted in the orders; \
         no-key awaits its six statements in turn, all others send theirs in three or four flights",
    ],
    own_redis: false,
    play: Play::SideBySide(|run| Box::pin(rows(run))),
};

/// One system's connection, and the requests of its first two rounds.
struct Lane<'a> {
    trial: Trial<'a>,
    connection: Connection,
    requests: Vec<Request>,
}

async fn rows(run: &Run) -> anyhow::Result<Played> {
    let count = if run.quick { ORDERS_OF_A_QUICK_ROUND } else { ORDERS_OF_A_ROUND };
    let mut lanes = Vec::new();
    for system in System::COMPARED {
        let trial = Trial::start(run, system, async |_| Ok(())).await?;
        let connection = Connection::open(trial.running().api).await?;
        let requests = requests(run, &trial, GATEWAY_ORDERS, count);
        lanes.push(Lane { trial, connection, requests });
    }
    let (new, again) = (round(&mut lanes).await?, round(&mut lanes).await?);
    let mut effects = Vec::new();
    for lane in &mut lanes {
        effects.push(lane.trial.effects().await?);
        lane.requests = requests(run, &lane.trial, ORDERS, count);
    }
    let alone = round(&mut lanes).await?;
    let mut played = Vec::new();
    for (index, lane) in lanes.into_iter().enumerate() {
        let cells = [&new, &again, &alone].map(|p50| format!("{:.2}", p50[index])).to_vec();
        let outcome = Outcome { intents: i64::try_from(count)?, ..Outcome::charged(effects[index], cells) };
        played.push((lane.trial.system, vec![outcome]));
        lane.trial.end().await?;
    }
    Ok(played)
}

fn requests(run: &Run, trial: &Trial<'_>, path: &str, count: usize) -> Vec<Request> {
    (0..count).map(|_| trial.request(path, &run.stack.new_key(), &order(1))).collect()
}

/// Sends every lane's requests, the lanes taking turns at being first; returns the median of each, in ms. Every answer must
/// be 201.
async fn round(lanes: &mut [Lane<'_>]) -> anyhow::Result<Vec<f64>> {
    let mut times = vec![Vec::new(); lanes.len()];
    for number in 0..lanes[0].requests.len() {
        for turn in 0..lanes.len() {
            let index = (number + turn) % lanes.len();
            let lane = &mut lanes[index];
            let began = Instant::now();
            let answer = lane.connection.exchange(&lane.requests[number]).await?;
            times[index].push(began.elapsed().as_secs_f64() * 1000.0);
            anyhow::ensure!(answer.status == 201, "{}: {}", lane.trial.system, answer.text());
        }
    }
    Ok(times.into_iter().map(median).collect())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
