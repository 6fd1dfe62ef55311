//! Delivers an event to an endpoint, as Standard Webhooks has it: one POST, bounded in time and size.
//!
//! Knows HTTP and signatures; when to try again is the relay's affair. Invariants: the id and the body of an event are the
//! same in every try; nothing is sent to an address that is not allowed, neither by name nor by redirect nor by proxy.

use std::time::Duration;

use idempotency::relay::{Delivery, Outcome, Sink};
use idempotency::{Database, explain};
use reqwest::{Client, ClientBuilder, StatusCode, redirect, retry};
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;

use super::resolver::Resolver;
use super::signature::SigningKey;
use super::target;

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long one try may take, from the name's look-up to the end of the answer.
const TRY_MAX: Duration = Duration::from_secs(10);
/// How long an idle connection is kept.
const IDLE_MAX: Duration = Duration::from_secs(20);
/// Most bytes of an answer that are read; a longer one costs its connection.
const ANSWER_MAX: usize = 16 * 1024;

/// Where an endpoint is and what it signs with, now; the time is the database's.
const TARGET_SQL: &str = "
SELECT url, secret, CASE WHEN previous_secret_until > now() THEN previous_secret END,
       extract(epoch FROM clock_timestamp())::int8
  FROM webhook_endpoints WHERE id = $1";

/// The service's sink.
#[derive(Debug)]
pub(crate) struct Sender {
    database: Database,
    client: Client,
    private_too: bool,
}

impl Sender {
    /// The error is one line.
    pub(crate) fn new(database: Database, private_too: bool) -> Result<Self, String> {
        // The client asks the process for its TLS provider. A second installation is refused, and the first is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = client(private_too).build().or_else(|error| {
            tracing::warn!(
                error = explain(&error),
                "no certificates of the system: webhooks to https:// will fail"
            );
            client(private_too).tls_certs_only([]).build()
        });
        let client = client.map_err(|error| format!("webhooks cannot be sent: {}", explain(&error)))?;
        Ok(Self { database, client, private_too })
    }

    async fn try_once(&self, delivery: &Delivery) -> Result<StatusCode, String> {
        let rows = self.database.read(TARGET_SQL, &[&delivery.subscriber]).await;
        let rows = rows.map_err(|error| explain(&error))?;
        let row = rows.first().ok_or("the endpoint is gone")?;
        let (url, timestamp): (&str, i64) = (row.get(0), row.get(3));
        let url = target::parse(url)?;
        if !self.private_too && target::is_special(&url) {
            return Err("the URL names an address that webhooks may not go to".to_owned());
        }
        let (id, body) = (delivery.event.to_string(), body(delivery)?);
        let secrets = [row.get::<_, Option<&str>>(1), row.get(2)];
        let keys = secrets.into_iter().flatten().filter_map(SigningKey::parse);
        let signatures: Vec<String> = keys.map(|key| key.sign(&id, timestamp, body.as_bytes())).collect();
        let request = self
            .client
            .post(url)
            .header("content-type", "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", signatures.join(" "))
            .body(body);
        let mut answer = request.send().await.map_err(|error| explain(&error.without_url()))?;
        let status = answer.status();
        let mut read = 0;
        // Read to its end, so that the connection can be used again; what it says is of no interest.
        while let Ok(Some(part)) = answer.chunk().await {
            read += part.len();
            if read > ANSWER_MAX {
                break;
            }
        }
        Ok(status)
    }
}

impl Sink for Sender {
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        match self.try_once(delivery).await {
            Ok(status) if status.is_success() => Outcome::Delivered,
            Ok(StatusCode::GONE) => Outcome::Refused(StatusCode::GONE.to_string()),
            Ok(status) => Outcome::Failed(status.to_string()),
            Err(why) => Outcome::Failed(why),
        }
    }
}

fn client(private_too: bool) -> ClientBuilder {
    Client::builder()
        .connect_timeout(CONNECT_MAX)
        .timeout(TRY_MAX)
        .pool_idle_timeout(IDLE_MAX)
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        // A proxy would look the name up itself, and connect to what it likes.
        .no_proxy()
        .dns_resolver(Resolver { private_too })
        .user_agent(concat!("order-service/", env!("CARGO_PKG_VERSION")))
}

/// The payload: the same bytes for every try, since the database gives the same text.
fn body(delivery: &Delivery) -> Result<String, String> {
    let timestamp = delivery.created_at.format(&Rfc3339).map_err(|error| error.to_string())?;
    let (kind, timestamp) = (json!(delivery.kind), Value::from(timestamp));
    Ok(format!(r#"{{"type":{kind},"timestamp":{timestamp},"data":{}}}"#, delivery.data))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `localhost` stands for any name that leads to a private address: it is refused where it is connected to, and nothing
    /// arrives.
    #[tokio::test]
    async fn a_name_that_leads_to_a_private_address_is_refused_at_the_connection() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://localhost:{}/", listener.local_addr().unwrap().port());
        let post = |private_too| client(private_too).tls_certs_only([]).build().unwrap().post(&url).send();
        let refused = post(false).await.unwrap_err();
        assert!(refused.is_connect() && explain(&refused).contains("no address"), "{}", explain(&refused));
        let arrives = async { tokio::join!(post(true), async { drop(listener.accept().await.unwrap()) }).0 };
        let cut = arrives.await.unwrap_err();
        assert!(
            !explain(&cut).contains("no address"),
            "the first connection is the allowed one's: {}",
            explain(&cut)
        );
    }
}
