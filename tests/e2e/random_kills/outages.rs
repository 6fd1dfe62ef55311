//! Takes processes away and brings them back: two replicas of the service, and the payment gateway.
//!
//! An outage is one or more of the three, each killed or stopped, for as many attempts of the clients as the dice say. Invariant: after
//! an outage all three run again.

use std::net::SocketAddr;

use testkit::{Signal, wait};

use super::clients::Shared;
use super::dice::Dice;
use crate::harness::sandbox::Sandbox;
use crate::harness::{App, Replica};

/// An outage lasts for up to two to this power attempts.
const LONGEST: u64 = 8;
/// While nobody answers, an attempt takes all of a client's patience: enough of them for a lease to run out.
const LONGEST_ALONE: u64 = 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Spared,
    Killed,
    Stopped,
}

pub struct Outages {
    replicas: [Replica; 2],
    sandbox: Sandbox,
    dice: Dice,
}

impl Outages {
    pub async fn begin(app: &App, sandbox: Sandbox, dice: Dice) -> Self {
        Self { replicas: [app.new_replica().await, app.new_replica().await], sandbox, dice }
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.replicas.iter().map(|replica| replica.api).collect()
    }

    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    pub async fn one(&mut self, number: usize, app: &App, shared: &Shared) {
        let mut fates = [Fate::Spared; 3];
        while fates == [Fate::Spared; 3] {
            fates = fates.map(|_| match self.dice.below(4) {
                0 => Fate::Killed,
                1 => Fate::Stopped,
                _ => Fate::Spared,
            });
        }
        let (before, mut during) = (self.moment(), self.moment());
        let [first, second, gateway] = fates;
        if ![first, second].contains(&Fate::Spared) {
            during = during.min(LONGEST_ALONE);
        }
        println!(
            "outage {number} after {before} attempts, for {during}: replicas {first:?} and {second:?}, gateway {gateway:?}"
        );
        shared.attempts_end(before).await;
        for (replica, fate) in self.replicas.iter_mut().zip([first, second]) {
            match fate {
                Fate::Spared => {}
                Fate::Stopped => replica.process.signal(Signal::Stop).await.expect("SIGSTOP"),
                Fate::Killed => {
                    replica.process.signal(Signal::Kill).await.expect("SIGKILL");
                    replica.process.wait_exit(wait::BOUND).await;
                }
            }
        }
        match gateway {
            Fate::Spared => {}
            Fate::Stopped => self.sandbox.signal(Signal::Stop).await,
            Fate::Killed => self.sandbox.kill().await,
        }
        shared.attempts_end(during).await;
        match gateway {
            Fate::Spared => {}
            Fate::Stopped => self.sandbox.signal(Signal::Cont).await,
            Fate::Killed => self.sandbox.restart().await,
        }
        for (replica, fate) in self.replicas.iter_mut().zip([first, second]) {
            match fate {
                Fate::Spared => {}
                Fate::Stopped => replica.process.signal(Signal::Cont).await.expect("SIGCONT"),
                Fate::Killed => *replica = app.new_replica().await,
            }
        }
        shared.tell(self.addresses());
    }

    /// How many attempts: short ones are as likely as long ones.
    fn moment(&mut self) -> u64 {
        let longest = 1 << self.dice.below(LONGEST + 1);
        1 + self.dice.below(longest)
    }
}
