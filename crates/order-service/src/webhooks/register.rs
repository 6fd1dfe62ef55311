//! `POST /v1/webhook-endpoints`: registers where events go. The secret is in the first answer only.

use base64::Engine as _;
use idempotency::{Abort, Command, Invalid, Replay, Reply, Tx};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::TARGET_FORBIDDEN;
use super::target;
use crate::Shop;

const INSERT_SQL: &str =
    "INSERT INTO webhook_endpoints (id, account_id, url, secret) VALUES ($1, $2, $3, $4)";
/// Random bytes of a secret.
const SECRET_LEN: usize = 24;

/// The request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RegisterEndpoint {
    url: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Registered {
    id: Uuid,
    url: String,
    secret: String,
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
        let mut random = [0_u8; SECRET_LEN];
        getrandom::fill(&mut random)?;
        let secret = format!("whsec_{}", base64::engine::general_purpose::STANDARD.encode(random));
        let (id, account, url) = (Uuid::now_v7(), tx.account().0, String::from(url));
        tx.query(INSERT_SQL, &[&id, &account, &url, &secret]).await?;
        let location = format!("/v1/webhook-endpoints/{id}");
        Ok(Reply::created(location, Registered { id, url, secret }).with_secrets(&["secret"]))
    }
}
