//! One running server process and its watchdog, whichever server it is.
//!
//! Deliberately unknown here: ports, readiness, what the server does. Invariant: while a [`Server`]
//! exists its process id is not recycled unnoticed, since the watchdog ends together with it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::account::{Account, run_as};
use crate::error::Doing as _;
use crate::poll::wait_until;
use crate::{Error, Result, processes};

const WATCHDOG: &str = include_str!("watchdog.sh");
/// Longer than every plan of [`Signals`] takes until its KILL.
const END_BOUND: Duration = Duration::from_secs(20);

/// How a server ends when the process that started it is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// As [`Postgres::stop`](crate::Postgres::stop): for data that is kept.
    #[default]
    Gently,
    /// Without a word to its clients or its data: for tests.
    AtOnce,
}

/// The plans (see `watchdog.sh`) by which this kind of server ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signals {
    pub(crate) server: &'static str,
    pub(crate) gently: &'static str,
    pub(crate) at_once: &'static str,
}

impl Signals {
    fn plan(self, ending: Ending) -> &'static str {
        match ending {
            Ending::Gently => self.gently,
            Ending::AtOnce => self.at_once,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Server {
    watchdog: Child,
    pid: u32,
    signals: Signals,
    paused: AtomicBool,
}

/// What is to be run.
pub(crate) struct Launch<'a> {
    pub(crate) command: Vec<OsString>,
    pub(crate) account: Option<&'a Account>,
    pub(crate) folder: &'a Path,
    /// Its lock goes with it to every process of the server (see `home.rs`).
    pub(crate) log: &'a File,
    pub(crate) on_death: Ending,
}

impl Server {
    pub(crate) fn launch(launch: &Launch<'_>, signals: Signals) -> Result<Server> {
        let log = launch.log.try_clone().doing("opening the log of", launch.folder)?;
        let mut command = Command::new("sh");
        command.args(["-c", WATCHDOG, "devstack-watchdog", signals.plan(launch.on_death)]);
        command.args(&launch.command);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
            command.env_remove(name);
        }
        // Messages are parsed for "Address already in use"; macOS needs a locale that exists.
        command.env("LC_ALL", "C").current_dir(launch.folder).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut watchdog =
            run_as(&mut command, launch.account).spawn().doing("starting a server in", launch.folder)?;
        let mut line = String::new();
        if let Some(stdout) = watchdog.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).doing("starting a server in", launch.folder)?;
        }
        match line.trim().parse() {
            Ok(pid) => Ok(Server { watchdog, pid, signals, paused: AtomicBool::new(false) }),
            Err(_) => Err(Error::Command {
                doing: format!("the watchdog of {}", signals.server),
                output: format!("{line:?} is no process id"),
            }),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.watchdog.try_wait(), Ok(None))
    }

    /// Returns when the server is gone.
    pub(crate) fn end(&mut self, ending: Ending) -> Result<()> {
        if self.has_ended() {
            return Ok(());
        }
        // The watchdog wakes the server, but not its children, who would be waited for.
        if self.paused.load(Ordering::Relaxed) {
            self.resume();
        }
        let plan = self.signals.plan(ending);
        if let Some(control) = &mut self.watchdog.stdin {
            // A broken pipe means that the watchdog has ended meanwhile, with the server.
            let _ = writeln!(control, "{plan}");
        }
        self.await_end(END_BOUND)
    }

    /// SIGKILL to the server and all its children, as in a power cut; returns when all are gone.
    pub(crate) fn kill(&mut self) -> Result<()> {
        if self.has_ended() {
            return Ok(());
        }
        // PostgreSQL's children each lead a session of their own: no process group reaches them.
        let mut all = processes::freeze(self.pid);
        all.push(self.pid);
        processes::signal("KILL", &all);
        self.await_end(END_BOUND)?;
        if wait_until(END_BOUND, || !all.iter().any(|pid| processes::is_alive(*pid))) {
            Ok(())
        } else {
            Err(self.not_ended(END_BOUND))
        }
    }

    /// SIGSTOP to the server and all its children: connections stay open, nothing answers.
    pub(crate) fn pause(&self) {
        self.paused.store(true, Ordering::Relaxed);
        processes::freeze(self.pid);
    }

    pub(crate) fn resume(&self) {
        let mut all = processes::descendants(self.pid);
        all.push(self.pid);
        processes::signal("CONT", &all);
        self.paused.store(false, Ordering::Relaxed);
    }

    fn await_end(&mut self, bound: Duration) -> Result<()> {
        if wait_until(bound, || self.has_ended()) { Ok(()) } else { Err(self.not_ended(bound)) }
    }

    fn not_ended(&self, bound: Duration) -> Error {
        Error::NotEnded { server: self.signals.server, pid: self.pid, seconds: bound.as_secs() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nobody to tell; closing the pipe makes the watchdog try again by itself.
        let _ = self.end(Ending::AtOnce);
    }
}
