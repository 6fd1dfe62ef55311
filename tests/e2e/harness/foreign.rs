//! The foreign service that the probe workflow calls: a ledger of charges behind a socket, which misbehaves on request.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What becomes of a call to charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charging {
    /// Charges, and says so.
    Works,
    Declines,
    /// Charges, and cuts the connection instead of answering.
    ChargesAndCuts,
    /// Cuts the connection without charging.
    Cuts,
}

/// What it says about a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    Tells,
    /// Says that it does not know.
    Shrugs,
}

#[derive(Debug)]
struct Book {
    charging: Charging,
    finding: Finding,
    /// By derived key: what was said for good.
    said: HashMap<String, String>,
    calls: Vec<String>,
    questions: usize,
    under_way: usize,
}

/// The service, for as long as the test lives.
#[derive(Debug, Clone)]
pub struct Foreign {
    pub address: SocketAddr,
    book: Arc<Mutex<Book>>,
    held: Arc<watch::Sender<Option<Hold>>>,
    waiting: Arc<watch::Sender<usize>>,
}

/// Where a call is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    Charge,
    Answer,
    /// Questions, too, can be held.
    Tell,
}

impl Foreign {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let foreign = Self {
            address: listener.local_addr().expect("an address"),
            book: Arc::new(Mutex::new(Book {
                charging: Charging::Works,
                finding: Finding::Tells,
                said: HashMap::new(),
                calls: Vec::new(),
                questions: 0,
                under_way: 0,
            })),
            held: Arc::new(watch::Sender::new(None)),
            waiting: Arc::new(watch::Sender::new(0)),
        };
        let serving = foreign.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = serving.clone();
                tokio::spawn(async move { serving.serve(stream).await });
            }
        });
        foreign
    }

    pub fn charging(&self, charging: Charging) {
        self.book().charging = charging;
    }

    pub fn finding(&self, finding: Finding) {
        self.book().finding = finding;
    }

    /// Holds every call at this point, until [`Foreign::release`].
    pub fn hold(&self, point: Hold) {
        self.held.send_replace(Some(point));
    }

    pub fn release(&self) {
        self.held.send_replace(None);
    }

    /// Returns once a call is held.
    pub async fn reached(&self) {
        let mut waiting = self.waiting.subscribe();
        let reached = waiting.wait_for(|waiting| *waiting > 0);
        tokio::time::timeout(testkit::wait::BOUND, reached).await.expect("a call in time").expect("a call");
    }

    /// Returns once no call is under way.
    pub async fn idle(&self) {
        testkit::until("no call is under way", testkit::wait::BOUND, || async { self.book().under_way == 0 })
            .await;
    }

    /// Charges, one for each derived key that was charged.
    pub fn charges(&self) -> usize {
        self.book().said.values().filter(|said| said.starts_with("done")).count()
    }

    /// The derived keys that were called with, in order.
    pub fn calls(&self) -> Vec<String> {
        self.book().calls.clone()
    }

    pub fn questions(&self) -> usize {
        self.book().questions
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("no panic holds it")
    }

    async fn hold_at(&self, point: Hold) {
        let mut held = self.held.subscribe();
        self.waiting.send_modify(|waiting| *waiting += usize::from(*held.borrow() == Some(point)));
        let was_held = *held.borrow() == Some(point);
        let _ = held.wait_for(|held| *held != Some(point)).await;
        self.waiting.send_modify(|waiting| *waiting -= usize::from(was_held));
    }

    async fn serve(&self, stream: TcpStream) {
        let (read, mut write) = stream.into_split();
        let mut line = String::new();
        if BufReader::new(read).read_line(&mut line).await.is_err() {
            return;
        }
        let answer = match line.trim().split_once(' ') {
            Some(("charge", key)) => {
                self.book().under_way += 1;
                let answer = self.charge(key).await;
                self.book().under_way -= 1;
                answer
            }
            Some(("find", key)) => {
                self.hold_at(Hold::Tell).await;
                Some(self.find(key))
            }
            _ => None,
        };
        if let Some(answer) = answer {
            let _ = write.write_all(format!("{answer}\n").as_bytes()).await;
        }
    }

    async fn charge(&self, key: &str) -> Option<String> {
        self.book().calls.push(key.to_owned());
        self.hold_at(Hold::Charge).await;
        let answer = {
            let mut book = self.book();
            let number = book.said.len() + 1;
            match book.charging {
                Charging::Cuts => None,
                Charging::Declines => {
                    Some(book.said.entry(key.to_owned()).or_insert("declined".to_owned()).clone())
                }
                Charging::Works | Charging::ChargesAndCuts => {
                    let said = book.said.entry(key.to_owned()).or_insert(format!("done c{number}")).clone();
                    (book.charging == Charging::Works).then_some(said)
                }
            }
        };
        self.hold_at(Hold::Answer).await;
        answer
    }

    fn find(&self, key: &str) -> String {
        let mut book = self.book();
        book.questions += 1;
        match (book.finding, book.said.get(key)) {
            (Finding::Shrugs, _) => "unknown".to_owned(),
            (Finding::Tells, None) => "absent".to_owned(),
            (Finding::Tells, Some(said)) => said.clone(),
        }
    }
}
