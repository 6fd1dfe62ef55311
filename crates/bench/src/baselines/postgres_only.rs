//! Keys in PostgreSQL only: `INSERT ON CONFLICT DO NOTHING` in the order's transaction. A duplicate blocks on the row until
//! the first one commits, and then replays its answer.
//!
//! Known faults, which the scenarios show: every waiting duplicate holds a connection, and an answer that was kept as jsonb
//! does not come back byte for byte.

use actix_web::HttpResponse;
use idempotency::{Param, Query};
use tokio_postgres::Row;

use super::answer::{Answer, Failure, Source};
use super::perform::prices;
use super::request::Incoming;
use super::server::Worker;
use super::session::{BEGIN, Flight, Session};

const TAKE_SQL: &str = "
INSERT INTO bench.answers (account_id, idempotency_key, request_hash) VALUES ($1, $2, $3)
ON CONFLICT (account_id, idempotency_key) DO NOTHING
RETURNING true";

const LOOK_SQL: &str = "
SELECT request_hash::text, response_code, response_body::text FROM bench.answers
 WHERE account_id = $1 AND idempotency_key = $2";

const KEEP_SQL: &str = "
UPDATE bench.answers SET response_code = $3, response_body = $4::text::jsonb
 WHERE account_id = $1 AND idempotency_key = $2";

pub async fn handle(worker: &Worker, incoming: Incoming) -> Result<HttpResponse, Failure> {
    let (account, key) = (incoming.account, incoming.key()?);
    let mut session = Session::take(&worker.pool, Flight::Together).await?;
    // The look-up rides along: it sees what was committed while the INSERT waited, since each statement looks anew.
    let hash = incoming.hash();
    let (take, look): ([&dyn Param; 3], [&dyn Param; 2]) = ([&account, &key, &hash], [&account, &key]);
    let mut opening =
        vec![BEGIN, Query { sql: TAKE_SQL, params: &take }, Query { sql: LOOK_SQL, params: &look }];
    let skus = incoming.job.early_skus();
    let skus_param = skus.as_ref().map(|skus| -> [&dyn Param; 1] { [skus] });
    opening.extend(skus_param.as_ref().map(prices));
    let mut rows = session.fly(&opening).await?;
    let products = skus.is_some().then(|| rows.pop().unwrap_or_default());
    if rows[1].is_empty() {
        let first = rows[2].first().ok_or(Failure::Internal("a conflict without a row"))?;
        return replay(first, &incoming);
    }
    let performed = incoming.job.within(account, &mut session, &[], products).await?;
    let (code, body) = (i16::try_from(performed.answer.status).unwrap_or(500), performed.answer.body.clone());
    let body = String::from_utf8(body).map_err(|_| Failure::Internal("JSON is UTF-8"))?;
    let keep = Query { sql: KEEP_SQL, params: &[&account, &key, &code, &body] };
    Ok(performed.commit(&mut session, &[keep]).await?.first())
}

fn replay(first: &Row, incoming: &Incoming) -> Result<HttpResponse, Failure> {
    if first.get::<_, &str>(0) != incoming.hash() {
        return Err(Failure::Reused);
    }
    let (status, body): (Option<i16>, Option<String>) = (first.get(1), first.get(2));
    let answer = status.zip(body).ok_or(Failure::Internal("a committed row without an answer"))?;
    let answer = Answer { status: u16::try_from(answer.0).unwrap_or(500), body: answer.1.into_bytes() };
    Ok(answer.replayed(Source::Postgres))
}
