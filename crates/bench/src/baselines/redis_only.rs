//! Keys in Redis only: `SET NX GET` takes the place with a short time to live, `SET XX` keeps the answer for a day, and an
//! error deletes the key.
//!
//! As the article has it: the name carries the caller and the client's key, the value carries caller and request hash and
//! is checked again. Known faults, which the scenarios show: what Redis forgets is done again, and a place that nobody
//! gives back stays taken until its time is over.

use actix_web::HttpResponse;
use deadpool_redis::redis::{self, Cmd};

use super::answer::{Answer, Failure, Source};
use super::request::Incoming;
use super::server::Worker;
use super::session::Flight;

/// How long an answer is kept, in seconds.
const ANSWER_TTL_S: u64 = 86_400;
const RUNNING: u8 = b'R';
const DONE: u8 = b'D';

pub async fn handle(worker: &Worker, incoming: Incoming) -> Result<HttpResponse, Failure> {
    let name = name(incoming.account, incoming.key()?);
    let running = value(RUNNING, &incoming, &[]);
    let old: Option<Vec<u8>> = worker.line.run(&take(&name, &running, worker.lock_ms)).await?;
    if let Some(old) = old {
        return duplicate(&old, &incoming);
    }
    match incoming.job.alone(incoming.account, &worker.pool, Flight::Together).await {
        Ok(answer) => {
            let done = value(DONE, &incoming, &answer.encode());
            if let Err(error) = worker.line.run::<Option<String>>(&keep(&name, &done)).await {
                eprintln!("the answer could not be kept: {error}");
            }
            Ok(answer.first())
        }
        Err(failure) => {
            let mut delete = redis::cmd("DEL");
            if let Err(error) = worker.line.run::<i64>(delete.arg(&name)).await {
                eprintln!("the place could not be given back: {error}");
            }
            Err(failure)
        }
    }
}

/// The name in Redis.
pub fn name(account: i64, key: &str) -> String {
    format!("idem:v1:{account}:{key}")
}

fn take(name: &str, value: &[u8], lock_ms: u64) -> Cmd {
    let mut command = redis::cmd("SET");
    command.arg(name).arg(value).arg("NX").arg("GET").arg("PX").arg(lock_ms);
    command
}

fn keep(name: &str, value: &[u8]) -> Cmd {
    let mut command = redis::cmd("SET");
    command.arg(name).arg(value).arg("XX").arg("EX").arg(ANSWER_TTL_S);
    command
}

/// State, hash, caller, answer.
fn value(state: u8, incoming: &Incoming, answer: &[u8]) -> Vec<u8> {
    let account = incoming.account.to_string();
    [&[state], incoming.hash().as_bytes(), account.as_bytes(), b"\n", answer].concat()
}

fn duplicate(old: &[u8], incoming: &Incoming) -> Result<HttpResponse, Failure> {
    let expected = value(old.first().copied().unwrap_or_default(), incoming, &[]);
    let answer = old.strip_prefix(expected.as_slice()).ok_or(Failure::Reused)?;
    if old.first() == Some(&RUNNING) {
        return Err(Failure::Running);
    }
    let answer = Answer::decode(answer).ok_or(Failure::Internal("an unreadable value"))?;
    Ok(answer.replayed(Source::Redis))
}
