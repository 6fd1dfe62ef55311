//! Where it was measured: what has to stand beside every number.

use std::fs;

use serde::Serialize;

use crate::stack::Stack;

/// The machine, the servers, the build.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    pub cores: usize,
    pub processor: String,
    pub memory_gib: f64,
    pub kernel: String,
    pub postgresql: String,
    pub redis: String,
    /// Whether the systems were compiled with optimisations; numbers of others mean nothing.
    pub release_build: bool,
    /// Runnable processes over the last minute before the run: what else the machine was doing.
    pub load_before: f64,
    /// The generator shares the cores with the systems.
    pub generator_pinned: bool,
}

impl Machine {
    pub async fn look(stack: &Stack) -> anyhow::Result<Self> {
        let (postgresql, redis) = stack.versions().await?;
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Ok(Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".to_owned()),
            memory_gib: kibibytes(&read("/proc/meminfo")) / (1024.0 * 1024.0),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            postgresql,
            redis,
            release_build: !cfg!(debug_assertions),
            load_before: load(&read("/proc/loadavg")),
            generator_pinned: false,
        })
    }

    /// In one line.
    pub fn line(&self) -> String {
        format!(
            "{} cores ({}), {:.0} GiB, Linux {}; PostgreSQL {}, Redis {}; load before {:.1}",
            self.cores,
            self.processor,
            self.memory_gib,
            self.kernel,
            self.postgresql,
            self.redis,
            self.load_before
        )
    }
}

/// The first `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn kibibytes(meminfo: &str) -> f64 {
    let total = field(meminfo, "MemTotal");
    total.and_then(|value| value.split(' ').next()?.parse().ok()).unwrap_or(0.0)
}

fn load(loadavg: &str) -> f64 {
    loadavg.split(' ').next().and_then(|minute| minute.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_proc_are_read() {
        assert_eq!(
            field("processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n", "model name").unwrap(),
            "A CPU @ 2 GHz"
        );
        assert!((kibibytes("MemTotal:       24576000 kB\n") - 24_576_000.0).abs() < 0.5);
        assert!((load("1.43 2.50 2.70 1/200 5\n") - 1.43).abs() < 1e-9);
        assert!(field("", "model name").is_none() && load("").abs() < 1e-9);
    }
}
