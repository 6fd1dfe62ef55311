//! Nobody outlives the process that started the servers, however it ends.

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use devstack::{Redis, RedisOptions, TempDir, is_alive, wait_until};
use support::{BOUND, postgres, query, quiet, servers};

/// `devstack-hold`, running both servers.
struct Hold {
    process: Child,
    postgres: u32,
    redis: u32,
    temporary: PathBuf,
}

impl Hold {
    fn start(path: Option<&Path>, folder: Option<&Path>) -> Hold {
        let mut command = Command::new(env!("CARGO_BIN_EXE_devstack-hold"));
        command.args(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        if let Some(first) = path {
            let old = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{}:{old}", first.display()));
        }
        let mut process = command.spawn().expect("devstack-hold");
        let lines = BufReader::new(process.stdout.take().expect("stdout")).lines();
        let words: Vec<String> =
            lines.take(3).map(|line| line.expect("line").split(' ').nth(1).expect("word").into()).collect();
        let pid = |index: usize| words[index].parse().expect("a process id");
        Hold { process, postgres: pid(0), redis: pid(1), temporary: PathBuf::from(&words[2]) }
    }

    fn signal(&self, signal: &str, pids: &[u32]) {
        let line = format!("kill -s {signal} {}", pids.iter().map(|p| format!("{p} ")).collect::<String>());
        assert!(Command::new("sh").args(["-c", &line]).status().expect("sh").success(), "{line}");
    }

    fn assert_all_gone(&mut self) {
        let gone = wait_until(BOUND, || !is_alive(self.postgres) && !is_alive(self.redis));
        assert!(gone, "PostgreSQL {}, Redis {}", is_alive(self.postgres), is_alive(self.redis));
        assert!(wait_until(BOUND, || !self.temporary.exists()), "{} is left", self.temporary.display());
        let left = || processes_naming(&self.temporary);
        assert!(wait_until(BOUND, || left().is_empty()), "{:?}", left());
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Servers, watchdogs, the janitor: all have the folder in their command line.
fn processes_naming(folder: &Path) -> Vec<String> {
    let name = folder.to_string_lossy().into_owned();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let texts = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    texts.filter(|text| text.contains(&name)).collect()
}

/// The watchdog of a server, when asked for a server.
fn parent_of(pid: u32) -> u32 {
    parent_and_group(pid).0
}

fn parent_and_group(pid: u32) -> (u32, u32) {
    let text = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(") ").next().expect("fields")[1..].to_owned(),
        Err(_) => {
            let output = Command::new("ps").args(["-o", "ppid=,pgid=", "-p", &pid.to_string()]).output();
            String::from_utf8(output.expect("ps").stdout).expect("text")
        }
    };
    let mut numbers = text.split_whitespace().map(|word| word.parse().expect("a number"));
    (numbers.next().expect("parent"), numbers.next().expect("group"))
}

/// A folder in which `sh` is this shell; `None` where it is not installed.
fn shell(name: &str) -> Option<TempDir> {
    let path = std::env::var_os("PATH")?;
    let program = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.exists())?;
    let folder = TempDir::new("devstack-shell-").expect("a folder");
    std::os::unix::fs::symlink(program, folder.path().join("sh")).expect("symlink");
    Some(folder)
}

#[test]
fn sigkill_of_the_parent_ends_all_under_every_shell() {
    let mut tried = 0;
    for shell in ["dash", "bash", "busybox", "ksh", "zsh"].iter().filter_map(|name| shell(name)) {
        let mut hold = Hold::start(Some(shell.path()), None);
        hold.process.kill().expect("kill");
        hold.assert_all_gone();
        tried += 1;
    }
    assert!(tried > 0, "no shell found");
}

#[test]
fn sigkill_of_the_parent_ends_paused_servers_too() {
    let folder = TempDir::new("devstack-death-").expect("a folder");
    let mut hold = Hold::start(None, Some(folder.path()));
    hold.signal("STOP", &[hold.postgres, hold.redis]);
    hold.process.kill().expect("kill");
    hold.assert_all_gone();
    // And in order: they were woken to be told.
    for (log, end) in
        [("postgres/postgres.log", "database system is shut down"), ("redis/redis.log", "ready to exit")]
    {
        let text = fs::read_to_string(folder.path().join(log)).expect("log");
        assert!(text.contains(end), "{text}");
    }
}

/// Ctrl-C in a terminal, and the signals that a session manager sends to everybody.
#[test]
fn signals_to_the_group_or_to_the_watchdogs_end_nobody_but_the_parent() {
    let mut hold = Hold::start(None, None);
    for server in [hold.postgres, hold.redis] {
        let (watchdog, group) = parent_and_group(server);
        assert_eq!(group, watchdog, "Ctrl-C would reach the server");
        for signal in ["HUP", "INT", "TERM"] {
            hold.signal(signal, &[watchdog]);
        }
        assert!(is_alive(watchdog) && is_alive(server));
    }
    let group = hold.process.id();
    assert!(
        Command::new("sh").args(["-c", &format!("kill -s INT -- -{group}")]).status().expect("sh").success()
    );
    hold.process.wait().expect("it ends");
    hold.assert_all_gone();
}

#[test]
fn the_next_start_waits_for_the_servers_of_a_killed_one() {
    let folder = TempDir::new("devstack-death-").expect("a folder");
    let mut hold = Hold::start(None, Some(folder.path()));
    let first = hold.postgres;
    hold.process.kill().expect("kill");
    hold.process.wait().expect("reaped");
    let second = postgres(&folder);
    assert!(!is_alive(first), "two servers on one folder");
    assert_eq!(query(&second, "SELECT 1"), ["1"]);
}

/// Neither lock nor stale files of a power cut are in the way.
#[test]
fn a_start_after_sigkill_of_everything() {
    let folder = TempDir::new("devstack-death-").expect("a folder");
    let mut hold = Hold::start(None, Some(folder.path()));
    let servers = [hold.postgres, hold.redis];
    let watchdogs = servers.map(parent_of);
    let everything = [&[hold.process.id()], &watchdogs[..], &servers[..]].concat();
    hold.signal("KILL", &everything);
    hold.process.wait().expect("reaped");
    let second = postgres(&folder);
    assert_eq!(query(&second, "SELECT 1"), ["1"]);
}

/// The log is locked by every process of a server: here by us in its place.
#[test]
fn a_server_that_is_still_ending_is_waited_for() {
    let folder = TempDir::new("devstack-death-").expect("a folder");
    let place = folder.path().join("redis");
    let start = || Redis::start(&servers().redis, &place, RedisOptions::default(), &quiet).expect("Redis");
    drop(start());
    let log = fs::File::open(place.join("redis.log")).expect("log");
    log.lock().expect("lock");
    std::thread::scope(|scope| {
        let starting = scope.spawn(start);
        assert!(!wait_until(Duration::from_millis(500), || starting.is_finished()), "not waited for");
        drop(log);
        starting.join().expect("started").stop().expect("stop");
    });
}
