//! `POST /v1/webhook-endpoints/{id}/rotate-secret`: a new secret, shown once; the old one signs along for a while.

use idempotency::{Abort, Command, Id, Replay, Reply, Tx};
use serde::Deserialize;

use super::ENDPOINT_NOT_FOUND;
use super::register::Registered;
use super::signature::new_secret;
use crate::Shop;

/// How long deliveries carry a signature of the old secret too, in hours.
const OVERLAP_HOURS: i64 = 24;

const ROTATE_SQL: &str = "
UPDATE webhook_endpoints
   SET secret = $3, previous_secret = secret, previous_secret_until = now() + $4 * interval '1 hour'
 WHERE account_id = $1 AND id = $2
RETURNING url";

/// The request: the path names the endpoint, the body is empty.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateSecret {
    id: Id,
}

impl Command for RotateSecret {
    const NAME: &'static str = "webhook_endpoints.rotate_secret";
    const REPLAY: Replay = Replay::Reference;
    type State = Shop;
    type Output = Registered;

    async fn execute(&self, tx: &mut Tx<'_>, _shop: &Shop) -> Result<Reply<Registered>, Abort> {
        let (account, id, secret) = (tx.account().0, self.id.0, new_secret()?);
        let rows = tx.query(ROTATE_SQL, &[&account, &id, &secret, &OVERLAP_HOURS]).await?;
        let Some(row) = rows.first() else {
            return Err(Abort::reject(ENDPOINT_NOT_FOUND, "there is no endpoint with this id"));
        };
        let location = format!("/v1/webhook-endpoints/{id}");
        Ok(Reply::created(location, Registered { id, url: row.get(0), secret }).with_secrets(&["secret"]))
    }
}
