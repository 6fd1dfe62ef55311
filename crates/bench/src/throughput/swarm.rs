//! Many clients that send one key until it is answered, and then the next one: the duplicates of a storm.
//!
//! On a thread of their own, so that they delay nobody whom we time; as lean as the load generator, since a storm of clients
//! would otherwise be felt more than the service. Clients share no clock: they come in one after the other within the time
//! after which each sends again. Deliberately unknown: what is slow about the order. Invariant: all clients of one key end
//! with the same bytes, or the swarm fails.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::driver::{Connection, Keys, Template};

/// How long a client waits before it sends again.
const RETRY_EVERY: Duration = Duration::from_millis(100);
/// The longest that one key may take until every client has its answer.
const KEY_MAX: Duration = Duration::from_secs(60);

/// What was sent and what came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Keys, each sent by every client.
    pub keys: u64,
    /// Requests, the first of each key among them.
    pub requests: u64,
    /// Of these, told to come again (409 or 503).
    pub refused: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Rest,
    Storm,
    End,
}

/// Clients, at rest or storming.
pub struct Swarm {
    orders: watch::Sender<Order>,
    resting: watch::Receiver<bool>,
    thread: JoinHandle<anyhow::Result<Sent>>,
}

impl Swarm {
    /// They rest at first.
    pub fn start(
        addresses: &[SocketAddr],
        clients: usize,
        template: Template,
        keys: Keys,
    ) -> anyhow::Result<Self> {
        let (orders, told) = watch::channel(Order::Rest);
        let (rests, resting) = watch::channel(true);
        let addresses = addresses.to_vec();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::spawn(move || {
            runtime.block_on(live(&addresses, clients, &template, keys, told, &rests))
        });
        Ok(Self { orders, resting, thread })
    }

    /// Sends the first key.
    pub fn begin(&self) {
        self.orders.send_replace(Order::Storm);
    }

    /// No further key; returns when every client has the answer to the last.
    pub async fn pause(&self) -> anyhow::Result<()> {
        self.orders.send_replace(Order::Rest);
        let mut resting = self.resting.clone();
        // An error means that the swarm has failed, which `end` tells.
        let _ = tokio::time::timeout(KEY_MAX, resting.wait_for(|rests| *rests))
            .await
            .context("the storm goes on")?;
        Ok(())
    }

    /// What it did, or why it failed.
    pub async fn end(self) -> anyhow::Result<Sent> {
        self.orders.send_replace(Order::End);
        let ended = tokio::task::spawn_blocking(move || self.thread.join()).await?;
        ended.map_err(|_| anyhow::anyhow!("the duplicates' clients panicked"))?
    }
}

async fn live(
    addresses: &[SocketAddr],
    clients: usize,
    template: &Template,
    mut keys: Keys,
    mut told: watch::Receiver<Order>,
    rests: &watch::Sender<bool>,
) -> anyhow::Result<Sent> {
    let (requests, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let new_client = |index: usize| Client {
        address: addresses[index % addresses.len()],
        connection: None,
        template: template.clone(),
        requests: Arc::clone(&requests),
        refused: Arc::clone(&refused),
    };
    let mut idle: Vec<Client> = (0..clients).map(new_client).collect();
    let mut sent = Sent::default();
    loop {
        match *told.borrow_and_update() {
            Order::End => break,
            Order::Rest => {
                // A server closes what is idle for long; the next storm connects anew.
                idle.iter_mut().for_each(|client| client.connection = None);
                rests.send_replace(true);
            }
            Order::Storm => {
                rests.send_replace(false);
                idle = storm(idle, keys.next()).await?;
                sent.keys += 1;
                continue;
            }
        }
        told.changed().await.context("nobody gives orders")?;
    }
    Ok(Sent { requests: requests.load(Ordering::Relaxed), refused: refused.load(Ordering::Relaxed), ..sent })
}

/// Every client sends this key until it is answered.
async fn storm(clients: Vec<Client>, key: Uuid) -> anyhow::Result<Vec<Client>> {
    let mut storming = JoinSet::new();
    let between = RETRY_EVERY / u32::try_from(clients.len())?.max(1);
    for (index, client) in (0_u32..).zip(clients) {
        storming.spawn(async move {
            tokio::time::sleep(between * index).await;
            client.until_answered(key).await
        });
    }
    let (mut back, mut first) = (Vec::with_capacity(storming.len()), None::<Vec<u8>>);
    let all = async {
        while let Some(ended) = storming.join_next().await {
            let (client, body) = ended??;
            let first = first.get_or_insert_with(|| body.clone());
            anyhow::ensure!(*first == body, "two answers to one key: {first:?} and {body:?}");
            back.push(client);
        }
        Ok(back)
    };
    tokio::time::timeout(KEY_MAX, all).await.context("a duplicate was never answered")?
}

struct Client {
    address: SocketAddr,
    connection: Option<Connection>,
    template: Template,
    requests: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
}

impl Client {
    async fn until_answered(mut self, key: Uuid) -> anyhow::Result<(Self, Vec<u8>)> {
        loop {
            let connection = match &mut self.connection {
                Some(open) => open,
                none => none.insert(Connection::open(self.address).await?),
            };
            let Ok(answer) = connection.exchange(self.template.with_key(key)).await else {
                // The server has closed it meanwhile: as every client does, again on a new one.
                self.connection = None;
                continue;
            };
            self.requests.fetch_add(1, Ordering::Relaxed);
            let closes = answer.closes;
            match answer.status {
                201 => {
                    let body = answer.body.to_vec();
                    return Ok((self, body));
                }
                409 | 503 => self.refused.fetch_add(1, Ordering::Relaxed),
                status => anyhow::bail!("a duplicate: {status}: {}", String::from_utf8_lossy(answer.body)),
            };
            if closes {
                self.connection = None;
            }
            tokio::time::sleep(RETRY_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::stub;

    fn template() -> Template {
        Template::post("/v1/orders", "osk_x", "{}")
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn everybody_gets_the_answer_of_each_key_and_rests_when_told() {
        let server = stub::Server::start(|sent| if sent <= 5 { (409, "running") } else { (201, "{}") });
        let swarm = Swarm::start(&[server.address()], 4, template(), Keys::marked(1)).unwrap();
        swarm.begin();
        testkit::until("two keys were sent", testkit::wait::BOUND, || async {
            server.keys().iter().collect::<std::collections::HashSet<_>>().len() >= 2
        })
        .await;
        swarm.pause().await.unwrap();
        let sent = swarm.end().await.unwrap();
        assert!(sent.keys >= 2 && sent.requests == server.keys().len() as u64, "{sent:?}");
        assert_eq!((sent.refused, sent.requests), (5, sent.keys * 4 + 5));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn two_answers_to_one_key_are_a_failure() {
        let server = stub::Server::start(|sent| if sent % 2 == 0 { (201, "a") } else { (201, "b") });
        let swarm = Swarm::start(&[server.address()], 2, template(), Keys::marked(1)).unwrap();
        swarm.begin();
        testkit::until("both were answered", testkit::wait::BOUND, || async { server.keys().len() >= 2 })
            .await;
        assert!(swarm.end().await.unwrap_err().to_string().contains("two answers to one key"));
    }
}
