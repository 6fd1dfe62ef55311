//! Events to one URL, signed as Standard Webhooks has it, tried a few times.
//!
//! Deliberately weak, as the world is: an event that finds nobody in its last try, or whose process dies, is lost, and
//! events may come in any order. Invariant: one thing that happened is one event id, and every try has the same body.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::json;
use sha2::Sha256;

use crate::books::Entry;
use crate::objects::now;
use crate::settings::Settings;

/// Tries of one event.
const TRIES: u32 = 5;
/// Pause after the first failed try; it doubles each time.
const PAUSE: Duration = Duration::from_millis(200);
/// The longest that one try may take.
const TRY_MAX: Duration = Duration::from_secs(5);

/// The value of `webhook-signature`: HMAC-SHA256 of `id.timestamp.body`.
#[must_use]
pub fn sign(secret: &[u8], id: &str, timestamp: u64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
    mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

/// Where events go; nowhere if no URL was given.
#[derive(Clone)]
pub(crate) struct Webhooks(Option<Arc<Receiver>>);

struct Receiver {
    client: reqwest::Client,
    url: String,
    secret: Vec<u8>,
    /// Deliveries outlive the request that caused them.
    runtime: tokio::runtime::Handle,
}

impl Webhooks {
    pub(crate) fn new(settings: &Settings) -> anyhow::Result<Self> {
        let Some(url) = settings.webhook_url.clone() else { return Ok(Self(None)) };
        let secret = settings.webhook_secret.as_deref().and_then(|secret| secret.strip_prefix("whsec_"));
        let Some(secret) = secret.and_then(|secret| STANDARD.decode(secret).ok()) else {
            bail!("the webhook secret must be whsec_ and base64");
        };
        // A second provider is refused, and the first one is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = reqwest::Client::builder().timeout(TRY_MAX).redirect(reqwest::redirect::Policy::none());
        // Without TLS no certificates of the system are needed, and a slim image has none.
        let builder = if url.starts_with("http:") { builder.tls_certs_only([]) } else { builder };
        let client = builder.no_proxy().build().context("cannot send webhooks")?;
        let runtime = tokio::runtime::Handle::current();
        Ok(Self(Some(Arc::new(Receiver { client, url, secret, runtime }))))
    }

    /// Sends the event of an entry, in the background.
    pub(crate) fn announce(&self, entry: &Entry) {
        let (Some(receiver), Some((kind, object))) = (&self.0, entry.outcome.event()) else { return };
        let (id, created) = (entry.event.clone(), now());
        let body = json!({"id": id, "object": "event", "type": kind, "created": created, "data": {"object": object}});
        let (receiver, body) = (receiver.clone(), body.to_string());
        receiver.runtime.clone().spawn(async move { receiver.deliver(&id, body).await });
    }
}

impl Receiver {
    async fn deliver(&self, id: &str, body: String) {
        for attempt in 1..=TRIES {
            match self.post(id, body.clone()).await {
                Ok(status) if status.is_success() => return,
                Ok(status) => tracing::debug!(event = id, attempt, %status, "a webhook was not taken"),
                Err(error) => tracing::debug!(event = id, attempt, %error, "a webhook was not sent"),
            }
            if attempt < TRIES {
                tokio::time::sleep(PAUSE * 2_u32.pow(attempt - 1)).await;
            }
        }
        tracing::warn!(event = id, "nobody took this webhook: it is given up");
    }

    async fn post(&self, id: &str, body: String) -> reqwest::Result<reqwest::StatusCode> {
        let timestamp = now();
        let signature = sign(&self.secret, id, timestamp, &body);
        let request = self.client.post(&self.url).header("content-type", "application/json");
        let request = request.header("webhook-id", id).header("webhook-timestamp", timestamp);
        Ok(request.header("webhook-signature", signature).body(body).send().await?.status())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks specification.
    #[test]
    fn signs_as_the_specification_does() {
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = r#"{"test": 2432232314}"#;
        let signature = sign(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
