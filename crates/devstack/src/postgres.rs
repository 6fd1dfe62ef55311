//! One private PostgreSQL.
//!
//! Durable as in production (fsync and synchronous_commit stay on), reachable through TCP on
//! 127.0.0.1 only, with a password that stays the same for the life of the folder.

mod cluster;
mod ready;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::home::Home;
use crate::locate::PostgresProgram;
use crate::server::{Ending, Launch, Server, Signals};
use crate::start::Start;
use crate::{Error, Report, Result};

const LOG: &str = "postgres.log";
const READY_BOUND: Duration = Duration::from_secs(30);
const RUNS_ALREADY: &str = "lock file \"postmaster.pid\" already exists";
/// INT is the fast shutdown: sessions are ended, data is written. QUIT writes nothing; the next start
/// recovers. PostgreSQL itself kills children that do not follow a QUIT within 5 s.
const SIGNALS: Signals =
    Signals { server: "PostgreSQL", gently: "INT 5 QUIT 6 KILL", at_once: "QUIT 6 KILL" };

/// The defaults are those for data that is kept.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    /// Settings for the command line (`-c name=value`); they win over all others.
    pub settings: Vec<(String, String)>,
    /// `None` takes a free one.
    pub port: Option<u16>,
    /// A folder from [`Postgres::template`]: copied instead of running initdb, if there is no data yet.
    pub template: Option<PathBuf>,
    /// How it ends when the process that started it dies.
    pub on_death: Ending,
}

impl PostgresOptions {
    #[must_use]
    pub fn settings(mut self, settings: &[(&str, &str)]) -> Self {
        self.settings.extend(settings.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        self
    }
}

/// A running server. Dropping it ends it at once, without a checkpoint; [`Postgres::stop`] is gentler.
#[derive(Debug)]
pub struct Postgres {
    // Before `home`: the server ends before its folder's locks are given back.
    server: Option<Server>,
    home: Home,
    program: PostgresProgram,
    options: PostgresOptions,
    password: String,
    port: u16,
}

impl Postgres {
    /// Starts on the folder, creating it when needed, and returns when queries are answered.
    pub fn start(
        program: &PostgresProgram,
        folder: impl AsRef<Path>,
        options: PostgresOptions,
        report: Report<'_>,
    ) -> Result<Postgres> {
        let home = Home::open(folder.as_ref(), LOG, report)?;
        let password = cluster::ensure(program, &home, options.template.as_deref(), report)?;
        let program = program.clone();
        let mut postgres = Postgres { server: None, home, program, options, password, port: 0 };
        postgres.launch(postgres.options.port)?;
        Ok(postgres)
    }

    /// An initialised folder to copy from, made once; many processes may ask at once. Returns where it
    /// is (elsewhere than asked for when the server's user cannot enter that).
    pub fn template(
        program: &PostgresProgram,
        folder: impl AsRef<Path>,
        report: Report<'_>,
    ) -> Result<PathBuf> {
        cluster::template(program, folder.as_ref(), report)
    }

    /// The database `postgres`, as the superuser `postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_for("postgres")
    }

    #[must_use]
    pub fn url_for(&self, database: &str) -> String {
        let mut name = String::new();
        for byte in database.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' => name.push(char::from(byte)),
                _ => name.push_str(&format!("%{byte:02X}")),
            }
        }
        format!("postgres://postgres:{}@127.0.0.1:{}/{name}", self.password, self.port)
    }

    #[must_use]
    pub fn password(&self) -> &str {
        &self.password
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The postmaster; `None` after it was stopped or killed.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Server::pid)
    }

    /// For people: `PostgreSQL 15.18`.
    #[must_use]
    pub fn version(&self) -> &str {
        self.program.version()
    }

    /// Where it really is (see [`Postgres::template`]); `data` and `postgres.log` are in it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.home.folder
    }

    #[must_use]
    pub fn log(&self) -> &Path {
        &self.home.log_path
    }

    /// False also when it ended by itself.
    pub fn is_running(&mut self) -> bool {
        self.server.as_mut().is_some_and(|server| !server.has_ended())
    }

    /// Fast shutdown: sessions are ended, everything is written. Does nothing when it does not run.
    pub fn stop(&mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), |mut server| server.end(Ending::Gently))
    }

    /// SIGKILL to the server with all its sessions, as in a power cut; returns when all are gone.
    pub fn kill(&mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), |mut server| server.kill())
    }

    /// Starts again on the same folder and port; stops first if it runs.
    pub fn restart(&mut self) -> Result<()> {
        self.stop()?;
        self.launch(Some(self.port))
    }

    /// SIGSTOP: connections stay open, nothing answers.
    pub fn pause(&self) {
        self.server.iter().for_each(Server::pause);
    }

    pub fn resume(&self) {
        self.server.iter().for_each(Server::resume);
    }

    fn launch(&mut self, fixed: Option<u16>) -> Result<()> {
        let data = self.home.data();
        cluster::remove_stale_pid_file(&data);
        let start = Start { home: &self.home, signals: SIGNALS, port: fixed, bound: READY_BOUND };
        let started = start.run(
            |port| Ok(self.describe(port)),
            |pid, port| {
                if cluster::is_ready(&data, pid) { ready::log_in(port, &self.password) } else { None }
            },
        );
        match started {
            Ok((server, port)) => {
                self.port = port;
                self.server = Some(server);
                Ok(())
            }
            // Not one of ours, whom our locks would have told.
            Err(Error::NotStarted { tail, .. }) if tail.contains(RUNS_ALREADY) => Err(Error::InUse(data)),
            Err(error) => Err(error),
        }
    }

    fn describe(&self, port: u16) -> Launch<'_> {
        let mut command: Vec<OsString> = vec![self.program.bin.join("postgres").into(), "-D".into()];
        command.push(self.home.data().into());
        command.extend(["-p".into(), port.to_string().into()]);
        let ours = [
            ("listen_addresses", "127.0.0.1"),
            ("unix_socket_directories", ""),
            ("max_connections", "200"),
            ("logging_collector", "off"),
            ("log_destination", "stderr"),
            // In the data folder, not in /dev/shm: small in containers, and not cleared by a SIGKILL.
            ("dynamic_shared_memory_type", "mmap"),
        ];
        let theirs = self.options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in ours.into_iter().chain(theirs) {
            command.extend(["-c".into(), format!("{name}={value}").into()]);
        }
        Launch {
            command,
            account: self.home.account.as_ref(),
            folder: &self.home.folder,
            log: &self.home.log,
            on_death: self.options.on_death,
        }
    }
}
