//! The open loop: requests at a fixed rate, whatever their answers take.
//!
//! Each is timed from when it was due, so a server that stalls is charged for everybody who had to wait, not only for the
//! one whom it kept. The calling thread is the clock (a sleep of its own is exact to some ten microseconds, a runtime's
//! timer to a millisecond); requests go out from another. Invariant: no request waits for another one's connection.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::client::Connection;
use super::closed::Target;
use super::tally::Tally;

/// Older idle connections are not used again: the server may be about to close them (actix: after 5 s).
const IDLE_MAX: Duration = Duration::from_secs(2);
/// How long the answers to the last requests may take.
const LAST_ANSWERS_MAX: Duration = Duration::from_secs(30);

/// One open loop of fresh requests.
#[derive(Debug, Clone)]
pub struct OpenLoad {
    pub target: Target,
    /// Requests per second.
    pub rate: u32,
    /// How long requests become due.
    pub lasting: Duration,
}

impl OpenLoad {
    /// Runs it; blocks until everything is answered.
    ///
    /// # Errors
    /// When `whose` server cannot be reached, or gives any other answer than the expected one.
    pub fn run(self, whose: &str) -> anyhow::Result<Tally> {
        let (due, dues) = mpsc::unbounded_channel();
        let (every, count) =
            (Duration::from_secs(1) / self.rate, self.rate as f64 * self.lasting.as_secs_f64());
        let generator = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(self.generate(dues))
        });
        let began = Instant::now();
        for number in 0..count as u32 {
            let next = began + every * number;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            // The generator has ended when it failed; why, it says itself.
            if due.send(next).is_err() {
                break;
            }
        }
        drop(due);
        let tally = generator.join().map_err(|_| anyhow::anyhow!("the load generator panicked"))?;
        tally.with_context(|| format!("load on {whose}"))?.checked(whose)
    }

    async fn generate(self, mut dues: mpsc::UnboundedReceiver<Instant>) -> anyhow::Result<Tally> {
        let Target { addresses, mut templates, keys, expected } = self.target;
        let mut tally = Tally::over(self.lasting);
        let (mut keys, mut running) = (keys.reseeded(), JoinSet::new());
        let mut idle: Vec<Vec<(Connection, Instant)>> = addresses.iter().map(|_| Vec::new()).collect();
        let mut number = 0;
        while let Some(due) = dues.recv().await {
            while let Some(ended) = running.try_join_next() {
                let (to, connection) = take_up(ended?, expected, &mut tally);
                idle[to].extend(connection.map(|connection| (connection, Instant::now())));
            }
            let to = number % addresses.len();
            number += 1;
            let template = keys.below(templates.len());
            let request = templates[template].with_key(keys.next()).to_vec();
            // The one that was used last is the youngest: if it is too old, all are.
            let young = idle[to].pop().filter(|(_, since)| since.elapsed() < IDLE_MAX);
            let (connection, address) = (young.map(|(connection, _)| connection), addresses[to]);
            running.spawn(async move { (to, send(connection, address, &request, due).await) });
        }
        let last = tokio::time::Instant::now() + LAST_ANSWERS_MAX;
        while let Some(ended) =
            tokio::time::timeout_at(last, running.join_next()).await.context("an answer never came")?
        {
            take_up(ended?, expected, &mut tally);
        }
        Ok(tally)
    }
}

/// One exchange: what came, and the connection if it can be used again.
struct Sent {
    status: u16,
    body: Vec<u8>,
    took: Duration,
    connection: Option<Connection>,
}

async fn send(
    connection: Option<Connection>,
    address: SocketAddr,
    request: &[u8],
    due: Instant,
) -> std::io::Result<Sent> {
    let mut connection = match connection {
        Some(idle) => idle,
        None => Connection::open(address).await?,
    };
    let answer = connection.exchange(request).await?;
    let took = due.elapsed();
    let (status, closes) = (answer.status, answer.closes);
    // Only an answer that has to be shown is kept.
    let body = if status < 300 { Vec::new() } else { answer.body.to_vec() };
    Ok(Sent { status, body, took, connection: (!closes).then_some(connection) })
}

fn take_up(
    (to, sent): (usize, std::io::Result<Sent>),
    expected: u16,
    tally: &mut Tally,
) -> (usize, Option<Connection>) {
    match sent {
        Ok(sent) if sent.status == expected => {
            tally.expected(sent.status, sent.took);
            (to, sent.connection)
        }
        Ok(sent) => {
            tally.unexpected(sent.status, &sent.body);
            (to, sent.connection)
        }
        Err(error) => {
            tally.unexpected(0, error.to_string().as_bytes());
            (to, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Keys, Template, stub};

    fn load(address: SocketAddr) -> OpenLoad {
        let target = Target {
            addresses: vec![address],
            templates: vec![Template::post("/v1/orders", "osk_x", "{}")],
            keys: Keys::marked(1),
            expected: 201,
        };
        OpenLoad { target, rate: 200, lasting: Duration::from_millis(250) }
    }

    #[test]
    fn as_many_are_sent_as_become_due_each_with_its_own_key() {
        let server = stub::Server::start(|_| (201, "{}"));
        let tally = load(server.address()).run("stub").unwrap();
        assert_eq!(tally.latencies.len(), 50);
        assert_eq!(server.keys().iter().collect::<std::collections::HashSet<_>>().len(), 50);
    }

    #[test]
    fn another_status_and_no_server_make_it_invalid() {
        let server = stub::Server::start(|_| (409, "running"));
        assert!(load(server.address()).run("stub").unwrap_err().to_string().contains("409: running"));
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(load(nobody).run("stub").unwrap_err().to_string().contains("no answer"));
    }
}
