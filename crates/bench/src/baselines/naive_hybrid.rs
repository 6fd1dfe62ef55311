//! Keys in both: a Lua script takes a lock in Redis; record, order and COMPLETED are one transaction; then Redis gets the
//! answer for a day.
//!
//! With the faults that the article's code has, which the scenarios show: the release deletes a lock that it may no longer
//! own; the record's primary key is the client's key alone; the request hash is stored and not compared; the answer is
//! jsonb. (The article's sweeper turns old IN_PROGRESS rows into FAILED. Rows of an open transaction are seen by nobody,
//! so there is nothing for it to find, and it is left out.)

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use actix_web::HttpResponse;
use deadpool_redis::redis::{self, Script};
use idempotency::{Param, Query};
use uuid::Uuid;

use super::answer::{Answer, Failure, Source};
use super::perform::prices;
use super::request::Incoming;
use super::server::Worker;
use super::session::{BEGIN, Flight, Session};

/// How long an answer is kept, in seconds.
const ANSWER_TTL_S: u64 = 86_400;

/// Nil: acquired. Else the value that is there: `STARTED` (locked), or `COMPLETED` with the answer.
const ACQUIRE_LUA: &str = "
local value = redis.call('GET', KEYS[1])
if not value then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return value";
static ACQUIRE: LazyLock<Script> = LazyLock::new(|| Script::new(ACQUIRE_LUA));

const STARTED: &[u8] = b"STARTED\n";
const COMPLETED: &[u8] = b"COMPLETED\n";

const LOOK_SQL: &str = "SELECT response_code, response_body::text FROM bench.hybrid_records WHERE idempotency_key = $1 AND status = 'COMPLETED'";

const RECORD_SQL: &str = "
INSERT INTO bench.hybrid_records (idempotency_key, user_id, request_path, request_hash, status)
VALUES ($1, $2, $3, $4, 'IN_PROGRESS')";

const COMPLETE_SQL: &str = "
UPDATE bench.hybrid_records
   SET status = 'COMPLETED', response_code = $2, response_body = $3::text::jsonb, updated_at = now()
 WHERE idempotency_key = $1";

pub async fn handle(worker: &Worker, incoming: Incoming) -> Result<HttpResponse, Failure> {
    let name = name(incoming.account, incoming.key()?);
    // Owner token and creation time are written, and nothing ever compares them.
    let created_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis());
    let started = [STARTED, format!("{}\n{created_ms}", Uuid::new_v4()).as_bytes()].concat();
    let found: Option<Vec<u8>> = worker
        .line
        .evaluate(&ACQUIRE, ACQUIRE_LUA, &name, &[&started, worker.lock_ms.to_string().as_bytes()])
        .await?;
    if let Some(found) = found {
        let answer = found.strip_prefix(COMPLETED).ok_or(Failure::Running)?;
        let answer = Answer::decode(answer).ok_or(Failure::Internal("an unreadable value"))?;
        return Ok(answer.replayed(Source::Redis));
    }
    match look_or_work(worker, &incoming).await {
        Ok((answer, source)) => {
            let value = [COMPLETED, &answer.encode()].concat();
            let mut keep = redis::cmd("SET");
            keep.arg(&name).arg(value).arg("EX").arg(ANSWER_TTL_S);
            if let Err(error) = worker.line.run::<()>(&keep).await {
                eprintln!("the answer could not be kept: {error}");
            }
            Ok(match source {
                Some(source) => answer.replayed(source),
                None => answer.first(),
            })
        }
        Err(failure) => {
            // Whoever's it may be by now.
            let mut delete = redis::cmd("DEL");
            if let Err(error) = worker.line.run::<i64>(delete.arg(&name)).await {
                eprintln!("the lock could not be released: {error}");
            }
            Err(failure)
        }
    }
}

/// The name in Redis.
pub fn name(account: i64, key: &str) -> String {
    format!("idempotency:{account}:{key}")
}

/// The committed answer (of this key, whoever's it is), or that of the work.
async fn look_or_work(worker: &Worker, incoming: &Incoming) -> Result<(Answer, Option<Source>), Failure> {
    let (account, key) = (incoming.account, incoming.key()?);
    let mut session = Session::take(&worker.pool, Flight::Together).await?;
    let skus = incoming.job.early_skus();
    let (look, skus_param): ([&dyn Param; 1], _) =
        ([&key], skus.as_ref().map(|skus| -> [&dyn Param; 1] { [skus] }));
    let mut opening = vec![BEGIN, Query { sql: LOOK_SQL, params: &look }];
    opening.extend(skus_param.as_ref().map(prices));
    let mut rows = session.fly(&opening).await?;
    if let Some(row) = rows[1].first() {
        let (status, body): (i16, String) = (row.get(0), row.get(1));
        let answer = Answer { status: u16::try_from(status).unwrap_or(500), body: body.into_bytes() };
        return Ok((answer, Some(Source::Postgres)));
    }
    let products = skus.is_some().then(|| rows.pop().unwrap_or_default());
    let record = Query { sql: RECORD_SQL, params: &[&key, &account, &incoming.path, &incoming.hash()] };
    let performed = incoming.job.within(account, &mut session, &[record], products).await?;
    let (code, body) = (i16::try_from(performed.answer.status).unwrap_or(500), performed.answer.body.clone());
    let body = String::from_utf8(body).map_err(|_| Failure::Internal("JSON is UTF-8"))?;
    let complete = Query { sql: COMPLETE_SQL, params: &[&key, &code, &body] };
    Ok((performed.commit(&mut session, &[complete]).await?, None))
}
