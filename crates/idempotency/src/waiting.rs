//! Those who wait for a running first, woken in memory.
//!
//! Shared by all workers of a process. Knows keys and outcomes, no store. For each key one of the waiters **leads**: it
//! alone asks the stores, with growing pauses, and what it learns the others are told. Invariants: a waiter holds no
//! connection; whoever leads and leaves hands the lead on; the number of waiters is bounded.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use crate::answer::Answer;
use crate::attempt::Attempt;
use crate::fingerprint::Fingerprint;
use crate::key::{AccountId, IdempotencyKey};
use crate::running::Running;
use crate::telemetry;

/// What became of an attempt, for those who waited for it.
#[derive(Debug)]
pub struct Outcome {
    /// What it asked for: a waiter that asks for something else is told so.
    pub fingerprint: Fingerprint,
    /// Its answer.
    pub answer: Answer,
}

type Key = (AccountId, IdempotencyKey);

#[derive(Debug)]
struct Queue {
    waiters: usize,
    led: bool,
    outcomes: watch::Sender<Option<Arc<Outcome>>>,
    lead_is_free: Arc<Notify>,
}

/// Every waiter of a process.
#[derive(Debug, Clone)]
pub struct Waiting {
    queues: Arc<Mutex<HashMap<Key, Queue>>>,
    /// Beside the map, so that a runner that nobody waits for takes no lock.
    waiters: Arc<AtomicUsize>,
    max: usize,
    running: Running,
}

/// One waiter's place. Dropping it leaves the queue, and hands on the lead.
#[derive(Debug)]
pub struct Place {
    waiting: Waiting,
    key: Key,
    lead_is_free: Arc<Notify>,
    leads: AtomicBool,
}

/// What is published while a waiter has its place.
#[derive(Debug)]
pub struct Outcomes(watch::Receiver<Option<Arc<Outcome>>>);

impl Waiting {
    /// Room for `max` waiters.
    pub fn new(max: usize) -> Self {
        Self { queues: Arc::default(), waiters: Arc::default(), max, running: Running::default() }
    }

    /// What is waited for, as far as this process executes it.
    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    /// Takes a place in the queue of a key, or `None` when there is no room. Take it before asking whether the first is
    /// still running: an outcome that comes in between is then not lost.
    pub fn join(&self, attempt: &Attempt) -> Option<(Place, Outcomes)> {
        if self.waiters.fetch_add(1, Ordering::SeqCst) >= self.max {
            self.waiters.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        let key = (attempt.account, attempt.key.clone());
        let mut queues = self.lock();
        self.tell();
        let queue = queues.entry(key.clone()).or_insert_with(|| Queue {
            waiters: 0,
            led: false,
            outcomes: watch::Sender::new(None),
            lead_is_free: Arc::default(),
        });
        queue.waiters += 1;
        let (outcomes, lead_is_free) = (queue.outcomes.subscribe(), Arc::clone(&queue.lead_is_free));
        drop(queues);
        let place = Place { waiting: self.clone(), key, lead_is_free, leads: AtomicBool::new(false) };
        Some((place, Outcomes(outcomes)))
    }

    /// Tells those who wait for this key what became of the attempt.
    pub fn publish(&self, attempt: &Attempt, answer: &Answer) {
        if self.waiters.load(Ordering::SeqCst) == 0
            || matches!(
                answer,
                Answer::InProgress | Answer::Accepted { .. } | Answer::Reused | Answer::CallerBusy
            )
        {
            return;
        }
        let key = (attempt.account, attempt.key.clone());
        if let Some(queue) = self.lock().get(&key) {
            let outcome = Outcome { fingerprint: attempt.asked.current, answer: answer.clone() };
            queue.outcomes.send_replace(Some(Arc::new(outcome)));
        }
    }

    /// Under the lock, so that the last one to change the number is the last one to tell it.
    fn tell(&self) {
        telemetry::waiters(self.waiters.load(Ordering::SeqCst));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outcomes {
    /// The next one. Cancel-safe.
    pub async fn next(&mut self) -> Arc<Outcome> {
        loop {
            if self.0.changed().await.is_err() {
                // The queue lives as long as the place does: nobody is left to be told.
                return std::future::pending().await;
            }
            if let Some(outcome) = self.0.borrow_and_update().clone() {
                return outcome;
            }
        }
    }
}

impl Place {
    /// Returns once this waiter leads. Cancel-safe.
    pub async fn lead(&self) {
        while !self.try_lead() {
            self.lead_is_free.notified().await;
        }
    }

    fn try_lead(&self) -> bool {
        let mut queues = self.waiting.lock();
        if let Some(queue) = queues.get_mut(&self.key)
            && !queue.led
        {
            queue.led = true;
            self.leads.store(true, Ordering::Relaxed);
        }
        self.leads.load(Ordering::Relaxed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queues = self.waiting.lock();
        if let Some(queue) = queues.get_mut(&self.key) {
            queue.waiters -= 1;
            if *self.leads.get_mut() {
                queue.led = false;
                queue.lead_is_free.notify_one();
            }
            if queue.waiters == 0 {
                queues.remove(&self.key);
            }
        }
        self.waiting.waiters.fetch_sub(1, Ordering::SeqCst);
        self.waiting.tell();
    }
}
