//! No protection: every request is new. In turn, it is the handler that most services have; in flights, it is what the
//! work costs at best.

use actix_web::HttpResponse;

use super::answer::Failure;
use super::request::Incoming;
use super::server::Worker;
use super::session::Flight;

pub async fn handle(worker: &Worker, incoming: Incoming, flight: Flight) -> Result<HttpResponse, Failure> {
    let answer = incoming.job.alone(incoming.account, &worker.pool, flight).await?;
    Ok(answer.first())
}
