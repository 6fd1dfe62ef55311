//! One private Redis, or Valkey: they are the same to us.
//!
//! Append-only file with an fsync every second, no eviction, 127.0.0.1 only, no password.

mod ready;

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use crate::error::Doing as _;
use crate::home::Home;
use crate::locate::RedisProgram;
use crate::server::{Ending, Launch, Server, Signals};
use crate::start::Start;
use crate::{Report, Result};

const LOG: &str = "redis.log";
const READY_BOUND: Duration = Duration::from_secs(10);
const SIGNALS: Signals = Signals { server: "Redis", gently: "TERM 5 KILL", at_once: "KILL" };

/// The defaults are those for data that is kept.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    /// Lines of the configuration (`name value`); they win over ours of the same name.
    pub settings: Vec<(String, String)>,
    /// `None` takes a free one.
    pub port: Option<u16>,
    /// How it ends when the process that started it dies.
    pub on_death: Ending,
}

impl RedisOptions {
    #[must_use]
    pub fn settings(mut self, settings: &[(&str, &str)]) -> Self {
        self.settings.extend(settings.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        self
    }
}

/// A running server. Dropping it kills it; [`Redis::stop`] is gentler.
#[derive(Debug)]
pub struct Redis {
    // Before `home`: the server ends before its folder's locks are given back.
    server: Option<Server>,
    home: Home,
    program: RedisProgram,
    options: RedisOptions,
    port: u16,
}

impl Redis {
    /// Starts on the folder, creating it when needed, and returns when it answers a PING.
    pub fn start(
        program: &RedisProgram,
        folder: impl AsRef<Path>,
        options: RedisOptions,
        report: Report<'_>,
    ) -> Result<Redis> {
        let home = Home::open(folder.as_ref(), LOG, report)?;
        if !home.data().exists() {
            home.adopt(&home.fresh()?)?;
        }
        let mut redis = Redis { server: None, home, program: program.clone(), options, port: 0 };
        redis.launch(redis.options.port)?;
        Ok(redis)
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `None` after it was stopped or killed.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Server::pid)
    }

    /// For people: `Redis 7.0.15`, `Valkey 9.1.2`.
    #[must_use]
    pub fn version(&self) -> &str {
        self.program.version()
    }

    /// Where it really is: elsewhere than asked for when the server's user cannot enter that.
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

    /// Ends it after it has written its data. Does nothing when it does not run.
    pub fn stop(&mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), |mut server| server.end(Ending::Gently))
    }

    /// SIGKILL; returns when it is gone.
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
        let start = Start { home: &self.home, signals: SIGNALS, port: fixed, bound: READY_BOUND };
        let (server, port) =
            start.run(|port| self.describe(port), |pid, port| ready::ping(port, pid).then_some(Ok(())))?;
        self.port = port;
        self.server = Some(server);
        Ok(())
    }

    fn describe(&self, port: u16) -> Result<Launch<'_>> {
        let path = self.home.folder.join("redis.conf");
        fs::write(&path, self.configuration(port)).doing("writing", &path)?;
        // For the server's user, when that is not us; it may hold passwords that the caller set.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).doing("chmod of", &path)?;
        self.home.give(&path)?;
        Ok(Launch {
            command: vec![self.program.program.clone().into(), path.into()],
            account: self.home.account.as_ref(),
            folder: &self.home.folder,
            log: &self.home.log,
            on_death: self.options.on_death,
        })
    }

    fn configuration(&self, port: u16) -> String {
        let mut text = String::from("# Written anew at every start.\n");
        let quoted = self.home.data().to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
        let (port, folder) = (port.to_string(), format!("\"{quoted}\""));
        let ours = [
            ("bind", "127.0.0.1"),
            ("port", &port),
            ("dir", &folder),
            ("protected-mode", "yes"),
            ("daemonize", "no"),
            // Standard output, which the watchdog sends to the log beside the data.
            ("logfile", "\"\""),
            ("databases", "16"),
            ("maxmemory-policy", "noeviction"),
            ("appendonly", "yes"),
            ("appendfsync", "everysec"),
            ("save", "\"\""),
        ];
        // Left out where the caller has the same name: `save` lines would add up.
        let given = |name: &str| self.options.settings.iter().any(|(given, _)| given == name);
        for (name, value) in ours.into_iter().filter(|(name, _)| !given(name)) {
            let _ = writeln!(text, "{name} {value}");
        }
        for (name, value) in &self.options.settings {
            let _ = writeln!(text, "{name} {}", if value.is_empty() { "\"\"" } else { value });
        }
        text
    }
}
