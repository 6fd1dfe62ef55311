//! `POST /v1/webhook-endpoints`: registers where events go. The secret is in the first answer only.

use idempotency::{Abort, Command, Invalid, Replay, Reply, Tx};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::TARGET_FORBIDDEN;
use super::signature::new_secret;
use super::target;
use crate::Shop;

const INSERT_SQL: &str =
    "INSERT INTO webhook_endpoints (id, account_id, url, secret) VALUES ($1, $2, $3, $4)";

/// The request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RegisterEndpoint {
    url: String,
}

/// An endpoint with its secret, the only time that it is shown.
#[derive(Serialize)]
pub(crate) struct Registered {
    pub(super) id: Uuid,
    pub(super) url: String,
    pub(super) secret: String,
}

impl Command for RegisterEndpoint {
    const NAME: &'static str = "webhook_endpoints.register";
    const REPLAY: Replay = Replay::Reference;
    type State = Shop;
    type Output = Registered;

    fn validate(&self) -> Result<(), Invalid> {
        target::parse(&self.url).map(|_| ()).map_err(|reason| Invalid::new("url", reason))
    }

    async fn execute(&self, tx: &mut Tx<'_>, shop: &Shop) -> Result<Reply<Registered>, Abort> {
        let refused = || {
            Abort::reject(TARGET_FORBIDDEN, "the URL names a loopback, private or otherwise special address")
        };
        let url = target::parse(&self.url).map_err(|_| refused())?;
        if !shop.webhooks_may_be_private && target::is_special(&url) {
            return Err(refused());
        }
        let (id, account, url, secret) = (Uuid::now_v7(), tx.account().0, String::from(url), new_secret()?);
        tx.query(INSERT_SQL, &[&id, &account, &url, &secret]).await?;
        let location = format!("/v1/webhook-endpoints/{id}");
        Ok(Reply::created(location, Registered { id, url, secret }).with_secrets(&["secret"]))
    }
}
