//! CPU time by process, from `/proc`: what a request costs where.
//!
//! A server's time is that of its whole tree: PostgreSQL works in a process for each connection, Redis forks to rewrite its
//! file. What a child used before it ended is its parent's from then on, so nothing is lost and the sum only grows.
//! Deliberately unknown: what the processes do. Resolution: one tick, 10 ms, for each process.

use std::collections::HashMap;
use std::ops::Sub;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

/// Linux tells times in hundredths of a second, whatever the kernel's own clock is.
const TICKS_PER_SECOND: u64 = 100;

/// Which processes are what.
#[derive(Debug, Clone, Default)]
pub struct Processes {
    /// Every replica of the service.
    pub services: Vec<u32>,
    /// The postmaster, if it is on this machine and known.
    pub postgresql: Option<u32>,
    pub redis: Option<u32>,
}

/// CPU time used so far, or between two looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cpu {
    pub service: Duration,
    pub postgresql: Option<Duration>,
    pub redis: Option<Duration>,
}

impl Sub for Cpu {
    type Output = Cpu;

    fn sub(self, earlier: Cpu) -> Cpu {
        let since = |now: Option<Duration>, then: Option<Duration>| Some(now?.saturating_sub(then?));
        Cpu {
            service: self.service.saturating_sub(earlier.service),
            postgresql: since(self.postgresql, earlier.postgresql),
            redis: since(self.redis, earlier.redis),
        }
    }
}

impl Processes {
    /// Looks at all of them.
    ///
    /// # Errors
    /// Where there is no `/proc`, or one of them has ended.
    pub fn cpu(&self) -> anyhow::Result<Cpu> {
        let all = Table::read()?;
        let time = |pid: u32| {
            let ticks = all.ticks_of_tree(pid).with_context(|| format!("process {pid} has ended"))?;
            anyhow::Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
        };
        Ok(Cpu {
            service: self.services.iter().map(|pid| time(*pid)).sum::<anyhow::Result<Duration>>()?,
            postgresql: self.postgresql.map(time).transpose()?,
            redis: self.redis.map(time).transpose()?,
        })
    }
}

/// What `/proc/<pid>/stat` says of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// Its own time, all threads.
    own: u64,
    /// Of children that have ended.
    ended: u64,
}

/// All processes at one time.
struct Table(HashMap<u32, Stat>);

impl Table {
    fn read() -> anyhow::Result<Self> {
        let mut all = HashMap::new();
        for entry in Path::new("/proc").read_dir().context("CPU times are read from /proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // It may have ended since it was listed.
            if let Ok(text) = std::fs::read_to_string(entry.path().join("stat"))
                && let Some(stat) = parse(&text)
            {
                all.insert(pid, stat);
            }
        }
        Ok(Self(all))
    }

    fn ticks_of_tree(&self, root: u32) -> Option<u64> {
        let stat = self.0.get(&root)?;
        let children = self.0.iter().filter(|(_, child)| child.parent == root);
        let below: u64 = children.filter_map(|(pid, _)| self.ticks_of_tree(*pid)).sum();
        Some(stat.own + stat.ended + below)
    }
}

/// The command's name stands in parentheses and may hold anything; fields are counted behind the last one.
fn parse(stat: &str) -> Option<Stat> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    // proc(5): state is field 3, so ppid (4) is index 1, and utime, stime, cutime, cstime (14 to 17) are 11 to 14.
    Some(Stat {
        parent: u32::try_from(number(1)?).ok()?,
        own: number(11)? + number(12)?,
        ended: number(13)? + number(14)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "4711 (a) b ( c) S 17 4711 4711 0 -1 4194560 900 80 0 0 31 12 5 4 20 0 3 0 1234 5 6";
        assert_eq!(parse(stat), Some(Stat { parent: 17, own: 43, ended: 9 }));
        assert_eq!(parse("4711 (cut"), None);
        assert_eq!(parse("4711 (cut) S 1 2"), None);
    }

    #[test]
    fn a_tree_is_added_up_with_what_has_ended() {
        let stat = |parent, own, ended| Stat { parent, own, ended };
        let table = Table(HashMap::from([
            (1, stat(0, 1000, 1000)),
            (10, stat(1, 5, 7)),
            (11, stat(10, 20, 0)),
            (12, stat(11, 300, 1)),
            (13, stat(1, 4000, 0)),
        ]));
        assert_eq!(table.ticks_of_tree(10), Some(5 + 7 + 20 + 300 + 1));
        assert_eq!(table.ticks_of_tree(99), None);
    }

    #[test]
    fn this_process_is_seen_working() {
        let us = std::process::id();
        let processes = Processes { services: vec![us], postgresql: Some(us), redis: None };
        let before = processes.cpu().unwrap();
        let mut used = Cpu::default();
        let mut sum = 0_u64;
        // Two ticks of work: however fast the machine is, it must become visible.
        while used.service < Duration::from_millis(20) {
            sum = std::hint::black_box((0..1_000_000_u64).fold(sum, |sum, number| sum ^ (sum << 1) ^ number));
            used = processes.cpu().unwrap() - before;
        }
        assert_eq!((used.postgresql, used.redis), (Some(used.service), None));
    }
}
