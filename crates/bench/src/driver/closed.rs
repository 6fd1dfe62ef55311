//! The closed loop: so many connections, each sends its next request when it has the answer to the last.
//!
//! It runs on a thread of its own, so that nothing but requests is between two requests; the calling thread looks at the
//! clock and at `/proc`. Deliberately unknown: systems, rounds, ratios. Invariant: what is counted was completed between
//! two looks at the CPU times, on connections that were open and busy before the first.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::client::Connection;
use super::cpu::{Cpu, Processes};
use super::request::{Keys, Template};
use super::tally::Tally;

/// How long everything before and after the window may take: connecting, the last answers.
const EDGES_MAX: Duration = Duration::from_secs(60);

/// Who is asked, and for what.
#[derive(Debug, Clone)]
pub struct Target {
    /// Every replica; connections are dealt out in turn.
    pub addresses: Vec<SocketAddr>,
    /// What to send: one of these is drawn for each new key.
    pub templates: Vec<Template>,
    pub keys: Keys,
    /// The one status that is right.
    pub expected: u16,
}

/// A request that was made before: which template, under which key.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    template: usize,
    key: Uuid,
}

/// What each connection sends.
#[derive(Debug, Clone)]
pub enum Kind {
    /// A new key for each request.
    Fresh,
    /// These again, in turn; each connection begins at another place.
    Replays(Arc<[Known]>),
}

/// One closed loop.
#[derive(Debug, Clone)]
pub struct Load {
    pub target: Target,
    pub connections: usize,
    pub kind: Kind,
    /// Under load, not counted.
    pub lead_in: Duration,
    /// Under load, counted.
    pub window: Duration,
}

/// What one closed loop saw.
#[derive(Debug, Clone)]
pub struct Slice {
    pub tally: Tally,
    /// Used within the window.
    pub cpu: Cpu,
}

impl Target {
    /// Makes so many orders, one after the other, to be replayed later.
    ///
    /// # Errors
    /// When one of them is not answered as expected.
    pub async fn order(&self, count: usize) -> anyhow::Result<Arc<[Known]>> {
        let mut worker = Worker::open(self.clone(), 0).await?;
        let drawn: Vec<Known> = (0..count).map(|_| worker.draw()).collect();
        worker.send_all(&drawn).await?;
        Ok(drawn.into())
    }

    /// Sends these once more, one after the other.
    ///
    /// # Errors
    /// When one of them is not answered as expected.
    pub async fn replay(&self, known: &[Known]) -> anyhow::Result<()> {
        Worker::open(self.clone(), 0).await?.send_all(known).await
    }
}

impl Load {
    /// Runs it; blocks for lead-in and window.
    ///
    /// # Errors
    /// When `whose` server cannot be reached, or gives any other answer than the expected one.
    pub fn run(self, whose: &str, processes: &Processes) -> anyhow::Result<Slice> {
        let (window, (starting, started)) = (self.window, mpsc::channel());
        let generator = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(self.generate(starting))
        });
        // Nothing comes when the connections could not be opened; why, the generator says itself.
        let looks = started.recv().ok().map(|start: Instant| {
            let look_at = |time: Instant| {
                std::thread::sleep(time.saturating_duration_since(Instant::now()));
                processes.cpu()
            };
            let before = look_at(start)?;
            anyhow::Ok(look_at(start + window)? - before)
        });
        let tally = generator.join().map_err(|_| anyhow::anyhow!("the load generator panicked"))?;
        let tally = tally.with_context(|| format!("load on {whose}"))?.checked(whose)?;
        let cpu = looks.context("the load never started")??;
        Ok(Slice { tally, cpu })
    }

    async fn generate(self, starting: mpsc::Sender<Instant>) -> anyhow::Result<Tally> {
        let opening = tokio::time::timeout(EDGES_MAX, self.open());
        let workers = opening.await.context("connections are not open in time")??;
        let start = Instant::now() + self.lead_in;
        let end = start + self.window;
        let mut running = JoinSet::new();
        for worker in workers {
            running.spawn(worker.run(start, end));
        }
        starting.send(start).context("nobody looks at the clock")?;
        let last = tokio::time::Instant::from_std(end) + EDGES_MAX;
        let mut all = Tally::over(self.window);
        while let Some(one) =
            tokio::time::timeout_at(last, running.join_next()).await.context("an answer never came")?
        {
            all.merge(&one?);
        }
        Ok(all)
    }

    async fn open(&self) -> anyhow::Result<Vec<Worker>> {
        let mut workers = Vec::with_capacity(self.connections);
        for index in 0..self.connections {
            let mut worker = Worker::open(self.target.clone(), index).await?;
            if let Kind::Replays(known) = &self.kind {
                worker.turn = index * known.len() / self.connections;
                worker.known = Arc::clone(known);
            }
            workers.push(worker);
        }
        Ok(workers)
    }
}

/// One connection.
struct Worker {
    connection: Connection,
    address: SocketAddr,
    target: Target,
    known: Arc<[Known]>,
    turn: usize,
}

impl Worker {
    async fn open(mut target: Target, index: usize) -> anyhow::Result<Self> {
        // A sequence of its own: a clone's would be that of whoever was cloned.
        target.keys = target.keys.reseeded();
        let address = target.addresses[index % target.addresses.len()];
        let connection = Connection::open(address).await?;
        Ok(Self { connection, address, target, known: Arc::new([]), turn: 0 })
    }

    fn draw(&mut self) -> Known {
        Known { template: self.target.keys.below(self.target.templates.len()), key: self.target.keys.next() }
    }

    fn next(&mut self) -> Known {
        if self.known.is_empty() {
            return self.draw();
        }
        self.turn += 1;
        self.known[self.turn % self.known.len()]
    }

    async fn send_all(&mut self, requests: &[Known]) -> anyhow::Result<()> {
        let expected = self.target.expected;
        for request in requests {
            let answer = self.ask(*request).await?;
            let (status, body) = (answer.status, String::from_utf8_lossy(answer.body));
            anyhow::ensure!(status == expected, "an order that is to be replayed: {status}: {body}");
        }
        Ok(())
    }

    async fn ask(&mut self, next: Known) -> std::io::Result<super::client::Answer<'_>> {
        self.connection.exchange(self.target.templates[next.template].with_key(next.key)).await
    }

    async fn run(mut self, start: Instant, end: Instant) -> Tally {
        let mut tally = Tally::default();
        let expected = self.target.expected;
        loop {
            let next = self.next();
            let sent = Instant::now();
            if sent >= end {
                return tally;
            }
            let answer = match self.ask(next).await {
                Ok(answer) => answer,
                Err(error) => {
                    tally.unexpected(0, error.to_string().as_bytes());
                    return tally;
                }
            };
            let done = Instant::now();
            if answer.status != expected {
                tally.unexpected(answer.status, answer.body);
                return tally;
            }
            if done >= start && done <= end {
                tally.expected(expected, done - sent);
            }
            if answer.closes {
                match Connection::open(self.address).await {
                    Ok(connection) => self.connection = connection,
                    Err(error) => {
                        tally.unexpected(0, error.to_string().as_bytes());
                        return tally;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::driver::stub;

    fn target(server: &stub::Server) -> Target {
        Target {
            addresses: vec![server.address()],
            templates: vec![Template::post("/v1/orders", "osk_x", "{}")],
            keys: Keys::marked(1),
            expected: 201,
        }
    }

    fn load(target: Target, kind: Kind) -> Load {
        let (lead_in, window) = (Duration::from_millis(20), Duration::from_millis(100));
        Load { target, connections: 3, kind, lead_in, window }
    }

    fn this_process() -> Processes {
        Processes { services: vec![std::process::id()], ..Processes::default() }
    }

    #[test]
    fn counts_what_was_answered_within_the_window_and_no_key_twice() {
        let server = stub::Server::start(|_| (201, "{}"));
        let slice = load(target(&server), Kind::Fresh).run("stub", &this_process()).unwrap();
        let (counted, keys) = (slice.tally.latencies.len(), server.keys());
        assert!(counted > 0 && counted < keys.len() as u64, "the lead-in is not counted");
        assert_eq!(slice.tally.statuses.get(&201), Some(&counted));
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn replays_send_the_known_keys_and_no_others() {
        let server = stub::Server::start(|_| (201, "{}"));
        let target = target(&server);
        target.order(4).await.unwrap();
        let made_before: HashSet<String> = server.keys().into_iter().collect();
        let known = target.order(4).await.unwrap();
        let made = server.keys();
        assert!(made[4..].iter().all(|key| !made_before.contains(key)), "each time new orders");
        load(target, Kind::Replays(known)).run("stub", &this_process()).unwrap();
        let keys = server.keys();
        assert_eq!(keys[8..].iter().collect::<HashSet<_>>(), made[4..].iter().collect());
    }

    #[test]
    fn another_status_makes_it_invalid() {
        let server =
            stub::Server::start(|sent| if sent < 20 { (201, "{}") } else { (503, "no connection left") });
        let fault = load(target(&server), Kind::Fresh).run("stub", &this_process()).unwrap_err().to_string();
        assert!(fault.contains("stub") && fault.contains("503: no connection left"), "{fault}");
    }
}
